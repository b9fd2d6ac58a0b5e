//! Paths that documents name exist.

use super::Finding;

/// What a path in `code` must begin with to be taken for one of this tree.
const ROOTS: [&str; 9] = ["crates/", "bindings/", "ui/", "tests/", "fuzz/", "docs/", "xtask/", ".ci/", ".cargo/"];

/// The documents that are looked at.
pub(super) fn is_checked(path: &str) -> bool {
    super::has_extension(path, "md")
        && (path.starts_with("docs/") || matches!(path, "README.md" | "ARCHITECTURE.md" | "CONTRIBUTING.md"))
}

/// `exists` is asked with paths from the root.
pub(super) fn check(path: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let named = code_paths(line).map(ToOwned::to_owned).chain(links(line).map(|link| resolve(folder, link)));
        for named in named.filter(|named| !exists(named)) {
            let remedy = "Correct the path, or take it out if what it named is gone.";
            findings.push(Finding::new(format!("{path}:{}", index + 1), format!("`{named}` does not exist"), remedy));
        }
    }
    findings
}

/// Code spans that are plain paths; patterns and placeholders are left alone.
fn code_paths(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    let plain = |span: &&str| span.chars().all(|symbol| symbol.is_ascii_alphanumeric() || "._-/".contains(symbol));
    spans
        .filter(|span| ROOTS.iter().any(|root| span.starts_with(root)))
        .filter(plain)
        .filter(|span| !span.contains("NNNN"))
}

/// Targets of `[text](target)` that are files here.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains(':'))
}

fn resolve(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_do_not_exist_are_found() {
        let exists = |path: &str| matches!(path, "crates/db" | "docs/guide/a.md" | "README.md" | "ui/src/plot.ts");
        let cases = [
            ("See `crates/db`.", 0),
            ("See `crates/gone/src`.", 1),
            ("See `ui/src/plot.ts` and `ui/src/gone.ts`.", 1),
            ("Any `crates/*/src` or `docs/decisions/NNNN-title.md`.", 0),
            ("[a](a.md) [up](../../README.md#part) [web](https://example.org/x)", 0),
            ("[gone](b.md)", 1),
            ("```\n`crates/gone`\n```", 0),
            ("run `cargo test` in `target/x`", 0),
        ];
        for (text, expected) in cases {
            let findings = check("docs/guide/page.md", text, &exists);
            assert_eq!(findings.len(), expected, "{text}: {findings:?}");
        }
    }
}
