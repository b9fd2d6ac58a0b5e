//! `thalweg tail`: against a server of the program, and against one that breaks off.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use support::{Folder, PROGRAM, TestServer, agent};

fn tail(arguments: &[&str]) -> Child {
    Command::new(PROGRAM).arg("tail").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn lines(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    BufReader::new(child.stdout.take().unwrap())
}

fn next(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn samples_are_shown_as_they_are_written() {
    let folder = Folder::new("tail");
    let server = TestServer::start(&folder.0, &[]);
    let write = |lines: &str| agent().post(format!("{}/write", server.url())).send(lines).unwrap();
    write("cpu,host=a v=1 1000000000");
    // What is on disk already is shown from the beginning of the log.
    let mut shown = tail(&["--url", server.url(), "--since", "0", "cpu_v{host=\"a\"}"]);
    let mut as_json = tail(&["--url", server.url(), "--since", "0", "--json", "cpu_v"]);
    let (mut text, mut json) = (lines(&mut shown), lines(&mut as_json));
    assert_eq!(next(&mut text), "1970-01-01T00:00:01Z cpu_v{host=\"a\"} 1");
    let expected = r#"{"labels":{"__name__":"cpu_v","host":"a"},"time":"1970-01-01T00:00:01Z","value":1}"#;
    assert_eq!(next(&mut json), expected);
    write("cpu,host=b v=2 2000000000\ncpu,host=a v=3 2000000000");
    assert_eq!(next(&mut text), "1970-01-01T00:00:02Z cpu_v{host=\"a\"} 3");
    // Ctrl-C ends it, and is no failure.
    Command::new("kill").args(["-INT", &shown.id().to_string()]).status().unwrap();
    assert!(shown.wait().unwrap().success());
    // So is a reader that has enough.
    drop(json);
    write("cpu,host=a v=4 3000000000");
    write("cpu,host=a v=5 4000000000");
    assert!(as_json.wait().unwrap().success());
    let mut unknown = tail(&["--url", server.url(), "--db", "nosuch"]);
    assert_eq!(unknown.wait().unwrap().code(), Some(2));
}

/// Reads a request's head; its path.
fn path(socket: &TcpStream) -> String {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let path = next(&mut reader).split(' ').nth(1).unwrap().to_owned();
    while !next(&mut reader).is_empty() {}
    path
}

#[test]
fn a_stream_that_breaks_off_is_resumed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut child = tail(&["--url", &url, "--json"]);
    let answer = |events: &str| {
        let (mut socket, _) = listener.accept().unwrap();
        let path = path(&socket);
        write!(socket, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{events}")
            .unwrap();
        path
    };
    // The last event is not whole: it comes again.
    assert_eq!(answer(": heartbeat\nid: 4\n\ndata: {\"a\":1}\nid: 5\n\ndata: {\"a\":2}\n"), "/api/v1/tail?db=default");
    let end = "event: end\ndata: {\"reason\":\"forbidden\",\"message\":\"the token has expired\",\"sequence\":6}\n\n";
    assert_eq!(answer(&format!("data: {{\"a\":2}}\nid: 6\n\n{end}")), "/api/v1/tail?db=default&since=5");
    let mut text = lines(&mut child);
    assert_eq!(
        (next(&mut text), next(&mut text), next(&mut text)),
        ("{\"a\":1}".into(), "{\"a\":2}".into(), String::new())
    );
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(errors.contains("connecting again") && errors.contains("the token has expired"), "{errors}");
}
