//! Deletes: which rows are gone though they still stand in parts.
//!
//! A delete masks rows whose sequence id is not larger than its own. It is made when no row that it masks is in a head, so that
//! whole parts are either before or after it: a part that was merged since has carried it out
//! ([`PartInfo::deletes_through`]).

use codec::{DecodeError, Reader, varint};
use index::{DatabaseId, MeasurementId, RoaringBitmap, Slot};
use model::TimeRange;

use crate::part::chunk::Rows;
use crate::part::{Part, PartInfo, PartKey};

/// Bytes that a delete's groups may take.
const GROUPS_BYTES_MAX: usize = 1 << 30;

/// A delete, as far as one shard is concerned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Delete {
    /// Rows up to this sequence id are masked.
    pub(crate) sequence: u64,
    pub(crate) database: DatabaseId,
    pub(crate) range: TimeRange,
    pub(crate) groups: RoaringBitmap,
    /// Which columns of which measurements; none stands for all.
    pub(crate) columns: Vec<(MeasurementId, Vec<Slot>)>,
}

impl Delete {
    /// Returns whether it masks anything of a key in the parts that it is behind of.
    pub(crate) fn touches(&self, key: &PartKey, info: &PartInfo) -> bool {
        self.sequence > info.deletes_through
            && self.sequence >= info.sequences.0
            && self.database == key.database
            && self.groups.contains(key.group)
            && self.range.overlaps(&info.range)
            && (self.columns.is_empty() || self.columns.iter().any(|(measurement, _)| *measurement == key.measurement))
    }

    /// Returns whether a part holds rows that it masks, as far as can be told without reading them.
    pub(crate) fn masks(&self, part: &Part) -> bool {
        self.sequence > part.info.deletes_through
            && self.sequence >= part.info.sequences.0
            && self.range.overlaps(&part.info.range)
            && !part.groups.is_disjoint(&self.groups)
    }

    fn takes(&self, measurement: MeasurementId, slot: Slot) -> bool {
        let of_measurement =
            |(known, slots): &(MeasurementId, Vec<Slot>)| *known == measurement && slots.binary_search(&slot).is_ok();
        self.columns.is_empty() || self.columns.iter().any(of_measurement)
    }

    /// Takes the masked cells of a key out of its rows, and rows that are left without any.
    pub(crate) fn apply(&self, key: &PartKey, rows: &mut Rows) {
        let from = rows.timestamps_ns.partition_point(|timestamp_ns| *timestamp_ns < self.range.start_ns);
        let to = rows.timestamps_ns.partition_point(|timestamp_ns| *timestamp_ns <= self.range.end_ns);
        if from >= to {
            return;
        }
        for column in rows.columns.iter_mut().filter(|column| self.takes(key.measurement, column.slot)) {
            column.clear(from, to);
        }
        rows.drop_empty(from..to);
    }

    /// Returns whether it takes a member's node that was made of folded samples: by its last sample, which stands for it.
    pub(crate) fn takes_node(&self, key: &PartKey, slot: Slot, last_ns: i64) -> bool {
        self.range.contains(last_ns) && self.takes(key.measurement, slot)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::push(out, self.sequence);
        varint::push(out, u64::from(self.database));
        varint::push_signed(out, self.range.start_ns);
        varint::push_signed(out, self.range.end_ns);
        let mut groups = Vec::new();
        // Writing to memory does not fail.
        let _ = self.groups.serialize_into(&mut groups);
        varint::push(out, groups.len() as u64);
        out.extend_from_slice(&groups);
        varint::push(out, self.columns.len() as u64);
        for (measurement, slots) in &self.columns {
            varint::push(out, u64::from(*measurement));
            varint::push(out, slots.len() as u64);
            slots.iter().for_each(|slot| varint::push(out, u64::from(*slot)));
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let small = |reader: &mut Reader<'_>| {
            u32::try_from(reader.varint()?).map_err(|_| reader.error("number beyond 32 bits"))
        };
        let sequence = reader.varint()?;
        let database = small(reader)?;
        let range = TimeRange::new(reader.varint_signed()?, reader.varint_signed()?);
        let length = reader.length(GROUPS_BYTES_MAX)?;
        let groups = RoaringBitmap::deserialize_from(reader.bytes(length)?);
        let groups = groups.map_err(|_| reader.error("groups of a delete are damaged"))?;
        let mut columns = Vec::new();
        for _ in 0..reader.length(reader.rest().len())? {
            let measurement = small(reader)?;
            let count = reader.length(reader.rest().len())?;
            columns.push((measurement, (0..count).map(|_| small(reader)).collect::<Result<_, _>>()?));
        }
        Ok(Self { sequence, database, range, groups, columns })
    }
}
