//! Commands that write samples, and those that make and change keys.

use super::arguments::Arguments;
use super::create::{Options, TimeArgument, value};
use super::database::Database;
use super::error::NO_KEY;
use super::writer::Writer;
use super::{CommandError, Executor, Right};
use crate::protocol::Request;
use crate::series::catalog::KeySlot;
use crate::series::settings::DuplicatePolicy;

type Done = Result<(), CommandError>;

/// Requests of a run that are appended together.
const RUN_MAX: usize = 10_000;

/// How many requests from the first on add samples, and can be done together.
pub(super) fn leading_adds(input: &[u8], requests: &[Request]) -> usize {
    let is_add = |request: &&Request| {
        let name = request.arguments.first().and_then(|range| input.get(range.clone())).unwrap_or_default();
        let arguments = request.arguments.len();
        let adds = name.eq_ignore_ascii_case(b"TS.ADD") || name.eq_ignore_ascii_case(b"TS.MADD");
        adds && arguments >= 4
    };
    requests.iter().take(RUN_MAX).take_while(is_add).count()
}

/// The reply to a request of a run.
enum Outcome {
    One(Result<i64, CommandError>),
    /// `TS.MADD`: one for each of its samples.
    Several(Vec<Result<i64, CommandError>>),
}

/// Runs requests that add samples: all are appended together.
pub(super) fn run_adds(executor: &mut Executor<'_>, database: &Database, input: &[u8], requests: &[Request]) {
    let allowed = executor.access.check(Right::Write, &database.name);
    let outcomes = match allowed {
        Err(why) => Err(CommandError::other(format!("NOPERM {why}"))),
        Ok(()) => executor.with_rows(|work| work.write(|writer| Ok(outcomes(writer, input, requests)))),
    };
    let out = &mut *executor.out;
    let mut samples = 0;
    let mut write = |out: &mut crate::protocol::ReplyWriter, outcome: &Result<i64, CommandError>| match outcome {
        Ok(time_ms) => {
            samples += 1;
            out.integer(*time_ms);
        }
        Err(error) => out.error(&error.to_string()),
    };
    match outcomes {
        Ok(outcomes) => {
            for outcome in &outcomes {
                match outcome {
                    Outcome::One(outcome) => write(out, outcome),
                    Outcome::Several(several) => {
                        out.array(several.len());
                        several.iter().for_each(|outcome| write(out, outcome));
                    }
                }
            }
        }
        Err(error) => requests.iter().for_each(|_| out.error(&error.to_string())),
    }
    executor.access.note_samples(&database.name, samples);
}

fn outcomes(writer: &mut Writer<'_>, input: &[u8], requests: &[Request]) -> Vec<Outcome> {
    let outcome = |request: &Request| {
        let mut arguments = Arguments::new(input, &request.arguments);
        let is_several = arguments.next().is_some_and(|name| name.eq_ignore_ascii_case(b"TS.MADD"));
        if !is_several {
            return Outcome::One(add_one(writer, &mut arguments));
        }
        if !arguments.len().is_multiple_of(3) {
            return Outcome::One(Err(CommandError::Arity("ts.madd".to_owned())));
        }
        let several = (0..arguments.len() / 3).map(|_| add_known(writer, &mut arguments));
        Outcome::Several(several.collect())
    };
    requests.iter().map(outcome).collect()
}

/// `TS.ADD key timestamp value [options]`
fn add_one(writer: &mut Writer<'_>, arguments: &mut Arguments<'_>) -> Result<i64, CommandError> {
    let key = arguments.key()?;
    let time = TimeArgument::parse(arguments.next().ok_or(CommandError::Syntax)?)?;
    let value = value(arguments.next().ok_or(CommandError::Syntax)?)?;
    let time_ms = time.ms(writer.now_ms);
    let (slot, on_duplicate) = if arguments.len() == 0 {
        (ensure(writer, (key, time_ms), Options::default)?, None)
    } else {
        let options = Options::parse(arguments)?;
        let on_duplicate = options.on_duplicate;
        (ensure(writer, (key, time_ms), || options)?, on_duplicate)
    };
    writer.add(slot, (time_ms, value), on_duplicate)
}

