//! Every outside dependency has a comment that says why it is there.

use super::Finding;

/// Looks at a crate's `Cargo.toml`. Our own crates need no reason: the layer table is theirs. The root's list only holds
/// versions in common, and every user of one gives its reason.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    if path == "Cargo.toml" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    let mut depth = 0_i64;
    let mut previous = "";
    for (index, line) in text.lines().map(str::trim).enumerate() {
        let starts_here = depth == 0;
        depth += brackets(line);
        if starts_here && line.starts_with('[') {
            in_dependencies = line.ends_with("dependencies]");
            depth = 0;
            if line.contains("dependencies.") && !explained(previous, line) {
                findings.push(missing(path, index, line));
            }
        } else if starts_here && in_dependencies && is_outside(line) && !explained(previous, line) {
            findings.push(missing(path, index, line));
        }
        previous = line;
    }
    findings
}

fn brackets(line: &str) -> i64 {
    let code = line.split('#').next().unwrap_or("");
    code.chars().map(|symbol| i64::from(matches!(symbol, '[' | '{')) - i64::from(matches!(symbol, ']' | '}'))).sum()
}

/// `name = …` or `name.workspace = true`, but for crates of ours, which lie in the workspace under their short names.
fn is_outside(line: &str) -> bool {
    const OURS: [&str; 28] = [
        "model",
        "codec",
        "platform",
        "index",
        "ingest",
        "cache",
        "wire",
        "access",
        "store",
        "query",
        "promql",
        "sql",
        "influxql",
        "flux",
        "redis",
        "rrd",
        "scrape",
        "views",
        "rules",
        "db",
        "client",
        "server",
        "bench",
        "cli",
        "embedded",
        "relabel",
        "similarity",
        "plot",
    ];
    let name = line.split(['=', '.']).next().unwrap_or("").trim();
    line.contains('=') && !line.starts_with('#') && !OURS.contains(&name)
}

fn explained(previous: &str, line: &str) -> bool {
    previous.starts_with('#') || line.contains(" # ")
}

fn missing(path: &str, index: usize, line: &str) -> Finding {
    let what = format!("no reason is given for `{line}`");
    let remedy = "Say in a comment above it what it is for, and why own code would be worse.";
    Finding::new(format!("{path}:{}", index + 1), what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_dependencies_need_a_reason() {
        let cases = [
            ("[dependencies]\nmodel.workspace = true\n", 0),
            ("[dependencies]\n# Why.\nserde = \"1\"\n", 0),
            ("[dependencies]\nserde = \"1\" # Why.\n", 0),
            ("[dependencies]\nserde = \"1\"\n", 1),
            ("[dev-dependencies]\n# Why.\na = \"1\"\nb.workspace = true\n", 1),
            ("[dependencies]\n# Why.\na = { version = \"1\", features = [\n  \"x\",\n] }\n", 0),
            ("[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n", 1),
            ("[dependencies.serde]\nversion = \"1\"\n", 1),
            ("[package]\nname = \"x\"\n[features]\ny = []\n", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(check("crates/x/Cargo.toml", text).len(), expected, "{text}");
        }
    }
}
