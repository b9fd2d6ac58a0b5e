//! What is refused because of its time: a clock far ahead of ours would otherwise make partitions for times to come.

use std::collections::HashMap;

use model::{Batch, Block, GroupIdentity, GroupKey};

use crate::errors::LimitName;
use crate::{Limits, LineErrors};

/// Takes the rows out of a batch that are more than `ahead_ms_max` ahead of `now_ns`, and reports them.
pub fn refuse_ahead(batch: &mut Batch<'_>, errors: &mut LineErrors, limits: &Limits, now_ns: i64, ahead_ms_max: u64) {
    let ahead_ns = i64::try_from(ahead_ms_max).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    let newest_ns_max = now_ns.saturating_add(ahead_ns);
    for block in &mut batch.blocks {
        if block.timestamps_ns.iter().all(|timestamp_ns| *timestamp_ns <= newest_ns_max) {
            continue;
        }
        for (line, timestamp_ns) in block.lines.iter().zip(&block.timestamps_ns) {
            if *timestamp_ns > newest_ns_max {
                let reason = LimitName::Ahead.exceeded(format_args!(
                    "the time {timestamp_ns} ns is more than {ahead_ms_max} ms ahead of the server's clock"
                ));
                errors.push(limits.errors_max, *line, reason);
            }
        }
        let kept: Vec<bool> = block.timestamps_ns.iter().map(|timestamp_ns| *timestamp_ns <= newest_ns_max).collect();
        retain_rows(block, &kept);
    }
    batch.blocks.retain(|block| block.rows() > 0);
}

/// Takes the rows of groups out of a batch that its sender may not write, and reports them; of exemplars and start timestamps those of such
/// series, and all metadata, which is of whole metrics. A key that cannot be read is left for the store to refuse.
pub fn refuse_groups(
    batch: &mut Batch<'_>,
    errors: &mut LineErrors,
    limits: &Limits,
    may_write: &dyn Fn(&GroupIdentity) -> bool,
) {
    let mut known: HashMap<u128, bool> = HashMap::new();
    let (mut blocks, mut exemplars, mut starts) = (
        std::mem::take(&mut batch.blocks),
        std::mem::take(&mut batch.exemplars),
        std::mem::take(&mut batch.start_timestamps),
    );
    let mut is_allowed = |key: &GroupKey| {
        *known
            .entry(key.hash)
            .or_insert_with(|| (batch.key_decoder)(batch.text(key.text)).map_or(true, |identity| may_write(&identity)))
    };
    for block in &mut blocks {
        let kept: Vec<bool> = block.keys.iter().map(&mut is_allowed).collect();
        for (line, _) in block.lines.iter().zip(&kept).filter(|(_, is_kept)| !**is_kept) {
            errors.push(limits.errors_max, *line, "the account may not write series with these labels".to_owned());
        }
        retain_rows(block, &kept);
    }
    exemplars.retain(|exemplar| is_allowed(&exemplar.key));
    starts.retain(|start| is_allowed(&start.key));
    blocks.retain(|block| block.rows() > 0);
    (batch.blocks, batch.exemplars, batch.start_timestamps) = (blocks, exemplars, starts);
    batch.metadata.clear();
}

/// Keeps the rows that are to be kept, one mark for each.
fn retain_rows(block: &mut Block, kept: &[bool]) {
    let width = block.fields.len();
    let by_row = |width: usize| {
        let mut place = 0;
        move || {
            place += 1;
            kept.get((place - 1) / width.max(1)).copied().unwrap_or_default()
        }
    };
    let (mut keys, mut times, mut lines, mut cells) = (by_row(1), by_row(1), by_row(1), by_row(width));
    block.keys.retain(|_| keys());
    block.timestamps_ns.retain(|_| times());
    block.lines.retain(|_| lines());
    block.cells.retain(|_| cells());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use crate::batch::render::{HASHER, render};
    use crate::line::{Options, Precision, parse};

    #[test]
    fn rows_of_times_to_come_are_told_and_left_out() {
        let limits = Limits::default();
        let options = Options {
            hasher: HASHER.scope(Protocol::Line, 1),
            precision: Precision::Millisecond,
            now_ns: 0,
            limits: &limits,
        };
        let mut parsed = parse(b"m a=1,b=2 10\nm a=3,b=4 1011\nm a=5,b=6 1010\nn v=1 5000", &options).unwrap();
        refuse_ahead(&mut parsed.batch, &mut parsed.errors, &limits, 10_000_000, 1000);
        let told = |line, ms| {
            format!("{line} ! the time {ms}000000 ns is more than 1000 ms ahead of the server's clock (ahead_ms_max)\n")
        };
        let expected = format!(
            "1 m{{}} a=1.0 b=2.0 @10000000\n{}3 m{{}} a=5.0 b=6.0 @1010000000\n{}",
            told(2, 1011),
            told(4, 5000)
        );
        assert_eq!(render(&parsed), expected);
        assert_eq!(parsed.errors.by_limit.get("ahead_ms_max"), Some(&2));
    }
}
