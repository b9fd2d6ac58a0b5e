//! The binary protocol: nothing panics, and few bytes never stand for many rows.
#![no_main]

use wire::data::{Message, Request, decode_answer};
use wire::frame::MessageBuffer;
use wire::rows::Rows;
use wire::{WireError, control};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|bytes: &[u8]| {
    let buffer = MessageBuffer::copied_from(bytes);
    let _ = read(buffer.bytes());
    let _ = control::decode_request(buffer.bytes());
    let _ = control::decode_answer(buffer.bytes());
    let _ = decode_answer(buffer.bytes());
});

fn read(bytes: &[u8]) -> Result<(), WireError> {
    let message = Message::new(bytes)?;
    let Request::Batch(batch) = message.request()? else { return Ok(()) };
    let mut rows = Rows::default();
    for block in batch.blocks() {
        let block = block?;
        for stretch in block.stretches() {
            let count = stretch.len();
            block.read(stretch, &mut rows)?;
            assert_eq!((rows.tokens.len(), rows.timestamps_ns.len()), (count, count));
            assert_eq!(rows.cells.len(), count * block.types.len());
            assert!(rows.histograms.iter().all(|histogram| histogram.validate().is_ok()));
            let runs = rows.runs(block.types.len());
            assert!(rows.present.is_empty() || runs.iter().map(|run| run.rows.len()).sum::<usize>() == count);
        }
    }
    Ok(())
}
