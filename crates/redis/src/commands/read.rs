//! `TS.READ`: the oldest samples of a key from a cursor on, for which a client may wait.

use super::arguments::Arguments;
use super::error::NO_KEY;
use super::ranges::write_rows;
use super::reader::{KeyRead, RangeOptions};
use super::waiting::Waiting;
use super::{CommandError, Executor, Flow, Right, Work};
use crate::aggregate::{Row, Sample};
use crate::series::rows::TIME_MS_MAX;

const NS_PER_MS: u64 = 1_000_000;

/// What a client asks for.
struct Request<'a> {
    key: &'a str,
    cursor: &'a str,
    /// Rows that are shown.
    count: Option<usize>,
    /// How long it waits, milliseconds (0: for ever), and for how many samples.
    block: Option<(u64, usize)>,
}

/// The time that a cursor stands for; those of words need the newest sample.
fn cursor_ms(text: &str, last: Option<Sample>) -> Option<i64> {
    let after_last_ms = last.map_or(0, |(last_ms, _)| last_ms.saturating_add(1));
    match text {
        "-" => Some(0),
        "+" => Some(last.map_or(0, |(last_ms, _)| last_ms)),
        "$" => Some(after_last_ms),
        number => number.parse().ok().filter(|time_ms| (0..=TIME_MS_MAX).contains(time_ms)),
    }
}

impl<'a> Request<'a> {
    fn parse(arguments: &mut Arguments<'a>) -> Result<Self, CommandError> {
        const COUNT: &str = "TSDB: max_count is a number above 0";
        const MIN_COUNT: &str = "TSDB: min_count is a number above 0";
        let (key, cursor) = (arguments.key()?, arguments.text()?);
        cursor_ms(cursor, None).ok_or(CommandError::series("TSDB: wrong timestamp"))?;
        let (mut count, mut block) = (None, None);
        while arguments.len() > 0 {
            if arguments.take("MAX_COUNT") {
                count = Some(arguments.number::<usize>(COUNT)?).filter(|count| *count > 0);
                count.ok_or(CommandError::series(COUNT))?;
            } else if arguments.take("BLOCK") {
                let wait_ms = arguments.number("TSDB: BLOCK takes milliseconds, 0 or more, and min_count")?;
                block = Some((wait_ms, arguments.number(MIN_COUNT)?)).filter(|(_, count)| *count > 0);
                block.ok_or(CommandError::series(MIN_COUNT))?;
            } else {
                return Err(CommandError::Arity(String::new()));
            }
        }
        Ok(Self { key, cursor, count, block })
    }

    /// The samples that there are, once there are so many; the time from which on they count. A key that is not there has none.
    fn read(
        &self,
        work: &Work<'_>,
        from_ms: Option<i64>,
        enough: usize,
    ) -> Result<(Option<Vec<Row>>, i64), CommandError> {
        let mut state = work.open()?;
        state.look_around(work.rows);
        let last = match state.newest(work.rows, self.key) {
            Err(error) if error == NO_KEY => None,
            last => last?,
        };
        let from_ms = from_ms.or_else(|| cursor_ms(self.cursor, last)).unwrap_or(0);
        if last.is_none_or(|(last_ms, _)| last_ms < from_ms) {
            return Ok(((enough == 0).then(Vec::new), from_ms));
        }
        let read = KeyRead::new(work.rows, &mut state, self.key, false)?;
        drop(state);
        let range = RangeOptions::between(from_ms, TIME_MS_MAX);
        let shown = self.count.unwrap_or(usize::MAX);
        if enough > shown {
            let found = read.rows(work, &RangeOptions { count: Some(enough), ..range.clone() })?;
            if found.len() < enough {
                return Ok((None, from_ms));
            }
        }
        let rows = match read.rows(work, &RangeOptions { count: self.count, ..range })? {
            rows if rows.len() < enough.min(shown) => None,
            rows => Some(rows),
        };
        Ok((rows, from_ms))
    }
}

/// `TS.READ key cursor [BLOCK milliseconds min_count] [MAX_COUNT count]`
pub(super) fn read(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
    let has_waited = executor.session.waiting.is_some();
    // The command below may fail or answer: the client waits again only if it says so.
    let waiting = executor.session.waiting.take();
    let request = Request::parse(arguments)?;
    let clock = executor.service.db.clock();
    let block = request.block.filter(|_| !executor.is_atomic);
    // It is noted as waiting before it looks: what is written from then on wakes it.
    let mut waiting = match (waiting, block) {
        (None, Some((wait_ms, _))) => {
            let until_ns = match wait_ms {
                0 => u64::MAX,
                _ => clock.monotonic_ns().saturating_add(wait_ms.saturating_mul(NS_PER_MS)),
            };
            Some(executor.wait(request.key, until_ns)?)
        }
        (waiting, _) => waiting,
    };
    let is_over = waiting.as_ref().is_none_or(|waiting| waiting.until_ns() <= clock.monotonic_ns());
    let enough = block.filter(|_| !is_over).map_or(0, |(_, enough)| enough);
    let known_ms = waiting.as_ref().and_then(|waiting| waiting.from_ms);
    let (rows, from_ms) = executor.with_rows(|work| request.read(work, known_ms, enough))?;
    let Some(rows) = rows else {
        waiting.iter_mut().for_each(|waiting| waiting.from_ms = Some(from_ms));
        executor.session.waiting = waiting;
        executor.flow = Flow::Wait;
        return Ok(());
    };
    if has_waited {
        executor.check(Right::Read)?;
    }
    write_rows(executor.out, &rows);
    Ok(())
}

impl Executor<'_> {
    /// Notes that the client waits for samples of a key.
    fn wait(&self, key: &str, until_ns: u64) -> Result<Waiting, CommandError> {
        let database = self.service.database(self.session.database);
        database.waiters.add(key, until_ns, self.service.limits.waiting_max)
    }
}
