//! The bugs that are planted: each breaks one promise of the store, or of views.

/// A program that is run to find a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finder {
    /// The simulation, seed by seed.
    Simulation,
    /// The tests of a package in one of its files of tests.
    Tests {
        /// The package.
        package: &'static str,
        /// The file's name without its ending.
        file: &'static str,
    },
}

/// What tries histories of writes, deletes, refreshes and crashes of views.
const OF_VIEWS: Finder = Finder::Tests { package: "thalweg-views", file: "views" };

/// What tries views whose sources are folded, or whose rows go, and joins.
const OF_KEPT_VIEWS: Finder = Finder::Tests { package: "thalweg-views", file: "statements" };

/// A bug, as a change of one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bug {
    /// What to call it.
    pub name: &'static str,
    /// The file, from the root.
    pub file: &'static str,
    /// Stands in it exactly once.
    pub find: &'static str,
    /// Stands there instead.
    pub replace: &'static str,
    /// Which promise is broken.
    pub breaks: &'static str,
    /// The program that has to find it.
    pub finder: Finder,
}

/// All of them.
pub const BUGS: [Bug; 30] = [
    Bug {
        name: "lost-sync",
        file: "crates/store/src/compaction/merge/outputs.rs",
        find: "            output.file.sync()?;\n",
        replace: "",
        breaks: "a merged part is on disk before the manifest names it",
        finder: Finder::Simulation,
    },
    Bug {
        name: "partition-edge",
        file: "crates/store/src/compaction/placement.rs",
        find: "if timestamp_ns >= *fast_from_ns {",
        replace: "if timestamp_ns > *fast_from_ns {",
        breaks: "a row on the edge of a partition is inside the partition that it is put into",
        finder: Finder::Simulation,
    },
    Bug {
        name: "below-level-1",
        file: "crates/store/src/compaction/merge/outputs.rs",
        find: "*timestamp_ns <= until_ns && *timestamp_ns <= copied_ns",
        replace: "*timestamp_ns <= target.partition.end_ns && *timestamp_ns <= copied_ns",
        breaks: "rows of what stays on level 1 do not go below it",
        finder: Finder::Simulation,
    },
    Bug {
        name: "summary-across-head",
        file: "crates/store/src/read/windows.rs",
        find: "    others.extend(heads.iter().filter_map(Rows::range));\n",
        replace: "",
        breaks: "a summary is not used where a head has rows",
        finder: Finder::Simulation,
    },
    Bug {
        name: "summary-across-patch",
        file: "crates/store/src/read/windows.rs",
        find: "others.extend(other.chunks.iter().map(|chunk| chunk.range));",
        replace: "others.extend(other.chunks.iter().filter(|_| !other.part.info.is_patch()).map(|chunk| chunk.range));",
        breaks: "a summary is not used where a patch has rows",
        finder: Finder::Simulation,
    },
    Bug {
        name: "delete-spares-level-0",
        file: "crates/store/src/read/mod.rs",
        find: "        let masking = self.masking(part);\n        let read",
        replace: "        let masking = if part.info.level == 0 { Vec::new() } else { self.masking(part) };\n        let read",
        breaks: "a delete masks rows wherever they are",
        finder: Finder::Simulation,
    },
    Bug {
        name: "age-order-reversed",
        file: "crates/store/src/compaction/mod.rs",
        find: "(info.class, 2 - info.level.min(2), info.id)",
        replace: "(info.class, 2 - info.level.min(2), if info.level == 0 { u64::MAX - info.id } else { info.id })",
        breaks: "of two rows with the same key and time the later one counts",
        finder: Finder::Simulation,
    },
    Bug {
        name: "log-released-early",
        file: "crates/store/src/log/writer.rs",
        find: "next.first_sequence <= sequence)",
        replace: "next.first_sequence <= sequence + 1)",
        breaks: "the log keeps every record that no part holds yet",
        finder: Finder::Simulation,
    },
    Bug {
        name: "last-record-skipped",
        file: "crates/store/src/log/reader.rs",
        find: "            visit(frame)?;\n            offset = next;",
        replace: "            if look(bytes.get(next..).unwrap_or_default(), segment.number) != Found::Nothing {\n                \
                  visit(frame)?;\n            }\n            offset = next;",
        breaks: "recovery reads every record of the log",
        finder: Finder::Simulation,
    },
    Bug {
        name: "merge-drops-row",
        file: "crates/store/src/compaction/merge/outputs.rs",
        find: "chunk::cut_evenly(places, level).filter_map(encoded)",
        replace: "chunk::cut_evenly(places.start..(places.end - 1).max(places.start + 1), level).filter_map(encoded)",
        breaks: "a merge writes every row that it reads",
        finder: Finder::Simulation,
    },
    Bug {
        name: "summary-of-overlapped",
        file: "crates/store/src/compaction/merge/nodes.rs",
        find: "range.overlaps(&one.range)).count() == 1",
        replace: "range.overlaps(&one.range)).count() > 0",
        breaks: "a merge takes over the nodes of a part only where no other overlaps it",
        finder: Finder::Simulation,
    },
    Bug {
        name: "settled-despite-others",
        file: "crates/store/src/flush/sections.rs",
        find: "let may_write_level2 = pieces.len() == 1",
        replace: "let may_write_level2 = !pieces.is_empty()",
        breaks: "of rows of one flush at the same time the later one stays",
        finder: Finder::Simulation,
    },
    Bug {
        name: "retention-early",
        file: "crates/store/src/compaction/plan.rs",
        find: "part.partition.end_ns < oldest_ns)",
        replace: "part.partition.start_ns < oldest_ns)",
        breaks: "retention drops a partition only when all of it is past keeping",
        finder: Finder::Simulation,
    },
    Bug {
        name: "folded-rows-counted-twice",
        file: "crates/store/src/write/mod.rs",
        find: "            self.reject_sealed(database, batch, &mut route)?;\n",
        replace: "            let _ = &mut route;\n",
        breaks: "a row that is sent again for folded time is not counted twice",
        finder: Finder::Simulation,
    },
    Bug {
        name: "torn-record-accepted",
        file: "crates/store/src/log/frame.rs",
        find: "Claim::Record(claimed) if claimed.is(crc32c::crc32c(bytes.get(claimed.checked()).unwrap_or_default())) => {",
        replace: "Claim::Record(claimed) if !claimed.checked().is_empty() => {",
        breaks: "a record that a crash tore does not count",
        finder: Finder::Simulation,
    },
    Bug {
        name: "clock-believed-at-once",
        file: "crates/store/src/retention/trusted_time.rs",
        find: "const BELIEVED_AFTER_NS: i64 = HOUR_NS;",
        replace: "const BELIEVED_AFTER_NS: i64 = 0;",
        breaks: "a clock that jumps deletes and hides nothing",
        finder: Finder::Simulation,
    },
    Bug {
        name: "first-manifest-believed",
        file: "crates/store/src/manifest/twin.rs",
        find: "let state = if one.state.edition < other.state.edition { other.state } else { one.state };",
        replace: "let state = one.state;",
        breaks: "a manifest that was cut is not taken for the newest",
        finder: Finder::Simulation,
    },
    Bug {
        name: "lost-part-unnoticed",
        file: "crates/store/src/upkeep/recover/losses.rs",
        find: "                        losses.push(loss_of(folder.directory, info, &error));\n",
        replace: "",
        breaks: "a folder that misses a part is refused",
        finder: Finder::Simulation,
    },
    Bug {
        name: "index-block-unchecked",
        file: "crates/index/src/segment/copies.rs",
        find: "            if !is_whole {\n",
        replace: "            if !is_whole && block == usize::MAX {\n",
        breaks: "a flipped bit of the index is never served",
        finder: Finder::Simulation,
    },
    Bug {
        name: "damage-taken-for-tearing",
        file: "crates/store/src/log/reader.rs",
        find: "*is_lost = sequences.1 > in_parts_through;",
        replace: "*is_lost = sequences.1 > in_parts_through + 1;",
        breaks: "damage to acknowledged records is no torn tail",
        finder: Finder::Simulation,
    },
    Bug {
        name: "epochs-end-unnoticed",
        file: "crates/store/src/part/epochs/open.rs",
        find: "(found < reached).then(",
        replace: "(found < reached / 2).then(",
        breaks: "what was acknowledged and is gone from the end of a file of epochs is a loss",
        finder: Finder::Simulation,
    },
    Bug {
        name: "view-window-after-a-late-row",
        file: "crates/views/src/refresh/dirty.rs",
        find: ".filter(|next_ns| *next_ns <= end_ns);",
        replace: ".filter(|next_ns| *next_ns <= end_ns.min(of_ns));",
        breaks: "a late row changes the windows after its own that are made of it, too",
        finder: OF_VIEWS,
    },
    Bug {
        name: "view-delete-while-computing",
        file: "crates/db/src/views/api.rs",
        find: "for range in subtract(&[*done], &held) {",
        replace: "for range in subtract(&[*done], held.get(held.len()..).unwrap_or_default()) {",
        breaks: "windows of which rows are deleted while they are computed are computed again",
        finder: OF_VIEWS,
    },
    Bug {
        name: "view-emptied-window-stays",
        file: "crates/views/src/refresh/changes.rs",
        find: "left.into_keys().filter(|(_, start_ns)| *start_ns >= stored.frozen_ns);",
        replace: "left.into_keys().filter(|(_, start_ns)| *start_ns < stored.frozen_ns);",
        breaks: "a window whose rows are all deleted is not stored any more",
        finder: OF_VIEWS,
    },
    Bug {
        name: "view-pending-lost-in-a-crash",
        file: "crates/db/src/views/api.rs",
        find: "        self.views.change_state(view, true, |state| {\n            for range in ranges {",
        replace: "        self.views.change_state(view, false, |state| {\n            for range in ranges {",
        breaks: "windows that were to be computed before a crash are computed after it",
        finder: OF_VIEWS,
    },
    Bug {
        name: "view-column-taken-for-stored",
        file: "crates/db/src/views/definitions.rs",
        find: "        view.state.add_columns(names);\n",
        replace: "        drop(names);\n",
        breaks: "a column that was added is computed until its windows are stored",
        finder: OF_VIEWS,
    },
    Bug {
        name: "view-window-taken-for-a-part",
        file: "crates/query/src/views/one_bin.rs",
        find: "self.bins.start_of(end_ns + 1).saturating_sub(1)",
        replace: "self.end_of(end_ns)",
        breaks: "a query reads no window of a view of which only a part lies in its range",
        finder: OF_VIEWS,
    },
    Bug {
        name: "view-samples-folded-too-early",
        file: "crates/store/src/retention/fold_bounds.rs",
        find: "of_class.map(|(_, bound)| bound.foldable_before_ns).min()",
        replace: "of_class.map(|_| i64::MAX).min()",
        breaks: "samples are not folded before the windows are closed that are made of them",
        finder: OF_KEPT_VIEWS,
    },
    Bug {
        name: "view-rows-folded",
        file: "crates/store/src/compaction/merge/outputs.rs",
        find: "if !self.unfolded.contains(key.group) {",
        replace: "if self.job.fold_ns > 0 {",
        breaks: "the rows of views are not folded",
        finder: OF_KEPT_VIEWS,
    },
    Bug {
        name: "view-label-taken-for-the-row's-own",
        file: "crates/query/src/views/joined.rs",
        find: " || self.as_ofs().any(|as_of| as_of.adds_label(label))",
        replace: "",
        breaks: "a late row changes the groups of what rows find as of a time, too, which its own labels do not tell",
        finder: OF_KEPT_VIEWS,
    },
];