/// Where a key is, which is made if it is not there and may have a sample of the time.
fn ensure(
    writer: &mut Writer<'_>,
    (key, time_ms): (&str, i64),
    options: impl FnOnce() -> Options,
) -> Result<KeySlot, CommandError> {
    if let Ok(slot) = writer.slot(key) {
        return Ok(slot);
    }
    writer.check_time(time_ms)?;
    writer.create(key, options().settings(), true)?;
    writer.slot(key)
}

/// A sample of `TS.MADD`, whose keys are there.
fn add_known(writer: &mut Writer<'_>, arguments: &mut Arguments<'_>) -> Result<i64, CommandError> {
    let (key, time, text) = (arguments.text(), arguments.next(), arguments.next());
    let (key, time, text) = (key?, time.ok_or(CommandError::Syntax)?, text.ok_or(CommandError::Syntax)?);
    let slot = writer.slot(key)?;
    let (time, value) = (TimeArgument::parse(time)?, value(text)?);
    writer.add(slot, (time.ms(writer.now_ms), value), None::<DuplicatePolicy>)
}

/// Within a transaction; a run of others is done by [`run_adds`].
pub(super) fn add(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let time_ms = executor.with_rows(|work| work.write(|writer| add_one(writer, arguments)))?;
    executor.out.integer(time_ms);
    Ok(())
}

/// Within a transaction; a run of others is done by [`run_adds`].
pub(super) fn madd(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    if !arguments.len().is_multiple_of(3) {
        return Err(CommandError::Arity(String::new()));
    }
    let several = executor.with_rows(|work| {
        work.write(|writer| Ok((0..arguments.len() / 3).map(|_| add_known(writer, arguments)).collect::<Vec<_>>()))
    })?;
    executor.out.array(several.len());
    for outcome in several {
        match outcome {
            Ok(time_ms) => executor.out.integer(time_ms),
            Err(error) => executor.out.error(&error.to_string()),
        }
    }
    Ok(())
}

pub(super) fn create(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let (key, options) = (arguments.key()?, Options::parse(arguments)?);
    executor.with_rows(|work| {
        work.write(|writer| {
            if writer.state.catalog.get(key).is_some() {
                return Err(CommandError::series("TSDB: key already exists"));
            }
            writer.create(key, options.settings(), false)
        })
    })?;
    executor.out.ok();
    Ok(())
}

pub(super) fn alter(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let (key, options) = (arguments.key()?, Options::parse(arguments)?);
    executor.with_rows(|work| work.write(|writer| writer.change(key, |settings| options.apply(settings))))?;
    executor.out.ok();
    Ok(())
}

fn increment_by(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>, sign: f64) -> Done {
    let key = arguments.key()?;
    let by = value(arguments.next().ok_or(CommandError::Syntax)?)?;
    let options = Options::parse(arguments)?;
    let time_ms = executor.with_rows(|work| {
        work.write(|writer| {
            let time_ms = options.timestamp.map_or(writer.now_ms, |time| time.ms(writer.now_ms));
            let slot = ensure(writer, (key, time_ms), || options)?;
            writer.increment(slot, (time_ms, sign * by))
        })
    })?;
    executor.out.integer(time_ms);
    Ok(())
}

pub(super) fn increment(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    increment_by(executor, arguments, 1.0)
}

pub(super) fn decrement(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    increment_by(executor, arguments, -1.0)
}

pub(super) fn delete(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let (key, range) = (arguments.key()?, super::reader::time_range(arguments)?);
    let deleted = executor.with_rows(|work| {
        let found = {
            let _ = work.open()?.catalog.get(key).ok_or(NO_KEY)?;
            work.rows.count(key, range)?.0
        };
        if found == 0 {
            return Ok(0);
        }
        work.write(|writer| {
            // Its series may go with its samples.
            writer.save_document(key)?;
            writer.rows.delete_samples(key, range.0, range.1)?;
            if let Some(key) = writer.state.catalog.get_mut(key) {
                key.last = crate::series::catalog::Last::Unknown;
            }
            writer.follow_delete(key, range)
        })?;
        Ok(found)
    })?;
    executor.out.integer(i64::try_from(deleted).unwrap_or(i64::MAX));
    Ok(())
}
