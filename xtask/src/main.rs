//! `cargo xtask <command>`: the workshop's commands.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program answers on its terminal")]

use std::path::Path;
use std::process::ExitCode;

use xtask::plant::{Options, Outcome};

const USAGE: &str = "Usage:
  cargo xtask tidy [--table]                               hold the source against the house rules; a table of crates
  cargo xtask full                                         tests of the features flight-sql and sql-datafusion, and a day of scraping; builds for half an hour
  cargo xtask header [--check]                             make the header of the library for C; or say whether it is current
  cargo xtask capnp                                        make Rust code of the binary protocol's schema
  cargo xtask sim [--seeds N] [--operations N] [--first N] run the simulation, optimised; failing seeds are printed
  cargo xtask fuzz [--target NAME,…] [--inputs N] [--seconds N] [--list]
                                                           hostile inputs for whatever reads bytes from outside or from disk
  cargo xtask plant [--seeds N] [--operations N] [--only NAME]
                                                           plant bugs and see whether the simulation, or the tests of views, find them
  cargo xtask peers [--peers NAME,…] [--connections 1,4,16] [--line-series 100,10000,1000000]
      [--remote-write-series 200000] [--remote-write-samples 1,10] [--values N] [--repeat N] [--thalweg FILE] [--cache FOLDER]
      [--json]                                             the same writes into this and other servers, side by side
  cargo xtask query-peers [--peers influxdb,victoria-metrics,questdb] [--thalweg FILE] [--scale HOSTS] [--hours N] [--workers 1,4]
      [--queries N] [--seconds-max N] [--seed N] [--only TEXT] [--cache FOLDER] [--json]
                                                           the same queries to this and other servers, side by side
  cargo xtask query-peers --wide [--series N] [--requests N] [--only TEXT] [--peers thalweg,prometheus,victoria-metrics]
      [--thalweg FILE] [--prometheus FILE] [--cache FOLDER] [--json]
                                                           wide selections from many lone series, side by side
  cargo xtask view-peers [--peers thalweg,questdb,influxdb] [--thalweg FILE] [--hosts N] [--hours N] [--cache FOLDER] [--json]
                                                           keeping a view of a minute, side by side, and what it says after late rows
  cargo xtask epoch-peers [--peers thalweg,rrdtool,sqlite,duckdb,redis] [--thalweg FILE] [--series N] [--epochs N] [--cache FOLDER]
                          [--json]
                                                           epochs of counters in each: what writing a value costs, its bytes, reading a name
  cargo xtask cache-peers [--workloads full,small,medium,large] [--units MINUTES,…] [--margins PERCENT,…] [--cache-percent N]
      [--counted all|file] [--requests N] [--warm-requests N] [--database-delay-ms N] [--clients N] [--days N] [--cache FOLDER] [--thalweg FILE] [--json]
                                                           the same requests to InfluxDB alone, through this project's result
                                                           cache, and through memcached; counted after so many that warm the
                                                           cache, each answer of InfluxDB held back for so long (0: not at all)
  cargo xtask differential influxql [--seed N] [--statements N] [--thalweg FILE]
                                                           generated statements to this server and to InfluxDB 1.x
  cargo xtask differential sql [--seed N] [--statements N]
                                                           random statements to SQL and to DuckDB (a package of Python)
  cargo xtask differential postgres [--seed N] [--statements N]
                                                           random zones, dates and intervals to SQL and to PostgreSQL
  cargo xtask differential promql [--queries N] [--seed S] [--prometheus FILE] [--thalweg FILE] [--keep FILE]
                                                           the same random queries to Prometheus and to this server; what
                                                           differs is printed, and kept as a script in FILE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // As cargo says it now: a build cache may hold the program of a checkout that is elsewhere, or nowhere any more.
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&folder).join("..");
    let asks_for_help = arguments.iter().any(|word| word == "--help" || word == "-h");
    let done = match arguments.split_first() {
        // That of fuzz is its own.
        Some((command, _)) if asks_for_help && command != "fuzz" => {
            println!("{USAGE}");
            Ok(true)
        }
        Some((command, options)) if command == "tidy" => tidy(&root, options),
        Some((command, [])) if command == "full" => xtask::full::run(&root, &mut |text| println!("{text}")),
        Some((command, [])) if command == "capnp" => xtask::capnp::run(&root).map(|()| true),
        Some((command, options)) if command == "header" => {
            xtask::header::command(&root, options, &mut |text| println!("{text}"))
        }
        Some((command, options)) if command == "sim" => xtask::sim::run(&root, options),
        Some((command, options)) if command == "fuzz" => {
            xtask::fuzz::run(&root, options, &mut |text| println!("{text}"))
        }
        Some((command, options)) if command == "plant" => plant(&root, options),
        #[cfg(target_os = "linux")]
        Some((command, options)) if command == "peers" => {
            xtask::peers::command(&root, options, &mut |text| println!("{text}"))
        }
        #[cfg(target_os = "linux")]
        Some((command, options)) if command == "query-peers" && options.iter().any(|option| option == "--wide") => {
            xtask::peers::wide::command(&root, options, &mut |text| println!("{text}"))
        }
        Some((command, options)) if command == "query-peers" => {
            xtask::peers::queries::command(&root, options, &mut |text| println!("{text}"))
        }
        #[cfg(target_os = "linux")]
        Some((command, options)) if command == "view-peers" => {
            xtask::peers::views::command(&root, options, &mut |text| println!("{text}"))
        }
        Some((command, options)) if command == "epoch-peers" => {
            xtask::peers::epochs::command(&root, options, &mut |text| println!("{text}"))
        }
        Some((command, options)) if command == "cache-peers" => {
            xtask::peers::caches::command(&root, options, &mut |text| println!("{text}"))
        }
        #[cfg(target_os = "linux")]
        Some((command, options)) if command == "differential" => differential(&root, options),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn tidy(root: &Path, options: &[String]) -> Result<bool, String> {
    let with_table = match options {
        [] => false,
        [option] if option == "--table" => true,
        _ => return Err(USAGE.to_owned()),
    };
    let report = xtask::tidy::check(root).map_err(|error| format!("tidy could not look: {error}"))?;
    for finding in &report.findings {
        eprintln!("{finding}\n");
    }
    if with_table {
        println!("{}\n", report.table);
    }
    println!("{}", report.summary);
    Ok(report.findings.is_empty())
}

#[cfg(target_os = "linux")]
fn differential(root: &Path, options: &[String]) -> Result<bool, String> {
    use xtask::differential::sql;

    match options.split_first() {
        Some((language, options)) if language == "promql" => {
            let options = xtask::differential::Options::read(options)?;
            xtask::differential::run(root, &options, &mut |text| println!("{text}"))
        }
        Some((language, options)) if language == "sql" => sql::command(root, sql::DUCKDB, options),
        Some((language, options)) if language == "postgres" => sql::command(root, sql::POSTGRES, options),
        Some((language, options)) if language == "influxql" => {
            xtask::peers::influxql::command(root, options, &mut |text| println!("{text}"))
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn plant(root: &Path, options: &[String]) -> Result<bool, String> {
    let options = Options::read(options)?;
    xtask::plant::run(root, &options, &mut |bug, outcome| match outcome {
        Outcome::Found(divergence) => println!("{:<30} found: {divergence}", bug.name),
        Outcome::Missed => println!("{:<30} MISSED; it breaks: {}", bug.name, bug.breaks),
    })
}
