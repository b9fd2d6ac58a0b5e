//! What follows the writes of a database: triggers with their hooks, subscriptions, and live streams, each over a cursor of the log; and the
//! refresher that keeps materialised views right.
