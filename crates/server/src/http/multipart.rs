//! Multipart forms (RFC 7578), as `curl -F` sends them: parameters, and files of statements.

use axum::http::{HeaderMap, header};
use memchr::memmem;

use crate::error::ApiError;

/// Parts that a form may have.
const PARTS_MAX: usize = 10_000;

/// What a part says of itself, and its content.
struct Part<'b> {
    name: String,
    /// The name of the file that it is, if it is one.
    file: Option<String>,
    content: &'b [u8],
}

/// Returns whether a request's body is a multipart form.
pub(crate) fn is_multipart(headers: &HeaderMap) -> bool {
    content_type(headers).split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("multipart/form-data")
}

/// Names and values of the parts that are no files; none if the body is no multipart form.
pub(crate) fn texts(headers: &HeaderMap, body: &[u8]) -> Result<Vec<(String, String)>, ApiError> {
    let texts = parts(headers, body)?.into_iter().filter(|part| part.file.is_none());
    let text = |part: Part<'_>| match std::str::from_utf8(part.content) {
        Ok(text) => Ok((part.name, text.to_owned())),
        Err(_) => Err(ApiError::bad_data(format!("the part {:?} of the form is not UTF-8", part.name))),
    };
    texts.map(text).collect()
}

/// The part named `q`, a text or a file, if the body is a multipart form and has one: `curl -F "q=@queries.txt"`.
pub(crate) fn query_file(headers: &HeaderMap, body: &[u8]) -> Result<Option<String>, ApiError> {
    match parts(headers, body)?.into_iter().find(|part| part.name == "q") {
        None => Ok(None),
        Some(part) => match String::from_utf8(part.content.to_vec()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(ApiError::bad_data("the query is not UTF-8")),
        },
    }
}

/// A part's content, and the name of the file that it is.
pub(crate) struct NamedFile<'b> {
    pub(crate) file: Option<String>,
    pub(crate) content: &'b [u8],
}

/// The part of a name, if the body is a multipart form and has one.
pub(crate) fn part<'b>(headers: &HeaderMap, body: &'b [u8], name: &str) -> Result<Option<NamedFile<'b>>, ApiError> {
    let found = parts(headers, body)?.into_iter().find(|part| part.name == name);
    Ok(found.map(|Part { file, content, .. }| NamedFile { file, content }))
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn parts<'b>(headers: &HeaderMap, body: &'b [u8]) -> Result<Vec<Part<'b>>, ApiError> {
    if !is_multipart(headers) {
        return Ok(Vec::new());
    }
    let boundary = parameter(content_type(headers), "boundary").filter(|boundary| !boundary.is_empty());
    let Some(boundary) = boundary else {
        return Err(ApiError::bad_data("the multipart form has no boundary"));
    };
    let delimiter = format!("--{boundary}");
    // A body may be delimiters and nothing else: it is gone through without noting where they are.
    let (mut parts, mut start) = (Vec::new(), None);
    for end in memmem::find_iter(body, delimiter.as_bytes()) {
        let part = start.replace(end + delimiter.len()).and_then(|start| read_part(body.get(start..end)?));
        if part.is_some() && parts.len() == PARTS_MAX {
            return Err(ApiError::bad_data(format!("a form has at most {PARTS_MAX} parts")));
        }
        parts.extend(part);
    }
    Ok(parts)
}

fn read_part(part: &[u8]) -> Option<Part<'_>> {
    let head_end = memmem::find(part, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(part.get(..head_end)?);
    let disposition = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let content = part.get(head_end + 4..)?;
    let content = content.strip_suffix(b"\r\n").unwrap_or(content);
    Some(Part { name: parameter(disposition, "name")?, file: parameter(disposition, "filename"), content })
}

/// A parameter of a header's value: `form-data; name="q"`.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    value.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches('"').to_owned())
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
        assert_eq!(texts(&headers, body).unwrap(), [("db".to_owned(), "d".to_owned())]);
        assert_eq!(query_file(&headers, b"--xx\r\n").unwrap(), None);
        let invalid = b"--xx\r\nContent-Disposition: form-data; name=\"db\"\r\n\r\n\xff\r\n--xx--\r\n";
        assert!(texts(&headers, invalid).unwrap_err().message.contains("\"db\" of the form is not UTF-8"));
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("multipart/form-data"));
        assert!(query_file(&headers, body).is_err());
    }

    #[test]
    fn a_form_of_very_many_parts_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("multipart/form-data; boundary=x"));
        let part = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n";
        assert_eq!(texts(&headers, format!("{}--x--", part.repeat(PARTS_MAX)).as_bytes()).unwrap().len(), PARTS_MAX);
        let error = texts(&headers, format!("{}--x--", part.repeat(PARTS_MAX + 1)).as_bytes()).unwrap_err();
        assert!(error.message.contains("at most 10000 parts"));
        assert!(texts(&headers, "--x".repeat(1_000_000).as_bytes()).unwrap().is_empty());
    }
}
