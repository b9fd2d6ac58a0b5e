//! Statements as trees.

use access::statement::AccountStatement;
use query::RowLimit;

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Statement {
    Select(Box<Select>),
    /// The plans of a selection, and with `ANALYZE` what running them took.
    Explain {
        analyze: bool,
        select: Box<Select>,
    },
    Show(Show),
    CreateDatabase {
        name: String,
        policy: Option<PolicyOptions>,
    },
    DropDatabase(String),
    CreatePolicy {
        name: String,
        database: String,
        options: PolicyOptions,
    },
    AlterPolicy {
        name: String,
        database: String,
        options: PolicyOptions,
    },
    DropPolicy {
        name: String,
        database: String,
    },
    Delete {
        sources: Vec<Source>,
        condition: Option<Expr>,
    },
    DropSeries {
        sources: Vec<Source>,
        condition: Option<Expr>,
    },
    DropMeasurement(String),
    CreateContinuousQuery(ContinuousQuery),
    DropContinuousQuery {
        name: String,
        database: String,
    },
    KillQuery(u64),
    /// A statement that is not supported: its first words.
    Refused(String),
    /// About users: the server runs it.
    Account(AccountStatement),
    /// About subscriptions: the server runs it.
    Subscription(SubscriptionStatement),
}

/// A statement about subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionStatement {
    /// Makes one.
    Create {
        /// Its name.
        name: String,
        /// The database whose rows it sends.
        database: String,
        /// The retention policy that it names, which its receivers are told.
        policy: String,
        /// True to send everything to each destination (`ALL`), false for one of them in turn (`ANY`).
        sends_to_all: bool,
        /// Addresses: `http://…`, `https://…`, `udp://…`.
        destinations: Vec<String>,
    },
    /// Removes one.
    Drop {
        /// Its name.
        name: String,
        /// Its database.
        database: String,
        /// Its retention policy.
        policy: String,
    },
    /// Lists all.
    Show,
}

/// A continuous query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContinuousQuery {
    pub(crate) name: String,
    pub(crate) database: String,
    /// `RESAMPLE EVERY`.
    pub(crate) every_ns: Option<i64>,
    /// `RESAMPLE FOR`.
    pub(crate) for_ns: Option<i64>,
    pub(crate) select: Box<Select>,
}

/// The options of retention policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PolicyOptions {
    /// `DURATION`, in nanoseconds; 0: for ever.
    pub(crate) duration_ns: Option<i64>,
    /// `REPLICATION`, which means nothing here.
    pub(crate) replication: Option<u64>,
    /// `SHARD DURATION`, which means nothing here.
    pub(crate) shard_duration_ns: Option<i64>,
    pub(crate) default: bool,
    pub(crate) name: Option<String>,
}

/// A selection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Select {
    pub(crate) fields: Vec<Field>,
    pub(crate) into: Option<Target>,
    pub(crate) sources: Vec<Source>,
    pub(crate) condition: Option<Expr>,
    pub(crate) dimensions: Vec<Dimension>,
    /// `None`: not said, which is `null`.
    pub(crate) fill: Option<Fill>,
    /// True if `ORDER BY` says it falls; `None`: not said.
    pub(crate) descending: Option<bool>,
    pub(crate) limits: Limits,
    /// `tz('…')`.
    pub(crate) zone: Option<String>,
}

/// `LIMIT`, `OFFSET`, `SLIMIT` and `SOFFSET`; a limit of 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) rows: u64,
    pub(crate) rows_skipped: u64,
    pub(crate) series: u64,
    pub(crate) series_skipped: u64,
}

impl Limits {
    /// The limit of the rows of each series.
    pub(crate) fn of_rows(self) -> RowLimit {
        limit(self.rows, self.rows_skipped)
    }

    /// The limit of series.
    pub(crate) fn of_series(self) -> RowLimit {
        limit(self.series, self.series_skipped)
    }
}

fn limit(most: u64, skipped: u64) -> RowLimit {
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    RowLimit { skip: count(skipped), rows: (most > 0).then(|| count(most)) }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) expr: Expr,
    pub(crate) alias: Option<String>,
}

