//! Aggregates over windows: nodes where nothing else has a say, samples at the edges.
//!
//! A node of a part stands for its samples only where no other part, no head and no delete touches its time for the same key:
//! else a sample in it may have been rewritten. Nodes that replaced samples (folding) have no samples to be rewritten; late
//! rows are added to them.

use index::Slot;
use model::{Summary, SummaryParts, TimeRange, ValueType};

use crate::cache::index_blocks::IndexBlockCache;
use crate::part::chunk::{self, Rows, RowsColumn};
use crate::part::summary::{self, NodeColumn, Nodes};
use crate::part::{ChunkRef, Part, PartKey};
use crate::read::origins::{Origins, count};
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::{KeySnapshot, by_block};
use crate::{Store, StoreError};

/// Windows of equal width, one after another: the first from `start_ns` on, each without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Start of the first window.
    pub start_ns: i64,
    /// Width of each.
    pub width_ns: i64,
    /// How many there are.
    pub count: usize,
}

/// What an aggregation had to look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Nodes that stood for samples.
    pub nodes: u64,
    /// Rows that were decoded.
    pub rows: u64,
    /// Chunks that were read from parts.
    pub chunks: u64,
    /// Where all that lay.
    pub origins: Origins,
}

/// What each window of a member adds up to.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowColumn {
    /// One for each window; empty ones too.
    pub windows: Vec<Summary>,
}

impl Windows {
    /// All of them.
    pub fn range(&self) -> TimeRange {
        let length_ns = i128::from(self.width_ns) * self.count as i128;
        let end_ns = i128::from(self.start_ns) + length_ns - 1;
        TimeRange::new(self.start_ns, end_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    /// Where a window begins, by its number.
    pub fn start_of(&self, number: usize) -> i64 {
        self.start_ns.saturating_add(self.width_ns.saturating_mul(number as i64))
    }

    pub(crate) fn index(&self, timestamp_ns: i64) -> Option<usize> {
        let width_ns = self.width_ns.max(1);
        // Rarely do 64 bits not hold the distance; those of 128 take long to divide.
        let index = match timestamp_ns.checked_sub(self.start_ns) {
            Some(distance) => usize::try_from(distance.div_euclid(width_ns)).ok(),
            None => {
                let distance = i128::from(timestamp_ns) - i128::from(self.start_ns);
                usize::try_from(distance.div_euclid(i128::from(width_ns))).ok()
            }
        };
        index.filter(|index| *index < self.count)
    }

    /// The last timestamp of the window that a timestamp is in, or of all time before or after the windows.
    pub(crate) fn window_end(&self, timestamp_ns: i64) -> i64 {
        match self.index(timestamp_ns) {
            Some(index) => self.start_of(index + 1).saturating_sub(1).max(timestamp_ns),
            None if timestamp_ns < self.start_ns => self.start_ns.saturating_sub(1),
            None => i64::MAX,
        }
    }
}

/// The windows that a reader wants of a group.
struct Wanted<'a> {
    windows: &'a Windows,
    parts: SummaryParts,
    /// Told of the chunks that must be decoded, and of all: whether it is worth it.
    condition: &'a dyn Fn(usize, usize) -> bool,
}

/// What one part has of the key in the windows.
struct Source<'a> {
    part: &'a Part,
    chunks: Vec<ChunkRef>,
    nodes: Option<Nodes>,
}

/// Numbers of nodes of a source that stand for their samples, and the time that they cover.
struct CoveringNodes {
    numbers: Vec<i64>,
    covered: Vec<TimeRange>,
}

impl Store {
    /// What the windows of a group's columns add up to: one column for each of [`SelectedGroup::columns`], all windows
    /// empty where values are no numbers. Exact but for sums of floats, which may differ from those in order of time by
    /// what compensated summation leaves.
    pub fn aggregate(
        &self,
        selected: &SelectedGroup,
        windows: &Windows,
    ) -> Result<(Vec<WindowColumn>, ReadCounts), StoreError> {
        self.aggregate_parts(selected, windows, SummaryParts::All)
    }

    /// As [`Store::aggregate`], where only some parts of the summaries are wanted.
    pub fn aggregate_parts(
        &self,
        selected: &SelectedGroup,
        windows: &Windows,
        parts: SummaryParts,
    ) -> Result<(Vec<WindowColumn>, ReadCounts), StoreError> {
        Ok(self.aggregate_if(selected, &Wanted { windows, parts, condition: &|_, _| true })?.unwrap_or_default())
    }

