//! Secrets: never shown, and read again from their files when they are used.

use std::fmt;
use std::path::PathBuf;

use platform::{Files, read_file};

use super::reader::Fields;

/// Bytes of a file with a secret.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a value comes from that may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// It stands in the configuration.
    Inline(String),
    /// A file holds it.
    File(PathBuf),
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => formatter.write_str("<secret>"),
            Self::File(path) => write!(formatter, "{}", path.display()),
        }
    }
}

impl Source {
    /// The value now, without the blanks around it.
    pub fn read(&self, files: &dyn Files) -> Result<String, String> {
        let path = match self {
            Self::Inline(text) => return Ok(text.clone()),
            Self::File(path) => path,
        };
        let content = read_file(files, path, FILE_BYTES_MAX).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8(content).map_err(|_| format!("{}: not UTF-8", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// Two fields of which one may be there: a secret, and a file that holds it.
    pub(crate) fn secret(fields: &Fields<'_>, name: &'static str, file: &'static str) -> Option<Self> {
        if let Some(node) = fields.node(name) {
            node.is_secret.set(true);
        }
        Self::of_two(fields, name, file)
    }

    /// As [`Source::secret`], for what may be shown.
    pub(crate) fn of_two(fields: &Fields<'_>, name: &'static str, file: &'static str) -> Option<Self> {
        let inline = fields.text(name).filter(|text| !text.is_empty());
        let path = fields.text(file).filter(|text| !text.is_empty());
        if inline.is_some() && path.is_some() {
            fields.reading.error(fields.position_of(file), format!("at most one of {name} and {file} may be there"));
        }
        inline.map(Self::Inline).or_else(|| path.map(|path| Self::File(fields.reading.path(&path))))
    }
}
