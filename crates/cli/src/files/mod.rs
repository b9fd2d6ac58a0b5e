//! Files to and from a running server.
//!
//! * `import`, `lines`: line protocol, CSV, text exposition, JSON · `export`: from a server · `rrd`: RRDtool's, both ways

pub(crate) mod export;
pub(crate) mod import;
mod lines;
mod rrd;
