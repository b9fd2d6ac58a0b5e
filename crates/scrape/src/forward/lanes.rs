//! Rounds on their way. Each shard is a lane that sends its parts of rounds one after another, so that the samples of a series stay in
//! order; a lane that waits holds the others up only once its queue is full.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use db::LogLease;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use platform::network::BoxFuture;

use super::outgoing::{Item, split};
use super::pace::next_shards;
use super::queue::Queue;

/// How long others may wait for all lanes to be empty before their number changes.
const DRAIN_MS_MAX: u64 = 1_000;

/// A part of a round.
#[derive(Debug)]
struct Part {
    round: u64,
    items: Vec<Item>,
}

#[derive(Debug, Default)]
struct Lane {
    /// The round whose part is being sent.
    sending: Option<u64>,
    waiting: VecDeque<Part>,
    /// Items that wait or are being sent.
    items: usize,
}

/// A round that is not sent as a whole yet.
#[derive(Debug)]
struct UnderWay {
    /// Sequence id of its last record.
    through: u64,
    parts_left: usize,
    _memory: Vec<LogLease>,
}

/// Items that were read of the log, to be sent.
#[derive(Debug, Default)]
pub(super) struct NewRound {
    pub(super) items: Vec<Item>,
    /// The memory of its items.
    pub(super) memory: Vec<LogLease>,
    /// Everything up to this sequence id is done with once the round and those before it are sent.
    pub(super) through: u64,
}

/// The order in which rounds are sent, without the sending.
#[derive(Debug, Default)]
struct Order {
    lanes: Vec<Lane>,
    /// Oldest first.
    rounds: VecDeque<UnderWay>,
    /// The number of the oldest round.
    first: u64,
}

impl Order {
    fn new(lanes: u64) -> Self {
        Self { lanes: (0..lanes.max(1)).map(|_| Lane::default()).collect(), ..Self::default() }
    }

    /// Returns whether each lane has room for its part. An empty lane has room for any.
    fn has_room(&self, parts: &[Vec<Item>], capacity: usize) -> bool {
        let mut lanes = self.lanes.iter().zip(parts).filter(|(_, part)| !part.is_empty());
        lanes.all(|(lane, part)| lane.items == 0 || lane.items + part.len() <= capacity)
    }

    /// Adds a round, with a part for each lane; the parts that can be sent at once, with their lanes.
    fn push(&mut self, parts: Vec<Vec<Item>>, memory: Vec<LogLease>, through: u64) -> Vec<(usize, Vec<Item>)> {
        let round = self.first + self.rounds.len() as u64;
        let (mut parts_left, mut ready) = (0, Vec::new());
        for (number, (lane, items)) in self.lanes.iter_mut().zip(parts).enumerate() {
            if items.is_empty() {
                continue;
            }
            parts_left += 1;
            lane.items += items.len();
            if lane.sending.is_some() {
                lane.waiting.push_back(Part { round, items });
            } else {
                lane.sending = Some(round);
                ready.push((number, items));
            }
        }
        self.rounds.push_back(UnderWay { through, parts_left, _memory: memory });
        ready
    }

    /// Notes that a lane has sent a part of so many items; what it sends next.
    fn finished(&mut self, number: usize, items: usize) -> Option<Vec<Item>> {
        let lane = self.lanes.get_mut(number)?;
        lane.items -= items.min(lane.items);
        let round = lane.sending.take();
        let next = lane.waiting.pop_front();
        lane.sending = next.as_ref().map(|part| part.round);
        let index = round.and_then(|round| usize::try_from(round - self.first).ok());
        if let Some(under_way) = index.and_then(|index| self.rounds.get_mut(index)) {
            under_way.parts_left -= 1;
        }
        next.map(|part| part.items)
    }

    /// Takes the rounds out that are sent, up to the first that is not: everything up to this sequence id is done with.
    fn take_done(&mut self) -> Option<u64> {
        let mut done = None;
        while let Some(round) = self.rounds.pop_front_if(|round| round.parts_left == 0) {
            self.first += 1;
            done = done.max(Some(round.through));
        }
        done
    }
}

/// Lanes that send.
pub(super) struct Lanes {
    order: Order,
    /// Each gives its lane, and how many items it sent.
    sending: FuturesUnordered<BoxFuture<'static, (usize, usize)>>,
}