    /// As [`Store::aggregate`], if nodes spare most of the work: `None` where half of the chunks or more would have to be decoded, and where there is none.
    pub fn aggregate_nodes(
        &self,
        selected: &SelectedGroup,
        windows: &Windows,
    ) -> Result<Option<(Vec<WindowColumn>, ReadCounts)>, StoreError> {
        let condition = &|decoded, all| decoded * 2 < all;
        self.aggregate_if(selected, &Wanted { windows, parts: SummaryParts::All, condition })
    }

    /// Aggregates if the numbers of chunks that must be decoded, and of all, meet a condition for every member block.
    fn aggregate_if(
        &self,
        selected: &SelectedGroup,
        wanted: &Wanted<'_>,
    ) -> Result<Option<(Vec<WindowColumn>, ReadCounts)>, StoreError> {
        let windows = wanted.windows;
        let mut counts = ReadCounts::default();
        let mut columns = Vec::with_capacity(selected.columns.len());
        let Some(shard) = self.shards.get(selected.shard) else {
            return Ok(Some((columns, counts)));
        };
        for (block, indexes) in by_block(&selected.columns) {
            let members: Vec<&SelectedColumn> =
                indexes.iter().filter_map(|index| selected.columns.get(*index)).collect();
            let slots: Vec<Slot> = members.iter().map(|column| column.slot).collect();
            let key = PartKey { block, ..selected.key };
            let range = self.retained(selected.key.database, &windows.range());
            let snapshot = KeySnapshot::take(shard, key, &range, &slots);
            let aggregated = aggregate_view(&snapshot, wanted, range, &slots, self.caches.index_blocks(), &mut counts)?;
            let Some(aggregated) = aggregated else { return Ok(None) };
            let column = |column: &&SelectedColumn| aggregated.column(column.slot, column.value_type, wanted);
            columns.extend(members.iter().map(column));
        }
        Ok(Some((columns, counts)))
    }
}

/// Nodes and rows that between them hold every sample of the windows once.
struct Aggregated {
    /// The windows' time, as far as retention keeps it.
    range: TimeRange,
    nodes: Vec<Nodes>,
    rows: Rows,
    /// Nodes of folded samples, to which rows are added.
    folded: Vec<Nodes>,
}

fn aggregate_view(
    snapshot: &KeySnapshot,
    wanted: &Wanted<'_>,
    range: TimeRange,
    slots: &[Slot],
    index_blocks: &IndexBlockCache,
    counts: &mut ReadCounts,
) -> Result<Option<Aggregated>, StoreError> {
    let sources = sources(snapshot, &range, slots, index_blocks, &mut counts.origins)?;
    let heads = snapshot.read_heads(slots)?;
    counts.origins.add_head(&heads);
    let mut aggregated = Aggregated { range, nodes: Vec::new(), rows: Rows::default(), folded: Vec::new() };
    let mut decoded: Vec<(&Source<'_>, CoveringNodes, Vec<ChunkRef>)> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        if let Some(folds) = source.nodes.as_ref().filter(|_| source.part.info.fold_ns > 0) {
            counts.origins.cut_folds += count_cut(folds, wanted.windows, &range);
            aggregated.folded.push(folds.clone());
            continue;
        }
        let covering = covering_nodes(snapshot, &sources, index, &heads, wanted.windows, &range);
        let inside = |chunk: &&ChunkRef| !covering.covers(&chunk.range, &range);
        let chunks: Vec<ChunkRef> = source.chunks.iter().filter(inside).copied().collect();
        decoded.push((source, covering, chunks));
    }
    let (all, left) = decoded
        .iter()
        .fold((0, 0), |(all, left), (source, _, chunks)| (all + source.chunks.len(), left + chunks.len()));
    if !(wanted.condition)(left, all) {
        return Ok(None);
    }
    Part::warm(decoded.iter().flat_map(|(source, _, chunks)| chunks.iter().map(|chunk| (source.part, chunk.handle))));
    let mut pieces = Vec::new();
    for (source, covering, chunks) in decoded {
        let read = snapshot.read_part(source.part, &chunks, slots)?;
        counts.origins.add_chunks(source.part, &chunks, count(&read));
        pieces.extend(read.into_iter().map(|rows| covering.leave_out(rows)));
        counts.chunks += chunks.len() as u64;
        aggregated.nodes.extend(source.nodes.as_ref().map(|nodes| nodes.pick(&covering.numbers)));
    }
    pieces.extend(heads);
    counts.rows += count(&pieces);
    let used = aggregated.nodes.iter().chain(&aggregated.folded).flat_map(|nodes| &nodes.columns);
    counts.nodes += used.map(|column| column.nodes.len() as u64).sum::<u64>();
    aggregated.rows = chunk::join(pieces);
    Ok(Some(aggregated))
}

