//! Series of an answer, for tables and plots.

/// Labels and samples (seconds, value) of a series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) samples: Vec<(f64, String)>,
}

impl Series {
    /// `metric{label="value", …}`
    pub(crate) fn name(&self) -> String {
        let metric = self.labels.iter().find(|(name, _)| name == "__name__").map_or("", |(_, value)| value);
        let labels = self.labels.iter().filter(|(name, _)| name != "__name__");
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("{metric}{{{}}}", labels.join(", "))
    }
}
