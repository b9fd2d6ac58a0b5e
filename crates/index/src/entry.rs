//! What is said when something new appears, as log records and segments hold it. Layout: `docs/formats/entries.md`.

use codec::{DecodeError, Reader, varint};
use model::{Labels, MetricKind, MetricMetadata, ValueType};

use crate::{DatabaseId, GroupId, MeasurementId, Slot};

/// Something new in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogEntry {
    /// A database.
    Database {
        /// Its number: one more than the last, or, if it is dropped, its own.
        id: DatabaseId,
        /// Its name; empty once it is dropped.
        name: String,
    },
    /// A measurement.
    Measurement {
        /// Its number: one more than the last in the folder, or, if it is dropped, its own.
        id: MeasurementId,
        /// The database it is in.
        database: DatabaseId,
        /// Its name; empty once it is dropped.
        name: String,
    },
    /// A tag that a measurement has before any group has it.
    Tag {
        /// The measurement.
        measurement: MeasurementId,
        /// The tag's name.
        name: String,
    },
    /// A field.
    Field {
        /// The measurement it is in.
        measurement: MeasurementId,
        /// Its number: one more than the last in the measurement.
        slot: Slot,
        /// Its name.
        name: String,
        /// The type of its values.
        value_type: ValueType,
        /// Labels that the series of this field have beside those of their groups. A field is known by its name and these.
        labels: Labels,
    },
    /// What a client says of a metric family; replaces what was said before.
    Metadata {
        /// The database it is in.
        database: DatabaseId,
        /// Type, help text and unit.
        metadata: MetricMetadata,
    },
}

/// Something new among a shard's groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupEntry {
    /// A group.
    New {
        /// Its number: one more than the last in the shard.
        id: GroupId,
        /// The database it is in.
        database: DatabaseId,
        /// Its measurement.
        measurement: MeasurementId,
        /// Its labels, without the metric name.
        labels: Labels,
        /// The fields it has so far, sorted.
        slots: Vec<Slot>,
    },
    /// A group has more fields than before.
    Extend {
        /// The group.
        id: GroupId,
        /// All its fields, sorted.
        slots: Vec<Slot>,
    },
    /// Groups are gone: nothing is kept of them any more.
    Remove {
        /// The groups, sorted.
        ids: Vec<GroupId>,
    },
}

/// An entry that can be written and read.
pub trait Entry: Sized {
    /// Appends the entry.
    fn encode(&self, out: &mut Vec<u8>);
    /// Takes an entry.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Appends the number of entries and the entries.
pub fn encode_entries<E: Entry>(entries: &[E], out: &mut Vec<u8>) {
    varint::push(out, entries.len() as u64);
    for entry in entries {
        entry.encode(out);
    }
}

/// Takes what [`encode_entries`] appended.
pub fn decode_entries<E: Entry>(reader: &mut Reader<'_>) -> Result<Vec<E>, DecodeError> {
    let count = reader.length(reader.rest().len())?;
    (0..count).map(|_| E::decode(reader)).collect()
}

const DATABASE: u8 = 1;
const MEASUREMENT: u8 = 2;
const FIELD: u8 = 3;
const METADATA: u8 = 4;
const NEW: u8 = 5;
const EXTEND: u8 = 6;
const REMOVE: u8 = 7;
const LABELLED_FIELD: u8 = 8;
const TAG: u8 = 9;

impl Entry for CatalogEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Database { id, name } => {
                out.push(DATABASE);
                push_id(out, *id);
                varint::push_text(out, name);
            }
            Self::Measurement { id, database, name } => {
                out.push(MEASUREMENT);
                push_id(out, *id);
                push_id(out, *database);
                varint::push_text(out, name);
            }
            Self::Tag { measurement, name } => {
                out.push(TAG);
                push_id(out, *measurement);
                varint::push_text(out, name);
            }
            Self::Field { measurement, slot, name, value_type, labels } => {
                out.push(if labels.is_empty() { FIELD } else { LABELLED_FIELD });
                push_id(out, *measurement);
                push_id(out, *slot);
                varint::push_text(out, name);
                out.push(*value_type as u8);
                if !labels.is_empty() {
                    push_labels(out, labels);
                }
            }
            Self::Metadata { database, metadata } => {
                out.push(METADATA);
                push_id(out, *database);
                out.push(metadata.kind as u8);
                for text in [&metadata.family, &metadata.help, &metadata.unit] {
                    varint::push_text(out, text);
                }
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.byte()? {
            DATABASE => Self::Database { id: take_id(reader)?, name: reader.text()?.to_owned() },
            MEASUREMENT => {
                Self::Measurement { id: take_id(reader)?, database: take_id(reader)?, name: reader.text()?.to_owned() }
            }
            TAG => Self::Tag { measurement: take_id(reader)?, name: reader.text()?.to_owned() },
            tag @ (FIELD | LABELLED_FIELD) => Self::Field {
                measurement: take_id(reader)?,
                slot: take_id(reader)?,
                name: reader.text()?.to_owned(),
                value_type: ValueType::from_number(reader.byte()?).ok_or_else(|| reader.error("unknown value type"))?,
                labels: if tag == FIELD { Labels::empty() } else { take_labels(reader)? },
            },
            METADATA => {
                let database = take_id(reader)?;
                let kind = MetricKind::ALL.get(usize::from(reader.byte()?)).copied();
                let kind = kind.ok_or_else(|| reader.error("unknown kind of metric"))?;
                let mut text = || reader.text().map(str::to_owned);
                let (family, help, unit) = (text()?, text()?, text()?);
                Self::Metadata { database, metadata: MetricMetadata { family, kind, help, unit } }
            }
            _ => return Err(reader.error("unknown catalog entry")),
        })
    }
}

