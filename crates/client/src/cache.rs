//! What is registered, so that asking again costs no round trip.

use std::collections::HashMap;

use model::{Field, Labels};
use wire::control::{Registered, Registration, Request};

/// Lone series that are remembered; beyond that all are forgotten.
const SERIES_MAX: usize = 4 << 20;

/// Tokens of lone series by database, metric and labels.
#[derive(Default)]
pub(crate) struct Cache {
    tokens: HashMap<String, HashMap<(String, Labels), u64>>,
    ids: u64,
    /// The token that requests sign in with.
    token: String,
}

impl Cache {
    pub(crate) fn new(token: &str) -> Self {
        Self { token: token.to_owned(), ..Self::default() }
    }

    /// The groups that must be registered before [`Cache::tokens`] knows all of them.
    pub(crate) fn missing(&mut self, database: &str, series: &[(&str, Labels)]) -> Option<Request> {
        let known = self.tokens.get(database);
        let is_missing = |key: &(String, Labels)| known.is_none_or(|known| !known.contains_key(key));
        let all = series.iter().map(|(metric, labels)| ((*metric).to_owned(), labels.clone()));
        let missing: Vec<_> = all.filter(is_missing).collect();
        (!missing.is_empty()).then(|| self.request(database, Registration::Series(missing)))
    }

    pub(crate) fn request(&mut self, database: &str, what: Registration) -> Request {
        self.ids += 1;
        Request { id: self.ids, database: database.to_owned(), token: self.token.clone(), what }
    }

    pub(crate) fn groups(
        &mut self,
        database: &str,
        measurement: &str,
        groups: &[Labels],
        members: &[(Field, Labels)],
    ) -> Request {
        let what = Registration::Groups {
            measurement: measurement.to_owned(),
            members: members.to_vec(),
            groups: groups.to_vec(),
        };
        self.request(database, what)
    }

    /// Remembers the answer to a request for series.
    pub(crate) fn learn(&mut self, request: &Request, registered: &Registered) {
        let Registration::Series(series) = &request.what else {
            return;
        };
        let known = self.tokens.entry(request.database.clone()).or_default();
        if known.len() + series.len() > SERIES_MAX {
            known.clear();
        }
        known.extend(series.iter().cloned().zip(registered.tokens.iter().copied()));
    }

    /// Tokens in the order of the series; `None` if one is not known.
    pub(crate) fn tokens(&self, database: &str, series: &[(&str, Labels)]) -> Option<Vec<u64>> {
        let known = self.tokens.get(database);
        let token = |(metric, labels): &(&str, Labels)| known?.get(&((*metric).to_owned(), labels.clone())).copied();
        series.iter().map(token).collect()
    }

    /// Forgets tokens that mean nothing any more.
    pub(crate) fn forget(&mut self) {
        self.tokens.clear();
    }
}
