//! `thalweg import`: files to a running server, in batches cut at line ends, over several connections.

mod dialect;
mod interrupt;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use clap::{Args, Subcommand, ValueEnum};
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use ingest::Limits;
use ingest::csv::{CsvField, CsvImporter, CsvMapping, TimeFormat};

use super::lines::{self, Directive, LINE_BYTES_MAX};
use super::rrd::{self, RrdImportFlags};
use crate::http::ServerFlags;
use client::http::{Answer, HttpClient};
use interrupt::Interrupt;

const EXAMPLES: &str = "Examples:
  thalweg import samples.lp                               line protocol, nanoseconds
  thalweg import old.lp.gz --precision s --db archive
  thalweg import weather.csv --time when --tag station    each other column becomes a field
  curl -s http://target/metrics | thalweg import - --format prometheus
  promtool tsdb dump-openmetrics ./data | thalweg import - --format openmetrics
  curl -s http://victoria:8428/api/v1/export -d 'match[]={job=\"a\"}' | thalweg import - --format json";

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Rows of a batch made of a CSV file.
const CSV_BATCH_ROWS: usize = 5000;

/// Reasons for refused lines that are printed for each file.
const REASONS_MAX: usize = 20;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ImportFlags {
    #[command(subcommand)]
    form: Option<Form>,
    /// Files; - is standard input; .gz is unpacked
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    server: ServerFlags,
    /// Database; the comments of an InfluxDB export (# CONTEXT-DATABASE) name others
    #[arg(long, default_value = "default")]
    db: String,
    /// What the files hold [default: by the file's name; line if it does not tell]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Unit of line protocol's timestamps: ns, us, ms, s, m or h
    #[arg(long, default_value = "ns")]
    precision: String,
    /// Bytes of a request
    #[arg(long, default_value_t = 4 << 20, value_name = "BYTES")]
    batch_bytes: usize,
    /// Connections at the same time; with more than one, a later line may be written before an earlier one
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// CSV: measurement [default: the file's name]
    #[arg(long)]
    measurement: Option<String>,
    /// CSV: the column with the time [default: time, if there is one]
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// CSV: how times are written
    #[arg(long, value_enum, default_value = "auto")]
    time_format: CsvTime,
    /// CSV: a column that is a tag; may be repeated
    #[arg(long = "tag", value_name = "COLUMN")]
    tags: Vec<String>,
    /// CSV: a column that is a field, as name or name:type (float, integer, unsigned, boolean, string); may be repeated
    /// [default: all others]
    #[arg(long = "field", value_name = "COLUMN")]
    fields: Vec<String>,
}

