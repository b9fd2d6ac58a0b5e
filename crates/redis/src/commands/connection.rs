//! Commands about the connection and the server.
#![allow(clippy::unnecessary_wraps, reason = "all commands have one signature")]

use super::arguments::Arguments;
use super::glob::glob_match;
use super::session::Transaction;
use super::table::{COMMANDS, Need, Spec};
use super::{CommandError, Executor, Flow};
use crate::series::rows::NS_PER_MS;

/// The version of Redis whose commands are spoken: clients choose by it what they ask for.
const REDIS_VERSION: &str = "8.8.0";

/// The number of the version of `RedisTimeSeries`.
const MODULE_VERSION: i64 = 80_800;

type Done = Result<(), CommandError>;

/// Bytes of what a client calls itself.
const NAME_BYTES_MAX: usize = 256;

const MODULE: &str = "timeseries";

fn sign_in(executor: &mut Executor<'_>, user: &str, password: &str) -> Done {
    executor.access.sign_in(user, password).map_err(|why| {
        CommandError::other(format!("WRONGPASS invalid username-password pair or user is disabled. {why}"))
    })
}

pub(super) fn auth(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let first = arguments.text()?;
    let (user, password) = if arguments.len() == 0 { ("", first) } else { (first, arguments.text()?) };
    if arguments.len() > 0 {
        return Err(CommandError::Syntax);
    }
    sign_in(executor, user, password)?;
    executor.out.ok();
    Ok(())
}

pub(super) fn hello(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let mut is_resp3 = executor.session.is_resp3;
    if arguments.len() > 0 {
        is_resp3 = match arguments.number::<u8>("ERR Protocol version is not an integer or out of range")? {
            2 => false,
            3 => true,
            _ => return Err(CommandError::series("NOPROTO unsupported protocol version")),
        };
    }
    let mut name = None;
    while arguments.len() > 0 {
        if arguments.take("AUTH") {
            let (user, password) = (arguments.text()?, arguments.text()?);
            sign_in(executor, user, password)?;
        } else if arguments.take("SETNAME") {
            name = Some(client_name(arguments.text()?)?);
        } else {
            return Err(CommandError::other("ERR Syntax error in HELLO option"));
        }
    }
    if !executor.access.is_signed_in() {
        return Err(CommandError::series(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can \
             be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        executor.session.name = name;
    }
    executor.session.is_resp3 = is_resp3;
    let (id, out) = (executor.session.id, &mut *executor.out);
    out.set_resp3(is_resp3);
    out.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        out.text(name);
        out.text(value);
    }
    out.text("proto");
    out.integer(if is_resp3 { 3 } else { 2 });
    out.text("id");
    out.integer(i64::try_from(id).unwrap_or(i64::MAX));
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        out.text(name);
        out.text(value);
    }
    out.text("modules");
    modules(executor);
    Ok(())
}

fn modules(executor: &mut Executor<'_>) {
    let out = &mut *executor.out;
    out.array(1);
    out.map(4);
    out.text("name");
    out.text(MODULE);
    out.text("ver");
    out.integer(MODULE_VERSION);
    out.text("path");
    out.text("");
    out.text("args");
    out.array(0);
}

