//! Files of this machine that only their owner may read: a secret, and a log that is replaced before it grows too large. They are no data, so
//! there is no simulated version.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a log before the next one is begun.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// Logs that are kept beside the one that is written.
const OLD_LOGS: u32 = 4;

/// Writes a file anew that only its owner can read, and syncs it.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open(path, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Reads a file of certificates or keys; one with more bytes than that is refused.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Gives a socket's file its name once only its owner may use it. What an ended server left under that name goes; anything else stays.
#[cfg(unix)]
pub fn publish_socket(new: &Path, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    fs::set_permissions(new, fs::Permissions::from_mode(0o600))?;
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::other("another file has this name")),
        _ => fs::rename(new, path),
    }
}

/// Removes a socket's file, if there is one.
#[cfg(unix)]
pub fn remove_socket(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        // One that stays is replaced at the next start.
        let _ = fs::remove_file(path);
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.open(path)
}

/// A log of lines. `NAME` becomes `NAME.1` before it grows too large, that `NAME.2`, and so on; the oldest goes.
#[derive(Debug)]
pub struct PrivateLog {
    path: PathBuf,
    bytes_max: u64,
    file: Option<(File, u64)>,
}

impl PrivateLog {
    /// The log of a path, which is opened with the first line.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, bytes_max: LOG_BYTES_MAX, file: None }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line. After an error the file is opened anew with the next one.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        let appended = self.try_append(line);
        if appended.is_err() {
            self.file = None;
        }
        appended
    }

    fn try_append(&mut self, line: &str) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|(_, bytes)| *bytes >= self.bytes_max) {
            self.file = None;
            self.rotate()?;
        }
        if self.file.is_none() {
            let file = open(&self.path, OpenOptions::new().append(true).create(true))?;
            let bytes = file.metadata()?.len();
            self.file = Some((file, bytes));
        }
        if let Some((file, bytes)) = &mut self.file {
            file.write_all(line.as_bytes())?;
            *bytes += line.len() as u64;
        }
        Ok(())
    }

    fn rotate(&self) -> io::Result<()> {
        let old = |number: u32| PathBuf::from(format!("{}.{number}", self.path.display()));
        for number in (1..OLD_LOGS).rev() {
            if old(number).exists() {
                fs::rename(old(number), old(number + 1))?;
            }
        }
        fs::rename(&self.path, old(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_replaced_before_they_grow_too_large() {
        let folder = std::env::temp_dir().join(format!("thalweg-private-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut log = PrivateLog { bytes_max: 2, ..PrivateLog::new(folder.join("a.log")) };
        for round in 0..7 {
            log.append(&format!("{round}\n")).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert_eq!((read("a.log").as_str(), read("a.log.1").as_str(), read("a.log.4").as_str()), ("6\n", "5\n", "2\n"));
        assert!(!folder.join("a.log.5").exists());
        for text in ["one", "two"] {
            write_secret(&folder.join("secret"), text).unwrap();
            assert_eq!(read("secret"), text);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
