//! Commands about keys, whatever they hold.

use std::sync::Arc;

use super::arguments::Arguments;
use super::glob::glob_match;
use super::{CommandError, Executor};

type Done = Result<(), CommandError>;

/// The type of all keys, as `RedisTimeSeries` calls it.
const TYPE: &str = "TSDB-TYPE";

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn dbsize(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    let keys = executor.with_rows(|work| Ok(work.open()?.catalog.len()))?;
    executor.out.integer(count(keys));
    Ok(())
}

pub(super) fn exists(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let names = arguments.rest()?;
    let found = executor.with_rows(|work| {
        let state = work.open()?;
        Ok(names.iter().filter(|name| state.catalog.get(name).is_some()).count())
    })?;
    executor.out.integer(count(found));
    Ok(())
}

pub(super) fn type_of(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let name = arguments.text()?;
    let is_there = executor.with_rows(|work| Ok(work.open()?.catalog.get(name).is_some()))?;
    executor.out.simple(if is_there { TYPE } else { "none" });
    Ok(())
}

pub(super) fn object(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let (subcommand, name) = (arguments.text()?, arguments.text()?);
    if !subcommand.eq_ignore_ascii_case("ENCODING") {
        return Err(CommandError::other(format!(
            "ERR OBJECT {} is not possible here",
            subcommand.to_ascii_uppercase()
        )));
    }
    let is_there = executor.with_rows(|work| Ok(work.open()?.catalog.get(name).is_some()))?;
    if is_there {
        executor.out.text("raw");
    } else {
        executor.out.null();
    }
    Ok(())
}

pub(super) fn del(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let names = arguments.rest()?;
    let deleted = executor.with_rows(|work| {
        let mut state = work.open()?;
        let mut found: Vec<Arc<str>> = names.iter().filter_map(|name| state.catalog.name(name)).collect();
        found.sort_unstable();
        found.dedup();
        if !found.is_empty() {
            state.delete(work.rows, &found)?;
        }
        Ok(found.len())
    })?;
    executor.out.integer(count(deleted));
    Ok(())
}

/// `SYNC` and `ASYNC` change nothing: a database is dropped in one step.
fn check_flush(arguments: &mut Arguments<'_>) -> Done {
    let is_known = arguments.take("SYNC") || arguments.take("ASYNC") || arguments.len() == 0;
    if is_known && arguments.len() == 0 { Ok(()) } else { Err(CommandError::Syntax) }
}

pub(super) fn flush(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    check_flush(arguments)?;
    executor.with_rows(|work| {
        // The keys are locked, so that none is written meanwhile; they are read again by the next command.
        let _locked = work.open()?;
        Ok(work.rows.db.drop_database(work.rows.database)?)
    })?;
    executor.out.ok();
    Ok(())
}

pub(super) fn flush_all(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    check_flush(arguments)?;
    let chosen = executor.session.database;
    for number in 0..executor.service.limits.databases {
        let name = executor.service.database_name(number);
        if executor.service.db.has_database(&name) {
            executor
                .access
                .check(super::Right::Delete, &name)
                .map_err(|why| CommandError::other(format!("NOPERM {why}")))?;
            executor.session.database = number;
            let flushed = executor.with_rows(|work| {
                let _locked = work.open()?;
                Ok(work.rows.db.drop_database(work.rows.database)?)
            });
            executor.session.database = chosen;
            flushed?;
        }
    }
    executor.out.ok();
    Ok(())
}

/// Bytes of a pattern of names: as many as of a name, of which each may be held against each.
const PATTERN_BYTES_MAX: usize = 4096;

fn pattern<'a>(arguments: &mut Arguments<'a>) -> Result<&'a [u8], CommandError> {
    let pattern = arguments.next().ok_or(CommandError::Syntax)?;
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(CommandError::other(format!("ERR a pattern has at most {PATTERN_BYTES_MAX} bytes here")));
    }
    Ok(pattern)
}

pub(super) fn keys(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let pattern = pattern(arguments)?;
    let names = executor.with_rows(|work| Ok(work.open()?.catalog.names()))?;
    let found: Vec<&Arc<str>> = names.iter().filter(|name| glob_match(pattern, name.as_bytes())).collect();
    executor.out.array(found.len());
    found.iter().for_each(|name| executor.out.text(name));
    Ok(())
}

pub(super) fn random_key(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    let name = executor.with_rows(|work| Ok(work.open()?.catalog.iter().next().map(|(name, _)| name.clone())))?;
    match name {
        Some(name) => executor.out.text(&name),
        None => executor.out.null(),
    }
    Ok(())
}

