//! The targets of one job: what discovery finds is relabelled, and loops begin and end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use platform::network::NetworkPlatform;
use tokio::sync::watch;

use crate::client::Client;
use crate::config::ScrapeConfig;
use crate::discovery::{self, Found, TargetGroup};
use crate::target::{self, Command, Destination, Target, TargetLoop, Unusable, from_discovered};
use relabel::Labels;

/// A job that runs.
pub struct Pool {
    /// Its configuration.
    pub config: Arc<ScrapeConfig>,
    own: Weak<Self>,
    destination: Arc<Destination>,
    network: NetworkPlatform,
    /// Ends its discoveries.
    stop: watch::Sender<bool>,
    /// Sends the requests of all targets, but for those of sockets.
    client: Arc<Client>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each discovery found last.
    groups: Vec<Option<Vec<TargetGroup>>>,
    /// Why a discovery could not look.
    errors: Vec<Option<String>>,
    active: BTreeMap<String, Active>,
    dropped: Dropped,
    /// Loops of the job as it was configured before; they go on until all is found again.
    inherited: BTreeMap<String, Active>,
}

#[derive(Clone)]
struct Active {
    target: Arc<TargetLoop>,
    command: watch::Sender<Command>,
}

/// What relabelling dropped.
#[derive(Debug, Clone, Default)]
pub struct Dropped {
    /// How many there are.
    pub count: usize,
    /// Their labels as discovered; as many as the job keeps.
    pub labels: Vec<Labels>,
    /// The errors of others.
    pub invalid: Vec<String>,
}

impl Pool {
    /// A job, and what it goes on with from an earlier configuration of it.
    pub(crate) fn start(
        config: ScrapeConfig,
        destination: &Arc<Destination>,
        network: &NetworkPlatform,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let discoveries = if config.disabled.is_some() { 0 } else { config.discoveries.len() };
        let mut state = State { groups: vec![None; discoveries], errors: vec![None; discoveries], ..State::default() };
        if let Some(before) = before {
            before.stop.send_replace(true);
            let mut old = before.state.lock();
            for (index, groups) in state.groups.iter_mut().enumerate() {
                let known =
                    before.config.discoveries.iter().position(|found| Some(found) == config.discoveries.get(index));
                *groups = known.and_then(|known| old.groups.get(known).cloned().flatten());
            }
            state.inherited = std::mem::take(&mut old.inherited);
            state.inherited.append(&mut old.active);
        }
        let client = Arc::new(Client::new(network, &config.http));
        let pool = Arc::new_cyclic(|own| Self {
            client,
            config: Arc::new(config),
            own: own.clone(),
            destination: destination.clone(),
            network: network.clone(),
            stop: watch::Sender::new(false),
            state: Mutex::new(state),
        });
        pool.sync(&mut pool.state.lock());
        (0..discoveries).for_each(|index| pool.discover(index));
        pool
    }

