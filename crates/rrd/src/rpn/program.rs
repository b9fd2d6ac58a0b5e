//! Text to nodes.

use crate::number;

/// Bytes that the text of an expression may have.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// What a name in an expression stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A column.
    Series(usize),
    /// One value.
    Scalar(usize),
}

/// An item of an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Node {
    Number(f64),
    Series(usize),
    Scalar(usize),
    /// The value of a column one step before.
    Before(usize),
    Operator(Operator),
}

/// Makes the enum of operators and the table of their names.
macro_rules! operators {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// An operator.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Operator {
            $($variant),*
        }

        const OPERATORS: &[(&str, Operator)] = &[$(($name, Operator::$variant)),*];
    };
}

operators! {
    Add "+", Subtract "-", Multiply "*", Divide "/", Modulo "%", Power "POW", AddKnown "ADDNAN",
    Sine "SIN", Cosine "COS", Logarithm "LOG", Exponential "EXP", Root "SQRT", Arctangent "ATAN", Arctangent2 "ATAN2",
    Degrees "RAD2DEG", Radians "DEG2RAD", Absolute "ABS", Floor "FLOOR", Ceiling "CEIL",
    Less "LT", LessOrEqual "LE", Greater "GT", GreaterOrEqual "GE", Equal "EQ", NotEqual "NE", If "IF",
    Min "MIN", Max "MAX", MinKnown "MINNAN", MaxKnown "MAXNAN", Limit "LIMIT", IsUnknown "UN", IsInfinite "ISINF",
    Unknown "UNKN", Infinity "INF", NegativeInfinity "NEGINF", Previous "PREV", Count "COUNT", Now "NOW", Time "TIME",
    LocalTime "LTIME", StepWidth "STEPWIDTH", NewDay "NEWDAY", NewWeek "NEWWEEK", NewMonth "NEWMONTH", NewYear "NEWYEAR",
    Duplicate "DUP", Pop "POP", Exchange "EXC", Depth "DEPTH", Copy "COPY", Index "INDEX", Roll "ROLL",
    Sort "SORT", Reverse "REV", Average "AVG", Median "MEDIAN", Deviation "STDEV", Percent "PERCENT", StackMin "SMIN",
    StackMax "SMAX", Trend "TREND", TrendKnown "TRENDNAN", Predict "PREDICT", PredictSigma "PREDICTSIGMA",
    PredictPercent "PREDICTPERC",
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub(super) nodes: Vec<Node>,
}

impl Program {
    /// Reads an expression; `operand` says what names stand for.
    pub fn parse(text: &str, operand: &dyn Fn(&str) -> Option<Operand>) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("an expression has at most {TEXT_BYTES_MAX} bytes"));
        }
        let nodes = text.split(',').map(|item| node(item.trim(), operand)).collect::<Result<Vec<Node>, String>>()?;
        Ok(Self { nodes })
    }

    /// The columns that it reads.
    pub fn series(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Series(column) | Node::Before(column) => Some(*column),
            _ => None,
        })
    }
}

fn node(item: &str, operand: &dyn Fn(&str) -> Option<Operand>) -> Result<Node, String> {
    if let Some(value) = number::parse(item).filter(|_| !item.starts_with(|first: char| first.is_ascii_alphabetic())) {
        return Ok(Node::Number(value));
    }
    if let Some((_, operator)) = OPERATORS.iter().find(|(name, _)| *name == item) {
        return Ok(Node::Operator(*operator));
    }
    if let Some(name) = item.strip_prefix("PREV(").and_then(|item| item.strip_suffix(')')) {
        return match operand(name) {
            Some(Operand::Series(column)) => Ok(Node::Before(column)),
            Some(Operand::Scalar(value)) => Ok(Node::Scalar(value)),
            None => Err(format!("{name:?} in {item:?} is not defined before")),
        };
    }
    match operand(item) {
        Some(Operand::Series(column)) => Ok(Node::Series(column)),
        Some(Operand::Scalar(value)) => Ok(Node::Scalar(value)),
        None => Err(format!("{item:?} is no number, no operator, and not defined before")),
    }
}
