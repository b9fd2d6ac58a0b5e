//! Why rows of a request were not taken.

/// What a reason for not taking a row is about. Its text is for the sender; programs go by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RejectionKind {
    /// The row cannot be read, or breaks a limit of its protocol.
    #[default]
    Unreadable,
    /// A field has another type than before.
    TypeConflict,
    /// The row is older than its database keeps.
    BeyondRetention,
    /// Its series is new, and new series are not let in.
    SeriesRefused,
}
