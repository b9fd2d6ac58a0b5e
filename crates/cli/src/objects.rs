//! How an object store is reached: one set of settings for the server and for every command that opens objects.

use clap::Args;
use db::ObjectTierOptions;
use platform::objects::ObjectOptions;

use crate::settings::list;

/// Settings of an object store beside its address. Credentials come from the clouds' usual environment variables unless they are said
/// here.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct ObjectAccess {
    /// Where an S3-compatible server listens, such as `http://127.0.0.1:9000` [default: the cloud's own]
    #[arg(long, env = "THALWEG_OBJECTS_ENDPOINT", value_name = "URL")]
    pub(crate) objects_endpoint: Option<String>,
    /// Further settings of the object store as `name=value`, separated by commas, such as `aws_region=eu-west-1` [default: none]
    #[arg(long, env = "THALWEG_OBJECTS_SETTINGS", value_name = "SETTINGS", hide_env_values = true)]
    pub(crate) objects_settings: Option<String>,
}

impl ObjectAccess {
    pub(crate) fn options(&self) -> Result<ObjectOptions, String> {
        let mut options = ObjectOptions::default();
        if let Some(endpoint) = &self.objects_endpoint {
            options.allow_http = endpoint.starts_with("http://");
            options.endpoint = Some(endpoint.clone());
        }
        for (number, item) in list(self.objects_settings.as_deref()).iter().enumerate() {
            // What is wrong is not quoted: it may be a secret.
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| format!("--objects-settings: item {} is not name=value", number + 1))?;
            options.settings.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(options)
    }

    /// The tier of a data folder that settles at an address.
    pub(crate) fn tier(&self, url: &str) -> Result<ObjectTierOptions, String> {
        Ok(ObjectTierOptions { objects: self.options()?, ..ObjectTierOptions::new(url) })
    }
}
