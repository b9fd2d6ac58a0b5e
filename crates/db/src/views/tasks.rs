//! InfluxDB 2's tasks: scripts that are continuous queries, by the rights of a budget.

use std::sync::Arc;

use flux::TaskScript;
use query::views::{Dialect, RefreshPolicy, View, ViewCatalog, ViewDefinition};
use query::{Budget, QueryError, Session};

use crate::Db;

/// Before a task's id in the name of its view.
const PREFIX: &str = "task:";

/// Settings of a task beside its script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskSettings {
    /// A description by its maker.
    pub description: Option<String>,
    /// True if it is not refreshed by itself.
    pub is_inactive: bool,
}

/// The id of a task: 16 hexadecimal digits.
pub fn task_id(view: &View) -> &str {
    view.definition.name.strip_prefix(PREFIX).unwrap_or_default()
}

impl Db {
    /// The tasks of the databases that may be read, by their ids.
    pub fn tasks(&self, budget: &Budget) -> Vec<Arc<View>> {
        let session = self.session(budget);
        // Of a database that may not be read nothing is told.
        let of_database = |database: String| session.views(&database).unwrap_or_default();
        let mut tasks: Vec<Arc<View>> = session.databases().into_iter().flat_map(of_database).collect();
        tasks.retain(|view| view.definition.dialect == Dialect::Flux);
        tasks.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tasks
    }

    /// Makes a task; windows that end from now on are written.
    ///
    /// # Errors
    /// If its script is none of a task, as the making of every view, or if there is no randomness.
    pub fn create_task(
        &self,
        script: &TaskScript,
        settings: TaskSettings,
        budget: &Budget,
    ) -> Result<Arc<View>, QueryError> {
        let mut bytes = [0; 8];
        let filled = self.fill_random(&mut bytes);
        filled.map_err(|error| QueryError::Storage(format!("there is no randomness: {error}")))?;
        let id = u64::from_be_bytes(bytes).max(1);
        let session = self.session(budget);
        let mut definition = script.definition(&session, &format!("{PREFIX}{id:016x}"))?;
        if let Some(task) = &mut definition.task {
            task.created_ns = self.now_ns();
        }
        self.set_up(&mut definition, settings);
        let key = (definition.database.clone(), definition.name.clone());
        session.create_view(definition)?;
        self.made(&key)
    }

    /// Changes a task: its settings, and its script if there is another one.
    ///
    /// # Errors
    /// As [`Db::create_task`], or if the new script reads another bucket.
    pub fn change_task(
        &self,
        known: &View,
        script: Option<&TaskScript>,
        (settings, budget): (TaskSettings, &Budget),
    ) -> Result<Arc<View>, QueryError> {
        let session = self.session(budget);
        let mut definition = match script {
            None => known.definition.clone(),
            Some(script) => script.definition(&session, &known.definition.name)?,
        };
        if definition.database != known.definition.database {
            return Err(QueryError::Invalid(format!(
                "the task reads the bucket {:?}: make another task for {:?}",
                known.definition.database, definition.database
            )));
        }
        if let (Some(task), Some(before)) = (&mut definition.task, &known.definition.task) {
            task.created_ns = before.created_ns;
        }
        self.set_up(&mut definition, settings);
        let key = (definition.database.clone(), definition.name.clone());
        session.replace_view(definition)?;
        self.made(&key)
    }

    fn set_up(&self, definition: &mut ViewDefinition, settings: TaskSettings) {
        let TaskSettings { description, is_inactive } = settings;
        let Some(task) = &mut definition.task else { return };
        definition.options.refresh = if is_inactive { RefreshPolicy::Manual } else { task.schedule };
        (task.description, task.is_inactive, task.updated_ns) = (description, is_inactive, self.now_ns());
    }

    fn made(&self, (database, name): &(String, String)) -> Result<Arc<View>, QueryError> {
        self.views.view(database, name).ok_or_else(|| QueryError::Invalid("the task was dropped meanwhile".to_owned()))
    }
}
