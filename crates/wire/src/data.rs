//! The data plane: greetings and batches one way, acknowledgements the other.

use capnp::message::{Builder, HeapAllocator, Reader, ScratchSpaceHeapAllocator};
use capnp::serialize::{BufferSegments, read_message_from_flat_slice};
use capnp::{Word, struct_list};
use model::NativeHistogram;

use super::rows::Block;
use super::wire_capnp::{block, column, data_answer, data_request};
use super::{WireError, frame, histograms, limits, list_length, wire_capnp};

/// The first message of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// Of the folder that its tokens are from; 0 if it has none.
    pub incarnation: u64,
    /// The number of the producer; 0 for none.
    pub producer: u64,
    /// The token that the client signs in with; empty where none has to.
    pub token: String,
}

/// The server's answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Welcome {
    /// Of the data folder.
    pub incarnation: u64,
    /// The producer's last batch that was applied.
    pub last_sequence: u64,
    /// True if the producer is remembered.
    pub knows_producer: bool,
    /// Bytes of frames with batches that may be sent on the connection in all, so far.
    pub credit_bytes: u64,
    /// Bytes that a message may have.
    pub message_bytes_max: u32,
}

/// The outcome of batches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ack {
    /// All batches up to this one are on disk, but for the exceptions.
    pub sequence: u64,
    /// As in the welcome: never less than before.
    pub credit_bytes: u64,
    /// Batches of which there is more to say.
    pub exceptions: Vec<Exception>,
}

/// A batch that was not simply written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exception {
    /// Of the batch.
    pub sequence: u64,
    /// It was applied earlier, and not again.
    pub duplicate: bool,
    /// Why nothing of it was written.
    pub error: Option<String>,
    /// Rows of these tokens were left out: their groups are gone.
    pub stale_tokens: Vec<u64>,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The client broke the protocol.
    Malformed,
    /// Tokens are from another data folder.
    Incarnation,
    /// Not now: connect again later.
    Unavailable,
}

/// The last message of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The action for the client.
    pub reason: Reason,
    /// Why.
    pub message: String,
    /// Of the data folder.
    pub incarnation: u64,
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Batches may come.
    Welcome(Welcome),
    /// Batches are done.
    Ack(Ack),
    /// The end.
    Refused(Refused),
}

/// A client's message, read in place.
pub struct Message<'a>(Reader<BufferSegments<&'a [u8]>>);

/// A request of the data plane.
pub enum Request<'a> {
    /// A greeting.
    Hello(Hello),
    /// Rows.
    Batch(Batch<'a>),
}

/// Rows that are written together.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// Larger than that of the batch before.
    pub sequence: u64,
    blocks: struct_list::Reader<'a, block::Owned>,
}

impl<'a> Message<'a> {
    /// Looks at the bytes of a message, which must lie at a multiple of eight.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = bytes;
        Ok(Self(read_message_from_flat_slice(&mut rest, limits(bytes.len()))?))
    }

    /// The content of the message.
    pub fn request(&self) -> Result<Request<'_>, WireError> {
        Ok(match self.0.get_root::<data_request::Reader<'_>>()?.which()? {
            data_request::Hello(hello) => {
                let hello = hello?;
                let token = hello.get_token()?.to_str()?.to_owned();
                Request::Hello(Hello { incarnation: hello.get_incarnation(), producer: hello.get_producer(), token })
            }
            data_request::Batch(batch) => {
                let batch = batch?;
                Request::Batch(Batch { sequence: batch.get_sequence(), blocks: batch.get_blocks()? })
            }
        })
    }
}

impl<'a> Batch<'a> {
    /// The blocks, each checked when its turn comes.
    pub fn blocks(&self) -> impl Iterator<Item = Result<Block<'a>, WireError>> {
        let blocks = self.blocks;
        (0..blocks.len()).map(move |place| Block::new(blocks.get(place)))
    }
}

