//! Replacement policies, simulated.

use std::process::ExitCode;

use crate::simulate::{self, Mix, Outcome, Settings};
use cache::PolicyKind;
use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

/// Minutes of data of a slab.
const SLAB_MINUTES: i64 = 128;
const SLAB_BYTES: u64 = 1 << 20;
/// How often partition sizes are told.
const SAMPLES: u64 = 20;

#[derive(Debug, Args)]
pub(crate) struct PoliciesFlags {
    /// Slabs of data in the database
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    slabs: u32,
    /// The cache's size in hundredths of the data
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    cache_percent: u32,
    /// Requests of each case
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// What chance follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    requests: String,
    policy: &'static str,
    hit_ratio: f64,
    slab_hit_ratio: f64,
    read_bytes: u64,
    written_bytes: u64,
    lru_shares: Vec<f64>,
}

pub(super) fn run(flags: &PoliciesFlags) -> Result<ExitCode, String> {
    let hot_spots =
        [(8, 1), (4, 1), (2, 1), (1, 1), (1, 2), (1, 4), (1, 8)].map(|(new, old)| Mix::HotSpot { new, old });
    let mut rows = Vec::new();
    for mix in [Mix::Latest].into_iter().chain(hot_spots) {
        let settings = Settings {
            data_minutes: i64::from(flags.slabs) * SLAB_MINUTES,
            slab_minutes: SLAB_MINUTES,
            slab_bytes: SLAB_BYTES,
            cache_slabs: (flags.slabs * flags.cache_percent / 100).max(1) as usize,
            requests: flags.requests,
            samples: SAMPLES,
            mix,
            seed: flags.seed,
        };
        rows.extend(PolicyKind::ALL.map(|policy| row(mix, &simulate::run(&settings, policy))));
    }
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?);
    } else {
        println!("{}", table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(mix: Mix, outcome: &Outcome) -> Row {
    Row {
        requests: match mix {
            Mix::Latest => "latest".to_owned(),
            Mix::HotSpot { new, old } => format!("new:old {new}:{old}"),
        },
        policy: outcome.policy.name(),
        hit_ratio: outcome.hit_ratio(),
        slab_hit_ratio: outcome.slab_hits as f64 / outcome.slabs_touched.max(1) as f64,
        read_bytes: outcome.read_bytes,
        written_bytes: outcome.written_bytes,
        lru_shares: outcome.lru_shares.clone(),
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "requests",
        "policy",
        "hits %",
        "slab hits %",
        "MiB read",
        "MiB written",
        "LRU partition %, over time",
    ]);
    for row in rows {
        let shares = row.lru_shares.iter().step_by(4).map(|share| format!("{:.0}", share * 100.0)).collect::<Vec<_>>();
        table.add_row([
            row.requests.clone(),
            row.policy.to_owned(),
            format!("{:.1}", row.hit_ratio * 100.0),
            format!("{:.1}", row.slab_hit_ratio * 100.0),
            (row.read_bytes >> 20).to_string(),
            (row.written_bytes >> 20).to_string(),
            shares.join(" "),
        ]);
    }
    table
}
