//! Between the query languages and the store: what a language asks ([`Selection`]), what it gets ([`Series`]), what it
//! may use ([`Budget`]) and how it fails ([`QueryError`]).

mod budget;
mod helpers;
mod source;
mod store_source;

pub use budget::{Budget, Stop};
pub use helpers::Helpers;
pub use source::{QueryError, Selection, Series, SeriesSink, Source};
pub use store_source::StoreSource;
