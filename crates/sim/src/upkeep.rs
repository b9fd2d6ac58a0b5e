//! What the store says of its own folder, and backups: taken while faults of the target come and go, restored, compared.

use std::path::Path;

use model::TimeRange;
use platform::objects::{ObjectOptions, Objects};
use platform::sim::ObjectFaults;
use store::{Store, StoreError, StoreOptions, check, restore};

use crate::check::{difference, expected, read_all};
use crate::world::{DATA, PLAIN, SHORT, World, options};

const TARGET: &str = "sim://backups";

/// Attempts at a backup while its target fails now and then.
const ATTEMPTS: usize = 20;

/// A restored folder keeps its parts itself.
const RESTORED_SEED: u64 = 1;

impl World {
    /// Every checksum of the open folder is right, and its parts are where they belong.
    pub(crate) fn check_folder(&self) -> Result<(), String> {
        check_at(self, DATA)
    }

    /// Uploads while the object store fails now and then: nothing of that may show in what is read.
    pub(crate) fn spoil_uploads(&mut self) -> Result<(), String> {
        self.simulation.set_object_faults(ObjectFaults {
            busy_per_mille: 100,
            other_per_mille: 50,
            lost_answers_per_mille: 100,
            cut_uploads_per_mille: 100,
            conflicts_per_mille: 20,
        });
        for _ in 0..self.below(10) {
            let worked = self.store()?.maintain_objects();
            match worked {
                Ok(_) | Err(StoreError::Objects(_)) => {}
                Err(error) if self.refused(&error) => {}
                Err(error) => return Err(format!("uploading: {error}")),
            }
        }
        self.simulation.set_object_faults(ObjectFaults::default());
        Ok(())
    }

    /// Takes a backup, restores it beside the folder, and compares what it holds.
    pub(crate) fn back_up(&mut self) -> Result<(), String> {
        if self.full_for > 0 {
            return Ok(());
        }
        let platform = self.simulation.platform();
        let objects = platform.objects.open(TARGET, &ObjectOptions::default());
        let objects = objects.map_err(|error| format!("opening the target of backups: {error}"))?;
        self.simulation.set_object_faults(ObjectFaults {
            busy_per_mille: 20,
            lost_answers_per_mille: 10,
            cut_uploads_per_mille: 10,
            ..ObjectFaults::default()
        });
        let name = self.attempt(&*objects);
        self.simulation.set_object_faults(ObjectFaults::default());
        let Some(name) = name? else {
            return Ok(());
        };
        self.report.backups += 1;
        // Each into a folder of its own: a crash may bring files back whose removal was not synced.
        let directory = format!("restored-{}", self.report.backups);
        let target = self.platform_of(&directory);
        if self.is_one_file && self.below(2) == 0 {
            let copied = self.store()?.copy_to(&target, Path::new(&directory), &mut |_| {});
            copied.map_err(|error| format!("copying: {error}"))?;
        } else {
            restore(&*objects, Some(&name), &target, Path::new(&directory), &mut |_| {})
                .map_err(|error| format!("restoring {name}: {error}"))?;
        }
        let compared = self.compare_restored(&directory);
        for path in self.simulation.files().iter().filter(|path| path.starts_with(&directory)) {
            platform.files.remove(path).map_err(|error| format!("removing {}: {error}", path.display()))?;
        }
        compared
    }

    /// The name of a backup; `None` if the target failed each time.
    fn attempt(&self, objects: &dyn Objects) -> Result<Option<String>, String> {
        for _ in 0..ATTEMPTS {
            match self.store()?.backup(objects, &mut |_| {}) {
                Ok(report) => return Ok(Some(report.name)),
                Err(StoreError::Objects(_)) => {}
                // Parts that are read from an object store for the backup fail with it.
                Err(error) if error.to_string().contains("simulated: ") => {}
                Err(error) => return Err(format!("taking a backup: {error}")),
            }
        }
        Ok(None)
    }

    fn compare_restored(&self, directory: &str) -> Result<(), String> {
        check_at(self, directory)?;
        let options = StoreOptions { directory: directory.into(), ..options(RESTORED_SEED) };
        let store = Store::open(self.platform_of(directory), options);
        let store = store.map_err(|error| format!("opening what was restored: {error}"))?;
        self.compare_documents_of(&store)?;
        self.compare_epochs_of(&store)?;
        self.compare_trimmed_of(&store)?;
        for database in [PLAIN, SHORT] {
            let Some(oracle) = self.oracles.get(database) else {
                continue;
            };
            let now_ns = store.trusted_now_ns();
            let range = oracle.certain(&TimeRange::ALL, now_ns);
            let found = read_all(&store, database, &range)?;
            let expected = expected(oracle, &range, now_ns);
            if let Some(difference) = difference(&found, &expected) {
                return Err(format!("{database}, restored: {difference}"));
            }
        }
        Ok(())
    }
}

fn check_at(world: &World, directory: &str) -> Result<(), String> {
    let platform = world.platform_of(directory);
    let report = check(&platform, Path::new(directory), None, &mut |_| {});
    let report = report.map_err(|error| format!("checking {directory}: {error}"))?;
    match report.damages.first() {
        None => Ok(()),
        Some(damage) => Err(format!("{} at {}: {}", damage.file, damage.offset, damage.message)),
    }
}
