//! Nodes over columns.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::Column;
use super::program::{Node, Operator, Program};
use super::stack::{Stack, order};

/// Shifts and steps that one prediction may look at.
const PREDICTION_VALUES_MAX: usize = 1 << 20;

/// When values are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// When the first step begins, in seconds.
    pub start_s: i64,
    /// When the last one ends.
    pub end_s: i64,
    /// Seconds of a step.
    pub step_s: i64,
}

/// What an expression is computed from.
pub struct Inputs<'a> {
    /// Columns, by the numbers of [`super::Operand::Series`].
    pub columns: &'a [Column],
    /// Values, by those of [`super::Operand::Scalar`].
    pub scalars: &'a [f64],
    /// The time now, in seconds.
    pub now_s: i64,
    /// Whether to go on; called again and again.
    pub check: &'a dyn Fn() -> Result<(), String>,
}

/// A node's position in its column.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    column: Option<usize>,
    next: usize,
}

/// One computation.
struct Run<'a> {
    inputs: &'a Inputs<'a>,
    grid: Grid,
    zone: TimeZone,
    /// One for each node.
    cursors: Vec<Cursor>,
    output: Vec<f64>,
    stack: Stack,
}

impl Program {
    /// The values of an expression at the ends of a grid's steps.
    pub fn evaluate(&self, inputs: &Inputs<'_>, grid: Grid) -> Result<Vec<f64>, String> {
        let cursors = self.nodes.iter().map(|node| match node {
            Node::Series(number) | Node::Before(number) => {
                let skipped = inputs
                    .columns
                    .get(*number)
                    .map_or(0, |column| (grid.start_s - column.start_s).max(0) / column.step_s.max(1));
                Cursor { column: Some(*number), next: skipped as usize }
            }
            _ => Cursor::default(),
        });
        let mut run = Run {
            inputs,
            grid,
            zone: TimeZone::system(),
            cursors: cursors.collect(),
            output: Vec::new(),
            stack: Stack::default(),
        };
        let mut time_s = grid.start_s + grid.step_s;
        while time_s <= grid.end_s {
            (inputs.check)()?;
            let value = run.at(&self.nodes, time_s)?;
            run.output.push(value);
            time_s += grid.step_s;
        }
        Ok(run.output)
    }

    /// The value for one step whose operands are given.
    pub fn evaluate_once(&self, points: &[f64], step_s: f64) -> Option<f64> {
        let step_s = step_s as i64;
        let column = |value: &f64| Column { start_s: 0, end_s: step_s, step_s, values: vec![*value] };
        let columns: Vec<Column> = points.iter().map(column).collect();
        let inputs = Inputs { columns: &columns, scalars: &[], now_s: 0, check: &|| Ok(()) };
        let values = self.evaluate(&inputs, Grid { start_s: 0, end_s: step_s, step_s }).ok()?;
        values.first().copied()
    }
}

impl<'a> Run<'a> {
    /// The value at a time.
    fn at(&mut self, nodes: &[Node], time_s: i64) -> Result<f64, String> {
        self.stack.clear();
        for (index, node) in nodes.iter().enumerate() {
            match node {
                Node::Number(value) => self.stack.push(*value)?,
                Node::Scalar(number) => {
                    self.stack.push(self.inputs.scalars.get(*number).copied().unwrap_or(f64::NAN))?;
                }
                Node::Series(_) | Node::Before(_) => {
                    let value = self.read(index, matches!(node, Node::Before(_)), time_s);
                    self.stack.push(value)?;
                }
                Node::Operator(operator) => {
                    if !self.stack.run(*operator)? {
                        self.run(*operator, index, time_s)?;
                    }
                }
            }
        }
        self.stack.result()
    }

    /// The value of a node's column now, or one step before; moves on with the column's steps.
    fn read(&mut self, index: usize, is_before: bool, time_s: i64) -> f64 {
        let Some(cursor) = self.cursors.get_mut(index) else { return f64::NAN };
        let Some(column) = cursor.column.and_then(|number| self.inputs.columns.get(number)) else { return f64::NAN };
        let at = match is_before {
            false => Some(cursor.next),
            true if self.output.is_empty() => None,
            true => cursor.next.checked_sub(1),
        };
        if time_s % column.step_s.max(1) == 0 {
            cursor.next += 1;
        }
        at.and_then(|at| column.values.get(at)).copied().unwrap_or(f64::NAN)
    }

    /// Runs an operator that needs more than the stack.
    fn run(&mut self, operator: Operator, index: usize, time_s: i64) -> Result<(), String> {
        let value = match operator {
            Operator::Unknown => f64::NAN,
            Operator::Infinity => f64::INFINITY,
            Operator::NegativeInfinity => f64::NEG_INFINITY,
            Operator::Previous => self.output.last().copied().unwrap_or(f64::NAN),
            Operator::Count => (self.output.len() + 1) as f64,
            Operator::StepWidth => self.grid.step_s as f64,
            Operator::Now => self.inputs.now_s as f64,
            Operator::Time => time_s as f64,
            Operator::LocalTime => {
                let offset = Timestamp::from_second(time_s).map_or(0, |time| self.zone.to_offset(time).seconds());
                time_s as f64 + f64::from(offset)
            }
            Operator::NewDay | Operator::NewWeek | Operator::NewMonth | Operator::NewYear => {
                f64::from(u8::from(self.is_new(operator, time_s)))
            }
            Operator::Trend | Operator::TrendKnown => self.trend(operator == Operator::TrendKnown, index)?,
            _ => self.predict(operator, index)?,
        };
        self.stack.push(value)
    }

