//! A server of `PostgreSQL` on a folder of its own.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::generate::Statement;

/// Stands before each answer.
const MARK: &str = "=> ";

/// A running server; it ends and its folder goes when it is dropped.
pub(crate) struct Server {
    child: Child,
    programs: PathBuf,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder of the newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("initdb").exists()).max()
}

/// The numbers of the user `postgres`, as whom root has to start it.
fn user() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let users = fs::read_to_string("/etc/passwd").ok().filter(|_| is_root)?;
    let fields: Vec<&str> = users.lines().find(|line| line.starts_with("postgres:"))?.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

impl Server {
    /// Starts one; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let (programs, user) = (programs()?, user());
        let folder = std::env::temp_dir().join(format!("thalweg-postgres-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).unwrap();
        }
        let program = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command.current_dir(&folder).env("LC_ALL", "C").stdout(Stdio::null()).stderr(Stdio::null());
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        let data = folder.join("data");
        let made = program("initdb").args(["-A", "trust", "-U", "postgres", "-N", "-D"]).arg(&data).status().unwrap();
        assert!(made.success(), "initdb");
        let socket = format!("unix_socket_directories={}", folder.display());
        let mut postgres = program("postgres");
        postgres.arg("-D").arg(&data).args(["-c", &socket, "-c", "listen_addresses=", "-c", "fsync=off"]);
        let child = postgres.spawn().unwrap();
        let server = Self { child, programs, folder };
        let begun = Instant::now();
        while !server.psql(Path::new("/dev/null")).is_some_and(|_| server.folder.join(".s.PGSQL.5432").exists()) {
            assert!(begun.elapsed() < Duration::from_mins(1), "PostgreSQL does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(server)
    }

    /// What psql prints for a file of statements; `None` if it cannot connect.
    fn psql(&self, file: &Path) -> Option<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-d", "postgres", "-h"]).arg(&self.folder);
        let output = psql.arg("-f").arg(file).stderr(Stdio::null()).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The answers to statements in order; `None` for an error.
    pub(crate) fn answers(&self, statements: &[Statement]) -> Vec<Option<String>> {
        let mut script = String::new();
        for statement in statements {
            writeln!(script, "\\echo '{MARK}'\nSET timezone = '{}';\n{};", statement.zone, statement.text()).unwrap();
        }
        let file = self.folder.join("statements.sql");
        fs::write(&file, script).unwrap();
        let printed = self.psql(&file).unwrap();
        let answers = printed.split(MARK).skip(1).map(|answer| answer.strip_prefix('\n').unwrap_or(answer));
        answers.map(|answer| answer.strip_suffix('\n').map(str::to_owned)).collect()
    }
}
