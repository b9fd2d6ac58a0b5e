//! `OpenID` Connect: tokens (JWT) that an identity provider has signed, and the groups in them as rights. What fetches the provider's documents
//! is the server's.
//!
//! * [`keys`]: the provider's keys, and signatures checked by ring · [`token`]: a token's claims, checked · [`documents`]: what else the
//!   provider serves · [`pkce`]: secrets of a sign-in of the page

pub mod documents;
pub mod keys;
pub mod pkce;
pub mod token;

use std::sync::Arc;

use crate::grant::Grant;
use crate::rate::Quota;
use crate::scope::Scope;

/// How the names of accounts begin that a provider has signed in: no account of the server's own has a colon in its name.
pub const NAME_PREFIX: &str = "oidc:";

/// The word that makes a group administer the server.
const SERVER_ADMIN: &str = "server-admin";

/// The most groups of a token that are looked at.
pub(crate) const GROUPS_MAX: usize = 1_000;

/// Which provider is trusted, for which tokens, and what groups may do.
#[derive(Debug, Clone, PartialEq)]
pub struct OidcRules {
    /// The provider, as tokens name it.
    pub issuer: String,
    /// Whom tokens have to be meant for: one of these.
    pub audiences: Vec<String>,
    /// The claim that names the account.
    pub name_claim: String,
    /// The claim that holds its groups: a list of texts, or one text.
    pub groups_claim: String,
    /// What groups may do.
    pub roles: Vec<Role>,
}

/// What a group may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// The group, as tokens name it; `*` for every account that the provider signs in.
    pub group: String,
    /// `None`: everything, also with the server's settings.
    pub grant: Option<Grant>,
}

impl Role {
    /// Reads `group=read:metrics` or `group=server-admin`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "a role is GROUP=GRANT, such as engineers=read:metrics, or GROUP=server-admin";
        let (group, grant) = text.split_once('=').ok_or(form)?;
        if group.trim().is_empty() {
            return Err(form.to_owned());
        }
        let grant = match grant.trim() {
            SERVER_ADMIN if group.trim() == "*" => {
                return Err("not everybody may administer the server: name a group".to_owned());
            }
            SERVER_ADMIN => None,
            grant => Some(grant.parse::<Grant>()?),
        };
        Ok(Self { group: group.trim().to_owned(), grant })
    }
}

/// An account that a provider has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name at the provider.
    pub name: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Until when the token holds, seconds since the Unix epoch.
    pub expires_s: i64,
}

impl OidcRules {
    /// What an account may do by its groups.
    pub fn scope(&self, identity: &Identity) -> Arc<Scope> {
        let has = |role: &&Role| role.group == "*" || identity.groups.contains(&role.group);
        let roles: Vec<&Role> = self.roles.iter().filter(has).collect();
        Arc::new(Scope {
            name: format!("{NAME_PREFIX}{}", identity.name).into(),
            is_server_admin: roles.iter().any(|role| role.grant.is_none()),
            grants: roles.iter().filter_map(|role| role.grant.clone()).collect(),
            quota: Quota::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Right;

    #[test]
    fn groups_give_rights() {
        let texts = ["*=read:public", "engineers=read+write:team-*{env=\"prod\"}", "admins=server-admin"];
        let rules = OidcRules {
            issuer: String::new(),
            audiences: Vec::new(),
            name_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            roles: texts.iter().map(|role| Role::parse(role).unwrap()).collect(),
        };
        let of = |groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            rules.scope(&Identity { name: "alice".to_owned(), groups, expires_s: 0 })
        };
        assert_eq!(&*of(&[]).name, "oidc:alice");
        assert!(of(&[]).may(Right::Read, "public") && !of(&["engineer"]).may(Right::Read, "team-a"));
        assert!(of(&["engineers"]).may(Right::Write, "team-a") && !of(&["engineers"]).is_server_admin);
        assert!(of(&["x", "admins"]).is_server_admin);
        for bad in ["", "x", "=read:a", "*=server-admin", "x=fly:a"] {
            assert!(Role::parse(bad).is_err(), "{bad}");
        }
    }
}
