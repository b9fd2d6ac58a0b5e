//! The names in a certificate (RFC 5280): what a client that shows one can be called. Only names and the end of its time are read; whether it
//! is genuine is not checked here.

/// The names of a certificate, and when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateNames {
    /// Subject alternative names: DNS names in lower case, e-mail addresses, URIs.
    pub alternative: Vec<String>,
    /// Addresses among the subject alternative names, as text.
    pub addresses: Vec<String>,
    /// The subject's common name.
    pub common: Option<String>,
    /// The end of its validity, seconds since the Unix epoch.
    pub not_after_s: i64,
}

impl CertificateNames {
    /// The names by which an account can be found, the subject's last.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.alternative.iter().chain(&self.common).map(String::as_str)
    }

    /// Returns whether a subject alternative name, an address among them, is on a list.
    pub fn has_alternative(&self, allowed: &[String]) -> bool {
        self.alternative.iter().chain(&self.addresses).any(|name| allowed.contains(name))
    }

    /// Reads a certificate in DER; an error says where it is damaged.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let damaged = || "the certificate is damaged".to_owned();
        read(der).ok_or_else(damaged)
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0]` of the version, `[3]` of the extensions.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `rfc822Name`, `dNSName`, `uniformResourceIdentifier` and `iPAddress` of a `GeneralName`.
const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const ADDRESS: u8 = 0x87;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Values of DER, one after another.
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// The next value's tag and content; `None` at the end, and where the bytes are damaged.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The next value, which has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// The next value if it has this tag; otherwise it stays.
    fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&tag) { self.expect(tag) } else { None }
    }
}

fn read(der: &[u8]) -> Option<CertificateNames> {
    let mut certificate = Values(Values(Values(der).expect(SEQUENCE)?).expect(SEQUENCE)?);
    certificate.optional(VERSION);
    // Serial number, signature's algorithm, issuer.
    for _ in 0..3 {
        certificate.next()?;
    }
    let mut validity = Values(certificate.expect(SEQUENCE)?);
    validity.next()?;
    let (tag, not_after) = validity.next()?;
    let common = common_name(certificate.expect(SEQUENCE)?);
    // The subject's key.
    certificate.next()?;
    let mut names = CertificateNames { common, not_after_s: time_s(tag, not_after)?, ..CertificateNames::default() };
    while let Some((tag, content)) = certificate.next() {
        if tag == EXTENSIONS {
            let mut extensions = Values(Values(content).expect(SEQUENCE)?);
            while let Some(extension) = extensions.expect(SEQUENCE) {
                let mut extension = Values(extension);
                let id = extension.expect(OBJECT_ID)?;
                extension.optional(BOOLEAN);
                if id == ALTERNATIVE_NAMES {
                    names.read_alternative(Values(extension.expect(OCTETS)?).expect(SEQUENCE)?)?;
                }
            }
        }
    }
    Some(names)
}

impl CertificateNames {
    fn read_alternative(&mut self, content: &[u8]) -> Option<()> {
        let mut values = Values(content);
        while let Some((tag, name)) = values.next() {
            match tag {
                DNS => self.alternative.push(text(name)?.to_ascii_lowercase()),
                EMAIL | URI => self.alternative.push(text(name)?),
                ADDRESS => self.addresses.push(address(name)?),
                // Other kinds name no account.
                _ => {}
            }
        }
        Some(())
    }
}

/// The last common name of a subject, which is the most specific one.
fn common_name(subject: &[u8]) -> Option<String> {
    let (mut parts, mut common) = (Values(subject), None);
    while let Some(part) = parts.expect(SET) {
        let mut attributes = Values(part);
        while let Some(attribute) = attributes.expect(SEQUENCE) {
            let mut attribute = Values(attribute);
            let id = attribute.expect(OBJECT_ID)?;
            if id == COMMON_NAME {
                common = attribute.next().and_then(|(_, value)| text(value)).or(common);
            }
        }
    }
    common
}

/// A name as text. One with a control character, which could be taken for another one elsewhere, is none.
fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_name = !text.is_empty() && !text.chars().any(char::is_control);
    is_name.then(|| text.to_owned())
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string())).ok()
}

/// A time as certificates write it: `YYMMDDhhmmssZ` until 2049, `YYYYMMDDhhmmssZ` after that.
fn time_s(tag: u8, bytes: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(bytes).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = digits.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits.get(2..)?)
        }
        (GENERALIZED_TIME, 14) => (digits.get(..4)?.parse().ok()?, digits.get(4..)?),
        _ => return None,
    };
    let part = |start: usize| rest.get(start..start + 2)?.parse::<i64>().ok();
    let (month, day) = (part(0).filter(|month| (1..=12).contains(month))?, part(2)?);
    let seconds = part(4)? * 3_600 + part(6)? * 60 + part(8)?;
    Some(days_from_epoch(year, month, day) * 86_400 + seconds)
}

/// Days from 1970-01-01 in the Gregorian calendar; years begin in March, so that the leap day is their last.
const fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, month) = (year.div_euclid(400), (month + 9) % 12);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let mut bytes = vec![tag];
        match length {
            0..=127 => bytes.push(length as u8),
            _ => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        bytes.extend(content);
        bytes
    }

    fn certificate(common: &[u8], alternative: &[(u8, &[u8])], not_after: &[u8]) -> Vec<u8> {
        let name = value(SEQUENCE, &[value(OBJECT_ID, COMMON_NAME), value(0x0c, common)].concat());
        let names: Vec<u8> = alternative.iter().flat_map(|(tag, name)| value(*tag, name)).collect();
        let names = [value(OBJECT_ID, ALTERNATIVE_NAMES), value(OCTETS, &value(SEQUENCE, &names))].concat();
        let validity = [value(UTC_TIME, b"200101000000Z"), value(UTC_TIME, not_after)].concat();
        let fields = [
            value(VERSION, &value(0x02, &[2])),
            value(0x02, &[1]),
            value(SEQUENCE, b""),
            value(SEQUENCE, b""),
            value(SEQUENCE, &validity),
            value(SEQUENCE, &value(SET, &name)),
            value(SEQUENCE, b""),
            value(EXTENSIONS, &value(SEQUENCE, &value(SEQUENCE, &names))),
        ];
        value(SEQUENCE, &value(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn names_of_all_kinds_are_read() {
        let alternative: [(u8, &[u8]); 5] = [
            (DNS, b"DB.example"),
            (EMAIL, b"a@b.example"),
            (URI, b"spiffe://a/B"),
            (ADDRESS, &[127, 0, 0, 1]),
            (0xa0, b"x"),
        ];
        let names = CertificateNames::parse(&certificate(b"alice", &alternative, b"491231235959Z")).unwrap();
        assert_eq!(names.all().collect::<Vec<_>>(), ["db.example", "a@b.example", "spiffe://a/B", "alice"]);
        assert!(names.has_alternative(&["127.0.0.1".to_owned()]) && !names.has_alternative(&["alice".to_owned()]));
        assert_eq!(names.not_after_s, 2_524_607_999);
    }

    #[test]
    fn damaged_ones_are_refused_and_none_panics() {
        let whole = certificate(b"alice", &[(DNS, b"a")], b"300101000000Z");
        for length in 0..whole.len() {
            assert!(CertificateNames::parse(&whole[..length]).is_err(), "{length}");
        }
        for position in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[position] = byte;
                let _ = CertificateNames::parse(&changed);
            }
        }
        assert!(CertificateNames::parse(&certificate(b"a", &[(DNS, b"a\0b")], b"300101000000Z")).is_err());
        assert!(CertificateNames::parse(&certificate(b"a", &[], b"301301000000Z")).is_err());
    }

    #[test]
    fn times_are_of_both_forms() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229000000Z", Some(951_782_400)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "500101000000Z", None),
            (UTC_TIME, "7001010000Z", None),
        ] {
            assert_eq!(time_s(tag, text.as_bytes()), expected, "{text}");
        }
    }
}
