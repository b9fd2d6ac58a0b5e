//! Entries for fuzzing, of what no public function reads by itself.

/// Reads bytes as messages of Postgres's protocol.
pub fn postgres(bytes: &[u8]) {
    crate::sql::fuzz::messages(bytes);
}

/// Reads bytes as requests of a Flight client.
#[cfg(feature = "flight-sql")]
pub fn flight(bytes: &[u8]) {
    crate::sql::flight::fuzz::calls(bytes);
}

/// Reads texts as the query string and the form of a request.
pub fn parameters(query: &str, form: &[u8]) {
    crate::http::parameters::fuzz(query, form);
    crate::http::influxql::fuzz(query, form);
}
