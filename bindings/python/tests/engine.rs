//! The package with its engine: from the wheel that `THALWEG_WHEEL` names, as CI builds it by maturin, else put together from the module that cargo
//! built for this test. Where Python or a package is missing the test says so and passes, unless `THALWEG_PYTHON_TEST=required`, as CI sets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The output of a program, which must end well.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Returns whether Python and the packages that the test needs are there.
fn has_packages() -> bool {
    let ask = "import numpy, pandas, pyarrow, pip";
    let found = Command::new("python3").args(["-c", ask]).output().is_ok_and(|output| output.status.success());
    let required = std::env::var_os("THALWEG_PYTHON_TEST").is_some_and(|value| value == "required");
    assert!(found || !required, "python3 with numpy, pandas, pyarrow and pip is missing");
    if !found {
        eprintln!("skipped: python3 with numpy, pandas, pyarrow and pip is missing");
    }
    found
}

/// An empty folder.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A folder that has the package, for `PYTHONPATH`.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| match std::env::var_os("THALWEG_WHEEL") {
        Some(wheel) => {
            let target = folder("installed");
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check", "--target"]);
            output_of(pip.arg(&target).arg(wheel));
            target
        }
        None => assembled(),
    })
}

/// The package's files beside the module that cargo built.
fn assembled() -> PathBuf {
    let target = folder("assembled");
    let package = target.join("thalweg");
    std::fs::create_dir(&package).unwrap();
    for file in std::fs::read_dir(Path::new(SOURCE).join("thalweg")).unwrap().map(Result::unwrap) {
        if file.path().extension().is_some_and(|extension| extension == "py") {
            std::fs::copy(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    let built = std::env::current_exe().unwrap().parent().unwrap().join("lib_engine.so");
    std::fs::copy(&built, package.join("_engine.abi3.so"))
        .unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    target
}

fn python(file: &Path, work: &Path) -> String {
    output_of(Command::new("python3").arg(file).arg(work).env("PYTHONPATH", package()).current_dir(work))
}

#[test]
fn the_engine_takes_and_gives_frames() {
    if has_packages() {
        let work = folder("engine");
        assert_eq!(python(&Path::new(SOURCE).join("tests/engine.py"), &work), "well\n");
    }
}

#[test]
fn the_notebook_runs() {
    if !has_packages() {
        return;
    }
    let said = python(&Path::new(SOURCE).join("examples/weather.py"), &folder("notebook"));
    for expected in [
        "2016 rows",
        "2026-01-01 00:00:00+00:00 harbour  4.0  12.0",
        "168 hours, spread 4.0 to 4.0",
        "['iox::measurement', 'time', 'station', 'mean']",
        "[8.0, 8.0, 4.0, 4.0]",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in: {said}");
    }
}

#[test]
fn the_guides_example_runs() {
    if !has_packages() {
        return;
    }
    let guide = std::fs::read_to_string(Path::new(SOURCE).join("../../docs/guide/embedded.md")).unwrap();
    let blocks: Vec<&str> =
        guide.split("\n```python\n").skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect();
    let work = folder("guide");
    let expected: [&[&str]; 2] =
        [&["5 rows written", "harbour      8.5", "hill      4.5", "'hill': 4.375", "[5]"], &["[1]\n[2]\n"]];
    assert_eq!(blocks.len(), expected.len());
    for (block, expected) in blocks.into_iter().zip(expected) {
        let program = work.join("example.py");
        std::fs::write(&program, block).unwrap();
        let said = python(&program, &work);
        for expected in expected {
            assert!(said.contains(expected), "{expected:?} is not in: {said}");
        }
    }
}