    fn local(&self, time_s: i64) -> DateTime {
        Timestamp::from_second(time_s).map_or(DateTime::default(), |time| self.zone.to_datetime(time))
    }

    /// Returns whether a step is the first of its day, week, month or year.
    fn is_new(&self, operator: Operator, time_s: i64) -> bool {
        let (now, before) = (self.local(time_s), self.local(time_s - self.grid.step_s));
        match operator {
            Operator::NewDay => now.day() != before.day(),
            Operator::NewMonth => now.month() != before.month(),
            Operator::NewYear => now.year() != before.year(),
            _ => {
                let weekday = now.weekday();
                weekday == jiff::civil::Weekday::Sunday && weekday != before.weekday()
            }
        }
    }

    /// The column that a node reads, and where it has come to.
    fn column_of(&self, index: Option<usize>) -> Option<(&'a Column, usize)> {
        let cursor = self.cursors.get(index?)?;
        Some((self.inputs.columns.get(cursor.column?)?, cursor.next))
    }

    /// The mean of a column over the last so many seconds: `column,seconds,TREND`.
    fn trend(&mut self, skips_unknown: bool, index: usize) -> Result<f64, String> {
        let duration_s = self.stack.pop()?;
        self.stack.pop()?;
        let Some((column, next)) = self.column_of(index.checked_sub(2)) else {
            return Err("malformed trend arguments".to_owned());
        };
        let steps = (duration_s / column.step_s as f64).ceil();
        if !steps.is_finite() || ((self.output.len() + 1) as f64) < steps {
            return Ok(f64::NAN);
        }
        let (mut sum, mut count) = (0.0, 0);
        for back in 1..=(steps.max(1.0) as usize) {
            let value = next.checked_sub(back).and_then(|at| column.values.get(at)).copied().unwrap_or(f64::NAN);
            if !skips_unknown || !value.is_nan() {
                sum += value;
                count += 1;
            }
        }
        Ok(if count == 0 { f64::NAN } else { sum / f64::from(count) })
    }

    /// The mean, deviation or percentile of a column around shifts into the past:
    /// `shift,…,shift,count,window,column,PREDICT`; a negative count repeats one shift.
    fn predict(&mut self, operator: Operator, index: usize) -> Result<f64, String> {
        self.stack.pop()?;
        let percentile = if operator == Operator::PredictPercent { self.stack.pop()? } else { 0.0 };
        if percentile.is_nan() || percentile.abs() > 100.0 {
            return Err(format!("unsupported percentile: {percentile}"));
        }
        let (window_s, count) = (self.stack.pop()?, self.stack.pop()?);
        let Some((column, next)) = self.column_of(index.checked_sub(1)) else {
            return Err("a prediction needs a column before it".to_owned());
        };
        let (values, step_s) = (&column.values, column.step_s as f64);
        let window = (window_s / step_s).ceil();
        let repeats = count.abs();
        if !(window >= 0.0 && repeats >= 0.0 && (window + 1.0) * repeats <= PREDICTION_VALUES_MAX as f64) {
            return Err(format!("a prediction looks at most at {PREDICTION_VALUES_MAX} values"));
        }
        let distances = self.stack.pop_many(if count < 0.0 { 1 } else { repeats as usize })?;
        let mut seen = Vec::new();
        for number in 0..repeats as usize {
            let shift_s = if count < 0.0 {
                number as f64 * distances.first().copied().unwrap_or_default()
            } else {
                distances.get(number).copied().unwrap_or_default()
            };
            if shift_s < 0.0 {
                return Err(format!("negative shift step not allowed: {shift_s}"));
            }
            let shift = (shift_s / step_s).ceil();
            for back in 0..=window as usize {
                let offset = shift + back as f64;
                if offset < self.output.len() as f64 {
                    let value = next.checked_sub(offset as usize).and_then(|at| values.get(at));
                    seen.extend(value.copied().filter(|value| !value.is_nan()));
                }
            }
        }
        Ok(match operator {
            Operator::Predict => mean(&seen),
            Operator::PredictSigma => sigma(&seen),
            _ => percentile_of(seen, percentile / 100.0),
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn sigma(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), value| (sum + value, squares + value * value));
    let spread = count * squares - sum * sum;
    if values.len() < 2 || spread < 0.0 { f64::NAN } else { (spread / (count * (count - 1.0))).sqrt() }
}

/// A percentile; a negative one takes the nearest value, others lie between two.
fn percentile_of(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(|a, b| order(*a, *b));
    let at = |index: f64| values.get(index as usize).copied().unwrap_or(f64::NAN);
    if values.is_empty() {
        return f64::NAN;
    }
    let exact = share * (values.len() as f64 - 1.0);
    if share < 0.0 {
        return at(exact.abs().round());
    }
    let below = exact.floor();
    if exact > below { at(below) + (at(below + 1.0) - at(below)) * (exact - below) } else { at(below) }
}
