//! Operators that only touch the stack.

use std::cmp::Ordering;

use super::program::Operator;

/// Values that may be on the stack.
pub(super) const STACK_MAX: usize = 1 << 16;

/// A stack of values.
#[derive(Debug, Default)]
pub(super) struct Stack(Vec<f64>);

fn underflow() -> String {
    "RPN stack underflow".to_owned()
}

/// Order of values: unknown ones first.
pub(super) fn order(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (a, b) => b.cmp(&a),
    }
}

impl Stack {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn push(&mut self, value: f64) -> Result<(), String> {
        if self.0.len() >= STACK_MAX {
            return Err(format!("RPN stack overflow: more than {STACK_MAX} values"));
        }
        self.0.push(value);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Result<f64, String> {
        self.0.pop().ok_or_else(underflow)
    }

    /// The only value that is left.
    pub(super) fn result(&self) -> Result<f64, String> {
        match self.0.as_slice() {
            [value] => Ok(*value),
            _ => Err("RPN final stack size != 1".to_owned()),
        }
    }

    /// Pops a count of values that are on the stack.
    fn pop_count(&mut self) -> Result<usize, String> {
        let count = self.pop()?;
        if count >= 0.0 && count <= self.0.len() as f64 { Ok(count as usize) } else { Err(underflow()) }
    }

    /// Pops a count and so many values, the lowest first.
    fn pop_values(&mut self) -> Result<Vec<f64>, String> {
        let count = self.pop_count()?;
        Ok(self.0.split_off(self.0.len() - count))
    }

    /// Pops so many values, the lowest first.
    pub(super) fn pop_many(&mut self, count: usize) -> Result<Vec<f64>, String> {
        let at = self.0.len().checked_sub(count).ok_or_else(underflow)?;
        Ok(self.0.split_off(at))
    }

    fn unary(&mut self, function: impl FnOnce(f64) -> f64) -> Result<(), String> {
        let value = self.0.last_mut().ok_or_else(underflow)?;
        *value = function(*value);
        Ok(())
    }

    fn binary(&mut self, function: impl FnOnce(f64, f64) -> f64) -> Result<(), String> {
        let second = self.pop()?;
        self.unary(|first| function(first, second))
    }

    /// Runs an operator; false if it needs more than the stack.
    pub(super) fn run(&mut self, operator: Operator) -> Result<bool, String> {
        if self.arithmetic(operator)? || self.choice(operator)? || self.handling(operator)? {
            return Ok(true);
        }
        let values = match operator {
            Operator::Sort | Operator::Reverse | Operator::Average | Operator::Median | Operator::Deviation => {
                self.pop_values()?
            }
            Operator::StackMin | Operator::StackMax => self.pop_values()?,
            Operator::Percent => {
                let count = self.pop_count()?;
                return self.percent(count).map(|()| true);
            }
            _ => return Ok(false),
        };
        self.list(operator, values)?;
        Ok(true)
    }

