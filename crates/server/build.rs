//! Builds the web page in `ui/` and writes the list of its files for `src/page.rs` to embed.
//!
//! With Node.js and npm at hand the page is built by Vite from a copy of its sources in `OUT_DIR`, so that the source
//! tree stays clean. Without them, or if the build fails, the plain page in `fallback/` takes its place, and a warning
//! says why: a database must build on a machine that has never heard of JavaScript. `THALWEG_UI=off` asks for that.

#![allow(clippy::print_stdout, reason = "a build script speaks to cargo through its standard output")]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the page is built from; the rest of `ui/` is for work on it.
const SOURCES: [&str; 6] = ["package.json", "package-lock.json", ".npmrc", "index.html", "vite.config.ts", "src"];
/// The oldest Node.js that Vite runs on.
const NODE_OLDEST: (u32, u32) = (20, 19);

fn main() -> io::Result<()> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let ui = here.join("../../ui");
    let fallback = here.join("fallback");
    announce_inputs(&ui, &fallback);
    let (folder, built) = match build_page(&ui, &out.join("ui")) {
        Ok(folder) => (folder, true),
        Err(reason) => {
            println!("cargo:warning=the plain page is embedded instead of the one with plots: {reason}");
            (fallback, false)
        }
    };
    let mut files = Vec::new();
    list_files(&folder, &folder, &mut files)?;
    files.sort();
    fs::write(out.join("page_assets.rs"), assets_source(&folder, &files, built)?)
}

fn variable(name: &str) -> io::Result<String> {
    std::env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}; cargo sets it")))
}

/// Cargo runs this script again only if one of these has changed.
fn announce_inputs(ui: &Path, fallback: &Path) {
    println!("cargo:rerun-if-env-changed=THALWEG_UI");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", fallback.display());
    for source in SOURCES.map(|name| ui.join(name)).iter().filter(|path| path.exists()) {
        println!("cargo:rerun-if-changed={}", source.display());
    }
}

/// Builds the page in `work` and returns the folder of its files, or says why not and what to do about it.
fn build_page(ui: &Path, work: &Path) -> Result<PathBuf, String> {
    if std::env::var_os("THALWEG_UI").is_some_and(|value| value == "off") {
        return Err("THALWEG_UI=off".to_owned());
    }
    let retry = "then `touch ui/package.json` and build again";
    check_node().map_err(|why| format!("{why}; install Node.js 20.19 or newer with npm, {retry}"))?;
    let lock = fs::read(ui.join("package-lock.json")).map_err(|error| format!("ui/package-lock.json: {error}"))?;
    copy_sources(ui, work).map_err(|error| format!("copying ui/ to {}: {error}", work.display()))?;
    let stamp = work.join("installed-lock");
    if fs::read(&stamp).ok().as_deref() != Some(lock.as_slice()) {
        install(work).map_err(|why| format!("{why}; with a network, {retry}"))?;
        fs::write(&stamp, lock).map_err(|error| format!("{}: {error}", stamp.display()))?;
    }
    run(npm().arg("run").arg("build").current_dir(work))?;
    Ok(work.join("dist"))
}

fn check_node() -> Result<(), String> {
    let output = Command::new("node").arg("--version").output().map_err(|error| format!("node: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut numbers = text.trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < NODE_OLDEST {
        return Err(format!("node --version says {text:?}, which is too old for Vite"));
    }
    Ok(())
}

fn npm() -> Command {
    Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" })
}

/// Installs exactly what the lock file names, without the tools that only tests need. Gives up soon where there is no
/// network, since the plain page is waiting.
fn install(work: &Path) -> Result<(), String> {
    let flags = ["--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];
    let patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"];
    run(npm().arg("ci").args(flags).args(patience).current_dir(work))
}

/// Runs a command and, where it fails, gives its last words as one line.
fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(4)..];
    Err(format!("{shown} failed with {}: {}", output.status, last.join(" | ")))
}

/// Copies the sources afresh; `node_modules` beside them stays.
fn copy_sources(ui: &Path, work: &Path) -> io::Result<()> {
    for folder in ["src", "dist"] {
        match fs::remove_dir_all(work.join(folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::create_dir_all(work)?;
    for name in SOURCES {
        copy(&ui.join(name), &work.join(name))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(|_| ());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Files below `folder`, as paths relative to `root`; compressed twins are found by their name later.
fn list_files(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list_files(root, &path, files)?;
        } else if path.extension() != Some(OsStr::new("gz")) {
            files.push(path.strip_prefix(root).map_err(io::Error::other)?.to_owned());
        }
    }
    Ok(())
}

/// The Rust expression that `src/page.rs` includes: `(built, &[Asset { … }, …])`.
fn assets_source(folder: &Path, files: &[PathBuf], built: bool) -> io::Result<String> {
    let mut source = format!("({built}, &[\n");
    for file in files {
        let path = file.to_string_lossy().replace('\\', "/");
        let body = folder.join(file);
        let compressed = folder.join(format!("{path}.gz"));
        let gzip = if compressed.exists() { format!("Some({})", include(&compressed)) } else { "None".to_owned() };
        let address = if path == "index.html" { "/".to_owned() } else { format!("/{path}") };
        let content_type = content_type(file)?;
        let cache_control = cache_control(&path);
        let etag = format!("\"{:016x}\"", fingerprint(&fs::read(&body)?));
        writeln!(
            source,
            "    Asset {{ path: {address:?}, content_type: {content_type:?}, cache_control: {cache_control:?}, \
             etag: {etag:?}, body: {}, gzip: {gzip} }},",
            include(&body)
        )
        .map_err(io::Error::other)?;
    }
    source.push_str("])\n");
    Ok(source)
}

fn include(path: &Path) -> String {
    format!("include_bytes!({:?})", path.to_string_lossy())
}

/// Vite puts a hash of the content into the names below `assets/`, so these never change.
fn cache_control(path: &str) -> &'static str {
    if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" }
}

fn content_type(file: &Path) -> io::Result<&'static str> {
    match file.extension().and_then(OsStr::to_str) {
        Some("html") => Ok("text/html; charset=utf-8"),
        Some("js") => Ok("text/javascript; charset=utf-8"),
        Some("css") => Ok("text/css; charset=utf-8"),
        Some("svg") => Ok("image/svg+xml"),
        _ => Err(io::Error::other(format!("{}: add its content type to crates/server/build.rs", file.display()))),
    }
}

/// FNV-1a, 64 bits: tells versions of a file apart for its `ETag`; nobody gains from a collision.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
