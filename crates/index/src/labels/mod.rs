//! Labels of groups again, from the numbers that segments hold.
//!
//! * `reader`: all labels of a group · `project`: some of them, of many groups · `names`: which names and values there are

pub(crate) mod names;
pub(crate) mod project;
pub(crate) mod reader;
