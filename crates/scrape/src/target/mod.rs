//! A target, and what its scrapes give.
//!
//! * `identity`: from what was discovered to labels and an address · `negotiation`: which formats are asked for and understood
//! * `cache`: the lines of the scrape before · `append`: from a response to rows · `report`: the series about scrapes
//! * `scrape`: one target's requests, again and again

mod append;
mod cache;
mod identity;
mod negotiation;
mod report;
mod scrape;

pub use append::{Destination, Rows};
pub use cache::HistogramSeries;
pub use identity::{Target, Unusable, from_discovered};
pub use negotiation::Format;
pub use scrape::{Command, Health, LastScrape, TargetLoop, run};