/// Where `INTO` writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) database: Option<String>,
    pub(crate) policy: Option<String>,
    /// `None`: `:MEASUREMENT`, where rows come from.
    pub(crate) measurement: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    Measurement(Measurement),
    Subquery(Box<Select>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measurement {
    pub(crate) database: Option<String>,
    pub(crate) policy: Option<String>,
    pub(crate) name: Named,
}

/// A name, or a pattern for names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Exactly(String),
    Pattern(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Dimension {
    /// `time(width, offset)`.
    Time {
        width_ns: i64,
        offset: Option<Expr>,
    },
    Tag(String),
    Pattern(String),
    Wildcard,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fill {
    Null,
    None,
    Previous,
    Linear,
    Integer(i64),
    Number(f64),
}

/// The kind or type that a reference names: `name::tag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Cast {
    Field,
    Tag,
    Float,
    Integer,
    Unsigned,
    Text,
    Boolean,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Reference {
        name: String,
        cast: Option<Cast>,
    },
    Number(f64),
    Integer(i64),
    Unsigned(u64),
    Text(String),
    Boolean(bool),
    /// In nanoseconds.
    Duration(i64),
    Pattern(String),
    /// `*`, `*::field` or `*::tag`.
    Wildcard(Option<Cast>),
    Call {
        name: String,
        arguments: Vec<Expr>,
    },
    Binary {
        operator: Operator,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// Operands between `AND`s: at least two.
    All(Vec<Expr>),
    /// Operands between `OR`s: at least two.
    Any(Vec<Expr>),
    Parentheses(Box<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Matches,
    MatchesNot,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    BitOr,
    BitXor,
    Multiply,
    Divide,
    Modulo,
    BitAnd,
}

impl Operator {
    /// All, with how they are written and how tightly they bind; `AND` and `OR` bind less tightly.
    pub(crate) const ALL: [(&'static str, Self, u8); 17] = [
        ("=", Self::Equal, 3),
        ("!=", Self::NotEqual, 3),
        ("<>", Self::NotEqual, 3),
        ("=~", Self::Matches, 3),
        ("!~", Self::MatchesNot, 3),
        ("<", Self::Less, 3),
        ("<=", Self::LessOrEqual, 3),
        (">", Self::Greater, 3),
        (">=", Self::GreaterOrEqual, 3),
        ("+", Self::Add, 4),
        ("-", Self::Subtract, 4),
        ("|", Self::BitOr, 4),
        ("^", Self::BitXor, 4),
        ("*", Self::Multiply, 5),
        ("/", Self::Divide, 5),
        ("%", Self::Modulo, 5),
        ("&", Self::BitAnd, 5),
    ];

    pub(crate) fn written(self) -> &'static str {
        Self::ALL.iter().find(|(_, operator, _)| *operator == self).map_or("", |(text, ..)| text)
    }

    /// Returns whether it compares, so that its value is true or false.
    pub(crate) fn compares(self) -> bool {
        Self::ALL.iter().any(|(_, operator, strength)| *operator == self && *strength == 3)
    }

    /// The comparison with its sides exchanged.
    pub(crate) const fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }
}

/// The subject of `SHOW`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Show {
    pub(crate) what: ShowTarget,
    /// The module that `SHOW STATS FOR` and `SHOW DIAGNOSTICS FOR` name.
    pub(crate) module: Option<String>,
    /// `ON`.
    pub(crate) database: Option<String>,
    pub(crate) sources: Vec<Source>,
    /// `WITH MEASUREMENT`.
    pub(crate) with_measurement: Option<Named>,
    pub(crate) with_key: Option<WithKey>,
    pub(crate) condition: Option<Expr>,
    pub(crate) dimensions: Vec<Dimension>,
    pub(crate) descending: bool,
    pub(crate) limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShowTarget {
    Databases,
    Measurements,
    Series,
    TagKeys,
    TagValues,
    FieldKeys,
    Policies,
    Queries,
    Shards,
    ShardGroups,
    Subscriptions,
    ContinuousQueries,
    Stats,
    Diagnostics,
    /// How many there are; `exact` or as good as that.
    Cardinality {
        counted: Counted,
        exact: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Series,
    Measurements,
    TagKeys,
    TagValues,
    FieldKeys,
}

/// `WITH KEY …` of `SHOW TAG VALUES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WithKey {
    In(Vec<String>),
    Not(String),
    Matches(String),
    MatchesNot(String),
}

impl Expr {
    pub(crate) fn reference(name: &str) -> Self {
        Self::Reference { name: name.to_owned(), cast: None }
    }

    pub(crate) fn binary(operator: Operator, left: Self, right: Self) -> Self {
        Self::Binary { operator, left: Box::new(left), right: Box::new(right) }
    }

    /// The expression without parentheses around it.
    pub(crate) fn bare(&self) -> &Self {
        let mut expr = self;
        while let Self::Parentheses(inner) = expr {
            expr = inner;
        }
        expr
    }

    /// The expressions right below.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Call { arguments, .. } => arguments.iter().collect(),
            Self::Binary { left, right, .. } => vec![left, right],
            Self::All(operands) | Self::Any(operands) => operands.iter().collect(),
            Self::Parentheses(inner) => vec![inner],
            _ => Vec::new(),
        }
    }

    /// Visits this and everything below, outermost first.
    pub(crate) fn walk<'e>(&'e self, visit: &mut dyn FnMut(&'e Self)) {
        visit(self);
        for child in self.children() {
            child.walk(visit);
        }
    }
}
