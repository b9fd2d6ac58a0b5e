//! Programs in C, C++ and Go, compiled against the library as it is installed, and run. Where a tool is missing the test says so and passes, unless
//! `THALWEG_C_TEST=required`, as CI sets it.
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

/// Returns whether all tools are there.
fn has(tools: &[&str]) -> bool {
    let missing: Vec<&&str> = tools.iter().filter(|tool| Command::new(tool).arg("version").output().is_err()).collect();
    let required = std::env::var_os("THALWEG_C_TEST").is_some_and(|value| value == "required");
    assert!(missing.is_empty() || !required, "missing: {missing:?}");
    if !missing.is_empty() {
        eprintln!("skipped: {missing:?} are missing");
    }
    missing.is_empty()
}

/// Go is often where no path leads.
fn go() -> &'static str {
    let usual = "/usr/local/go/bin/go";
    if Path::new(usual).exists() { usual } else { "go" }
}

/// An empty folder.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The folder of the libraries that cargo built for this test.
fn built() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libthalweg.so").exists(), "{} has no libthalweg.so", folder.display());
    folder
}

/// Where the library is installed, by its own `make install`.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = folder("installed");
        let setting = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut make = Command::new("make");
        make.args(["-C", SOURCE, "install"]).args([setting("BUILT", &built()), setting("PREFIX", &prefix)]);
        output_of(&mut make);
        prefix
    })
}

fn pkg_config_path() -> PathBuf {
    installed().join("lib/pkgconfig")
}

/// What pkg-config says.
fn flags(of: &str) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    let said = output_of(command.args([of, "thalweg"]).env("PKG_CONFIG_PATH", pkg_config_path()));
    said.split_whitespace().map(str::to_owned).collect()
}

/// A path for the loader of the shared library.
fn run_path() -> String {
    format!("-Wl,-rpath,{}", installed().join("lib").display())
}

#[test]
fn the_whole_surface_works_in_c_under_address_sanitizer() {
    if !has(&["make", "pkg-config"]) {
        return;
    }
    let folder = folder("surface");
    let program = folder.join("surface");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
    compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]);
    compile.arg(Path::new(SOURCE).join("tests/surface.c")).args(flags("--cflags")).args(flags("--libs"));
    output_of(compile.arg(run_path()).arg("-o").arg(&program));
    // A folder, and a database in one file.
    for data in ["data", "data.tsdb"] {
        assert_eq!(output_of(Command::new(&program).arg(folder.join(data))), "well\n");
    }
    assert!(folder.join("data.tsdb").is_file());
    if has_rrdtool() {
        assert_exported(&folder);
    }
}

fn has_rrdtool() -> bool {
    let is_there = Command::new("rrdtool").arg("--version").output().is_ok();
    let required = std::env::var_os("THALWEG_RRDTOOL_TEST").is_some_and(|value| value == "required");
    assert!(is_there || !required, "rrdtool is missing");
    if !is_there {
        eprintln!("skipped: rrdtool is missing");
    }
    is_there
}

/// The files of `exports_rrd` in surface.c hold its twenty values for rrdtool, also restored from XML.
fn assert_exported(folder: &Path) {
    let rrdtool = |arguments: &[&str]| output_of(Command::new("rrdtool").args(arguments).current_dir(folder));
    let _ = std::fs::remove_file(folder.join("restored.rrd"));
    rrdtool(&["restore", "data.xml", "restored.rrd"]);
    for file in ["data.rrd", "data.tsdb.rrd", "restored.rrd"] {
        let fetched = rrdtool(&["fetch", file, "LAST", "-r", "60", "-s", "1699999980", "-e", "1700001120"]);
        let values = fetched.lines().filter_map(|line| line.split_once(": ")?.1.trim().parse().ok());
        let expected: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(values.collect::<Vec<f64>>(), expected, "{file}: {fetched}");
    }
}

#[test]
fn the_example_in_cpp_runs_with_the_static_library() {
    if !has(&["make", "pkg-config"]) {
        return;
    }
    let folder = folder("cpp");
    let program = folder.join("example");
    let mut compile = Command::new("c++");
    compile.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags("--cflags"));
    compile.arg(Path::new(SOURCE).join("examples/example.cpp")).arg(installed().join("lib/libthalweg.a"));
    output_of(compile.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program));
    let said = output_of(Command::new(&program).arg(folder.join("data")));
    let (samples, refused) = said.split_once("refused: ").unwrap();
    assert_eq!(samples, "10 samples, the last one 4.9\nharbour 13.9\nhill 9.9\n");
    assert!(refused.contains("nowhere"), "{refused}");
}

#[test]
fn the_example_in_go_runs() {
    if !has(&["make", "pkg-config", go()]) {
        return;
    }
    let folder = folder("go");
    let program = folder.join("example");
    let mut build = Command::new(go());
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(Path::new(SOURCE).join("examples/go"));
    build.env("PKG_CONFIG_PATH", pkg_config_path()).env("CGO_ENABLED", "1").env("GOFLAGS", "-mod=mod");
    output_of(build.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("c/go-cache")));
    let said =
        output_of(Command::new(&program).arg(folder.join("data")).env("LD_LIBRARY_PATH", installed().join("lib")));
    let (samples, refused) = said.split_once("refused: ").unwrap();
    assert_eq!(samples, "5 samples, the last one 4.4\n");
    assert!(refused.contains("nowhere"), "{refused}");
}

/// The fenced block of a language in the guide.
fn block<'a>(guide: &'a str, language: &str) -> &'a str {
    let (_, rest) = guide.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0
}

#[test]
fn the_guides_commands_and_program_run() {
    if !has(&["make", "pkg-config"]) {
        return;
    }
    let root = Path::new(SOURCE).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/guide/embedded.md")).unwrap();
    let folder = folder("guide");
    std::fs::write(folder.join("weather.c"), block(&guide, "c")).unwrap();
    // Its commands are those of someone at the root of a checkout.
    std::os::unix::fs::symlink(root.join("bindings").canonicalize().unwrap(), folder.join("bindings")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", block(&guide, "sh")]).current_dir(&folder).env("HOME", &folder).env("BUILT", built());
    let said = output_of(&mut shell);
    assert!(said.ends_with("2 samples, the last one 4.75\non average 4.625\n"), "{said}");
}
