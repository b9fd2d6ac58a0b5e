//! Tasks in simulated time, and a network that a test answers for.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::{
    BoxFuture, ClientOptions, HttpClient, HttpError, HttpRequest, HttpResponse, Network, NetworkPlatform, Tasks,
    Transport,
};
use crate::sim::Simulation;

const NS_PER_MS: u64 = 1_000_000;

/// A test's answer to a request.
#[derive(Debug, Clone)]
pub struct SimAnswer {
    /// How long it takes to come; [`u64::MAX`]: it never does.
    pub delay_ms: u64,
    /// Status, headers and body, or why there is no response.
    pub result: Result<SimResponse, HttpError>,
}

/// A response in a simulation.
#[derive(Debug, Clone, Default)]
pub struct SimResponse {
    /// `200`, ….
    pub status: u16,
    /// All headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The connection breaks after the body, before its end is known.
    pub is_cut: bool,
}

impl SimResponse {
    /// A response of status 200.
    pub fn ok(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status: 200, headers, body: body.into(), is_cut: false }
    }
}

type Handler = dyn Fn(&HttpRequest) -> SimAnswer + Send + Sync;

/// A simulated machine with tasks and a network.
#[derive(Clone)]
pub struct SimNetwork {
    simulation: Simulation,
    state: Arc<Mutex<State>>,
    handler: Arc<Handler>,
}

#[derive(Default)]
struct State {
    /// Tasks that can go on, in order.
    ready: VecDeque<u64>,
    tasks: BTreeMap<u64, BoxFuture<'static, ()>>,
    next_task: u64,
    /// Timers by the time at which they end, then in order of their making.
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
}

struct TaskWaker {
    task: u64,
    state: Arc<Mutex<State>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        locked(&self.state).ready.push_back(self.task);
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimNetwork {
    /// The network of a machine; the handler is asked when a request is sent.
    pub fn new(simulation: &Simulation, handler: impl Fn(&HttpRequest) -> SimAnswer + Send + Sync + 'static) -> Self {
        Self { simulation: simulation.clone(), state: Arc::default(), handler: Arc::new(handler) }
    }

    /// The outside world as a program sees it.
    pub fn platform(&self) -> NetworkPlatform {
        NetworkPlatform {
            platform: self.simulation.platform(),
            network: Arc::new(self.clone()),
            tasks: Arc::new(self.clone()),
        }
    }

    /// Lets so much time pass: tasks go on at the times at which their timers end.
    pub fn run_ms(&self, duration_ms: u64) {
        let clock = self.simulation.platform().clock;
        let end_ns = clock.monotonic_ns() + duration_ms * NS_PER_MS;
        loop {
            self.run_ready();
            let mut state = locked(&self.state);
            let next = state.timers.first_key_value().map(|(key, _)| *key).filter(|(at_ns, _)| *at_ns <= end_ns);
            let now_ns = clock.monotonic_ns();
            let Some(key) = next else {
                drop(state);
                self.simulation.advance_ns(end_ns.saturating_sub(now_ns) as i64);
                return;
            };
            let waker = state.timers.remove(&key);
            drop(state);
            self.simulation.advance_ns(key.0.saturating_sub(now_ns) as i64);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn run_ready(&self) {
        loop {
            let mut state = locked(&self.state);
            let Some(number) = state.ready.pop_front() else { return };
            let Some(mut task) = state.tasks.remove(&number) else { continue };
            drop(state);
            let waker = Waker::from(Arc::new(TaskWaker { task: number, state: self.state.clone() }));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                locked(&self.state).tasks.insert(number, task);
            }
        }
    }

    fn sleep(&self, duration_ms: u64) -> Sleep {
        let now_ns = self.simulation.platform().clock.monotonic_ns();
        let end_ns = now_ns.saturating_add(duration_ms.saturating_mul(NS_PER_MS));
        Sleep { network: self.clone(), end_ns, timer: None }
    }
}

/// Resolves at a time. Its timer goes with it.
struct Sleep {
    network: SimNetwork,
    end_ns: u64,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.network.simulation.platform().clock.monotonic_ns() >= self.end_ns {
            return Poll::Ready(());
        }
        let mut state = locked(&self.network.state);
        let timer = self.timer.unwrap_or(state.next_timer);
        state.next_timer += u64::from(self.timer.is_none());
        state.timers.insert((self.end_ns, timer), context.waker().clone());
        drop(state);
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            locked(&self.network.state).timers.remove(&(self.end_ns, timer));
        }
    }
}

