//! Pictures as users ask for them: the guide's commands, and another program's decoder.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::print_stderr, reason = "tests")]

mod support;

use std::process::Command;

use support::{Folder, PROGRAM, TestServer, run, text};

/// What the decoder of Pillow says of a file: its form, its size, how many colours it has.
const DECODE: &str = "
import sys
from PIL import Image
for name in sys.argv[1:]:
    picture = Image.open(name)
    picture.load()
    print(name, picture.format, *picture.size, picture.mode, len(picture.getcolors(1 << 24)) > 20)
";

/// Commands of a guide's shell blocks.
fn commands(guide: &str) -> String {
    let (mut out, mut is_shell) = (String::new(), false);
    for line in guide.lines() {
        match line {
            "```sh" => is_shell = true,
            "```" => is_shell = false,
            line if is_shell => {
                out.push_str(line);
                out.push('\n');
            }
            _ => {}
        }
    }
    out
}

fn has_pillow() -> bool {
    let has = Command::new("python3").args(["-c", "import PIL"]).output().is_ok_and(|output| output.status.success());
    let required = std::env::var_os("THALWEG_PYTHON_TEST").is_some_and(|value| value == "required");
    assert!(has || !required, "python3 has no Pillow");
    if !has {
        eprintln!("not tested by another decoder: python3 has no Pillow");
    }
    has
}

#[test]
fn the_guides_commands_give_pictures() {
    let folder = Folder::new("graphs");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let guide = include_str!("../../../docs/guide/graphs.md");
    let script =
        commands(guide).replace("http://127.0.0.1:7780", server.url()).replace("\nthalweg ", &format!("\n{PROGRAM} "));
    assert!(script.lines().count() > 10, "{script}");
    let output = Command::new("bash")
        .args(["-euxo", "pipefail", "-c", &script])
        .current_dir(&folder.0)
        .env("THALWEG_URL", server.url())
        .output()
        .unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let expected = guide.lines().find_map(|line| line.strip_prefix("# {")).unwrap();
    assert!(said.contains(expected), "{said}");
    let read = |name: &str| std::fs::read(folder.0.join(name)).unwrap();
    for name in ["load.png", "by-command.png"] {
        assert!(read(name).starts_with(b"\x89PNG"), "{name}: {}", String::from_utf8_lossy(&read(name)));
    }
    assert!(read("load.webp").starts_with(b"RIFF"), "{}", String::from_utf8_lossy(&read("load.webp")));
    for (name, series) in [("load.svg", ">host b</text>"), ("by-command.svg", ">value{host=&quot;b&quot;}</text>")] {
        let svg = String::from_utf8(read(name)).unwrap();
        assert!(svg.contains(series) && svg.ends_with("</svg>\n"), "{name}: {svg}");
    }
    if has_pillow() {
        let mut python = Command::new("python3");
        let output = python.args(["-c", DECODE, "load.png", "load.webp", "by-command.png"]).current_dir(&folder.0);
        let output = output.output().unwrap();
        assert_eq!(
            text(&output.stdout),
            "load.png PNG 900 360 RGB True\nload.webp WEBP 900 360 RGB True\nby-command.png PNG 900 360 RGB True\n",
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn flags_of_pictures_are_for_pictures() {
    let folder = Folder::new("graph-flags");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    for (flags, expected) in [
        (&["up", "--width", "300"][..], "--width is for pictures: add --format svg, png or webp"),
        (&["SELECT 1", "--lang", "sql"], "as pictures: add --format svg"),
        (&["up", "--format", "svg", "--time", "5"], "a picture is of a range"),
        (&["up", "--format", "svg", "--graph", "style"], "a name, = and a value"),
        (&["up", "--format", "svg", "--unit", "furlong"], "unit \"furlong\" is not known"),
        (&["sum(", "--format", "png", "--output", "never.png"], "invalid parameter \"query\""),
    ] {
        let output = run(&[&["query", "--url", server.url()], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    assert!(!std::path::Path::new("never.png").exists());
    let png = run(&["query", "--url", server.url(), "up", "--format", "png", "--width", "300", "--height", "100"]);
    assert!(png.status.success() && png.stdout.starts_with(b"\x89PNG"), "{}", text(&png.stderr));
}

/// A folder that a server has open is read beside it.
#[test]
fn a_folder_is_asked_while_a_server_writes_to_it() {
    let folder = Folder::new("query-data");
    let data = folder.0.join("data");
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    let ask = |flags: &[&str]| {
        let output = run(&[&["query", "--data", data.to_str().unwrap()], flags].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    for (value, second) in [("1", "60"), ("2", "120")] {
        assert_eq!(server.post("/write?precision=s", format!("m,host=a v={value} {second}").as_bytes()).0, 204);
        let found = text(&ask(&["m_v", "--time", second, "--format", "csv"]));
        assert_eq!(found, format!("time,__name__,host,value\n{second},m_v,a,{value}\n"));
    }
    let svg = text(&ask(&["m_v", "--start", "60", "--end", "120", "--step", "60", "--format", "svg"]));
    assert!(svg.contains(">m_v{host=&quot;a&quot;}</text>"), "{svg}");
    assert!(server.get("/api/v1/query?query=m_v&time=120").1.contains("\"2\""));
    let missing = run(&["query", "--data", folder.0.join("nothing").to_str().unwrap(), "m_v"]);
    assert!(text(&missing.stderr).contains("is no data folder"), "{}", text(&missing.stderr));
    assert!(!folder.0.join("nothing").exists());
}
