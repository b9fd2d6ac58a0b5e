//! Settings of the lines on stderr.

use server::log;

use super::ServeFlags;

impl ServeFlags {
    /// Sets which lines are written from now on, and how.
    pub(super) fn set_up_log(&self) -> Result<(), String> {
        let level = self.log_level.as_deref().unwrap_or("info");
        let level = log::Level::from_name(level)
            .ok_or_else(|| format!("--log-level {level:?} is none of error, warn, info, debug"))?;
        let format = self.log_format.as_deref().unwrap_or("text");
        let format = log::Format::from_name(format)
            .ok_or_else(|| format!("--log-format {format:?} is neither text nor json"))?;
        log::set_up(level, format);
        Ok(())
    }
}
