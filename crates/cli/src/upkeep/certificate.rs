//! `thalweg cert`: certificates for a server and its clients, signed by an authority of one's own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use jiff::{ToSpan, Zoned};
use platform::private::write_secret;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

const EXAMPLES: &str = "Examples:
  thalweg cert certs --names db.example,10.0.0.5         an authority (ca.pem) and a server's certificate (server.pem)
  thalweg cert certs --client telegraf.example           one more, for a client, by the same authority
  thalweg serve --http 0.0.0.0:7780 --tls-cert certs/server.pem --tls-key certs/server-key.pem --tls-client-ca certs/ca.pem
  curl --cacert certs/ca.pem https://db.example:7780/health

Clients trust ca.pem; ca-key.pem signs further certificates and belongs on no server. Called again it renews a certificate: a running
server takes the new files by itself.";

/// The common name of the authority.
const AUTHORITY: &str = "Thalweg authority";

/// How long it is valid.
const AUTHORITY_DAYS: u32 = 3_650;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CertificateFlags {
    /// Folder for the files; made if it does not exist. An authority in it is used again
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Names and addresses by which clients reach the server, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required_unless_present = "clients")]
    names: Vec<String>,
    /// Name of a client, for which a certificate is made, too; may be repeated
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// For how many days they are valid
    #[arg(long, default_value_t = 397, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

pub(crate) fn run(flags: &CertificateFlags) -> Result<ExitCode, String> {
    let folder = &flags.folder;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if let Some(wrong) = flags.clients.iter().find(|name| !is_file_name(name)) {
        return Err(format!("--client {wrong:?}: a name has letters, digits, and . _ - @ +"));
    }
    let authority = authority(folder)?;
    if !flags.names.is_empty() {
        let request = Request { names: &flags.names, usage: ExtendedKeyUsagePurpose::ServerAuth, days: flags.days };
        request.write(&authority, folder, "server")?;
    }
    for client in &flags.clients {
        let names = std::slice::from_ref(client);
        let request = Request { names, usage: ExtendedKeyUsagePurpose::ClientAuth, days: flags.days };
        request.write(&authority, folder, client)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a client's name can be that of its files, and is not that of others.
fn is_file_name(name: &str) -> bool {
    access::account::check_name(name).is_ok() && !name.starts_with('.') && !["ca", "server"].contains(&name)
}

/// The folder's authority; made if there is none.
fn authority(folder: &Path) -> Result<Issuer<'static, KeyPair>, String> {
    let key_path = folder.join("ca-key.pem");
    let mut params = parameters(&[], AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = named(AUTHORITY);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = match std::fs::read_to_string(&key_path) {
        // What it signs says the same of its issuer as what it signed before.
        Ok(pem) => KeyPair::from_pem(&pem).map_err(|error| format!("{}: {error}", key_path.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = KeyPair::generate().map_err(|error| error.to_string())?;
            let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
            write_key(&key_path, &key)?;
            write_certificate(&folder.join("ca.pem"), &certificate.pem())?;
            key
        }
        Err(error) => return Err(format!("{}: {error}", key_path.display())),
    };
    Ok(Issuer::new(params, key))
}

/// A certificate that is to be made.
struct Request<'a> {
    names: &'a [String],
    usage: ExtendedKeyUsagePurpose,
    days: u32,
}

impl Request<'_> {
    fn write(&self, authority: &Issuer<'_, KeyPair>, folder: &Path, file: &str) -> Result<(), String> {
        let mut params = parameters(self.names, self.days)?;
        params.distinguished_name = named(self.names.first().map_or("", String::as_str));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![self.usage.clone()];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let certificate = params.signed_by(&key, authority).map_err(|error| error.to_string())?;
        write_key(&folder.join(format!("{file}-key.pem")), &key)?;
        write_certificate(&folder.join(format!("{file}.pem")), &certificate.pem())
    }
}

fn named(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// For these names, valid from yesterday on: clocks of clients may be behind.
fn parameters(names: &[String], days: u32) -> Result<CertificateParams, String> {
    // One that is no DNS name stands as the common name alone.
    let is_dns = |name: &&String| !name.contains(['@', '_', '+']);
    let alternative: Vec<String> = names.iter().filter(is_dns).cloned().collect();
    let params = CertificateParams::new(alternative);
    let mut params = params.map_err(|error| format!("{}: {error}", names.join(",")))?;
    let today = Zoned::now().date();
    let day = |offset: i64| {
        let date = today.checked_add(offset.days()).map_err(|error| error.to_string())?;
        Ok::<_, String>(date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8))
    };
    params.not_before = day(-1)?;
    params.not_after = day(days.into())?;
    Ok(params)
}

fn write_key(path: &Path, key: &KeyPair) -> Result<(), String> {
    write_secret(path, &key.serialize_pem()).map_err(|error| format!("{}: {error}", path.display()))?;
    say!("{} (secret)", path.display());
    Ok(())
}

fn write_certificate(path: &Path, pem: &str) -> Result<(), String> {
    std::fs::write(path, pem).map_err(|error| format!("{}: {error}", path.display()))?;
    say!("{}", path.display());
    Ok(())
}
