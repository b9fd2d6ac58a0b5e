//! Series, as PromQL reads them: by matchers, within a budget.

mod by_view;
pub(crate) mod names;
mod projected;
pub(crate) mod regular;
pub(crate) mod selection;
pub(crate) mod source;
pub(crate) mod store_source;
pub(crate) mod texts;
pub(crate) mod viewed;
pub(crate) mod windows;
