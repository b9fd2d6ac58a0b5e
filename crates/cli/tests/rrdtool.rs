//! RRDtool's and collectd's own programs with this one in place of rrdcached.
//!
//! Needs Debian's packages `rrdtool` and `collectd-core`. Where they are missing the tests say so and pass, unless
//! `THALWEG_RRDTOOL_TEST=required`, as CI sets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Folder, PROGRAM, TestServer, run, text};

fn is_there(program: &str) -> bool {
    let is_required = std::env::var_os("THALWEG_RRDTOOL_TEST").is_some_and(|value| value == "required");
    let is_there = Command::new(program).arg("-h").output().is_ok();
    assert!(is_there || !is_required, "{program} is missing");
    if !is_there {
        eprintln!("not tested: {program} is missing");
    }
    is_there
}

/// Runs RRDtool in a folder.
fn rrdtool(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("rrdtool").args(arguments).current_dir(folder).env("TZ", "UTC").output().unwrap();
    // The sign of what is unknown depends on how it came to be so.
    if output.status.success() { Ok(text(&output.stdout).replace("-nan", "nan")) } else { Err(text(&output.stderr)) }
}

/// A server with rrdcached's protocol.
struct Rrdcached {
    server: TestServer,
    address: String,
    socket: String,
}

impl Rrdcached {
    fn start(folder: &Folder, flags: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let socket = folder.0.join("s.sock").to_str().unwrap().to_owned();
        let own = ["--no-host-metrics", "--rrdcached", &address, "--rrdcached-socket", &socket];
        let server = TestServer::start(&folder.0.join("data"), &[&own, flags].concat());
        Self { server, address, socket }
    }

    fn talk(&self) -> Talk {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        Talk(BufReader::new(stream))
    }
}

/// A client that writes the protocol itself.
struct Talk(BufReader<TcpStream>);

impl Talk {
    fn send(&mut self, lines: &str) {
        self.0.get_mut().write_all(lines.as_bytes()).unwrap();
    }

