//! Why there is no graph.

use axum::http::StatusCode;
use plot::PlotError;
use query::QueryError;
use rrd::RrdError;
use sql::SqlError;

use crate::error::ApiError;

/// Why there is no graph.
pub(super) enum GraphError {
    /// The query failed.
    Query(QueryError),
    /// The request cannot be drawn, or does not belong here.
    Refused(ApiError),
}

impl From<QueryError> for GraphError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl From<ApiError> for GraphError {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl From<PlotError> for GraphError {
    fn from(error: PlotError) -> Self {
        let message = error.to_string();
        Self::Refused(match error {
            PlotError::Invalid(_) => ApiError::bad_data(message),
            PlotError::TooLarge { .. } => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message),
            PlotError::Encoding(_) => ApiError::internal(message),
        })
    }
}

impl From<RrdError> for GraphError {
    fn from(error: RrdError) -> Self {
        match error {
            RrdError::Query(error) => Self::Query(error),
            other => Self::Refused(other.into()),
        }
    }
}

impl From<SqlError> for GraphError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Query(error) => Self::Query(error),
            other => Self::Refused(ApiError::invalid_parameter("query", other)),
        }
    }
}
