//! From an address to an object store on this machine.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::folder::FolderObjects;
use super::{ObjectError, ObjectErrorKind, ObjectOptions, ObjectStores, Objects};

pub(crate) struct RealObjectStores;

/// What an address names.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Folder(PathBuf),
    Cloud(Cloud),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cloud {
    S3,
    Google,
    Azure,
}

impl ObjectStores for RealObjectStores {
    fn open(&self, url: &str, options: &ObjectOptions) -> Result<Arc<dyn Objects>, ObjectError> {
        let address =
            parse(url).map_err(|message| ObjectError::new(ObjectErrorKind::Config, format!("open {url}"), message))?;
        match address {
            Address::Folder(path) => Ok(Arc::new(FolderObjects::open(path)?)),
            Address::Cloud(cloud) => open_cloud(cloud, url, options),
        }
    }
}

#[cfg(feature = "cloud")]
fn open_cloud(cloud: Cloud, url: &str, options: &ObjectOptions) -> Result<Arc<dyn Objects>, ObjectError> {
    Ok(Arc::new(super::cloud::CloudObjects::open(cloud, url, options)?))
}

#[cfg(not(feature = "cloud"))]
fn open_cloud(cloud: Cloud, url: &str, _options: &ObjectOptions) -> Result<Arc<dyn Objects>, ObjectError> {
    let message = format!("this program was built without the feature `cloud`, so that {cloud:?} is not in it");
    Err(ObjectError::new(ObjectErrorKind::Config, format!("open {url}"), message))
}

/// Whether what one address names lies inside of what the other one does, or is the same: for folders, with links followed as far as they
/// exist; for buckets by their prefixes.
pub fn is_inside(url: &str, outer: &str) -> bool {
    match (parse(url), parse(outer)) {
        (Ok(Address::Folder(path)), Ok(Address::Folder(outer))) => resolved(&path).starts_with(resolved(&outer)),
        (Ok(Address::Cloud(_)), Ok(Address::Cloud(_))) => {
            let parts =
                |url: &str| url.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
            parts(url).starts_with(&parts(outer))
        }
        _ => false,
    }
}

/// A path without links and `..`, also where its end does not exist yet.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for existing in absolute.ancestors() {
        if let Ok(found) = existing.canonicalize() {
            let rest = absolute.strip_prefix(existing).unwrap_or(Path::new(""));
            return rest.components().fold(found, |found, part| match part {
                Component::ParentDir => found.parent().map_or_else(PathBuf::new, Path::to_owned),
                part => found.join(part),
            });
        }
    }
    absolute
}

fn parse(url: &str) -> Result<Address, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.is_empty() { Err("the address is empty".into()) } else { Ok(Address::Folder(url.into())) };
    };
    let cloud = match scheme {
        "file" if rest.starts_with('/') => return Ok(Address::Folder(rest.into())),
        "file" => return Err("a file address needs three slashes and a whole path: file:///path/to/folder".into()),
        "s3" | "s3a" => Cloud::S3,
        "gs" => Cloud::Google,
        "az" | "abfs" | "abfss" => Cloud::Azure,
        _ => return Err(format!("{scheme}:// is not known; use a path, file:///, s3://, gs:// or az://")),
    };
    let bucket = rest.split('/').next().unwrap_or("");
    if bucket.is_empty() {
        return Err(format!("the bucket is missing; expected {scheme}://bucket or {scheme}://bucket/prefix"));
    }
    if rest.contains(['?', '#']) {
        return Err("'?' and '#' have no place in the address of a bucket".into());
    }
    Ok(Address::Cloud(cloud))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_inside_others_are_found_through_links() {
        let root = std::env::temp_dir().join(format!("thalweg-inside-{}", std::process::id()));
        let data = root.join("data");
        std::fs::create_dir_all(data.join("parts")).unwrap();
        std::os::unix::fs::symlink(&data, root.join("link")).unwrap();
        let text = |path: &str| root.join(path).display().to_string();
        let data = data.display().to_string();
        for (path, expected) in [
            ("data", true),
            ("data/parts", true),
            ("data/not/there/yet", true),
            ("link/backups", true),
            ("elsewhere/../data/backups", true),
            ("data-2", false),
            ("elsewhere", false),
            (".", false),
        ] {
            assert_eq!(is_inside(&text(path), &data), expected, "{path}");
            assert_eq!(is_inside(&format!("file://{}", text(path)), &data), expected, "{path}");
        }
        assert!(is_inside("s3://bucket/prefix/backups", "s3://bucket/prefix/"));
        assert!(!is_inside("s3://bucket/prefix-2", "s3://bucket/prefix") && !is_inside("gs://b/p", "s3://b/p"));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn addresses() {
        let folder = |path: &str| Ok(Address::Folder(path.into()));
        let cases = [
            ("/var/lib/objects", folder("/var/lib/objects")),
            ("objects", folder("objects")),
            ("file:///var/lib/objects", folder("/var/lib/objects")),
            ("file://host/path", Err("three slashes")),
            ("s3://bucket", Ok(Address::Cloud(Cloud::S3))),
            ("s3://bucket/a/b", Ok(Address::Cloud(Cloud::S3))),
            ("gs://bucket/a", Ok(Address::Cloud(Cloud::Google))),
            ("az://container", Ok(Address::Cloud(Cloud::Azure))),
            ("s3:///a", Err("bucket is missing")),
            ("s3://bucket/a?b", Err("no place")),
            ("ftp://host/a", Err("ftp:// is not known")),
            ("", Err("empty")),
        ];
        for (url, expected) in cases {
            match (parse(url), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{url}"),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{url}: {found}"),
                (found, expected) => panic!("{url}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
