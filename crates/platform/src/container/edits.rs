//! What a commit changes in the directory: all of it, or nothing.

use std::collections::BTreeSet;

use super::directory::{BlockRun, ContainerDirectory};

/// Changes of the directory that become durable together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ContainerEdits {
    pub(super) next_id: u64,
    pub(super) files: Vec<InnerEdit>,
    /// Which file a name belongs to from now on; `None`: it is gone.
    pub(super) names: Vec<(String, Option<u64>)>,
}

/// A file that is new or has grown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct InnerEdit {
    pub(super) id: u64,
    pub(super) bytes: u64,
    /// So many of its first runs stay.
    pub(super) runs_kept: u32,
    /// Those after them.
    pub(super) runs: Vec<BlockRun>,
}

impl ContainerEdits {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.names.is_empty()
    }
}

impl InnerEdit {
    /// From what a directory has of a file to what it has to have.
    pub(super) fn new(directory: &ContainerDirectory, id: u64, bytes: u64, runs: &[BlockRun]) -> Self {
        let known = directory.files.get(&id).map(|entry| entry.runs.as_slice()).unwrap_or_default();
        let kept = known.iter().zip(runs).take_while(|(known, run)| known == run).count();
        Self { id, bytes, runs_kept: kept as u32, runs: runs.get(kept..).unwrap_or_default().to_vec() }
    }
}

impl ContainerDirectory {
    /// Applies what a commit changed. After an error the directory means nothing.
    pub(super) fn apply(&mut self, edits: &ContainerEdits) -> Result<(), &'static str> {
        if edits.next_id < self.next_id {
            return Err("numbers of files go back");
        }
        self.next_id = edits.next_id;
        for edit in &edits.files {
            self.apply_file(edit)?;
        }
        self.apply_names(&edits.names)?;
        // What is new has a name by now.
        let is_named = |id: &u64| self.files.get(id).is_some_and(|entry| self.names.get(&entry.name) == Some(id));
        if edits.files.iter().all(|edit| is_named(&edit.id)) { Ok(()) } else { Err("a file has no name") }
    }

    fn apply_file(&mut self, edit: &InnerEdit) -> Result<(), &'static str> {
        let mut entry = self.files.get(&edit.id).cloned().unwrap_or_default();
        if edit.runs_kept as usize > entry.runs.len() || edit.bytes < entry.bytes {
            return Err("a file keeps blocks that it has not, or becomes shorter");
        }
        entry.runs.truncate(edit.runs_kept as usize);
        entry.runs.extend_from_slice(&edit.runs);
        entry.bytes = edit.bytes;
        self.check_entry(edit.id, &entry)?;
        self.files.insert(edit.id, entry);
        Ok(())
    }

    fn apply_names(&mut self, names: &[(String, Option<u64>)]) -> Result<(), &'static str> {
        let mut nameless = BTreeSet::new();
        for (name, _) in names {
            nameless.extend(self.names.remove(name));
        }
        for (name, id) in names {
            let Some(id) = id else { continue };
            let entry = self.files.get_mut(id).ok_or("a name belongs to no file")?;
            let is_elsewhere = self.names.get(&entry.name) == Some(id);
            entry.name.clone_from(name);
            if is_elsewhere || self.names.insert(name.clone(), *id).is_some() {
                return Err("a file has two names, or a name two files");
            }
            nameless.remove(id);
        }
        for id in nameless {
            self.files.remove(&id);
        }
        Ok(())
    }
}
