//! Errors and notices of Postgres's protocol.

use pgwire::error::{ErrorInfo, PgWireError};
use sql::SqlError;

/// Messages have no NUL in the protocol.
pub(super) fn info(severity: &str, code: &str, message: String) -> ErrorInfo {
    let message = if message.contains('\0') { message.replace('\0', "\\0") } else { message };
    ErrorInfo::new(severity.to_owned(), code.to_owned(), message)
}

pub(super) fn failed(code: &str, message: String) -> PgWireError {
    PgWireError::UserError(Box::new(info("ERROR", code, message)))
}

/// An error that ends the session.
pub(super) fn fatal(error: PgWireError) -> PgWireError {
    let info = ErrorInfo::from(error);
    PgWireError::UserError(Box::new(ErrorInfo::new("FATAL".to_owned(), info.code, info.message)))
}

pub(super) fn error_of(error: &SqlError) -> PgWireError {
    failed(error.code(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_nul() {
        assert_eq!(info("ERROR", "22023", "a\0b".to_owned()).message, "a\\0b");
    }
}
