//! Calls that only `platform` makes: clock, files, randomness. Everything else asks it, so that simulation can stand in.
//!
//! This looks at names, not at types: `use std::time::Instant` is fine, `Instant::now` is not.

use proc_macro2::TokenStream;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::exceptions::Exceptions;

/// The end of a path that must not be called, and what to use instead.
const BANNED_ENDS: [(&str, &str); 3] = [
    ("Instant::now", "Take the time from platform's clock."),
    ("SystemTime::now", "Take the time from platform's clock."),
    ("thread::sleep", "Wait for a signal, or on platform's clock."),
];

/// The beginning of a path that must not be named, and what to use instead.
const BANNED_STARTS: [(&str, &str); 6] = [
    ("std::fs", "Open files through platform."),
    ("tokio::fs", "Open files through platform."),
    ("rand", "Take randomness from platform."),
    ("fastrand", "Take randomness from platform."),
    ("getrandom", "Take randomness from platform."),
    ("std::hash::RandomState", "Use a hasher with a seed from platform."),
];

/// `platform` is where the calls belong. The program, its measuring tools and clients, which run in
/// other programs, live outside the simulation.
const EXEMPT: [&str; 5] = ["crates/platform/", "crates/cli/", "crates/client/", "crates/bench/", "xtask/"];

/// Whether a file's calls are looked at: tests, build scripts and fuzz targets may do as they like.
pub(super) fn is_checked(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    let file = parts.pop().unwrap_or("");
    let test = matches!(file, "build.rs" | "tests.rs") || file.ends_with("_tests.rs") || file.ends_with("_test.rs");
    let folder = parts.iter().any(|part| matches!(*part, "tests" | "benches" | "examples" | "fuzz"));
    !test && !folder && !EXEMPT.iter().any(|prefix| path.starts_with(prefix))
}

pub(super) fn check(path: &str, file: &syn::File, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut calls = Calls::default();
    calls.visit_file(file);
    let mut findings = Vec::new();
    for (line, name, remedy) in calls.0 {
        let count = 1;
        if !exceptions.excuse(&format!("call {path} {name}"), count) {
            let what = format!("`{name}` is only for platform");
            findings.push(Finding::new(format!("{path}:{line}"), what, remedy));
        }
    }
    findings.dedup();
    findings
}

/// Line, what was named, and what to use instead.
#[derive(Default)]
struct Calls(Vec<(usize, &'static str, &'static str)>);

impl Calls {
    fn look_at(&mut self, path: &str, line: usize) {
        let ends = BANNED_ENDS.iter().filter(|(end, _)| path == *end || path.ends_with(&format!("::{end}")));
        let starts =
            BANNED_STARTS.iter().filter(|(start, _)| path == *start || path.starts_with(&format!("{start}::")));
        self.0.extend(ends.chain(starts).map(|(name, remedy)| (line, *name, *remedy)));
    }

    fn look_at_import(&mut self, tree: &syn::UseTree, prefix: &str) {
        let join = |name: &syn::Ident| if prefix.is_empty() { name.to_string() } else { format!("{prefix}::{name}") };
        match tree {
            syn::UseTree::Path(path) => self.look_at_import(&path.tree, &join(&path.ident)),
            syn::UseTree::Name(name) => self.look_at(&join(&name.ident), name.ident.span().start().line),
            syn::UseTree::Rename(name) => self.look_at(&join(&name.ident), name.ident.span().start().line),
            syn::UseTree::Glob(glob) => self.look_at(&format!("{prefix}::*"), glob.span().start().line),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.look_at_import(tree, prefix)),
        }
    }

    /// A macro's arguments need not be Rust, so the paths in them are found in its text.
    fn look_into(&mut self, tokens: &TokenStream, line: usize) {
        let text: String = tokens.to_string().replace(" :: ", "::").replace(":: ", "::").replace(" ::", "::");
        for path in text.split(|symbol: char| !(symbol.is_alphanumeric() || symbol == '_' || symbol == ':')) {
            if path.contains("::") {
                self.look_at(path, line);
            }
        }
    }
}

pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        syn::Meta::NameValue(_) => false,
    })
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A lone name is a variable or a function of this file.
        if names.len() > 1 {
            self.look_at(&names.join("::"), path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.look_at_import(&item.tree, "");
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.look_into(&call.tokens, call.span().start().line);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if !is_test(&block.attrs) {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let file = syn::parse_file(text).expect("Rust");
        let findings = check("a.rs", &file, &mut Exceptions::default());
        findings.into_iter().map(|finding| format!("{} {}", finding.place, finding.what)).collect()
    }

    #[test]
    fn banned_names_are_found_wherever_they_stand() {
        let cases = [
            ("fn f() { let t = Instant::now(); }", 1),
            ("fn f() { let t = std::time::SystemTime::now(); }", 1),
            ("use std::fs;", 1),
            ("use std::{fs::File, io};", 1),
            ("use std::fs::*;", 1),
            ("use rand::Rng as _;", 1),
            ("fn f() { thread::sleep(d); }", 1),
            ("fn f() { info!(\"{:?}\", std::fs::read(path)); }", 1),
            ("use std::time::Instant;", 0),
            ("fn f(clock: &dyn Clock) { clock.now(); let rand = 1; g(rand); }", 0),
            ("#[cfg(test)] mod tests { use std::fs; }", 0),
            ("#[test] fn t() { std::fs::read(p); }", 0),
            ("/// Not `std::fs`.\nfn f() -> &'static str { \"std::fs::read\" }", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(found(text).len(), expected, "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn some_places_are_free() {
        for path in ["crates/platform/src/clock.rs", "crates/db/tests/kill.rs", "crates/db/src/open/tests.rs"] {
            assert!(!is_checked(path), "{path}");
        }
        for path in ["crates/db/src/open.rs", "crates/server/src/http.rs"] {
            assert!(is_checked(path), "{path}");
        }
    }
}
