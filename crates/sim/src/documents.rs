//! Named documents: what was put is there after whatever happens, and what was removed is not.

use store::Store;

use crate::world::World;

const KIND: &str = "simulated";

impl World {
    /// Puts or removes a document.
    pub(crate) fn change_document(&mut self) -> Result<(), String> {
        let (name, bytes) = self.random_document();
        let changed = match &bytes {
            Some(bytes) => self.store()?.put_document(KIND, &name, bytes),
            None => self.store()?.remove_document(KIND, &name).map(|_| ()),
        };
        match changed {
            Ok(()) => self.apply_document(name, bytes),
            Err(error) if self.refused(&error) => {}
            Err(error) => return Err(format!("changing a document: {error}")),
        }
        self.compare_documents()
    }

    /// Changes a document while syncs fail, and cuts the power: it is as before or as after.
    pub(crate) fn crash_with_document(&mut self) -> Result<(), String> {
        let (name, bytes) = self.random_document();
        let is_done = match &bytes {
            Some(bytes) => self.store()?.put_document(KIND, &name, bytes).is_ok(),
            None => self.store()?.remove_document(KIND, &name).is_ok(),
        };
        self.restart()?;
        let found = self.store()?.documents(KIND).into_iter().find(|(found, _)| *found == name);
        let found = found.map(|(_, bytes)| bytes.to_vec());
        if is_done || found == bytes {
            self.apply_document(name, bytes);
        }
        self.compare_documents()
    }

    /// Compares all documents with what they must be.
    pub(crate) fn compare_documents(&self) -> Result<(), String> {
        self.compare_documents_of(self.store()?)
    }

    /// As [`World::compare_documents`], of a store that was restored.
    pub(crate) fn compare_documents_of(&self, store: &Store) -> Result<(), String> {
        let found = store.documents(KIND).into_iter().map(|(name, bytes)| (name, bytes.to_vec()));
        let found = found.collect();
        if self.documents == found {
            return Ok(());
        }
        Err(format!("documents are {found:?} and should be {:?}", self.documents))
    }

    fn random_document(&self) -> (String, Option<Vec<u8>>) {
        let bytes = (self.below(4) > 0).then(|| vec![self.below(256) as u8; self.below(300) as usize]);
        (format!("d{}", self.below(4)), bytes)
    }

    fn apply_document(&mut self, name: String, bytes: Option<Vec<u8>>) {
        match bytes {
            Some(bytes) => drop(self.documents.insert(name, bytes)),
            None => drop(self.documents.remove(&name)),
        }
    }
}
