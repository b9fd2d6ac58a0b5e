//! What a corpus begins with: files of the tree, pieces of them, and texts that its tests have.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use super::targets::{Seeds, Target};

/// Bytes of a word of a dictionary.
const WORD_BYTES: std::ops::RangeInclusive<usize> = 2..=24;
/// Header of a record of the log; `docs/formats/log.md`.
const FRAME_BYTES: usize = 32;

/// Puts a target's seeds into its corpus. One that is there already is written again, no more.
pub(super) fn plant(root: &Path, target: &Target, corpus: &Path) -> Result<(), String> {
    let own = root.join("fuzz/seeds").join(target.name);
    let mut seeds = if own.is_dir() { files(&own, "", 0)? } else { Vec::new() };
    let own = own.with_extension("txt");
    if own.is_file() {
        seeds.extend(text(&own)?.lines().map(|line| line.as_bytes().to_vec()));
    }
    for from in target.seeds {
        seeds.extend(of(root, from)?);
    }
    for seed in seeds.iter().filter(|seed| !seed.is_empty() && seed.len() as u64 <= target.bytes_max) {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        let path = corpus.join(format!("seed-{:016x}", hasher.finish()));
        std::fs::write(&path, seed).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn of(root: &Path, from: &Seeds) -> Result<Vec<Vec<u8>>, String> {
    Ok(match from {
        Seeds::Literals(paths) => literals(root, paths)?.into_iter().collect(),
        Seeds::Files { folder, extension, skip } => files(&root.join(folder), extension, *skip)?,
        Seeds::Lines { file, prefix } => {
            let text = text(&root.join(file))?;
            text.lines().filter_map(|line| line.strip_prefix(prefix)).map(|line| line.as_bytes().to_vec()).collect()
        }
        Seeds::Questions { folder } => {
            let texts = files(&root.join(folder), "txt", 0)?;
            let texts = texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>();
            let cases = texts.iter().flat_map(|text| text.split("\n\n"));
            cases.filter_map(|case| case.split_once("\n----")).map(|(asked, _)| asked.as_bytes().to_vec()).collect()
        }
        Seeds::Records { folder } => {
            files(&root.join(folder), "log", 0)?.iter().flat_map(|file| records(file)).collect()
        }
        Seeds::Segments { folder } => {
            files(&root.join(folder), "segment", 0)?.iter().filter_map(|file| segment(file)).collect()
        }
    })
}

/// The words that a target's texts are made of, in the form of the engine's dictionaries.
pub(super) fn dictionary(root: &Path, target: &Target) -> Result<String, String> {
    let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'\\');
    let words = literals(root, target.words)?.into_iter();
    let words = words.filter(|word| WORD_BYTES.contains(&word.len()) && word.iter().all(is_plain));
    let lines: Vec<String> = words.map(|word| format!("\"{}\"\n", String::from_utf8_lossy(&word))).collect();
    Ok(lines.concat())
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The files of a folder, and of those in it, without their first bytes.
fn files(folder: &Path, extension: &str, skip: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut found = Vec::new();
    for path in listed(folder)? {
        if path.is_dir() {
            found.extend(files(&path, extension, skip)?);
        } else if path.to_string_lossy().ends_with(extension) {
            let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            found.push(bytes.get(skip..).unwrap_or_default().to_vec());
        }
    }
    Ok(found)
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// The payloads of a log's records, each behind its kind.
fn records(mut log: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((header, rest)) = log.split_first_chunk::<FRAME_BYTES>() {
        let [_, _, _, _, a, b, c, d, ..] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let Some(payload) = rest.get(..length).filter(|_| length > 0) else { break };
        found.push([&header[28..29], payload].concat());
        log = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    found
}

/// A segment of groups as its target takes it: the bytes of the directory, what is before that, and the directory.
fn segment(file: &[u8]) -> Option<Vec<u8>> {
    let end = file.len().checked_sub(16)?;
    let offset = usize::try_from(u64::from_le_bytes(*file.get(end..)?.first_chunk()?)).ok()?;
    let (body, directory) = (file.get(16..offset)?, file.get(offset..end)?);
    let length = u16::try_from(directory.len()).ok()?;
    Some([&length.to_le_bytes(), body, directory].concat())
}

/// The texts in Rust's sources.
fn literals(root: &Path, paths: &[&str]) -> Result<BTreeSet<Vec<u8>>, String> {
    let mut found = Literals::default();
    let mut paths: Vec<PathBuf> = paths.iter().map(|path| root.join(path)).collect();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(listed(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = syn::parse_file(&text(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
            found.visit_file(&file);
        }
    }
    Ok(found.0)
}

#[derive(Default)]
struct Literals(BTreeSet<Vec<u8>>);

impl Visit<'_> for Literals {
    fn visit_lit_str(&mut self, literal: &syn::LitStr) {
        self.0.insert(literal.value().into_bytes());
    }

    fn visit_lit_byte_str(&mut self, literal: &syn::LitByteStr) {
        self.0.insert(literal.value());
    }

    fn visit_lit_byte(&mut self, literal: &syn::LitByte) {
        self.0.insert(vec![literal.value()]);
    }

    /// What macros are called with is no tree: its texts are found one by one.
    fn visit_macro(&mut self, called: &syn::Macro) {
        self.tokens(called.tokens.clone());
    }
}

impl Literals {
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Group(group) => self.tokens(group.stream()),
                proc_macro2::TokenTree::Literal(literal) => {
                    if let Ok(literal) = syn::parse_str::<syn::Lit>(&literal.to_string()) {
                        self.visit_lit(&literal);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_in_calls_and_in_macros() {
        let source = "fn a() { b(\"one\", b\"two\"); assert_eq!(c(\"thr\\\"ee\"), vec![\"four\"]); }";
        let mut found = Literals::default();
        found.visit_file(&syn::parse_file(source).unwrap());
        let expected = ["one", "two", "thr\"ee", "four"].map(|text| text.as_bytes().to_vec());
        assert_eq!(found.0, BTreeSet::from(expected));
    }

    #[test]
    fn records_are_cut_where_they_end() {
        let mut log = vec![0; FRAME_BYTES];
        (log[4], log[28]) = (3, 7);
        log.extend(b"abc\0\0\0\0\0");
        log.resize(200, 0);
        assert_eq!(records(&log), [b"\x07abc"]);
    }

    #[test]
    fn every_seed_is_where_the_table_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for target in super::super::targets::TARGETS {
            for from in target.seeds {
                assert!(!of(&root, from).unwrap().is_empty(), "{}: {from:?}", target.name);
            }
            assert!(target.words.is_empty() || !dictionary(&root, target).unwrap().is_empty(), "{}", target.name);
        }
    }
}
