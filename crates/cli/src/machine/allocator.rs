//! The allocator, and when it gives memory back.

use std::ffi::{c_int, c_long};

use libmimalloc_sys::mi_option_set_default;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// After how many milliseconds freed pages go back to the system (`mi_option_purge_delay` of mimalloc 2).
const PURGE_DELAY: c_int = 15;

/// After how many times as long whole blocks of megabytes do (`mi_option_arena_purge_mult`).
const ARENA_PURGE_MULT: c_int = 24;

/// Has freed memory go back to the system at once where it is a large block, and after a millisecond where it is pages.
///
/// mimalloc waits 100 and 10 ms, and then until it is called again in that place: bodies of 25 MB, six at a time, left 445 MiB with a server that used
/// 5, and a limit of 512 MiB was exceeded by a third while new series, large bodies and heavy queries came together. Writing costs as much
/// CPU time as before (`thalweg bench load`). mimalloc's environment variables have precedence.
pub(crate) fn return_memory_early() {
    for (option, value) in [(PURGE_DELAY, 1), (ARENA_PURGE_MULT, 0)] {
        set(option, value);
    }
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
        assert_eq!([PURGE_DELAY, ARENA_PURGE_MULT].map(get), [10, 10]);
        return_memory_early();
        assert_eq!([PURGE_DELAY, ARENA_PURGE_MULT].map(get), [1, 0]);
    }
}
