//! Down from the request to the metrics. What belongs to several things is read before them: the order of fields is the
//! sender's, and passing over a field costs a length.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use model::{Batch, MetricKind, MetricMetadata};

use super::attributes::{read_attribute, read_text, value_text};
use super::key::{Head, decode_key};
use super::names::{Kind, label_name, metric_name, unit_name};
use super::points::{Bounds, Metric, Mode};
use super::{DeltaPolicy, Options, Request};
use crate::batch::lone::LoneRows;
use crate::errors::Reason;
use crate::protobuf::{FieldRun, Value, Walker, WireField};
use crate::{BodyError, LineErrors, check_body_size};

/// Attributes of a resource that become `job` and `instance`.
pub(super) const IDENTIFYING: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`, and that of differences.
const CUMULATIVE: u64 = 2;
const DELTA: u64 = 1;

/// Parses an unpacked protobuf body. Fails if it is no such message; a data point that is merely wrong is left out.
pub fn parse<'body>(body: &'body [u8], options: &Options<'_>) -> Result<Request<'body>, BodyError> {
    check_body_size(body)?;
    let mut converter = Converter::new(body, options);
    let mut request = Walker::new(body, 0..body.len());
    while let Some(field) = request.next_field()? {
        if let (1, Value::Bytes(range)) = (field.number, field.value) {
            converter.resource_metrics(range)?;
        }
    }
    Ok(converter.finish())
}

/// The request so far.
pub(super) struct Converter<'body, 'options> {
    pub(super) body: &'body [u8],
    pub(super) options: &'options Options<'options>,
    pub(super) batch: Batch<'body>,
    pub(super) errors: LineErrors,
    pub(super) floats: LoneRows,
    pub(super) histograms: LoneRows,
    /// Number of the data point at hand, counted from 1.
    pub(super) point: u32,
    /// The newest time of the resource at hand.
    pub(super) newest_ns: i64,
    /// The key at hand, and the length of all keys.
    pub(super) key: Vec<u8>,
    pub(super) keys_bytes: usize,
    /// The bounds of the histogram before, as text.
    pub(super) bounds: Bounds,
    /// Families whose metadata was taken.
    described: HashSet<String>,
}

/// What the series of a resource share.
#[derive(Default)]
struct Resource {
    job: String,
    instance: String,
    /// Names and values of attributes that become labels.
    promoted: Vec<(String, String)>,
    /// All attributes as sent, and whether some of them are not in `job` or `instance`.
    attributes: FieldRun,
    has_others: bool,
}

/// The fields of a metric that come before its data.
#[derive(Default)]
struct Description<'body> {
    name: &'body str,
    help: &'body str,
    unit: &'body str,
}

impl<'body, 'options> Converter<'body, 'options> {
    fn new(body: &'body [u8], options: &'options Options<'options>) -> Self {
        Self {
            body,
            options,
            batch: Batch::new(body, decode_key),
            errors: LineErrors::default(),
            floats: LoneRows::floats(options.limits.rows_max),
            histograms: LoneRows::histograms(options.limits.histograms_max),
            point: 0,
            newest_ns: 0,
            key: Vec::new(),
            keys_bytes: 0,
            bounds: Bounds::default(),
            described: HashSet::new(),
        }
    }

    fn finish(mut self) -> Request<'body> {
        self.batch.blocks.extend(self.floats.into_block());
        self.batch.blocks.extend(self.histograms.into_block());
        Request { batch: self.batch, errors: self.errors, points: u64::from(self.point) }
    }

    pub(super) fn reject(&mut self, reason: impl Into<Reason>) {
        self.errors.push(self.options.limits.errors_max, self.point, reason);
    }

    fn resource_metrics(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        let mut resource = Resource::default();
        let mut fields = Walker::new(self.body, range.clone());
        while let Some(field) = fields.next_field()? {
            if let (1, Value::Bytes(range)) = (field.number, field.value) {
                self.read_resource(range, &mut resource)?;
            }
        }
        self.newest_ns = i64::MIN;
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            if let (2, Value::Bytes(range)) = (field.number, field.value) {
                self.scope_metrics(range, &resource)?;
            }
        }
        self.target_info(&resource);
        Ok(())
    }

    /// An attribute that is not valid UTF-8 is left out of the labels; `target_info`, which has it, is refused by name.
    fn read_resource(&self, range: Range<usize>, resource: &mut Resource) -> Result<(), BodyError> {
        let (mut service, mut namespace) = (String::new(), String::new());
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            let WireField { number: 1, value: Value::Bytes(range), start } = field else { continue };
            resource.attributes.add(self.body, start..fields.at());
            let Ok(attribute) = read_attribute(self.body, range) else { continue };
            let Ok(value) = value_text(self.body, attribute.value) else { continue };
            match attribute.name {
                "service.name" => service = value.into_owned(),
                "service.namespace" => namespace = value.into_owned(),
                "service.instance.id" => resource.instance = value.into_owned(),
                name => {
                    resource.has_others = true;
                    if self.options.settings.promoted_attributes.iter().any(|promoted| promoted == name) {
                        let name = label_name(name, self.options.settings.translation.escapes());
                        resource.promoted.push((name, value.into_owned()));
                    }
                }
            }
        }
        let has_both = !service.is_empty() && !namespace.is_empty();
        resource.job = if has_both { format!("{namespace}/{service}") } else { service };
        Ok(())
    }

    /// The head of all keys of a resource, or of its own series.
    fn head(&self, resource: &Resource, of_resource: bool) -> Head {
        let mut head = Head::new(self.options.settings.translation.escapes(), of_resource);
        for (name, value) in [("job", &resource.job), ("instance", &resource.instance)] {
            if !value.is_empty() {
                head.push_label(name, value);
            }
        }
        head
    }

    fn scope_metrics(&mut self, range: Range<usize>, resource: &Resource) -> Result<(), BodyError> {
        let mut head = self.head(resource, false);
        for (name, value) in &resource.promoted {
            head.push_weak_label(name, value);
        }
        if self.options.settings.scope_labels {
            self.push_scope_metadata(range.clone(), &mut head)?;
        }
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            if let (2, Value::Bytes(range)) = (field.number, field.value) {
                self.metric(range, &head)?;
            }
        }
        Ok(())
    }

    /// What identifies a scope, as labels with Prometheus's names. Name, version and schema URL win over attributes that are called so.
    fn push_scope_metadata(&self, range: Range<usize>, head: &mut Head) -> Result<(), BodyError> {
        let mut attributes: BTreeMap<String, String> = BTreeMap::new();
        let mut fixed = Vec::new();
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (1, Value::Bytes(scope)) => self.read_scope(scope, &mut attributes, &mut fixed)?,
                (3, Value::Bytes(range)) => fixed.push(("otel_scope_schema_url", range)),
                _ => {}
            }
        }
        for (label, value) in &attributes {
            head.push_label(label, value);
        }
        for (label, range) in fixed {
            if let Ok(value) = read_text(self.body, range)
                && !value.is_empty()
            {
                head.push_label(label, value);
            }
        }
        Ok(())
    }

    /// Attributes whose names become one label are joined, as those of points are.
    fn read_scope(
        &self,
        range: Range<usize>,
        attributes: &mut BTreeMap<String, String>,
        fixed: &mut Vec<(&'static str, Range<usize>)>,
    ) -> Result<(), BodyError> {
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            let Value::Bytes(range) = field.value else { continue };
            match field.number {
                1 => fixed.push(("otel_scope_name", range)),
                2 => fixed.push(("otel_scope_version", range)),
                3 => {
                    let Ok(attribute) = read_attribute(self.body, range) else { continue };
                    let Ok(value) = value_text(self.body, attribute.value) else { continue };
                    let escapes = self.options.settings.translation.escapes();
                    let joined = attributes.entry(label_name(&format!("otel_scope_{}", attribute.name), escapes));
                    joined
                        .and_modify(|joined| {
                            joined.push(';');
                            joined.push_str(&value);
                        })
                        .or_insert_with(|| value.into_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn metric(&mut self, range: Range<usize>, head: &Head) -> Result<(), BodyError> {
        let mut about = Description::default();
        let mut data = None;
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            let Value::Bytes(range) = field.value else { continue };
            let body = self.body;
            let text = || read_text(body, range.clone()).unwrap_or_default();
            match field.number {
                1 => about.name = text(),
                2 => about.help = text(),
                3 => about.unit = text(),
                5 | 7 | 9 | 10 | 11 => data = Some((field.number, range)),
                _ => {}
            }
        }
        match data {
            Some((number, range)) => self.data(number, range, &about, head),
            None => Ok(()),
        }
    }

    /// Reads a `Gauge` (5), `Sum` (7), `Histogram` (9), `ExponentialHistogram` (10) or `Summary` (11).
    fn data(
        &mut self,
        number: u32,
        range: Range<usize>,
        about: &Description<'_>,
        head: &Head,
    ) -> Result<(), BodyError> {
        let (mut temporality, mut monotonic) = (0, false);
        let mut fields = Walker::new(self.body, range.clone());
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (2, Value::Varint(value)) => temporality = value,
                (3, Value::Varint(value)) => monotonic = value != 0,
                _ => {}
            }
        }
        let has_temporality = matches!(number, 7 | 9 | 10);
        let is_delta = has_temporality && temporality == DELTA;
        let settings = self.options.settings;
        let refusal = if is_delta && settings.delta == DeltaPolicy::Reject {
            Some(format!(
                "metric {:?} is of delta temporality: send cumulative ones, or set otlp_delta = \"cumulate\"",
                about.name
            ))
        } else if has_temporality && !is_delta && temporality != CUMULATIVE {
            Some(format!("metric {:?} has no temporality", about.name))
        } else {
            None
        };
        let kind = match number {
            5 => Kind::Gauge,
            7 if monotonic => Kind::Counter,
            _ => Kind::Other,
        };
        let name = metric_name(about.name, about.unit, kind, settings.translation);
        let refusal =
            refusal.or_else(|| name.is_none().then(|| format!("metric {:?}: nothing is left of its name", about.name)));
        let name = name.unwrap_or_default();
        let mode = match settings.delta {
            _ if !has_temporality => Mode::Plain,
            _ if !is_delta => Mode::Cumulative,
            DeltaPolicy::Cumulate => Mode::Cumulated,
            DeltaPolicy::Keep | DeltaPolicy::Reject => Mode::KeptDelta,
        };
        let metric = Metric { name: &name, head, mode, is_monotonic: monotonic };
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            let (1, Value::Bytes(range)) = (field.number, field.value) else { continue };
            self.point = self.point.saturating_add(1);
            match (&refusal, number) {
                (Some(reason), _) => self.reject(reason.clone()),
                (None, 5 | 7) => self.number_point(range, &metric)?,
                (None, 9) => self.histogram_point(range, &metric)?,
                (None, 10) => self.exponential_point(range, &metric)?,
                (None, _) => self.summary_point(range, &metric)?,
            }
        }
        if refusal.is_none() {
            let kind = if mode == Mode::KeptDelta { MetricKind::Unknown } else { metadata_kind(number, monotonic) };
            self.describe(name, kind, about);
        }
        Ok(())
    }

    fn describe(&mut self, family: String, kind: MetricKind, about: &Description<'_>) {
        if self.batch.metadata.len() >= self.options.limits.metadata_max || self.described.contains(&family) {
            return;
        }
        self.described.insert(family.clone());
        self.batch.metadata.push(MetricMetadata {
            family,
            kind,
            help: about.help.to_owned(),
            unit: unit_name(about.unit),
        });
    }

    /// The series that tells a resource's attributes; of the time of its newest point.
    fn target_info(&mut self, resource: &Resource) {
        let is_identified = !resource.job.is_empty() || !resource.instance.is_empty();
        if !is_identified || !resource.has_others || self.newest_ns == i64::MIN {
            return;
        }
        let head = self.head(resource, true);
        let name = "target_info";
        let attributes = resource.attributes.text(self.body);
        if let Err(reason) = self.check_attributes(attributes, resource.attributes.count) {
            return self.reject(reason.about("target_info"));
        }
        if let Err(reason) = self.push_float(&head, [name, ""], None, attributes, self.newest_ns, 1.0) {
            self.reject(reason.about("target_info"));
        }
    }
}

fn metadata_kind(number: u32, monotonic: bool) -> MetricKind {
    match number {
        7 if monotonic => MetricKind::Counter,
        5 | 7 => MetricKind::Gauge,
        9 | 10 => MetricKind::Histogram,
        _ => MetricKind::Summary,
    }
}