fn sources<'a>(
    snapshot: &'a KeySnapshot,
    range: &TimeRange,
    slots: &[Slot],
    index_blocks: &IndexBlockCache,
    origins: &mut Origins,
) -> Result<Vec<Source<'a>>, StoreError> {
    let mut found = Vec::new();
    for part in snapshot.parts.iter().filter(|part| part.info.range.overlaps(range) || part.info.fold_ns > 0) {
        let (mut chunks, mut summary, mut is_there) = (Vec::new(), None, false);
        part.find(snapshot.key, index_blocks, |found, index| {
            chunks.extend(found.iter().filter(|chunk| chunk.range.overlaps(range)).copied());
            (summary, is_there) = (index, true);
        })?;
        if !chunks.is_empty() || (is_there && part.info.fold_ns > 0) {
            found.push((&**part, summary, chunks));
        }
    }
    Part::warm(found.iter().filter_map(|(part, summary, _)| Some((*part, (*summary)?))));
    let mut sources = Vec::with_capacity(found.len());
    for (part, summary, chunks) in found {
        let mut nodes = None;
        if let Some(index) = summary {
            origins.add_summary(part, index.bytes as usize);
            nodes = Some(if part.info.fold_ns > 0 {
                snapshot.folded_nodes(part, index, Some(slots))?
            } else {
                let bytes = part.read_summary(index)?;
                summary::decode(&bytes, Some(slots)).map_err(|error| part.corrupt(index.offset, &error))?
            });
        }
        sources.push(Source { part, chunks, nodes });
    }
    Ok(sources)
}

/// How many nodes windows cut.
fn count_cut(nodes: &Nodes, windows: &Windows, range: &TimeRange) -> u64 {
    let place = |time_ns: i64| windows.index(time_ns).filter(|_| range.contains(time_ns));
    let is_cut = |node: &&(i64, Summary)| place(node.1.first.0) != place(node.1.last.0);
    nodes.columns.iter().flat_map(|column| &column.nodes).filter(is_cut).count() as u64
}

