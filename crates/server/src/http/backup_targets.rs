//! Where backups that are asked for by HTTP may go: the server writes them with its own rights and credentials, so its operator says where.

use std::io;
use std::path::{Component, Path, PathBuf};

use axum::http::StatusCode;

use crate::error::ApiError;

/// A folder or an address of an object store that backups may go to, and what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupTarget {
    /// What requests may say in its location.
    pub name: Option<String>,
    /// The folder, or the address with its scheme.
    pub location: String,
}

impl BackupTarget {
    /// Reads `location` or `name=location`.
    pub fn parse(text: &str) -> Self {
        let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ':', '.']);
        match text.split_once('=') {
            Some((name, location)) if is_name(name) => {
                Self { name: Some(name.trim().to_owned()), location: location.trim().to_owned() }
            }
            _ => Self { name: None, location: text.to_owned() },
        }
    }
}

/// The location that a request's `to` means, without links, if it is one of the targets or below one. Looks at folders.
pub(crate) fn resolve(targets: &[BackupTarget], to: &str) -> Result<String, ApiError> {
    if let Some(named) = targets.iter().find(|target| target.name.as_deref() == Some(to)) {
        return Ok(named.location.clone());
    }
    let inside = match address(to) {
        Some(address) => {
            targets.iter().any(|target| is_address_within(&target.location, address)).then(|| to.to_owned())
        }
        None => folder_within(targets, to.strip_prefix("file://").unwrap_or(to)),
    };
    inside.ok_or_else(|| refused(targets))
}

/// An address that is not of a folder.
fn address(location: &str) -> Option<&str> {
    (location.contains("://") && !location.starts_with("file://")).then_some(location)
}

fn is_address_within(root: &str, to: &str) -> bool {
    let root = root.trim_end_matches('/');
    let Some(rest) = to.trim_end_matches('/').strip_prefix(root).filter(|_| address(root).is_some()) else {
        return false;
    };
    let is_plain =
        |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['%', '\\', '?', '#']);
    rest.is_empty() || rest.strip_prefix('/').is_some_and(|below| below.split('/').all(is_plain))
}

/// The folder as it is without links, if one of the targets holds it.
fn folder_within(targets: &[BackupTarget], to: &str) -> Option<String> {
    let wanted = Path::new(to);
    if !wanted.is_absolute() {
        return None;
    }
    let wanted = without_links(wanted).ok()?;
    let folders = targets.iter().filter(|target| address(&target.location).is_none());
    let mut roots = folders.filter_map(|target| {
        let location = target.location.strip_prefix("file://").unwrap_or(&target.location);
        without_links(&std::path::absolute(location).ok()?).ok()
    });
    roots.any(|root| wanted.starts_with(root)).then(|| wanted.to_str().map(str::to_owned)).flatten()
}

/// A whole path with its links followed; what does not exist yet stays as it is. Ways up and links that lead nowhere are errors.
fn without_links(path: &Path) -> io::Result<PathBuf> {
    if path.components().any(|component| component == Component::ParentDir) {
        return Err(io::Error::other("the path leads up"));
    }
    let (mut existing, mut missing) = (path, Vec::new());
    while let Err(error) = existing.symlink_metadata() {
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
                missing.push(name);
                existing = parent;
            }
            _ => return Err(error),
        }
    }
    let mut resolved = existing.canonicalize()?;
    resolved.extend(missing.into_iter().rev());
    Ok(resolved)
}

fn refused(targets: &[BackupTarget]) -> ApiError {
    let known: Vec<&str> = targets.iter().filter_map(|target| target.name.as_deref()).collect();
    let what = match (targets.is_empty(), known.is_empty()) {
        (true, _) => "which names none".to_owned(),
        (false, true) => "and this is none of them".to_owned(),
        (false, false) => format!("and this is none of them; names are {}", known.join(", ")),
    };
    ApiError::new(
        StatusCode::FORBIDDEN,
        "forbidden",
        format!(
            "a server writes backups only to the folders and addresses of its setting backup_targets (--backup-targets), {what}; \
             a folder is given by its whole path"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(texts: &[&str]) -> Vec<BackupTarget> {
        texts.iter().map(|text| BackupTarget::parse(text)).collect()
    }

    #[test]
    fn addresses_are_those_of_the_setting_and_below() {
        let targets = targets(&["s3://bucket/backups", "nightly=gs://other/n", "az://box/"]);
        let resolved = |to: &str| resolve(&targets, to).ok();
        for allowed in ["s3://bucket/backups", "s3://bucket/backups/", "s3://bucket/backups/a/b", "az://box/a"] {
            assert_eq!(resolved(allowed).as_deref(), Some(allowed));
        }
        assert_eq!(resolved("nightly").as_deref(), Some("gs://other/n"));
        for refused in [
            "s3://bucket",
            "s3://bucket/backups2",
            "s3://bucket/backups/../other",
            "s3://bucket/backups/%2e%2e/other",
            "s3://bucket/backups//a",
            "s3://elsewhere/backups",
            "az://boxes",
            "hourly",
            "",
            "/etc",
            "backups",
        ] {
            assert_eq!(resolved(refused), None, "{refused}");
        }
    }

    #[test]
    fn folders_are_looked_at_without_links() {
        let base = std::env::temp_dir().join(format!("thalweg-targets-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        std::fs::create_dir_all(base.join("allowed/in")).unwrap();
        std::fs::create_dir_all(base.join("outside")).unwrap();
        for (name, to) in [("out", "outside"), ("nowhere", "missing"), ("back", "allowed/in")] {
            std::os::unix::fs::symlink(base.join(to), base.join("allowed").join(name)).unwrap();
        }
        let base = base.canonicalize().unwrap();
        let path = |below: &str| base.join(below).to_str().unwrap().to_owned();
        let targets = targets(&[&format!("disk={}", path("allowed"))]);
        let resolved = |to: &str| resolve(&targets, to).ok();
        assert_eq!(resolved("disk"), Some(path("allowed")));
        for (allowed, found) in
            [("allowed", "allowed"), ("allowed/new/deep", "allowed/new/deep"), ("allowed/back/x", "allowed/in/x")]
        {
            assert_eq!(resolved(&path(allowed)), Some(path(found)), "{allowed}");
        }
        assert_eq!(resolved(&format!("file://{}", path("allowed/a"))), Some(path("allowed/a")));
        for refused in [
            "outside",
            "allowed2",
            "allowed/../outside",
            "allowed/out",
            "allowed/out/new",
            "allowed/nowhere",
            "allowed/nowhere/a",
            "allowed/in/../../outside",
        ] {
            assert_eq!(resolved(&path(refused)), None, "{refused}");
        }
        assert_eq!(resolve(&[], &path("allowed")).unwrap_err().status, StatusCode::FORBIDDEN);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
