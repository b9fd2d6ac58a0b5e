//! A table as DataFusion sees it: its scans are plans.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures_util::{TryStreamExt, stream};
use model::ValueType;
use query::arrow::{ArrowType, ColumnSource, FrameBatches, RecordBatch, SchemaRef, TableColumn, schema};
use query::plan::{Plan, Scan, TableColumns};
use query::{Budget, Frame, QueryError, TableSchema};
use tokio::sync::oneshot;

use crate::filter::narrow;

/// Rows of frames that become batches at once.
const ROWS_AT_ONCE: usize = query::arrow::BATCH_ROWS_MAX;

/// A scan that is to be run where the store is, and where its frames go.
pub(crate) struct ScanRequest {
    pub(crate) plan: Plan,
    pub(crate) reply: oneshot::Sender<Result<Vec<Frame>, QueryError>>,
}

/// A table's columns, and who runs its scans.
#[derive(Debug)]
pub(crate) struct Table {
    name: String,
    columns: Vec<TableColumn>,
    schema: SchemaRef,
    requests: Sender<ScanRequest>,
    budget: Arc<Budget>,
}

/// One scan of a table.
#[derive(Debug)]
struct TableScan {
    plan: Plan,
    columns: Vec<TableColumn>,
    schema: SchemaRef,
    requests: Sender<ScanRequest>,
    budget: Arc<Budget>,
}

fn schema_of(columns: &[TableColumn]) -> SchemaRef {
    schema(columns.iter().map(|column| (column.name.as_str(), column.arrow_type)))
}

impl Table {
    pub(crate) fn new(
        table: &TableSchema,
        time_name: &str,
        requests: Sender<ScanRequest>,
        budget: Arc<Budget>,
    ) -> Self {
        let column = |name: &str, arrow_type, source| TableColumn { name: name.to_owned(), arrow_type, source };
        let layout = table.layout.as_deref();
        let time_name = layout.and_then(|layout| layout.time_name.as_deref()).unwrap_or(time_name);
        let mut columns = vec![column(time_name, ArrowType::Time, ColumnSource::Time)];
        let tags = table.tags.iter().map(|tag| column(tag, ArrowType::Text, ColumnSource::Label(tag.clone())));
        columns.extend(tags);
        let fields = table.fields.iter();
        columns.extend(fields.map(|(name, kind)| column(name, arrow_type(*kind), ColumnSource::Column(name.clone()))));
        // A name means one column here: the time goes before a tag, a tag before a field.
        let mut known = std::collections::HashSet::new();
        columns.retain(|column| known.insert(column.name.clone()));
        // Those that were declared stand as they were, and others after them; a time that was not is before all.
        let declared = layout.map(|layout| layout.columns.as_slice()).unwrap_or_default();
        columns.sort_by_key(|column| match declared.iter().position(|name| *name == column.name) {
            Some(place) => place + 1,
            None if matches!(column.source, ColumnSource::Time) => 0,
            None => usize::MAX,
        });
        let schema = schema_of(&columns);
        Self { name: table.name.clone(), columns, schema, requests, budget }
    }

    /// The scan that reads some columns of the rows for which conditions hold.
    fn plan(&self, columns: &[TableColumn], conditions: &[Expr], limit: Option<usize>) -> Plan {
        let field = |column: &TableColumn| match &column.source {
            ColumnSource::Column(name) => Some(name.clone()),
            _ => None,
        };
        let mut fields: Vec<String> = columns.iter().filter_map(field).collect();
        if fields.is_empty() {
            // None would be all: rows are told by any.
            fields.extend(self.columns.iter().find_map(field));
        }
        let table = TableColumns { name: self.name.clone(), fields, every_row: true };
        let mut scan = Scan { table: Some(table), ..Scan::of_table(self.name.as_str()) };
        let is_exact = conditions.iter().map(|condition| narrow(&mut scan, condition, &self.columns)).all(|done| done);
        match limit.filter(|_| is_exact) {
            Some(rows) => Plan::Limit { input: Box::new(Plan::Scan(scan)), rows, skip: 0 },
            None => Plan::Scan(scan),
        }
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        let mut scan = Scan::of_table(self.name.as_str());
        let support = |condition: &&Expr| {
            if narrow(&mut scan, condition, &self.columns) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let columns: Vec<TableColumn> = match projection {
            Some(places) => places.iter().filter_map(|place| self.columns.get(*place)).cloned().collect(),
            None => self.columns.clone(),
        };
        let schema = schema_of(&columns);
        let plan = self.plan(&columns, filters, limit);
        let (requests, budget) = (self.requests.clone(), self.budget.clone());
        let scan = TableScan { plan, columns, schema: schema.clone(), requests, budget };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(scan)], None, None, false, limit)?))
    }
}

impl PartitionStream for TableScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (reply, frames) = oneshot::channel();
        let request = ScanRequest { plan: self.plan.clone(), reply };
        // Where no thread is left to run it, its stream says that it was stopped.
        let _ = self.requests.send(request);
        let (columns, budget) = (self.columns.clone(), self.budget.clone());
        let batches = stream::once(async move {
            let frames = frames.await.map_err(|_| failed(QueryError::Stopped(query::Stop::Cancelled)))?;
            let frames = frames.map_err(failed)?;
            let ready = Vec::new().into_iter();
            Ok::<_, DataFusionError>(stream::iter(Batches { frames: frames.into_iter(), ready, columns, budget }))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches.try_flatten()))
    }
}

/// Frames that become batches a few at a time, and are given back to the budget then.
struct Batches {
    frames: std::vec::IntoIter<Frame>,
    /// Of those that were frames last.
    ready: std::vec::IntoIter<RecordBatch>,
    columns: Vec<TableColumn>,
    budget: Arc<Budget>,
}

impl Batches {
    /// Makes batches of the next frames; `false` if there are none.
    fn make(&mut self) -> Result<bool, QueryError> {
        self.budget.check()?;
        let (mut some, mut rows) = (Vec::new(), 0);
        while rows < ROWS_AT_ONCE
            && let Some(frame) = self.frames.next()
        {
            rows += frame.rows();
            some.push(frame);
        }
        let made = FrameBatches::of_columns(&some, &self.columns).collect::<Result<Vec<RecordBatch>, QueryError>>();
        some.iter().for_each(|frame| self.budget.give_back(samples(frame)));
        self.ready = made?.into_iter();
        Ok(!some.is_empty())
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.next() {
                return Some(Ok(batch));
            }
            match self.make() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(failed(error))),
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        let left = self.frames.as_slice().iter().map(samples).sum();
        self.budget.give_back(left);
    }
}

/// The samples that a frame takes out of the budget: one for each cell.
fn samples(frame: &Frame) -> usize {
    frame.rows() * frame.columns.len().max(1)
}

fn failed(error: QueryError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

const fn arrow_type(kind: ValueType) -> ArrowType {
    match kind {
        ValueType::F64 => ArrowType::F64,
        ValueType::I64 => ArrowType::I64,
        ValueType::U64 => ArrowType::U64,
        ValueType::Bool => ArrowType::Bool,
        ValueType::String | ValueType::Histogram => ArrowType::Text,
    }
}
