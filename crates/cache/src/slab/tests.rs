//! Bytes that must never change (`docs/formats/slab.md`), and hostile bytes.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::points::{Points, ValueType, Values};
use crate::{Key, Span};

/// The slab of the golden file, which was written by this function: set `THWG_GOLDEN_WRITE` to write one for a new layout.
fn golden() -> Built {
    let points = |times: &[i64], series: &[u32]| Points {
        timestamps: times.to_vec(),
        series: series.to_vec(),
        values: Values::F64(times.iter().map(|time| *time as f64 / 4.0).collect()),
    };
    let interval = |start, end, sequence| CachedInterval { span: Span::new(start, end), sequence, stamp: 7, fields: 2 };
    let keys = [("a", vec![interval(0, 100, 3), interval(200, 300, 4)]), ("b", vec![interval(50, 100, 5)])];
    let unit = Unit {
        keys: keys.map(|(statement, intervals)| (Key::of_statement(statement), intervals)).to_vec(),
        series: vec![Arc::from("host=x"), Arc::from("")],
        strands: vec![
            Strand { keys: vec![0], points: points(&[1, 2, 250], &[0, 1, 1]) },
            Strand { keys: vec![0, 1], points: points(&[50, 60, 60], &[1, 0, 1]) },
        ],
    };
    let mut builder = SlabBuilder::new(16 << 10, ValueType::F64, Arc::from("usage"));
    assert!(builder.add(&unit));
    builder.finish(0x1122_3344_5566_7788, 9, false)
}

#[test]
fn a_golden_slab_reads_as_it_was_written() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/columns-1.slab");
    let written = golden();
    if std::env::var_os("THWG_GOLDEN_WRITE").is_some() {
        std::fs::write(&path, &*written.bytes).unwrap();
    }
    let kept = std::fs::read(&path).unwrap();
    // Columns may be written in another way by a later codec; what was written once is read all the same.
    let header = Header::decode(&kept).unwrap();
    let (head, now) = (&header.head, &written.head);
    assert_eq!((head.value_type, &head.field), (now.value_type, &now.field));
    assert_eq!((head.incarnation, head.serial, head.keys, head.points), (now.incarnation, now.serial, 2, 6));
    assert_eq!(header.head.span, Span::new(0, 300));
    assert_eq!((header.head.sequence_min, header.head.sequence_max, header.head.center), (3, 5, 70));
    assert_eq!(header.series, [Arc::from("host=x"), Arc::from("")]);
    let mut found = Vec::new();
    for placed in &header.records {
        let record = &placed.record;
        for marker in &record.markers {
            let start = (header.head.header_bytes + marker.offset) as usize;
            let block = block::decode(&kept[start..start + marker.len as usize], ValueType::F64).unwrap();
            found.extend(block.timestamps.iter().zip(&block.series).map(|(time, series)| (record.key, *time, *series)));
        }
    }
    found.sort_unstable();
    let (a, b) = (Key::of_statement("a"), Key::of_statement("b"));
    let mut expected = vec![(a, 1, 0), (a, 2, 1), (a, 50, 1), (a, 60, 0), (a, 60, 1), (a, 250, 1)];
    expected.extend([(b, 50, 1), (b, 60, 0), (b, 60, 1)]);
    expected.sort_unstable();
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = golden().bytes.to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        crate::fuzzing::slab(&bytes[8.min(bytes.len())..]);
        let _ = Header::decode(&bytes);
    }
}
