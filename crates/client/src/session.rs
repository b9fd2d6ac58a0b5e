//! What is under way, without a socket: batches wait here until they are acknowledged, and go out again on a new connection.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};

use wire::data::{Answer, Encoder, Exception, Hello, Outgoing, Reason, Welcome, encode_hello};
use wire::frame::{HEADER_BYTES, Plane, preface};

use crate::{ClientError, Options};

/// Buffers that are kept for batches to come.
const BUFFERS_MAX: usize = 8;

/// A number that is most probably unique; never 0.
pub(crate) fn number_by_chance() -> u64 {
    RandomState::new().build_hasher().finish().max(1)
}

struct Waiting {
    sequence: u64,
    frame: Vec<u8>,
}

/// A producer's batches.
pub(crate) struct Session {
    encoder: Encoder,
    token: String,
    producer: u64,
    pub(crate) incarnation: u64,
    next_sequence: u64,
    in_flight_bytes_max: usize,
    /// Not acknowledged, in order.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// How many of them went out on this connection.
    sent: usize,
    /// Bytes of batches that went out on this connection.
    sent_bytes: u64,
    credit_bytes: u64,
    message_bytes_max: usize,
    buffers: Vec<Vec<u8>>,
    exceptions: Vec<Exception>,
}

impl Session {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            encoder: Encoder::default(),
            token: options.token.clone(),
            producer: options.producer,
            incarnation: 0,
            next_sequence: options.first_sequence.max(1),
            in_flight_bytes_max: options.in_flight_bytes_max,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            credit_bytes: 0,
            message_bytes_max: 0,
            buffers: Vec::new(),
            exceptions: Vec::new(),
        }
    }

    /// The first bytes of a new connection.
    pub(crate) fn opening(&self) -> Vec<u8> {
        let mut bytes = preface(Plane::Data).to_vec();
        let hello = Hello { incarnation: self.incarnation, producer: self.producer, token: self.token.clone() };
        encode_hello(&hello, &mut bytes);
        bytes
    }

    /// Takes in a batch; its sequence.
    pub(crate) fn push(&mut self, blocks: &[Outgoing<'_>]) -> Result<u64, ClientError> {
        let mut frame = self.buffers.pop().unwrap_or_default();
        frame.clear();
        let sequence = self.next_sequence;
        self.encoder.batch(sequence, blocks, &mut frame)?;
        let bytes = frame.len().saturating_sub(HEADER_BYTES);
        if bytes > self.message_bytes_max {
            let message =
                format!("a batch of {bytes} bytes; the server takes {}: send less at once", self.message_bytes_max);
            return Err(ClientError::Invalid(message));
        }
        self.next_sequence += 1;
        self.waiting_bytes += frame.len();
        self.waiting.push_back(Waiting { sequence, frame });
        Ok(sequence)
    }

    /// The next batch that may go out; to be followed by [`Session::has_sent`].
    pub(crate) fn to_send(&self) -> Option<&[u8]> {
        let next = self.waiting.get(self.sent)?;
        (self.sent_bytes + next.frame.len() as u64 <= self.credit_bytes).then_some(next.frame.as_slice())
    }

    pub(crate) fn has_sent(&mut self) {
        if let Some(next) = self.waiting.get(self.sent) {
            self.sent_bytes += next.frame.len() as u64;
            self.sent += 1;
        }
    }

    /// Returns whether an answer must come before more is pushed.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting_bytes > self.in_flight_bytes_max || self.sent < self.waiting.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Begins anew on a connection: what the server has applied is done, the rest is to be sent again.
    pub(crate) fn connected(&mut self, welcome: &Welcome) {
        self.incarnation = welcome.incarnation;
        self.credit_bytes = welcome.credit_bytes;
        self.message_bytes_max = welcome.message_bytes_max as usize;
        (self.sent, self.sent_bytes) = (0, 0);
        self.done_through(welcome.last_sequence);
        // Under a number that was used in an earlier run: what it sent must not be taken for these batches.
        self.next_sequence = self.next_sequence.max(welcome.last_sequence + 1);
    }

    fn done_through(&mut self, sequence: u64) {
        while self.waiting.front().is_some_and(|first| first.sequence <= sequence) {
            let Some(done) = self.waiting.pop_front() else {
                return;
            };
            self.waiting_bytes -= done.frame.len();
            self.sent = self.sent.saturating_sub(1);
            if self.buffers.len() < BUFFERS_MAX {
                self.buffers.push(done.frame);
            }
        }
    }

    /// Takes in an answer.
    pub(crate) fn answered(&mut self, answer: Answer) -> Result<(), ClientError> {
        match answer {
            Answer::Ack(ack) => {
                self.credit_bytes = self.credit_bytes.max(ack.credit_bytes);
                self.exceptions.extend(ack.exceptions);
                self.done_through(ack.sequence);
                Ok(())
            }
            Answer::Welcome(welcome) => {
                self.connected(&welcome);
                Ok(())
            }
            Answer::Refused(refused) => Err(match refused.reason {
                Reason::Unavailable => ClientError::Unavailable(refused.message),
                Reason::Malformed => ClientError::Invalid(refused.message),
                Reason::Incarnation => {
                    self.incarnation = 0;
                    self.give_up();
                    ClientError::RegisterAgain(refused.message)
                }
            }),
        }
    }

    fn give_up(&mut self) {
        self.waiting.clear();
        (self.sent, self.waiting_bytes) = (0, 0);
    }

    /// The server's reports of batches since the last call.
    pub(crate) fn take_exceptions(&mut self) -> Vec<Exception> {
        std::mem::take(&mut self.exceptions)
    }
}

