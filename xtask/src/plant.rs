//! `cargo xtask plant`: do the simulation and the tests of views find bugs? Each of a table of bugs is planted into a copy of the workspace, and
//! the simulation runs there until a seed fails, or the tests that have to find it run.

mod bugs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use bugs::{BUGS, Bug, Finder};

use crate::sim::{cargo, finish};

/// What became of a planted bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The simulation's first line about a failing seed, or the tests that failed.
    Found(String),
    /// All seeds and tests passed.
    Missed,
}

/// Which bugs to plant and how long to look for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Seeds for each bug.
    pub seeds: u64,
    /// Operations for each seed.
    pub operations: u64,
    /// Only bugs whose name contains this.
    pub only: String,
}

impl Options {
    /// Reads `--seeds N --operations N --only TEXT`.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { seeds: 1000, operations: 300, only: String::new() };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else {
                return Err(format!("{} needs a value", pair.join(" ")));
            };
            let number = || value.parse().map_err(|error| format!("{name} {value}: {error}"));
            match name.as_str() {
                "--seeds" => options.seeds = number()?,
                "--operations" => options.operations = number()?,
                "--only" => value.clone_into(&mut options.only),
                _ => return Err(format!("unknown option {name}; there are --seeds, --operations, --only")),
            }
        }
        Ok(options)
    }
}

impl Bug {
    /// The file's text with the bug in it.
    pub fn plant(&self, text: &str) -> Result<String, String> {
        match text.matches(self.find).count() {
            1 => Ok(text.replacen(self.find, self.replace, 1)),
            count => Err(format!(
                "{}: the text to replace stands {count} times in {}, expected once; correct the table in xtask/src/plant/bugs.rs",
                self.name, self.file
            )),
        }
    }
}

/// Plants every bug in turn and tells what became of it. Whether all were found.
pub fn run(root: &Path, options: &Options, tell: &mut dyn FnMut(&Bug, &Outcome)) -> Result<bool, String> {
    let copy = root.join("target/planted/workspace");
    copy_sources(root, &copy)?;
    let mut all_found = true;
    for bug in BUGS.iter().filter(|bug| bug.name.contains(&options.only)) {
        let path = copy.join(bug.file);
        let original = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", bug.file))?;
        write(&path, &bug.plant(&original)?)?;
        let outcome = match bug.finder {
            Finder::Simulation => build(&copy).and_then(|program| search(&program, options)),
            Finder::Tests { package, file } => test(&copy, package, file),
        };
        write(&path, &original)?;
        let outcome = outcome.map_err(|error| format!("{}: {error}", bug.name))?;
        all_found &= outcome != Outcome::Missed;
        tell(bug, &outcome);
    }
    Ok(all_found)
}

/// Copies every file that git knows. What has not changed keeps its time, so that it is not built again.
fn copy_sources(root: &Path, copy: &Path) -> Result<(), String> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut listed = listed_in(&mut list, root)?;
    // The page is not part of the simulation.
    listed.retain(|path| !path.starts_with("ui/"));
    for path in listed {
        let Ok(content) = fs::read(root.join(&path)) else {
            continue;
        };
        let target = copy.join(&path);
        if fs::read(&target).is_ok_and(|known| known == content) {
            continue;
        }
        let folder = target.parent().unwrap_or(copy);
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&target, content));
        written.map_err(|error| format!("{}: {error}", target.display()))?;
    }
    Ok(())
}

fn listed_in(command: &mut Command, root: &Path) -> Result<Vec<String>, String> {
    let output = command.current_dir(root).output().map_err(|error| format!("git ls-files: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Where the copy is built.
fn target(copy: &Path) -> PathBuf {
    copy.with_file_name("target")
}

/// A command of cargo about a package of the copy; without optimisation across crates, which would take longer than it saves.
fn command(copy: &Path, command: &str, package: &str) -> Command {
    let settings = [
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
        ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
        ("CARGO_INCREMENTAL", "1"),
    ];
    let mut run = cargo(copy);
    run.args([command, "--quiet", "--release", "--offline", "--package", package, "--target-dir"]);
    run.arg(target(copy)).envs(settings);
    run
}

/// Builds the simulation of the copy.
fn build(copy: &Path) -> Result<PathBuf, String> {
    finish(&mut command(copy, "build", "thalweg-sim"))?;
    Ok(target(copy).join("release/thalweg-sim"))
}

/// Builds and runs the tests of a file of a package of the copy.
fn test(copy: &Path, package: &str, file: &str) -> Result<Outcome, String> {
    let tests = || {
        let mut tests = command(copy, "test", package);
        // That they fail is enough: the shortest history is for people.
        tests.args(["--test", file]).env("PROPTEST_MAX_SHRINK_ITERS", "0");
        tests
    };
    // A test that cannot be built finds nothing.
    finish(tests().arg("--no-run"))?;
    let output = tests().output().map_err(|error| format!("the tests {file} of {package}: {error}"))?;
    if output.status.success() {
        return Ok(Outcome::Missed);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = failed_tests(&text).collect();
    if failed.is_empty() {
        return Err(format!("the tests {file} of {package} ended with {} and name none that failed", output.status));
    }
    Ok(Outcome::Found(failed.join(", ")))
}

/// The names of tests that failed, in the output of a run.
fn failed_tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"))
}

fn search(program: &Path, options: &Options) -> Result<Outcome, String> {
    let (seeds, operations) = (options.seeds.to_string(), options.operations.to_string());
    let arguments = ["--seeds", &seeds, "--operations", &operations, "--failures", "1"];
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0) => Ok(Outcome::Missed),
        Some(1) => Ok(Outcome::Found(text.lines().next().unwrap_or_default().to_owned())),
        _ => Err(format!("the simulation ended with {}", output.status)),
    }
}
