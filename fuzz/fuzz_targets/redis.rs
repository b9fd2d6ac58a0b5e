//! Redis's protocol and its commands over a database: whatever bytes come, there are replies or the connection ends.
#![no_main]

use std::sync::{Arc, OnceLock};

use db::{Db, DbOptions};
use libfuzzer_sys::fuzz_target;
use platform::sim::Simulation;
use query::Budget;
use redis::protocol::{Limits as RequestLimits, Parser, ReplyWriter};
use redis::{Access, Limits, NewSeriesGate, Right, Service};
use thalweg_fuzz as _;

/// What a request may hold.
const SAMPLES_MAX: u64 = 100_000;

struct Everybody;

impl Access for Everybody {
    fn is_signed_in(&self) -> bool {
        true
    }

    fn sign_in(&mut self, _: &str, _: &str) -> Result<(), String> {
        Err("nobody signs in here".to_owned())
    }

    fn sign_out(&mut self) {}

    fn check(&self, _: Right, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn budget(&self, _: &str) -> Arc<Budget> {
        Arc::new(Budget::new(SAMPLES_MAX))
    }

    fn series_gate(&self, _: &str) -> NewSeriesGate {
        Box::new(|_| Ok(()))
    }

    fn hold_bytes(&mut self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn note_samples(&self, _: &str, _: u64) {}
}

fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let db = Db::open(Simulation::new(1).platform(), DbOptions::new("/data")).expect("an empty folder opens");
        let limits = Limits { ahead_ms_max: u64::MAX, reply_bytes_max: 1 << 20, ..Limits::default() };
        Service::new(Arc::new(db), limits)
    })
}

fn run(input: &[u8]) -> Vec<u8> {
    let (mut parser, mut requests, mut at) = (Parser::default(), Vec::new(), 0);
    while let Ok(Some(mut request)) = parser.next(&input[at..], &RequestLimits::default()) {
        assert!(request.bytes > 0 && request.bytes <= input.len() - at);
        request.arguments.iter_mut().for_each(|range| *range = range.start + at..range.end + at);
        at += request.bytes;
        requests.push(request);
    }
    let (mut session, mut out) = (service().session(), ReplyWriter::default());
    let _ = service().run(&mut session, &mut Everybody, (input, &requests), &mut out);
    out.take()
}

fuzz_target!(init: { service(); }, |input: &[u8]| {
    redis::fuzzing::requests(input);
    let _ = run(input);
    // Inputs must not see what others left behind.
    assert_eq!(run(b"FLUSHALL\n"), b"+OK\r\n");
});