#[cfg(test)]
mod tests {
    use wire::data::{Ack, Values};

    use super::*;

    fn push(session: &mut Session) -> usize {
        let columns = [(Values::F64(&[1.0]), [].as_slice())];
        let block = Outgoing { measurement: 0, slots: &[], tokens: &[1], timestamps_ns: &[1], columns: &columns };
        session.push(&[block]).unwrap();
        session.waiting.back().unwrap().frame.len()
    }

    fn sequences(session: &Session) -> Vec<u64> {
        session.waiting.iter().map(|waiting| waiting.sequence).collect()
    }

    #[test]
    fn credit_bounds_what_goes_out_and_a_new_connection_sends_what_is_not_applied() {
        let mut session = Session::new(&Options { in_flight_bytes_max: 1 << 20, ..Options::default() });
        let mut welcome = Welcome { incarnation: 7, credit_bytes: 0, message_bytes_max: 1024, ..Welcome::default() };
        session.connected(&welcome);
        let bytes = push(&mut session) as u64;
        assert!(session.to_send().is_none(), "no credit");
        push(&mut session);
        push(&mut session);
        session.answered(Answer::Ack(Ack { credit_bytes: 2 * bytes, ..Ack::default() })).unwrap();
        let mut sent = 0;
        while session.to_send().is_some() {
            session.has_sent();
            sent += 1;
        }
        assert_eq!((sent, session.is_full()), (2, true));
        session.answered(Answer::Ack(Ack { sequence: 1, credit_bytes: 3 * bytes, ..Ack::default() })).unwrap();
        assert_eq!(sequences(&session), [2, 3]);
        assert!(session.to_send().is_some(), "the third");
        // The connection breaks; the second was applied.
        (welcome.last_sequence, welcome.knows_producer, welcome.credit_bytes) = (2, true, 10 * bytes);
        session.connected(&welcome);
        assert_eq!(sequences(&session), [3]);
        assert!(session.to_send().is_some());
    }

    #[test]
    fn too_large_a_batch_takes_no_number() {
        let mut session = Session::new(&Options::default());
        session.connected(&Welcome { message_bytes_max: 8, ..Welcome::default() });
        let columns = [(Values::F64(&[1.0]), [].as_slice())];
        let block = Outgoing { measurement: 0, slots: &[], tokens: &[1], timestamps_ns: &[1], columns: &columns };
        assert!(matches!(session.push(&[block]), Err(ClientError::Invalid(_))));
        assert!(session.is_idle() && session.next_sequence == 1);
    }
}
