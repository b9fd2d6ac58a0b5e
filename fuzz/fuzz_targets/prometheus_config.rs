//! What scraping reads: a configuration, whose text without secrets can be read again; answers of DNS; XML. The first byte says which.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use scrape::config::{self, DnsType};
use scrape::aws;
use scrape::discovery::dns;

fuzz_target!(|input: &[u8]| {
    let Some((kind, body)) = input.split_first() else { return };
    match kind {
        b'd' => {
            let question = dns::message::question(0x6161, "a.example", DnsType::Srv).expect("a name");
            for record in [DnsType::A, DnsType::Aaaa, DnsType::Srv, DnsType::Mx, DnsType::Ns] {
                let _ = dns::message::read(body, &question, record);
            }
        }
        b'x' => {
            if let Ok(text) = std::str::from_utf8(body) {
                let _ = aws::xml::parse(text);
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(input) else { return };
            let variable = |_: &str| Some("value".to_owned());
            if let Ok(loaded) = config::parse(Path::new("p.yml"), text, &variable) {
                let again = config::parse(Path::new("p.yml"), &loaded.config.redacted, &variable);
                let again = again.expect("what is shown can be read").config;
                assert_eq!(again.scrape_configs.len(), loaded.config.scrape_configs.len());
            }
        }
    }
});