pub(super) fn scan(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let cursor: u64 = arguments.number("ERR invalid cursor")?;
    let (mut pattern, mut most, mut is_wanted) = (None, 10usize, true);
    while arguments.len() > 0 {
        if arguments.take("MATCH") {
            pattern = Some(self::pattern(arguments)?);
        } else if arguments.take("COUNT") {
            most = arguments.number("ERR value is not an integer or out of range")?;
            if most == 0 {
                return Err(CommandError::Syntax);
            }
        } else if arguments.take("TYPE") {
            is_wanted = arguments.text()?.eq_ignore_ascii_case(TYPE);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let (next, names) = executor.with_rows(|work| Ok(work.open()?.catalog.scan(cursor, most)))?;
    let is_found = |name: &&Arc<str>| is_wanted && pattern.is_none_or(|pattern| glob_match(pattern, name.as_bytes()));
    let found: Vec<&Arc<str>> = names.iter().filter(is_found).collect();
    executor.out.array(2);
    executor.out.text(&next.to_string());
    executor.out.array(found.len());
    found.iter().for_each(|name| executor.out.text(name));
    Ok(())
}

/// When a key goes.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

impl Unit {
    const fn ms(self) -> i64 {
        match self {
            Self::Seconds => 1_000,
            Self::Milliseconds => 1,
        }
    }
}

fn set_expiry(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>, (unit, is_absolute): (Unit, bool)) -> Done {
    let name = arguments.key()?;
    let time: i64 = arguments.number("ERR value is not an integer or out of range")?;
    let condition = arguments.next().map(<[u8]>::to_ascii_uppercase);
    let is_set = executor.with_rows(|work| {
        let now_ms = work.now_ms();
        let time_ms =
            time.checked_mul(unit.ms()).and_then(|ms| if is_absolute { Some(ms) } else { now_ms.checked_add(ms) });
        let time_ms = time_ms.ok_or_else(|| CommandError::other("ERR invalid expire time"))?;
        let mut state = work.open()?;
        let Some(key) = state.catalog.get(name) else { return Ok(false) };
        let old_ms = key.settings.expires_ms;
        let holds = match condition.as_deref() {
            None => true,
            Some(b"NX") => old_ms.is_none(),
            Some(b"XX") => old_ms.is_some(),
            Some(b"GT") => old_ms.is_some_and(|old_ms| time_ms > old_ms),
            Some(b"LT") => old_ms.is_none_or(|old_ms| time_ms < old_ms),
            Some(_) => return Err(CommandError::other("ERR Unsupported option")),
        };
        if holds && time_ms <= now_ms {
            let shared: Vec<Arc<str>> = state.catalog.name(name).into_iter().collect();
            state.delete(work.rows, &shared)?;
            return Ok(true);
        }
        drop(state);
        if holds {
            work.write(|writer| writer.change(name, |settings| settings.expires_ms = Some(time_ms)))?;
        }
        Ok(holds)
    })?;
    executor.out.integer(i64::from(is_set));
    Ok(())
}

pub(super) fn expire(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    set_expiry(executor, arguments, (Unit::Seconds, false))
}

pub(super) fn pexpire(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    set_expiry(executor, arguments, (Unit::Milliseconds, false))
}

pub(super) fn expire_at(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    set_expiry(executor, arguments, (Unit::Seconds, true))
}

pub(super) fn pexpire_at(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    set_expiry(executor, arguments, (Unit::Milliseconds, true))
}

pub(super) fn persist(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let name = arguments.key()?;
    let had = executor.with_rows(|work| {
        let had = work.open()?.catalog.get(name).is_some_and(|key| key.settings.expires_ms.is_some());
        if had {
            work.write(|writer| writer.change(name, |settings| settings.expires_ms = None))?;
        }
        Ok(had)
    })?;
    executor.out.integer(i64::from(had));
    Ok(())
}

/// Writes what is left of a key's time, or when it goes: -1 if it stays, -2 if it is not there.
fn show_expiry(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>, (unit, is_absolute): (Unit, bool)) -> Done {
    let name = arguments.key()?;
    let (found, now_ms) = executor
        .with_rows(|work| Ok((work.open()?.catalog.get(name).map(|key| key.settings.expires_ms), work.now_ms())))?;
    let shown = match found {
        None => -2,
        Some(None) => -1,
        Some(Some(expires_ms)) if is_absolute => expires_ms / unit.ms(),
        Some(Some(expires_ms)) => (expires_ms.saturating_sub(now_ms).max(0) + unit.ms() / 2) / unit.ms(),
    };
    executor.out.integer(shown);
    Ok(())
}

pub(super) fn ttl(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    show_expiry(executor, arguments, (Unit::Seconds, false))
}

pub(super) fn pttl(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    show_expiry(executor, arguments, (Unit::Milliseconds, false))
}

pub(super) fn expire_time(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    show_expiry(executor, arguments, (Unit::Seconds, true))
}

pub(super) fn pexpire_time(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    show_expiry(executor, arguments, (Unit::Milliseconds, true))
}
