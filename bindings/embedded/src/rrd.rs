//! Series as files of RRDtool.

use std::io::ErrorKind;
use std::path::Path;

use platform::{OpenMode, Platform};
use rrd::RrdError;
use rrd::catalog::export_series;
use rrd::file::{Definition, write_binary, write_xml, xml_bytes_max};

use crate::engine::Engine;
use crate::error::{Code, Error};

/// Bytes that a value takes in a file.
const CELL_BYTES: u64 = 8;

/// A file of RRDtool that is to be made of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RrdExport<'a> {
    /// The one series that is its data source.
    pub selector: &'a str,
    /// Seconds of a step.
    pub step_s: u64,
    /// The definition, as `rrdtool create` takes it: one `DS:…` and the archives, `RRA:…`.
    pub definition: &'a [&'a str],
    /// Where the file is made. There must be none: it is not replaced. With the ending `.xml` it is what `rrdtool restore` takes.
    pub path: &'a Path,
}

impl Engine {
    /// Makes a file of RRDtool of a series: its samples are the readings of the data source.
    pub fn export_rrd(&self, database: &str, export: &RrdExport<'_>) -> Result<(), Error> {
        let (db, budget) = self.query_start()?;
        let definition = Definition::parse(export.step_s, export.definition)?;
        let matchers = promql::parse_selector(export.selector)?;
        let rrd = export_series((&db, database), &matchers, &definition, &budget)?;
        let cells: usize = rrd.archives.iter().map(|archive| archive.values.len()).sum();
        let is_xml = export.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"));
        budget.hold_bytes(if is_xml { xml_bytes_max(&rrd) } else { cells as u64 * CELL_BYTES })?;
        let bytes = if is_xml { write_xml(&rrd).into_bytes() } else { write_binary(&rrd)? };
        write_new(export.path, &bytes)
    }
}

/// Makes a file where there is none. One that could not be written whole is removed.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        let code = if error.kind() == ErrorKind::AlreadyExists { Code::Invalid } else { Code::Io };
        Error::new(code, format!("{}: {error}", path.display()))
    };
    let files = Platform::real().files;
    let file = files.open(path, OpenMode::CreateNew).map_err(failed)?;
    file.write_all_at(bytes, 0).and_then(|()| file.sync_data()).map_err(|error| {
        let _ = files.remove(path);
        failed(error)
    })
}

impl From<RrdError> for Error {
    fn from(error: RrdError) -> Self {
        let code = match error {
            RrdError::Query(error) => return error.into(),
            RrdError::Invalid(_) => Code::Invalid,
            RrdError::NotFound(_) => Code::NotFound,
            RrdError::Refused(_) => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}
