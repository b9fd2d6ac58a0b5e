//! The protocol of rrdcached: lines of commands, and answers that begin with the number of lines that follow, or -1.
//!
//! * `commands.rs`: what each command does · `create.rs`: arguments of `CREATE` and `TUNE` · `answers.rs`: long answers · `help.rs`: their texts
//!
//! Updates of one read are written together, before anything of the same client that reads: their answers tell whether they are on disk.

mod answers;
mod commands;
mod create;
mod help;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use model::Labels;
use query::Budget;

pub use commands::{find_file, relative_path};

use crate::RrdError;
use crate::catalog::{Catalog, File, Pending, Writer};
use crate::file::Moment;

/// Bytes of updates that are written together.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// Bytes of error messages that a batch keeps; further errors are counted alone.
const ERRORS_BYTES_MAX: usize = 256 << 10;

/// What a session is served from.
pub trait Host: Writer {
    /// The files.
    fn catalog(&self) -> &Catalog;

    /// The database that they are in.
    fn database(&self) -> &str;

    /// The time now.
    fn now(&self) -> Moment;

    /// The budget of a command that reads.
    fn budget(&self) -> Result<Arc<Budget>, RrdError>;

    /// Returns whether a file exists for the client.
    fn may_see(&self, file: &File) -> bool;

    /// Fails if the client may not make or change files with such labels.
    fn check_change(&self, labels: &Labels) -> Result<(), RrdError>;

    /// Fails if the client may not delete the data of files with such labels.
    fn check_replace(&self, labels: &Labels) -> Result<(), RrdError>;

    /// The folder that absolute paths are in.
    fn directory(&self) -> Option<&Path>;

    /// The bytes of a file of that folder; `None` if there is no such file.
    fn load(&self, path: &str) -> Result<Option<Vec<u8>>, RrdError>;

    /// Takes bytes of an answer that is held; fails if there is no memory for it.
    fn hold(&self, bytes: usize) -> Result<(), RrdError>;
}

/// A batch under way.
#[derive(Debug, Default)]
struct Batch {
    commands: u64,
    /// Numbers of commands and their errors.
    errors: Vec<(u64, String)>,
    errors_bytes: usize,
    errors_left_out: u64,
}

/// A client's session.
#[derive(Debug, Default)]
pub struct Session {
    batch: Option<Batch>,
}

/// What a client is answered.
#[derive(Debug, Default)]
pub struct Reply {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The client asked for the end of the session.
    pub ends: bool,
}

/// The answer of a command.
#[derive(Debug, Clone, PartialEq)]
enum Answer {
    /// A message, and the lines that follow it.
    Lines { message: String, lines: String },
    /// As it is.
    Whole(Vec<u8>),
    /// What went wrong.
    Error(String),
}

impl Answer {
    fn message(message: impl Into<String>) -> Self {
        Self::Lines { message: message.into(), lines: String::new() }
    }

    /// Bytes that its command has not asked for.
    fn bytes_unheld(&self, command: &str) -> usize {
        match self {
            // Rows are asked for before they are written.
            _ if command.starts_with("FETCH") => 0,
            Self::Lines { message, lines } => message.len() + lines.len(),
            Self::Whole(bytes) => bytes.len(),
            Self::Error(message) => message.len(),
        }
    }
}

impl From<RrdError> for Answer {
    fn from(error: RrdError) -> Self {
        Self::Error(error.to_string())
    }
}

/// Answers that may still change: updates are written after the commands were read.
#[derive(Default)]
struct Answers {
    /// By number; with the command's number if it is of a batch.
    list: Vec<(Option<u64>, Answer)>,
    pending: Pending,
    /// Those that do not change any more.
    out: Vec<u8>,
}

impl Answers {
    /// Writes updates that wait; those that are refused get errors for answers.
    fn write(&mut self, host: &dyn Host) {
        for refusal in self.pending.flush(host) {
            if let Some((_, answer)) = self.list.get_mut(refusal.number as usize) {
                *answer = Answer::Error(refusal.reason);
            }
        }
    }
}

