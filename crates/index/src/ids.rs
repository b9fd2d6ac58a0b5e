//! Sets of group ids: as they grow in memory, as they are read, and as segments hold them.

use codec::{DecodeError, Reader, varint};
use roaring::RoaringBitmap;

use crate::GroupId;

/// Bytes of differences at which a list becomes a bitmap: below, bitmaps that are spread thinly cost more.
const SHORT_BYTES_MAX: usize = 4096;
/// Ids up to which a stored set is differences and nothing else.
const SHORT_IDS_MAX: u32 = 32;
/// Ids from which on a stored set is a bitmap even where differences would be shorter: it is faster to intersect.
const LONG_IDS_MIN: u32 = 4096;

const DIFFERENCES: u8 = 0;
const BITMAP: u8 = 1;

/// A set that grows at its end: differences in bytes while it is short, a bitmap when it is long.
#[derive(Debug)]
pub(crate) enum IdList {
    /// First and last id, and the differences after the first as varints.
    Short { first: GroupId, last: GroupId, differences: Vec<u8> },
    /// Too long for differences.
    Long(Box<LongList>),
}

// There is one for each value of each label.
const _: () = assert!(size_of::<IdList>() == 32);

/// Most new groups are in the lists that the one before them is in: ids that follow one another reach the bitmap together, at once
/// instead of with a search each.
#[derive(Debug)]
pub(crate) struct LongList {
    /// All ids but those of the run.
    bitmap: RoaringBitmap,
    /// The newest ids that follow one another.
    first_of_run: GroupId,
    last: GroupId,
}

impl LongList {
    /// As [`IdList::push`].
    fn push(&mut self, id: GroupId) -> usize {
        if id <= self.last {
            return 0;
        }
        if id == self.last + 1 {
            self.last = id;
            return 0;
        }
        let grown = 2 * self.run_len() as usize;
        insert_run(&mut self.bitmap, self.first_of_run, self.last);
        (self.first_of_run, self.last) = (id, id);
        grown
    }

    const fn run_len(&self) -> u32 {
        self.last - self.first_of_run + 1
    }

    fn to_bitmap(&self) -> RoaringBitmap {
        let mut bitmap = self.bitmap.clone();
        insert_run(&mut bitmap, self.first_of_run, self.last);
        bitmap
    }
}

impl IdList {
    pub(crate) const fn one(id: GroupId) -> Self {
        Self::Short { first: id, last: id, differences: Vec::new() }
    }

    /// Appends an id; one that is not larger than the last changes nothing. Gives the bytes that the list has grown
    /// on the heap, which for bitmaps is a guess.
    pub(crate) fn push(&mut self, id: GroupId) -> usize {
        match self {
            Self::Short { last, differences, .. } => {
                if id <= *last {
                    return 0;
                }
                let before = differences.capacity();
                varint::push(differences, u64::from(id - *last));
                *last = id;
                let grown = differences.capacity() - before;
                if differences.len() > SHORT_BYTES_MAX {
                    let mut bitmap = self.to_bitmap();
                    bitmap.remove(id);
                    *self = Self::Long(Box::new(LongList { bitmap, first_of_run: id, last: id }));
                }
                grown
            }
            Self::Long(long) => long.push(id),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Short { differences, .. } => 1 + differences.iter().filter(|byte| **byte < 0x80).count() as u32,
            Self::Long(long) => long.bitmap.len() as u32 + long.run_len(),
        }
    }

    /// The ids of a short list, in order; none of a long one.
    fn short_ids(&self) -> Vec<GroupId> {
        let Self::Short { first, differences, .. } = self else {
            return Vec::new();
        };
        let mut ids = vec![*first];
        let mut id = *first;
        let mut reader = Reader::new(differences);
        while let Ok(difference) = reader.varint() {
            id = id.wrapping_add(difference as u32);
            ids.push(id);
        }
        ids
    }

    pub(crate) fn to_ids(&self) -> Ids {
        match self {
            Self::Short { .. } => Ids::Few(self.short_ids()),
            Self::Long(long) => Ids::Many(long.to_bitmap()),
        }
    }

