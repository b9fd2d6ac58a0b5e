//! The bytes of exemplars and start timestamps.

use codec::{DecodeError, Reader, varint};
use index::{DatabaseId, push_labels, take_labels};
use model::{Exemplar, Labels, TimeRange};

const EXEMPLAR: u8 = 1;
const START: u8 = 2;

/// One exemplar, or since when one series counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    Exemplar { series: (DatabaseId, Labels), exemplar: Exemplar },
    Start { series: (DatabaseId, Labels), start_ns: i64 },
}

impl Entry {
    pub(super) const fn is_exemplar(&self) -> bool {
        matches!(self, Self::Exemplar { .. })
    }
}

/// The times of exemplars; start timestamps have none.
pub(crate) fn times_of(entries: &[Entry]) -> TimeRange {
    TimeRange::from_timestamps(entries.iter().filter_map(|entry| match entry {
        Entry::Exemplar { exemplar, .. } => Some(&exemplar.timestamp_ns),
        Entry::Start { .. } => None,
    }))
}

/// Appends a varint number of entries, and the entries.
pub(super) fn encode(entries: &[Entry], out: &mut Vec<u8>) {
    varint::push(out, entries.len() as u64);
    for entry in entries {
        match entry {
            Entry::Exemplar { series: (database, labels), exemplar } => {
                out.push(EXEMPLAR);
                varint::push(out, u64::from(*database));
                push_labels(out, labels);
                push_labels(out, &exemplar.labels);
                out.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
                varint::push_signed(out, exemplar.timestamp_ns);
            }
            Entry::Start { series: (database, labels), start_ns } => {
                out.push(START);
                varint::push(out, u64::from(*database));
                push_labels(out, labels);
                varint::push_signed(out, *start_ns);
            }
        }
    }
}

/// Takes what [`encode`] appended.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Vec<Entry>, DecodeError> {
    let count = reader.length(reader.rest().len())?;
    (0..count).map(|_| decode_entry(reader)).collect()
}

fn decode_entry(reader: &mut Reader<'_>) -> Result<Entry, DecodeError> {
    let kind = reader.byte()?;
    let database = u32::try_from(reader.varint()?).map_err(|_| reader.error("database beyond 32 bits"))?;
    let series = (database, take_labels(reader)?);
    Ok(match kind {
        EXEMPLAR => {
            let labels = take_labels(reader)?;
            let value = f64::from_bits(reader.u64()?);
            Entry::Exemplar { series, exemplar: Exemplar { labels, value, timestamp_ns: reader.varint_signed()? } }
        }
        START => Entry::Start { series, start_ns: reader.varint_signed()? },
        _ => return Err(reader.error("unknown kind of exemplar entry")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back_and_cut_ones_are_an_error() {
        let series = (3, Labels::from_pairs([("__name__", "x"), ("job", "a")]).unwrap());
        let labels = Labels::from_pairs([("trace_id", "00f")]).unwrap();
        let exemplar = Exemplar { labels, value: -1.5, timestamp_ns: -7 };
        let entries =
            vec![Entry::Exemplar { series: series.clone(), exemplar }, Entry::Start { series, start_ns: 1 << 60 }];
        let mut bytes = Vec::new();
        encode(&entries, &mut bytes);
        assert_eq!(decode(&mut Reader::new(&bytes)), Ok(entries));
        for end in 0..bytes.len() {
            assert!(decode(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
        }
    }
}
