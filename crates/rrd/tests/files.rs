//! Files of one database beside one another: what belongs to which, what is refused, and who is told.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use db::{Db, DbOptions};
use model::Labels;
use query::Budget;
use thalweg_rrd::RrdError;
use thalweg_rrd::catalog::{Catalog, Destination, File, Pending, Refused, Writer};
use thalweg_rrd::file::{Definition, Moment, read_binary, write_binary};
use thalweg_rrd::pattern::Patterns;
use thalweg_rrd::protocol::{Host, Session};

const BEGIN: Moment = Moment::from_seconds(1_700_000_000);
const SOURCE: &str = "DS:in:GAUGE:120:U:U";
const ARCHIVE: &str = "RRA:AVERAGE:0.5:1:10";

/// A database in a folder that goes at the end.
struct World {
    folder: PathBuf,
    db: Arc<Db>,
}

impl World {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("thalweg-rrd-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let db = Arc::new(Db::open(platform::Platform::real(), DbOptions::new(&folder)).unwrap());
        Self { folder, db }
    }

    /// The files as a server that begins finds them.
    fn catalog(&self) -> Catalog {
        let patterns = Patterns::parse(["{host}/{measurement}/{part}.rrd", "{host}/{measurement}.rrd"]);
        Catalog::open(self.db.clone(), patterns.unwrap())
    }

    fn update(&self, catalog: &Catalog, file: &Arc<File>, after_s: i64) {
        let mut pending = Pending::default();
        let text = format!("{}:5", BEGIN.seconds + after_s);
        catalog.queue(file, &text, (Moment::default(), 0), &mut pending).unwrap();
        assert!(pending.flush(self).is_empty());
    }

