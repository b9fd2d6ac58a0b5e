//! What can go wrong, by what the caller does next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use index::IndexError;
use platform::objects::ObjectError;

use crate::Loss;
use crate::flush::segment::segment_path;

/// What a decoder says of a form that only later versions can have written.
pub(crate) const NEWER: &str = "written by a newer version of Thalweg";
/// Losses that one message lists.
const LOSSES_SHOWN: usize = 20;

/// Why the store could not carry out a request.
#[derive(Debug)]
pub enum StoreError {
    /// Another process has the folder: stop it, or use another folder.
    Locked {
        /// The data folder.
        directory: PathBuf,
        /// The process that holds it, if it says so.
        pid: Option<u32>,
    },
    /// A file is not what was written: restore it, or set it aside.
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What should be there, and what is.
        message: String,
    },
    /// A file has a form that this version does not know: use the version that wrote it, or a later one.
    Newer {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
    },
    /// The operating system refused.
    Io {
        /// The operation that failed, and its object.
        action: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Writes are refused until the folder is opened again, because a sync failed: what is on disk is not known any more.
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The folder is open for reading only: write through the process that has it open for writing.
    ReadOnly,
    /// The object store refused, or could not be reached; [`ObjectError::kind`] says what to do.
    Objects(ObjectError),
    /// Rows that the folder should hold are lost: restore the files, or accept the loss ([`crate::StoreOptions::accept_loss`]).
    Lossy {
        /// The data folder.
        directory: PathBuf,
        /// The losses.
        losses: Vec<Loss>,
    },
    /// The request can not be taken as it is: change it.
    Invalid(String),
}

impl StoreError {
    pub(crate) fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let action = format!("{action} {}", path.display());
        move |error| Self::Io { action, error }
    }

    /// A chunk in memory that cannot be read: a fault of the program or of the memory.
    pub(crate) fn in_head(error: &codec::DecodeError) -> Self {
        Self::corrupt(Path::new("head"), error.offset as u64, error.what)
    }

    pub(crate) fn index(directory: &Path) -> impl Fn(IndexError) -> Self {
        let directory = directory.to_owned();
        move |error| match error {
            IndexError::Damaged { segment, offset, what } => {
                Self::corrupt(&segment_path(&directory, segment), offset, what)
            }
            IndexError::Io(error) => {
                Self::Io { action: format!("write an index segment in {}", directory.display()), error }
            }
            IndexError::Full(what) => Self::Invalid(what.to_owned()),
            IndexError::Refused => Self::Invalid(error.to_string()),
        }
    }

    /// What a file's bytes could not be read as: damage, or a form of a later version ([`NEWER`]).
    pub(crate) fn unreadable(file: &Path, error: &codec::DecodeError) -> Self {
        match error.what {
            NEWER => Self::Newer { file: file.to_owned(), offset: error.offset as u64 },
            what => Self::corrupt(file, error.offset as u64, what),
        }
    }

    pub(crate) fn corrupt(file: &Path, offset: u64, message: impl Into<String>) -> Self {
        Self::Corrupt { file: file.to_owned(), offset, message: message.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { directory, pid } => {
                write!(formatter, "data folder {} is in use: lock held by ", directory.display())?;
                match pid {
                    Some(pid) => write!(formatter, "pid {pid}; stop that process or choose another folder with --data"),
                    None => formatter.write_str("another process; stop it or choose another folder with --data"),
                }
            }
            Self::Corrupt { file, offset, message } => {
                write!(formatter, "damaged file {} at offset {offset}: {message}", file.display())
            }
            Self::Newer { file, offset } => write!(
                formatter,
                "{} was written by a newer version of Thalweg (unknown form at offset {offset}): nothing is damaged; use that \
                 version or a later one",
                file.display()
            ),
            Self::Io { action, error } => write!(formatter, "cannot {action}: {error}"),
            Self::Poisoned { reason } => write!(
                formatter,
                "writes are refused until the data folder is opened again, because an earlier write failed: {reason}"
            ),
            Self::ReadOnly => {
                formatter.write_str("the data folder is open for reading only: nothing can be written here")
            }
            Self::Objects(error) => error.fmt(formatter),
            Self::Lossy { directory, losses } => {
                writeln!(
                    formatter,
                    "data folder {} is not opened, because acknowledged rows are missing:",
                    directory.display()
                )?;
                losses.iter().take(LOSSES_SHOWN).try_for_each(|loss| writeln!(formatter, "  {loss}"))?;
                if losses.len() > LOSSES_SHOWN {
                    writeln!(formatter, "  and {} more", losses.len() - LOSSES_SHOWN)?;
                }
                formatter.write_str(
                    "Put these files back as they were, or restore a backup into a new folder (thalweg restore). To go on without \
                     these rows, start with --accept-loss: answers about their time carry a warning until it is acknowledged",
                )
            }
            Self::Invalid(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for StoreError {}
