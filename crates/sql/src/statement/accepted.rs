//! Statements for things that come by themselves here, or that belong to a database: accepted, and the client is told.

use query::{SqlType, Value};
use sqlparser::ast::{
    AlterTableOperation, Expr, Function, ObjectType, Query, SelectItem, SetExpr, Statement, TableFactor,
};

use super::Answer;
use crate::relation::{Column, Relation};

const PARTITIONS: &str = "tables are partitioned by time by themselves";
const COMPRESSION: &str = "data is compressed by itself";
const CHUNKS: &str = "rows go by DELETE FROM … WHERE time < …, or by themselves: ALTER TABLE … SET TTL 30 DAYS";

/// TimescaleDB's functions that manage tables, and what the client is told.
const MANAGING: [(&str, &str); 18] = [
    ("create_hypertable", PARTITIONS),
    ("create_distributed_hypertable", PARTITIONS),
    ("set_chunk_time_interval", PARTITIONS),
    ("set_integer_now_func", PARTITIONS),
    ("add_dimension", PARTITIONS),
    ("add_reorder_policy", PARTITIONS),
    ("remove_reorder_policy", PARTITIONS),
    ("reorder_chunk", PARTITIONS),
    ("add_compression_policy", COMPRESSION),
    ("remove_compression_policy", COMPRESSION),
    ("compress_chunk", COMPRESSION),
    ("decompress_chunk", COMPRESSION),
    ("add_columnstore_policy", COMPRESSION),
    ("remove_columnstore_policy", COMPRESSION),
    ("convert_to_columnstore", COMPRESSION),
    ("convert_to_rowstore", COMPRESSION),
    ("enable_chunk_skipping", PARTITIONS),
    ("drop_chunks", CHUNKS),
];

/// The answer to a statement that is accepted and does nothing, and what the client is told.
pub(super) fn accepted(statement: &Statement) -> Option<(Answer, String)> {
    let done = |tag: &str, notice: &str| Some((Answer::Done(tag.to_owned()), format!("{tag} does nothing: {notice}")));
    match statement {
        Statement::Query(query) => managed(&called(query)?),
        Statement::Call(call) => {
            let (_, notice) = managed(&function_name(call))?;
            Some((Answer::Done("CALL".to_owned()), notice))
        }
        Statement::CreateIndex(_) => done("CREATE INDEX", "tables are indexed by their time and tags by themselves"),
        Statement::Drop { object_type: ObjectType::Index, .. } => {
            done("DROP INDEX", "tables are indexed by their time and tags by themselves")
        }
        Statement::CreateExtension(_) => done("CREATE EXTENSION", "there are no extensions"),
        Statement::Analyze(_) => done("ANALYZE", "statistics are kept by themselves"),
        Statement::Vacuum(_) => done("VACUUM", "space is freed by itself"),
        Statement::AlterTable(alter) if alter.operations.iter().all(is_compression) && !alter.operations.is_empty() => {
            done("ALTER TABLE", COMPRESSION)
        }
        _ => None,
    }
}

fn managed(name: &str) -> Option<(Answer, String)> {
    let (_, notice) = MANAGING.iter().find(|(known, _)| *known == name)?;
    let relation = Relation { columns: vec![Column::new(name, SqlType::Text)], rows: vec![vec![Value::Null]] };
    Some((Answer::Rows(relation), format!("{name} does nothing: {notice}")))
}

/// `SELECT name(…)` or `SELECT * FROM name(…)`
fn called(query: &Query) -> Option<String> {
    let SetExpr::Select(select) = &*query.body else { return None };
    match (select.projection.as_slice(), select.from.as_slice()) {
        (
            [
                SelectItem::UnnamedExpr(Expr::Function(call))
                | SelectItem::ExprWithAlias { expr: Expr::Function(call), .. },
            ],
            [],
        ) => Some(function_name(call)),
        ([_], [table]) => match &table.relation {
            TableFactor::Table { name, args: Some(_), .. } => {
                name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.to_lowercase())
            }
            _ => None,
        },
        _ => None,
    }
}

fn function_name(call: &Function) -> String {
    call.name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.to_lowercase()).unwrap_or_default()
}

/// `SET (timescaledb.compress, …)`
fn is_compression(operation: &AlterTableOperation) -> bool {
    let text = operation.to_string().to_lowercase();
    text.starts_with("set (timescaledb") || text.starts_with("set (tsdb")
}
