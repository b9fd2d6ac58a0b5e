//! How long functions and files may be.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::exceptions::Exceptions;
use super::table::code_and_test_lines;

/// A function fits a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of code of a file: what a reader comes for. Blank lines, comments and tests do not count.
const FILE_LINES_MAX: usize = 500;

struct Function {
    name: String,
    first_line: usize,
    lines: usize,
}

/// The functions of a file.
#[derive(Default)]
pub(super) struct Functions(Vec<Function>);

impl Functions {
    pub(super) fn of_file(file: &syn::File) -> Self {
        let mut functions = Self::default();
        functions.visit_file(file);
        functions
    }

    /// How long each is.
    pub(super) fn lines(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|function| function.lines)
    }

    fn add(&mut self, name: &syn::Ident, whole: Span) {
        let (first_line, last_line) = (name.span().start().line, whole.end().line);
        self.0.push(Function { name: name.to_string(), first_line, lines: last_line + 1 - first_line });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig.ident, function.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig.ident, function.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.add(&function.sig.ident, function.span());
        visit::visit_trait_item_fn(self, function);
    }
}

/// The largest of all files seen.
#[derive(Debug, Default)]
pub(super) struct Tally {
    files: usize,
    functions: usize,
    longest_file: (usize, String),
    longest_function: (usize, String),
}

impl Tally {
    fn add(&mut self, path: &str, lines: usize, functions: &[Function]) {
        self.files += 1;
        self.functions += functions.len();
        if lines > self.longest_file.0 {
            self.longest_file = (lines, path.to_owned());
        }
        for function in functions {
            if function.lines > self.longest_function.0 {
                self.longest_function = (function.lines, format!("{} in {path}", function.name));
            }
        }
    }

    pub(super) fn summary(&self) -> String {
        format!(
            "{} Rust files, {} functions. Longest file: {} ({} lines of code). Longest function: {} ({} lines).",
            self.files,
            self.functions,
            self.longest_file.1,
            self.longest_file.0,
            self.longest_function.1,
            self.longest_function.0,
        )
    }
}

pub(super) fn check(
    path: &str,
    text: &str,
    functions: &Functions,
    exceptions: &mut Exceptions,
    tally: &mut Tally,
) -> Vec<Finding> {
    let (lines, _) = code_and_test_lines(path, text);
    tally.add(path, lines, &functions.0);
    let mut findings = Vec::new();
    if lines > FILE_LINES_MAX && !exceptions.excuse(&format!("file {path}"), lines) {
        let what = format!("{lines} lines of code; a file has at most {FILE_LINES_MAX}");
        findings.push(Finding::new(path, what, "Split it by what a reader comes for."));
    }
    for Function { name, first_line, lines } in &functions.0 {
        if *lines > FUNCTION_LINES_MAX && !exceptions.excuse(&format!("function {path} {name}"), *lines) {
            let what = format!("`{name}` has {lines} lines; a function has at most {FUNCTION_LINES_MAX}");
            let remedy = "Let it branch, and let helpers compute.";
            findings.push(Finding::new(format!("{path}:{first_line}"), what, remedy));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str, exceptions: &str) -> Vec<String> {
        let mut exceptions = Exceptions::parse("list", exceptions).expect("valid");
        let file = syn::parse_file(text).expect("Rust");
        let found = check("a.rs", text, &Functions::of_file(&file), &mut exceptions, &mut Tally::default());
        found.into_iter().map(|finding| finding.to_string()).collect()
    }

    fn function(lines: usize) -> String {
        format!("/// Text above does not count.\nfn long() {{\n{}}}\n", "    call();\n".repeat(lines - 2))
    }

    #[test]
    fn functions_are_measured_from_their_name_to_their_last_brace() {
        let nested = format!("mod inner {{\nimpl Thing {{\n{}}}\n}}\n", function(71));
        for (text, expected) in [(function(70), 0), (function(71), 1), (nested, 1)] {
            assert_eq!(findings(&text, "").len(), expected, "{text}");
        }
        assert!(findings(&function(71), "")[0].starts_with("a.rs:2: `long` has 71 lines"));
    }

    #[test]
    fn exceptions_excuse() {
        assert_eq!(findings(&function(80), "function a.rs long 80"), [""; 0]);
        let long = "const A: u8 = 1;\n".repeat(501);
        assert_eq!(findings(&long, "file a.rs 501"), [""; 0]);
        assert_eq!(findings(&long, "").len(), 1);
        assert_eq!(findings(&"// Why.\n\n".repeat(501), ""), [""; 0]);
    }
}
