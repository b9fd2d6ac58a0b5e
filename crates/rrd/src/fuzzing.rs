//! Entries for fuzzing: nothing panics, and what was read can be written and read again.

use crate::catalog::{Catalog, Refused, Writer};
use crate::consolidate::{NoSink, Updater};
use crate::file::{self, Moment, Reading, Rrd};
use crate::protocol::{Host, Session};
use crate::rpn::{Column, Grid, Inputs, Operand, Program};
use crate::time::Times;
use crate::xport::Script;
use crate::{RrdError, catalog};

use std::path::Path;
use std::sync::Arc;

use model::Labels;
use query::Budget;

/// Reads bytes as a file, in both forms; writes it in both, and updates it.
pub fn file(bytes: &[u8]) {
    let Ok(read) = file::read(bytes) else { return };
    let rrd = read.rrd;
    if let Ok(written) = file::write_binary(&rrd) {
        let again = file::read_binary(&written).map(|read| read.rrd);
        assert!(again.is_ok(), "a file that was written can be read");
    }
    let again = file::read_xml(file::write_xml(&rrd).as_bytes());
    assert!(again.is_ok(), "a dump that was written can be read");
    update(rrd);
}

fn update(mut rrd: Rrd) {
    let Ok(mut updater) = Updater::new(&rrd.sources) else { return };
    let readings = vec![Reading::Number(1.5); rrd.sources.len()];
    for seconds in [1, 61, 3_600, 1 << 20] {
        let time = Moment::from_seconds(rrd.last_update.seconds.saturating_add(seconds));
        let _ = updater.update(&mut rrd, time, &readings, &mut NoSink);
    }
}

/// Reads a text as an expression, and computes it over two short columns; reads it as the statements of an export.
pub fn expression(text: &str) {
    let operand = |name: &str| match name {
        "a" => Some(Operand::Series(0)),
        "b" => Some(Operand::Series(1)),
        "v" => Some(Operand::Scalar(0)),
        _ => None,
    };
    if let Ok(program) = Program::parse(text, &operand) {
        let column = |step_s: i64| {
            let values = (0..40 / step_s).map(|value| if value % 3 == 0 { f64::NAN } else { value as f64 }).collect();
            Column { start_s: 1_000, end_s: 1_040, step_s, values }
        };
        let columns = [column(2), column(5)];
        let inputs = Inputs { columns: &columns, scalars: &[7.0], now_s: 1_040, check: &|| Ok(()) };
        let values = program.evaluate(&inputs, Grid { start_s: 1_000, end_s: 1_040, step_s: 1 });
        assert!(values.is_err() || values.is_ok_and(|values| values.len() == 40), "a value for each step");
    }
    let lines: Vec<&str> = text.lines().collect();
    let _ = Script::parse(&lines, Times { start_s: 1_000, end_s: 2_000 });
}

/// Values that an answer may hold: more of the same finds nothing, and takes most of the time.
const VALUES_MAX: u64 = 4_000;

/// Serves a client's lines from a catalog; the second half comes in a read of its own.
pub fn protocol(lines: &[u8], catalog: &Catalog) {
    let host = FuzzHost { catalog };
    let mut session = Session::default();
    let (first, second) = lines.split_at(lines.len() / 2);
    session.serve(first, &host);
    session.serve(second, &host);
}

/// A client that may do everything.
struct FuzzHost<'a> {
    catalog: &'a Catalog,
}

impl Writer for FuzzHost<'_> {
    fn write(&self, lines: &[u8]) -> Result<Refused, RrdError> {
        let written = self.catalog.db().write_lines("default", lines);
        let (report, errors) = written.map_err(|error| RrdError::Refused(error.to_string()))?;
        let rejected = report.rejected.iter().map(|row| (row.line, row.reason.clone()));
        let lines = errors.first.iter().map(|error| (error.line, error.reason.clone())).chain(rejected).collect();
        Ok(Refused { total: report.rejected_total + errors.total, lines })
    }
}

impl Host for FuzzHost<'_> {
    fn catalog(&self) -> &Catalog {
        self.catalog
    }

    fn database(&self) -> &'static str {
        "default"
    }

    fn now(&self) -> Moment {
        Moment::from_ns(self.catalog.db().now_ns())
    }

    fn budget(&self) -> Result<Arc<Budget>, RrdError> {
        Ok(self.catalog.db().budget(VALUES_MAX))
    }

    fn may_see(&self, _: &catalog::File) -> bool {
        true
    }

    fn check_change(&self, _: &Labels) -> Result<(), RrdError> {
        Ok(())
    }

    fn check_replace(&self, _: &Labels) -> Result<(), RrdError> {
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn load(&self, _: &str) -> Result<Option<Vec<u8>>, RrdError> {
        Ok(None)
    }

    fn hold(&self, bytes: usize) -> Result<(), RrdError> {
        if bytes > 64 << 20 { Err(RrdError::Refused("too much memory".to_owned())) } else { Ok(()) }
    }
}
