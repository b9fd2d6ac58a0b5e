//! `thalweg losses`.

use std::process::ExitCode;

use clap::Args;

use super::{Location, Where, counted};

const EXAMPLES: &str = "Examples:
  thalweg losses                                   what the server on 127.0.0.1:7780 lost
  thalweg losses --acknowledge                     answers do not warn of it any more

Until losses are acknowledged the object store is left as it is. After that what the folder does not name is deleted there:
run `thalweg rebuild` before, if it has parts that this folder has lost.";

/// What a folder lost and an operator accepted; answers about its time carry a warning until that is acknowledged
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LossesFlags {
    #[command(flatten)]
    location: Location,
    /// Have answers no longer warn of it
    #[arg(long)]
    acknowledge: bool,
}

pub(crate) fn run(flags: &LossesFlags) -> Result<ExitCode, String> {
    let (losses, acknowledged) = match flags.location.resolve() {
        Where::Server(server) => {
            let client = server.client()?;
            let listed = client.api("/api/v1/admin/losses", &[])?;
            let text = |loss: &serde_json::Value| loss["text"].as_str().unwrap_or_default().to_owned();
            let losses: Vec<String> = listed.as_array().into_iter().flatten().map(text).collect();
            if flags.acknowledge {
                client.send_api("POST", "/api/v1/admin/losses", &[], b"")?;
            }
            (losses, flags.acknowledge)
        }
        Where::Folder(data) => {
            let db = flags.location.open(data)?;
            let losses = db.health().losses().iter().map(ToString::to_string).collect();
            if flags.acknowledge {
                db.acknowledge_losses().map_err(|error| error.to_string())?;
            }
            db.close().map_err(|error| error.to_string())?;
            (losses, flags.acknowledge)
        }
    };
    losses.iter().for_each(|loss| say!("{loss}"));
    let count = counted(losses.len() as u64, "loss", "losses");
    say!("{count}{}", if acknowledged { " acknowledged" } else { "" });
    Ok(ExitCode::SUCCESS)
}
