//! Results of calls side by side, as rows.

use std::sync::Arc;

use query::{QueryError, Session, Value};

use crate::functions::Point;
use crate::resolve::selection::Resolved;
use crate::select::input::Group;
use crate::select::rows::{Rows, SeriesRows};
use crate::syntax::ast::Fill;
use crate::value::{DataType, InfluxValue};

/// The results of a selection's calls for one series, in the order of the answer.
pub(crate) struct CallResults {
    pub(crate) name: Arc<str>,
    pub(crate) tags: Vec<String>,
    pub(crate) outs: Vec<Vec<Point>>,
}

/// Rows of calls' results side by side, by time.
pub(crate) fn joined(
    session: &dyn Session,
    selection: &Resolved,
    mut result: CallResults,
    group: Option<&Group>,
) -> Result<Option<SeriesRows>, QueryError> {
    result.outs.iter_mut().for_each(|outs| selection.limits.of_rows().apply(outs));
    let mut offsets = vec![0; result.outs.len()];
    let mut current: Vec<Value> = vec![Value::Null; result.outs.len()];
    let mut beside: Vec<Value> = vec![Value::Null; selection.references.len()];
    let mut rows = Vec::new();
    loop {
        let times =
            result.outs.iter().zip(&offsets).filter_map(|(outs, offset)| outs.get(*offset)).map(|out| out.time_ns);
        let Some(time_ns) = (if selection.descending { times.max() } else { times.min() }) else { break };
        let mut origin = None;
        for (((outs, offset), call), current) in
            result.outs.iter().zip(&mut offsets).zip(&selection.calls).zip(&mut current)
        {
            let out = outs.get(*offset).filter(|out| out.time_ns == time_ns);
            if let Some(out) = out {
                *offset += 1;
                origin = out.origin;
            }
            become_next(current, out.map(|out| out.value.clone()), selection.fill, call.data_type);
        }
        // Only a single selector has fields and tags beside it.
        let row = origin.filter(|_| selection.calls.len() == 1);
        let row = row.and_then(|(number, row)| Some((group?.inputs.get(number)?, row)));
        for (current, reference) in beside.iter_mut().zip(&selection.references) {
            let value = row.map(|(input, row)| input.value(&input.source(reference, false), row));
            become_next(current, value.filter(|value| !value.is_null()), selection.fill, reference.data_type);
        }
        let reference = |place: usize| beside.get(place).cloned().unwrap_or(Value::Null);
        let call = |place: usize| current.get(place).cloned().unwrap_or(Value::Null);
        rows.push(selection.row(time_ns, &call, &reference));
    }
    session.budget().take(rows.len() * selection.columns.len())?;
    let rows = Rows::Values(rows);
    Ok((!rows.is_empty()).then_some(SeriesRows { name: result.name, tags: result.tags, rows }))
}

/// Puts a column's next value in the place of the one before; where nothing was found, what `fill` says. InfluxDB fills the fields and tags
/// beside a selector as it fills the selector.
fn become_next(current: &mut Value, found: Option<Value>, fill: Fill, data_type: DataType) {
    match (found, fill) {
        (Some(found), _) => *current = found,
        (None, Fill::Previous) => {}
        (None, Fill::Integer(value)) => *current = default(&Value::Int(value), data_type),
        (None, Fill::Number(value)) => *current = default(&Value::Float(value), data_type),
        (None, _) => *current = Value::Null,
    }
}

/// The number of `fill` where a column has nothing.
fn default(number: &Value, data_type: DataType) -> Value {
    if data_type == DataType::Unknown {
        // No measurement has the field.
        return Value::Null;
    }
    if data_type.is_number() { number.cast(data_type) } else { number.clone() }
}