/// The nodes of a source that lie in one window each and that nothing else touches.
fn covering_nodes(
    snapshot: &KeySnapshot,
    sources: &[Source<'_>],
    index: usize,
    heads: &[Rows],
    windows: &Windows,
    kept: &TimeRange,
) -> CoveringNodes {
    let mut covering = CoveringNodes { numbers: Vec::new(), covered: Vec::new() };
    let Some((source, nodes)) = sources.get(index).and_then(|source| Some((source, source.nodes.as_ref()?))) else {
        return covering;
    };
    let mut others: Vec<TimeRange> = Vec::new();
    for (_, other) in sources.iter().enumerate().filter(|(other, _)| *other != index) {
        others.extend(other.chunks.iter().map(|chunk| chunk.range));
    }
    others.extend(heads.iter().filter_map(Rows::range));
    others.extend(snapshot.masking(source.part).iter().map(|delete| delete.range));
    let partition = source.part.info.partition;
    others.retain(|other| other.overlaps(&partition));
    let mut numbers: Vec<i64> =
        nodes.columns.iter().flat_map(|column| column.nodes.iter().map(|(number, _)| *number)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for number in numbers {
        let whole = summary::node_range(number, nodes.width_ns);
        let range = TimeRange::new(whole.start_ns.max(partition.start_ns), whole.end_ns.min(partition.end_ns));
        let window =
            windows.index(range.start_ns).filter(|_| kept.contains(range.start_ns) && kept.contains(range.end_ns));
        if window.is_some()
            && window == windows.index(range.end_ns)
            && !others.iter().any(|other| other.overlaps(&range))
        {
            covering.numbers.push(number);
            match covering.covered.last_mut().filter(|last| last.end_ns.checked_add(1) == Some(range.start_ns)) {
                Some(last) => last.end_ns = range.end_ns,
                None => covering.covered.push(range),
            }
        }
    }
    covering
}

impl CoveringNodes {
    /// Returns whether all of a chunk that lies in the windows is covered by nodes.
    fn covers(&self, chunk: &TimeRange, windows: &TimeRange) -> bool {
        let inside = TimeRange::new(chunk.start_ns.max(windows.start_ns), chunk.end_ns.min(windows.end_ns));
        self.covered.iter().any(|covered| covered.start_ns <= inside.start_ns && inside.end_ns <= covered.end_ns)
    }

    /// The rows that no node stands for.
    fn leave_out(&self, rows: Rows) -> Rows {
        let covered = |timestamp_ns: &i64| {
            let after = self.covered.partition_point(|range| range.start_ns <= *timestamp_ns);
            after
                .checked_sub(1)
                .and_then(|index| self.covered.get(index))
                .is_some_and(|range| range.contains(*timestamp_ns))
        };
        let touches = rows.range().is_some_and(|range| self.covered.iter().any(|covered| covered.overlaps(&range)));
        if !touches {
            return rows;
        }
        let kept: Vec<usize> =
            rows.timestamps_ns.iter().enumerate().filter(|(_, time)| !covered(time)).map(|(row, _)| row).collect();
        rows.pick(&kept)
    }
}

impl Nodes {
    /// Only the nodes of these numbers (sorted).
    fn pick(&self, numbers: &[i64]) -> Self {
        let column = |column: &NodeColumn| {
            let is_chosen = |node: &&(i64, Summary)| numbers.binary_search(&node.0).is_ok();
            NodeColumn { nodes: column.nodes.iter().filter(is_chosen).copied().collect(), ..column.clone() }
        };
        Self { width_ns: self.width_ns, columns: self.columns.iter().map(column).collect() }
    }
}

impl Aggregated {
    /// The windows of one member.
    fn column(&self, slot: Slot, value_type: ValueType, wanted: &Wanted<'_>) -> WindowColumn {
        let windows = wanted.windows;
        let mut summed = vec![Summary::empty(value_type); windows.count];
        if !Summary::takes(value_type) {
            return WindowColumn { windows: summed };
        }
        let of_slot = |column: &&NodeColumn| column.slot == slot && column.value_type == value_type;
        let nodes = self.nodes.iter().filter_map(|nodes| nodes.columns.iter().find(of_slot));
        let mut nodes: Vec<&Summary> = nodes.flat_map(|column| column.nodes.iter().map(|(_, node)| node)).collect();
        nodes.sort_by_key(|node| node.first.0);
        let mut nodes = nodes.into_iter().peekable();
        let mut put = |timestamp_ns: i64, add: &dyn Fn(&mut Summary)| {
            let index = windows.index(timestamp_ns).filter(|_| self.range.contains(timestamp_ns));
            if let Some(window) = index.and_then(|index| summed.get_mut(index)) {
                add(window);
            }
        };
        let column = |column: &&RowsColumn| column.slot == slot && column.value_type == value_type;
        if let Some(column) = self.rows.columns.iter().find(column) {
            let times_ns = &self.rows.timestamps_ns;
            let mut row = 0;
            while let Some(first_ns) = times_ns.get(row).copied() {
                while let Some(node) = nodes.next_if(|node| node.first.0 < first_ns) {
                    put(node.first.0, &|window| window.merge(node));
                }
                let mut last_ns = windows.window_end(first_ns);
                if first_ns <= self.range.end_ns {
                    last_ns = last_ns.min(self.range.end_ns);
                }
                if first_ns < self.range.start_ns {
                    last_ns = last_ns.min(self.range.start_ns - 1);
                }
                last_ns = nodes.peek().map_or(last_ns, |node| last_ns.min(node.first.0));
                let rows = row..row + times_ns[row..].partition_point(|time_ns| *time_ns <= last_ns).max(1);
                put(first_ns, &|window| column.add_to(window, times_ns, rows.clone(), wanted.parts));
                row = rows.end;
            }
        }
        nodes.for_each(|node| put(node.first.0, &|window| window.merge(node)));
        for nodes in &self.folded {
            for (_, node) in nodes.columns.iter().filter(of_slot).flat_map(|column| &column.nodes) {
                put(node.last.0, &|window| window.merge_unordered(node));
            }
        }
        WindowColumn { windows: summed }
    }
}
