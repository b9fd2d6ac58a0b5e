//! The layouts seen in a body: how a line spells its measurement and its fields, and which block its rows belong to.
//!
//! Lines come in patterns: the same layout over and over, or a few in turn. So every layout remembers which one followed
//! it last time, and the next line is held against that one byte by byte, which costs next to nothing. Only where the
//! guess is wrong the line is taken apart and its layout looked up, or made.

use std::collections::HashMap;

use model::{Block, Field, ValueType};

use super::key::{FIELD_SPECIALS, MEASUREMENT_SPECIALS, TIME, to_name};
use crate::Limits;
use crate::batch::columns::empty_block;
use crate::errors::{LimitName, Reason};

/// One spelling of a measurement with its fields.
pub(super) struct Layout {
    /// The measurement as spelled.
    pub(super) measurement: Box<[u8]>,
    /// The fields as spelled, in order.
    pub(super) fields: Box<[LayoutField]>,
    /// Where its rows go: the place of a block.
    pub(super) block: usize,
    /// Which of the line's fields are the block's columns; `None` if all are, in order. Differs when a line names a
    /// field twice: the last one wins.
    pub(super) columns: Option<Box<[usize]>>,
    /// The layout of the line that followed last time.
    next: usize,
}

/// A field as a line spells it.
pub(super) struct LayoutField {
    /// The comma in front, unless it is the first, the name, and the equals sign.
    pub(super) spelling: Box<[u8]>,
    /// The type of its value.
    pub(super) value_type: ValueType,
}

/// A field of a line that was taken apart.
pub(super) struct LineField<'a> {
    pub(super) name: &'a [u8],
    pub(super) value_type: ValueType,
    pub(super) cell: u64,
}

/// All layouts of a body.
#[derive(Default)]
pub(super) struct Layouts {
    all: Vec<Layout>,
    /// By keyed hash of the spelling.
    by_spelling: HashMap<u128, usize>,
    /// The layout of the line before.
    last: usize,
}

impl Layouts {
    /// The layout that the next line probably has.
    #[inline]
    pub(super) fn predicted(&self) -> Option<(usize, &Layout)> {
        let guess = self.all.get(self.last)?.next;
        self.all.get(guess).filter(|layout| layout.columns.is_none()).map(|layout| (guess, layout))
    }

    /// Remembers that the line has this layout.
    #[inline]
    pub(super) fn followed_by(&mut self, place: usize) {
        if let Some(last) = self.all.get_mut(self.last) {
            last.next = place;
        }
        self.last = place;
    }

    pub(super) fn get(&self, place: usize) -> Option<&Layout> {
        self.all.get(place)
    }

    pub(super) fn find(&self, spelling: u128) -> Option<usize> {
        self.by_spelling.get(&spelling).copied()
    }

    /// Makes a layout and a block for its rows.
    pub(super) fn add(
        &mut self,
        spelling: u128,
        measurement: &[u8],
        fields: &[LineField<'_>],
        blocks: &mut Vec<Block>,
        limits: &Limits,
    ) -> Result<usize, Reason> {
        if self.all.len() >= limits.layouts_max {
            let layouts_max = limits.layouts_max;
            return Err(
                LimitName::Layouts.exceeded(format_args!("the request has more than {layouts_max} sets of fields"))
            );
        }
        let block = new_block(measurement, fields, limits)?;
        let (block, columns) = drop_repeated(block);
        let fields = fields.iter().enumerate().map(|(place, field)| LayoutField {
            spelling: [if place == 0 { &b""[..] } else { b"," }, field.name, b"="].concat().into(),
            value_type: field.value_type,
        });
        let place = self.all.len();
        self.all.push(Layout {
            measurement: measurement.into(),
            fields: fields.collect(),
            block: blocks.len(),
            columns,
            next: place,
        });
        self.by_spelling.insert(spelling, place);
        blocks.push(block);
        Ok(place)
    }
}

fn new_block(measurement: &[u8], fields: &[LineField<'_>], limits: &Limits) -> Result<Block, Reason> {
    let measurement = to_name(measurement, MEASUREMENT_SPECIALS, "measurement")?;
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        let name = to_name(field.name, FIELD_SPECIALS, "field name")?;
        if name.len() > limits.name_bytes_max {
            let name_bytes_max = limits.name_bytes_max;
            return Err(
                LimitName::NameBytes.exceeded(format_args!("a field's name is longer than {name_bytes_max} bytes"))
            );
        }
        if name == TIME {
            return Err(format!("the field name '{TIME}' is reserved").into());
        }
        columns.push(Field { name, value_type: field.value_type });
    }
    Ok(Block { measurement: Some(measurement), fields: columns, ..empty_block() })
}

/// Leaves the last of the fields with one name; says which are left if that is not all.
fn drop_repeated(mut block: Block) -> (Block, Option<Box<[usize]>>) {
    let mut order: Vec<usize> = (0..block.fields.len()).collect();
    // The sort is stable, so the last of equals comes last.
    order.sort_by(|&a, &b| block.fields[a].name.cmp(&block.fields[b].name));
    let mut kept: Vec<usize> = order
        .chunk_by(|&a, &b| block.fields[a].name == block.fields[b].name)
        .filter_map(|same_name| same_name.last().copied())
        .collect();
    if kept.len() == block.fields.len() {
        return (block, None);
    }
    kept.sort_unstable();
    block.fields = kept.iter().map(|&place| block.fields[place].clone()).collect();
    (block, Some(kept.into()))
}
