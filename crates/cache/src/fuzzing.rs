//! Entries for fuzzing, of what no public function reads by itself.

/// Reads bytes as a slab, and everything in it. Checksums are put right first, so that what follows them is reached.
pub fn slab(bytes: &[u8]) {
    crate::slab::fuzz(bytes);
}

/// Serves bytes as if they came over a connection. After a zero, with which no command begins, they are an answer as columns that is set, and
/// requested in both forms.
///
/// # Panics
///
/// If an answer that was read is written as something else: that is what a fuzzer looks for.
pub fn protocol(bytes: &[u8]) {
    crate::server::fuzz::protocol(bytes);
}
