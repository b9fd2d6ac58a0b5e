//! Settings of the lines on stderr.

use server::log;

use super::ServeFlags;

impl ServeFlags {
    /// Sets which lines are written from now on, and how.
    pub(super) fn set_up_log(&self) -> Result<(), String> {
        set_up(self.log_level.as_deref().unwrap_or("info"), self.log_format.as_deref().unwrap_or("text"))
    }
}

/// Sets which lines are written from now on, and how, by the values of `--log-level` and `--log-format`.
pub(crate) fn set_up(level: &str, format: &str) -> Result<(), String> {
    let known = log::Level::from_name(level);
    let level = known.ok_or_else(|| format!("--log-level {level:?} is none of error, warn, info, debug"))?;
    let known = log::Format::from_name(format);
    log::set_up(level, known.ok_or_else(|| format!("--log-format {format:?} is neither text nor json"))?);
    Ok(())
}