/// Appends a frame with a greeting.
pub fn encode_hello(hello: &Hello, out: &mut Vec<u8>) {
    let mut message = Builder::new(HeapAllocator::new());
    let mut root = message.init_root::<data_request::Builder<'_>>().init_hello();
    root.set_incarnation(hello.incarnation);
    root.set_producer(hello.producer);
    root.set_token(&hello.token);
    frame::push(&message, out);
}

/// A column to be sent: a value for each row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values<'a> {
    /// Floats.
    F64(&'a [f64]),
    /// Signed integers.
    I64(&'a [i64]),
    /// Unsigned integers.
    U64(&'a [u64]),
    /// Booleans.
    Bool(&'a [bool]),
    /// Texts.
    String(&'a [&'a str]),
    /// Native histograms.
    Histogram(&'a [NativeHistogram]),
}

/// Rows to be sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outgoing<'a> {
    /// The measurement's number; 0 for lone series.
    pub measurement: u32,
    /// The columns' slots; none for lone series.
    pub slots: &'a [u32],
    /// One for each row, or one for all.
    pub tokens: &'a [u64],
    /// One for each row, or one for all.
    pub timestamps_ns: &'a [i64],
    /// The values, and for columns with nulls a bit for each row, the lowest of the first byte first.
    pub columns: &'a [(Values<'a>, &'a [u8])],
}

/// Builds batches; keeps its memory from one to the next.
#[derive(Default)]
pub struct Encoder {
    scratch: Vec<Word>,
}

/// Bytes of a message beside its lists, at most, for each block and each column.
const STRUCT_BYTES: usize = 64;

impl Encoder {
    /// Appends a frame with a batch.
    pub fn batch(&mut self, sequence: u64, blocks: &[Outgoing<'_>], out: &mut Vec<u8>) -> Result<(), WireError> {
        let words = blocks.iter().map(size_bytes).sum::<usize>() / 8 + 16;
        if self.scratch.len() < words {
            self.scratch = Word::allocate_zeroed_vec(words);
        }
        let mut allocator = ScratchSpaceHeapAllocator::new(Word::words_to_bytes_mut(&mut self.scratch));
        let mut message = Builder::new(&mut allocator);
        let mut batch = message.init_root::<data_request::Builder<'_>>().init_batch();
        batch.set_sequence(sequence);
        let mut list = batch.init_blocks(list_length(blocks.len())?);
        for (place, block) in (0..).zip(blocks) {
            push_block(list.reborrow().get(place), block)?;
        }
        frame::push(&message, out);
        Ok(())
    }
}

fn size_bytes(block: &Outgoing<'_>) -> usize {
    let of_column = |(values, present): &(Values<'_>, &[u8])| {
        let bytes = match values {
            Values::F64(values) => size_of_val(*values),
            Values::I64(values) => size_of_val(*values),
            Values::U64(values) => size_of_val(*values),
            Values::Bool(values) => values.len() / 8,
            Values::String(values) => values.iter().map(|text| text.len() + 24).sum(),
            Values::Histogram(values) => histograms::size_bytes(values),
        };
        bytes + present.len() + STRUCT_BYTES
    };
    let columns: usize = block.columns.iter().map(of_column).sum();
    columns + size_of_val(block.slots) + size_of_val(block.tokens) + size_of_val(block.timestamps_ns) + STRUCT_BYTES
}

fn push_block(mut out: block::Builder<'_>, block: &Outgoing<'_>) -> Result<(), WireError> {
    list_length(block.tokens.len().max(block.timestamps_ns.len()))?;
    out.set_measurement(block.measurement);
    out.set_slots(block.slots)?;
    out.set_tokens(block.tokens)?;
    out.set_timestamps(block.timestamps_ns)?;
    let mut columns = out.init_columns(list_length(block.columns.len())?);
    for (place, (values, present)) in (0..).zip(block.columns) {
        push_column(columns.reborrow().get(place), *values, present)?;
    }
    Ok(())
}

fn push_column(mut out: column::Builder<'_>, values: Values<'_>, present: &[u8]) -> Result<(), WireError> {
    if !present.is_empty() {
        out.set_present(present);
    }
    match values {
        Values::F64(values) => out.set_f64(values)?,
        Values::I64(values) => out.set_i64(values)?,
        Values::U64(values) => out.set_u64(values)?,
        Values::Bool(values) => out.set_bool(values)?,
        Values::String(values) => {
            let mut list = out.init_string(list_length(values.len())?);
            (0..).zip(values).for_each(|(place, text)| list.set(place, text));
        }
        Values::Histogram(values) => histograms::push(out.init_histogram(), values)?,
    }
    Ok(())
}

/// Appends a frame with an answer.
pub fn encode_answer(answer: &Answer, out: &mut Vec<u8>) -> Result<(), WireError> {
    let mut message = Builder::new(HeapAllocator::new());
    let root = message.init_root::<data_answer::Builder<'_>>();
    match answer {
        Answer::Welcome(welcome) => {
            let mut root = root.init_welcome();
            root.set_incarnation(welcome.incarnation);
            root.set_last_sequence(welcome.last_sequence);
            root.set_knows_producer(welcome.knows_producer);
            root.set_credit_bytes(welcome.credit_bytes);
            root.set_message_bytes_max(welcome.message_bytes_max);
        }
        Answer::Ack(ack) => {
            let mut root = root.init_ack();
            root.set_sequence(ack.sequence);
            root.set_credit_bytes(ack.credit_bytes);
            let mut list = root.init_exceptions(list_length(ack.exceptions.len())?);
            for (place, exception) in (0..).zip(&ack.exceptions) {
                let mut item = list.reborrow().get(place);
                item.set_sequence(exception.sequence);
                item.set_duplicate(exception.duplicate);
                item.set_error(exception.error.as_deref().unwrap_or_default());
                item.set_stale_tokens(exception.stale_tokens.as_slice())?;
            }
        }
        Answer::Refused(refused) => {
            let mut root = root.init_refused();
            root.set_reason(match refused.reason {
                Reason::Malformed => wire_capnp::Reason::Malformed,
                Reason::Incarnation => wire_capnp::Reason::Incarnation,
                Reason::Unavailable => wire_capnp::Reason::Unavailable,
            });
            root.set_message(&refused.message);
            root.set_incarnation(refused.incarnation);
        }
    }
    frame::push(&message, out);
    Ok(())
}

/// Reads an answer.
pub fn decode_answer(message: &[u8]) -> Result<Answer, WireError> {
    let message = Message::new(message)?;
    Ok(match message.0.get_root::<data_answer::Reader<'_>>()?.which()? {
        data_answer::Welcome(welcome) => {
            let welcome = welcome?;
            Answer::Welcome(Welcome {
                incarnation: welcome.get_incarnation(),
                last_sequence: welcome.get_last_sequence(),
                knows_producer: welcome.get_knows_producer(),
                credit_bytes: welcome.get_credit_bytes(),
                message_bytes_max: welcome.get_message_bytes_max(),
            })
        }
        data_answer::Ack(ack) => {
            let ack = ack?;
            let mut exceptions = Vec::new();
            for exception in ack.get_exceptions()? {
                let error = exception.get_error()?.to_str()?;
                exceptions.push(Exception {
                    sequence: exception.get_sequence(),
                    duplicate: exception.get_duplicate(),
                    error: (!error.is_empty()).then(|| error.to_owned()),
                    stale_tokens: exception.get_stale_tokens()?.iter().collect(),
                });
            }
            Answer::Ack(Ack { sequence: ack.get_sequence(), credit_bytes: ack.get_credit_bytes(), exceptions })
        }
        data_answer::Refused(refused) => {
            let refused = refused?;
            let reason = match refused.get_reason()? {
                wire_capnp::Reason::Malformed => Reason::Malformed,
                wire_capnp::Reason::Incarnation => Reason::Incarnation,
                wire_capnp::Reason::Unavailable => Reason::Unavailable,
            };
            let message = refused.get_message()?.to_str()?.to_owned();
            Answer::Refused(Refused { reason, message, incarnation: refused.get_incarnation() })
        }
    })
}
