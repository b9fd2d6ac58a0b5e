use std::sync::Arc;

use super::*;
use crate::objects::ObjectOptions;

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thalweg-objects-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn open(&self) -> Arc<dyn Objects> {
        let url = format!("file://{}", self.0.display());
        crate::Platform::real().objects.open(&url, &ObjectOptions::default()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn put(objects: &dyn Objects, key: &str, bytes: &[u8], condition: &PutCondition) -> Result<Version, ObjectErrorKind> {
    objects.put(key, Content::Bytes(bytes), condition).map_err(|error| error.kind)
}

#[test]
fn objects_are_stored_read_listed_and_deleted() {
    let folder = Folder::new("store");
    let objects = folder.open();
    put(&*objects, "parts/2", b"second", &PutCondition::Always).unwrap();
    put(&*objects, "parts/1", b"first", &PutCondition::Always).unwrap();
    put(&*objects, "partsx", b"", &PutCondition::Always).unwrap();
    assert_eq!(objects.read("parts/2", &[1..3, 0..6]).unwrap(), [b"ec".to_vec(), b"second".to_vec()]);
    let names =
        |folder: &str, after: Option<&str>, max: usize| -> Vec<String> { folder_names(&*objects, folder, after, max) };
    assert_eq!(names("", None, 9), ["parts/1", "parts/2", "partsx"]);
    assert_eq!(names("parts", None, 9), ["parts/1", "parts/2"]);
    assert_eq!(names("parts", Some("parts/1"), 9), ["parts/2"]);
    assert_eq!(names("", None, 1), ["parts/1"]);
    assert_eq!(names("none", None, 9), Vec::<String>::new());
    objects.delete("parts/1").unwrap();
    objects.delete("parts/1").unwrap();
    assert_eq!(objects.head("parts/1").unwrap_err().kind, ObjectErrorKind::Missing);
    assert_eq!(objects.head("parts").unwrap_err().kind, ObjectErrorKind::Missing, "a folder is no object");
    assert_eq!(names("", None, 9), ["parts/2", "partsx"]);
    let hidden: Vec<String> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(hidden, [LOCK_NAME], "nothing unfinished stays");
}

fn folder_names(objects: &dyn Objects, folder: &str, after: Option<&str>, max: usize) -> Vec<String> {
    objects.list(folder, after, max).unwrap().into_iter().map(|object| object.key).collect()
}

#[test]
fn errors_say_what_to_do() {
    let folder = Folder::new("errors");
    let objects = folder.open();
    put(&*objects, "a", b"0123456789", &PutCondition::Always).unwrap();
    let kind = |result: Result<Vec<Vec<u8>>, ObjectError>| result.unwrap_err().kind;
    assert_eq!(kind(objects.read("b", &[0..1, 1..2])), ObjectErrorKind::Missing);
    assert_eq!(kind(objects.read("a", &[0..1, 5..11])), ObjectErrorKind::Other);
    assert_eq!(kind(objects.read("a", &[0..1, 5..5])), ObjectErrorKind::Other);
    assert_eq!(kind(objects.read("../a", &[0..1, 1..2])), ObjectErrorKind::Config);
    assert_eq!(put(&*objects, "a/b", b"x", &PutCondition::Always).unwrap_err(), ObjectErrorKind::Config);
    let file = folder.0.join("a");
    let error = crate::Platform::real().objects.open(&file.display().to_string(), &ObjectOptions::default());
    let error = error.err().unwrap();
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
}

#[test]
fn conditions_hold_and_versions_never_come_twice() {
    let folder = Folder::new("conditions");
    let objects = folder.open();
    let first = put(&*objects, "a", b"1", &PutCondition::IfAbsent).unwrap();
    assert_eq!(put(&*objects, "a", b"x", &PutCondition::IfAbsent), Err(ObjectErrorKind::Conflict));
    assert_eq!(objects.head("a").unwrap(), ObjectInfo { size_bytes: 1, version: first.clone() });
    let mut versions = vec![first.clone()];
    for round in 0..200 {
        let current = versions.last().unwrap().clone();
        let next = put(&*objects, "a", &[round], &PutCondition::IfMatch(current)).unwrap();
        assert!(!versions.contains(&next), "round {round}");
        versions.push(next);
    }
    assert_eq!(put(&*objects, "a", b"x", &PutCondition::IfMatch(first.clone())), Err(ObjectErrorKind::Conflict));
    assert_eq!(objects.read("a", &[0..1, 0..1]).unwrap(), [[199], [199]]);
    objects.delete("a").unwrap();
    assert_eq!(put(&*objects, "a", b"x", &PutCondition::IfMatch(first)), Err(ObjectErrorKind::Conflict));
}

#[test]
fn of_many_writers_at_once_one_wins() {
    let folder = Folder::new("writers");
    // Each its own opening, as other processes have.
    let openings: Vec<_> = (0..4).map(|_| folder.open()).collect();
    let mut condition = PutCondition::IfAbsent;
    for round in 0..50 {
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let writer = |objects: &Arc<dyn Objects>, number: u8| {
                let (objects, condition) = (objects.clone(), condition.clone());
                scope.spawn(move || put(&*objects, "a", &[round, number], &condition))
            };
            let writers: Vec<_> = (0..).zip(&openings).map(|(number, objects)| writer(objects, number)).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let mut won: Vec<Version> = outcomes.iter().filter_map(|outcome| outcome.clone().ok()).collect();
        assert_eq!(won.len(), 1, "round {round}: {outcomes:?}");
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Err(ObjectErrorKind::Conflict)).count(), 3);
        condition = PutCondition::IfMatch(won.remove(0));
    }
}
