//! Damage to a file.

/// A file that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file, or the object's key.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What should be there, and what is.
    pub message: String,
}
