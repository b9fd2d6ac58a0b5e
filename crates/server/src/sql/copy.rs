//! COPY over Postgres's protocol: rows to a client, and rows from one.

use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::{Sink, Stream, stream};
use pgwire::api::ClientInfo;
use pgwire::api::copy::CopyHandler;
use pgwire::api::query::send_execution_response;
use pgwire::api::results::{CopyResponse, Response, Tag};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail};
use sql::{ClientContext, CopyIn, CopyOut};

use super::errors::{error_of, failed};
use super::postgres::Connection;
use crate::http::body::{Form, Share, reserve_rows};

/// How the protocol calls rows that are text.
const TEXT: i8 = 0;
/// And others.
const BINARY: i8 = 1;

/// A response of pieces. The form is said afterwards: made as one of binary rows it would put their end behind a file.
fn response_of<S>(is_binary: bool, columns: usize, pieces: S) -> CopyResponse
where
    S: Stream<Item = PgWireResult<CopyData>> + Send + 'static,
{
    let mut response = CopyResponse::new(TEXT, columns, pieces);
    response.format = if is_binary { BINARY } else { TEXT };
    response
}

/// Rows of a COPY … FROM STDIN as they arrive.
#[derive(Debug)]
pub(super) struct Copying {
    copy: CopyIn,
    session: ClientContext,
    bytes: Vec<u8>,
    /// What the rows may hold of all requests' memory.
    share: Share,
    /// Why the rows are not taken: what came is let go, and the end is an error.
    refusal: Option<(&'static str, String)>,
}

impl Copying {
    pub(super) fn new(copy: CopyIn, session: ClientContext, share: Share) -> Self {
        Self { copy, session, bytes: Vec::new(), share, refusal: None }
    }

    /// Keeps what came, as far as it may be kept.
    fn push(&mut self, data: &[u8], bytes_max: usize) -> Result<(), (&'static str, String)> {
        let needed = self.bytes.len() + data.len();
        if needed > bytes_max {
            let message =
                format!("COPY takes at most {bytes_max} bytes at once (body_bytes_max): send the rows in parts");
            return Err(("54000", message));
        }
        if needed > self.bytes.capacity() {
            // Doubled, so that it is not copied for each message.
            let grown = needed.max(2 * self.bytes.capacity()).min(bytes_max);
            self.share.grow(grown - self.bytes.capacity()).map_err(|error| ("53200", error.message))?;
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// What tells a client to send.
    pub(super) fn response(&self) -> Response {
        Response::CopyIn(response_of(self.copy.is_binary(), self.copy.columns.len(), stream::empty()))
    }
}

/// Rows on their way to a client.
pub(super) fn response(rows: CopyOut) -> Response {
    let messages = rows.messages.into_iter().map(|message| Ok(CopyData::new(message.into())));
    Response::CopyOut(response_of(rows.is_binary, rows.columns, stream::iter(messages)))
}

#[async_trait]
impl CopyHandler for Connection {
    async fn on_copy_data<C>(&self, _: &mut C, data: CopyData) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let mut session = self.session();
        let Some(copying) = session.copying.as_mut() else { return Ok(()) };
        if copying.refusal.is_none()
            && let Err(refusal) = copying.push(&data.data, self.state.settings.body_bytes_max)
        {
            copying.refusal = Some(refusal);
            copying.bytes = Vec::new();
            copying.share = self.share();
        }
        Ok(())
    }

    async fn on_copy_done<C>(&self, client: &mut C, _: CopyDone) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let copying = self.session().copying.take();
        let Some(copying) = copying else { return Err(failed("08P01", "no COPY is under way".to_owned())) };
        if let Some((code, message)) = copying.refusal {
            return Err(failed(code, message));
        }
        let rows = self.take_rows(copying).await?;
        self.tell(client).await?;
        send_execution_response(client, Tag::new("COPY").with_rows(rows)).await
    }

    async fn on_copy_fail<C>(&self, _: &mut C, fail: CopyFail) -> PgWireError
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.session().copying = None;
        failed("57014", format!("COPY from stdin failed: {}", fail.message))
    }
}

impl Connection {
    /// Writes what came; how many rows.
    async fn take_rows(&self, copying: Copying) -> PgWireResult<usize> {
        self.count_statement()?;
        let Copying { copy, session, bytes, mut share, .. } = copying;
        let notices = session.notices.clone();
        let text = format!("COPY {} FROM STDIN", copy.table);
        // Rows are made of them, which take more than their text.
        let reserved =
            self.state.work_unbounded(move |_| reserve_rows(&mut share, Form::Text, &bytes).map(|()| (share, bytes)));
        let reserved = reserved.await.and_then(|reserved| reserved);
        let (share, bytes) = reserved.map_err(|error| failed("53200", error.message))?;
        let written = super::watch(&self.state, text, (session, self.caller()), move |state, session, budget| {
            let written = state.db.copy_in(&copy, bytes, session, budget);
            drop(share);
            written
        });
        let written = written.await.map_err(|error| failed("57014", error.message))?;
        self.take_notices(&notices);
        written.map(|outcome| outcome.answer).map_err(|error| error_of(&error))
    }
}
