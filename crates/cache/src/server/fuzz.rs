//! The protocol over bytes, without a socket.

use std::io;
use std::sync::Arc;

use super::connections::Peer;
use super::wire::Wire;
use super::{ServerOptions, Service};
use crate::Cache;

/// See [`crate::fuzzing::protocol`].
pub(crate) fn protocol(bytes: &[u8]) {
    let Some((0, body)) = bytes.split_first() else { return session(bytes) };
    if let Ok(answer) = crate::formats::columns::read(body) {
        let written = crate::formats::columns::write(&answer);
        let again = crate::formats::columns::read(&written).map(|again| crate::formats::columns::write(&again));
        assert!(again.is_ok_and(|again| again == written), "what was read is written so that it is read again");
    }
    let set = format!("tset a -1000 100000 {} columns\r\n", body.len());
    let get = b"\r\ntget a -1000 100000 columns\r\ntget a -1000 100000\r\n";
    session(&[set.as_bytes(), body, get].concat());
}

fn session(bytes: &[u8]) {
    struct Bytes<'a>(&'a [u8]);
    impl io::Read for Bytes<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }
    impl io::Write for Bytes<'_> {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            Ok(buffer.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Peer for Bytes<'_> {}
    let platform = platform::sim::Simulation::new(1).platform();
    let mut options = crate::Options::new("cache/flash", 2 << 20);
    options.slab_bytes = 16 << 10;
    options.read_threads = 0;
    if let Ok(cache) = Cache::open(&platform, options) {
        let options = ServerOptions { body_bytes_max: 64 << 10, wait_ms_max: 0, ..ServerOptions::default() };
        // Hostile bytes end in an error as often as not.
        let _ = super::session::serve(&Service::new(Arc::new(cache), options), &mut Wire::new(Bytes(bytes)));
    }
}
