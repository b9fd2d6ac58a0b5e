//! What an opening for reading only takes over from the one before it: parts and segments of the index never change, so that those which the
//! manifest still names are not read again, and of files of epochs only what was appended is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use index::Segment;
use platform::Files;

use crate::manifest::State;
use crate::manifest::twin::{self, LoadedManifest};
use crate::part::epochs::open::Databases;
use crate::part::{Part, PartInfo};
use crate::upkeep::health::Health;
use crate::{Store, StoreError};

/// Open files of an opening before.
#[derive(Default)]
pub(super) struct Reused {
    incarnation: u64,
    /// The opening that had written the manifest, and its last record.
    edition: (u64, u64),
    /// The manifest that counts.
    manifest: Option<LoadedManifest>,
    /// Whether its files are those that the opening before read.
    is_continued: bool,
    regular: Databases,
    parts: BTreeMap<u64, Arc<Part>>,
    segments: BTreeMap<u64, Arc<Segment>>,
    /// Where their damage is told of.
    health: Option<Arc<Health>>,
}

impl Reused {
    /// What a store has open. Nothing if some of it is damaged: it may have been repaired since.
    pub(super) fn from_store(store: &Store) -> Self {
        let health = store.upkeep.health();
        if !health.damages().is_empty() || health.has_losses() {
            return Self::default();
        }
        // Without it nothing is known to be the same.
        let Some(tail) = &store.manifest_tail else { return Self::default() };
        let mut reused = Self {
            incarnation: store.incarnation(),
            edition: tail.edition(),
            regular: store.regular.read().clone(),
            health: Some(health.clone()),
            ..Self::default()
        };
        for shard in &store.shards {
            let parts = shard.parts_and_deletes().0;
            reused.parts.extend(parts.iter().map(|part| (part.info.id, part.clone())));
            let groups = shard.groups.read();
            reused.segments.extend(groups.groups.segments().iter().map(|segment| (segment.number(), segment.clone())));
        }
        reused
    }

    /// With the manifest as it was read, and whether its files are still those of the opening before.
    pub(super) fn with_manifest(self, manifest: LoadedManifest, is_continued: bool) -> Self {
        Self { manifest: Some(manifest), is_continued, ..self }
    }

    /// The manifest, read unless it was before; `None` if the folder has none.
    pub(super) fn manifest(
        &mut self,
        files: &dyn Files,
        directory: &Path,
    ) -> Result<Option<LoadedManifest>, StoreError> {
        self.manifest.take().map_or_else(|| twin::read(files, directory), |loaded| Ok(Some(loaded)))
    }

    /// Itself if the folder is still the same, and none that was put back from before; else nothing. Where the manifest was written anew it was by the
    /// same opening of the folder: a later one may be of a folder that was put back, and gives numbers out again.
    pub(super) fn in_folder(self, state: &State) -> Self {
        let is_of_opening = self.is_continued || state.epoch == self.edition.0;
        let goes_on = is_of_opening && self.edition <= (state.epoch, state.edition);
        if self.incarnation == state.incarnation && goes_on { self } else { Self::default() }
    }

    /// Regular databases.
    pub(super) const fn regular(&self) -> &Databases {
        &self.regular
    }

    /// The part that the manifest says this of.
    pub(super) fn part(&self, info: &PartInfo) -> Option<Arc<Part>> {
        self.parts.get(&info.id).filter(|part| part.info == *info).cloned()
    }

    /// A segment of groups by its number.
    pub(super) fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        self.segments.get(&number).cloned()
    }

    /// Where damage of what is open is told of.
    pub(super) fn health(&self) -> Arc<Health> {
        self.health.clone().unwrap_or_default()
    }
}
