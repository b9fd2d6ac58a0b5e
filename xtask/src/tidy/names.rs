//! Names that say nothing about what is inside.

use super::Finding;

const BANNED: [&str; 10] =
    ["common", "helper", "helpers", "misc", "script", "scripts", "shared", "util", "utils", "utilities"];

pub(super) fn check(paths: &[String]) -> Vec<Finding> {
    let empty = |path: &&String| path.split('/').any(|part| BANNED.contains(&part.split('.').next().unwrap_or("")));
    let finding = |path: &String| {
        let remedy = "Name it after what it does; code that belongs to one caller lives with that caller.";
        Finding::new(path, "this name says nothing about what is inside", remedy)
    };
    paths.iter().filter(empty).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_meaning_are_found() {
        let cases = [
            ("crates/store/src/utils.rs", 1),
            ("scripts/release.sh", 1),
            ("crates/common/src/lib.rs", 1),
            ("crates/store/src/head/shard.rs", 0),
            ("docs/guide/common-questions.md", 0),
        ];
        for (path, expected) in cases {
            assert_eq!(check(&[path.to_owned()]).len(), expected, "{path}");
        }
    }
}
