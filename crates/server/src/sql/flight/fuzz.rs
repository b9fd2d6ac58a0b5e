//! What a client of Flight may send, without a socket.

use arrow_flight::FlightData;
use arrow_flight::sql::{Any, Command};
use axum::body::Bytes;
use futures_util::{FutureExt, stream};
use prost::Message;

use super::bound;
use super::handle::Handle;
use super::ingest::Batches;

/// Bytes of what a call binds, so that short inputs can have too many.
const BOUND_BYTES_MAX: usize = 1 << 20;

/// Reads bytes as a ticket or descriptor, as a handle, or as messages with batches: the entry for fuzzing.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub(crate) fn calls(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'c', bytes)) => command(bytes),
        Some((b'h', bytes)) => handle(bytes),
        Some((b'b', bytes)) => batches(bytes),
        _ => {}
    }
}

fn command(bytes: &[u8]) {
    let Ok(Ok(command)) = Any::decode(bytes).map(Command::try_from) else { return };
    match command {
        Command::TicketStatementQuery(ticket) => handle(&ticket.statement_handle),
        Command::CommandPreparedStatementQuery(query) => handle(&query.prepared_statement_handle),
        Command::CommandPreparedStatementUpdate(update) => handle(&update.prepared_statement_handle),
        _ => {}
    }
}

fn handle(bytes: &[u8]) {
    let Ok(handle) = Handle::read(bytes) else { return };
    let back = Handle::read(&handle.encode_to_vec()).map(|back| back.encode_to_vec());
    assert_eq!(back.ok(), Some(handle.encode_to_vec()), "a handle comes back as it was");
    let _ = handle.only_row();
    let _ = super::one(&handle.text);
}

/// Messages: the bytes of the header, the bytes of the body, both in 16 bits, and both.
fn batches(mut rest: &[u8]) {
    let mut messages = Vec::new();
    while let Some((lengths, behind)) = rest.split_first_chunk::<4>() {
        let [header, header_high, body, body_high] = *lengths;
        let take = |from: &mut &[u8], length: [u8; 2]| {
            let (taken, behind) = from.split_at(from.len().min(u16::from_le_bytes(length).into()));
            *from = behind;
            Bytes::copy_from_slice(taken)
        };
        rest = behind;
        let data_header = take(&mut rest, [header, header_high]);
        let data_body = take(&mut rest, [body, body_high]);
        messages.push(Ok(FlightData { data_header, data_body, ..FlightData::default() }));
    }
    let bound = bound(Batches::from_messages(stream::iter(messages)), BOUND_BYTES_MAX).now_or_never();
    let Some(Ok(rows)) = bound else { return };
    let handle = Handle { database: String::new(), text: String::new(), rows };
    let _ = handle.only_row();
    let back = Handle::read(&handle.encode_to_vec()).map(|back| back.encode_to_vec());
    assert_eq!(back.ok(), Some(handle.encode_to_vec()), "rows come back as they were bound");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, NullArray, RecordBatch, StringArray};
    use arrow_flight::encode::FlightDataEncoderBuilder;
    use futures_util::TryStreamExt;
    use tonic::Code;

    use super::*;

    /// Columns as a client sends them.
    fn sent(columns: impl IntoIterator<Item = (&'static str, ArrayRef)>) -> Vec<FlightData> {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let messages = FlightDataEncoderBuilder::new().build(stream::iter([Ok(batch)]));
        messages.try_collect().now_or_never().unwrap().unwrap()
    }

    fn input(messages: &[FlightData]) -> Vec<u8> {
        let mut input = vec![b'b'];
        for message in messages {
            for part in [&message.data_header, &message.data_body] {
                input.extend_from_slice(&u16::try_from(part.len()).unwrap().to_le_bytes());
            }
            input.extend_from_slice(&message.data_header);
            input.extend_from_slice(&message.data_body);
        }
        input
    }

    #[test]
    fn no_byte_of_a_batch_that_is_another_breaks_it() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("longer")]));
        let messages = sent([("1", numbers), ("2", texts)]);
        let whole = input(&messages);
        let rows = bound(Batches::from_messages(stream::iter(messages.into_iter().map(Ok))), BOUND_BYTES_MAX);
        assert_eq!(rows.now_or_never().unwrap().unwrap().len(), 2);
        for place in 1..whole.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff, whole[place] ^ 1] {
                let mut bytes = whole.clone();
                bytes[place] = byte;
                calls(&bytes);
            }
            calls(&whole[..place]);
        }
    }

    #[test]
    fn few_bytes_that_stand_for_many_rows_are_refused() {
        let messages = sent([("1", Arc::new(NullArray::new(1 << 40)) as ArrayRef)]);
        assert!(input(&messages).len() < 1000);
        let refused = bound(Batches::from_messages(stream::iter(messages.into_iter().map(Ok))), BOUND_BYTES_MAX);
        assert_eq!(refused.now_or_never().unwrap().unwrap_err().code(), Code::ResourceExhausted);
    }
}
