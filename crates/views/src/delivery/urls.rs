//! Addresses to which rows may be sent. Pure.

use url::Url;

/// Rules of addresses: where there are none, every address is allowed to those who may make triggers with hooks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UrlRules(Vec<Url>);

impl UrlRules {
    /// Reads addresses that others may begin with: scheme, host and port are the same, and the path begins with the rule's.
    ///
    /// # Errors
    /// Says which text is no address.
    pub fn parse(texts: &[String]) -> Result<Self, String> {
        texts.iter().map(|text| address(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Refuses an address that is none, or that the rules do not have.
    pub(crate) fn check(&self, text: &str, schemes: &[&str]) -> Result<(), String> {
        let wanted = address(text)?;
        if !schemes.contains(&wanted.scheme()) {
            return Err(format!(
                "{}: the address begins with {}://",
                without_credentials(text),
                schemes.join(":// or ")
            ));
        }
        if !text.starts_with(wanted.scheme()) {
            return Err(format!("{}: write {}:// in small letters", without_credentials(text), wanted.scheme()));
        }
        if wanted.scheme() == "udp" && wanted.port().is_none() {
            return Err(format!("{text}: the address of datagrams needs a port"));
        }
        if self.0.is_empty() || self.0.iter().any(|rule| begins_with(&wanted, rule)) {
            return Ok(());
        }
        let shown = without_credentials(text);
        Err(format!("{shown} is not among the addresses that --webhook-urls allows"))
    }
}

fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{}: no address: {error}", without_credentials(text)))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(format!("{}: the address has no host", without_credentials(text)));
    }
    Ok(url)
}

fn begins_with(wanted: &Url, rule: &Url) -> bool {
    let is_same_server = wanted.scheme() == rule.scheme()
        && wanted.host_str() == rule.host_str()
        && wanted.port_or_known_default() == rule.port_or_known_default();
    let rule_path = rule.path().trim_end_matches('/');
    let rest = wanted.path().strip_prefix(rule_path);
    is_same_server && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// An address as others may see it: without user, password and query, which may be secret.
pub(crate) fn without_credentials(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else {
        // It may have a password.
        return text.split_once("://").map_or("…", |(scheme, _)| scheme).to_owned() + "://…";
    };
    // An address that cannot have them has none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string().replace("%E2%80%A6", "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_rules_are_allowed() {
        let rules = UrlRules::parse(&["https://a.example/hooks".to_owned(), "udp://10.0.0.1:9".to_owned()]).unwrap();
        let schemes = ["http", "https", "udp"];
        for (url, allowed) in [
            ("https://a.example/hooks", true),
            ("https://a.example:443/hooks/x?y=1", true),
            ("https://A.example/hooks/", true),
            ("https://a.example/hooksother", false),
            ("https://a.example/", false),
            ("https://a.example/hooks/../admin", false),
            ("https://a.example/hooks/%2e%2e/admin", false),
            ("http://a.example/hooks", false),
            ("https://a.example:444/hooks", false),
            ("https://a.example@evil.example/hooks", false),
            ("https://a.example.evil.example/hooks", false),
            ("https://a.example\\@evil.example/hooks", false),
            ("udp://10.0.0.1:9", true),
            ("udp://10.0.0.1:10", false),
            ("udp://10.0.0.1", false),
            ("file:///etc/passwd", false),
            ("nonsense", false),
        ] {
            assert_eq!(rules.check(url, &schemes).is_ok(), allowed, "{url}");
        }
        let all = UrlRules::default();
        assert!(all.check("http://127.0.0.1:1/x", &["http", "https"]).is_ok());
        assert!(all.check("ftp://127.0.0.1/x", &["http", "https"]).is_err());
    }

    #[test]
    fn secrets_of_addresses_are_not_shown() {
        assert_eq!(without_credentials("https://u:p@a.example/x?token=y"), "https://a.example/x?…");
        assert_eq!(without_credentials("http://a:1/x"), "http://a:1/x");
    }
}
