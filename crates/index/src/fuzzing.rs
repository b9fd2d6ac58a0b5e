//! Entries for fuzzing, of what no public function reads by itself.

use std::sync::Arc;

use model::{Labels, MatchOp, Matcher};

use crate::segment::enclosed;
use crate::{CompiledMatcher, GroupId, Groups, MetricColumns, RoaringBitmap, Segment, TextSet, cardinality};

/// Reads bytes as a segment, and everything in it. The first two bytes say how many of the others are its
/// directory; magic and checksum are put around them, so that what is behind the directory is reached.
pub fn segment(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let directory = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (body, directory) = rest.split_at(rest.len() - directory);
    if let Ok(segment) = Segment::open(0, Arc::new(enclosed(body, directory))) {
        segment.trust();
        segment_opened(segment);
    }
}

/// Uses a segment that may be damaged in every way there is.
pub fn segment_opened(segment: Segment) {
    let _ = segment.verify();
    let seed = segment.seed();
    let Ok(mut groups) = Groups::open(vec![segment], seed) else {
        return;
    };
    let ids: Vec<GroupId> = (0..groups.next_id().min(100)).collect();
    for id in &ids {
        let _ = (groups.get(*id), groups.slots(*id));
    }
    let everything = [MetricColumns { measurement: 0, slots: vec![0, 1, 2], decided: Vec::new() }];
    for (op, value) in [(MatchOp::Equal, "a"), (MatchOp::Regex, "a.*|.b"), (MatchOp::NotEqual, "")] {
        let matchers = CompiledMatcher::new(&Matcher::new("x", op, value));
        let _ = groups.select(0, &everything, &matchers.into_iter().collect::<Vec<_>>());
    }
    let chosen: RoaringBitmap = ids.iter().copied().collect();
    let mut texts = TextSet::default();
    let _ = groups.add_label_names(0, &chosen, &mut texts);
    let _ = groups.add_label_values((0, "x"), &chosen, &mut texts, &mut |_| true);
    let _ = cardinality(&[&groups], 0, 10, &|_| true);
    let _ = groups.register(0, 0, &Labels::empty(), &[0]);
    groups.remove(&chosen);
    let _ = groups.freeze().map(|frozen| frozen.write(&mut Vec::new()));
    let _ = groups.merge_due().map(|job| job.write(&mut Vec::new()));
}
