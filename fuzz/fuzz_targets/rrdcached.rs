//! rrdcached's protocol: nothing panics, whatever a client sends.
#![no_main]

use std::sync::{Arc, OnceLock};

use db::{Db, DbOptions};
use libfuzzer_sys::fuzz_target;
use platform::sim::Simulation;
use rrd::catalog::Catalog;
use rrd::pattern::Patterns;
use thalweg_fuzz as _;

fn database() -> Arc<Db> {
    static DB: OnceLock<Arc<Db>> = OnceLock::new();
    DB.get_or_init(|| {
        let mut options = DbOptions::new("/data");
        options.query_helpers = 0;
        options.result_cache_memory_bytes_max = 0;
        Arc::new(Db::open(Simulation::new(1).platform(), options).expect("an empty folder opens"))
    })
    .clone()
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
    db.drop_database("default").expect("the folder is simulated");
    let catalog = Catalog::open(db, Patterns::default());
    rrd::fuzzing::protocol(lines, &catalog);
});
