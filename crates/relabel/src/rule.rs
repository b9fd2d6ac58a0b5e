//! A step as it is configured, checked and compiled.

use std::sync::Arc;

use index::CompiledMatcher;
use model::Matcher;
use regex::Regex;

use super::graphite::Pattern;
use super::{Labels, NameScheme, is_label_name};

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// Sets a label to a text made of others.
    #[default]
    Replace,
    /// Drops what does not match.
    Keep,
    /// Drops what matches.
    Drop,
    /// Drops where source and target differ.
    KeepEqual,
    /// Drops where source and target are equal.
    DropEqual,
    /// Sets a label to a hash, modulo a number.
    HashMod,
    /// Copies labels whose names match.
    LabelMap,
    /// Removes labels whose names match.
    LabelDrop,
    /// Removes labels whose names do not match.
    LabelKeep,
    /// Sets a label to small letters.
    Lowercase,
    /// Sets a label to capital letters.
    Uppercase,
    /// VictoriaMetrics: keeps metrics whose names match.
    KeepMetrics,
    /// VictoriaMetrics: drops metrics whose names match.
    DropMetrics,
    /// VictoriaMetrics: replaces every match within the value.
    ReplaceAll,
    /// VictoriaMetrics: replaces every match within labels' names.
    LabelMapAll,
    /// VictoriaMetrics: keeps where all source labels are equal.
    KeepIfEqual,
    /// VictoriaMetrics: drops where all source labels are equal.
    DropIfEqual,
    /// VictoriaMetrics: keeps where the target contains each source label.
    KeepIfContains,
    /// VictoriaMetrics: drops where the target contains each source label.
    DropIfContains,
    /// VictoriaMetrics: labels from parts of Graphite's names.
    Graphite,
}

const ACTIONS: [(&str, Action); 20] = [
    ("replace", Action::Replace),
    ("keep", Action::Keep),
    ("drop", Action::Drop),
    ("keepequal", Action::KeepEqual),
    ("dropequal", Action::DropEqual),
    ("hashmod", Action::HashMod),
    ("labelmap", Action::LabelMap),
    ("labeldrop", Action::LabelDrop),
    ("labelkeep", Action::LabelKeep),
    ("lowercase", Action::Lowercase),
    ("uppercase", Action::Uppercase),
    ("keep_metrics", Action::KeepMetrics),
    ("drop_metrics", Action::DropMetrics),
    ("replace_all", Action::ReplaceAll),
    ("labelmap_all", Action::LabelMapAll),
    ("keep_if_equal", Action::KeepIfEqual),
    ("drop_if_equal", Action::DropIfEqual),
    ("keep_if_contains", Action::KeepIfContains),
    ("drop_if_contains", Action::DropIfContains),
    ("graphite", Action::Graphite),
];

impl Action {
    /// The action of this name, in whatever case.
    pub fn parse(name: &str) -> Result<Self, String> {
        let name = name.to_ascii_lowercase();
        let found = ACTIONS.iter().find(|(known, _)| *known == name).map(|(_, action)| *action);
        found.ok_or_else(|| format!("unknown relabel action {name:?}"))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        ACTIONS.iter().find(|(_, action)| *action == self).map_or("", |(name, _)| name)
    }
}

/// The condition of a step (`if`): a selector of PromQL, which may hold for labels that are not there. Who reads PromQL parses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// As it is written.
    pub text: String,
    /// All of them hold.
    pub matchers: Vec<Matcher>,
}

/// The hash of `hashmod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HashKind {
    /// The last eight bytes of the MD5 sum, as Prometheus takes them.
    #[default]
    Md5,
    /// The 64 bits of xxHash, as VictoriaMetrics takes them.
    XxHash64,
}

impl HashKind {
    /// The kind of this name, `md5` or `xxhash64`.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "md5" => Ok(Self::Md5),
            "xxhash64" => Ok(Self::XxHash64),
            _ => Err(format!("unknown hash {name:?}; there are md5 and xxhash64")),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::XxHash64 => "xxhash64",
        }
    }
}

/// The fields of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleText {
    /// The action.
    pub action: Action,
    /// Labels whose values are joined.
    pub source_labels: Vec<String>,
    /// The text between joined values; `;` by default.
    pub separator: Option<String>,
    /// The label that is set.
    pub target_label: String,
    /// What the joined values must match as a whole; `(.*)` if it is not said.
    pub regex: Option<String>,
    /// The divisor of a hash.
    pub modulus: u64,
    /// That hash.
    pub hash: HashKind,
    /// The text with references to the match's groups; `$1` if it is not said.
    pub replacement: Option<String>,
    /// Selectors of which one must match; none: the step always applies.
    pub conditions: Vec<Condition>,
    /// Graphite's pattern.
    pub graphite_match: String,
    /// Labels that it gives.
    pub graphite_labels: Vec<(String, String)>,
    /// Which names labels may have.
    pub names: NameScheme,
}