fn client_name(name: &str) -> Result<String, CommandError> {
    if name.len() > NAME_BYTES_MAX || name.chars().any(|character| character.is_control() || character == ' ') {
        return Err(CommandError::series("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(name.to_owned())
}

pub(super) fn client(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let subcommand = arguments.text()?.to_ascii_uppercase();
    match subcommand.as_str() {
        "SETNAME" => executor.session.name = client_name(arguments.text()?)?,
        "SETINFO" => {
            let (attribute, value) = (arguments.text()?, client_name(arguments.text()?)?);
            match attribute.to_ascii_uppercase().as_str() {
                "LIB-NAME" => executor.session.library.0 = value,
                "LIB-VER" => executor.session.library.1 = value,
                _ => return Err(CommandError::other(format!("ERR Unrecognized option '{attribute}'"))),
            }
        }
        "GETNAME" => {
            let name = executor.session.name.clone();
            if name.is_empty() {
                executor.out.null();
            } else {
                executor.out.text(&name);
            }
            return Ok(());
        }
        "ID" => {
            executor.out.integer(i64::try_from(executor.session.id).unwrap_or(i64::MAX));
            return Ok(());
        }
        "INFO" | "LIST" => {
            let line = describe(executor);
            executor.out.text(&line);
            return Ok(());
        }
        // Nothing of it is here: keys are never evicted, and no client caches them.
        "NO-EVICT" | "NO-TOUCH" => {}
        other => return Err(unknown_subcommand("CLIENT", other)),
    }
    executor.out.ok();
    Ok(())
}

fn describe(executor: &Executor<'_>) -> String {
    let session = &*executor.session;
    let (name, version) = &session.library;
    format!(
        "id={} name={} db={} resp={} lib-name={name} lib-ver={version}\n",
        session.id,
        session.name,
        session.database,
        if session.is_resp3 { 3 } else { 2 },
    )
}

fn unknown_subcommand(command: &str, name: &str) -> CommandError {
    CommandError::other(format!("ERR unknown subcommand '{name}' of {command}"))
}

pub(super) fn ping(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    match arguments.next() {
        Some(text) => executor.out.bulk(text),
        None => executor.out.simple("PONG"),
    }
    Ok(())
}

pub(super) fn echo(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    executor.out.bulk(arguments.next().unwrap_or_default());
    Ok(())
}

pub(super) fn quit(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    executor.flow = Flow::Close;
    executor.out.ok();
    Ok(())
}

pub(super) fn reset(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    let session = &mut *executor.session;
    (session.database, session.is_resp3, session.transaction) = (0, false, None);
    session.name.clear();
    executor.access.sign_out();
    executor.out.set_resp3(false);
    executor.out.simple("RESET");
    Ok(())
}

pub(super) fn select(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let number: u32 = arguments.number("ERR value is not an integer or out of range")?;
    if number >= executor.service.limits.databases {
        return Err(CommandError::series("ERR DB index is out of range"));
    }
    executor.session.database = number;
    executor.out.ok();
    Ok(())
}

pub(super) fn time(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    let now_us = executor.service.db.latest_now_ns() / 1_000;
    executor.out.array(2);
    executor.out.text(&(now_us / 1_000_000).to_string());
    executor.out.text(&(now_us % 1_000_000).to_string());
    Ok(())
}

pub(super) fn multi(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    if executor.session.transaction.is_some() {
        return Err(CommandError::series("ERR MULTI calls can not be nested"));
    }
    executor.session.transaction = Some(Transaction::default());
    executor.out.ok();
    Ok(())
}

pub(super) fn discard(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    if executor.session.transaction.take().is_none() {
        return Err(CommandError::series("ERR DISCARD without MULTI"));
    }
    executor.out.ok();
    Ok(())
}

/// The executor runs the transaction itself.
pub(super) fn exec(_: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    Err(CommandError::series("ERR EXEC without MULTI"))
}

pub(super) fn watch(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    let why = if executor.session.transaction.is_some() {
        "ERR WATCH inside MULTI is not allowed"
    } else {
        "ERR keys cannot be watched here: a transaction runs alone, but is not undone by changes before it"
    };
    Err(CommandError::series(why))
}

pub(super) fn unwatch(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    executor.out.ok();
    Ok(())
}

/// There are no replicas.
pub(super) fn wait(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    executor.out.integer(0);
    Ok(())
}

pub(super) fn module(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let subcommand = arguments.text()?;
    if !subcommand.eq_ignore_ascii_case("LIST") {
        return Err(unknown_subcommand("MODULE", subcommand));
    }
    modules(executor);
    Ok(())
}

pub(super) fn config(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let subcommand = arguments.text()?;
    if !subcommand.eq_ignore_ascii_case("GET") {
        return Err(CommandError::other(format!(
            "ERR CONFIG {} is not possible here: settings are flags of the server",
            subcommand.to_ascii_uppercase()
        )));
    }
    let patterns = arguments.rest()?;
    let settings = [
        ("appendonly", "yes".to_owned()),
        ("databases", executor.service.limits.databases.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("save", String::new()),
        ("ts-duplicate-policy", "block".to_owned()),
        ("ts-retention-policy", "0".to_owned()),
    ];
    let is_wanted = |name: &str| patterns.iter().any(|pattern| glob_match(pattern.as_bytes(), name.as_bytes()));
    let found: Vec<_> = settings.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    executor.out.map(found.len());
    for (name, value) in found {
        executor.out.text(name);
        executor.out.text(&value);
    }
    Ok(())
}

pub(super) fn info(executor: &mut Executor<'_>, _: &mut Arguments<'_>) -> Done {
    let service = executor.service;
    let uptime_s = service.db.latest_now_ns().saturating_sub(service.opened_ns) / (1_000 * NS_PER_MS);
    let commands = service.commands.load(std::sync::atomic::Ordering::Relaxed);
    let memory = service.memory.used_bytes();
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nserver_name:thalweg\r\nredis_mode:standalone\r\narch_bits:64\r\n\
         uptime_in_seconds:{uptime_s}\r\n\r\n# Memory\r\nused_memory:{memory}\r\n\r\n# Persistence\r\nloading:0\r\naof_enabled:1\r\n\r\n\
         # Stats\r\ntotal_commands_processed:{commands}\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Modules\r\nmodule:name={MODULE},ver={MODULE_VERSION},api=1,filters=0,usedby=[],using=[],options=[]\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n"
    );
    executor.out.text(&text);
    Ok(())
}

pub(super) fn command(executor: &mut Executor<'_>, arguments: &mut Arguments<'_>) -> Done {
    let out = &mut *executor.out;
    let Some(subcommand) = arguments.next() else {
        out.array(COMMANDS.len());
        COMMANDS.iter().for_each(|spec| describe_command(out, spec));
        return Ok(());
    };
    match subcommand.to_ascii_uppercase().as_slice() {
        b"COUNT" => out.integer(i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX)),
        b"LIST" => {
            out.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| out.text(&spec.name.to_ascii_lowercase()));
        }
        b"DOCS" => out.map(0),
        b"INFO" => {
            let names = arguments.rest()?;
            out.array(names.len());
            for name in names {
                match super::table::find(name.as_bytes()) {
                    Some(spec) => describe_command(out, spec),
                    None => out.null(),
                }
            }
        }
        other => return Err(unknown_subcommand("COMMAND", &String::from_utf8_lossy(other))),
    }
    Ok(())
}

fn describe_command(out: &mut crate::protocol::ReplyWriter, spec: &Spec) {
    out.array(6);
    out.text(&spec.name.to_ascii_lowercase());
    out.integer(spec.arity);
    let flags: &[&str] = match spec.need {
        Need::Write | Need::Delete => &["write", "denyoom"],
        Need::Read => &["readonly"],
        Need::Nothing | Need::Account => &["fast", "loading", "stale"],
    };
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    let (first, last, step) = spec.keys;
    [first, last, step].iter().for_each(|number| out.integer(*number));
}