/// Files that are imported in a way of their own.
#[derive(Debug, Subcommand)]
enum Form {
    /// RRDtool's files, or whole trees of them
    Rrd(RrdImportFlags),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Line,
    Csv,
    /// Text exposition, times in ms, or what `promtool tsdb dump` writes; OpenMetrics if the text tells that it is
    Prometheus,
    /// OpenMetrics, times in seconds
    Openmetrics,
    /// Series as lines of JSON, as /api/v1/export writes them
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CsvTime {
    Auto,
    Rfc3339,
    S,
    Ms,
    Us,
    Ns,
}

/// A file that is read, unpacked.
type Input = Box<dyn Read + Send>;

/// A piece of a file on its way to the server.
struct Batch {
    /// The database that the file names for it.
    database: Option<String>,
    body: Vec<u8>,
    /// Lines of the file before it, to translate line numbers; `None` where lines of the batch are not lines of the file.
    lines_before: Option<u64>,
    lines: u64,
}

#[derive(Debug, Default)]
struct Sent {
    lines: u64,
    /// The file's last line that was sent; 0 where lines of batches are not lines of the file.
    last_line: u64,
    refused: Vec<String>,
    refused_total: u64,
}

pub(crate) fn run(flags: &ImportFlags) -> Result<ExitCode, String> {
    if let Some(Form::Rrd(flags)) = &flags.form {
        return rrd::import(flags);
    }
    let mut complete = true;
    let interrupt = Interrupt::listen();
    for path in &flags.files {
        let sent = import_file(flags, path, &interrupt)?;
        eprintln!("{}: {} lines sent, {} refused", path.display(), sent.lines, sent.refused_total);
        if interrupt.is_pressed() {
            match sent.last_line {
                0 => eprintln!("interrupted: the rest of {} was not sent", path.display()),
                last => eprintln!("interrupted: line {} of {} is next", last + 1, path.display()),
            }
            return Ok(Interrupt::exit_code());
        }
        for reason in sent.refused.iter().take(REASONS_MAX) {
            eprintln!("  {reason}");
        }
        complete &= sent.refused_total == 0;
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn import_file(flags: &ImportFlags, path: &Path, interrupt: &Interrupt) -> Result<Sent, String> {
    let (mut input, bar) = open(path)?;
    let mut format = flags.format.unwrap_or_else(|| format_of(path));
    if format == Format::Prometheus {
        (format, input) = detect_dialect(path, input)?;
    }
    let client = flags.server.client()?;
    let (queue, batches) = sync_channel(usize::from(flags.connections) * 2);
    let batches = Mutex::new(batches);
    let sent = Mutex::new(Sent::default());
    let done = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..flags.connections)
            .map(|_| scope.spawn(|| send_all(flags, format, &client, &batches, &sent, &bar)))
            .collect();
        let cutter = Cutter { flags, path, format, interrupt, queue: &queue };
        let cut = match format {
            Format::Csv => cutter.cut_csv(input, &sent),
            _ => cutter.cut_lines(Context::new(format, &client), input),
        };
        drop(queue);
        let results =
            senders.into_iter().map(|sender| sender.join().unwrap_or_else(|_| Err("a sender ended early".to_owned())));
        results.chain([cut]).collect::<Result<Vec<()>, String>>()
    });
    bar.finish_and_clear();
    done?;
    Ok(sent.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// The file, unpacked if it is packed, and a bar that counts the bytes read of it.
fn open(path: &Path) -> Result<(Input, ProgressBar), String> {
    const TEMPLATE: &str = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {msg} eta {eta}";
    if path == Path::new("-") {
        let bar = ProgressBar::new_spinner();
        return Ok((Box::new(bar.wrap_read(io::stdin())), bar));
    }
    let failed = |error| format!("cannot read {}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let bar = ProgressBar::new(file.metadata().map_err(failed)?.len());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    let input = bar.wrap_read(file);
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    Ok((if packed { Box::new(MultiGzDecoder::new(input)) } else { Box::new(input) }, bar))
}

/// Reads the beginning of an exposition, and the end if it is a plain file, to find out its format.
fn detect_dialect(path: &Path, mut input: Input) -> Result<(Format, Input), String> {
    let failed = |error| format!("cannot read {}: {error}", path.display());
    let mut head = Vec::new();
    input.by_ref().take(dialect::HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
    let mut tail = head.clone();
    if (head.len() as u64) >= dialect::HEAD_BYTES {
        tail.clear();
        if let Ok(mut file) = File::open(path)
            && file.seek(SeekFrom::End(-64)).is_ok()
        {
            file.read_to_end(&mut tail).map_err(failed)?;
        }
    }
    let format = if dialect::is_openmetrics(&head, &tail) { Format::Openmetrics } else { Format::Prometheus };
    Ok((format, Box::new(io::Cursor::new(head).chain(input))))
}

fn format_of(path: &Path) -> Format {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().to_lowercase());
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => Format::Csv,
        Some("prom") => Format::Prometheus,
        Some("om") => Format::Openmetrics,
        Some("jsonl" | "ndjson") => Format::Json,
        _ => Format::Line,
    }
}

/// Where a file of lines has come to: what its directives said, which only line protocol has.
struct Context<'a> {
    client: &'a HttpClient,
    is_line: bool,
    in_statements: bool,
    database: Option<String>,
}

impl<'a> Context<'a> {
    const fn new(format: Format, client: &'a HttpClient) -> Self {
        Self { client, is_line: matches!(format, Format::Line), in_statements: false, database: None }
    }

    /// Obeys the directive that the piece may begin with, and executes it if it is of statements; false for points.
    fn takes(&mut self, piece: &[u8]) -> Result<bool, String> {
        match Directive::read(piece).filter(|_| self.is_line) {
            Some(Directive::Statements) => self.in_statements = true,
            Some(Directive::Points) => self.in_statements = false,
            Some(Directive::Database(name)) => self.database = Some(name.to_owned()),
            None => {}
        }
        if self.in_statements {
            let text = String::from_utf8_lossy(piece);
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            for statement in lines {
                self.execute(statement)?;
            }
        }
        Ok(self.in_statements)
    }

    fn execute(&self, statement: &str) -> Result<(), String> {
        let answer = self.client.post("/query", &[("q", statement)], b"")?;
        let parsed: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let error = parsed["error"].as_str().or_else(|| parsed["results"][0]["error"].as_str());
        match error {
            Some(error) => Err(format!("{statement}: {error}")),
            None if answer.status >= 300 => Err(format!("{statement}: the server answered {}", answer.status)),
            None => Ok(()),
        }
    }
}

/// Cuts a file into batches.
struct Cutter<'a> {
    flags: &'a ImportFlags,
    path: &'a Path,
    format: Format,
    interrupt: &'a Interrupt,
    queue: &'a SyncSender<Batch>,
}

