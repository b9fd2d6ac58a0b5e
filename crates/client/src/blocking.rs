//! The client for programs without a runtime of their own: the asynchronous one, driven by the calling thread.

use std::future::Future;

use model::{Field, Labels};
use tokio::runtime::{Builder, Runtime};

use crate::{ClientError, Exception, Options, Outgoing, Registered, asynchronous};

/// A client whose calls block. Not shared: each thread that sends has its own. Not for threads that run asynchronous work:
/// they have [`asynchronous::Client`], and tokio ends a program that blocks there.
pub struct Client {
    runtime: Runtime,
    inner: asynchronous::Client,
}

impl Client {
    /// As [`asynchronous::Client::connect`].
    pub fn connect(options: Options) -> Result<Self, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Unavailable(format!("cannot watch sockets: {error}")))?;
        let inner = runtime.block_on(asynchronous::Client::connect(options))?;
        Ok(Self { runtime, inner })
    }

    /// As [`asynchronous::Client::register_series`].
    pub fn register_series(&mut self, database: &str, series: &[(&str, Labels)]) -> Result<Vec<u64>, ClientError> {
        run(&self.runtime, self.inner.register_series(database, series))
    }

    /// As [`asynchronous::Client::register_groups`].
    pub fn register_groups(
        &mut self,
        database: &str,
        measurement: &str,
        groups: &[Labels],
        members: &[(Field, Labels)],
    ) -> Result<Registered, ClientError> {
        run(&self.runtime, self.inner.register_groups(database, measurement, groups, members))
    }

    /// As [`asynchronous::Client::send`].
    pub fn send(&mut self, blocks: &[Outgoing<'_>]) -> Result<u64, ClientError> {
        run(&self.runtime, self.inner.send(blocks))
    }

    /// As [`asynchronous::Client::flush`].
    pub fn flush(&mut self) -> Result<Vec<Exception>, ClientError> {
        run(&self.runtime, self.inner.flush())
    }

    /// As [`asynchronous::Client::take_exceptions`].
    pub fn take_exceptions(&mut self) -> Vec<Exception> {
        self.inner.take_exceptions()
    }
}

fn run<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(work)
}
