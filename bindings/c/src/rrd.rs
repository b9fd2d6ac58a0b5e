//! Series as files of RRDtool.

use std::path::Path;

use embedded::{Error, RrdExport};

use crate::database::thalweg_db_t;
use crate::error::{call, object, thalweg_code_t, thalweg_error_t};
use crate::text::{elements, thalweg_str_t};

/// Makes a file of RRDtool of the one series that `selector` selects: its samples are the readings of the data source. The definition is what
/// `rrdtool create` takes, `definition_len` texts: one as `"DS:load:GAUGE:120:0:U"`, and the archives, as `"RRA:AVERAGE:0.5:1:1440"`; a step has
/// `step_s` seconds. The file is made at `path`, where there must be none; with the ending `.xml` it is what `rrdtool restore` takes.
///
/// Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_rrd_export(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    selector: thalweg_str_t,
    step_s: u64,
    definition: *const thalweg_str_t,
    definition_len: usize,
    path: thalweg_str_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle is null or a database that is not freed yet; texts and the array of them are readable for the time of the call, as the
        // header demands.
        let (db, database, selector, path, definition) = unsafe {
            (
                object(db, "db")?,
                database.database()?,
                selector.text("the selector")?,
                path.text("the path")?,
                elements(definition, definition_len, "the definition")?,
            )
        };
        // SAFETY: as above.
        let definition = definition.iter().map(|text| unsafe { text.text("the definition") });
        let definition: Vec<&str> = definition.collect::<Result<_, Error>>()?;
        let export = RrdExport { selector, step_s, definition: &definition, path: Path::new(path) };
        db.engine.export_rrd(database, &export)
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}
