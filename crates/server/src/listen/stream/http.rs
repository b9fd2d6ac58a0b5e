//! Tells HTTP from lines: a page can have a browser post to any port, and the body of such a request may well be lines.

/// How requests of HTTP/1 begin.
const METHODS: [&str; 9] = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "CONNECT", "TRACE"];

/// Whether what a client sent first begins with a request of HTTP/1. Blank lines before it are of no meaning there.
///
/// The whole first line is looked at: `GET /a HTTP/1.1`. It is data of no protocol, for `HTTP/1.1` stands where a time is expected;
/// a quote, which would begin a text that goes on in the next line, does not occur in targets.
pub(super) fn is_request(sent: &[u8]) -> bool {
    let mut lines = sent.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let Some(line) = lines.find(|line| !line.is_empty()) else { return false };
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    METHODS.iter().any(|known| known.as_bytes() == method) && version.starts_with(b"HTTP/") && !target.contains(&b'"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_lines() {
        for text in [
            "POST / HTTP/1.1\r\nHost: x\r\n\r\nm v=1\n",
            "GET /a?b=c%22 HTTP/1.0\n",
            "\r\n\r\nOPTIONS * HTTP/1.1\r\n",
            "CONNECT a:1 HTTP/1.1\n",
        ] {
            assert!(is_request(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "\n",
            "GET v=1 1\n",
            "POST v=1\nPOST / HTTP/1.1\n",
            "GET /=\"a HTTP/1.1\nb\" 1\n",
            "GET 1 2\n",
            "post / HTTP/1.1\n",
            "put m 1 2 a=b\n",
        ] {
            assert!(!is_request(text.as_bytes()), "{text}");
        }
    }
}
