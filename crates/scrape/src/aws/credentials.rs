//! Keys and region: of the configuration, of a profile in the files that Amazon's tools share, or of the environment.

use std::path::{Path, PathBuf};

use platform::{Files, read_file};

use super::signature::Keys;
use crate::config::AwsIdentity;

/// Bytes of a file of profiles.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The profile where none is named.
const DEFAULT_PROFILE: &str = "default";

/// Where keys and regions are looked for.
pub(super) struct Surroundings<'a> {
    pub(super) files: &'a dyn Files,
    /// Variables of the environment.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Surroundings<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// Keys of the configuration come first, then those of its profile, of the environment, and of the profile `AWS_PROFILE` or `default`.
    pub(super) fn keys(&self, identity: &AwsIdentity) -> Result<Keys, String> {
        if let Some(secret) = identity.secret_key.as_ref().filter(|_| !identity.access_key.is_empty()) {
            let secret_key = secret.read(self.files)?;
            return Ok(Keys { access_key: identity.access_key.clone(), secret_key, session_token: None });
        }
        if !identity.profile.is_empty() {
            return self.keys_of_profile(&identity.profile);
        }
        let found = self.variable("AWS_ACCESS_KEY_ID").zip(self.variable("AWS_SECRET_ACCESS_KEY"));
        if let Some((access_key, secret_key)) = found {
            return Ok(Keys { access_key, secret_key, session_token: self.variable("AWS_SESSION_TOKEN") });
        }
        let profile = self.variable("AWS_PROFILE");
        self.keys_of_profile(profile.as_deref().unwrap_or(DEFAULT_PROFILE)).map_err(|reason| {
            format!("no access_key and secret_key, no profile, and none in the environment; {reason}")
        })
    }

    /// The region of the configuration, of the environment, or of the profile.
    pub(super) fn region(&self, identity: &AwsIdentity) -> Result<String, String> {
        let of_profile = || {
            let profile = Some(identity.profile.clone()).filter(|profile| !profile.is_empty());
            let profile = profile.or_else(|| self.variable("AWS_PROFILE")).unwrap_or(DEFAULT_PROFILE.to_owned());
            self.setting(&profile, "region")
        };
        Some(identity.region.clone())
            .filter(|region| !region.is_empty())
            .or_else(|| self.variable("AWS_REGION"))
            .or_else(|| self.variable("AWS_DEFAULT_REGION"))
            .or_else(of_profile)
            .ok_or_else(|| "region is missing, here, in AWS_REGION, and in the profile".to_owned())
    }

    fn keys_of_profile(&self, profile: &str) -> Result<Keys, String> {
        let required = |name: &str| {
            self.setting(profile, name).ok_or_else(|| {
                let files = self.profile_files().map(|(path, _)| path.display().to_string()).join(" and ");
                format!("profile {profile:?} has no {name} in {files}")
            })
        };
        Ok(Keys {
            access_key: required("aws_access_key_id")?,
            secret_key: required("aws_secret_access_key")?,
            session_token: self.setting(profile, "aws_session_token"),
        })
    }

    /// The files of profiles, each with what stands before the names of profiles in it.
    fn profile_files(&self) -> [(PathBuf, &'static str); 2] {
        let home = self.variable("HOME").unwrap_or_default();
        let path = |variable: &str, name: &str| {
            self.variable(variable).map_or_else(|| Path::new(&home).join(".aws").join(name), PathBuf::from)
        };
        [(path("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ""), (path("AWS_CONFIG_FILE", "config"), "profile ")]
    }

    /// A setting of a profile. The files are read anew each time: keys that are changed hold from the next refresh on.
    fn setting(&self, profile: &str, name: &str) -> Option<String> {
        self.profile_files().iter().find_map(|(path, prefix)| {
            let content = read_file(self.files, path, FILE_BYTES_MAX).ok()?;
            let text = String::from_utf8(content).ok()?;
            let prefix = if profile == DEFAULT_PROFILE { "" } else { prefix };
            setting_in(&text, &format!("{prefix}{profile}"), name)
        })
    }
}

/// A setting of a section.
fn setting_in(text: &str, section: &str, name: &str) -> Option<String> {
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = header.trim() == section;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_inside && !line.starts_with(['#', ';'])) {
            let value = value.trim();
            if key.trim() == name && !value.is_empty() {
                return Some(value.to_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::Source;

    /// The name of the key and the region that a configuration gets in an environment, or why it gets none.
    fn found(identity: &AwsIdentity, environment: &[(&str, &str)]) -> (Result<String, String>, Result<String, String>) {
        let files = platform::sim::Simulation::new(1).platform().files;
        let credentials = "# keys\n[default]\naws_access_key_id = D\naws_secret_access_key=d\n\n[team]\n\
                           aws_access_key_id=T\naws_secret_access_key = t=1\naws_session_token = token\n[half]\naws_access_key_id=H\n";
        let settings = "[default]\nregion = eu-d\n[profile team]\nregion=eu-t\n";
        for (path, text) in [("/home/.aws/credentials", credentials), ("/home/.aws/config", settings)] {
            platform::write_file(&*files, Path::new(path), text.as_bytes()).unwrap();
        }
        let variables: HashMap<&str, &str> = environment.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let surroundings = Surroundings { files: &*files, variable: &variable };
        let keys = surroundings.keys(identity);
        (
            keys.map(|keys| format!("{} {} {:?}", keys.access_key, keys.secret_key, keys.session_token)),
            surroundings.region(identity),
        )
    }

    #[test]
    fn keys_come_from_where_they_are_named_first() {
        let ok = |text: &str| Ok(text.to_owned());
        let home = ("HOME", "/home");
        let environment = [home, ("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "e"), ("AWS_REGION", "eu-e")];
        let team = AwsIdentity { profile: "team".to_owned(), ..AwsIdentity::default() };
        let own = AwsIdentity {
            access_key: "O".to_owned(),
            secret_key: Some(Source::Inline("o".to_owned())),
            region: "eu-o".to_owned(),
            ..team.clone()
        };
        assert_eq!(found(&own, &environment), (ok("O o None"), ok("eu-o")));
        assert_eq!(found(&team, &[home]), (ok("T t=1 Some(\"token\")"), ok("eu-t")));
        assert_eq!(found(&team, &environment).0, ok("T t=1 Some(\"token\")"));
        assert_eq!(found(&AwsIdentity::default(), &environment), (ok("E e None"), ok("eu-e")));
        assert_eq!(found(&AwsIdentity::default(), &[home]), (ok("D d None"), ok("eu-d")));
        assert_eq!(
            found(&AwsIdentity::default(), &[home, ("AWS_PROFILE", "team")]),
            (ok("T t=1 Some(\"token\")"), ok("eu-t"))
        );
        let half = AwsIdentity { profile: "half".to_owned(), ..AwsIdentity::default() };
        let (keys, region) = found(&half, &[home]);
        assert_eq!(
            keys,
            Err("profile \"half\" has no aws_secret_access_key in /home/.aws/credentials and /home/.aws/config"
                .to_owned())
        );
        assert!(region.unwrap_err().contains("AWS_REGION"));
        let (keys, _) = found(&AwsIdentity::default(), &[("HOME", "/nowhere")]);
        assert!(keys.unwrap_err().contains("no access_key and secret_key, no profile"));
    }
}
