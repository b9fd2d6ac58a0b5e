//! A running query: its source, settings, budget and annotations.

use std::cell::Cell;

use model::Labels;
use query::{Budget, QueryError, Source};

use crate::eval::annotations::Annotations;
use crate::eval::rows::{Row, Steps, Vector, metric_name};
use crate::settings::EvaluationSettings;

/// The source, the settings and the limits of an evaluation.
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    /// Where series come from.
    pub source: &'a dyn Source,
    /// How expressions are evaluated.
    pub settings: &'a EvaluationSettings,
    /// Limits the memory of the evaluation, and can stop it.
    pub budget: &'a Budget,
}

impl<'a> Evaluation<'a> {
    /// An evaluation of series from a source.
    pub const fn new(source: &'a dyn Source, settings: &'a EvaluationSettings, budget: &'a Budget) -> Self {
        Self { source, settings, budget }
    }
}

/// A running query.
pub(crate) struct Evaluator<'q> {
    pub(crate) source: &'q dyn Source,
    pub(crate) settings: &'q EvaluationSettings,
    pub(crate) budget: &'q Budget,
    pub(crate) annotations: Annotations,
    /// The steps of a range query: all, or those that are evaluated by themselves.
    pub(crate) steps: Cell<Option<Steps>>,
    /// It is a range query whose result may be cached and cut by steps, so the order of rows must not depend on which steps it has.
    /// Otherwise the order is that of Prometheus.
    pub(crate) is_stepwise: bool,
}

/// A value at every step.
pub(crate) enum Computed<'b> {
    Scalar(Vec<f64>),
    Vector(Vector<'b>),
}

impl Computed<'_> {
    /// How many series and rows it has.
    pub(crate) fn size(&self) -> (usize, usize) {
        match self {
            Self::Scalar(values) => (1, values.len()),
            Self::Vector(vector) => (vector.rows.len(), vector.rows.iter().map(Row::len).sum()),
        }
    }
}

impl<'q> Evaluator<'q> {
    /// An evaluator for an instant query.
    pub(crate) fn new(evaluation: &Evaluation<'q>) -> Self {
        let Evaluation { source, settings, budget } = *evaluation;
        Self {
            source,
            settings,
            budget,
            annotations: Annotations::default(),
            steps: Cell::new(None),
            is_stepwise: false,
        }
    }

    /// Returns whether this is an instant query, in which the order of rows matters.
    pub(crate) fn is_instant(&self, steps: Steps) -> bool {
        !self.is_stepwise && steps.count == 1
    }

    pub(crate) fn drop_names(&self, vector: &mut Vector<'q>) -> Result<(), QueryError> {
        vector.drop_names(self.settings.name_removal.is_delayed())
    }

    /// The metric's name for annotations of results: empty if functions have already dropped it, that is unless removal is delayed.
    pub(crate) fn name_for_annotations<'l>(&self, labels: &'l Labels) -> &'l str {
        if self.settings.name_removal.is_delayed() { metric_name(labels) } else { "" }
    }
}
