//! The control plane: labels in, tokens out.

use capnp::message::{Builder, HeapAllocator, Reader};
use capnp::serialize::{BufferSegments, read_message_from_flat_slice};
use model::{Field, Labels};

use super::wire_capnp::{control_answer, control_request};
use super::{WireError, check_name, frame, limits, list_length, push_labels, take_labels, value_type, wire_type};

/// The groups that a client wants to register.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Comes back with the answer.
    pub id: u64,
    /// The database; empty for the default one.
    pub database: String,
    /// The token that the client signs in with; empty where none has to.
    pub token: String,
    /// The registration.
    pub what: Registration,
}

/// Series or groups.
#[derive(Debug, Clone, PartialEq)]
pub enum Registration {
    /// Lone series of floats: metric and labels of each.
    Series(Vec<(String, Labels)>),
    /// Groups of a measurement.
    Groups {
        /// Their measurement.
        measurement: String,
        /// Fields, with labels of their own if they have any.
        members: Vec<(Field, Labels)>,
        /// Labels of each.
        groups: Vec<Labels>,
    },
}

/// The outcome of registering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// That of the request; 0 where the request could not be read.
    pub id: u64,
    /// Of the data folder.
    pub incarnation: u64,
    /// Tokens, or why there are none.
    pub registered: Result<Registered, String>,
}

/// Tokens, and what stands for their groups' layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registered {
    /// In the order of the request.
    pub tokens: Vec<u64>,
    /// The measurement's number; 0 for lone series.
    pub measurement: u32,
    /// The members' slots, in the order of the request; none for lone series.
    pub slots: Vec<u32>,
}

fn read(message: &[u8]) -> Result<Reader<BufferSegments<&[u8]>>, WireError> {
    let mut rest = message;
    Ok(read_message_from_flat_slice(&mut rest, limits(message.len()))?)
}

/// Bytes of a request's beginning that are looked at before its sender is known.
pub const BEGINNING_BYTES_MAX: usize = 4 << 10;

/// The place of the token among a request's pointers, as Cap'n Proto lays `ControlRequest` out.
const TOKEN_POINTER: usize = 2;

/// The token of a request of which only the beginning has come; empty if the request has none. `None` if the token does not stand there: a
/// client that sets it before what it registers puts it there.
pub fn token_in_beginning(beginning: &[u8]) -> Option<&str> {
    let table = |index: usize| Some(u32::from_le_bytes(*beginning.get(4 * index..)?.first_chunk()?));
    // The number of segments less one, and the size of each; the first segment begins at the next word.
    let segments = usize::try_from(table(0)?).ok()?.checked_add(1)?;
    let start = segments.checked_add(1)?.checked_mul(4)?.checked_next_multiple_of(8)?;
    let segment_bytes = usize::try_from(table(1)?).ok()?.checked_mul(8)?;
    let segment = beginning.get(start..)?;
    let segment = segment.get(..segment_bytes.min(segment.len()))?;
    let pointer = |word: usize| Some(u64::from_le_bytes(*segment.get(word.checked_mul(8)?..)?.first_chunk()?));
    let target = |word: usize, pointer: u64| {
        let offset = isize::try_from((pointer as u32 as i32) >> 2).ok()?;
        word.checked_add(1)?.checked_add_signed(offset)
    };
    let root = pointer(0)?;
    let (data_words, pointers) = ((root >> 32) as u16, (root >> 48) as u16);
    if root & 3 != 0 || usize::from(pointers) <= TOKEN_POINTER {
        return None;
    }
    let word = target(0, root)?.checked_add(usize::from(data_words))?.checked_add(TOKEN_POINTER)?;
    let list = pointer(word)?;
    if list == 0 {
        return Some("");
    }
    // A list of bytes, the last of which is a zero.
    if list & 3 != 1 || (list >> 32) & 7 != 2 {
        return None;
    }
    let bytes = usize::try_from(list >> 35).ok()?.checked_sub(1)?;
    let text = segment.get(target(word, list)?.checked_mul(8)?..)?.get(..bytes)?;
    std::str::from_utf8(text).ok()
}

/// Reads a request.
pub fn decode_request(message: &[u8]) -> Result<Request, WireError> {
    let reader = read(message)?;
    let request = reader.get_root::<control_request::Reader<'_>>()?;
    let what = match request.which()? {
        control_request::Series(series) => {
            let mut all = Vec::new();
            for series in series? {
                let metric = series.get_metric()?.to_str()?;
                check_name("metric", metric)?;
                all.push((metric.to_owned(), take_labels(series.get_labels()?)?));
            }
            Registration::Series(all)
        }
        control_request::Groups(groups) => {
            let sent = groups?;
            let mut members = Vec::new();
            for member in sent.get_members()? {
                let field = Field {
                    name: member.get_field()?.to_str()?.to_owned(),
                    value_type: value_type(member.get_type()?),
                };
                check_name("field", &field.name)?;
                members.push((field, take_labels(member.get_labels()?)?));
            }
            let measurement = sent.get_measurement()?.to_str()?;
            check_name("measurement", measurement)?;
            let mut groups = Vec::new();
            for group in sent.get_groups()? {
                groups.push(take_labels(group.get_labels()?)?);
            }
            Registration::Groups { measurement: measurement.to_owned(), members, groups }
        }
    };
    let text = |text: capnp::text::Reader<'_>| Ok::<_, WireError>(text.to_str()?.to_owned());
    let (database, token) = (text(request.get_database()?)?, text(request.get_token()?)?);
    Ok(Request { id: request.get_id(), database, token, what })
}