    /// The lines of the next answer.
    fn answer(&mut self) -> Vec<String> {
        let mut lines = vec![self.line()];
        let count: i64 = lines[0].split(' ').next().unwrap().parse().unwrap();
        (0..count).for_each(|_| lines.push(self.line()));
        lines
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> Vec<String> {
        self.send(&format!("{line}\n"));
        self.answer()
    }
}

const DEFINITIONS: [&str; 8] = [
    "--start",
    "1700000000",
    "--step",
    "60",
    "DS:in:COUNTER:120:0:U",
    "DS:load:GAUGE:120:0:100",
    "RRA:AVERAGE:0.5:1:100",
    "RRA:MAX:0.5:5:100",
];

#[test]
fn rrdtool_works_with_thalweg_in_place_of_rrdcached() {
    if !is_there("rrdtool") {
        return;
    }
    let folder = Folder::new("rrdcached");
    let rrdcached = Rrdcached::start(&folder, &[]);
    // The same commands with and without the daemon.
    let both = |arguments: &[&str]| {
        let local = rrdtool(&folder.0, arguments).unwrap();
        let (command, rest) = arguments.split_first().unwrap();
        let daemon = [&[*command, "--daemon", &rrdcached.address], rest].concat();
        let ours = rrdtool(&folder.0, &daemon).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        (ours, local)
    };
    both(&[&["create", "a.rrd"][..], &DEFINITIONS].concat());
    let updates: Vec<String> = (1..90)
        .map(|minute| format!("{}:{}:{}", 1_700_000_000 + minute * 60 + minute % 7, minute * minute * 100, minute % 13))
        .collect();
    let arguments: Vec<&str> = ["update", "a.rrd"].into_iter().chain(updates.iter().map(String::as_str)).collect();
    both(&arguments);
    for arguments in [
        &["fetch", "a.rrd", "AVERAGE", "--start", "1700000000", "--end", "1700005400"][..],
        &["fetch", "a.rrd", "MAX", "--start", "1700000000", "--end", "1700005400"],
        &["first", "a.rrd"],
        &["first", "--rraindex", "1", "a.rrd"],
    ] {
        let (ours, local) = both(arguments);
        assert_eq!(ours, local, "{arguments:?}");
    }
    // As rrdcached, which gives the end of the last primary data point.
    assert_eq!(rrdtool(&folder.0, &["last", "--daemon", &rrdcached.address, "a.rrd"]).unwrap(), "1700005320\n");
    let (ours, local) = both(&["info", "a.rrd"]);
    let lines = |text: &str| -> Vec<String> {
        // RRDtool begins at a random row.
        text.lines().filter(|line| !line.contains("cur_row")).map(str::to_owned).collect()
    };
    assert_eq!(lines(&ours), lines(&local));
    let column = ["DEF:in=a.rrd:in:AVERAGE", "CDEF:bits=in,8,*", "XPORT:bits:bits"];
    let (ours, local) =
        both(&[&["xport", "--start", "1700000000", "--end", "1700005400", "--json"][..], &column].concat());
    assert_eq!(ours, local);
    // Over HTTP the same export.
    let query = "/api/v1/rrd/xport?start=1700000000&end=1700005400&format=json&arg=DEF:in=a.rrd:in:AVERAGE\
                 &arg=CDEF:bits=in,8,*&arg=XPORT:bits:bits";
    assert_eq!(rrdcached.server.get(query), (200, local));
    let query = "/api/v1/rrd/fetch?path=a.rrd&start=1700000000&end=1700005400";
    let local = rrdtool(&folder.0, &["fetch", "a.rrd", "AVERAGE", "--start", "1700000000", "--end", "1700005400"]);
    assert_eq!(rrdcached.server.get(query).1.replace("-nan", "nan"), local.unwrap());
    // A picture.
    let graph = ["--start", "1700000000", "--end", "1700005400", "DEF:in=a.rrd:in:AVERAGE", "LINE:in#0000ff:in"];
    let arguments = [&["graph", "g.png", "--daemon", &rrdcached.address][..], &graph].concat();
    rrdtool(&folder.0, &arguments).unwrap();
    assert!(std::fs::read(folder.0.join("g.png")).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(rrdtool(&folder.0, &["list", "--daemon", &rrdcached.address, "/"]).unwrap(), "a.rrd\n");
    // Readings are series of every other language, exactly.
    let query = "/api/v1/query?query=rrd_in_counter&time=1700005400";
    assert!(rrdcached.server.get(query).1.contains(r#""path":"a""#));
    // What is refused is so at once.
    let late = ["update", "--daemon", &rrdcached.address, "a.rrd", "1700000060:1:1"];
    assert!(rrdtool(&folder.0, &late).unwrap_err().contains("illegal attempt to update"));
    let wrong = ["update", "--daemon", &rrdcached.address, "a.rrd", "1700009060:x:1"];
    assert!(rrdtool(&folder.0, &wrong).unwrap_err().contains("not a simple unsigned integer"));
    // By the unix socket, whose clients make paths absolute.
    let socket = format!("unix:{}", rrdcached.socket);
    let arguments = [&["create", "b.rrd", "--daemon", &socket][..], &DEFINITIONS].concat();
    rrdtool(&folder.0, &arguments).unwrap();
    rrdtool(&folder.0, &["update", "--daemon", &socket, "b.rrd", "1700000060:5:5"]).unwrap();
}

/// Those that are answered by a line, of two files.
fn small_commands(talk: &mut Talk) {
    for (line, expected) in [
        ("FLUSH x/a.rrd", "0 Nothing to flush: x/a.rrd."),
        ("FLUSH none.rrd", "-1 No such file: none.rrd"),
        ("FLUSHALL", "0 Started flush."),
        ("PENDING x/a.rrd", "0 updates pending"),
        ("QUEUE", "0 in queue."),
        ("FORGET x/a.rrd", "0 Gone!"),
        ("SUSPEND x/a.rrd", "0 x/a.rrd suspended"),
        ("SUSPEND x/a.rrd", "0 x/a.rrd already suspended"),
        ("RESUME x/a.rrd", "0 x/a.rrd resumed"),
        ("SUSPENDALL", "0 2 rrds suspend"),
        ("RESUMEALL", "0 2 rrds resumed"),
        ("FIRST x/a.rrd 7", "-1 Invalid index specified (7)"),
        ("UPDATE", "-1 Usage: UPDATE <filename> <values> [<values> ...]"),
        ("UPDATE ../x 1:1", "-1 the path \"../x\": it has at most 400 bytes, and no empty part, . or .."),
        ("WROTE x", "-1 Can't use 'WROTE' here."),
    ] {
        assert_eq!(talk.ask(line), [expected], "{line}");
    }
}

fn fetch_binary(talk: &mut Talk) {
    talk.send("FETCHBIN x/a.rrd AVERAGE 1700000000 1700000179\n");
    let head: Vec<String> = (0..6).map(|_| talk.line()).collect();
    assert_eq!((head[0].as_str(), head[5].as_str()), ("6 Success", "DSCount: 1"));
    assert_eq!(talk.line(), "DSName-v: BinaryData 4 8 LITTLE");
    let mut values = [0; 33];
    talk.0.read_exact(&mut values).unwrap();
    assert_eq!(values[32], b'\n');
}

#[test]
fn every_command_is_answered() {
    if !is_there("rrdtool") {
        return;
    }
    let folder = Folder::new("commands");
    let tree = folder.0.join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    rrdtool(&tree, &[&["create", "sub/local.rrd"][..], &DEFINITIONS].concat()).unwrap();
    rrdtool(&tree, &["update", "sub/local.rrd", "1700000060:1000:5", "1700000120:7000:7"]).unwrap();
    let rrdcached = Rrdcached::start(&folder, &["--rrdcached-directory", tree.to_str().unwrap()]);
    let mut talk = rrdcached.talk();
    let definitions = "-b 1700000000 -s 60 DS:v:GAUGE:120:U:U RRA:AVERAGE:0.5:1:10";
    assert_eq!(talk.ask("PING"), ["0 PONG"]);
    assert_eq!(talk.ask(&format!("CREATE x/a.rrd {definitions}")), ["0 RRD created OK"]);
    assert_eq!(
        talk.ask(&format!("CREATE x/a.rrd -O {definitions}")),
        ["-1 RRD Error: creating 'x/a.rrd': File exists"]
    );
    assert_eq!(talk.ask("UPDATE x/a.rrd 1700000060:1 1700000120:3"), ["0 errors, enqueued 2 value(s)."]);
    // A batch: only errors are answered, by the numbers of their commands.
    talk.send("BATCH\nUPDATE x/a.rrd 1700000180:5\nUPDATE x/a.rrd 1700000180:5\nUPDATE none.rrd 1:1\nNONSENSE\n.\n");
    assert_eq!(talk.answer(), ["0 Go ahead.  End with dot '.' on its own line."]);
    let errors = talk.answer();
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert_eq!(errors[0], "3 errors");
    assert!(errors[1].starts_with("2 illegal attempt") && errors[2].starts_with("3 No such file"), "{errors:?}");
    assert!(errors[3].starts_with("4 Unknown command"), "{errors:?}");
    let rows = talk.ask("FETCH x/a.rrd AVERAGE 1700000000 1700000179 v");
    assert_eq!(
        rows[..7],
        [
            "10 Success",
            "FlushVersion: 1",
            "Start: 1699999980",
            "End: 1700000220",
            "Step: 60",
            "DSCount: 1",
            "DSName: v"
        ]
    );
    fetch_binary(&mut talk);
    // A file of the folder is imported when it is named, by its path in the folder or its whole one.
    let whole = tree.join("sub/local.rrd");
    assert_eq!(talk.ask(&format!("LAST {}", whole.display())), ["0 1700000100"]);
    assert_eq!(talk.ask("UPDATE sub/local.rrd 1700000180:9000:9"), ["0 errors, enqueued 1 value(s)."]);
    rrdtool(&tree, &["update", "sub/local.rrd", "1700000180:9000:9"]).unwrap();
    let fetch = ["fetch", "sub/local.rrd", "AVERAGE", "--start", "1700000000", "--end", "1700000180"];
    let ours = rrdtool(&tree, &[&["fetch", "--daemon", &rrdcached.address][..], &fetch[1..]].concat());
    assert_eq!(ours, rrdtool(&tree, &fetch));
    assert_eq!(talk.ask("LIST /"), ["2 RRDs", "sub", "x"]);
    assert_eq!(talk.ask("LIST RECURSIVE /"), ["2 RRDs", "sub/local.rrd", "x/a.rrd"]);
    assert_eq!(talk.ask("LIST /x"), ["1 RRDs", "a.rrd"]);
    // Limits that change hold from now on.
    assert_eq!(talk.ask("TUNE x/a.rrd -h v:600 -a v:50"), ["0 RRD tuned OK"]);
    assert_eq!(talk.ask("UPDATE x/a.rrd 1700000600:7 1700000660:51"), ["0 errors, enqueued 2 value(s)."]);
    let rows = talk.ask("FETCH x/a.rrd AVERAGE 1700000100 1700000659");
    assert!(rows.iter().any(|row| row.starts_with("1700000160: 4.333")), "{rows:?}");
    assert!(rows.iter().any(|row| row.starts_with("1700000400: 7.0")), "{rows:?}");
    assert!(rows.iter().any(|row| row.starts_with("1700000700:") && row.contains("nan")), "{rows:?}");
    small_commands(&mut talk);
    assert_eq!(talk.ask("STATS").len(), 10);
    assert!(talk.ask("HELP").len() > 20 && talk.ask("HELP fetch")[1].starts_with("Usage: FETCH"));
    talk.send("QUIT\n");
    assert_eq!(talk.0.read(&mut [0; 8]).unwrap(), 0, "the session ends");
}

#[test]
fn clients_sign_in_where_they_have_to() {
    let folder = Folder::new("rrdcached-access");
    let rrdcached = Rrdcached::start(&folder, &["--sign-in", "required"]);
    let mut talk = rrdcached.talk();
    talk.send("PING\n");
    assert_eq!(talk.0.read(&mut [0; 8]).unwrap(), 0, "nothing is answered");
    let mut talk = rrdcached.talk();
    talk.send("auth nonsense\nPING\n");
    assert_eq!(talk.0.read(&mut [0; 8]).unwrap(), 0, "the token is wrong");
    // The mode of its file says who may use the socket.
    let mut stream = std::os::unix::net::UnixStream::connect(&rrdcached.socket).unwrap();
    stream.write_all(b"PING\n").unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"0 PONG\n");
}

/// A program that is ended with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn collectd_writes_to_thalweg() {
    if !is_there("/usr/sbin/collectd") {
        return;
    }
    let folder = Folder::new("collectd");
    let tree = folder.0.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let pattern = "{host}/{plugin}[-{plugin_instance}]/{measurement}[-{type_instance}].rrd";
    let rrdcached =
        Rrdcached::start(&folder, &["--rrdcached-directory", tree.to_str().unwrap(), "--rrd-pattern", pattern]);
    let configuration = format!(
        "Hostname \"web1\"\nFQDNLookup false\nInterval 1\nTypesDB \"/usr/share/collectd/types.db\"\nBaseDir \"{}\"\n\
         LoadPlugin load\nLoadPlugin uptime\nLoadPlugin rrdcached\n\
         <Plugin rrdcached>\nDaemonAddress \"unix:{}\"\nDataDir \"{}\"\nCreateFiles true\nCreateFilesAsync false\n</Plugin>\n",
        folder.0.display(),
        rrdcached.socket,
        tree.display()
    );
    let file = folder.file("collectd.conf", configuration.as_bytes());
    let log = std::fs::File::create(folder.0.join("collectd.log")).unwrap();
    let started = Command::new("/usr/sbin/collectd")
        .args(["-f", "-C", file.to_str().unwrap(), "-P", folder.0.join("pid").to_str().unwrap()])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    let _daemon = Daemon(started.unwrap());
    let begun = Instant::now();
    let values = || -> usize {
        let query = "/api/v1/query?query=count_over_time(load_shortterm%7Bhost%3D%22web1%22%7D%5B5m%5D)";
        let parsed: Value = serde_json::from_str(&rrdcached.server.get(query).1).unwrap();
        let count = parsed["data"]["result"][0]["value"][1].as_str().unwrap_or("0");
        count.parse().unwrap()
    };
    while values() < 3 {
        let log = || std::fs::read_to_string(folder.0.join("collectd.log")).unwrap_or_default();
        assert!(begun.elapsed() < Duration::from_mins(1), "collectd wrote nothing: {}", log());
        std::thread::sleep(Duration::from_millis(200));
    }
    let files = rrdcached.server.get("/api/v1/rrd/files").1;
    assert!(files.contains("web1/load/load.rrd") && files.contains(r#""plugin":"load""#), "{files}");
    // Its files are fetched through the daemon as any other.
    let fetch = ["fetch", "--daemon", &rrdcached.address, "web1/load/load.rrd", "AVERAGE", "--start", "-60"];
    assert!(rrdtool(&folder.0, &fetch).unwrap().contains("shortterm"));
}

/// The shell blocks of the guide, but for the line that starts the server.
fn commands(guide: &str) -> String {
    let (mut out, mut is_shell) = (String::new(), false);
    for line in guide.lines() {
        match line {
            "```sh" => is_shell = true,
            "```" => is_shell = false,
            line if is_shell && !line.starts_with("thalweg serve") => {
                out.push_str(line);
                out.push('\n');
            }
            _ => {}
        }
    }
    out
}

#[test]
fn the_guides_commands_run() {
    if !is_there("rrdtool") {
        return;
    }
    let folder = Folder::new("rrd-guide");
    let tree = folder.0.join("rrd");
    std::fs::create_dir_all(tree.join("web1/load")).unwrap();
    let path = "web1/load/load.rrd";
    rrdtool(&tree, &[&["create", path][..], &DEFINITIONS].concat()).unwrap();
    rrdtool(&tree, &["update", path, "1700000060:1000:5", "1700000120:7000:7", "1700000180:9000:8"]).unwrap();
    let rrdcached = Rrdcached::start(&folder, &[]);
    let url = rrdcached.server.url();
    let guide = include_str!("../../../docs/guide/rrdtool.md");
    let script = commands(guide)
        .replace("127.0.0.1:42217", &rrdcached.address)
        .replace("http://127.0.0.1:7780", url)
        .replace("thalweg ", &format!("{PROGRAM} "));
    assert!(script.lines().count() > 10, "{script}");
    let output = Command::new("bash")
        .args(["-euxo", "pipefail", "-c", &script])
        .current_dir(&folder.0)
        .env("THALWEG_URL", url)
        .env("TZ", "UTC")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("1.0000000000e+02") && said.contains("8.0000000000e+02"), "{said}");
    // What was imported comes out as it was.
    let fetch = |folder: &Path| {
        rrdtool(folder, &["fetch", path, "AVERAGE", "--start", "1700000000", "--end", "1700000180"]).unwrap()
    };
    assert_eq!(fetch(&folder.0.join("exported")), fetch(&tree));
    assert!(folder.0.join("exported/router.xml").is_file() && folder.0.join("in.rrd").is_file());
    // Again: what is there is not replaced unasked.
    let again =
        run(&["import", "rrd", "--url", url, tree.to_str().unwrap(), "--pattern", "{host}/{a}/{measurement}.rrd"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("File exists"), "{}", text(&again.stderr));
    let again = run(&["import", "rrd", "--url", url, "--replace", tree.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
}
