//! The commands, by name.

use super::arguments::Arguments;
use super::{CommandError, Executor, connection, information, keys, pivot, ranges, read, rules, samples};

/// What a command needs of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: clients send it before they sign in.
    Nothing,
    /// That it has signed in.
    Account,
    /// To read the chosen database.
    Read,
    /// To write into it.
    Write,
    /// To delete from it.
    Delete,
}

type Run = fn(&mut Executor<'_>, &mut Arguments<'_>) -> Result<(), CommandError>;

/// A command.
pub(super) struct Spec {
    /// In capitals.
    pub(super) name: &'static str,
    /// How many arguments it has, its name among them; below 0: at least so many.
    pub(super) arity: i64,
    pub(super) need: Need,
    /// Where its keys are, as Redis's COMMAND says it: the first, the last, and from one to the next.
    pub(super) keys: (i64, i64, i64),
    /// True if it is done within a transaction, not queued.
    pub(super) is_immediate: bool,
    pub(super) run: Run,
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Spec {
    const fn new(name: &'static str, arity: i64, need: Need, keys: (i64, i64, i64), run: Run) -> Self {
        Self { name, arity, need, keys, is_immediate: false, run }
    }

    const fn immediate(name: &'static str, arity: i64, run: Run) -> Self {
        Self { name, arity, need: Need::Nothing, keys: NO_KEYS, is_immediate: true, run }
    }

    /// Refuses a wrong number of arguments, the name among them.
    pub(super) fn check_arity(&self, arguments: usize) -> Result<(), CommandError> {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        let fits = if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity };
        if fits { Ok(()) } else { Err(CommandError::Arity(self.name.to_ascii_lowercase())) }
    }
}

const NO_KEYS: (i64, i64, i64) = (0, 0, 0);
const FIRST: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);

/// All commands, in order of their names.
pub(super) const COMMANDS: [Spec; 61] = [
    Spec::new("AUTH", -2, Need::Nothing, NO_KEYS, connection::auth),
    Spec::new("CLIENT", -2, Need::Nothing, NO_KEYS, connection::client),
    Spec::new("COMMAND", -1, Need::Account, NO_KEYS, connection::command),
    Spec::new("CONFIG", -2, Need::Account, NO_KEYS, connection::config),
    Spec::new("DBSIZE", 1, Need::Read, NO_KEYS, keys::dbsize),
    Spec::new("DEL", -2, Need::Delete, ALL, keys::del),
    Spec::immediate("DISCARD", 1, connection::discard),
    Spec::new("ECHO", 2, Need::Account, NO_KEYS, connection::echo),
    Spec::immediate("EXEC", 1, connection::exec),
    Spec::new("EXISTS", -2, Need::Read, ALL, keys::exists),
    Spec::new("EXPIRE", -3, Need::Delete, FIRST, keys::expire),
    Spec::new("EXPIREAT", -3, Need::Delete, FIRST, keys::expire_at),
    Spec::new("EXPIRETIME", 2, Need::Read, FIRST, keys::expire_time),
    Spec::new("FLUSHALL", -1, Need::Delete, NO_KEYS, keys::flush_all),
    Spec::new("FLUSHDB", -1, Need::Delete, NO_KEYS, keys::flush),
    Spec::new("HELLO", -1, Need::Nothing, NO_KEYS, connection::hello),
    Spec::new("INFO", -1, Need::Account, NO_KEYS, connection::info),
    Spec::new("KEYS", 2, Need::Read, NO_KEYS, keys::keys),
    Spec::new("MODULE", -2, Need::Account, NO_KEYS, connection::module),
    Spec::immediate("MULTI", 1, connection::multi),
    Spec::new("OBJECT", -2, Need::Read, (2, 2, 1), keys::object),
    Spec::new("PERSIST", 2, Need::Write, FIRST, keys::persist),
    Spec::new("PEXPIRE", -3, Need::Delete, FIRST, keys::pexpire),
    Spec::new("PEXPIREAT", -3, Need::Delete, FIRST, keys::pexpire_at),
    Spec::new("PING", -1, Need::Account, NO_KEYS, connection::ping),
    Spec::new("PTTL", 2, Need::Read, FIRST, keys::pttl),
    Spec::immediate("QUIT", -1, connection::quit),
    Spec::new("RANDOMKEY", 1, Need::Read, NO_KEYS, keys::random_key),
    Spec::immediate("RESET", 1, connection::reset),
    Spec::new("SCAN", -2, Need::Read, NO_KEYS, keys::scan),
    Spec::new("SELECT", 2, Need::Account, NO_KEYS, connection::select),
    Spec::new("TIME", 1, Need::Account, NO_KEYS, connection::time),
    Spec::new("TS.ADD", -4, Need::Write, FIRST, samples::add),
    Spec::new("TS.ALTER", -2, Need::Write, FIRST, samples::alter),
    Spec::new("TS.CREATE", -2, Need::Write, FIRST, samples::create),
    Spec::new("TS.CREATERULE", -6, Need::Write, (1, 2, 1), rules::create_rule),
    Spec::new("TS.DECRBY", -3, Need::Write, FIRST, samples::decrement),
    Spec::new("TS.DEL", 4, Need::Delete, FIRST, samples::delete),
    Spec::new("TS.DELETERULE", 3, Need::Write, (1, 2, 1), rules::delete_rule),
    Spec::new("TS.GET", -2, Need::Read, FIRST, ranges::get),
    Spec::new("TS.INCRBY", -3, Need::Write, FIRST, samples::increment),
    Spec::new("TS.INFO", -2, Need::Read, FIRST, information::info),
    Spec::new("TS.MADD", -4, Need::Write, (1, -1, 3), samples::madd),
    Spec::new("TS.MGET", -3, Need::Read, NO_KEYS, ranges::mget),
    Spec::new("TS.MRANGE", -4, Need::Read, NO_KEYS, ranges::mrange),
    Spec::new("TS.MREVRANGE", -4, Need::Read, NO_KEYS, ranges::mrevrange),
    Spec::new("TS.NRANGE", -5, Need::Read, NO_KEYS, pivot::nrange),
    Spec::new("TS.NREVRANGE", -5, Need::Read, NO_KEYS, pivot::nrevrange),
    Spec::new("TS.QUERYINDEX", -2, Need::Read, NO_KEYS, information::query_index),
    Spec::new("TS.QUERYLABELS", -2, Need::Read, NO_KEYS, information::query_labels),
    Spec::new("TS.RANGE", -4, Need::Read, FIRST, ranges::range),
    Spec::new("TS.READ", -3, Need::Read, FIRST, read::read),
    Spec::new("TS.REVRANGE", -4, Need::Read, FIRST, ranges::revrange),
    Spec::new("TTL", 2, Need::Read, FIRST, keys::ttl),
    Spec::new("TOUCH", -2, Need::Read, ALL, keys::exists),
    Spec::new("TYPE", 2, Need::Read, FIRST, keys::type_of),
    Spec::new("UNLINK", -2, Need::Delete, ALL, keys::del),
    Spec::new("UNWATCH", 1, Need::Account, NO_KEYS, connection::unwatch),
    Spec::new("WAIT", 3, Need::Account, NO_KEYS, connection::wait),
    Spec::immediate("WATCH", -2, connection::watch),
    Spec::new("PEXPIRETIME", 2, Need::Read, FIRST, keys::pexpire_time),
];

/// A command by its name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    static TABLE: [Spec; 61] = COMMANDS;
    TABLE.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}
