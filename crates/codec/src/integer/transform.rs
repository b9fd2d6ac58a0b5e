//! What makes scaled numbers small before they are packed or entropy-coded.

use crate::{DecodeError, Reader, varint};

/// Scaled numbers start with 0, because the first value is taken off all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    /// As they are.
    Frame,
    /// Less n × step: timestamps that keep near a grid.
    Linear(i64),
    /// Differences between neighbours.
    Differences,
    /// Differences of differences; the first difference is held apart.
    SecondDifferences(i64),
}

impl Transform {
    /// Numbers up to this are transforms that look at no neighbour.
    pub(super) const LINEAR_NUMBER: u8 = 1;

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Frame => 0,
            Self::Linear(_) => Self::LINEAR_NUMBER,
            Self::Differences => 2,
            Self::SecondDifferences(_) => 3,
        }
    }

    /// Values at the front that are known without being stored.
    pub(super) const fn implied(self) -> usize {
        match self {
            Self::Frame | Self::Linear(_) => 0,
            Self::Differences => 1,
            Self::SecondDifferences(_) => 2,
        }
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Linear(number) | Self::SecondDifferences(number) => varint::push_signed(out, number),
            Self::Frame | Self::Differences => {}
        }
    }

    pub(super) fn read(number: u8, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match number {
            0 => Self::Frame,
            Self::LINEAR_NUMBER => Self::Linear(reader.varint_signed()?),
            2 => Self::Differences,
            _ => Self::SecondDifferences(reader.varint_signed()?),
        })
    }

    /// Fills `rest` with the transformed numbers from place `from` on, which is not below [`Self::implied`].
    pub(super) fn apply(self, scaled: &[i64], from: usize, rest: &mut [i64]) {
        let at = scaled.get(from..).unwrap_or_default();
        let back = |by: usize| from.checked_sub(by).and_then(|place| scaled.get(place..)).unwrap_or_default();
        match self {
            Self::Frame => {
                rest.iter_mut().zip(at).for_each(|(rest, value)| *rest = *value);
            }
            Self::Linear(step) => {
                let mut grid = step.wrapping_mul(from as i64);
                for (rest, value) in rest.iter_mut().zip(at) {
                    *rest = value.wrapping_sub(grid);
                    grid = grid.wrapping_add(step);
                }
            }
            Self::Differences => {
                for (rest, (value, last)) in rest.iter_mut().zip(at.iter().zip(back(1))) {
                    *rest = value.wrapping_sub(*last);
                }
            }
            Self::SecondDifferences(_) => {
                for (rest, ((value, last), before)) in rest.iter_mut().zip(at.iter().zip(back(1)).zip(back(2))) {
                    *rest = value.wrapping_sub(*last).wrapping_sub(last.wrapping_sub(*before));
                }
            }
        }
    }

    /// Makes the transformed numbers of scaled ones, without those that are [implied](Self::implied). Each is written where nothing is read
    /// any more.
    pub(super) fn apply_all(self, numbers: &mut Vec<i64>) {
        match self {
            Self::Frame => {}
            Self::Linear(step) => {
                let mut grid = 0i64;
                for number in numbers.iter_mut() {
                    *number = number.wrapping_sub(grid);
                    grid = grid.wrapping_add(step);
                }
            }
            Self::Differences => {
                for place in 1..numbers.len() {
                    numbers[place - 1] = numbers[place].wrapping_sub(numbers[place - 1]);
                }
            }
            Self::SecondDifferences(_) => {
                for place in 2..numbers.len() {
                    let (before, last) = (numbers[place - 2], numbers[place - 1]);
                    numbers[place - 2] = numbers[place].wrapping_sub(last).wrapping_sub(last.wrapping_sub(before));
                }
            }
        }
        numbers.truncate(numbers.len().saturating_sub(self.implied()));
    }

    /// Turns transformed numbers, from place [`Self::implied`] on, into values.
    pub(super) fn undo(self, values: &mut [i64], first: i64, factor: i64) {
        match self {
            Self::Frame | Self::Linear(_) => self.undo_from(0, values, first, factor),
            Self::Differences => {
                let mut value = first;
                if let Some(first) = values.first_mut() {
                    *first = 0;
                }
                for number in values {
                    value = value.wrapping_add(number.wrapping_mul(factor));
                    *number = value;
                }
            }
            Self::SecondDifferences(difference) => {
                let mut step = difference.wrapping_mul(factor);
                let mut value = first.wrapping_sub(step);
                values.iter_mut().take(self.implied()).for_each(|implied| *implied = 0);
                for number in values {
                    step = step.wrapping_add(number.wrapping_mul(factor));
                    value = value.wrapping_add(step);
                    *number = value;
                }
            }
        }
    }

    /// Turns transformed numbers from place `from` on into values; of transforms that look at no neighbour.
    pub(super) fn undo_from(self, from: usize, values: &mut [i64], first: i64, factor: i64) {
        let step = if let Self::Linear(step) = self { step.wrapping_mul(factor) } else { 0 };
        let mut grid = first.wrapping_add(step.wrapping_mul(from as i64));
        for number in values {
            *number = grid.wrapping_add(number.wrapping_mul(factor));
            grid = grid.wrapping_add(step);
        }
    }
}
