//! `thalweg check metrics`: advice and exit codes are those of promtool.

use std::io::Read;
use std::process::ExitCode;

use ingest::exposition::lint::lint;

/// Bytes of standard input.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// What promtool exits with where there is advice.
const ADVICE_CODE: u8 = 3;

/// Reads metrics from standard input.
pub(super) fn run() -> Result<ExitCode, String> {
    let mut text = Vec::new();
    let read = std::io::stdin().take(TEXT_BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| format!("standard input: {error}"))?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(format!("standard input has more than {TEXT_BYTES_MAX} bytes: check a part of it"));
    }
    let advice = match lint(&text) {
        Ok(advice) => advice,
        Err(reason) => {
            say!("error while linting: {reason}");
            return Ok(ExitCode::FAILURE);
        }
    };
    advice.iter().for_each(|advice| say!("{} {}", advice.metric, advice.text));
    Ok(if advice.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(ADVICE_CODE) })
}
