//! Edits of regular databases and their files of epochs.

use codec::{DecodeError, Reader, varint};

use super::{NUMBER_MAX, State};
use crate::error;
use crate::part::epochs::definition::RegularDefinition;
use crate::part::epochs::record::FileContent;

/// The tags of these edits.
pub(super) const TAG_MIN: u8 = 50;
pub(super) const TAG_MAX: u8 = 56;

/// A change of regular databases.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EpochEdit {
    /// A database is regular, in place of what was said of it before.
    Define { database: u32, definition: RegularDefinition },
    /// A database is not regular any more.
    Drop { database: u32 },
    /// A file exists.
    Add { number: u64, info: EpochFileInfo },
    /// Nothing is appended to a file any more.
    End { number: u64, end: u64 },
    /// The records of a file up to there are on disk, and more are appended.
    Reach { number: u64, end: u64 },
    /// A file is in the trash since then.
    Expire { number: u64, at_ns: i64 },
    /// A file does not exist any more.
    Remove { number: u64 },
}

/// A file of epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochFileInfo {
    pub(crate) database: u32,
    pub(crate) content: FileContent,
    /// Where it ends; `None`: where its last whole record does, as records are appended to it.
    pub(crate) end: Option<u64>,
    /// Up to where its records are known to be on disk: what is not there is lost, not torn.
    pub(crate) reached: u64,
}

impl State {
    /// The files of epochs of a database.
    pub(crate) fn epoch_files_of(&self, database: u32) -> impl Iterator<Item = (u64, EpochFileInfo)> {
        let of_database = self.epoch_files.iter().filter(move |(_, info)| info.database == database);
        of_database.map(|(number, info)| (*number, *info))
    }
}

/// What makes up the regular databases of a state.
pub(super) fn snapshot(state: &State) -> impl Iterator<Item = EpochEdit> {
    let regular = state.regular.iter();
    let regular =
        regular.map(|(database, definition)| EpochEdit::Define { database: *database, definition: *definition });
    let files = state.epoch_files.iter().map(|(number, info)| EpochEdit::Add { number: *number, info: *info });
    let reached = state.epoch_files.iter().filter(|(_, info)| info.reached > 0);
    let reached = reached.map(|(number, info)| EpochEdit::Reach { number: *number, end: info.reached });
    let trash = state.epoch_trash.iter().map(|(number, at_ns)| EpochEdit::Expire { number: *number, at_ns: *at_ns });
    regular.chain(files).chain(reached).chain(trash)
}

impl EpochEdit {
    pub(super) fn apply(&self, state: &mut State) {
        match self {
            Self::Define { database, definition } => {
                state.regular.insert(*database, *definition);
            }
            Self::Drop { database } => {
                state.regular.remove(database);
            }
            Self::Add { number, info } => {
                state.epoch_files.insert(*number, *info);
                state.next_id = state.next_id.max(number + 1);
            }
            Self::End { number, end } => {
                if let Some(info) = state.epoch_files.get_mut(number) {
                    info.end = Some(*end);
                }
            }
            Self::Reach { number, end } => {
                if let Some(info) = state.epoch_files.get_mut(number) {
                    info.reached = *end;
                }
            }
            Self::Expire { number, at_ns } => {
                state.epoch_trash.insert(*number, *at_ns);
            }
            Self::Remove { number } => {
                state.epoch_files.remove(number);
                state.epoch_trash.remove(number);
            }
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut numbers = |tag: u8, numbers: &[u64]| {
            out.push(tag);
            numbers.iter().for_each(|number| varint::push(out, *number));
        };
        match self {
            Self::Define { database, definition } => {
                numbers(50, &[u64::from(*database)]);
                definition.encode(out);
            }
            Self::Drop { database } => numbers(51, &[u64::from(*database)]),
            // Zero stands for a file that is not ended.
            Self::Add { number, info: EpochFileInfo { database, content, end, .. } } => {
                numbers(52, &[*number, u64::from(*database), u64::from(content.number()), end.unwrap_or(0)]);
            }
            Self::End { number, end } => numbers(53, &[*number, *end]),
            Self::Expire { number, at_ns } => {
                numbers(54, &[*number]);
                varint::push_signed(out, *at_ns);
            }
            Self::Remove { number } => numbers(55, &[*number]),
            Self::Reach { number, end } => numbers(56, &[*number, *end]),
        }
    }

    /// Reads what follows one of the tags.
    pub(super) fn decode(tag: u8, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let small = |reader: &mut Reader<'_>| {
            u32::try_from(reader.varint()?).map_err(|_| reader.error("number beyond 32 bits"))
        };
        Ok(match tag {
            50 => Self::Define { database: small(reader)?, definition: RegularDefinition::decode(reader)? },
            51 => Self::Drop { database: small(reader)? },
            52 => {
                let (number, database) = (reader.varint()?, small(reader)?);
                if number > NUMBER_MAX {
                    return Err(reader.error("the number of a file is out of range"));
                }
                let content = FileContent::from_number(reader.varint()?).ok_or_else(|| reader.error(error::NEWER))?;
                let end = Some(reader.varint()?).filter(|end| *end > 0);
                Self::Add { number, info: EpochFileInfo { database, content, end, reached: 0 } }
            }
            53 => Self::End { number: reader.varint()?, end: reader.varint()? },
            54 => Self::Expire { number: reader.varint()?, at_ns: reader.varint_signed()? },
            55 => Self::Remove { number: reader.varint()? },
            56 => Self::Reach { number: reader.varint()?, end: reader.varint()? },
            _ => return Err(reader.error(error::NEWER)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Edit, parse};
    use super::*;

    #[test]
    fn edits_come_back() {
        let definition = RegularDefinition::new(60_000_000_000);
        let info = |content, end| EpochFileInfo { database: 4, content, end, reached: 0 };
        let edits = [
            EpochEdit::Define { database: 4, definition },
            EpochEdit::Define { database: 5, definition },
            EpochEdit::Drop { database: 5 },
            EpochEdit::Add { number: 11, info: info(FileContent::Names, None) },
            EpochEdit::Add { number: 12, info: info(FileContent::Values, Some(99)) },
            EpochEdit::Add { number: 13, info: info(FileContent::Values, None) },
            EpochEdit::Add { number: 14, info: info(FileContent::Values, Some(7)) },
            EpochEdit::Reach { number: 11, end: 48 },
            EpochEdit::End { number: 11, end: 64 },
            EpochEdit::Reach { number: 13, end: 77 },
            EpochEdit::Expire { number: 12, at_ns: -4 },
            EpochEdit::Expire { number: 14, at_ns: -4 },
            EpochEdit::Remove { number: 14 },
        ];
        let mut state = State::default();
        for edit in &edits {
            let mut bytes = Vec::new();
            edit.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            let tag = reader.byte().unwrap();
            assert_eq!(EpochEdit::decode(tag, &mut reader).as_ref(), Ok(edit));
            assert!(reader.is_empty());
            state.apply(&Edit::Epochs(edit.clone()));
        }
        assert_eq!(parse(&state.to_bytes()).unwrap().state, state);
        assert_eq!((state.epoch_files.len(), state.epoch_trash.len(), state.next_id), (3, 1, 15));
        assert_eq!(state.epoch_files_of(4).count(), 3);
    }
}
