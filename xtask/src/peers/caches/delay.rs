//! A server at a distance: what stands before it on loopback and holds each of its answers back for so long.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// What is read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks of a connection that wait to be passed on; more wait in the server.
const WAITING_CHUNKS_MAX: usize = 1024;

/// Passes connections on to a server, and its answers back, late. Its own address ends with it.
pub(super) struct Delay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Delay {
    pub(super) fn start(server: &str, delay: Duration) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("cannot stand before {server}: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(told)?;
        let address = listener.local_addr().map_err(told)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let accepting = spawn({
            let (is_over, server) = (is_over.clone(), server.to_owned());
            move || {
                for client in listener.incoming().flatten() {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    // Without a server the connection ends at once, as it would without this.
                    if let Ok(server) = TcpStream::connect(&server) {
                        let _ = connect(client, server, delay);
                    }
                }
            }
        });
        Ok(Self { address, is_over, accepting: Some(accepting) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// Starts to pass on what either side sends; each of the threads ends with its side of the connection.
fn connect(client: TcpStream, server: TcpStream, delay: Duration) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (sender, receiver) = sync_channel(WAITING_CHUNKS_MAX);
    spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    spawn(move || receive(server, &sender, delay));
    spawn(move || pass_on(client, &receiver));
    Ok(())
}

fn receive(mut server: TcpStream, sender: &SyncSender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = server.read(&mut chunk) {
        let bytes = chunk.get(..count).unwrap_or_default().to_vec();
        if sender.send((Instant::now() + delay, bytes)).is_err() {
            return;
        }
    }
}

fn pass_on(mut client: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    for (due, bytes) in receiver {
        sleep(due.saturating_duration_since(Instant::now()));
        if client.write_all(&bytes).is_err() {
            return;
        }
    }
    // The server has ended its side; if the client is gone, nobody is left to tell.
    let _ = client.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_whole_and_not_before_their_time() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        let answer: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
        let answering = spawn({
            let answer = answer.clone();
            move || {
                let (mut stream, _) = server.accept().unwrap();
                for _ in 0..2 {
                    let mut asked = [0; 4];
                    stream.read_exact(&mut asked).unwrap();
                    assert_eq!(&asked, b"ask\n");
                    stream.write_all(&answer).unwrap();
                }
            }
        });
        let delay = Duration::from_millis(30);
        let proxy = Delay::start(&address, delay).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for _ in 0..2 {
            let asked = Instant::now();
            client.write_all(b"ask\n").unwrap();
            let mut got = vec![0; answer.len()];
            client.read_exact(&mut got).unwrap();
            assert!(got == answer && asked.elapsed() >= delay);
        }
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "the end is passed on too");
        answering.join().unwrap();
        drop(proxy);
    }
}
