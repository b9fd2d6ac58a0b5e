//! The allocator, and when it gives memory back.

use std::ffi::{c_int, c_long};

use libmimalloc_sys::mi_option_set_default;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// After how many times as long as pages whole blocks of megabytes go back to the system (`mi_option_arena_purge_mult` of mimalloc 2).
const ARENA_PURGE_MULT: c_int = 24;

/// Has freed memory go back to the system at once where it is a large block.
///
/// mimalloc waits 100 ms, and then until it is called again in that place: bodies of 25 MB, six at a time, left 445 MiB with a server that used
/// 5, and a limit of 512 MiB was exceeded by a third while new series, large bodies and heavy queries came together. Single pages wait for 10 ms:
/// where they went after one, writing took half as many page faults again (`thalweg bench load`), and as much CPU time. mimalloc's environment
/// variables have precedence.
pub(crate) fn return_memory_early() {
    set(ARENA_PURGE_MULT, 0);
}

#[allow(unsafe_code, reason = "the allocator's options are C functions")]
fn set(option: c_int, value: c_long) {
    // SAFETY: both are plain integers, unknown options are ignored, and no other thread has begun.
    unsafe { mi_option_set_default(option, value) }
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[allow(unsafe_code, reason = "the allocator's options are C functions")]
    fn get(option: c_int) -> c_long {
        // SAFETY: a plain integer, and nothing but this test changes options.
        unsafe { mi_option_get(option) }
    }

    #[test]
    fn the_options_are_those_that_they_are_taken_for() {
        // Its defaults: with another version the numbers may mean something else.
        assert_eq!(get(ARENA_PURGE_MULT), 10);
        return_memory_early();
        assert_eq!(get(ARENA_PURGE_MULT), 0);
    }
}
