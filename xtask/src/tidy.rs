//! `cargo xtask tidy`: each rule is a file below, a pure function from text to findings; this one reads the tree.

mod calls;
mod exceptions;
mod layers;
mod modules;
mod names;
mod parameters;
mod paths;
mod reasons;
mod sizes;
mod sources;
mod table;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use exceptions::Exceptions;

/// The checked-in list of what was over a limit when the limit came.
const EXCEPTIONS: &str = "xtask/exceptions.txt";

/// Ends the names of files that a program wrote.
const GENERATED: &str = "_capnp.rs";

/// One breach of a rule: where, what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// A path from the root, with a line number where there is one.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}\n  {}", self.place, self.what, self.remedy)
    }
}

/// What a look at the whole tree gives.
#[derive(Debug)]
pub struct Report {
    /// Empty if all is well.
    pub findings: Vec<Finding>,
    /// The longest function and file, and how many files there are.
    pub summary: String,
    /// A line for each crate: how large it is, and how its code is cut.
    pub table: String,
}

/// Holds the tree below `root` against every rule. An error means that it could not be read.
pub fn check(root: &Path) -> Result<Report, String> {
    let paths = sources::list(root)?;
    let mut exceptions = Exceptions::parse(EXCEPTIONS, &read(root, EXCEPTIONS)?)?;
    let mut findings = layers::check(&layers::packages(&cargo_metadata(root)?)?);
    findings.extend(names::check(&paths));
    let mut tree = Tree::default();
    for path in &paths {
        if has_extension(path, "rs") && !path.ends_with(GENERATED) {
            tree.check_rust(path, &read(root, path)?, &mut exceptions, &mut findings)?;
        } else if path.ends_with("Cargo.toml") {
            findings.extend(reasons::check(path, &read(root, path)?));
        } else if paths::is_checked(path) {
            findings.extend(paths::check(path, &read(root, path)?, &|named| root.join(named).exists()));
        }
    }
    for (folder, found) in &tree.crates {
        let root_file =
            ["lib.rs", "main.rs"].iter().map(|name| format!("{folder}/src/{name}")).find(|path| paths.contains(path));
        let text = root_file.map_or(Ok(String::new()), |path| read(root, &path))?;
        findings.extend(found.modules.check(folder, &text, &mut exceptions));
    }
    for (folder, breaches) in &tree.breaches {
        if !breaches.is_empty() && !exceptions.excuse(&format!("words {folder}"), breaches.len()) {
            findings.push(words::finding(folder, breaches, exceptions.allowed(&format!("words {folder}"))));
        }
    }
    findings.extend(exceptions.unused());
    findings.sort();
    Ok(Report { findings, summary: tree.tally.summary(), table: table::render(&tree.crates) })
}

/// What is gathered over all files of Rust.
#[derive(Default)]
struct Tree {
    tally: sizes::Tally,
    crates: table::Crates,
    /// Words and names that breach their rule, by crate.
    breaches: BTreeMap<String, Vec<(String, words::Breach)>>,
}

impl Tree {
    fn check_rust(
        &mut self,
        path: &str,
        text: &str,
        exceptions: &mut Exceptions,
        findings: &mut Vec<Finding>,
    ) -> Result<(), String> {
        let file = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
        let functions = sizes::Functions::of_file(&file);
        findings.extend(sizes::check(path, text, &functions, exceptions, &mut self.tally));
        if calls::is_checked(path) {
            findings.extend(calls::check(path, &file, exceptions));
        }
        let Some((folder, module)) = modules::module_of(path) else { return Ok(()) };
        let found = self.crates.entry(folder.clone()).or_default();
        found.add(path, text, &file, functions.lines());
        if table::code_and_test_lines(path, text).0 > 0 {
            found.modules.add(module, &file);
            findings.extend(parameters::check(path, &file, exceptions));
            let breaches = words::breaches(path, text, &file).into_iter().map(|breach| (path.to_owned(), breach));
            self.breaches.entry(folder).or_default().extend(breaches);
        }
        Ok(())
    }
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

fn cargo_metadata(root: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let flags = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(flags).current_dir(root).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}