impl Entry for GroupEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::New { id, database, measurement, labels, slots } => {
                out.push(NEW);
                push_id(out, *id);
                push_id(out, *database);
                push_id(out, *measurement);
                push_labels(out, labels);
                push_slots(out, slots);
            }
            Self::Extend { id, slots } => {
                out.push(EXTEND);
                push_id(out, *id);
                push_slots(out, slots);
            }
            Self::Remove { ids } => {
                out.push(REMOVE);
                push_slots(out, ids);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.byte()? {
            NEW => Self::New {
                id: take_id(reader)?,
                database: take_id(reader)?,
                measurement: take_id(reader)?,
                labels: take_labels(reader)?,
                slots: take_slots(reader)?,
            },
            EXTEND => Self::Extend { id: take_id(reader)?, slots: take_slots(reader)? },
            REMOVE => Self::Remove { ids: take_slots(reader)? },
            _ => return Err(reader.error("unknown group entry")),
        })
    }
}

fn push_id(out: &mut Vec<u8>, id: u32) {
    varint::push(out, u64::from(id));
}

fn take_id(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(reader.varint()?).map_err(|_| reader.error("number beyond 32 bits"))
}

/// Appends labels.
pub fn push_labels(out: &mut Vec<u8>, labels: &Labels) {
    varint::push(out, labels.len() as u64);
    for (name, value) in labels.iter() {
        varint::push_text(out, name);
        varint::push_text(out, value);
    }
}

/// Takes labels that [`push_labels`] appended.
///
/// # Errors
/// If bytes are missing or a name comes twice.
pub fn take_labels(reader: &mut Reader<'_>) -> Result<Labels, DecodeError> {
    let count = reader.length(reader.rest().len())?;
    let pairs: Result<Vec<_>, _> = (0..count).map(|_| Ok((reader.text()?, reader.text()?))).collect();
    Labels::from_pairs(pairs?).map_err(|_| reader.error("label given twice"))
}

/// Sorted slots (or group ids), each as the distance to the one before.
fn push_slots(out: &mut Vec<u8>, slots: &[Slot]) {
    varint::push(out, slots.len() as u64);
    let mut last = 0;
    for slot in slots {
        push_id(out, slot - last);
        last = *slot;
    }
}

fn take_slots(reader: &mut Reader<'_>) -> Result<Vec<Slot>, DecodeError> {
    let count = reader.length(reader.rest().len())?;
    let mut last = 0u32;
    let mut slot = |place: usize| {
        let distance = take_id(reader)?;
        if place > 0 && distance == 0 {
            return Err(reader.error("slot given twice"));
        }
        last = last.checked_add(distance).ok_or_else(|| reader.error("slot beyond 32 bits"))?;
        Ok(last)
    };
    (0..count).map(&mut slot).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip<E: Entry + PartialEq + std::fmt::Debug>(entries: &[E]) {
        let mut out = Vec::new();
        encode_entries(entries, &mut out);
        let mut reader = Reader::new(&out);
        assert_eq!(decode_entries::<E>(&mut reader).unwrap(), entries);
        assert!(reader.is_empty());
    }

    #[test]
    fn catalog_entries_come_back() {
        let metadata = MetricMetadata {
            family: "up".into(),
            kind: MetricKind::Gauge,
            help: "Whether the target answers.".into(),
            unit: String::new(),
        };
        round_trip(&[
            CatalogEntry::Database { id: 0, name: "default".into() },
            CatalogEntry::Measurement { id: 300, database: 0, name: "cpu".into() },
            CatalogEntry::Tag { measurement: 300, name: "host".into() },
            CatalogEntry::Field {
                measurement: 300,
                slot: 2,
                name: "usage".into(),
                value_type: ValueType::Bool,
                labels: Labels::empty(),
            },
            CatalogEntry::Field {
                measurement: 300,
                slot: 3,
                name: "usage".into(),
                value_type: ValueType::F64,
                labels: Labels::from_pairs([("core", "1"), ("mode", "idle")]).unwrap(),
            },
            CatalogEntry::Metadata { database: 0, metadata },
        ]);
    }

    #[test]
    fn group_entries_come_back() {
        let labels = Labels::from_pairs([("host", "a"), ("region", "ü")]).unwrap();
        round_trip(&[
            GroupEntry::New { id: 7, database: 1, measurement: 2, labels, slots: vec![0, 3, 1000] },
            GroupEntry::Extend { id: 7, slots: vec![0, 1, 3, 1000] },
            GroupEntry::Remove { ids: vec![5, 7] },
        ]);
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_an_error_or_entries(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_entries::<CatalogEntry>(&mut Reader::new(&bytes));
            let _ = decode_entries::<GroupEntry>(&mut Reader::new(&bytes));
        }
    }
}
