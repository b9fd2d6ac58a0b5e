//! `thalweg query --format svg|png|webp`: answers as pictures, which the server draws.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use client::http::HttpClient;

use super::{Format, Language, QueryFlags};

/// Colours of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Theme {
    Light,
    Dark,
}

/// How a picture looks.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Pictures")]
pub(super) struct PictureFlags {
    /// File to write the picture to [default: stdout]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Pixels from left to right [default: 900]
    #[arg(long, value_name = "PIXELS")]
    width: Option<u32>,
    /// Pixels from top to bottom [default: 360]
    #[arg(long, value_name = "PIXELS")]
    height: Option<u32>,
    /// Colours [default: light]
    #[arg(long, value_enum)]
    theme: Option<Theme>,
    /// Title
    #[arg(long)]
    title: Option<String>,
    /// What values are, as Grafana names it: bytes, s, percent, ...
    #[arg(long)]
    unit: Option<String>,
    /// Any other parameter of /api/v1/graph, such as style=area, stacked=true, axis=log; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    graph: Vec<String>,
}

impl PictureFlags {
    /// The first flag that is set, if one is.
    pub(super) fn first(&self) -> Option<&'static str> {
        let flags = [
            (self.output.is_some(), "--output"),
            (self.width.is_some(), "--width"),
            (self.height.is_some(), "--height"),
            (self.theme.is_some(), "--theme"),
            (self.title.is_some(), "--title"),
            (self.unit.is_some(), "--unit"),
            (!self.graph.is_empty(), "--graph"),
        ];
        flags.into_iter().find(|(is_set, _)| *is_set).map(|(_, name)| name)
    }

    fn parameters(&self) -> Result<Vec<(String, String)>, String> {
        let theme = self.theme.map(|theme| if theme == Theme::Light { "light" } else { "dark" }.to_owned());
        let named = [
            ("width", self.width.map(|pixels| pixels.to_string())),
            ("height", self.height.map(|pixels| pixels.to_string())),
            ("theme", theme),
            ("title", self.title.clone()),
            ("unit", self.unit.clone()),
        ];
        let mut parameters: Vec<(String, String)> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        for text in &self.graph {
            let (name, value) =
                text.split_once('=').ok_or_else(|| format!("--graph {text}: it is a name, = and a value"))?;
            parameters.push((name.to_owned(), value.to_owned()));
        }
        Ok(parameters)
    }
}

/// The format's name if it is that of a picture.
pub(super) const fn name_of(format: Format) -> Option<&'static str> {
    match format {
        Format::Svg => Some("svg"),
        Format::Png => Some("png"),
        Format::Webp => Some("webp"),
        Format::Table | Format::Plot | Format::Json | Format::Csv => None,
    }
}

/// Has the server draw the answer, and writes it to a file or to stdout.
pub(super) fn run(flags: &QueryFlags, format: &'static str, client: &HttpClient) -> Result<ExitCode, String> {
    let is_binary = format != "svg";
    if is_binary && flags.picture.output.is_none() && io::stdout().is_terminal() {
        return Err(format!("a terminal does not show {format}: name a file by --output, or redirect stdout"));
    }
    if flags.time.is_some() {
        return Err("a picture is of a range: --range, or --start and --end, in place of --time".to_owned());
    }
    let language = match flags.lang {
        Language::Promql => "promql",
        Language::Plan => "plan",
        Language::Sql => "sql",
        Language::Influxql => "influxql",
    };
    let mut parameters = flags.picture.parameters()?;
    let mut add = |name: &str, value: &str| parameters.push((name.to_owned(), value.to_owned()));
    for (name, value) in
        [("query", flags.expression.as_str()), ("db", &flags.db), ("lang", language), ("format", format)]
    {
        add(name, value);
    }
    if let Some((start, end)) = flags.range_seconds()? {
        add("start", &start.to_string());
        add("end", &end.to_string());
    }
    if let Some(step) = &flags.step {
        add("step", step);
    }
    let parameters: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (&**name, &**value)).collect();
    let picture = client.download("/api/v1/graph", &parameters)?;
    match &flags.picture.output {
        Some(file) => fs::write(file, picture).map_err(|error| format!("{}: {error}", file.display()))?,
        None => match io::stdout().lock().write_all(&picture) {
            // A reader that has gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.map_err(|error| format!("cannot print: {error}"))?,
        },
    }
    Ok(ExitCode::SUCCESS)
}