impl Lanes {
    pub(super) fn new(count: u64) -> Self {
        Self { order: Order::new(count), sending: FuturesUnordered::new() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.order.lanes.len() as u64
    }
}

impl Queue {
    /// Awaits something while lanes send.
    pub(super) async fn while_sending<T>(self: &Arc<Self>, lanes: &mut Lanes, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                Some((lane, items)) = lanes.sending.next() => self.finished(lanes, lane, items).await,
                done = &mut work => return done,
            }
        }
    }

    /// Hands a round to the lanes, once they have room for it.
    pub(super) async fn enqueue(self: &Arc<Self>, lanes: &mut Lanes, round: NewRound) {
        let parts = split(round.items, lanes.order.lanes.len());
        let capacity = self.config.queue.capacity.max(1) as usize;
        while !lanes.order.has_room(&parts, capacity) {
            let Some((lane, items)) = lanes.sending.next().await else { break };
            self.finished(lanes, lane, items).await;
        }
        for (lane, items) in lanes.order.push(parts, round.memory, round.through) {
            self.send_in_lane(lanes, lane, items);
        }
        self.note_under_way(lanes);
        // A round without items is done with when those before it are.
        self.take_done(lanes).await;
    }

    fn send_in_lane(self: &Arc<Self>, lanes: &Lanes, lane: usize, items: Vec<Item>) {
        let (own, count) = (self.clone(), items.len());
        lanes.sending.push(Box::pin(async move {
            own.send_part(items).await;
            (lane, count)
        }));
    }

    async fn finished(self: &Arc<Self>, lanes: &mut Lanes, lane: usize, items: usize) {
        if let Some(next) = lanes.order.finished(lane, items) {
            self.send_in_lane(lanes, lane, next);
        }
        self.note_under_way(lanes);
        self.take_done(lanes).await;
    }

    fn note_under_way(&self, lanes: &Lanes) {
        let items = lanes.order.lanes.iter().map(|lane| lane.items as u64).sum();
        self.counts.pending.store(items, Ordering::Relaxed);
        self.rounds_under_way.store(lanes.order.rounds.len() as u64, Ordering::Relaxed);
    }

    async fn take_done(self: &Arc<Self>, lanes: &mut Lanes) {
        let Some(mut through) = lanes.order.take_done() else { return };
        self.note_under_way(lanes);
        if lanes.order.rounds.is_empty() {
            through = through.max(self.skipped_through.load(Ordering::Relaxed));
            // A reader that waits for more saves the position meanwhile.
            self.written.notify_one();
        }
        self.done(through).await;
    }

    /// Changes the number of lanes after a round of so many items, if it should change and all lanes are soon empty: a series may go to
    /// another lane then.
    pub(super) async fn resize(self: &Arc<Self>, lanes: &mut Lanes, items: u64) {
        let count = next_shards(&self.config.queue, lanes.count(), items);
        self.counts.shards_desired.store(count, Ordering::Relaxed);
        let is_waiting = self.requests_waiting.load(Ordering::Relaxed) > 0;
        if count == lanes.count() || is_waiting || (count < lanes.count() && !lanes.order.rounds.is_empty()) {
            return;
        }
        let clock = &self.network.platform.clock;
        let until_ns = clock.monotonic_ns() + DRAIN_MS_MAX * 1_000_000;
        while !lanes.order.rounds.is_empty() {
            let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
            if left_ns == 0 {
                return;
            }
            tokio::select! {
                Some((lane, items)) = lanes.sending.next() => self.finished(lanes, lane, items).await,
                () = self.network.tasks.sleep_ms(left_ns.div_ceil(1_000_000)) => {}
            }
        }
        *lanes = Lanes::new(count);
        self.counts.shards.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::outgoing::{OutSeries, OutValue};

    fn items(count: usize) -> Vec<Item> {
        let series = Arc::new(OutSeries { labels: Vec::new(), hash: 0 });
        let item = |time_ms| Item { series: series.clone(), time_ms, value: OutValue::Float(1.0), start_ms: 0 };
        (0..count as i64).map(item).collect()
    }

    #[test]
    fn a_lane_that_waits_holds_up_no_other() {
        let mut order = Order::new(2);
        let lanes = |ready: Vec<(usize, Vec<Item>)>| {
            ready.into_iter().map(|(lane, items)| (lane, items.len())).collect::<Vec<_>>()
        };
        assert_eq!(lanes(order.push(vec![items(3), items(2)], Vec::new(), 10)), [(0, 3), (1, 2)]);
        assert_eq!(lanes(order.push(vec![items(4), items(1)], Vec::new(), 20)), []);
        // The second lane goes on; nothing is done with, since the first has sent nothing.
        assert_eq!(order.finished(1, 2).map(|items| items.len()), Some(1));
        assert!(order.finished(1, 1).is_none());
        assert_eq!(order.take_done(), None);
        assert_eq!(lanes(order.push(vec![Vec::new(), items(5)], Vec::new(), 30)), [(1, 5)]);
        assert!(order.finished(1, 5).is_none());
        // A lane is full for more, an empty one is not.
        assert!(order.has_room(&[items(1), items(100)], 8) && !order.has_room(&[items(2), Vec::new()], 8));
        // The first lane gets through: rounds are done with in their order.
        assert_eq!(order.finished(0, 3).map(|items| items.len()), Some(4));
        assert_eq!(order.take_done(), Some(10));
        assert!(order.finished(0, 4).is_none());
        assert_eq!(order.take_done(), Some(30));
        // What needs no sending is done with at once.
        assert_eq!(lanes(order.push(vec![Vec::new(), Vec::new()], Vec::new(), 40)), []);
        assert_eq!((order.take_done(), order.rounds.len(), order.first), (Some(40), 0, 4));
    }
}
