//! DNS on the wire (RFC 1035), as far as a question with one name needs it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::DnsType;

/// A record of a kind that targets are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A or AAAA.
    Address(IpAddr),
    /// SRV.
    Service {
        /// The host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// MX.
    Mail(String),
    /// NS.
    NameServer(String),
}

/// What a server knows of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Its records.
    Records(Vec<Record>),
    /// There is no such name.
    NoSuchName,
}

/// Names may point to others so often.
const JUMPS_MAX: usize = 64;

const HEADER_BYTES: usize = 12;

const fn number(record: DnsType) -> u16 {
    match record {
        DnsType::A => 1,
        DnsType::Ns => 2,
        DnsType::Mx => 15,
        DnsType::Aaaa => 28,
        DnsType::Srv => 33,
    }
}

/// A question that a server is to answer with the help of others.
pub fn question(id: u16, name: &str, record: DnsType) -> Result<Vec<u8>, String> {
    let mut message = id.to_be_bytes().to_vec();
    // Recursion is desired; one question, and one further record that allows long answers.
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for part in name.split('.') {
        let length = u8::try_from(part.len()).ok().filter(|length| (1..64).contains(length));
        let length = length.ok_or_else(|| format!("{name:?} is no name of DNS"))?;
        message.push(length);
        message.extend_from_slice(part.as_bytes());
    }
    message.push(0);
    message.extend(number(record).to_be_bytes());
    message.extend([0, 1]);
    // EDNS: answers of up to 4,096 bytes.
    message.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
    if name.len() > 253 { Err(format!("{name:?} is no name of DNS")) } else { Ok(message) }
}

/// Returns whether an answer was cut.
pub fn is_truncated(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 2 != 0)
}

/// Reads the answer to a question.
pub fn read(answer: &[u8], question: &[u8], record: DnsType) -> Result<Answer, String> {
    let malformed = || "the answer is malformed".to_owned();
    if answer.get(..2) != question.get(..2) || answer.len() < HEADER_BYTES {
        return Err("the answer is not to the question".to_owned());
    }
    let word = |at: usize| Some(u16::from_be_bytes([*answer.get(at)?, *answer.get(at + 1)?]));
    match answer.get(3).map_or(0, |flags| flags & 15) {
        0 => {}
        3 => return Ok(Answer::NoSuchName),
        code => return Err(format!("the server answered with code {code}")),
    }
    let (questions, answers) = (word(4).unwrap_or(0), word(6).unwrap_or(0));
    let mut at = HEADER_BYTES;
    for _ in 0..questions {
        at = skip_name(answer, at).ok_or_else(malformed)? + 4;
    }
    let mut records = Vec::new();
    for _ in 0..answers {
        at = skip_name(answer, at).ok_or_else(malformed)?;
        let kind = word(at).ok_or_else(malformed)?;
        let length = usize::from(word(at + 8).ok_or_else(malformed)?);
        let start = at + 10;
        let data = answer.get(start..start + length).ok_or_else(malformed)?;
        if kind == number(record) {
            records.push(read_record(answer, start, data, record).ok_or_else(malformed)?);
        }
        at = start + length;
    }
    Ok(Answer::Records(records))
}

fn read_record(message: &[u8], start: usize, data: &[u8], record: DnsType) -> Option<Record> {
    Some(match record {
        DnsType::A => Record::Address(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?))),
        DnsType::Aaaa => Record::Address(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?))),
        DnsType::Srv => {
            let port = u16::from_be_bytes([*data.get(4)?, *data.get(5)?]);
            Record::Service { host: name_at(message, start + 6)?, port }
        }
        DnsType::Mx => Record::Mail(name_at(message, start + 2)?),
        DnsType::Ns => Record::NameServer(name_at(message, start)?),
    })
}

/// Where a name ends.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

fn name_at(message: &[u8], mut at: usize) -> Option<String> {
    let mut name = String::new();
    let mut jumps = 0;
    loop {
        match *message.get(at)? {
            0 => return Some(name),
            high if high >= 0xc0 => {
                jumps += 1;
                if jumps > JUMPS_MAX {
                    return None;
                }
                at = usize::from(high & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
            }
            length => {
                let part = message.get(at + 1..at + 1 + usize::from(length))?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(std::str::from_utf8(part).ok()?);
                if name.len() > 255 {
                    return None;
                }
                at += 1 + usize::from(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_never_trusted() {
        let question = question(0x1234, "_m._tcp.example.com", DnsType::Srv).unwrap();
        assert_eq!(&question[..4], [0x12, 0x34, 1, 0]);
        let mut answer = question[..question.len() - 11].to_vec();
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0]);
        // An alias, which is not asked for, and a service whose host ends as the question's name does.
        answer.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, 12]);
        answer.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 9, 0, 11, 0, 1, 0, 2, 0x23, 0x8c, 2, b'h', b'1', 0xc0, 20]);
        let expected = Answer::Records(vec![Record::Service { host: "h1.example.com".to_owned(), port: 9100 }]);
        assert_eq!(read(&answer, &question, DnsType::Srv).unwrap(), expected);
        for length in 0..answer.len() {
            let _ = read(&answer[..length], &question, DnsType::Srv);
            assert!(length < 12 || read(&answer[..length], &question, DnsType::Srv) != Ok(expected.clone()));
        }
        let mut missing = answer.clone();
        missing[3] = 0x83;
        assert_eq!(read(&missing, &question, DnsType::Srv), Ok(Answer::NoSuchName));
        missing[0] = 9;
        assert!(read(&missing, &question, DnsType::Srv).is_err());
        // A name that points to itself.
        let at = answer.len() - 2;
        answer[at..].copy_from_slice(&[0xc0, at as u8]);
        assert!(read(&answer, &question, DnsType::Srv).is_err());
        assert!(super::question(1, "a..b", DnsType::A).is_err());
    }
}
