//! Stands between client and server and spoils requests as a script says. One request a connection: it asks the server
//! to close behind its answer, which also tells where the answer ends.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const HEAD_BYTES_MAX: usize = 1 << 16;
/// Less than any timeout of the tests.
const SLOW: Duration = Duration::from_millis(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None.
    Pass,
    /// Answers with a status and an S3 error code; the server hears nothing.
    Answer(u16, &'static str),
    /// Takes the request and never answers; the server hears nothing.
    Stall,
    /// Hands half of the request's body to the server, then cuts both connections.
    CutUpload,
    /// Hands the request on, and half of the answer back, then cuts the connection.
    CutDownload,
    /// Hands the request on, and the first half of the answer back, then stays silent.
    StallDownload,
    /// Hands the request on; the answer is lost with the connection.
    LoseAnswer,
    /// Cuts the connection before anything was read.
    Refuse,
    /// Hands all on; the answer's first byte comes late, and then it comes in pieces.
    Slow,
}

#[derive(Debug, Default)]
struct Script {
    next: VecDeque<Fault>,
    then: Option<Fault>,
    requests: u64,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Proxy {
    pub(crate) fn start(runtime: &Runtime, server: SocketAddr) -> Self {
        let script: Arc<Mutex<Script>> = Arc::default();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("its address");
        let scripted = script.clone();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                client.set_nodelay(true).expect("nodelay");
                let fault = scripted.lock().expect("script").take();
                tokio::spawn(async move {
                    // Whatever ends a connection early is the test's intention or shows in its outcome.
                    let _ = relay(client, server, fault).await;
                });
            }
        });
        Self { address, script }
    }

    /// These faults, one a request, then none.
    pub(crate) fn play(&self, faults: &[Fault]) {
        *self.script.lock().expect("script") = Script { next: faults.iter().copied().collect(), ..Script::default() };
    }

    /// This fault for every request.
    pub(crate) fn repeat(&self, fault: Fault) {
        *self.script.lock().expect("script") = Script { then: Some(fault), ..Script::default() };
    }

    /// Requests since the script began.
    pub(crate) fn requests(&self) -> u64 {
        self.script.lock().expect("script").requests
    }
}

impl Script {
    fn take(&mut self) -> Fault {
        self.requests += 1;
        self.next.pop_front().or(self.then).unwrap_or(Fault::Pass)
    }
}

async fn relay(mut client: TcpStream, server: SocketAddr, fault: Fault) -> std::io::Result<()> {
    if fault == Fault::Refuse {
        return Ok(());
    }
    let (head, mut body, length) = read_head(&mut client).await?;
    if fault == Fault::CutUpload {
        let mut server = TcpStream::connect(server).await?;
        server.write_all(&head).await?;
        while body.len() < length / 2 && client.read_buf(&mut body).await? > 0 {}
        server.write_all(&body[..(length / 2).min(body.len())]).await?;
        return server.flush().await;
    }
    while body.len() < length {
        if client.read_buf(&mut body).await? == 0 {
            return Ok(());
        }
    }
    match fault {
        Fault::Answer(status, code) => return answer(&mut client, status, code).await,
        Fault::Stall => return until_closed(&mut client).await,
        _ => {}
    }
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    server.write_all(&head).await?;
    server.write_all(&body).await?;
    let mut whole = Vec::new();
    server.read_to_end(&mut whole).await?;
    let half = &whole[..whole.len() / 2];
    match fault {
        Fault::LoseAnswer => Ok(()),
        Fault::CutDownload => client.write_all(half).await,
        Fault::StallDownload => {
            client.write_all(half).await?;
            until_closed(&mut client).await
        }
        Fault::Slow => {
            tokio::time::sleep(SLOW).await;
            for piece in whole.chunks(whole.len().div_ceil(7).max(1)) {
                client.write_all(piece).await?;
                client.flush().await?;
            }
            Ok(())
        }
        _ => client.write_all(&whole).await,
    }
}

/// The request's head as it goes to the server, what came of the body, and the body's length.
async fn read_head(client: &mut TcpStream) -> std::io::Result<(Vec<u8>, Vec<u8>, usize)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 2;
        }
        if bytes.len() > HEAD_BYTES_MAX || client.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let body = bytes.split_off(end + 2);
    bytes.truncate(end);
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    bytes.extend_from_slice(b"connection: close\r\n\r\n");
    Ok((bytes, body, length))
}

async fn answer(client: &mut TcpStream, status: u16, code: &str) -> std::io::Result<()> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>scripted</Message></Error>");
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await?;
    client.write_all(body.as_bytes()).await
}

/// Keeps the connection until the client gives up.
async fn until_closed(client: &mut TcpStream) -> std::io::Result<()> {
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.map(drop)
}
