//! `POST /api/v1/read`: Prometheus's remote read.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ingest::encoding::Encoding;
use ingest::remote_read::{self, ReadRequest, ReadSeries, ResponseType};
use ingest::remote_write::compress;
use query::{Budget, QueryError, Series};

use crate::error::ApiError;
use crate::http::body::{Form, body_error, unpack_as};
use crate::http::query::{QueryJob, run_query};
use crate::http::request::extract_write;
use crate::state::State;

const CHUNKS: &str = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";

pub(crate) async fn read(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let mut parts = extract_write(&state, request).await?;
    let database = parts.parameters.database(&parts.headers);
    let packed = std::mem::replace(&mut parts.body, state.spares.take());
    let mut share = std::mem::replace(&mut parts.share, state.bodies.share(&parts.tenant));
    let parse = move |state: &State| {
        let body = unpack_as(state, Encoding::Snappy, packed, (&mut share, Form::Text))?;
        remote_read::parse(&body).map_err(|error| body_error(&error))
    };
    let asked = state.work_of(&parts.tenant, parse).await??;
    if let Some(query) = asked.queries.iter().find(|query| query.end_ms < query.start_ms) {
        return Err(ApiError::bad_data(format!(
            "a query ends at {} ms, before it starts at {} ms",
            query.end_ms, query.start_ms
        )));
    }
    let budget = state.budget_of(&database, &parts.caller.scope);
    let running = QueryJob::new(&state, "remote_read", &description(&asked), &budget, &parts)?;
    let (_, answer) = run_query(&state, running, move |state| {
        let answer = answer(state, &database, &asked, &budget)?;
        Ok((String::new(), answer))
    })
    .await?;
    Ok(match answer {
        Answer::Samples(body) => {
            ([(header::CONTENT_TYPE, "application/x-protobuf"), (header::CONTENT_ENCODING, "snappy")], body)
                .into_response()
        }
        Answer::Chunks(body) => ([(header::CONTENT_TYPE, CHUNKS)], body).into_response(),
    })
}

enum Answer {
    Samples(Vec<u8>),
    Chunks(Vec<u8>),
}

/// The matchers of all queries, for the list of those that run.
fn description(asked: &ReadRequest) -> String {
    let queries = asked.queries.iter().map(|query| {
        let matchers: Vec<String> = query.matchers.iter().map(ToString::to_string).collect();
        format!("{{{}}}", matchers.join(","))
    });
    queries.collect::<Vec<_>>().join(" ")
}

/// In the form that the client likes best.
fn answer(state: &State, database: &str, asked: &ReadRequest, budget: &Budget) -> Result<Answer, QueryError> {
    let (mut results, mut frames) = (Vec::new(), Vec::new());
    let as_chunks = asked.accepted.first() == Some(&ResponseType::StreamedChunks);
    for (number, query) in asked.queries.iter().enumerate() {
        let found = state.db.samples_with_views(database, &query.matchers, (query.start_ms, query.end_ms), budget)?;
        // What is written stays until the answer is sent: at most as many samples' bytes.
        budget.take(found.iter().map(Series::samples).sum::<usize>())?;
        let mut result = Vec::new();
        for series in &found {
            budget.check()?;
            with_labels(series, |series| {
                if as_chunks {
                    remote_read::push_frames(&mut frames, number, series);
                } else {
                    remote_read::push_samples(&mut result, series);
                }
            });
        }
        results.push(result);
        budget.give_back(found.iter().map(Series::samples).sum());
    }
    if as_chunks {
        return Ok(Answer::Chunks(frames));
    }
    Ok(Answer::Samples(compress(&remote_read::read_response(&results))))
}

fn with_labels(series: &Series, push: impl FnOnce(&ReadSeries<'_>)) {
    let labels: Vec<(&str, &str)> = series.labels.iter().collect();
    let Series { timestamps_ms, values, histograms, .. } = series;
    push(&ReadSeries { labels: &labels, timestamps_ms, values, histograms });
}
