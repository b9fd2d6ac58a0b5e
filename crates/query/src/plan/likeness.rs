//! Likeness of series as a step of plans: what is like a reference, what comes again within a series, what never does, which series behave alike.

use std::fmt::Write;

use super::print::duration;
use crate::Plan;

/// Series in bins of time, compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Likeness {
    /// The series; their range says when the first bin begins.
    pub input: Plan,
    /// Width of a bin in nanoseconds; a bin that is cut off by the end of the range is left out.
    pub step_ns: i64,
    /// The value of a bin.
    pub bins: BinValue,
    /// The question.
    pub question: Question,
}

/// The value of a bin with several samples; one with none has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinValue {
    /// Their mean.
    Average,
    /// The last.
    Last,
}

/// A question about series.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// The places most like a reference: `similar`.
    Similar(Box<SimilarTo>),
    /// Pairs of places within a series that are most like each other: `motifs`.
    Motifs {
        /// So many pairs of each series at most.
        count: usize,
        /// Length of a place in nanoseconds.
        window_ns: i64,
    },
    /// Places within a series that are least like any other: `discords`.
    Discords {
        /// So many of each series at most.
        count: usize,
        /// Length of a place in nanoseconds.
        window_ns: i64,
    },
    /// Groups of series of which every two correlate: `alike`.
    Alike {
        /// By this at least, -1 to 1.
        correlation: f64,
    },
}

/// A reference, and how others are compared with it.
#[derive(Debug, Clone, PartialEq)]
pub struct SimilarTo {
    /// One series; its range is the stretch that is looked for.
    pub reference: Plan,
    /// So many places in all.
    pub count: usize,
    /// So many of each series at most.
    pub per_series: usize,
    /// By what.
    pub measure: Measure,
    /// True if stretches are compared after their means are taken away and they are divided by their deviations.
    pub is_normalised: bool,
    /// Where places may begin.
    pub offsets: Offsets,
}

/// How far two stretches are from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Euclidean distance.
    Euclidean,
    /// Pearson's correlation, the largest first; constant stretches have none.
    Pearson,
    /// Dynamic time warping.
    Dtw {
        /// Bins that a value may be matched away from its own.
        band: usize,
    },
}

/// Where places may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offsets {
    /// At multiples of the reference's length from the start of the range.
    Aligned,
    /// At every bin.
    Every,
}

impl BinValue {
    /// All, with their names.
    pub const NAMED: [(&'static str, Self); 2] = [("avg", Self::Average), ("last", Self::Last)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| name)
    }
}

impl Offsets {
    /// All, with their names.
    pub const NAMED: [(&'static str, Self); 2] = [("aligned", Self::Aligned), ("every", Self::Every)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| name)
    }
}

impl Measure {
    /// A measure by its name, and a band if that is what it has.
    pub fn named(name: &str, band: Option<usize>) -> Result<Self, String> {
        match (name, band) {
            ("euclidean", None) => Ok(Self::Euclidean),
            ("pearson", None) => Ok(Self::Pearson),
            ("dtw", Some(band)) => Ok(Self::Dtw { band }),
            ("dtw", None) => Err("dtw needs a band: how many bins a value may be matched away from its own".to_owned()),
            ("euclidean" | "pearson", Some(_)) => Err(format!("{name} has no band; dtw has")),
            _ => Err(format!("a measure is euclidean, pearson or dtw, not {name:?}")),
        }
    }
}

impl std::fmt::Display for Measure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Euclidean => out.write_str("euclidean"),
            Self::Pearson => out.write_str("pearson"),
            Self::Dtw { band } => write!(out, "dtw {band}"),
        }
    }
}

impl Likeness {
    /// The plans in it, in the order in which they are written.
    pub fn plans(&self) -> Vec<&Plan> {
        match &self.question {
            Question::Similar(similar) => vec![&self.input, &similar.reference],
            _ => vec![&self.input],
        }
    }

    /// It with other plans in the place of those in it.
    pub(crate) fn try_map<E>(mut self, mut map: impl FnMut(Plan) -> Result<Plan, E>) -> Result<Self, E> {
        self.input = map(self.input)?;
        if let Question::Similar(similar) = &mut self.question {
            let reference = std::mem::replace(&mut similar.reference, Plan::Union(Vec::new()));
            similar.reference = map(reference)?;
        }
        Ok(self)
    }

    /// The words before the plans.
    pub(super) fn head(&self) -> String {
        match &self.question {
            Question::Similar(similar) => format!("similar {}", similar.count),
            Question::Motifs { count, window_ns } => format!("motifs {count} {}", duration(*window_ns)),
            Question::Discords { count, window_ns } => format!("discords {count} {}", duration(*window_ns)),
            Question::Alike { correlation } => format!("alike {correlation:?}"),
        }
    }

    /// The options after the plans.
    pub(super) fn options(&self) -> String {
        let mut text = format!("(step {}) (bins {})", duration(self.step_ns), self.bins.name());
        if let Question::Similar(similar) = &self.question {
            let SimilarTo { count, per_series, measure, is_normalised, offsets, .. } = &**similar;
            let _ = write!(text, " (measure {measure}) (offsets {})", offsets.name());
            if per_series != count {
                let _ = write!(text, " (per-series {per_series})");
            }
            if !is_normalised {
                text.push_str(" (raw)");
            }
        }
        text
    }
}
