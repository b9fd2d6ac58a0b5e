//! Entries for fuzzing, of what no public function reads by itself.

use std::path::Path;

pub use crate::journal::file::fuzz as journal;
pub use crate::log::record::fuzz as log_record;
pub use crate::manifest::fuzz as manifest;
pub use crate::part::epochs::fuzz::fuzz as epochs;
pub use crate::part::fuzz::part_file;
pub use crate::part::reader::fuzz as part;
pub use crate::tier::flash::fuzz as flash_table;
pub use crate::upkeep::backup::list::fuzz as backup;
pub use crate::write::producers::fuzz as producers;

use crate::log::reader::{Scan, ScanStart, SegmentBytes};

/// Reads bytes as a log segment.
pub fn log_segment(bytes: &[u8]) {
    let mut scan = Scan::new(ScanStart::default());
    let segment = SegmentBytes { number: 1, path: Path::new("1.log"), bytes, end: None };
    let _ = scan.segment(&segment, |frame| {
        log_record(frame.kind, frame.payload);
        Ok::<(), ()>(())
    });
}
