//! `thalweg tail`.
//!
//! * this file: connecting, again where a stream ends · [`events`]: server-sent events · [`sample`]: samples as text

mod events;
mod sample;

use std::io::{BufRead, BufReader, Read};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use client::http::HttpClient;
use serde_json::Value;

use crate::http::{ServerFlags, check_database};
use crate::output::try_line;
use events::{Event, EventReader};

const EXAMPLES: &str = "Examples:
  thalweg tail                                   every sample that is written
  thalweg tail 'cpu_usage_user{host=~\"web.*\"}' up
  thalweg tail --json --db metrics | jq .value";

/// A server that says nothing for so long is gone: it sends a heartbeat every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// The first pause before a stream is opened again, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Lines that are read ahead of what is printed.
const LINES_MAX: usize = 1_000;

/// Bytes of a line that are read.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Bytes of an error that are read.
const ERROR_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TailFlags {
    /// Selectors of series, as in PromQL; a series that satisfies one of them is shown [default: all series]
    #[arg(value_name = "MATCH")]
    matches: Vec<String>,
    #[command(flatten)]
    server: ServerFlags,
    /// Database
    #[arg(long, default_value = "default")]
    db: String,
    /// Begin after this sequence id, as far as the log goes back [default: with what is written from now on]
    #[arg(long, value_name = "SEQUENCE")]
    since: Option<u64>,
    /// A line of JSON for each sample
    #[arg(long)]
    json: bool,
}

/// What the thread that prints waits for.
enum Message {
    /// A line of the stream with a number.
    Line(u64, String),
    /// That stream is over, and why.
    Ended(u64, String),
    Interrupted,
}

/// How a stream ended.
enum Ended {
    /// It is opened again.
    Again(String),
    Interrupted,
    /// It cannot be opened again.
    Refused(String),
}

pub(crate) fn run(flags: &TailFlags) -> Result<ExitCode, String> {
    let client = flags.server.patient_client()?;
    check_database(&flags.server.client()?, &flags.db)?;
    let (sender, receiver) = sync_channel(LINES_MAX);
    listen_for_interrupt(sender.clone());
    let mut tail = Tail { flags, since: flags.since, pause: PAUSE_MIN, stream: 0 };
    loop {
        match tail.follow(&client, &sender, &receiver) {
            Ended::Interrupted => return Ok(ExitCode::SUCCESS),
            Ended::Refused(reason) => return Err(reason),
            Ended::Again(reason) => {
                eprintln!("thalweg: {reason}; connecting again");
                if tail.rest(&receiver) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }
}

/// Ctrl-C ends the program with all that was read printed whole.
fn listen_for_interrupt(sender: SyncSender<Message>) {
    // Without a runtime Ctrl-C ends the program, as it does by default.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
        thread::spawn(move || {
            if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                // The other side is gone only when the program ends.
                let _ = sender.send(Message::Interrupted);
            }
        });
    }
}

struct Tail<'a> {
    flags: &'a TailFlags,
    /// Where the next stream begins.
    since: Option<u64>,
    pause: Duration,
    /// The number of the stream; lines of earlier ones are left out.
    stream: u64,
}

impl Tail<'_> {
    fn follow(&mut self, client: &HttpClient, sender: &SyncSender<Message>, receiver: &Receiver<Message>) -> Ended {
        let since = self.since.map(|since| since.to_string());
        let mut parameters: Vec<(&str, &str)> = vec![("db", &self.flags.db)];
        parameters.extend(self.flags.matches.iter().map(|selector| ("match[]", selector.as_str())));
        parameters.extend(since.as_deref().map(|since| ("since", since)));
        let stream = match client.stream("/api/v1/tail", &parameters) {
            Ok(stream) => stream,
            // At first a wrong address is likely; later the server restarts.
            Err(error) if self.since.is_none() => return Ended::Refused(error),
            Err(error) => return Ended::Again(error),
        };
        if stream.status != 200 {
            return refusal(stream.status, stream.body);
        }
        self.stream += 1;
        let (sender, number) = (sender.clone(), self.stream);
        thread::spawn(move || read_lines(number, stream.body, &sender));
        let mut reader = EventReader::default();
        loop {
            match receiver.recv_timeout(SILENCE_MAX) {
                Ok(Message::Line(stream, line)) if stream == self.stream => {
                    if let Some(event) = reader.push(&line)
                        && let Err(ended) = self.show(&event)
                    {
                        return ended;
                    }
                }
                Ok(Message::Ended(stream, reason)) if stream == self.stream => return Ended::Again(reason),
                Ok(Message::Line(..) | Message::Ended(..)) => {}
                Ok(Message::Interrupted) | Err(RecvTimeoutError::Disconnected) => return Ended::Interrupted,
                Err(RecvTimeoutError::Timeout) => return Ended::Again("the server is silent".to_owned()),
            }
        }
    }

    /// Prints an event, and notes where to resume.
    fn show(&mut self, event: &Event) -> Result<(), Ended> {
        self.pause = PAUSE_MIN;
        match event.kind.as_str() {
            "end" => {
                let end: Value = serde_json::from_str(&event.data).unwrap_or_default();
                self.since = end["sequence"].as_u64().or(self.since);
                let message = end["message"].as_str().unwrap_or("the stream ended").to_owned();
                return Err(if end["reason"] == "forbidden" { Ended::Refused(message) } else { Ended::Again(message) });
            }
            "gap" => eprintln!("thalweg: records are missing that the log does not have any more: {}", event.data),
            _ => {
                for line in event.data.lines() {
                    let shown = if self.flags.json { line.to_owned() } else { sample::text(line) };
                    // A reader that has gone, such as `head`, wants no more.
                    try_line(format_args!("{shown}")).map_err(|_| Ended::Interrupted)?;
                }
            }
        }
        self.since = event.id.or(self.since);
        Ok(())
    }

    /// Waits before the next stream; returns whether the program was interrupted.
    fn rest(&mut self, receiver: &Receiver<Message>) -> bool {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        // What the stream before still has was not confirmed: it comes again.
        loop {
            match receiver.recv_timeout(pause) {
                Ok(Message::Interrupted) => return true,
                Ok(Message::Line(..) | Message::Ended(..)) => {}
                Err(_) => return false,
            }
        }
    }
}

fn refusal(status: u16, body: Box<dyn Read + Send>) -> Ended {
    let mut text = String::new();
    // What cannot be read leaves the status.
    let _ = body.take(ERROR_BYTES_MAX).read_to_string(&mut text);
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    let reason = answer["error"].as_str().map_or_else(|| format!("the server answered {status}"), str::to_owned);
    if matches!(status, 429 | 502..=504) { Ended::Again(reason) } else { Ended::Refused(reason) }
}

/// Reads lines until the stream ends, or until what they are for is gone.
fn read_lines(stream: u64, body: Box<dyn Read + Send>, sender: &SyncSender<Message>) {
    let mut body = BufReader::new(body);
    let ended = loop {
        let mut line = String::new();
        match (&mut body).take(LINE_BYTES_MAX).read_line(&mut line) {
            Ok(0) => break "the stream ended".to_owned(),
            Ok(_) => {
                let line = line.trim_end_matches(['\r', '\n']).to_owned();
                if sender.send(Message::Line(stream, line)).is_err() {
                    return;
                }
            }
            Err(error) => break format!("the stream broke off: {error}"),
        }
    };
    let _ = sender.send(Message::Ended(stream, ended));
}
