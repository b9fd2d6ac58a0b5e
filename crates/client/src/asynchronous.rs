//! The client on tokio.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use model::{Field, Labels};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::control::{self, Registered, Request};
use wire::data::{self, Exception, Outgoing};
use wire::frame::{self, HEADER_BYTES, MessageBuffer, Plane, preface};

use crate::cache::Cache;
use crate::session::Session;
use crate::{ClientError, Options};

/// Bytes that an answer may have.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long to wait before a server that is not there is tried again.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A client on tokio. Not shared: each thread that sends has its own.
pub struct Client {
    options: Options,
    session: Session,
    cache: Cache,
    control: Option<Connection>,
    data: Option<Connection>,
    /// Connections that ended since something was acknowledged.
    setback: Option<Setback>,
}

/// How long connections were waited for that ended before anything was acknowledged, and how long the next one is.
#[derive(Clone, Copy)]
struct Setback {
    waited: Duration,
    pause: Duration,
}

/// A socket, bare or by TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Stream for T {}

struct Connection {
    stream: Box<dyn Stream>,
    buffer: MessageBuffer,
    patience: Duration,
}

/// Waits for a socket, but no longer than the timeout.
async fn in_time<T>(patience: Duration, work: impl Future<Output = std::io::Result<T>>) -> Result<T, ClientError> {
    match tokio::time::timeout(patience, work).await {
        Ok(done) => done.map_err(|error| ClientError::Unavailable(error.to_string())),
        Err(_) => Err(ClientError::Unavailable("the server takes too long".to_owned())),
    }
}

/// Waits for the end of a handshake. A certificate that is not trusted does not become so by trying again.
async fn shake_hands<T>(
    patience: Duration,
    handshake: impl Future<Output = std::io::Result<T>>,
) -> Result<T, ClientError> {
    match tokio::time::timeout(patience, handshake).await {
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(ClientError::Invalid(format!("TLS: {error}")))
        }
        Ok(done) => done.map_err(|error| ClientError::Unavailable(format!("TLS: {error}"))),
        Err(_) => Err(ClientError::Unavailable("the server takes too long".to_owned())),
    }
}

impl Connection {
    async fn open(address: SocketAddr, options: &Options) -> Result<Self, ClientError> {
        let patience = Duration::from_millis(options.timeout_ms.max(1));
        let stream = in_time(patience, TcpStream::connect(address)).await?;
        in_time(patience, async { stream.set_nodelay(true) }).await?;
        let stream: Box<dyn Stream> = match &options.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = tls.name(address).map_err(ClientError::Invalid)?;
                let connector = tls.connector().map_err(ClientError::Invalid)?;
                Box::new(shake_hands(patience, connector.connect(name, stream)).await?)
            }
        };
        Ok(Self { stream, buffer: MessageBuffer::default(), patience })
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        in_time(self.patience, sending).await
    }

    async fn receive(&mut self) -> Result<&[u8], ClientError> {
        let mut header = [0; HEADER_BYTES];
        in_time(self.patience, self.stream.read_exact(&mut header)).await?;
        let bytes = frame::message_bytes(header, ANSWER_BYTES_MAX)?;
        in_time(self.patience, self.stream.read_exact(self.buffer.resize(bytes))).await?;
        Ok(self.buffer.bytes())
    }
}

impl Client {
    /// Connects to both planes.
    pub async fn connect(options: Options) -> Result<Self, ClientError> {
        let session = Session::new(&options);
        let cache = Cache::new(&options.token);
        let mut client = Self { options, session, cache, control: None, data: None, setback: None };
        client.reconnect().await?;
        Ok(client)
    }

    /// The tokens of lone series of floats, by metric and labels; asks only for those that it does not know yet.
    pub async fn register_series(
        &mut self,
        database: &str,
        series: &[(&str, Labels)],
    ) -> Result<Vec<u64>, ClientError> {
        if let Some(request) = self.cache.missing(database, series) {
            let registered = self.ask(&request).await?;
            self.cache.learn(&request, &registered);
        }
        let tokens = self.cache.tokens(database, series);
        tokens.ok_or_else(|| ClientError::Invalid("the server did not give a token for each series".to_owned()))
    }

    /// The tokens of groups that share a list of members: a field each, with labels of its own if it has any.
    pub async fn register_groups(
        &mut self,
        database: &str,
        measurement: &str,
        groups: &[Labels],
        members: &[(Field, Labels)],
    ) -> Result<Registered, ClientError> {
        let request = self.cache.groups(database, measurement, groups, members);
        self.ask(&request).await
    }

