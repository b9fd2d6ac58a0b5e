//! `similar`, `motifs`, `discords` and `alike`.

use super::lower::{Lowering, count, head};
use super::read::{Fault, Kind, Node};
use crate::Plan;
use crate::plan::{BinValue, Likeness, Measure, Offsets, Question, SimilarTo};

/// Their written forms, for errors.
const FORMS: &str = "likeness is (similar 10 series reference (step 5m)), then (bins avg|last), (measure euclidean|pearson), (measure dtw 6), (offsets aligned|every), \
                     (per-series 1), (raw) if wanted; (motifs 3 1h series (step 5m)), (discords 3 1h series (step 5m)) or (alike 0.9 series (step 5m))";

/// Returns whether a word begins one of them.
pub(super) fn is_likeness(word: &str) -> bool {
    matches!(word, "similar" | "motifs" | "discords" | "alike")
}

impl Lowering {
    /// One of them, by its word.
    pub(super) fn likeness(&self, node: &Node, word: &str, rest: &[Node]) -> Result<Plan, Fault> {
        let (question, input, options) = match (word, rest) {
            ("similar", [number, input, reference, options @ ..]) => {
                let count = count(number)?;
                let similar = SimilarTo {
                    reference: self.plan(reference)?,
                    count,
                    per_series: count,
                    measure: Measure::Euclidean,
                    is_normalised: true,
                    offsets: Offsets::Aligned,
                };
                (Question::Similar(Box::new(similar)), input, options)
            }
            ("motifs" | "discords", [number, window, input, options @ ..]) => {
                let (count, window_ns) = (count(number)?, width(window)?);
                let is_motifs = word == "motifs";
                let question = if is_motifs {
                    Question::Motifs { count, window_ns }
                } else {
                    Question::Discords { count, window_ns }
                };
                (question, input, options)
            }
            ("alike", [correlation, input, options @ ..]) => {
                let correlation = match correlation.kind {
                    Kind::Float(number) => number,
                    Kind::Integer(number) => number as f64,
                    _ => return Err(correlation.fault(FORMS)),
                };
                (Question::Alike { correlation }, input, options)
            }
            _ => return Err(node.fault(FORMS)),
        };
        let mut likeness = Likeness { input: self.plan(input)?, step_ns: 0, bins: BinValue::Average, question };
        for option in options {
            set(&mut likeness, option)?;
        }
        if likeness.step_ns == 0 {
            return Err(node.fault("series are compared in bins of time: (step 5m) says how wide they are"));
        }
        Ok(Plan::Likeness(Box::new(likeness)))
    }
}

fn width(node: &Node) -> Result<i64, Fault> {
    match node.kind {
        Kind::Duration(ns) if ns > 0 => Ok(ns),
        _ => Err(node.fault("a width such as 5m or 1h is wanted")),
    }
}

fn set(likeness: &mut Likeness, option: &Node) -> Result<(), Fault> {
    let wrong = || option.fault(FORMS);
    let Kind::List(items) = &option.kind else { return Err(wrong()) };
    let (word, values) = head(option, items)?;
    let symbol = |node: &Node| match &node.kind {
        Kind::Symbol(symbol) => Some(symbol.clone()),
        _ => None,
    };
    let first = values.first().and_then(symbol).unwrap_or_default();
    match (word, values, &mut likeness.question) {
        ("step", [step], _) => likeness.step_ns = width(step)?,
        ("bins", [_], _) => {
            let named = BinValue::NAMED.iter().find(|(name, _)| *name == first);
            likeness.bins = named.ok_or_else(wrong)?.1;
        }
        ("offsets", [_], Question::Similar(similar)) => {
            similar.offsets = Offsets::NAMED.iter().find(|(name, _)| *name == first).ok_or_else(wrong)?.1;
        }
        ("measure", [_, band @ ..], Question::Similar(similar)) if band.len() < 2 => {
            let band = band.first().map(count).transpose()?;
            similar.measure = Measure::named(&first, band).map_err(|message| option.fault(message))?;
        }
        ("per-series", [number], Question::Similar(similar)) => similar.per_series = count(number)?,
        ("raw", [], Question::Similar(similar)) => similar.is_normalised = false,
        _ => return Err(wrong()),
    }
    Ok(())
}
