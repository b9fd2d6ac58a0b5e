//! Series, as PromQL reads them: by matchers, within a budget.

mod by_view;
pub(crate) mod names;
mod projected;
mod read_views;
pub(crate) mod regular;
pub(crate) mod selection;
pub(crate) mod source;
pub(crate) mod store_source;
pub(crate) mod texts;
mod unstored;
pub(crate) mod viewed;
pub(crate) mod windows;
