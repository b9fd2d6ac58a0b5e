//! Printing to stdout.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Prints a line. A reader that has gone, such as `head`, is no error: what is left is not printed.
pub(crate) fn line(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let printed = out.write_fmt(text).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => eprintln!("thalweg: cannot print: {error}"),
        _ => {}
    }
}

/// `println!` that ends quietly at a broken pipe.
macro_rules! say {
    ($($argument:tt)*) => {
        crate::output::line(format_args!($($argument)*))
    };
}
