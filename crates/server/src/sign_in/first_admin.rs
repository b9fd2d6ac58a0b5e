//! The first administrator of a server that others can reach: a token in a file that only the server's owner can read.

use std::path::{Path, PathBuf};

use access::account::{Account, Credential};
use access::rate::Quota;
use access::secret::{self, SALT_BYTES, ScramKeys, TOKEN_BYTES};
use db::Db;
use platform::Platform;
use platform::container::companion;
use platform::private::write_secret;
use zeroize::Zeroizing;

use super::{ACCOUNTS, is_required};
use crate::settings::ServerSettings;

/// The name of the first administrator.
const NAME: &str = "admin";

/// The file that holds its token, in the data folder or beside a database in one file.
const FILE: &str = "admin-token";

/// Makes the first administrator of a server that clients have to sign in to, unless there is an administrator. Returns the file that holds its
/// token, if it was made now.
///
/// # Errors
/// The file cannot be written: then there is no such account either, and the server must not start.
pub fn make_first_admin(db: &Db, settings: &ServerSettings, data: &Path) -> Result<Option<PathBuf>, String> {
    let is_admin = |document: &[u8]| Account::from_document(document).is_ok_and(|account| account.is_server_admin);
    let has_admin = db.documents(ACCOUNTS).iter().any(|(_, document)| is_admin(document))
        || settings.accounts.iter().any(|account| account.is_server_admin);
    if !is_required(db, settings) || has_admin {
        return Ok(None);
    }
    let (mut random, mut salt) = (Zeroizing::new([0; TOKEN_BYTES]), [0; SALT_BYTES]);
    let drawn = db.fill_random(&mut *random).and_then(|()| db.fill_random(&mut salt));
    drawn.map_err(|error| format!("no random bytes for the first token: {error}"))?;
    let token = secret::token_text(&random);
    let path = companion(&*Platform::real().files, data, FILE);
    write_secret(&path, &format!("{}\n", *token)).map_err(|error| {
        format!(
            "cannot write the first administrator's token to {}: {error}; make the folder writable, or let everybody in with --insecure-open",
            path.display()
        )
    })?;
    let account = Account {
        name: NAME.to_owned(),
        credential: Credential::Token(secret::token_hash(&token)),
        certificates: Vec::new(),
        scram: Some(ScramKeys::derive(&token, &salt)),
        is_server_admin: true,
        grants: Vec::new(),
        quota: Quota::default(),
        created_ns: db.now_ns(),
        expires_ns: None,
    };
    let stored = db.put_document(ACCOUNTS, NAME, &account.to_document());
    stored.map_err(|error| format!("cannot store the first administrator: {error}"))?;
    Ok(Some(path))
}
