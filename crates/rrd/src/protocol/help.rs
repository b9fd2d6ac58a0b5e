//! What `HELP` says.

/// A command: name, syntax, and what it does.
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) syntax: &'static str,
    what: &'static str,
}

const fn command(name: &'static str, syntax: &'static str, what: &'static str) -> Command {
    Command { name, syntax, what }
}

/// All commands.
const COMMANDS: [Command; 25] = [
    command(
        "UPDATE",
        "UPDATE <filename> <values> [<values> ...]",
        "Stores readings: <time>:<value>[:<value>...], U for unknown, N for now.",
    ),
    command(
        "BATCH",
        "BATCH",
        "Begins a bulk of commands, of which only errors are answered, after a dot on its own line.",
    ),
    command(
        "CREATE",
        "CREATE <filename> [-b start] [-s step] [-O] <DS definitions> <RRA definitions>",
        "Makes a file.",
    ),
    command(
        "TUNE",
        "TUNE <filename> [-h ds:heartbeat] [-i ds:min] [-a ds:max]",
        "Changes limits of data sources from now on.",
    ),
    command("FETCH", "FETCH <file> <CF> [<start> [<end>] [<column>...]]", "Gives rows as text."),
    command(
        "FETCHBIN",
        "FETCHBIN <file> <CF> [<start> [<end>] [<column>...]]",
        "Gives rows as floats, column by column.",
    ),
    command("INFO", "INFO <filename>", "Gives the definition and the state of a file."),
    command("FIRST", "FIRST <filename> <rra index>", "Gives the time of the first row of an archive."),
    command("LAST", "LAST <filename>", "Gives the time of the last primary data point."),
    command("LIST", "LIST [RECURSIVE] /[<path>]", "Gives the files and folders of a folder."),
    command("FLUSH", "FLUSH <filename>", "Does nothing: what was acknowledged is stored."),
    command("FLUSHALL", "FLUSHALL", "Does nothing: what was acknowledged is stored."),
    command("PENDING", "PENDING <filename>", "Gives no updates: none waits."),
    command("QUEUE", "QUEUE", "Gives no files: none waits."),
    command("FORGET", "FORGET <filename>", "Drops updates of a file that wait; none does."),
    command("SUSPEND", "SUSPEND <filename>", "Marks a file as suspended; its updates are stored nevertheless."),
    command("RESUME", "RESUME <filename>", "Takes the mark of SUSPEND away."),
    command("SUSPENDALL", "SUSPENDALL", "SUSPEND for all files."),
    command("RESUMEALL", "RESUMEALL", "RESUME for all files."),
    command("STATS", "STATS", "Gives counters."),
    command("PING", "PING", "Gives PONG."),
    command("HELP", "HELP [<command>]", "Gives the commands, or tells of one."),
    command("WROTE", "WROTE <filename>", "Is a line of rrdcached's journal, and none of clients."),
    command(".", ".", "Ends a BATCH."),
    command("QUIT", "QUIT", "Ends the session."),
];

/// A command by its name.
pub(super) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name.eq_ignore_ascii_case(name))
}

/// The message and the lines of `HELP`.
pub(super) fn help(name: Option<&str>) -> (String, String) {
    match name.and_then(find) {
        Some(command) => {
            (format!("Help for {}", command.name), format!("Usage: {}\n\n{}\n", command.syntax, command.what))
        }
        None => {
            let lines = COMMANDS.iter().fold(String::new(), |lines, command| lines + command.syntax + "\n");
            ("Command overview".to_owned(), lines)
        }
    }
}
