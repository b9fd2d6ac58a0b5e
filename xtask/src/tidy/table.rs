//! `cargo xtask tidy --table`: how large each crate is, and how its code is cut.

use std::collections::BTreeMap;
use std::fmt::Write;

use syn::visit::{self, Visit};

use super::modules::Modules;

/// Functions longer than this are counted.
const FUNCTION_LINES_AIM: usize = 50;

/// What is counted of a crate.
#[derive(Debug, Default)]
pub(super) struct Crate {
    code_lines: usize,
    test_lines: usize,
    /// Lines of code of each file.
    files: Vec<usize>,
    functions_over_aim: usize,
    public_items: usize,
    pub(super) modules: Modules,
}

/// The crates by their folders.
pub(super) type Crates = BTreeMap<String, Crate>;

/// Lines of code and of tests: neither blank nor a comment. Tests at the end of a file are tests.
pub(super) fn code_and_test_lines(path: &str, text: &str) -> (usize, usize) {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let count = |text: &str| text.lines().filter(is_code).count();
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_test = name == "tests.rs" || name.ends_with("_tests.rs") || name.ends_with("_test.rs");
    let folder = path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"));
    if is_test || folder {
        return (0, count(text));
    }
    let tests = ["\n#[cfg(test)]\nmod ", "\n#[cfg(test)]\npub(crate) mod "];
    let start = tests.iter().filter_map(|start| {
        let at = text.find(start)?;
        text[at + 1..].lines().nth(1)?.ends_with('{').then_some(at)
    });
    match start.min() {
        Some(at) => (count(&text[..at]), count(&text[at..])),
        None => (count(text), 0),
    }
}

impl Crate {
    /// Adds a file; the lengths of its functions are given.
    pub(super) fn add(&mut self, path: &str, text: &str, file: &syn::File, functions: impl Iterator<Item = usize>) {
        let (code, tests) = code_and_test_lines(path, text);
        self.code_lines += code;
        self.test_lines += tests;
        if code == 0 {
            return;
        }
        self.files.push(code);
        self.functions_over_aim += functions.filter(|lines| *lines > FUNCTION_LINES_AIM).count();
        let mut public = Public(0);
        public.visit_file(file);
        self.public_items += public.0;
    }

    fn row(&self, folder: &str) -> String {
        let mut files = self.files.clone();
        files.sort_unstable();
        let at = |percent: usize| {
            files.get((files.len() * percent / 100).min(files.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        format!(
            "{folder:<24} {:>7} {:>7} {:>6} {:>7} {:>5} {:>5} {:>8} {:>7} {:>7}",
            self.code_lines,
            self.test_lines,
            files.len(),
            at(50),
            at(90),
            files.last().copied().unwrap_or(0),
            self.functions_over_aim,
            self.public_items,
            self.modules.largest_circle().len().max(1),
        )
    }
}

/// The table, with a line for all of it.
pub(super) fn render(crates: &Crates) -> String {
    let mut out =
        String::from("crate                       code   tests  files  median   p90   max  fn > 50  public  circle\n");
    for (folder, found) in crates {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", found.row(folder));
    }
    let sum = |count: fn(&Crate) -> usize| crates.values().map(count).sum::<usize>();
    let _ = write!(
        out,
        "{:<24} {:>7} {:>7} {:>6}",
        "all",
        sum(|found| found.code_lines),
        sum(|found| found.test_lines),
        sum(|found| found.files.len())
    );
    out
}

/// Counts public items: what a reader of the crate's documentation sees.
struct Public(usize);

impl<'ast> Visit<'ast> for Public {
    fn visit_visibility(&mut self, visibility: &'ast syn::Visibility) {
        self.0 += usize::from(matches!(visibility, syn::Visibility::Public(_)));
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !super::calls::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_at_the_end_of_a_file_are_no_code() {
        let text = "//! Text.\n\nfn a() {}\n// Why.\nfn b() {}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(code_and_test_lines("crates/a/src/a.rs", text), (2, 4));
        assert_eq!(code_and_test_lines("crates/a/src/tests.rs", text), (0, 6));
        assert_eq!(code_and_test_lines("crates/a/tests/a.rs", text), (0, 6));
        assert_eq!(code_and_test_lines("crates/a/src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests;\n"), (3, 0));
    }
}
