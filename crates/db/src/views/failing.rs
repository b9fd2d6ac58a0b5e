//! Views that cannot be kept right: the check `views` of the folder's health names them.

use store::CheckStatus;

use super::{State, ViewName, Views};

/// The name of the check.
const CHECK: &str = "views";

impl State {
    /// Notes whether a view fails; returns whether that changes what there is to say.
    fn settle_failing(&mut self, view: &ViewName) -> bool {
        let is_failing = self.statuses.get(view).is_some_and(|status| status.error.is_some());
        let is_changed = if is_failing { self.failing.insert(view.clone()) } else { self.failing.remove(view) };
        is_changed || self.failing.first() == Some(view)
    }

    /// Says which views fail; `None` if none does.
    fn failing_text(&self) -> Option<String> {
        let of_unreadable = self.unreadable.first().map(|view| {
            let (name, database, reason) = (&view.name, &view.database, &view.reason);
            format!("the definition of the view {name:?} of the database {database:?} cannot be read: {reason}")
        });
        let of_failing = || {
            let view = self.failing.first()?;
            let error = self.statuses.get(view)?.error.as_ref()?;
            let (database, name) = view;
            Some(format!(
                "the view {name:?} of the database {database:?} is not refreshed, so that queries compute it where they can: {error}"
            ))
        };
        let others = (self.unreadable.len() + self.failing.len()).saturating_sub(1);
        let more = if others > 0 { format!("; and {others} more, see /api/v1/views") } else { String::new() };
        Some(of_unreadable.or_else(of_failing)? + &more)
    }
}

impl Views {
    /// Has the folder's health say whether a view fails, after its status changed or it went.
    pub(super) fn note_failing(&self, state: &mut State, view: &ViewName) {
        if state.settle_failing(view) {
            self.note_all_failing(state);
        }
    }

    /// Has the folder's health say which views fail.
    pub(super) fn note_all_failing(&self, state: &State) {
        let failing = state.failing_text().map(|message| (CheckStatus::Warn, message));
        self.store.health().set(CHECK, failing);
    }
}

#[cfg(test)]
mod tests {
    use query::views::ViewStatus;

    use super::super::UnreadableView;
    use super::*;

    #[test]
    fn the_first_view_that_fails_is_named_and_the_others_are_counted() {
        let mut state = State::default();
        let mut set = |name: &str, error: Option<&str>| {
            let key = ("d".to_owned(), name.to_owned());
            let status = ViewStatus { error: error.map(str::to_owned), ..ViewStatus::default() };
            state.statuses.insert(key.clone(), status);
            let is_changed = state.settle_failing(&key);
            (is_changed, state.failing_text().unwrap_or_default())
        };
        let text = |rest: &str| {
            format!(
                "the view \"a\" of the database \"d\" is not refreshed, so that queries compute it where they can: {rest}"
            )
        };
        assert_eq!(set("b", None), (false, String::new()));
        assert_eq!(set("a", Some("no room")), (true, text("no room")));
        assert_eq!(set("b", Some("too large")), (true, text("no room; and 1 more, see /api/v1/views")));
        assert_eq!(set("b", Some("too large")), (false, text("no room; and 1 more, see /api/v1/views")));
        assert_eq!(set("a", Some("other")), (true, text("other; and 1 more, see /api/v1/views")));
        assert_eq!(set("b", None), (true, text("other")));
        let (database, name, reason) = ("d".to_owned(), "u".to_owned(), "it is cut".to_owned());
        state.unreadable.push(UnreadableView { database, name, reason, target: None, kind: "view" });
        assert_eq!(
            state.failing_text().unwrap(),
            "the definition of the view \"u\" of the database \"d\" cannot be read: it is cut; and 1 more, see /api/v1/views"
        );
    }
}