    fn last_s(&self, path: &str) -> i64 {
        let catalog = self.catalog();
        catalog.last_update(&catalog.file("default", path).unwrap()).unwrap().seconds - BEGIN.seconds
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Writer for World {
    fn write(&self, lines: &[u8]) -> Result<Refused, RrdError> {
        let (report, errors) = self.db.write_lines("default", lines).unwrap();
        let rejected = report.rejected.into_iter().map(|row| (row.line, row.reason));
        Ok(Refused { total: report.rejected_total + errors.total, lines: rejected.collect() })
    }
}

fn definition() -> Definition {
    Definition::parse(60, &[SOURCE, ARCHIVE]).unwrap()
}

#[test]
fn a_file_that_is_replaced_or_removed_takes_only_its_own_rows() {
    let world = World::new("own");
    let catalog = world.catalog();
    let paths = ["a/if.rrd", "a/if_in.rrd", "a/if/eth0.rrd", "b/if.rrd"];
    for path in paths {
        let file = catalog.create("default", path, definition(), (BEGIN, false)).unwrap();
        world.update(&catalog, &file, 60);
    }
    world.db.write_lines("default", b"if,host=a errors=1 1700000060000000000").unwrap();
    catalog.create("default", "a/if.rrd", definition(), (BEGIN, true)).unwrap();
    assert_eq!(paths.map(|path| world.last_s(path)), [0, 60, 60, 60]);
    assert!(catalog.remove("default", "a/if.rrd").unwrap());
    assert_eq!(["a/if_in.rrd", "a/if/eth0.rrd", "b/if.rrd"].map(|path| world.last_s(path)), [60; 3]);
    let query = db::InstantQuery::new("if_errors", 1_700_000_060_000);
    let found = format!("{:?}", world.db.instant("default", &query).unwrap().value);
    assert!(found.contains("if_errors"), "{found}");
}

#[test]
fn every_refused_update_is_told() {
    let world = World::new("refused");
    // A text has the field's place: no number can be stored.
    world.db.write_lines("default", b"if,host=z in=\"text\" 1700000000000000000").unwrap();
    let catalog = world.catalog();
    let file = catalog.create("default", "a/if.rrd", definition(), (BEGIN, false)).unwrap();
    let other = catalog.create("default", "a/disk.rrd", definition(), (BEGIN, false)).unwrap();
    let mut pending = Pending::default();
    for number in 0..350 {
        let file = if number % 7 == 0 { &other } else { &file };
        let text = format!("{}:5", BEGIN.seconds + 1 + number as i64);
        catalog.queue(file, &text, (Moment::default(), number), &mut pending).unwrap();
    }
    let refusals = pending.flush(&world);
    let mut told: Vec<u64> = refusals.iter().map(|refusal| refusal.number).collect();
    told.sort_unstable();
    assert_eq!(told, (0..350).filter(|number| number % 7 != 0).collect::<Vec<u64>>());
    assert_eq!((world.last_s("a/if.rrd"), world.last_s("a/disk.rrd")), (0, 344));
}

#[test]
fn a_file_that_cannot_take_anothers_place_keeps_its_rows() {
    let world = World::new("conflict");
    let catalog = world.catalog();
    let file = catalog.create("default", "a/if.rrd", definition(), (BEGIN, false)).unwrap();
    world.update(&catalog, &file, 60);
    catalog.create("default", "b/if.rrd", definition(), (BEGIN, false)).unwrap();
    let to = |identity| Destination { database: "default", path: "a/if.rrd", identity: Some(identity), replaces: true };
    let taken = catalog.patterns().identity("b/if.rrd");
    let refused = catalog.import(&definition().empty_file(BEGIN), &to(taken), &world).unwrap_err();
    assert!(refused.to_string().contains("would have the measurement and labels of b/if.rrd"), "{refused}");
    assert_eq!(world.last_s("a/if.rrd"), 60);
    // The labels of a file that has got others are free.
    let own = catalog.patterns().identity("c/if.rrd");
    catalog.import(&definition().empty_file(BEGIN), &to(own), &world).unwrap();
    let free = Some(file.identity.clone());
    let to = Destination { database: "default", path: "d/if.rrd", identity: free, replaces: false };
    catalog.import(&definition().empty_file(BEGIN), &to, &world).unwrap();
}

#[test]
fn files_of_one_definition_share_it() {
    let world = World::new("shared");
    let catalog = world.catalog();
    let one = catalog.create("default", "a/if.rrd", definition(), (BEGIN, false)).unwrap();
    let other = catalog.create("default", "b/if.rrd", definition(), (BEGIN, false)).unwrap();
    assert!(Arc::ptr_eq(&one.definition, &other.definition));
}

#[test]
fn times_and_counts_of_damaged_files_do_no_harm() {
    let mut rrd = definition().empty_file(BEGIN);
    rrd.archives[0].states[0].unknown_points = u64::MAX;
    rrd.states[0].unknown_s = u64::MAX;
    let bytes = write_binary(&rrd).unwrap();
    // Definitions of a source and an archive stand before the time of the last update.
    let at = 128 + 2 * 120;
    for (seconds, micros) in [(i64::MIN, 0), (-1, 0), (1 << 40, 0), (0, u64::MAX)] {
        let mut damaged = bytes.clone();
        damaged[at..at + 8].copy_from_slice(&seconds.to_le_bytes());
        damaged[at + 8..at + 16].copy_from_slice(&micros.to_le_bytes());
        let refused = read_binary(&damaged).unwrap_err();
        assert!(refused.to_string().contains("the time of the last update"), "{refused}");
    }
    thalweg_rrd::fuzzing::file(&bytes);
}

#[test]
fn documents_that_cannot_be_read_are_named_and_nothing_takes_their_place() {
    let world = World::new("unreadable");
    let catalog = world.catalog();
    let file = catalog.create("default", "a/if.rrd", definition(), (BEGIN, false)).unwrap();
    world.update(&catalog, &file, 60);
    assert_eq!(catalog.unreadable(), []);
    let name = "[\"default\",\"a/if.rrd\"]";
    let document =
        |name: &str| world.db.documents("rrd").into_iter().find(|(known, _)| known == name).map(|found| found.1);
    let good = String::from_utf8(document(name).unwrap().to_vec()).unwrap();
    let definition_name = world.db.documents("rrd-definition")[0].0.clone();
    for (bad, why) in [
        ("{".to_owned(), "EOF"),
        ("{}".to_owned(), "number of a database"),
        (good.replace(&definition_name, "0"), "its definition 0 is not there"),
        (good.replace("\"base\":[", "\"base\":[\"x\","), "time after which readings count"),
        (good.replace("\"labels\"", "\"label\""), "measurement and labels"),
    ] {
        world.db.put_document("rrd", name, bad.as_bytes()).unwrap();
        let catalog = world.catalog();
        let told = catalog.unreadable();
        assert!(told.len() == 1 && told[0].0 == name && told[0].1.contains(why), "{told:?} {bad}");
        let to = |identity, path| Destination { database: "default", path, identity, replaces: true };
        let rrd = definition().empty_file(BEGIN);
        let same = catalog.patterns().identity("a/if.rrd");
        for refused in [
            catalog.create("default", "a/if.rrd", definition(), (BEGIN, true)).unwrap_err(),
            catalog.import(&rrd, &to(None, "a/if.rrd"), &world).unwrap_err(),
            // Its rows are not those of another file.
            catalog.import(&rrd, &to(Some(same), "b/if.rrd"), &world).unwrap_err(),
            catalog.file("default", "a/if.rrd").unwrap_err(),
        ] {
            let refused = refused.to_string();
            assert!(refused.contains("a/if.rrd in the manifest cannot be read") && refused.contains(why), "{refused}");
        }
        assert_eq!(*document(name).unwrap(), *bad.as_bytes(), "it is left alone");
    }
    world.db.put_document("rrd", name, good.as_bytes()).unwrap();
    assert_eq!(world.last_s("a/if.rrd"), 60);
    // A document that is removed makes room for a new file.
    world.db.put_document("rrd", name, b"{}").unwrap();
    let catalog = world.catalog();
    assert!(catalog.remove("default", "a/if.rrd").unwrap());
    assert!(catalog.unreadable().is_empty() && document(name).is_none());
    catalog.create("default", "a/if.rrd", definition(), (BEGIN, false)).unwrap();
    // One of a database that was dropped is in nothing's way.
    world.db.put_document("rrd", "[\"gone\",\"a/if.rrd\"]", b"{}").unwrap();
    assert_eq!(world.catalog().unreadable(), []);
}

#[test]
fn a_damaged_definition_is_written_again_for_a_new_file() {
    let world = World::new("definition");
    world.catalog().create("default", "a/if.rrd", definition(), (BEGIN, false)).unwrap();
    let (name, good) = world.db.documents("rrd-definition").remove(0);
    world.db.put_document("rrd-definition", &name, b"{}").unwrap();
    let catalog = world.catalog();
    assert!(catalog.unreadable()[0].1.contains(&format!("its definition {name}")), "{:?}", catalog.unreadable());
    catalog.create("default", "b/if.rrd", definition(), (BEGIN, false)).unwrap();
    assert_eq!(world.db.documents("rrd-definition"), [(name, good)]);
    assert_eq!(world.catalog().unreadable(), []);
}

/// A client with so many bytes for answers.
struct Client<'a> {
    world: &'a World,
    catalog: &'a Catalog,
    bytes: Cell<usize>,
}

impl Writer for Client<'_> {
    fn write(&self, lines: &[u8]) -> Result<Refused, RrdError> {
        self.world.write(lines)
    }
}

