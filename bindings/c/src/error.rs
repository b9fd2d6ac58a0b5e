//! Codes and messages, and the border that nothing unwinds across.

use std::panic::{AssertUnwindSafe, catch_unwind};

use embedded::{Code, Error};

use crate::text::thalweg_str_t;

/// The outcome of a call: `THALWEG_OK`, or what the caller can do.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum thalweg_code_t {
    /// It is done.
    THALWEG_OK = 0,
    /// An argument, or the text of a query, is wrong: change it.
    THALWEG_INVALID = 1,
    /// There is no such table, column or series.
    THALWEG_NOT_FOUND = 2,
    /// Another process has the folder open.
    THALWEG_LOCKED = 3,
    /// A file is not what was written, or rows are lost.
    THALWEG_CORRUPT = 4,
    /// The operating system or the storage refused.
    THALWEG_IO = 5,
    /// It needs more memory or samples than it may have: ask for less at once, or raise the limit that the message names.
    THALWEG_LIMIT = 6,
    /// It was interrupted by `thalweg_interrupt` or `thalweg_close`.
    THALWEG_INTERRUPTED = 7,
    /// The database is closed.
    THALWEG_CLOSED = 8,
    /// This version cannot do it.
    THALWEG_UNSUPPORTED = 9,
    /// It cannot be done at present: try again later.
    THALWEG_UNAVAILABLE = 10,
    /// Some rows were left out, the message says which and why; the others are written.
    THALWEG_REJECTED = 11,
    /// A fault of the library: please report it.
    THALWEG_INTERNAL = 12,
}

/// Why a call failed. Made where `error` is not null; to be freed by `thalweg_error_free`.
pub struct thalweg_error_t {
    code: thalweg_code_t,
    message: String,
}

const fn code_of(code: Code) -> thalweg_code_t {
    match code {
        Code::Invalid => thalweg_code_t::THALWEG_INVALID,
        Code::NotFound => thalweg_code_t::THALWEG_NOT_FOUND,
        Code::Locked => thalweg_code_t::THALWEG_LOCKED,
        Code::Corrupt => thalweg_code_t::THALWEG_CORRUPT,
        Code::Io => thalweg_code_t::THALWEG_IO,
        Code::Limit => thalweg_code_t::THALWEG_LIMIT,
        Code::Interrupted => thalweg_code_t::THALWEG_INTERRUPTED,
        Code::Closed => thalweg_code_t::THALWEG_CLOSED,
        Code::Unsupported => thalweg_code_t::THALWEG_UNSUPPORTED,
        Code::Unavailable => thalweg_code_t::THALWEG_UNAVAILABLE,
        Code::Rejected => thalweg_code_t::THALWEG_REJECTED,
        Code::Internal => thalweg_code_t::THALWEG_INTERNAL,
    }
}

/// Does the work of a call: its error and its panic become a code, and a message where there is a place for one.
///
/// # Safety
/// `error` is null or may be written.
pub(crate) unsafe fn call(
    error: *mut *mut thalweg_error_t,
    work: impl FnOnce() -> Result<(), Error>,
) -> thalweg_code_t {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(Error::panicked(&*payload)));
    let (code, message) = match done {
        Ok(()) => (thalweg_code_t::THALWEG_OK, None),
        Err(Error { code, message }) => (code_of(code), Some(message)),
    };
    if !error.is_null() {
        let made = message.map(|message| Box::into_raw(Box::new(thalweg_error_t { code, message })));
        // SAFETY: it is not null, and the caller vouches that it may be written.
        unsafe { error.write(made.unwrap_or(std::ptr::null_mut())) };
    }
    code
}

/// What a handle points to; an error if it is null.
///
/// # Safety
/// `handle` is null or was given by this library and is not freed yet.
pub(crate) unsafe fn object<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Error> {
    // SAFETY: the caller vouches for the handle.
    unsafe { handle.as_ref() }.ok_or_else(|| Error::invalid(format!("{what} is null")))
}

/// Puts a result where the caller wants it.
///
/// # Safety
/// `place` is null or may be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T, what: &str) -> Result<(), Error> {
    if place.is_null() {
        return Err(Error::invalid(format!("{what} is null")));
    }
    // SAFETY: it is not null, and the caller vouches that it may be written.
    unsafe { place.write(value) };
    Ok(())
}

/// Frees what a handle points to, if it is not null.
///
/// # Safety
/// `handle` is null or was made by `Box::into_raw` and is not freed yet.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    let work = AssertUnwindSafe(|| {
        // SAFETY: it is not null, and the caller vouches that it came from a box and is freed once.
        drop(unsafe { Box::from_raw(handle) });
    });
    // There is no one to tell of a panic.
    drop(catch_unwind(work));
}

/// The code of an error; `THALWEG_OK` for null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_error_code(error: *const thalweg_error_t) -> thalweg_code_t {
    // SAFETY: the handle is null or an error that is not freed yet, as the header demands.
    unsafe { error.as_ref() }.map_or(thalweg_code_t::THALWEG_OK, |error| error.code)
}

/// The message of an error, which says what failed, where, and what to do; it lives as long as the error. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_error_message(error: *const thalweg_error_t) -> thalweg_str_t {
    // SAFETY: the handle is null or an error that is not freed yet, as the header demands.
    thalweg_str_t::new(unsafe { error.as_ref() }.map_or("", |error| error.message.as_str()))
}

/// Frees an error; null is ignored. Once for each error, when no other thread reads it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_error_free(error: *mut thalweg_error_t) {
    // SAFETY: errors come from `call`, which makes them by `Box::into_raw`.
    unsafe { free(error) };
}
