//! `TS.NRANGE` and `TS.NREVRANGE`: the samples of named keys side by side, a row for each time that one of them has.

use std::collections::BTreeMap;

use super::arguments::Arguments;
use super::reader::{KeyRead, OptionsParser, ROW_BYTES, RangeOptions, VALUE_BYTES};
use super::{CommandError, Executor, Work};

type Done = Result<(), CommandError>;

/// Values by time: NaN where a key has none.
type Joined = BTreeMap<i64, Vec<f64>>;

/// `TS.NRANGE numkeys key … from to [options]`, where `AGGREGATION` has a list of aggregators for each key.
fn read_pivot(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>, is_reversed: bool) -> Done {
    const ERROR: &str = "TSDB: numkeys is a number of keys above 0";
    let count: usize = arguments.number(ERROR)?;
    if count == 0 {
        return Err(CommandError::series(ERROR));
    }
    if count > arguments.len() {
        return Err(CommandError::Arity(String::new()));
    }
    let names = (0..count).map(|_| arguments.key()).collect::<Result<Vec<_>, _>>()?;
    let options = OptionsParser::of_keys_side_by_side(arguments, is_reversed, count)?;
    let rows = executor.with_rows(|work| joined(work, &names, &options))?;
    let most = options.range.count.unwrap_or(usize::MAX);
    let shown: Vec<(&i64, &Vec<f64>)> =
        if is_reversed { rows.iter().rev().take(most).collect() } else { rows.iter().take(most).collect() };
    let out = &mut *executor.out;
    out.array(shown.len());
    for (time_ms, values) in shown {
        out.array(2);
        out.integer(*time_ms);
        out.array(values.len());
        values.iter().for_each(|value| out.float(*value));
    }
    Ok(())
}

fn joined(work: &Work<'_>, names: &[&str], options: &OptionsParser) -> Result<Joined, CommandError> {
    let keys = {
        let mut state = work.open()?;
        state.look_around(work.rows);
        let read = names.iter().map(|name| KeyRead::new(work.rows, &mut state, name, options.range.with_latest));
        read.collect::<Result<Vec<_>, _>>()?
    };
    let lists = &options.aggregators;
    let columns = if lists.is_empty() { names.len() } else { lists.iter().map(Vec::len).sum() };
    let row_bytes = ROW_BYTES.saturating_add((columns as u64).saturating_mul(VALUE_BYTES));
    let (mut rows, mut first) = (Joined::new(), 0);
    for (place, key) in keys.iter().enumerate() {
        // The count is of what comes out.
        let mut own = RangeOptions { count: None, is_reversed: false, ..options.range.clone() };
        if let (Some(buckets), Some(aggregators)) = (&mut own.buckets, lists.get(place)) {
            buckets.aggregators.clone_from(aggregators);
        }
        let found = key.rows(work, &own)?;
        let new = found.iter().filter(|row| !rows.contains_key(&row.time_ms)).count() as u64;
        work.rows.budget.hold_bytes(new.saturating_mul(row_bytes))?;
        for row in found {
            let values = rows.entry(row.time_ms).or_insert_with(|| vec![f64::NAN; columns]);
            values.iter_mut().skip(first).zip(row.values).for_each(|(value, own)| *value = own);
        }
        first += lists.get(place).map_or(1, Vec::len);
    }
    Ok(rows)
}

pub(super) fn nrange(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    read_pivot(executor, arguments, false)
}

pub(super) fn nrevrange(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    read_pivot(executor, arguments, true)
}
