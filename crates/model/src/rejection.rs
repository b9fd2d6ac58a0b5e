//! Why rows of a request were not taken.

/// The kind of reason for which a row was refused. The text is for the sender; programs go by the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RejectionKind {
    /// The row cannot be read, or breaks a limit of its protocol.
    #[default]
    Unreadable,
    /// A field has another type than before.
    TypeConflict,
    /// The row is older than its database keeps.
    BeyondRetention,
    /// The row comes for time whose samples are folded to summaries.
    Folded,
    /// Its series is new, and new series are not let in.
    SeriesRefused,
}
