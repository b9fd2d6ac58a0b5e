//! COPY over Postgres's protocol: rows to a client, and rows from one.

use std::fmt::Debug;
use std::sync::PoisonError;

use async_trait::async_trait;
use futures_util::{Sink, Stream, stream};
use pgwire::api::ClientInfo;
use pgwire::api::copy::CopyHandler;
use pgwire::api::query::send_execution_response;
use pgwire::api::results::{CopyResponse, Response, Tag};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail};
use sql::{CopyIn, CopyOut, Session};

use super::postgres::{Connection, error_of, failed};

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
pub(super) struct Copying {
    copy: CopyIn,
    session: Session,
    bytes: Vec<u8>,
    /// More came than a body may have: what came is let go, and the end is an error.
    is_too_large: bool,
}

impl Copying {
    pub(super) fn new(copy: CopyIn, session: Session) -> Self {
        Self { copy, session, bytes: Vec::new(), is_too_large: false }
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
        let mut copying = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(copying) = copying.as_mut() else { return Ok(()) };
        copying.is_too_large |= copying.bytes.len() + data.data.len() > self.state.settings.body_bytes_max;
        if copying.is_too_large {
            copying.bytes = Vec::new();
        } else {
            copying.bytes.extend_from_slice(&data.data);
        }
        Ok(())
    }

    async fn on_copy_done<C>(&self, client: &mut C, _: CopyDone) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let copying = self.copying.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(copying) = copying else { return Err(failed("08P01", "no COPY is under way".to_owned())) };
        if copying.is_too_large {
            let most = self.state.settings.body_bytes_max;
            return Err(failed(
                "54000",
                format!("COPY takes at most {most} bytes at once (body_bytes_max): send the rows in parts"),
            ));
        }
        let rows = self.take_rows(copying).await?;
        send_execution_response(client, Tag::new("COPY").with_rows(rows)).await
    }

    async fn on_copy_fail<C>(&self, _: &mut C, fail: CopyFail) -> PgWireError
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed("57014", format!("COPY from stdin failed: {}", fail.message))
    }
}

impl Connection {
    /// Writes what came; how many rows.
    async fn take_rows(&self, copying: Copying) -> PgWireResult<usize> {
        let Copying { copy, session, bytes, .. } = copying;
        let text = format!("COPY {} FROM STDIN", copy.table);
        let written = super::watch(&self.state, text, (session, self.remote), move |state, session, budget| {
            state.db.copy_in(&copy, bytes, session, budget)
        });
        let written = written.await.map_err(|error| failed("57014", error.message))?;
        written.map_err(|error| error_of(&error))
    }
}