impl Cutter<'_> {
    /// Cuts at line ends, but not at those inside the strings of line protocol.
    fn cut_lines(&self, mut context: Context<'_>, mut input: impl Read) -> Result<(), String> {
        let (batch_bytes, path) = (self.flags.batch_bytes, self.path.display());
        let mut text = Vec::new();
        let mut lines_before = 0;
        while !self.interrupt.is_pressed() {
            let wanted = (batch_bytes + LINE_BYTES_MAX + 1).saturating_sub(text.len());
            let read = input.by_ref().take(wanted as u64).read_to_end(&mut text);
            let at_end = read.map_err(|error| format!("{path}: reading broke off: {error}"))? < wanted;
            let cut = lines::cut(&text, batch_bytes, at_end, context.is_line);
            if cut.length == 0 && at_end {
                return Ok(());
            }
            if cut.length == 0 {
                let line = lines_before + 1;
                return Err(format!("{path}: line {line} has more than {LINE_BYTES_MAX} bytes: is it text?"));
            }
            let rest = text.split_off(cut.length);
            let body = std::mem::replace(&mut text, rest);
            let ends_openmetrics = self.format == Format::Prometheus && text.is_empty() && dialect::ends(&body);
            let is_done = context.takes(&body).map_err(|error| format!("{path}: {error}"))?;
            let database = context.database.clone();
            let batch = Batch { database, body, lines_before: Some(lines_before), lines: cut.lines };
            if !is_done && self.queue.send(batch).is_err() {
                return Ok(());
            }
            if ends_openmetrics {
                return Err(format!(
                    "{path} is OpenMetrics, as its end tells, and its times in seconds were read as milliseconds: \
                     delete what it wrote, and import it with --format openmetrics"
                ));
            }
            lines_before += cut.lines;
        }
        Ok(())
    }

    fn cut_csv(&self, input: impl Read, sent: &Mutex<Sent>) -> Result<(), String> {
        let failed = |error: ingest::csv::CsvError| format!("{}: {error}", self.path.display());
        let limits = Limits::default();
        let mut input = BufReader::with_capacity(1 << 20, input);
        let header = input.fill_buf().map_err(|error| format!("reading broke off: {error}"))?;
        let first = header.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mapping = self.flags.mapping(self.path, &String::from_utf8_lossy(first));
        let mut importer = CsvImporter::new(input, mapping, limits).map_err(failed)?;
        while !self.interrupt.is_pressed() {
            let mut body = Vec::new();
            let Some(chunk) = importer.next_chunk(CSV_BATCH_ROWS, &mut body).map_err(failed)? else {
                return Ok(());
            };
            note(sent, |sent| {
                sent.refused_total += chunk.errors.total;
                sent.refused
                    .extend(chunk.errors.first.iter().map(|error| format!("line {}: {}", error.line, error.reason)));
            });
            let batch = Batch { database: None, body, lines_before: None, lines: chunk.points };
            if !batch.body.is_empty() && self.queue.send(batch).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl ImportFlags {
    fn mapping(&self, path: &Path, header: &str) -> CsvMapping {
        let stem = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let stem = stem.split('.').next().filter(|stem| !stem.is_empty() && *stem != "-").unwrap_or("csv").to_owned();
        let has_time = header.trim_end().split(',').any(|name| name.trim_matches('"') == "time");
        CsvMapping {
            measurement: self.measurement.clone().unwrap_or(stem),
            time_column: self.time.clone().or_else(|| has_time.then(|| "time".to_owned())),
            time_format: match self.time_format {
                CsvTime::Auto => TimeFormat::Auto,
                CsvTime::Rfc3339 => TimeFormat::Rfc3339,
                CsvTime::S => TimeFormat::Seconds,
                CsvTime::Ms => TimeFormat::Milliseconds,
                CsvTime::Us => TimeFormat::Microseconds,
                CsvTime::Ns => TimeFormat::Nanoseconds,
            },
            tags: self.tags.clone(),
            fields: (!self.fields.is_empty()).then(|| self.fields.iter().map(|field| CsvField::parse(field)).collect()),
            delimiter: b',',
        }
    }
}

fn send_all(
    flags: &ImportFlags,
    format: Format,
    client: &HttpClient,
    batches: &Mutex<Receiver<Batch>>,
    sent: &Mutex<Sent>,
    bar: &ProgressBar,
) -> Result<(), String> {
    loop {
        let batch = batches.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        let Ok(batch) = batch else {
            return Ok(());
        };
        let db = ("db", batch.database.as_deref().unwrap_or(&flags.db));
        let answer = match format {
            Format::Prometheus => client.post("/api/v1/import/prometheus", &[db], &batch.body)?,
            Format::Openmetrics => {
                let path = HttpClient::path("/api/v1/import/prometheus", &[db]);
                client.post_as(&path, &[("content-type", OPENMETRICS)], &batch.body)?
            }
            Format::Json => client.post("/api/v1/import", &[db], &batch.body)?,
            Format::Line => client.post("/write", &[db, ("precision", flags.precision.as_str())], &batch.body)?,
            Format::Csv => client.post("/write", &[db, ("precision", "ns")], &batch.body)?,
        };
        let refused = read_refusals(&answer, batch.lines_before)?;
        note(sent, |sent| {
            sent.lines += batch.lines;
            sent.last_line = sent.last_line.max(batch.lines_before.map_or(0, |before| before + batch.lines));
            sent.refused_total += refused.0;
            sent.refused.extend(refused.1);
        });
        let seconds = bar.elapsed().as_secs_f64().max(0.001);
        let lines = note(sent, |sent| sent.lines);
        bar.set_message(format!("{:.0} lines/s", lines as f64 / seconds));
    }
}

fn note<T>(sent: &Mutex<Sent>, change: impl FnOnce(&mut Sent) -> T) -> T {
    change(&mut sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// How many lines were refused, and why, with line numbers of the file. A request refused as a whole is an error.
fn read_refusals(answer: &Answer, lines_before: Option<u64>) -> Result<(u64, Vec<String>), String> {
    if answer.status < 300 {
        return Ok((0, Vec::new()));
    }
    let parsed: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let message = parsed["error"].as_str().unwrap_or(&answer.body);
    // A refusal of lines names them; anything else is about the request.
    if answer.status != 400 || !message.contains("line ") {
        return Err(format!("the server answered {}: {message}", answer.status));
    }
    let message = message.strip_prefix("partial write: ").unwrap_or(message);
    let (reasons, dropped) = message.rsplit_once(" dropped=").unwrap_or((message, ""));
    let translated: Vec<String> = reasons.lines().map(|reason| translate(reason, lines_before)).collect();
    Ok((dropped.parse().unwrap_or(translated.len() as u64), translated))
}

/// `reason (line 2)` or `line 2: reason` with the number of the file's line in front; without one where the file's lines
/// are not known.
fn translate(reason: &str, lines_before: Option<u64>) -> String {
    let behind = reason.rsplit_once(" (line ").and_then(|(why, number)| Some((why, number.strip_suffix(')')?)));
    let before = || reason.strip_prefix("line ")?.split_once(": ").map(|(number, why)| (why, number));
    let parts = behind.or_else(before).and_then(|(why, number)| Some((why, number.parse::<u64>().ok()?)));
    match (parts, lines_before) {
        (Some((why, number)), Some(before)) => format!("line {}: {why}", before + number),
        (Some((why, _)), None) => why.to_owned(),
        (None, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_carry_the_lines_of_the_file() {
        let body = r#"{"error":"partial write: bad (line 2)\nworse (x) (line 5)\nand 3 more dropped=5"}"#.to_owned();
        let refused = read_refusals(&Answer { status: 400, body }, Some(1000)).unwrap();
        assert_eq!(refused.0, 5);
        assert_eq!(refused.1, ["line 1002: bad", "line 1005: worse (x)", "and 3 more"]);
        let body = r#"{"error":"line 2: bad"}"#.to_owned();
        assert_eq!(read_refusals(&Answer { status: 400, body }, Some(7)).unwrap(), (1, vec!["line 9: bad".to_owned()]));
        let body = r#"{"error":"bad (line 2)"}"#.to_owned();
        assert_eq!(read_refusals(&Answer { status: 400, body }, None).unwrap(), (1, vec!["bad".to_owned()]));
        let body = r#"{"error":"disk full"}"#.to_owned();
        assert!(read_refusals(&Answer { status: 503, body }, Some(0)).unwrap_err().contains("disk full"));
    }

    #[test]
    fn formats_by_name() {
        for (name, format) in [
            ("a.csv", Format::Csv),
            ("a.CSV.gz", Format::Csv),
            ("m.prom", Format::Prometheus),
            ("m.om", Format::Openmetrics),
            ("a.jsonl", Format::Json),
            ("x", Format::Line),
        ] {
            assert_eq!(format_of(Path::new(name)), format, "{name}");
        }
    }
}