    pub(crate) fn to_bitmap(&self) -> RoaringBitmap {
        match self {
            Self::Short { .. } => bitmap_of(&self.short_ids()),
            Self::Long(long) => long.to_bitmap(),
        }
    }
}

/// Adds ids that follow one another.
fn insert_run(bitmap: &mut RoaringBitmap, first: GroupId, last: GroupId) {
    // Appending would look for the largest id first, word by word.
    bitmap.insert(first);
    if first != last {
        // A range that begins a container makes one of runs, which it stays however many single ids follow: both ends go first, so that
        // only what is full all through is kept as a run.
        bitmap.insert(last);
        bitmap.insert_range(first..=last);
    }
}

/// A set that was read: sorted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ids {
    Few(Vec<GroupId>),
    Many(RoaringBitmap),
}

impl Ids {
    pub(crate) fn into_bitmap(self) -> RoaringBitmap {
        match self {
            Self::Few(ids) => bitmap_of(&ids),
            Self::Many(bitmap) => bitmap,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Few(ids) => ids.len() as u32,
            Self::Many(bitmap) => bitmap.len() as u32,
        }
    }

    pub(crate) fn intersects(&self, with: &RoaringBitmap) -> bool {
        match self {
            Self::Few(ids) => ids.iter().any(|id| with.contains(*id)),
            Self::Many(bitmap) => !bitmap.is_disjoint(with),
        }
    }

    pub(crate) fn remove(&mut self, ids: &RoaringBitmap) {
        match self {
            Self::Few(few) => few.retain(|id| !ids.contains(*id)),
            Self::Many(bitmap) => *bitmap -= ids,
        }
    }

    /// Appends the set. The owner of the bytes keeps how many ids there are, and `base`, which is not
    /// larger than any of them.
    pub(crate) fn encode(&self, base: GroupId, out: &mut Vec<u8>) {
        let count = self.len();
        let start = out.len();
        if count > SHORT_IDS_MAX {
            out.push(DIFFERENCES);
        }
        if count < LONG_IDS_MIN {
            match self {
                Self::Few(ids) => push_differences(ids.iter().copied(), base, out),
                Self::Many(bitmap) => push_differences(bitmap.iter(), base, out),
            }
        }
        if count <= SHORT_IDS_MAX {
            return;
        }
        let mut bitmap = self.clone().into_bitmap();
        bitmap.optimize();
        if count >= LONG_IDS_MIN || bitmap.serialized_size() < out.len() - start - 1 {
            out.truncate(start);
            out.push(BITMAP);
            // Writing to memory does not fail.
            let _ = bitmap.serialize_into(&mut *out);
        }
    }

    /// Takes what [`Ids::encode`] appended: all of the bytes.
    pub(crate) fn decode(bytes: &[u8], count: u32, base: GroupId) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if count > SHORT_IDS_MAX && reader.byte()? == BITMAP {
            let bitmap = read_bitmap(reader.rest())?;
            let right = bitmap.len() == u64::from(count);
            return if right { Ok(Self::Many(bitmap)) } else { Err(reader.error("another number of ids")) };
        }
        if count as usize > reader.rest().len() {
            return Err(reader.error("more ids than bytes"));
        }
        let mut ids = Vec::with_capacity(count as usize);
        let mut id = base;
        for place in 0..count {
            let difference = u32::try_from(reader.varint()?).map_err(|_| reader.error("id beyond 32 bits"))?;
            if place > 0 && difference == 0 {
                return Err(reader.error("id given twice"));
            }
            id = id.checked_add(difference).ok_or_else(|| reader.error("id beyond 32 bits"))?;
            ids.push(id);
        }
        if reader.is_empty() { Ok(Self::Few(ids)) } else { Err(reader.error("bytes left over behind ids")) }
    }
}

fn push_differences(ids: impl Iterator<Item = GroupId>, base: GroupId, out: &mut Vec<u8>) {
    let mut last = base;
    for id in ids {
        varint::push(out, u64::from(id.wrapping_sub(last)));
        last = id;
    }
}

