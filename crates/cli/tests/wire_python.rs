//! The Python client alone, without the engine, installed by pip from its folder, against the real program. Where Python or a package that installing needs is missing
//! the test says so and passes, unless `THALWEG_PYTHON_TEST=required`, as CI sets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::{Folder, PROGRAM, text};

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a program says, which must end well.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// The folders of the packages that installing and running the client need, as `PYTHONPATH`; `None` if one is missing.
fn packages() -> Option<String> {
    // Setuptools first: it will not be loaded once something of pip's was.
    let ask = "import importlib.util as packages, os, venv
wheels = 'wheel' if packages.find_spec('wheel') else 'setuptools.command.bdist_wheel'
packages.find_spec(wheels).origin
found = [packages.find_spec(name).origin for name in ('numpy', 'pip', 'setuptools', wheels.split('.')[0])]
print(os.pathsep.join({os.path.dirname(os.path.dirname(origin)) for origin in found}))";
    let output = Command::new("python3").args(["-c", ask]).output().ok().filter(|output| output.status.success());
    output.map(|output| text(&output.stdout).trim().to_owned())
}

/// Installs the client into an environment of its own, without a network; the environment's Python.
fn install(folder: &Folder, packages: &str) -> PathBuf {
    // pip builds where the source lies: in a copy, so that nothing is left behind.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python");
    let copy = folder.0.join("source");
    std::fs::create_dir_all(copy.join("thalweg")).unwrap();
    std::fs::create_dir_all(copy.join("pure")).unwrap();
    std::fs::copy(source.join("pure/pyproject.toml"), copy.join("pure/pyproject.toml")).unwrap();
    for file in std::fs::read_dir(source.join("thalweg")).unwrap().map(Result::unwrap) {
        if file.path().extension().is_some_and(|extension| extension == "py") {
            std::fs::copy(file.path(), copy.join("thalweg").join(file.file_name())).unwrap();
        }
    }
    let environment = folder.0.join("environment");
    said(Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&environment));
    let python = environment.join("bin/python");
    let options = ["--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check"];
    said(
        Command::new(&python)
            .args(["-m", "pip", "install"])
            .args(options)
            .arg(copy.join("pure"))
            .env("PYTHONPATH", packages),
    );
    python
}

#[test]
fn the_python_client_writes_what_queries_find() {
    let Some(packages) = packages() else {
        let missing = "python3 with numpy, pip, venv and a setuptools that makes wheels (70.1) is missing";
        let required = std::env::var_os("THALWEG_PYTHON_TEST").is_some_and(|value| value == "required");
        assert!(!required, "{missing}");
        eprintln!("skipped: {missing}");
        return;
    };
    let folder = Folder::new("wire-python");
    let python = install(&folder, &packages);
    let mut where_from = Command::new(&python);
    where_from.args(["-c", "import thalweg; print(thalweg.__file__)"]).env("PYTHONPATH", &packages);
    let found = said(where_from.current_dir(&folder.0));
    assert!(Path::new(&found).starts_with(folder.0.join("environment")), "{found}");
    let mut opens = Command::new(&python);
    opens.args(["-c", "import thalweg\ntry:\n  thalweg.open('x')\nexcept ImportError as error:\n  print(error)"]);
    let refused = said(opens.env("PYTHONPATH", &packages).current_dir(&folder.0));
    assert!(refused.starts_with("this installation of thalweg has no engine"), "{refused}");
    let local = "127.0.0.1:0";
    let child = Command::new(PROGRAM)
        .args(["serve", "--no-host-metrics", "--http", local, "--control", local, "--ingest", local, "--data"])
        .arg(folder.0.join("data"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Ended(child);
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut last_word = || lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
    let (url, control, ingest) = (last_word(), last_word(), last_word());
    let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
    let roundtrip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python/tests/roundtrip.py");
    let mut command = Command::new(&python);
    command.arg(roundtrip).args([port(&control), port(&ingest)]).env("PYTHONPATH", &packages);
    assert_eq!(said(&mut command), "well");
    let ask = |query: &str| {
        let answer = support::agent().get(format!("{url}api/v1/query?time=300&query={query}")).call();
        answer.unwrap().body_mut().read_to_string().unwrap()
    };
    for (query, expected) in [
        ("count(cpu_usage)", "\"99\""),
        ("sum(cpu_usage)", "\"4996.5\""),
        ("sum(cpu_delta)", "\"-4950\""),
        ("count(cpu_cores)", "\"100\""),
        ("sum(cpu_up)", "\"50\""),
        ("sum_over_time(level[10m])", "\"15\""),
    ] {
        let answer = ask(query);
        assert!(answer.contains(expected), "{query}: {answer}");
    }
}
