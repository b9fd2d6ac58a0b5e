//! The page in a real browser: a server that samples its host, and `ui/test/page.test.mjs` as the reader.
//!
//! Needs Node.js with npm, a network or npm's cache for its tools, and Chromium. Where these are missing the test says
//! so and passes, unless `THALWEG_PAGE_TEST=required`, as CI sets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::print_stderr, reason = "tests")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use db::{Db, DbOptions};
use thalweg_server::{Server, ServerSettings, make_first_admin, page};
use tokio::sync::oneshot;

#[test]
fn a_reader_sees_plots_and_queries() {
    let required = std::env::var_os("THALWEG_PAGE_TEST").is_some_and(|value| value == "required");
    if let Err(missing) = check_tools() {
        assert!(!required, "{missing}");
        eprintln!("not tested: {missing}");
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    let tools = install_tools(&folder.join("tools"));
    let pictures = folder.join("pictures");
    let data = |name: &str| folder.join(format!("{name}-{}", std::process::id()));
    with_server(&data("data"), false, |address| {
        let guarded = data("guarded");
        with_server(&guarded, true, |guarded_address| {
            let token = fs::read_to_string(guarded.join("admin-token")).unwrap();
            let mut node = Command::new("node");
            node.arg("test/page.test.mjs").arg(format!("http://{address}")).arg(&pictures).current_dir(&tools);
            node.env("THALWEG_PAGE_GUARDED", format!("http://{guarded_address}"));
            node.env("THALWEG_PAGE_TOKEN", token.trim());
            run(&mut node);
        });
    });
    for name in ["home-1280-light.png", "home-390-dark.png", "explore-1280-dark.png", "explore-390-light.png"] {
        assert!(pictures.join(name).is_file(), "no picture {name}");
    }
}

fn check_tools() -> Result<(), String> {
    if !page::is_built() {
        return Err("the plain page is embedded; the build's warning says why".to_owned());
    }
    let named = std::env::var("CHROMIUM").unwrap_or_default();
    let places = [named.as_str(), "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    if !places.iter().any(|place| Path::new(place).is_file()) {
        return Err("there is no Chromium; install it, or set CHROMIUM to its path".to_owned());
    }
    Ok(())
}

/// A copy of the page's test with Playwright beside it, so that the source tree stays clean.
fn install_tools(tools: &Path) -> PathBuf {
    let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui");
    fs::create_dir_all(tools.join("test")).unwrap();
    for name in ["package.json", "package-lock.json", ".npmrc", "test/page.test.mjs"] {
        fs::copy(ui.join(name), tools.join(name)).unwrap();
    }
    let lock = fs::read(ui.join("package-lock.json")).unwrap();
    let stamp = tools.join("installed-lock");
    if fs::read(&stamp).ok().as_ref() != Some(&lock) {
        let flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];
        run(Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" }).args(flags).current_dir(tools));
        fs::write(&stamp, lock).unwrap();
    }
    tools.to_owned()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
}

/// A server on a free port that writes its host's metrics as it does by default; clients may have to sign in.
fn with_server(data: &Path, asks_to_sign_in: bool, visit: impl FnOnce(SocketAddr)) {
    let mut settings = ServerSettings::new("127.0.0.1:0".parse().unwrap());
    settings.sign_in_required = asks_to_sign_in;
    let db = Arc::new(Db::open(platform::Platform::real(), DbOptions::new(data)).unwrap());
    make_first_admin(&db, &settings, data).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = runtime.block_on(Server::bind(db.clone(), settings)).unwrap();
    let address = server.address();
    let running = runtime.spawn(server.run(async { drop(stopped.await) }));
    let visited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| visit(address)));
    drop(stop);
    runtime.block_on(running).unwrap();
    db.close().unwrap();
    fs::remove_dir_all(data).unwrap();
    if let Err(panic) = visited {
        std::panic::resume_unwind(panic);
    }
}
