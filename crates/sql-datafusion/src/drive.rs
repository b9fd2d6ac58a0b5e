//! DataFusion on a thread of its own, its scans on the caller's thread.
//!
//! DataFusion wants tables that outlive everything; the store is borrowed. So a scan is a message to the thread that may use the store, and its
//! frames come back by another.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use datafusion::common::DataFusionError;
use datafusion::dataframe::DataFrame;
use futures_util::StreamExt;
use query::arrow::{RecordBatch, SchemaRef};
use query::{Budget, Plan, QueryError, Session};
use tokio::sync::oneshot;

use crate::session::{Statement, of_datafusion, schema_of};
use crate::table::ScanRequest;
use crate::{Answer, SqlQuery, SqlQueryError};

/// How often it is looked whether a query was stopped that asks for no scan.
const WATCH_MS: u64 = 20;

/// Runs a query. Its rows stay taken out of the budget.
pub fn run(query: &SqlQuery, session: &dyn Session, budget: &Arc<Budget>) -> Result<Answer, SqlQueryError> {
    let budget_of_rows = budget.clone();
    let (done, plans) = on_a_thread(query, session, budget, |statement| async move {
        let plan = statement.plan().await?;
        let schema = schema_of(&plan);
        let mut stream = DataFrame::new(statement.state, plan).execute_stream().await?;
        let mut batches: Vec<RecordBatch> = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            let samples = batch.num_rows() * batch.num_columns().max(1);
            budget_of_rows.take(samples).map_err(|error| DataFusionError::External(Box::new(error)))?;
            batches.push(batch);
        }
        Ok((schema, batches))
    })?;
    let (schema, batches) = done?;
    Ok(Answer { schema, batches, plans })
}

/// The columns that a query will give, without running it.
pub fn describe(query: &SqlQuery, session: &dyn Session, budget: &Arc<Budget>) -> Result<SchemaRef, SqlQueryError> {
    let work = |statement: Statement| async move { Ok(schema_of(&statement.plan().await?)) };
    on_a_thread(query, session, budget, work)?.0
}

/// Drives work of DataFusion, and runs the scans that it asks for; what it gave, and the plans of the scans.
fn on_a_thread<T, F>(
    query: &SqlQuery,
    session: &dyn Session,
    budget: &Arc<Budget>,
    work: impl FnOnce(Statement) -> F + Send + 'static,
) -> Result<(Result<T, SqlQueryError>, Vec<Plan>), SqlQueryError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, DataFusionError>>,
{
    let (requests, scans) = mpsc::channel();
    let statement = Statement::new(query, session, budget, &requests)?;
    let pool = statement.pool.clone();
    let (stop, stopped) = oneshot::channel();
    // Scans are served until the thread has ended: it holds one of the ends by which they are asked for, whatever tables there are.
    let thread = spawn(move || {
        let _asks = requests;
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| DataFusionError::External(Box::new(error)))?;
        runtime.block_on(async {
            tokio::select! {
                done = work(statement) => done,
                _ = stopped => Err(DataFusionError::External(Box::new(QueryError::Stopped(query::Stop::Cancelled)))),
            }
        })
    });
    let thread = thread?;
    let plans = serve(&scans, session, &query.database, stop);
    let done = thread.join().map_err(|_| {
        SqlQueryError::Query(QueryError::Execution("DataFusion gave up on the statement: simplify it".to_owned()))
    })?;
    // Why it was stopped is what the budget says.
    budget.check()?;
    let told = |error: DataFusionError| match (error.find_root(), pool.refused()) {
        (DataFusionError::ResourcesExhausted(_), Some(refused)) => SqlQueryError::Query(refused),
        _ => of_datafusion(&error),
    };
    Ok((done.map_err(told), plans))
}

fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DataFusionError> + Send + 'static,
) -> Result<JoinHandle<Result<T, DataFusionError>>, SqlQueryError> {
    let spawned = std::thread::Builder::new().name("sql-datafusion".to_owned()).spawn(work);
    spawned.map_err(|error| {
        SqlQueryError::Query(QueryError::Execution(format!("no thread could be started for the statement: {error}")))
    })
}

/// Runs scans until the thread that requests them has ended; returns their plans.
fn serve(scans: &Receiver<ScanRequest>, session: &dyn Session, database: &str, stop: oneshot::Sender<()>) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut stop = Some(stop);
    loop {
        match scans.recv_timeout(Duration::from_millis(WATCH_MS)) {
            Ok(ScanRequest { plan, reply }) => {
                let outcome = session.run(database, &plan);
                let frames = outcome.and_then(|outcome| {
                    // Its aggregates take every row for itself.
                    query::note_folds(&outcome.frames, session.budget())?;
                    Ok(outcome.frames)
                });
                plans.push(plan);
                // The requesting thread may have been stopped meanwhile.
                let _ = reply.send(frames);
            }
            Err(RecvTimeoutError::Timeout) => {
                if session.budget().check().is_err()
                    && let Some(stop) = stop.take()
                {
                    let _ = stop.send(());
                }
            }
            Err(RecvTimeoutError::Disconnected) => return plans,
        }
    }
}
