//! Words that a stranger would have to learn, and sentences that do not stand by themselves. Each crate's count may only get smaller.

use syn::visit::{self, Visit};

use super::Finding;

/// Names of types, functions, fields and files that stand for something that the field has a word for.
const NAMES: [&str; 17] = [
    "asked", "found", "given", "haste", "held", "kept", "keep", "piece", "pieces", "place", "places", "seen", "shown",
    "stretch", "taken", "told", "untold",
];

/// Beginnings of doc comments that need their neighbour, or say nothing.
const BEGINNINGS: [&str; 6] = ["The same", "What is", "What it", "What was", "Whoever", "Whether there"];

/// Words that have a plain subject or a time instead.
const WORDS: [&str; 4] = ["whoever", "somebody", "nobody", "anybody"];

/// A breach: line, and what it is.
pub(super) struct Breach {
    pub(super) line: usize,
    pub(super) what: String,
}

/// The breaches of a file.
pub(super) fn breaches(path: &str, text: &str, file: &syn::File) -> Vec<Breach> {
    let mut names = Names(Vec::new());
    let stem = path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    if NAMES.contains(&stem) {
        names.0.push(Breach { line: 1, what: format!("the file is called `{stem}`") });
    }
    names.visit_file(file);
    let mut breaches = names.0;
    let mut was_doc = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let comment = ["///", "//!", "//"].iter().find_map(|mark| trimmed.strip_prefix(mark)).map(str::trim_start);
        let Some(comment) = comment else {
            was_doc = false;
            continue;
        };
        let is_doc = trimmed.starts_with("///");
        if is_doc
            && !was_doc
            && let Some(start) = BEGINNINGS.iter().find(|start| comment.starts_with(**start))
        {
            breaches.push(Breach { line: number + 1, what: format!("a doc comment begins with \"{start}\"") });
        }
        was_doc = is_doc;
        let words = comment.split(|symbol: char| !symbol.is_alphabetic()).map(str::to_lowercase);
        let banned = words.filter(|word| WORDS.contains(&word.as_str()));
        breaches.extend(banned.map(|word| Breach { line: number + 1, what: format!("\"{word}\"") }));
    }
    breaches
}

/// What to say of a crate that has more breaches than it may.
pub(super) fn finding(folder: &str, breaches: &[(String, Breach)], allowed: usize) -> Finding {
    let list: Vec<String> =
        breaches.iter().map(|(path, breach)| format!("{path}:{}: {}", breach.line, breach.what)).collect();
    let what = format!(
        "{} names and sentences of a private language, at most {allowed}:\n    {}",
        breaches.len(),
        list.join("\n    ")
    );
    Finding::new(folder, what, "Use the field's word; let the sentence have a subject and stand by itself.")
}

struct Names(Vec<Breach>);

impl Names {
    fn add(&mut self, kind: &str, name: &syn::Ident) {
        let text = name.to_string();
        if NAMES.contains(&text.to_lowercase().as_str()) || text == "of" {
            self.0.push(Breach { line: name.span().start().line, what: format!("a {kind} is called `{text}`") });
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add("type", &item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add("type", &item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add("function", &item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add("function", &item.sig.ident);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.add("field", name);
        }
        visit::visit_field(self, field);
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
    fn names_and_sentences_are_found() {
        let text = "//! Somebody waits.\n/// The same for rows.\nstruct Kept { place: u32, offset: u32 }\n/// A row.\n/// The same again.\nfn of() {}\n";
        let file = syn::parse_file(text).expect("Rust");
        let found: Vec<(usize, String)> = breaches("crates/a/src/held.rs", text, &file)
            .into_iter()
            .map(|breach| (breach.line, breach.what))
            .collect();
        let expected = [
            (1, "the file is called `held`"),
            (3, "a type is called `Kept`"),
            (3, "a field is called `place`"),
            (6, "a function is called `of`"),
            (1, "\"somebody\""),
            (2, "a doc comment begins with \"The same\""),
        ];
        assert_eq!(found, expected.map(|(line, what)| (line, what.to_owned())));
    }
}
