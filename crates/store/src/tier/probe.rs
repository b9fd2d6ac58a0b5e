//! What the store and the credentials can do: learnt once, at start, with a small object.

use platform::objects::{Content, ObjectError, ObjectErrorKind, PutCondition, Version};

use super::Tier;

/// What a probe found. That there is one means that storing, reading, listing and deleting work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierProbe {
    /// Where the objects are.
    pub location: String,
    /// True if the store refuses to replace an object when a condition does not hold. Without it two writers cannot be
    /// kept apart, and no copy of the manifest must be put.
    pub conditional_put: bool,
    /// Time of the first put.
    pub put_ns: u64,
    /// Time of the first read.
    pub read_ns: u64,
}

impl Tier {
    /// Writes, reads, replaces under a condition, lists and deletes a small object of a random name. An error says which
    /// step failed, where, and what to do about it.
    pub fn probe(&self) -> Result<TierProbe, ObjectError> {
        let mut random = [0; 8];
        self.platform.random.fill(&mut random).map_err(|error| {
            ObjectError::new(ObjectErrorKind::Other, "name the object that probes the store", error.to_string())
        })?;
        let key = format!("probe-{:016x}", u64::from_le_bytes(random));
        let probed = self.probe_with(&key);
        // Removes what a failed probe left; the error of the probe is the one to tell.
        let deleted = self.objects.delete(&key);
        let probe = probed?;
        deleted.map_err(|error| step("delete", error))?;
        match self.objects.head(&key) {
            Err(error) if error.kind == ObjectErrorKind::Missing => Ok(probe),
            Err(error) => Err(step("look for a deleted", error)),
            Ok(_) => Err(self.error(ObjectErrorKind::Other, "delete", &key, "it is still there")),
        }
    }

    fn probe_with(&self, key: &str) -> Result<TierProbe, ObjectError> {
        let clock = &self.platform.clock;
        let start_ns = clock.monotonic_ns();
        self.put_probe(key, "first", &PutCondition::Always).map_err(|error| step("store", error))?;
        let put_ns = clock.monotonic_ns().saturating_sub(start_ns);
        let start_ns = clock.monotonic_ns();
        self.expect_probe(key, "first")?;
        let read_ns = clock.monotonic_ns().saturating_sub(start_ns);
        let listed = self.objects.list("", Some(&key[..key.len() - 1]), 10).map_err(|error| step("list", error))?;
        if !listed.iter().any(|object| object.key == key) {
            return Err(self.error(
                ObjectErrorKind::Other,
                "list",
                key,
                "it was stored, but the list does not hold it",
            ));
        }
        let conditional_put = self.probe_conditions(key)?;
        Ok(TierProbe { location: self.location().to_owned(), conditional_put, put_ns, read_ns })
    }

    /// Returns whether conditions that hold let a put through and those that do not hold stop it.
    fn probe_conditions(&self, key: &str) -> Result<bool, ObjectError> {
        let first = self.objects.head(key).map_err(|error| step("look at", error))?.version;
        if !self.is_refused(key, &PutCondition::IfAbsent)? {
            return Ok(false);
        }
        let replaced = match self.put_probe(key, "second", &PutCondition::IfMatch(first.clone())) {
            Ok(version) => version,
            Err(error) => return unsupported(error),
        };
        if replaced == first || !self.is_refused(key, &PutCondition::IfMatch(first))? {
            return Ok(false);
        }
        self.expect_probe(key, "second")?;
        Ok(true)
    }

    /// Returns whether a put under a condition that does not hold is refused for that reason.
    fn is_refused(&self, key: &str, condition: &PutCondition) -> Result<bool, ObjectError> {
        match self.put_probe(key, "wrong", condition) {
            Ok(_) => Ok(false),
            Err(error) if error.kind == ObjectErrorKind::Conflict => Ok(true),
            Err(error) => unsupported(error),
        }
    }

    fn put_probe(&self, key: &str, content: &str, condition: &PutCondition) -> Result<Version, ObjectError> {
        self.objects.put(key, Content::Bytes(content.as_bytes()), condition)
    }

    fn expect_probe(&self, key: &str, expected: &str) -> Result<(), ObjectError> {
        let range = 0..expected.len() as u64;
        let found = self.objects.read(key, std::slice::from_ref(&range)).map_err(|error| step("read", error))?.concat();
        if found == expected.as_bytes() {
            return Ok(());
        }
        let message = format!("expected {expected:?}, found {:?}", String::from_utf8_lossy(&found));
        Err(self.error(ObjectErrorKind::Other, "read", key, message))
    }
}

/// A store that does not know conditions says so in one of many ways; one that is busy or refuses tells us nothing.
fn unsupported(error: ObjectError) -> Result<bool, ObjectError> {
    match error.kind {
        ObjectErrorKind::Busy | ObjectErrorKind::Denied => Err(step("replace", error)),
        _ => Ok(false),
    }
}

fn step(doing: &str, error: ObjectError) -> ObjectError {
    let action = format!("{} (the probe at start could not {doing} a small object)", error.action);
    ObjectError { action, ..error }
}
