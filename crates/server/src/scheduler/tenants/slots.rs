//! Slots that tenants share: what one leaves free another may have, but for a few that are always left for the others, once there are any; and
//! of those that wait, the tenant with the fewest comes first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// One slot in so many is left for others by a tenant that has as many already.
const RESERVE_SHARE: usize = 8;

/// With fewer slots than this none is left for others: they come first as soon as one is free.
const RESERVED_FROM: usize = 8;

/// A tenant's name.
pub(crate) type TenantName = Arc<str>;

/// Slots that one tenant leaves for the others.
fn reserve(slots_max: usize) -> usize {
    if slots_max < RESERVED_FROM { 0 } else { slots_max / RESERVE_SHARE }
}

/// Returns whether a tenant that has `own` of the `used` ones may have one more.
fn may_take(own: usize, used: usize, slots_max: usize) -> bool {
    let (free, reserve) = (slots_max.saturating_sub(used), reserve(slots_max));
    free > 0 && (own < reserve || free > reserve)
}

/// Slots of one kind.
#[derive(Debug)]
pub(crate) struct FairSlots {
    slots_max: usize,
    uses: Mutex<Uses>,
    /// Those that wait.
    waiting: AtomicU64,
}

#[derive(Debug, Default)]
struct Uses {
    used: usize,
    /// The first tenant that came.
    first: Option<TenantName>,
    /// True once another came: while there is one alone, nothing is left for others.
    is_shared: bool,
    tenants: HashMap<TenantName, OfTenant>,
    next_ticket: u64,
}

#[derive(Debug, Default)]
struct OfTenant {
    used: usize,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// Tickets ascend over all tenants.
    ticket: u64,
    sender: oneshot::Sender<Slot>,
}

/// A slot, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<FairSlots>,
    tenant: TenantName,
}

/// There is no room to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// One that waits, until it is dropped.
struct Waiting<'a> {
    slots: &'a FairSlots,
    tenant: &'a TenantName,
    ticket: u64,
    receiver: oneshot::Receiver<Slot>,
}

enum Entered<'a> {
    Slot(Slot),
    Waiting(Waiting<'a>),
}