/// A step, ready to be applied.
#[derive(Clone)]
pub struct Rule {
    pub(super) text: RuleText,
    pub(super) separator: String,
    pub(super) replacement: String,
    pub(super) regex: Regex,
    /// The expression without its ends, for matches within a text.
    pub(super) inner: Option<Regex>,
    pub(super) conditions: Arc<[Selector]>,
    pub(super) pattern: Option<Pattern>,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Rule {}

impl std::fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text.fmt(formatter)
    }
}

impl Rule {
    /// Checks and compiles a step.
    pub fn new(text: RuleText) -> Result<Self, String> {
        check(&text)?;
        let expression = text.regex.as_deref().unwrap_or("(.*)");
        let bad = |error: regex::Error| format!("regex {expression:?}: {}", last_line(&error.to_string()));
        let regex = Regex::new(&format!("^(?s:{expression})$")).map_err(bad)?;
        let inner = match text.action {
            Action::ReplaceAll | Action::LabelMapAll => Some(Regex::new(expression).map_err(bad)?),
            _ => None,
        };
        let selector = |condition: &Condition| {
            Selector::new(&condition.matchers).map_err(|reason| format!("if {:?}: {reason}", condition.text))
        };
        let conditions = text.conditions.iter().map(selector).collect::<Result<Vec<_>, _>>()?.into();
        let pattern = match text.action {
            Action::Graphite => Some(Pattern::new(&text.graphite_match)?),
            _ => None,
        };
        let separator = text.separator.clone().unwrap_or_else(|| ";".to_owned());
        let replacement = text.replacement.clone().unwrap_or_else(|| "$1".to_owned());
        Ok(Self { text, separator, replacement, regex, inner, conditions, pattern })
    }

    /// The fields that it was made from.
    pub fn text(&self) -> &RuleText {
        &self.text
    }
}

fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ")
}

/// A selector of series, held against labels.
#[derive(Clone)]
pub struct Selector(Vec<CompiledMatcher>);

impl Selector {
    /// Compiles its matchers, all of which must hold; fails where one has no valid regular expression.
    pub fn new(matchers: &[Matcher]) -> Result<Self, String> {
        index::compile(matchers).map(Self).map_err(|error| error.to_string())
    }

    /// Returns whether it selects these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
        self.0.iter().all(|matcher| matcher.matches(value(matcher.name())))
    }
}

/// Prometheus's rules of which fields go together.
fn check(text: &RuleText) -> Result<(), String> {
    use Action as A;
    let action = text.action.name();
    let target = text.target_label.as_str();
    let needs_target = matches!(
        text.action,
        A::Replace
            | A::HashMod
            | A::Lowercase
            | A::Uppercase
            | A::KeepEqual
            | A::DropEqual
            | A::ReplaceAll
            | A::KeepIfContains
            | A::DropIfContains
    );
    if needs_target && target.is_empty() {
        return Err(format!("{action} needs target_label"));
    }
    let is_template = text.action == A::Replace && target.contains('$');
    if needs_target && !is_template && !is_label_name(target, text.names) {
        return Err(format!("{target:?} is no name of a label"));
    }
    if is_template && text.names == NameScheme::Legacy && !is_legacy_template(target) {
        return Err(format!("{target:?} is no name of a label"));
    }
    if text.action == A::HashMod && text.modulus == 0 {
        return Err("hashmod needs a modulus above 0".to_owned());
    }
    let equal = matches!(text.action, A::KeepEqual | A::DropEqual);
    let by_name = matches!(text.action, A::LabelDrop | A::LabelKeep);
    if equal && (text.regex.is_some() || text.modulus != 0 || text.separator.is_some() || text.replacement.is_some()) {
        return Err(format!("{action} takes source_labels and target_label alone"));
    }
    if by_name
        && (!text.source_labels.is_empty()
            || !target.is_empty()
            || text.modulus != 0
            || text.separator.is_some()
            || text.replacement.is_some())
    {
        return Err(format!("{action} takes regex alone"));
    }
    if text.action == A::Graphite && (text.graphite_match.is_empty() || text.graphite_labels.is_empty()) {
        return Err("graphite needs match and labels".to_owned());
    }
    if text.action != A::Graphite && !(text.graphite_match.is_empty() && text.graphite_labels.is_empty()) {
        return Err(format!("match and labels are for the action graphite, not for {action}"));
    }
    match text.source_labels.iter().find(|name| !is_label_name(name, text.names)) {
        Some(name) => Err(format!("{name:?} is no name of a label")),
        None => Ok(()),
    }
}

/// Returns whether a name is plain but for references such as `${1}` and `$1`.
fn is_legacy_template(name: &str) -> bool {
    let plain: String = name.chars().filter(|symbol| !matches!(symbol, '$' | '{' | '}')).collect();
    plain.is_empty() || plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