    /// Sends a batch; its number. Returns as soon as it is under way: [`Client::flush`] waits until it is on disk. Where the
    /// connection breaks, it is made again, and what the server did not apply is sent again.
    pub async fn send(&mut self, blocks: &[Outgoing<'_>]) -> Result<u64, ClientError> {
        let sequence = self.session.push(blocks)?;
        while let Err(error) = self.send_on().await {
            self.recover(error).await?;
        }
        Ok(sequence)
    }

    /// Waits until everything that was sent is on disk; with what the server said of batches that were not simply written.
    pub async fn flush(&mut self) -> Result<Vec<Exception>, ClientError> {
        while !self.session.is_idle() {
            if let Err(error) = self.await_answer().await {
                self.recover(error).await?;
            }
        }
        Ok(self.session.take_exceptions())
    }

    /// The server's reports so far of batches that were not simply written.
    pub fn take_exceptions(&mut self) -> Vec<Exception> {
        self.session.take_exceptions()
    }

    async fn send_on(&mut self) -> Result<(), ClientError> {
        self.send_all().await?;
        while self.session.is_full() {
            self.receive().await?;
            self.send_all().await?;
        }
        Ok(())
    }

    async fn await_answer(&mut self) -> Result<(), ClientError> {
        self.send_all().await?;
        self.receive().await
    }

    async fn send_all(&mut self) -> Result<(), ClientError> {
        let Some(connection) = &mut self.data else {
            return Err(ClientError::Unavailable("not connected".to_owned()));
        };
        while let Some(frame) = self.session.to_send() {
            connection.send(frame).await?;
            self.session.has_sent();
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), ClientError> {
        let Some(connection) = &mut self.data else {
            return Err(ClientError::Unavailable("not connected".to_owned()));
        };
        let answer = data::decode_answer(connection.receive().await?)?;
        self.session.answered(answer)?;
        self.setback = None;
        Ok(())
    }

    /// Connects again after an error, if that can help.
    async fn recover(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.data = None;
        let done = match error {
            ClientError::Unavailable(message) => {
                self.wait_out(message).await?;
                let done = self.reconnect().await;
                if done.is_err() {
                    // That was waited for long enough: a later call begins anew.
                    self.setback = None;
                }
                done
            }
            other => Err(other),
        };
        if matches!(done, Err(ClientError::RegisterAgain(_))) {
            self.cache.forget();
        }
        done
    }

    /// Waits longer each time that a connection ends before anything was acknowledged: a server may take connections and no batches. The first time it
    /// does not wait.
    async fn wait_out(&mut self, message: String) -> Result<(), ClientError> {
        let Some(Setback { waited, pause }) = self.setback else {
            self.setback = Some(Setback { waited: Duration::ZERO, pause: PAUSE_MIN });
            return Ok(());
        };
        if waited + pause > Duration::from_millis(self.options.reconnect_timeout_ms) {
            // A later call begins anew.
            self.setback = None;
            return Err(ClientError::Unavailable(message));
        }
        tokio::time::sleep(pause).await;
        self.setback = Some(Setback { waited: waited + pause, pause: (pause * 2).min(PAUSE_MAX) });
        Ok(())
    }

    /// Tries until the server answers or patience ends.
    async fn reconnect(&mut self) -> Result<(), ClientError> {
        let begun = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            match self.open_data().await {
                Err(ClientError::Unavailable(message)) => {
                    if begun.elapsed() + pause > Duration::from_millis(self.options.reconnect_timeout_ms) {
                        return Err(ClientError::Unavailable(message));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                other => return other,
            }
        }
    }

    async fn open_data(&mut self) -> Result<(), ClientError> {
        let mut connection = Connection::open(self.options.ingest, &self.options).await?;
        connection.send(&self.session.opening()).await?;
        let answer = data::decode_answer(connection.receive().await?)?;
        self.session.answered(answer)?;
        self.data = Some(connection);
        Ok(())
    }

    /// Asks the control plane; once more on a new connection if the old one has gone.
    async fn ask(&mut self, request: &Request) -> Result<Registered, ClientError> {
        if let Some(connection) = self.control.take()
            && let Ok(answer) = self.exchange(connection, request).await
        {
            return self.registered(answer, request);
        }
        let mut connection = Connection::open(self.options.control, &self.options).await?;
        connection.send(&preface(Plane::Control)).await?;
        let answer = self.exchange(connection, request).await?;
        self.registered(answer, request)
    }

    /// Sends a request and waits for the answer, whatever it says; the connection is used again.
    async fn exchange(
        &mut self,
        mut connection: Connection,
        request: &Request,
    ) -> Result<control::Answer, ClientError> {
        let mut bytes = Vec::new();
        control::encode_request(request, &mut bytes)?;
        connection.send(&bytes).await?;
        let answer = control::decode_answer(connection.receive().await?)?;
        self.control = Some(connection);
        Ok(answer)
    }

    /// The tokens of an answer to a request.
    fn registered(&mut self, answer: control::Answer, request: &Request) -> Result<Registered, ClientError> {
        if answer.id != request.id {
            self.control = None;
            let message = answer.registered.err().unwrap_or_else(|| "an answer to something else".to_owned());
            return Err(ClientError::Invalid(message));
        }
        if self.session.incarnation != 0 && self.session.incarnation != answer.incarnation {
            // Another data folder: tokens from the one before are as good as none.
            self.cache.forget();
        }
        answer.registered.map_err(ClientError::Invalid)
    }
}
