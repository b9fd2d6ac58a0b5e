//! What a merge reads of one key.

use model::TimeRange;

use crate::StoreError;
use crate::chunk::{self, Rows};
use crate::deletes::Delete;
use crate::part::{KeyEntry, Part};
use crate::summary::{self, Nodes};

/// What one part has of a key, deletes carried out.
pub(crate) struct Source {
    pieces: Vec<Piece>,
    /// Instead of the samples that folding took; none of its rows' samples are missing in them.
    folded: Option<Nodes>,
}

struct Piece {
    rows: Rows,
    range: TimeRange,
    sequences: (u64, u64),
}

/// All of a key that a merge has, oldest first.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) rows: Rows,
    /// What parts that were folded hold instead of samples.
    pub(crate) folded: Vec<Nodes>,
    /// Rows of parts that were not folded: what is to be added to the nodes. `None` if that is all of `rows`.
    pub(crate) unfolded: Option<Rows>,
    ranges: Vec<(TimeRange, (u64, u64))>,
}

impl Source {
    /// Reads what a part has of a key.
    pub(crate) fn read(part: &Part, entry: &KeyEntry, deletes: &[Delete]) -> Result<Self, StoreError> {
        let touching: Vec<&Delete> = deletes.iter().filter(|delete| delete.touches(&entry.key, &part.info)).collect();
        let mut pieces = Vec::with_capacity(entry.chunks.len());
        for ((header, mut rows), chunk) in part.read(&entry.chunks, None)?.into_iter().zip(&entry.chunks) {
            touching.iter().for_each(|delete| delete.apply(&entry.key, &mut rows));
            pieces.push(Piece { rows, range: chunk.range, sequences: header.sequences });
        }
        let mut folded = None;
        if part.info.fold_ns > 0
            && let Some(place) = entry.summary
        {
            let bytes = part.read_summary(place)?;
            let mut nodes = summary::decode(&bytes, None).map_err(|error| part.corrupt(place.offset, &error))?;
            for column in &mut nodes.columns {
                let is_kept = |delete: &&Delete, last_ns: i64| !delete.takes_node(&entry.key, column.slot, last_ns);
                column.nodes.retain(|(_, node)| touching.iter().all(|delete| is_kept(delete, node.last.0)));
            }
            folded = Some(nodes);
        }
        Ok(Self { pieces, folded })
    }
}

/// Joins what the parts have, oldest first.
pub(crate) fn gather(sources: Vec<Source>) -> Gathered {
    let mut gathered = Gathered::default();
    let any_folded = sources.iter().any(|source| source.folded.is_some());
    let (mut pieces, mut unfolded) = (Vec::new(), Vec::new());
    for source in sources {
        let is_folded = source.folded.is_some();
        gathered.folded.extend(source.folded);
        for piece in source.pieces {
            gathered.ranges.push((piece.range, piece.sequences));
            if any_folded && !is_folded {
                unfolded.push(piece.rows.clone());
            }
            pieces.push(piece.rows);
        }
    }
    gathered.rows = chunk::join(pieces);
    gathered.unfolded = any_folded.then(|| chunk::join(unfolded));
    gathered
}

impl Gathered {
    /// Smallest and largest sequence id of the rows in a range, judged by whole chunks.
    pub(crate) fn sequences(&self, range: &TimeRange) -> (u64, u64) {
        let touching = self.ranges.iter().filter(|(of_chunk, _)| of_chunk.overlaps(range));
        let joined = touching.map(|(_, sequences)| *sequences).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        joined.unwrap_or((0, 0))
    }
}
