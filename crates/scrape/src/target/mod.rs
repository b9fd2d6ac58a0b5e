//! A target, and what its scrapes give.
//!
//! * `identity`: from what was discovered to labels and an address · `negotiation`: which formats are asked for and understood
//! * `cache`: the lines of the scrape before · `append`: from a response to rows · `companions`: exemplars and start times beside them · `custom_buckets`: classic histograms as native ones · `report`: the series about scrapes
//! * `scrape`: one target's requests, again and again · `body_memory`: what responses take

mod append;
mod body_memory;
mod cache;
mod companions;
mod custom_buckets;
mod identity;
mod negotiation;
mod report;
mod scrape;

pub use append::{Destination, NamedSeries, Rows};
pub use cache::HistogramSeries;
pub use identity::{Target, Unusable, from_discovered};
pub use negotiation::Format;
pub use scrape::{Command, Health, LastScrape, TargetLoop, run};