/// Appends a frame with a request.
pub fn encode_request(request: &Request, out: &mut Vec<u8>) -> Result<(), WireError> {
    let mut message = Builder::new(HeapAllocator::new());
    let mut root = message.init_root::<control_request::Builder<'_>>();
    root.set_id(request.id);
    root.set_database(&request.database);
    root.set_token(&request.token);
    match &request.what {
        Registration::Series(series) => {
            let mut list = root.init_series(list_length(series.len())?);
            for (place, (metric, labels)) in (0..).zip(series) {
                let mut item = list.reborrow().get(place);
                item.set_metric(metric);
                push_labels(labels, item.init_labels(list_length(labels.len())?));
            }
        }
        Registration::Groups { measurement, members, groups } => {
            let mut root = root.init_groups();
            root.set_measurement(measurement);
            let mut list = root.reborrow().init_members(list_length(members.len())?);
            for (place, (field, labels)) in (0..).zip(members) {
                let mut item = list.reborrow().get(place);
                item.set_field(&field.name);
                item.set_type(wire_type(field.value_type));
                push_labels(labels, item.init_labels(list_length(labels.len())?));
            }
            let mut list = root.init_groups(list_length(groups.len())?);
            for (place, labels) in (0..).zip(groups) {
                push_labels(labels, list.reborrow().get(place).init_labels(list_length(labels.len())?));
            }
        }
    }
    frame::push(&message, out);
    Ok(())
}

/// Reads an answer.
pub fn decode_answer(message: &[u8]) -> Result<Answer, WireError> {
    let reader = read(message)?;
    let answer = reader.get_root::<control_answer::Reader<'_>>()?;
    let registered = match answer.which()? {
        control_answer::Error(error) => Err(error?.to_str()?.to_owned()),
        control_answer::Registered(registered) => {
            let registered = registered?;
            Ok(Registered {
                tokens: registered.get_tokens()?.iter().collect(),
                measurement: registered.get_measurement(),
                slots: registered.get_slots()?.iter().collect(),
            })
        }
    };
    Ok(Answer { id: answer.get_id(), incarnation: answer.get_incarnation(), registered })
}

/// Appends a frame with an answer.
pub fn encode_answer(answer: &Answer, out: &mut Vec<u8>) -> Result<(), WireError> {
    let mut message = Builder::new(HeapAllocator::new());
    let mut root = message.init_root::<control_answer::Builder<'_>>();
    root.set_id(answer.id);
    root.set_incarnation(answer.incarnation);
    match &answer.registered {
        Err(error) => root.set_error(error),
        Ok(registered) => {
            let mut root = root.init_registered();
            root.set_measurement(registered.measurement);
            root.set_tokens(registered.tokens.as_slice())?;
            root.set_slots(registered.slots.as_slice())?;
        }
    }
    frame::push(&message, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HEADER_BYTES;

    fn encoded(token: &str, series: usize) -> Vec<u8> {
        let labels = |number: usize| Labels::from_pairs([("host", number.to_string().as_str())]).unwrap();
        let series = (0..series).map(|number| ("level".to_owned(), labels(number))).collect();
        let what = Registration::Series(series);
        let request = Request { id: 7, database: "metrics".to_owned(), token: token.to_owned(), what };
        let mut frame = Vec::new();
        encode_request(&request, &mut frame).unwrap();
        frame.split_off(HEADER_BYTES)
    }

    #[test]
    fn a_token_is_read_from_the_beginning_of_a_request() {
        for (token, series) in [("thw_abc", 1), ("thw_abc", 100_000), ("", 100_000), ("x", 0)] {
            let message = encoded(token, series);
            let beginning = message.get(..BEGINNING_BYTES_MAX.min(message.len())).unwrap();
            assert_eq!(token_in_beginning(beginning), Some(token), "{series}");
            assert_eq!(decode_request(frame::MessageBuffer::copied_from(&message).bytes()).unwrap().token, token);
        }
    }

    #[test]
    fn a_beginning_that_is_cut_or_damaged_has_no_token() {
        let message = encoded("thw_abc", 3);
        for bytes in 0..message.len().min(120) {
            let found = token_in_beginning(message.get(..bytes).unwrap());
            assert!(matches!(found, None | Some("thw_abc")), "{bytes}: {found:?}");
            for flip in [1, 2, 4, 0x80, 0xff] {
                let mut damaged = message.clone();
                damaged[bytes] ^= flip;
                // Whatever it says, nothing is read beyond the message.
                let _ = token_in_beginning(&damaged);
            }
        }
        assert_eq!(token_in_beginning(&[0xff; 64]), None);
    }
}
