//! Rows into batches.

use wire::control::Registered;
use wire::data::{Outgoing, Values};

/// Gathers rows of floats of groups with the same members, column by column, until they are worth sending.
///
/// ```no_run
/// # fn send(client: &mut thalweg_client::Client, cpu: &thalweg_client::Registered) -> Result<(), thalweg_client::ClientError> {
/// let mut rows = thalweg_client::GroupRows::new(cpu);
/// rows.push(cpu.tokens[0], 1_700_000_000_000_000_000, &[0.5])?;
/// rows.with(|block| client.send(&[block]))?;
/// rows.clear();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct GroupRows {
    measurement: u32,
    slots: Vec<u32>,
    tokens: Vec<u64>,
    timestamps_ns: Vec<i64>,
    columns: Vec<Vec<f64>>,
}

impl GroupRows {
    /// Without rows; of registered groups.
    pub fn new(registered: &Registered) -> Self {
        Self {
            measurement: registered.measurement,
            slots: registered.slots.clone(),
            tokens: Vec::new(),
            timestamps_ns: Vec::new(),
            columns: vec![Vec::new(); registered.slots.len()],
        }
    }

    /// Adds a row: a value for each member, in the order in which they were registered.
    pub fn push(&mut self, token: u64, timestamp_ns: i64, values: &[f64]) -> Result<(), crate::ClientError> {
        if values.len() != self.columns.len() {
            let message = format!("{} values for {} members", values.len(), self.columns.len());
            return Err(crate::ClientError::Invalid(message));
        }
        self.tokens.push(token);
        self.timestamps_ns.push(timestamp_ns);
        self.columns.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
        Ok(())
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Forgets the rows; keeps the memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.timestamps_ns.clear();
        self.columns.iter_mut().for_each(Vec::clear);
    }

    /// Gives the rows as a block to be sent.
    pub fn with<T>(&self, send: impl FnOnce(Outgoing<'_>) -> T) -> T {
        let columns: Vec<(Values<'_>, &[u8])> =
            self.columns.iter().map(|column| (Values::F64(column), [].as_slice())).collect();
        send(Outgoing {
            measurement: self.measurement,
            slots: &self.slots,
            tokens: &self.tokens,
            timestamps_ns: &self.timestamps_ns,
            columns: &columns,
        })
    }
}
