//! How many things a function takes: a tuple among its parameters hides as many as it has members.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::exceptions::Exceptions;

/// Parameters of a function, without `self`, members of tuples one by one.
const PARAMETERS_MAX: usize = 7;

fn count(signature: &syn::Signature) -> usize {
    let members = |argument: &syn::FnArg| match argument {
        syn::FnArg::Receiver(_) => 0,
        syn::FnArg::Typed(typed) => members(&typed.ty),
    };
    signature.inputs.iter().map(members).sum()
}

fn members(of_type: &syn::Type) -> usize {
    match of_type {
        syn::Type::Tuple(tuple) => tuple.elems.iter().map(members).sum::<usize>().max(1),
        syn::Type::Reference(reference) => members(&reference.elem),
        _ => 1,
    }
}

/// The functions of a file that take too much.
pub(super) fn check(path: &str, file: &syn::File, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut functions = Functions(Vec::new());
    functions.visit_file(file);
    let mut findings = Vec::new();
    for (name, line, count) in functions.0 {
        if count > PARAMETERS_MAX && !exceptions.excuse(&format!("parameters {path} {name}"), count) {
            let what = format!("`{name}` takes {count} things, members of tuples counted; at most {PARAMETERS_MAX}");
            findings.push(Finding::new(format!("{path}:{line}"), what, "Name what belongs together: a struct."));
        }
    }
    findings
}

/// Name, line and number of parameters.
struct Functions(Vec<(String, usize, usize)>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature) {
        self.0.push((signature.ident.to_string(), signature.span().start().line, count(signature)));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.add(&function.sig);
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_tuples_count() {
        let found = |text: &str| {
            let file = syn::parse_file(text).expect("Rust");
            check("a.rs", &file, &mut Exceptions::default()).len()
        };
        for (text, expected) in [
            ("fn a(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {}", 0),
            ("fn a(a: (u8, u8), b: &(u8, (u8, u8)), c: u8, d: u8) {}", 0),
            ("fn a(a: (u8, u8), b: &(u8, (u8, u8)), c: u8, d: u8, e: u8) {}", 1),
            ("struct A; impl A { fn a(&self, a: (u8, u8, u8, u8), b: (u8, u8, u8)) {} }", 0),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }
}
