//! Files that an opening for reading only takes over from the one before it: parts and segments of the index never change, so that those which the
//! manifest still names are not read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use index::Segment;

use crate::Store;
use crate::manifest::State;
use crate::part::{Part, PartInfo};
use crate::upkeep::health::Health;

/// Open files of an opening before.
#[derive(Default)]
pub(super) struct Reused {
    incarnation: u64,
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
        let mut reused = Self { incarnation: store.incarnation(), health: Some(health.clone()), ..Self::default() };
        for shard in &store.shards {
            let parts = shard.parts_and_deletes().0;
            reused.parts.extend(parts.iter().map(|part| (part.info.id, part.clone())));
            let groups = shard.groups.read();
            reused.segments.extend(groups.groups.segments().iter().map(|segment| (segment.number(), segment.clone())));
        }
        reused
    }

    /// Itself if the folder is still the same, else nothing.
    pub(super) fn in_folder(self, state: &State) -> Self {
        if self.incarnation == state.incarnation { self } else { Self::default() }
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
