//! Documents of files. Definitions are documents of their own, which files with the same sources and archives share; a file's document
//! names its definition. `docs/formats/rrd.md` describes them.

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

fn name_of(file: &File) -> String {
    json!([file.database, file.path]).to_string()
}

/// Stores the document of a file, and that of its definition if it is new.
pub(super) fn write(db: &Db, file: &File) -> Result<(), RrdError> {
    let definition = file.definition.to_json().to_string();
    let name = format!("{:032x}", xxh3_128(definition.as_bytes()));
    if !db.documents(DEFINITION).iter().any(|(known, _)| *known == name) {
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
    db.put_document(FILE, &name_of(file), document.as_bytes()).map_err(|error| refused(&error))
}

/// Removes the document of a file. Its definition stays: others may share it.
pub(super) fn remove(db: &Db, file: &File) -> Result<(), RrdError> {
    db.remove_document(FILE, &name_of(file)).map(drop).map_err(|error| refused(&error))
}

/// The files of all databases, and the names of documents that cannot be read. Those of databases that were dropped are left out.
pub(super) fn read_all(db: &Db) -> (Vec<(String, File)>, Vec<String>) {
    let definitions: Vec<(String, Arc<Definition>)> = db
        .documents(DEFINITION)
        .into_iter()
        .filter_map(|(name, bytes)| {
            let document = serde_json::from_slice(&bytes).ok()?;
            Some((name, Arc::new(Definition::from_json(&document).ok()?)))
        })
        .collect();
    let (mut files, mut unreadable) = (Vec::new(), Vec::new());
    for (name, bytes) in db.documents(FILE) {
        let of_name = serde_json::from_str::<Json>(&name).ok().and_then(|name| two_texts(&name));
        let found =
            of_name.and_then(|[database, path]| Some((read(&bytes, &database, &path, &definitions)?, database)));
        match found {
            Some((file, database)) if db.database_number(&database) == Some(file.database_number) => {
                files.push((database, file));
            }
            Some(_) => {}
            None => unreadable.push(name),
        }
    }
    (files, unreadable)
}

fn two_texts(value: &Json) -> Option<[String; 2]> {
    Some([value[0].as_str()?.to_owned(), value[1].as_str()?.to_owned()])
}

fn read(bytes: &[u8], database: &str, path: &str, definitions: &[(String, Arc<Definition>)]) -> Option<File> {
    let document: Json = serde_json::from_slice(bytes).ok()?;
    let name = document["definition"].as_str()?;
    let definition = definitions.iter().find(|(known, _)| known == name)?.1.clone();
    let base = Moment { seconds: document["base"][0].as_i64()?, micros: document["base"][1].as_u64()? as u32 };
    let identity = match (document["measurement"].as_str(), document["labels"].as_object()) {
        (Some(measurement), Some(labels)) => {
            let labels = labels.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
            Identity { measurement: measurement.to_owned(), labels: Labels::from_pairs(labels).ok()? }
        }
        _ => default_identity(path),
    };
    let import = document["import"].as_i64().map(|primary| ImportedRows { primary: usize::try_from(primary).ok() });
    let number = document["database"].as_u64()? as u32;
    Some(File::new(NewFile { database, path, identity, definition, base, import }, number))
}
