//! Printing to stdout.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Prints a line. A reader that has gone, such as `head`, is no error: what is left is not printed.
pub(crate) fn line(text: Arguments<'_>) {
    match try_line(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => eprintln!("thalweg: cannot print: {error}"),
        _ => {}
    }
}

/// Prints a line, or says why not.
pub(crate) fn try_line(text: Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// `println!` that ends quietly at a broken pipe.
macro_rules! say {
    ($($argument:tt)*) => {
        crate::output::line(format_args!($($argument)*))
    };
}