/// Appends a bitmap behind its length in bytes.
pub(crate) fn push_bitmap(bitmap: &RoaringBitmap, out: &mut Vec<u8>) {
    let mut bitmap = bitmap.clone();
    bitmap.optimize();
    varint::push(out, bitmap.serialized_size() as u64);
    // Writing to memory does not fail.
    let _ = bitmap.serialize_into(&mut *out);
}

/// Takes what [`push_bitmap`] appended.
pub(crate) fn take_bitmap(reader: &mut Reader<'_>) -> Result<RoaringBitmap, DecodeError> {
    let length = reader.length(reader.rest().len())?;
    read_bitmap(reader.bytes(length)?).map_err(|error| reader.error(error.what))
}

fn read_bitmap(bytes: &[u8]) -> Result<RoaringBitmap, DecodeError> {
    RoaringBitmap::deserialize_from(bytes).map_err(|_| DecodeError { offset: 0, what: "not a roaring bitmap" })
}

/// The set of ids that are sorted.
fn bitmap_of(ids: &[GroupId]) -> RoaringBitmap {
    RoaringBitmap::from_sorted_iter(ids.iter().copied()).unwrap_or_default()
}

/// Unites many sets, most of them small.
#[derive(Default)]
pub(crate) struct Union {
    few: Vec<GroupId>,
    many: RoaringBitmap,
}

impl Union {
    /// Ids that are gathered before they are sorted into the bitmap.
    const GATHERED_MAX: usize = 1 << 20;

    pub(crate) fn add(&mut self, ids: Ids) {
        match ids {
            Ids::Few(ids) => {
                self.few.extend(ids);
                if self.few.len() >= Self::GATHERED_MAX {
                    self.settle();
                }
            }
            Ids::Many(bitmap) => self.many |= bitmap,
        }
    }

    fn settle(&mut self) {
        self.few.sort_unstable();
        self.few.dedup();
        self.many |= bitmap_of(&self.few);
        self.few.clear();
    }

    pub(crate) fn finish(mut self) -> RoaringBitmap {
        self.settle();
        self.many
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_come_back(
            base in 0u32..1000,
            steps in proptest::collection::vec(prop_oneof![3 => 1u32..3, 1 => 1u32..100_000], 1..6000),
        ) {
            let mut list: Option<IdList> = None;
            let mut ids = Vec::new();
            let mut id = base;
            for step in steps {
                ids.push(id);
                match &mut list {
                    Some(list) => { list.push(id); }
                    None => list = Some(IdList::one(id)),
                }
                id += step;
            }
            let list = list.unwrap();
            prop_assert_eq!(list.len() as usize, ids.len());
            let read = list.to_ids();
            prop_assert_eq!(read.clone().into_bitmap(), bitmap_of(&ids));
            let mut bytes = Vec::new();
            read.encode(base, &mut bytes);
            let back = Ids::decode(&bytes, read.len(), base).unwrap();
            prop_assert_eq!(back.into_bitmap(), bitmap_of(&ids));
        }

        #[test]
        fn hostile_bytes_are_an_error_or_ids(bytes in proptest::collection::vec(any::<u8>(), 0..60), count in 0u32..100) {
            let _ = Ids::decode(&bytes, count, 5);
            let _ = take_bitmap(&mut Reader::new(&bytes));
        }
    }

    #[test]
    fn bitmaps_are_runs_only_where_they_are_full() {
        let mut list = IdList::one(0);
        let ids = (1..200_000).chain((200_000..330_000).step_by(2));
        ids.for_each(|id| {
            list.push(id);
        });
        let bitmap = list.to_bitmap();
        // Three containers of 65,536 ids are full, in two more each second one is missing, and the last has a few.
        let of_kind = bitmap.statistics();
        let counts = (of_kind.n_run_containers, of_kind.n_bitset_containers, of_kind.n_array_containers);
        assert_eq!((bitmap.len(), counts), (265_000, (3, 2, 1)));
    }
}
