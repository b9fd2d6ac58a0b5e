//! rrdcached's protocol: nothing panics, whatever a client sends.
#![no_main]

use std::sync::{Arc, Mutex};

use db::{Db, DbOptions};
use libfuzzer_sys::fuzz_target;
use platform::sim::Simulation;
use rrd::catalog::Catalog;
use rrd::pattern::Patterns;
use thalweg_fuzz as _;

/// Inputs on one database: its folder is simulated in memory, whose log grows.
const INPUTS_MAX: u32 = 200;

fn database() -> Arc<Db> {
    static DB: Mutex<Option<(Arc<Db>, u32)>> = Mutex::new(None);
    let mut known = DB.lock().expect("a target that panics ends");
    let used = known.take().filter(|(_, inputs)| *inputs < INPUTS_MAX);
    let (db, inputs) = used.unwrap_or_else(|| {
        let mut options = DbOptions::new("/data");
        options.query_helpers = 0;
        options.result_cache_memory_bytes_max = 0;
        (Arc::new(Db::open(Simulation::new(1).platform(), options).expect("an empty folder opens")), 0)
    });
    *known = Some((db.clone(), inputs + 1));
    db
}

fuzz_target!(|lines: &[u8]| {
    let db = database();
    // Each input finds nothing of the ones before.
    for (name, _) in db.documents("rrd") {
        db.remove_document("rrd", &name).expect("the folder is simulated");
    }
    for (name, _) in db.documents("rrd-definition") {
        db.remove_document("rrd-definition", &name).expect("the folder is simulated");
    }
    if db.has_database("default") {
        db.drop_database("default").expect("the folder is simulated");
    }
    let catalog = Catalog::open(db, Patterns::default());
    rrd::fuzzing::protocol(lines, &catalog);
});