impl Host for Client<'_> {
    fn catalog(&self) -> &Catalog {
        self.catalog
    }

    fn database(&self) -> &'static str {
        "default"
    }

    fn now(&self) -> Moment {
        BEGIN
    }

    fn budget(&self) -> Result<Arc<Budget>, RrdError> {
        Ok(self.world.db.budget(100_000))
    }

    fn may_see(&self, _: &File) -> bool {
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
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes.set(left.ok_or_else(|| RrdError::Refused("no memory".to_owned()))?);
        Ok(())
    }
}

#[test]
fn answers_to_one_read_have_a_bound() {
    let world = World::new("answers");
    let catalog = world.catalog();
    for number in 0..20 {
        catalog.create("default", &format!("a/if{number}.rrd"), definition(), (BEGIN, false)).unwrap();
    }
    for command in ["LIST RECURSIVE /\n", "INFO a/if7.rrd\n", "STATS\n", "HELP\n"] {
        let client = Client { world: &world, catalog: &catalog, bytes: Cell::new(4_000) };
        let reply = Session::default().serve(command.repeat(100).as_bytes(), &client);
        let text = String::from_utf8(reply.bytes).unwrap();
        assert!(text.len() < 8_000 && text.contains("\n-1 "), "{command}: {} bytes", text.len());
        assert!(!text.starts_with("-1"), "{text}");
    }
}
