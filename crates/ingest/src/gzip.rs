//! Bounded decompression of gzip bodies.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::BodyError;

/// Unpacks a gzip body (RFC 1952, any number of members), refusing one that unpacks to more than `size_bytes_max`.
pub fn decompress_gzip(body: &[u8], size_bytes_max: usize) -> Result<Vec<u8>, BodyError> {
    // Text shrinks five to ten times. A hint only: a small body that claims nothing cannot make us reserve much.
    let mut unpacked = Vec::with_capacity(body.len().saturating_mul(6).min(size_bytes_max));
    // One byte more than allowed tells "just fits" from "too large".
    let mut reader = MultiGzDecoder::new(body).take(size_bytes_max as u64 + 1);
    reader.read_to_end(&mut unpacked).map_err(|error| BodyError::Malformed(format!("not a gzip body: {error}")))?;
    if unpacked.len() > size_bytes_max {
        return Err(BodyError::TooLarge { size_bytes_max: size_bytes_max as u64, limit: "the body, unpacked" });
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn pack(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn unpacks_within_the_bound_and_no_further() {
        let text = vec![b'x'; 10_000];
        assert_eq!(decompress_gzip(&pack(&text), 10_000).unwrap(), text);
        assert_eq!(decompress_gzip(&[pack(b"a"), pack(b"b")].concat(), 2).unwrap(), b"ab");
        let too_large = BodyError::TooLarge { size_bytes_max: 9_999, limit: "the body, unpacked" };
        assert_eq!(decompress_gzip(&pack(&text), 9_999).unwrap_err(), too_large);
        for bad in [&b""[..], b"plain", &pack(&text)[..20]] {
            assert!(matches!(decompress_gzip(bad, 100_000), Err(BodyError::Malformed(_))), "{bad:?}");
        }
    }
}
