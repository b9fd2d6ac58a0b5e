//! The file `q` of a multipart form (RFC 7578): statements, as `curl -F "q=@queries.txt"` sends them.

use axum::http::{HeaderMap, header};
use memchr::memmem;

use crate::error::ApiError;

/// The part named `q`, if the body is a multipart form and has one.
pub(super) fn query_file(headers: &HeaderMap, body: &[u8]) -> Result<Option<String>, ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(parameters) = content_type.strip_prefix("multipart/form-data") else {
        return Ok(None);
    };
    let boundary = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("boundary="));
    let Some(boundary) = boundary.map(|boundary| boundary.trim_matches('"')).filter(|boundary| !boundary.is_empty())
    else {
        return Err(ApiError::bad_data("the multipart form has no boundary"));
    };
    match part(body, boundary, "q") {
        None => Ok(None),
        Some(text) => match String::from_utf8(text.to_vec()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(ApiError::bad_data("the query is not UTF-8")),
        },
    }
}

/// The content of the part of a name.
fn part<'b>(body: &'b [u8], boundary: &str, name: &str) -> Option<&'b [u8]> {
    let delimiter = format!("--{boundary}");
    let wanted = format!("name=\"{name}\"");
    let places: Vec<usize> = memmem::find_iter(body, delimiter.as_bytes()).collect();
    places.windows(2).find_map(|pair| {
        let [start, end] = pair else { return None };
        let part = body.get(start + delimiter.len()..*end)?;
        let head_end = memmem::find(part, b"\r\n\r\n")?;
        let head = part.get(..head_end)?;
        memmem::find(head, wanted.as_bytes())?;
        let content = part.get(head_end + 4..)?;
        Some(content.strip_suffix(b"\r\n").unwrap_or(content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_q_is_found() {
        let body = b"--xx\r\nContent-Disposition: form-data; name=\"db\"\r\n\r\nd\r\n--xx\r\n\
                     Content-Disposition: form-data; name=\"q\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n\
                     select a\nfrom m\r\n--xx--\r\n";
        let mut headers = HeaderMap::new();
        assert_eq!(query_file(&headers, body).unwrap(), None);
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("multipart/form-data; boundary=xx"));
        assert_eq!(query_file(&headers, body).unwrap().as_deref(), Some("select a\nfrom m"));
        assert_eq!(query_file(&headers, b"--xx\r\n").unwrap(), None);
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("multipart/form-data"));
        assert!(query_file(&headers, body).is_err());
    }
}
