//! Documents of files. Definitions are documents of their own, which files with the same sources and archives share; a file's document
//! names its definition. `docs/formats/rrd.md` describes them.

use std::collections::HashMap;
use std::sync::Arc;

use db::Db;
use model::Labels;
use serde_json::{Map, Value as Json, json};
use xxhash_rust::xxh3::xxh3_128;

use super::{File, ImportedRows, NewFile};
use crate::RrdError;
use crate::file::{Definition, Moment};
use crate::pattern::{Identity, default_identity};

/// Documents of files.
const FILE: &str = "rrd";
/// Documents of definitions.
const DEFINITION: &str = "rrd-definition";

fn refused(error: &db::StoreError) -> RrdError {
    RrdError::Refused(error.to_string())
}

fn name_of(database: &str, path: &str) -> String {
    json!([database, path]).to_string()
}

/// Stores the document of a file, and that of its definition if it is new.
pub(super) fn write(db: &Db, file: &File) -> Result<(), RrdError> {
    let definition = file.definition.to_json().to_string();
    let name = format!("{:032x}", xxh3_128(definition.as_bytes()));
    // One of that name and another text is damaged: the name is its text's.
    if !db.documents(DEFINITION).iter().any(|(known, bytes)| *known == name && **bytes == *definition.as_bytes()) {
        db.put_document(DEFINITION, &name, definition.as_bytes()).map_err(|error| refused(&error))?;
    }
    let mut document = Map::new();
    document.insert("definition".to_owned(), name.into());
    document.insert("database".to_owned(), file.database_number.into());
    document.insert("base".to_owned(), json!([file.base.seconds, file.base.micros]));
    if let Some(ImportedRows { primary }) = file.import {
        document.insert("import".to_owned(), json!(primary.map_or(-1, |primary| primary as i64)));
    }
    if file.identity != default_identity(&file.path) {
        document.insert("measurement".to_owned(), file.identity.measurement.as_str().into());
        let labels = file.identity.labels.iter().map(|(name, value)| (name.to_owned(), value.into()));
        document.insert("labels".to_owned(), Json::Object(labels.collect()));
    }
    let document = Json::Object(document).to_string();
    db.put_document(FILE, &name_of(&file.database, &file.path), document.as_bytes()).map_err(|error| refused(&error))
}

/// Removes the document of a file. Its definition stays: others may share it.
pub(super) fn remove(db: &Db, database: &str, path: &str) -> Result<(), RrdError> {
    db.remove_document(FILE, &name_of(database, path)).map(drop).map_err(|error| refused(&error))
}

/// What the documents say.
#[derive(Default)]
pub(super) struct StoredDocuments {
    /// The files of all databases.
    pub(super) files: Vec<(String, File)>,
    /// Documents that cannot be read.
    pub(super) unreadable: Vec<Unreadable>,
}

/// A document that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// Its name.
    pub(super) name: String,
    pub(super) why: String,
    /// The database, its number, and the path of the file, if the name says which.
    pub(super) file: Option<(String, u32, String)>,
}

/// Reads all documents. Those of databases that were dropped are left out.
pub(super) fn read_all(db: &Db) -> StoredDocuments {
    let definition = |(name, bytes): (String, Arc<[u8]>)| {
        let document = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        let read = document.and_then(|document| Definition::from_json(&document).map_err(|error| error.to_string()));
        (name, read.map(Arc::new))
    };
    let definitions: Definitions = db.documents(DEFINITION).into_iter().map(definition).collect();
    let mut found = StoredDocuments::default();
    for (name, bytes) in db.documents(FILE) {
        let Some([database, path]) = serde_json::from_str::<Json>(&name).ok().and_then(|name| two_texts(&name)) else {
            let why = "its name is no database and path".to_owned();
            found.unreadable.push(Unreadable { name, why, file: None });
            continue;
        };
        let Some(number) = db.database_number(&database) else { continue };
        let document = serde_json::from_slice::<Json>(&bytes).map_err(|error| error.to_string());
        if document.as_ref().is_ok_and(|of| of["database"].as_u64().is_some_and(|of| of != u64::from(number))) {
            continue;
        }
        match document.and_then(|document| read(&document, (&database, number, &path), &definitions)) {
            Ok(file) => found.files.push((database, file)),
            Err(why) => found.unreadable.push(Unreadable { name, why, file: Some((database, number, path)) }),
        }
    }
    found
}

/// Definitions by the names of their documents, or why they cannot be read.
type Definitions = HashMap<String, Result<Arc<Definition>, String>>;

fn two_texts(value: &Json) -> Option<[String; 2]> {
    Some([value[0].as_str()?.to_owned(), value[1].as_str()?.to_owned()])
}

/// Reads the document of a file of a database, of its number, and a path.
fn read(
    document: &Json,
    (database, number, path): (&str, u32, &str),
    definitions: &Definitions,
) -> Result<File, String> {
    document["database"].as_u64().ok_or("it has no number of a database")?;
    let name = document["definition"].as_str().ok_or("it names no definition")?;
    let definition = definitions.get(name).ok_or_else(|| format!("its definition {name} is not there"))?;
    let definition = definition.clone().map_err(|why| format!("its definition {name}: {why}"))?;
    let base = &document["base"];
    let base = base[0].as_i64().zip(base[1].as_u64().and_then(|micros| u32::try_from(micros).ok()));
    let (seconds, micros) = base.ok_or("it has no time after which readings count")?;
    let import = match document.get("import") {
        None => None,
        Some(primary) => {
            let primary = primary.as_i64().ok_or("the number of its own archive is none")?;
            Some(ImportedRows { primary: usize::try_from(primary).ok() })
        }
    };
    let identity = match (document.get("measurement"), document.get("labels")) {
        (None, None) => default_identity(path),
        (measurement, labels) => identity(measurement, labels).ok_or("its measurement and labels are none")?,
    };
    let base = Moment { seconds, micros };
    Ok(File::new(NewFile { database, path, identity, definition, base, import }, number))
}

fn identity(measurement: Option<&Json>, labels: Option<&Json>) -> Option<Identity> {
    let measurement = measurement?.as_str()?.to_owned();
    let pairs = labels?.as_object()?.iter().map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let labels = Labels::from_pairs(pairs.collect::<Option<Vec<_>>>()?).ok()?;
    Some(Identity { measurement, labels })
}