    /// Looks for targets until the pool stops.
    fn discover(&self, index: usize) {
        let (own, network, config) = (self.own.clone(), self.network.clone(), self.config.clone());
        let mut stopped = self.stop.subscribe();
        self.network.tasks.spawn(Box::pin(async move {
            let sink = move |found: Found| {
                if let Some(pool) = own.upgrade() {
                    pool.take(index, found);
                }
            };
            let Some(discovery) = config.discoveries.get(index) else { return };
            tokio::select! {
                () = discovery::run(discovery, &network, &sink) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }));
    }

    fn take(&self, index: usize, found: Found) {
        let mut state = self.state.lock();
        if *self.stop.borrow() {
            return;
        }
        match found {
            Ok(groups) => {
                if let Some(error) = state.errors.get_mut(index) {
                    *error = None;
                }
                let Some(known) = state.groups.get_mut(index) else { return };
                if known.as_ref() == Some(&groups) {
                    return;
                }
                *known = Some(groups);
            }
            Err(reason) => {
                if let Some(error) = state.errors.get_mut(index) {
                    *error = Some(reason);
                }
                return;
            }
        }
        self.sync(&mut state);
    }

    /// Makes the loops those of the targets that are there.
    fn sync(&self, state: &mut State) {
        if !state.inherited.is_empty() && state.groups.iter().any(Option::is_none) {
            // Loops that run may be of targets that are yet to be found.
            return;
        }
        let (targets, dropped) = self.targets(&state.groups);
        let targets_max = self.config.settings.limits.targets_max;
        let forced = (targets_max > 0 && targets.len() as u64 > targets_max)
            .then(|| format!("target_limit exceeded: {} targets, at most {targets_max}", targets.len()));
        state.dropped = dropped;
        for (_, gone) in extract(&mut state.active, |identity| !targets.contains_key(identity)) {
            self.end_loop(&gone, Command::Gone);
        }
        let mut inherited = std::mem::take(&mut state.inherited);
        let by_labels: BTreeMap<Labels, String> =
            inherited.iter().map(|(identity, old)| (old.target.target.labels.clone(), identity.clone())).collect();
        for (identity, target) in targets {
            // With another path or timeout it is the same series that go on.
            let old = by_labels.get(&target.labels).and_then(|alike| inherited.remove(alike));
            old.iter().for_each(|old| self.end_loop(old, Command::Stop));
            let active = state.active.entry(identity).or_insert_with(|| self.begin(target, old.as_ref()));
            active.target.force_error(forced.clone());
        }
        inherited.values().for_each(|gone| self.end_loop(gone, Command::Gone));
    }

    /// All targets by their identities, and what is none.
    fn targets(&self, groups: &[Option<Vec<TargetGroup>>]) -> (BTreeMap<String, Target>, Dropped) {
        let mut targets = BTreeMap::new();
        let mut dropped = Dropped::default();
        let kept_max = match self.config.settings.limits.dropped_targets_max {
            0 => usize::MAX,
            limit => limit as usize,
        };
        for labels in groups.iter().flatten().flatten().flat_map(TargetGroup::targets) {
            match from_discovered(&labels, &self.config) {
                Ok(target) => drop(targets.insert(target.identity(), target)),
                Err(Unusable::Dropped) => {
                    dropped.count += 1;
                    if dropped.labels.len() < kept_max {
                        dropped.labels.push(labels);
                    }
                }
                Err(Unusable::Invalid(reason)) => dropped.invalid.push(reason),
            }
        }
        (targets, dropped)
    }

    fn begin(&self, target: Target, old: Option<&Active>) -> Active {
        let client = match &target.unix_socket {
            Some(path) => Arc::new(Client::new(&self.network, &self.config.http).over_socket(path.into())),
            None => self.client.clone(),
        };
        let target = TargetLoop::new(target, &self.config, &self.destination, &self.network, client);
        if let Some(old) = old {
            target.go_on_from(&old.target);
        }
        let target = Arc::new(target);
        self.destination.begin(&target.target.labels);
        let command = watch::Sender::new(Command::Run);
        let running = target::run(target.clone(), command.subscribe());
        self.network.tasks.spawn(Box::pin(running));
        Active { target, command }
    }

    fn end_loop(&self, active: &Active, command: Command) {
        self.destination.end(&active.target.target.labels);
        active.command.send_replace(command);
    }

    /// Ends all loops.
    pub(crate) fn end(&self, command: Command) {
        self.stop.send_replace(true);
        let mut state = self.state.lock();
        let active = std::mem::take(&mut state.active).into_values();
        for loop_of_target in active.chain(std::mem::take(&mut state.inherited).into_values()) {
            self.end_loop(&loop_of_target, command);
        }
    }

    /// Its targets, in order of their addresses.
    pub fn active(&self) -> Vec<Arc<TargetLoop>> {
        self.state.lock().active.values().map(|active| active.target.clone()).collect()
    }

    /// What relabelling dropped.
    pub fn dropped(&self) -> Dropped {
        self.state.lock().dropped.clone()
    }

    /// Why targets could not be looked for, or why the job does not run.
    pub fn errors(&self) -> Vec<String> {
        let state = self.state.lock();
        let all: BTreeSet<&String> = self.config.disabled.iter().chain(state.errors.iter().flatten()).collect();
        all.into_iter().cloned().collect()
    }
}

/// Takes the entries out whose keys satisfy a condition.
fn extract<V>(map: &mut BTreeMap<String, V>, is_out: impl Fn(&str) -> bool) -> BTreeMap<String, V> {
    let (out, stays) = std::mem::take(map).into_iter().partition(|(key, _)| is_out(key));
    *map = stays;
    out
}
