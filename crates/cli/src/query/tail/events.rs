//! Server-sent events, read line by line. Pure.

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Event {
    /// Empty for events of the usual kind.
    pub(super) kind: String,
    /// Its lines of data.
    pub(super) data: String,
    /// The sequence id that a client resumes after, if the event has one.
    pub(super) id: Option<u64>,
}

/// The lines of an event that is not over yet.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    event: Event,
}

impl EventReader {
    /// Takes a line without its end; returns the event that it ends.
    pub(super) fn push(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (event != Event::default()).then_some(event);
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.kind),
            "id" => self.event.id = value.parse().ok(),
            // A comment, or what later versions say.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_line_by_line() {
        let mut reader = EventReader::default();
        let text = ": heartbeat\nid: 3\n\ndata: a\ndata: b\nid: 4\n\nevent: end\ndata:c\n\n\n: nothing\n\n";
        let events: Vec<Event> = text.lines().filter_map(|line| reader.push(line)).collect();
        let event = |kind: &str, data: &str, id| Event { kind: kind.to_owned(), data: data.to_owned(), id };
        assert_eq!(events, [event("", "", Some(3)), event("", "a\nb", Some(4)), event("end", "c", None)]);
    }
}
