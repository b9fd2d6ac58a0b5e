//! Expressions over the columns of a row.

/// An expression over a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// `#TS`: the row's time in nanoseconds.
    Time,
    /// `#V`: the column `value`, or the only one.
    Value,
    /// `#name`: a column.
    Column(String),
    /// `(label "name")`: a label of the series.
    Label(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// True or false.
    Bool(bool),
    /// Something of others.
    Apply(Operator, Vec<Expression>),
    /// A function of numbers.
    Call(Function, Vec<Expression>),
}

impl Expression {
    /// Returns whether it is a value.
    pub(crate) const fn is_constant(&self) -> bool {
        matches!(self, Self::Integer(_) | Self::Float(_) | Self::Text(_) | Self::Bool(_))
    }

    /// Returns whether it depends on a row's values or time, not on labels alone.
    pub(crate) fn is_of_rows(&self) -> bool {
        match self {
            Self::Time | Self::Value | Self::Column(_) => true,
            Self::Apply(_, of) | Self::Call(_, of) => of.iter().any(Self::is_of_rows),
            _ => false,
        }
    }

    /// Visits the columns in it; whether these are all that it needs, so that no other column may be missed.
    pub fn each_column<'a>(&'a self, visit: &mut impl FnMut(&'a str)) -> bool {
        match self {
            Self::Value => return false,
            Self::Column(name) => visit(name),
            Self::Apply(_, of) | Self::Call(_, of) => return of.iter().all(|of| of.each_column(visit)),
            _ => {}
        }
        true
    }
}

/// How expressions are put together. Arithmetic is that of floats, but for [`Operator::Difference`]; comparisons of whole numbers are exact. What has a null in it is
/// null, but for `and` and `or` that do not depend on it, and for what is there for nulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// All of them.
    And,
    /// One of them.
    Or,
    /// The opposite.
    Not,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `+`, of one or more
    Add,
    /// `-`, of one (negated), two or more
    Subtract,
    /// `*`, of one or more
    Multiply,
    /// `/`, of two or more; by zero as floats have it
    Divide,
    /// `%`: the remainder, of the sign of the first
    Remainder,
    /// The first that is not null
    Coalesce,
    /// The first of two; null where both are equal
    NullIf,
    /// How much more the first of two is than the second: of whole numbers of one type exact, of that type, and wrapped around
    Difference,
    /// Of pairs of a condition and a value the value of the first whose condition holds, else the last one, which has no condition; without it null
    If,
    /// True if it is null
    IsNull,
    /// -1, 0 or 1 as the first of two is less than, equal to or greater than the second, where NaN is above all numbers, as in SQL
    Compare,
}

impl Operator {
    /// All, as they are written.
    pub const NAMED: [(&'static str, Self); 20] = [
        ("and", Self::And),
        ("or", Self::Or),
        ("not", Self::Not),
        ("<", Self::Less),
        ("<=", Self::LessOrEqual),
        (">", Self::Greater),
        (">=", Self::GreaterOrEqual),
        ("=", Self::Equal),
        ("!=", Self::NotEqual),
        ("+", Self::Add),
        ("-", Self::Subtract),
        ("*", Self::Multiply),
        ("/", Self::Divide),
        ("%", Self::Remainder),
        ("coalesce", Self::Coalesce),
        ("nullif", Self::NullIf),
        ("difference", Self::Difference),
        ("if", Self::If),
        ("is_null", Self::IsNull),
        ("compare", Self::Compare),
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| name)
    }

    /// Returns whether it makes a number of numbers.
    pub const fn is_arithmetic(self) -> bool {
        matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Remainder)
    }

    /// Returns whether it makes true or false of two values.
    pub const fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual | Self::Equal | Self::NotEqual
        )
    }

    /// Fewest and most that it takes.
    pub const fn takes(self) -> (usize, usize) {
        match self {
            Self::Not | Self::IsNull => (1, 1),
            Self::Add | Self::Multiply | Self::And | Self::Or | Self::Subtract | Self::Coalesce => (1, usize::MAX),
            Self::Divide | Self::If => (2, usize::MAX),
            _ => (2, 2),
        }
    }
}

/// Functions of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Without its sign.
    Abs,
    /// The next whole number below.
    Floor,
    /// The next whole number above.
    Ceil,
    /// The nearest whole number, halves away from zero.
    Round,
    /// The square root.
    Sqrt,
    /// e to its power.
    Exp,
    /// The natural logarithm.
    Ln,
}

impl Function {
    /// All, with their names.
    pub const NAMED: [(&'static str, Self); 7] = [
        ("abs", Self::Abs),
        ("floor", Self::Floor),
        ("ceil", Self::Ceil),
        ("round", Self::Round),
        ("sqrt", Self::Sqrt),
        ("exp", Self::Exp),
        ("ln", Self::Ln),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| name)
    }

    /// Its value.
    pub fn apply(self, number: f64) -> f64 {
        match self {
            Self::Abs => number.abs(),
            Self::Floor => number.floor(),
            Self::Ceil => number.ceil(),
            Self::Round => number.round(),
            Self::Sqrt => number.sqrt(),
            Self::Exp => number.exp(),
            Self::Ln => number.ln(),
        }
    }
}