impl Session {
    /// Serves whole lines.
    pub fn serve(&mut self, lines: &[u8], host: &dyn Host) -> Reply {
        let (mut answers, mut ends) = (Answers::default(), false);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let fields = match std::str::from_utf8(line) {
                Ok(text) => fields(text),
                Err(_) => {
                    let number = self.next_number();
                    answers.list.push((number, Answer::Error("the line is not UTF-8".to_owned())));
                    continue;
                }
            };
            let Some((name, arguments)) = fields.split_first() else { continue };
            if !self.command(name, arguments, (&mut answers, host)) {
                ends = true;
                break;
            }
            if answers.pending.size_bytes() > PENDING_BYTES_MAX {
                answers.write(host);
            }
        }
        answers.write(host);
        self.settle(&mut answers);
        Reply { bytes: answers.out, ends }
    }

    /// The number of a command in the batch under way.
    fn next_number(&mut self) -> Option<u64> {
        self.batch.as_mut().map(|batch| {
            batch.commands += 1;
            batch.commands
        })
    }

    /// Runs a command; false if it ends the session.
    fn command(&mut self, name: &str, arguments: &[String], (answers, host): (&mut Answers, &dyn Host)) -> bool {
        let name = name.to_ascii_uppercase();
        if name == "." && self.batch.is_some() {
            answers.write(host);
            self.settle(answers);
            let answer = self.batch.take().map_or(Answer::message(""), Batch::report);
            answers.list.push((None, answer));
            return true;
        }
        if name == "QUIT" {
            return false;
        }
        if name == "BATCH" {
            if self.batch.is_some() {
                let number = self.next_number();
                answers.list.push((number, Answer::Error("Already in BATCH".to_owned())));
            } else {
                answers.list.push((None, Answer::message("Go ahead.  End with dot '.' on its own line.")));
                answers.write(host);
                self.settle(answers);
                self.batch = Some(Batch::default());
            }
            return true;
        }
        let number = self.next_number();
        if name == "UPDATE" {
            let slot = answers.list.len() as u64;
            let answer = commands::update(arguments, host, (slot, &mut answers.pending));
            answers.list.push((number, answer.unwrap_or_else(Answer::from)));
        } else {
            answers.write(host);
            let answer = commands::run(&name, arguments, host);
            // Answers to a read are held until all of its commands have run.
            let answer = answer.and_then(|answer| host.hold(answer.bytes_unheld(&name)).map(|()| answer));
            answers.list.push((number, answer.unwrap_or_else(Answer::from)));
        }
        true
    }

    /// Puts answers into the reply; those of a batch under way wait for its end.
    fn settle(&mut self, answers: &mut Answers) {
        let out = &mut answers.out;
        for (number, answer) in answers.list.drain(..) {
            match (number, answer, &mut self.batch) {
                (Some(number), Answer::Error(message), Some(batch)) => batch.note(number, message),
                (Some(_), _, Some(_)) => {}
                (_, Answer::Error(message), _) => {
                    out.extend_from_slice(format!("-1 {}\n", one_line(&message)).as_bytes());
                }
                (_, Answer::Lines { message, lines }, _) => {
                    let count = lines.matches('\n').count();
                    out.extend_from_slice(format!("{count} {message}\n{lines}").as_bytes());
                }
                (_, Answer::Whole(bytes), _) => out.extend_from_slice(&bytes),
            }
        }
    }
}

impl Batch {
    fn note(&mut self, number: u64, message: String) {
        self.errors_bytes += message.len();
        if self.errors_bytes > ERRORS_BYTES_MAX {
            self.errors_left_out += 1;
        } else {
            self.errors.push((number, message));
        }
    }

    fn report(self) -> Answer {
        let mut lines = String::new();
        // Writing to a string cannot fail.
        for (number, message) in &self.errors {
            let _ = writeln!(lines, "{number} {}", one_line(message));
        }
        if self.errors_left_out > 0 {
            let _ = writeln!(lines, "{} and {} more errors", self.commands, self.errors_left_out);
        }
        Answer::Lines { message: "errors".to_owned(), lines }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Cuts a line at spaces and tabs; a backslash makes the next character part of a field.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut is_escaped, mut has_begun) = (Vec::new(), String::new(), false, false);
    for symbol in line.chars() {
        match symbol {
            _ if is_escaped => {
                field.push(symbol);
                is_escaped = false;
            }
            '\\' => (is_escaped, has_begun) = (true, true),
            ' ' | '\t' => {
                if has_begun {
                    fields.push(std::mem::take(&mut field));
                }
                has_begun = false;
            }
            _ => {
                field.push(symbol);
                has_begun = true;
            }
        }
    }
    if has_begun {
        fields.push(field);
    }
    fields
}