impl FairSlots {
    pub(crate) fn new(slots_max: usize) -> Arc<Self> {
        Arc::new(Self { slots_max: slots_max.max(1), uses: Mutex::default(), waiting: AtomicU64::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many slots are free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.slots_max - self.lock().used
    }

    /// A slot, if the tenant may have one now.
    pub(crate) fn try_acquire(self: &Arc<Self>, tenant: &TenantName) -> Option<Slot> {
        self.lock().take(tenant, self.slots_max).then(|| self.slot(tenant))
    }

    /// Waits for a slot; of `queue_max` that may wait for one, a tenant leaves some for the others, too.
    pub(crate) async fn acquire(self: &Arc<Self>, tenant: &TenantName, queue_max: usize) -> Result<Slot, QueueFull> {
        match self.enter(tenant, queue_max)? {
            Entered::Slot(slot) => Ok(slot),
            // The sender goes only with the slots.
            Entered::Waiting(mut waiting) => (&mut waiting.receiver).await.map_err(|_| QueueFull),
        }
    }

    fn enter<'a>(self: &'a Arc<Self>, tenant: &'a TenantName, queue_max: usize) -> Result<Entered<'a>, QueueFull> {
        let mut uses = self.lock();
        if uses.take(tenant, self.slots_max) {
            return Ok(Entered::Slot(self.slot(tenant)));
        }
        let own = uses.tenants.get(tenant).map_or(0, |own| own.waiting.len());
        let all = usize::try_from(self.waiting()).unwrap_or(usize::MAX);
        if !uses.may_take(own, all, queue_max) {
            return Err(QueueFull);
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = uses.next_ticket;
        uses.next_ticket += 1;
        uses.tenants.entry(tenant.clone()).or_default().waiting.push_back(Waiter { ticket, sender });
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Entered::Waiting(Waiting { slots: self, tenant, ticket, receiver }))
    }

    fn slot(self: &Arc<Self>, tenant: &TenantName) -> Slot {
        Slot { slots: self.clone(), tenant: tenant.clone() }
    }

    /// Gives free slots to those that wait.
    fn hand_out(self: &Arc<Self>) {
        loop {
            let next = self.lock().next(self.slots_max);
            let Some((tenant, waiter)) = next else { return };
            // One that has left meanwhile drops the slot, which hands it out again.
            drop(waiter.sender.send(self.slot(&tenant)));
        }
    }
}

impl Uses {
    /// As [`may_take`], if there are several tenants.
    fn may_take(&self, own: usize, used: usize, slots_max: usize) -> bool {
        if self.is_shared { may_take(own, used, slots_max) } else { used < slots_max }
    }

    fn note(&mut self, tenant: &TenantName) {
        match &self.first {
            None => self.first = Some(tenant.clone()),
            Some(first) => self.is_shared |= first != tenant,
        }
    }

    /// Takes a slot for a tenant, if it may have one before those that wait.
    fn take(&mut self, tenant: &TenantName, slots_max: usize) -> bool {
        self.note(tenant);
        let own = self.tenants.get(tenant);
        let (used, waits) = own.map_or((0, false), |own| (own.used, !own.waiting.is_empty()));
        if waits || !self.may_take(used, self.used, slots_max) {
            return false;
        }
        self.used += 1;
        self.tenants.entry(tenant.clone()).or_default().used += 1;
        true
    }

    /// Takes a slot for the one that is next: of the tenant with the fewest slots, and of those with as few of the one that has waited longest.
    fn next(&mut self, slots_max: usize) -> Option<(TenantName, Waiter)> {
        let all = self.used;
        let ready = self.tenants.iter().filter(|(_, own)| self.may_take(own.used, all, slots_max));
        let ready = ready.filter_map(|(name, own)| Some((own.used, own.waiting.front()?.ticket, name)));
        let name = ready.min().map(|(_, _, name)| name.clone())?;
        let own = self.tenants.get_mut(&name)?;
        let waiter = own.waiting.pop_front()?;
        own.used += 1;
        self.used += 1;
        Some((name, waiter))
    }

    fn give_back(&mut self, tenant: &TenantName) {
        self.used = self.used.saturating_sub(1);
        if let Some(own) = self.tenants.get_mut(tenant) {
            own.used = own.used.saturating_sub(1);
            if own.used == 0 && own.waiting.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }
}

impl Slot {
    /// Whose it is.
    pub(crate) const fn tenant(&self) -> &TenantName {
        &self.tenant
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().give_back(&self.tenant);
        if self.slots.waiting() > 0 {
            self.slots.hand_out();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slots.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut uses = self.slots.lock();
        if let Some(own) = uses.tenants.get_mut(self.tenant) {
            own.waiting.retain(|waiter| waiter.ticket != self.ticket);
            if own.used == 0 && own.waiting.is_empty() {
                uses.tenants.remove(self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn name(text: &str) -> TenantName {
        text.into()
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_leaves_an_eighth_for_the_others() {
        for (own, used, slots_max, expected) in [
            (0, 0, 1, true),
            (0, 1, 1, false),
            (2, 2, 3, true),
            (3, 3, 4, true),
            (7, 7, 8, false),
            (0, 7, 8, true),
            (0, 8, 8, false),
            (55, 55, 64, true),
            (56, 56, 64, false),
            (7, 63, 64, true),
            (8, 63, 64, false),
            (0, 0, 0, false),
        ] {
            assert_eq!(may_take(own, used, slots_max), expected, "{own} of {used} of {slots_max}");
        }
    }

    #[test]
    fn a_flood_of_one_tenant_keeps_no_other_from_its_slot() {
        let (slots, flood, small) = (FairSlots::new(8), name("flood"), name("small"));
        drop(slots.try_acquire(&small));
        let mut held: Vec<Slot> = std::iter::from_fn(|| slots.try_acquire(&flood)).collect();
        assert_eq!(held.len(), 7);
        let first = slots.try_acquire(&small);
        assert!(first.is_some() && slots.try_acquire(&small).is_none());
        let mut flooding: Vec<_> = (0..20).map(|_| Box::pin(slots.acquire(&flood, 100))).collect();
        assert!(flooding.iter_mut().all(|waiting| poll(waiting.as_mut()).is_none()));
        let mut second = pin!(slots.acquire(&small, 100));
        assert!(poll(second.as_mut()).is_none());
        assert_eq!(slots.waiting(), 21);
        // The next free slot goes to the tenant with fewer, though it came last; the very last one is left to a third.
        held.truncate(5);
        let second = poll(second.as_mut());
        assert!(second.is_some());
        assert!(flooding.iter_mut().all(|waiting| poll(waiting.as_mut()).is_none()));
        assert!(slots.try_acquire(&name("third")).is_some());
        drop((first, second, held, flooding));
        assert_eq!((slots.free(), slots.waiting()), (8, 0));
    }

    #[test]
    fn a_tenant_that_is_alone_has_all() {
        let (slots, one, other) = (FairSlots::new(8), name("one"), name("other"));
        let mut held: Vec<Slot> = std::iter::from_fn(|| slots.try_acquire(&one)).collect();
        assert_eq!(held.len(), 8);
        assert!(slots.try_acquire(&other).is_none());
        held.truncate(7);
        // Now there are two.
        assert!(slots.try_acquire(&one).is_none());
        assert!(slots.try_acquire(&other).is_some());
    }

    #[test]
    fn a_queue_has_room_for_others_and_is_left_by_those_that_give_up() {
        let (slots, one, other) = (FairSlots::new(1), name("one"), name("other"));
        drop(slots.try_acquire(&other));
        let held = slots.try_acquire(&one);
        let mut waiting: Vec<_> = (0..8).map(|_| Box::pin(slots.acquire(&one, 8))).collect();
        let refused = waiting.iter_mut().filter_map(|waiting| poll(waiting.as_mut()));
        assert_eq!(refused.map(|refused| refused.is_err()).collect::<Vec<_>>(), [true]);
        let mut last = pin!(slots.acquire(&other, 8));
        assert!(poll(last.as_mut()).is_none());
        drop(waiting);
        assert_eq!(slots.waiting(), 1);
        drop(held);
        assert!(poll(last.as_mut()).is_some_and(|slot| slot.is_ok()));
    }
}