impl Tasks for SimNetwork {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut state = locked(&self.state);
        let number = state.next_task;
        state.next_task += 1;
        state.tasks.insert(number, task);
        state.ready.push_back(number);
    }

    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        work();
        Box::pin(std::future::ready(()))
    }

    fn sleep_ms(&self, duration_ms: u64) -> BoxFuture<'static, ()> {
        Box::pin(self.sleep(duration_ms))
    }
}

impl Network for SimNetwork {
    fn client(&self, _: &ClientOptions) -> Result<Arc<dyn HttpClient>, String> {
        Ok(Arc::new(self.clone()))
    }

    fn exchange(&self, to: SocketAddr, _: Transport, _: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, HttpError>> {
        Box::pin(std::future::ready(Err(HttpError::Failed(format!("{to}: nothing answers in this simulation")))))
    }

    /// The handler gets each as a request `UDP udp://host:port`; what it answers is thrown away.
    fn send_datagrams(&self, to: String, datagrams: Vec<Vec<u8>>) -> BoxFuture<'static, Result<(), HttpError>> {
        for body in datagrams {
            let url = format!("udp://{to}");
            (self.handler)(&HttpRequest { method: "UDP", url, headers: Vec::new(), body });
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A body that ends in a broken connection.
struct CutBody(Option<Vec<u8>>);

impl super::HttpBody for CutBody {
    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, HttpError>> {
        let chunk = match self.0.take() {
            Some(chunk) => Ok(Some(chunk)),
            None => Err(HttpError::Failed("the connection was closed before the end of the body".to_owned())),
        };
        Box::pin(std::future::ready(chunk))
    }
}

impl HttpClient for SimNetwork {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> {
        let answer = (self.handler)(&request);
        let sleep = self.sleep(answer.delay_ms);
        Box::pin(async move {
            sleep.await;
            let SimResponse { status, headers, body, is_cut } = answer.result?;
            let body: Box<dyn super::HttpBody> =
                if is_cut { Box::new(CutBody(Some(body))) } else { Box::new(Some(body)) };
            Ok(HttpResponse { status, headers, body })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_go_on_in_order_of_time() {
        let simulation = Simulation::new(1);
        let network = SimNetwork::new(&simulation, |request| SimAnswer {
            delay_ms: request.url.parse().unwrap(),
            result: Ok(SimResponse::ok("text/plain", "x")),
        });
        let platform = network.platform();
        let log: Arc<Mutex<Vec<(u64, &str)>>> = Arc::default();
        let start_ns = platform.platform.clock.monotonic_ns();
        for (name, wait_ms, answer) in [("a", 50, "10"), ("b", 20, "15"), ("c", 20, "100")] {
            let (platform, log) = (platform.clone(), log.clone());
            let client = platform.network.client(&ClientOptions::default()).unwrap();
            network.spawn(Box::pin(async move {
                platform.tasks.sleep_ms(wait_ms).await;
                let mut response = client.send(HttpRequest::get(answer)).await.unwrap();
                assert_eq!(response.read_body(1).await.unwrap(), b"x");
                let passed_ms = (platform.platform.clock.monotonic_ns() - start_ns) / NS_PER_MS;
                log.lock().unwrap().push((passed_ms, name));
            }));
        }
        network.run_ms(100);
        assert_eq!(*log.lock().unwrap(), [(35, "b"), (60, "a")]);
        network.run_ms(20);
        assert_eq!(*log.lock().unwrap(), [(35, "b"), (60, "a"), (120, "c")]);
    }
}
