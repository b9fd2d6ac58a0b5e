//! Files that are missing, cut or changed, as a bad disk or an operator's mistake leaves them.

use std::io;
use std::path::Path;

use super::{Inode, Simulation};

impl Simulation {
    /// Replaces what a file holds, durably, as a bad disk or an operator's mistake does; `None` removes it. An error if there is no
    /// such file.
    pub fn spoil(&self, path: &Path, content: Option<Vec<u8>>) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let inode = state.inode_of(path)?;
        match content {
            Some(content) => {
                inode.durable.clone_from(&content);
                inode.content = content;
                inode.unsynced.clear();
            }
            None => drop(state.entries.remove(path)),
        }
        state.settle_names();
        Ok(())
    }

    /// Puts a file back that was spoilt, durably.
    pub fn put_back(&self, path: &Path, content: Vec<u8>) {
        let mut state = self.disk.state.lock();
        if !state.entries.contains_key(path) {
            state.inodes_made += 1;
            let number = state.inodes_made;
            state.inodes.insert(number, Inode::default());
            state.entries.insert(path.to_owned(), number);
        }
        state.settle_names();
        if let Ok(inode) = state.inode_of(path) {
            inode.durable.clone_from(&content);
            inode.content = content;
            inode.unsynced.clear();
        }
    }
}
