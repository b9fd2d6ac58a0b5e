//! Texts of callers.

use std::ffi::c_char;

use embedded::Error;

/// A text: UTF-8 with a length, without a zero at the end. A null `data` is the empty text. `thalweg_str("…")` makes one of a literal.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_str_t {
    /// The first byte.
    pub data: *const c_char,
    /// How many bytes there are.
    pub len: usize,
}

impl thalweg_str_t {
    /// A text that lives as long as what it was taken from.
    pub(crate) const fn new(text: &str) -> Self {
        Self { data: text.as_ptr().cast(), len: text.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    /// `data` is null or has `len` readable bytes that nothing changes for as long as they are used.
    pub(crate) const unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.data.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: the address is not null; the caller vouches for the bytes.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.len) }
    }

    /// The text; `what` names it in the error.
    ///
    /// # Safety
    /// As for [`thalweg_str_t::bytes`].
    pub(crate) unsafe fn text<'a>(self, what: &str) -> Result<&'a str, Error> {
        // SAFETY: the caller vouches for the bytes.
        let bytes = unsafe { self.bytes() };
        std::str::from_utf8(bytes).map_err(|error| Error::invalid(format!("{what} is not UTF-8: {error}")))
    }

    /// The name of a database; the default one if it is empty.
    ///
    /// # Safety
    /// As for [`thalweg_str_t::bytes`].
    pub(crate) unsafe fn database<'a>(self) -> Result<&'a str, Error> {
        // SAFETY: the caller vouches for the bytes.
        let name = unsafe { self.text("the database's name") }?;
        Ok(if name.is_empty() { embedded::DEFAULT_DATABASE } else { name })
    }
}

/// Elements of a caller's array.
///
/// # Safety
/// `data` is null or has `len` initialised elements that nothing changes for as long as they are used.
pub(crate) unsafe fn elements<'a, T>(data: *const T, len: usize, what: &str) -> Result<&'a [T], Error> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Error::invalid(format!("{what} is null and has {len} elements")));
    }
    // SAFETY: the address is not null; the caller vouches for the elements.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}
