//! `thalweg query`.

mod folder;
mod picture;
pub(crate) mod tail;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::Value;

use crate::http::ServerFlags;
use crate::plan;
use crate::render::plot::{self, Screen};
use crate::render::series::Series;
use crate::render::table;
use crate::units::times;
use client::http::HttpClient;
use folder::Folder;
use picture::PictureFlags;

const EXAMPLES: &str = "Examples:
  thalweg query up
  thalweg query 'sum by (mode) (rate(node_cpu_seconds_total[1m]))' --range 30m
  thalweg query --lang plan '(->> (metric \"node_load1\") (range (- now 6h) now) (groupby 15m max))'
  thalweg query node_load1 --start 2026-01-01T00:00:00Z --end 2026-01-01T06:00:00Z --step 1m --format csv
  thalweg query 'rate(node_network_receive_bytes_total[5m])' --range 1d --format png --unit Bps --output traffic.png";

/// Steps of a range query that names no step.
const STEPS: i64 = 240;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QueryFlags {
    /// What to ask: an expression in PromQL, or in another language (see --lang)
    expression: String,
    /// Language of the question: PromQL, or the s-expressions that plans are written in; for pictures SQL and InfluxQL, too
    #[arg(long, value_enum, default_value = "promql")]
    lang: Language,
    /// Show the plan, or with it what running it took, instead of the answer
    #[arg(long, value_enum, conflicts_with = "format")]
    explain: Option<Explain>,
    #[command(flatten)]
    server: ServerFlags,
    /// Data folder to ask in place of a server; it is only read, and a server may have it open
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Database
    #[arg(long, default_value = "default")]
    db: String,
    /// Moment to evaluate at: RFC 3339, Unix seconds, now, or -1h for an hour ago [default: now]
    #[arg(long, allow_hyphen_values = true, conflicts_with_all = ["start", "end", "range"])]
    time: Option<String>,
    /// Evaluate over this long up to now (or up to --end), such as 30m or 6h
    #[arg(long, conflicts_with = "start")]
    range: Option<String>,
    /// First moment of a range, written as --time
    #[arg(long, allow_hyphen_values = true)]
    start: Option<String>,
    /// Last moment of a range [default: now]
    #[arg(long, allow_hyphen_values = true)]
    end: Option<String>,
    /// Time between two evaluations of a range, such as 15s [default: a 240th of the range]
    #[arg(long)]
    step: Option<String>,
    /// How to show the answer [default: a plot for a range on a terminal, else a table]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    picture: PictureFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Plot,
    Json,
    Csv,
    /// A picture, as text for web pages
    Svg,
    /// A picture
    Png,
    /// A picture, smaller
    Webp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Promql,
    Plan,
    /// For pictures
    Sql,
    /// For pictures
    Influxql,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Explain {
    Plan,
    Analyze,
}

pub(crate) fn run(flags: &QueryFlags) -> Result<ExitCode, String> {
    let folder = flags.data.as_deref().map(Folder::open).transpose()?;
    let client = folder.as_ref().map_or_else(|| flags.server.client(), |folder| Ok(folder.client()))?;
    crate::http::check_database(&client, &flags.db)?;
    if let Some(format) = flags.format.and_then(picture::name_of) {
        return picture::run(flags, format, &client);
    }
    if let Some(flag) = flags.picture.first() {
        return Err(format!("{flag} is for pictures: add --format svg, png or webp"));
    }
    match flags.lang {
        Language::Promql => {}
        Language::Plan => return run_plan(flags, &client),
        Language::Sql | Language::Influxql => {
            return Err(
                "thalweg query shows answers of SQL and InfluxQL as pictures: add --format svg, png or webp".to_owned()
            );
        }
    }
    let range = flags.range_seconds()?;
    let data = match range {
        None => {
            let mut parameters = vec![("query", flags.expression.as_str()), ("db", &flags.db)];
            let time = flags.time.as_deref().map(times::seconds).transpose()?;
            parameters.extend(time.as_deref().map(|time| ("time", time)));
            parameters.extend(flags.explain_parameter());
            client.api("/api/v1/query", &parameters)?
        }
        Some((start, end)) => {
            let step = flags.step.clone().unwrap_or_else(|| default_step(end - start));
            let (start, end) = (start.to_string(), end.to_string());
            let mut parameters = vec![
                ("query", flags.expression.as_str()),
                ("db", &flags.db),
                ("start", &start),
                ("end", &end),
                ("step", &step),
            ];
            parameters.extend(flags.explain_parameter());
            client.api("/api/v1/query_range", &parameters)?
        }
    };
    if flags.explain.is_some() {
        say!("{}", plan::explained(&data));
        return Ok(ExitCode::SUCCESS);
    }
    let plotted = range.is_some() && std::io::stdout().is_terminal();
    let format = flags.format.unwrap_or(if plotted { Format::Plot } else { Format::Table });
    say!("{}", show(&data, format)?);
    Ok(ExitCode::SUCCESS)
}

fn run_plan(flags: &QueryFlags, client: &HttpClient) -> Result<ExitCode, String> {
    if flags.time.is_some() || flags.range.is_some() || flags.start.is_some() || flags.end.is_some() {
        return Err("a plan says itself when: (range (- now 6h) now)".to_owned());
    }
    let mut parameters = vec![("query", flags.expression.as_str()), ("db", &flags.db)];
    parameters.extend(flags.explain_parameter());
    let data = client.api("/api/v1/plan", &parameters)?;
    if flags.explain.is_some() {
        say!("{}", plan::explained(&data));
        return Ok(ExitCode::SUCCESS);
    }
    let format = flags.format.unwrap_or(Format::Table);
    let shown = if format == Format::Json { data.to_string() } else { show_series(&plan::read_frames(&data)?, format) };
    say!("{shown}");
    Ok(ExitCode::SUCCESS)
}

fn show(data: &Value, format: Format) -> Result<String, String> {
    if format == Format::Json {
        return Ok(data.to_string());
    }
    Ok(show_series(&read_series(data)?, format))
}

fn show_series(series: &[Series], format: Format) -> String {
    let (columns, rows) = terminal_size::terminal_size().map_or((100, 30), |(width, height)| (width.0, height.0));
    let has_colours =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    match format {
        Format::Csv => table::csv(series),
        Format::Plot => plot::render(series, Screen { columns, rows, has_colours }),
        _ => table::render(series, columns),
    }
}

impl QueryFlags {
    fn explain_parameter(&self) -> Option<(&'static str, &'static str)> {
        let wanted = match self.explain? {
            Explain::Plan => "plan",
            Explain::Analyze => "analyze",
        };
        Some(("explain", wanted))
    }

    /// Start and end in Unix seconds; `None` for an instant.
    fn range_seconds(&self) -> Result<Option<(i64, i64)>, String> {
        if self.range.is_none() && self.start.is_none() && self.end.is_none() {
            return Ok(None);
        }
        let now = Timestamp::now();
        let second = |text: &str| times::parse(text, now).map(Timestamp::as_second);
        let end = self.end.as_deref().map_or(Ok(now.as_second()), second)?;
        let start = match (&self.start, &self.range) {
            (Some(start), _) => second(start)?,
            (None, range) => end.saturating_sub(times::duration_s(range.as_deref().unwrap_or("1h"))?),
        };
        if start > end { Err("the range ends before it starts".to_owned()) } else { Ok(Some((start, end))) }
    }
}

fn default_step(seconds: i64) -> String {
    format!("{}", (seconds / STEPS).max(1))
}

/// Any result as series; a scalar or a string is one without labels.
fn read_series(data: &Value) -> Result<Vec<Series>, String> {
    let odd = || format!("the answer is not of Prometheus's form: {data}");
    let sample = |pair: &Value| Some((pair[0].as_f64()?, pair[1].as_str()?.to_owned()));
    let result = &data["result"];
    if ["scalar", "string"].iter().any(|kind| data["resultType"] == *kind) {
        return Ok(vec![Series { labels: Vec::new(), samples: vec![sample(result).ok_or_else(odd)?] }]);
    }
    let one = |series: &Value| {
        let labels = series["metric"].as_object()?.iter();
        let labels =
            labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        let samples = match series["values"].as_array() {
            Some(values) => values.iter().map(sample).collect::<Option<Vec<_>>>()?,
            None => vec![sample(&series["value"])?],
        };
        Some(Series { labels, samples })
    };
    result.as_array().ok_or_else(odd)?.iter().map(|series| one(series).ok_or_else(odd)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: &str =
        r#"{"resultType":"matrix","result":[{"metric":{"__name__":"m","host":"a"},"values":[[1,"2"],[2,"4.5"]]}]}"#;

    #[test]
    fn answers_as_table_and_csv() {
        let data: Value = serde_json::from_str(MATRIX).unwrap();
        assert_eq!(show(&data, Format::Csv).unwrap(), "time,__name__,host,value\n1,m,a,2\n2,m,a,4.5");
        let table = show(&data, Format::Table).unwrap();
        assert!(table.contains("1970-01-01T00:00:02Z") && table.contains("4.5"), "{table}");
        assert!(show(&data, Format::Plot).unwrap().contains("m{host=\"a\"}"));
    }

    #[test]
    fn tables_are_for_people() {
        let labels = |count: usize| (0..count).map(|number| (format!("l{number}"), "x".to_owned())).collect();
        let one = |count| Series { labels: labels(count), samples: vec![(1.0, "0.30000000000000004".to_owned())] };
        let few = table::render(&[one(5)], 200);
        assert!(few.contains(" l0 ") && few.contains(" l4 ") && few.contains(" 0.3 "), "{few}");
        let many = table::render(&[one(6)], 200);
        assert!(many.contains(" series ") && many.contains(r#"{l0="x", l1="x""#), "{many}");
        assert!(table::csv(&[one(6)]).contains(",l5,value\n1,x,x,x,x,x,x,0.30000000000000004"), "CSV is for programs");
    }
}