    fn arithmetic(&mut self, operator: Operator) -> Result<bool, String> {
        match operator {
            Operator::Add => self.binary(|a, b| a + b)?,
            Operator::Subtract => self.binary(|a, b| a - b)?,
            Operator::Multiply => self.binary(|a, b| a * b)?,
            Operator::Divide => self.binary(|a, b| a / b)?,
            Operator::Modulo => self.binary(|a, b| a % b)?,
            Operator::Power => self.binary(f64::powf)?,
            Operator::AddKnown => self.binary(|a, b| {
                if a.is_nan() {
                    b
                } else if b.is_nan() {
                    a
                } else {
                    a + b
                }
            })?,
            Operator::Sine => self.unary(f64::sin)?,
            Operator::Cosine => self.unary(f64::cos)?,
            Operator::Logarithm => self.unary(f64::ln)?,
            Operator::Exponential => self.unary(f64::exp)?,
            Operator::Root => self.unary(f64::sqrt)?,
            Operator::Arctangent => self.unary(f64::atan)?,
            Operator::Arctangent2 => self.binary(f64::atan2)?,
            Operator::Degrees => self.unary(|value| 57.295_779_51 * value)?,
            Operator::Radians => self.unary(|value| 0.017_453_295_2 * value)?,
            Operator::Absolute => self.unary(f64::abs)?,
            Operator::Floor => self.unary(f64::floor)?,
            Operator::Ceiling => self.unary(f64::ceil)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Comparisons and what chooses among values. An unknown value makes all but those of known values unknown.
    fn choice(&mut self, operator: Operator) -> Result<bool, String> {
        let truth = |condition: bool| f64::from(u8::from(condition));
        let known = |a: f64, b: f64, result: f64| {
            if a.is_nan() {
                a
            } else if b.is_nan() {
                b
            } else {
                result
            }
        };
        match operator {
            Operator::Less => self.binary(|a, b| known(a, b, truth(a < b)))?,
            Operator::LessOrEqual => self.binary(|a, b| known(a, b, truth(a <= b)))?,
            Operator::Greater => self.binary(|a, b| known(a, b, truth(a > b)))?,
            Operator::GreaterOrEqual => self.binary(|a, b| known(a, b, truth(a >= b)))?,
            Operator::Equal => self.binary(|a, b| known(a, b, truth(a.partial_cmp(&b) == Some(Ordering::Equal))))?,
            Operator::NotEqual => self.binary(|a, b| known(a, b, truth(a.partial_cmp(&b) != Some(Ordering::Equal))))?,
            Operator::Min => self.binary(|a, b| known(a, b, a.min(b)))?,
            Operator::Max => self.binary(|a, b| known(a, b, a.max(b)))?,
            Operator::MinKnown => self.binary(f64::min)?,
            Operator::MaxKnown => self.binary(f64::max)?,
            Operator::IsUnknown => self.unary(|value| truth(value.is_nan()))?,
            Operator::IsInfinite => self.unary(|value| truth(value.is_infinite()))?,
            Operator::If => {
                let (otherwise, then) = (self.pop()?, self.pop()?);
                self.unary(|condition| if condition.is_nan() || condition == 0.0 { otherwise } else { then })?;
            }
            Operator::Limit => {
                let (high, low) = (self.pop()?, self.pop()?);
                self.unary(|value| match value {
                    _ if low.is_nan() || high.is_nan() || value < low || value > high => f64::NAN,
                    _ => value,
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Moves values on the stack.
    fn handling(&mut self, operator: Operator) -> Result<bool, String> {
        match operator {
            Operator::Duplicate => {
                let top = *self.0.last().ok_or_else(underflow)?;
                self.push(top)?;
            }
            Operator::Pop => drop(self.pop()?),
            Operator::Exchange => {
                let (second, first) = (self.pop()?, self.pop()?);
                self.0.extend([second, first]);
            }
            Operator::Depth => self.push(self.0.len() as f64)?,
            Operator::Copy => {
                let count = self.pop_count()?;
                if self.0.len() + count > STACK_MAX {
                    return Err(format!("RPN stack overflow: more than {STACK_MAX} values"));
                }
                self.0.extend_from_within(self.0.len() - count..);
            }
            Operator::Index => {
                let count = self.pop_count()?;
                let at = self.0.len().checked_sub(count).filter(|_| count > 0).ok_or_else(underflow)?;
                let value = self.0.get(at).copied().ok_or_else(underflow)?;
                self.push(value)?;
            }
            Operator::Roll => {
                let by = self.pop()?;
                let mut values = self.pop_values()?;
                if !values.is_empty() {
                    let by = by.rem_euclid(values.len() as f64) as usize % values.len();
                    values.rotate_right(by);
                }
                self.0.extend(values);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Operators of several values.
    fn list(&mut self, operator: Operator, mut values: Vec<f64>) -> Result<(), String> {
        match operator {
            Operator::Sort => {
                values.sort_by(|a, b| order(*a, *b));
                self.0.extend(values);
                return Ok(());
            }
            Operator::Reverse => {
                values.reverse();
                self.0.extend(values);
                return Ok(());
            }
            _ => {}
        }
        if matches!(operator, Operator::StackMin | Operator::StackMax) {
            let is_max = operator == Operator::StackMax;
            let extreme = values.iter().rev().fold(f64::NAN, |extreme, value| {
                let is_better = if is_max { *value > extreme } else { *value < extreme };
                if extreme.is_nan() || is_better { *value } else { extreme }
            });
            return self.push(extreme);
        }
        values.retain(|value| !value.is_nan());
        let count = values.len();
        let value = match operator {
            _ if count == 0 => f64::NAN,
            Operator::Average => values.iter().rev().sum::<f64>() / count as f64,
            Operator::Median => {
                values.sort_by(|a, b| order(*a, *b));
                let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
                if count % 2 == 1 { at(count / 2) } else { 0.5 * (at(count / 2) + at(count / 2 - 1)) }
            }
            _ if count < 2 => f64::NAN,
            _ => deviation(&values),
        };
        self.push(value)
    }

    fn percent(&mut self, count: usize) -> Result<(), String> {
        let percent = self.pop()?;
        if !(0.0..=100.0).contains(&percent) {
            return Err("percentile argument must be between 0 and 100".to_owned());
        }
        let mut values = self.pop_many(count)?;
        values.sort_by(|a, b| order(*a, *b));
        let index = (percent * count as f64 / 100.0).round() as usize;
        self.push(values.get(index.max(1) - 1).copied().unwrap_or(f64::NAN))
    }
}

/// The standard deviation of a sample, the last value first.
fn deviation(values: &[f64]) -> f64 {
    let (mut mean, mut squares) = (0.0, 0.0);
    for (number, value) in values.iter().rev().enumerate() {
        let delta = value - mean;
        mean += delta / (number + 1) as f64;
        squares += delta * (value - mean);
    }
    (squares / (values.len() - 1) as f64).sqrt()
}
