//! The modules of a crate: which file imports which, the circles among them, and the tour in `lib.rs`.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::Finding;
use super::exceptions::Exceptions;

/// Files that import each other, directly or through others.
const CIRCLE_FILES_MAX: usize = 3;

/// Names at the root of a crate's `src`.
const ROOT_NAMES_MAX: usize = 15;

/// A crate's files by their module paths, each with the paths that it names.
#[derive(Debug, Default)]
pub(super) struct Modules {
    named: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
}

/// The folder of the crate and the module path of a source file below `crates/*/src`; the root's is empty.
pub(super) fn module_of(path: &str) -> Option<(String, Vec<String>)> {
    let (folder, file) = path.split_once("/src/")?;
    if !folder.starts_with("crates/") {
        return None;
    }
    let mut module: Vec<String> = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod")
        || matches!(module.as_slice(), [one] if one == "lib" || one == "main")
    {
        module.pop();
    }
    Some((folder.to_owned(), module))
}

impl Modules {
    /// Adds a file.
    pub(super) fn add(&mut self, module: Vec<String>, file: &syn::File) {
        let mut paths = Paths { module: &module, found: BTreeSet::new() };
        paths.visit_file(file);
        let found = paths.found;
        self.named.entry(module).or_default().extend(found);
    }

    /// The largest set of files that import each other. The root is left out: it names all others.
    pub(super) fn largest_circle(&self) -> Vec<String> {
        let files: Vec<&Vec<String>> = self.named.keys().filter(|module| !module.is_empty()).collect();
        let index: BTreeMap<&Vec<String>, usize> = files.iter().enumerate().map(|(at, file)| (*file, at)).collect();
        let edges: Vec<BTreeSet<usize>> = files
            .iter()
            .map(|file| {
                self.named[*file]
                    .iter()
                    .filter_map(|path| self.file_of(path))
                    .filter_map(|to| index.get(to).copied())
                    .collect()
            })
            .collect();
        let reached: Vec<BTreeSet<usize>> = (0..files.len()).map(|from| reachable(&edges, from)).collect();
        let circle = |from: usize| -> Vec<usize> {
            let others = reached[from].iter().copied().filter(|to| *to != from && reached[*to].contains(&from));
            std::iter::once(from).chain(others).collect()
        };
        let largest = (0..files.len()).map(circle).max_by_key(Vec::len).unwrap_or_default();
        let mut names: Vec<String> = largest.into_iter().map(|at| files[at].join("::")).collect();
        names.sort();
        names
    }

    /// The file in which a path ends: the longest beginning of it that is a module.
    fn file_of(&self, path: &[String]) -> Option<&Vec<String>> {
        let ends = (1..=path.len()).rev();
        ends.filter_map(|end| self.named.get_key_value(&path[..end])).map(|(file, _)| file).next()
    }

    /// What is wrong with the modules of a crate, whose `lib.rs` is given.
    pub(super) fn check(&self, folder: &str, root: &str, exceptions: &mut Exceptions) -> Vec<Finding> {
        let mut findings = Vec::new();
        let circle = self.largest_circle();
        if circle.len() > CIRCLE_FILES_MAX && !exceptions.excuse(&format!("circle {folder}"), circle.len()) {
            let what = format!("{} files import each other: {}", circle.len(), circle.join(", "));
            findings.push(Finding::new(folder, what, "Move what both need to a file below them."));
        }
        let names: BTreeSet<&String> = self.named.keys().filter_map(|module| module.first()).collect();
        if names.len() > ROOT_NAMES_MAX && !exceptions.excuse(&format!("root {folder}"), names.len()) {
            let what = format!("{} names at the root of src; at most {ROOT_NAMES_MAX}", names.len());
            findings.push(Finding::new(folder, what, "Put files that belong together into a folder."));
        }
        let tour: Vec<&str> = root.lines().take_while(|line| line.starts_with("//!")).collect();
        let is_word = |symbol: char| symbol.is_alphanumeric() || symbol == '_';
        let words: BTreeSet<&str> = tour.iter().flat_map(|line| line.split(|symbol| !is_word(symbol))).collect();
        let is_named = |name: &str| words.contains(name);
        for name in names.iter().filter(|name| !matches!(name.as_str(), "bin" | "tests") && !is_named(name)) {
            let what = format!("`{name}` is not in the crate's tour");
            findings.push(Finding::new(
                format!("{folder}/src/lib.rs"),
                what,
                "Say in a line what a reader finds there.",
            ));
        }
        findings
    }
}

fn reachable(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(at) = waiting.pop() {
        waiting.extend(edges[at].iter().copied().filter(|to| seen.insert(*to)));
    }
    seen
}

/// The paths of the crate that a file names, from its root. Tests do not count.
struct Paths<'m> {
    module: &'m [String],
    found: BTreeSet<Vec<String>>,
}

impl Paths<'_> {
    /// A path as it is written, from the crate's root; `None` if it leads elsewhere.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        match path.first().map(String::as_str) {
            Some("crate") => Some(path[1..].to_vec()),
            Some("self") => Some([self.module, &path[1..]].concat()),
            Some("super") => {
                let parent = self.module.get(..self.module.len().checked_sub(ups)?)?;
                Some([parent, &path[ups..]].concat())
            }
            _ => None,
        }
    }

    fn add(&mut self, path: &[String]) {
        self.found.extend(self.absolute(path));
    }

    fn add_tree(&mut self, tree: &syn::UseTree, prefix: &[String]) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.add(prefix),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, prefix)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&names);
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &[]);
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

    fn modules(files: &[(&str, &str)]) -> Modules {
        let mut modules = Modules::default();
        for (path, text) in files {
            let (_, module) = module_of(&format!("crates/a/src/{path}")).expect("a module");
            modules.add(module, &syn::parse_file(text).expect("Rust"));
        }
        modules
    }

    #[test]
    fn circles_are_found_through_several_files() {
        let files = [
            ("lib.rs", "use crate::one::One;"),
            ("one.rs", "use crate::two::Two;"),
            ("two.rs", "fn two() { super::three::three(); }"),
            ("three.rs", "use crate::one::{self, One};"),
            ("four.rs", "use crate::one::One; #[cfg(test)] mod tests { use crate::five::Five; }"),
            ("five.rs", "use crate::four::Four;"),
        ];
        assert_eq!(modules(&files).largest_circle(), ["one", "three", "two"]);
    }

    #[test]
    fn roots_are_toured_and_small() {
        let check = |files: &[(&str, &str)], root: &str| {
            let found = modules(files).check("crates/a", root, &mut Exceptions::default());
            found.into_iter().map(|finding| finding.what).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(check(&[("one.rs", "")], "//! * [`one`]: something\nmod one;"), "");
        assert_eq!(check(&[("one.rs", "")], "//! Nothing.\n//! `one`\nmod one;"), "");
        assert!(check(&[("one/mod.rs", ""), ("one/two.rs", "")], "mod one;").contains("`one` is not in"));
        let many: Vec<String> = (0..16).map(|number| format!("m{number}.rs")).collect();
        let files: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
        assert!(check(&files, "").contains("16 names"));
    }
}
