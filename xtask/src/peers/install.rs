//! Gets the peers' programs into a cache folder. Packages are downloaded and unpacked there, not installed: nothing else on
//! the machine changes, and no service is started.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sim::finish;

/// The version of QuestDB that figures are quoted of.
const QUESTDB_VERSION: &str = "9.3.4";

/// The file of a program in a Debian package, downloaded if the cache does not have it.
pub(super) fn debian(cache: &Path, package: &str, program: &str) -> Result<PathBuf, String> {
    let folder = cache.join(package);
    let file = folder.join("usr/bin").join(program);
    if file.is_file() {
        return Ok(file);
    }
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    finish(Command::new("apt-get").args(["download", package]).current_dir(&folder))?;
    let archive = archives(&folder, "deb").into_iter().next();
    let archive = archive.ok_or_else(|| format!("apt-get left no package of {package} in {}", folder.display()))?;
    finish(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&folder))?;
    if file.is_file() { Ok(file) } else { Err(format!("the package {package} has no /usr/bin/{program}")) }
}

/// QuestDB's jar, downloaded by Maven if the cache does not have it.
pub(super) fn questdb(cache: &Path) -> Result<PathBuf, String> {
    let name = format!("questdb-{QUESTDB_VERSION}.jar");
    let file = cache.join(&name);
    if !file.is_file() {
        fs::create_dir_all(cache).map_err(|error| format!("{}: {error}", cache.display()))?;
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "dependency:copy", "-Dmdep.useBaseVersion=true"]);
        maven.arg(format!("-Dartifact=org.questdb:questdb:{QUESTDB_VERSION}"));
        maven.arg(format!("-DoutputDirectory={}", cache.display()));
        finish(maven.current_dir(cache)).map_err(|error| {
            format!("{error}\nwithout Maven, put {name} (org.questdb:questdb) into {}", cache.display())
        })?;
    }
    let java = Command::new("java").arg("-version").output();
    java.map_err(|error| format!("java: {error}; QuestDB needs it: apt-get install openjdk-17-jre-headless"))?;
    Ok(file)
}

/// The peers' versions as their archives' names tell them.
pub(super) fn versions(cache: &Path) -> Vec<String> {
    let mut found: Vec<String> = archives(cache, "jar").iter().filter_map(|path| stem(path)).collect();
    for folder in fs::read_dir(cache).into_iter().flatten().flatten() {
        found.extend(archives(&folder.path(), "deb").iter().filter_map(|path| stem(path)));
    }
    found.sort();
    found
}

fn stem(path: &Path) -> Option<String> {
    let name = path.file_stem()?.to_str()?;
    let mut parts = name.split('_');
    let (package, version) = (parts.next()?, parts.next());
    Some(version.map_or_else(|| package.to_owned(), |version| format!("{package} {version}")))
}

fn archives(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension() == Some(OsStr::new(extension))).collect()
}
