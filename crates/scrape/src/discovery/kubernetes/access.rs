//! Where the API is, and how to sign in: by the configuration, a client's configuration file, or the cluster around the server.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use platform::network::NetworkPlatform;
use platform::{Files, read_file};

use crate::client::Client;
use crate::config::yaml::{self, Node, Value};
use crate::config::{Credentials, HttpConfig, KubernetesDiscovery, Source};

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Bytes of a client's configuration file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A way to the API.
pub(super) struct Access {
    pub(super) base_url: String,
    pub(super) client: Client,
    /// Namespaces that are looked at; empty: all.
    pub(super) namespaces: Vec<String>,
}

/// An address, how it is asked, and the namespace that is the client's own.
struct Api {
    base_url: String,
    http: HttpConfig,
    namespace: String,
}

impl Access {
    pub(super) fn read(config: &KubernetesDiscovery, network: &NetworkPlatform) -> Result<Self, String> {
        let files = &*network.platform.files;
        let found = match (&config.kubeconfig_file, &config.api_server) {
            (Some(path), _) => from_kubeconfig(path, files)?,
            (None, Some(url)) => {
                Api { base_url: url.clone(), http: config.http.clone(), namespace: own_namespace(files) }
            }
            (None, None) => in_cluster(config, files)?,
        };
        let mut namespaces = config.namespaces.clone();
        if config.own_namespace {
            if found.namespace.is_empty() {
                return Err("own_namespace: the server's namespace is not known".to_owned());
            }
            namespaces.push(found.namespace);
        }
        namespaces.sort();
        namespaces.dedup();
        let base_url = found.base_url.trim_end_matches('/').to_owned();
        Ok(Self { base_url, client: Client::new(network, &found.http), namespaces })
    }
}

fn own_namespace(files: &dyn Files) -> String {
    let content = read_file(files, &Path::new(SERVICE_ACCOUNT).join("namespace"), FILE_BYTES_MAX);
    String::from_utf8_lossy(&content.unwrap_or_default()).trim().to_owned()
}

/// The cluster in which the server itself runs.
fn in_cluster(config: &KubernetesDiscovery, files: &dyn Files) -> Result<Api, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (host, port) = variable("KUBERNETES_SERVICE_HOST")
        .zip(variable("KUBERNETES_SERVICE_PORT"))
        .ok_or("the server runs in no cluster: api_server or kubeconfig_file must say where the API is")?;
    let mut http = config.http.clone();
    let folder = Path::new(SERVICE_ACCOUNT);
    if http.credentials == Credentials::None {
        let credentials = Some(Source::File(folder.join("token")));
        http.credentials = Credentials::Authorization { kind: "Bearer".to_owned(), credentials };
    }
    http.tls.ca.get_or_insert(Source::File(folder.join("ca.crt")));
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(Api { base_url: format!("https://{host}:{port}"), http, namespace: own_namespace(files) })
}

fn from_kubeconfig(path: &Path, files: &dyn Files) -> Result<Api, String> {
    let failed = |reason: String| format!("{}: {reason}", path.display());
    let bytes = read_file(files, path, FILE_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("not UTF-8".to_owned()))?;
    let root = yaml::parse(&text).map_err(|error| failed(error.message))?;
    let current = text_at(&root, "current-context").unwrap_or_default();
    let context =
        named(&root, "contexts", current, "context").ok_or_else(|| failed("no current context".to_owned()))?;
    let cluster = named(&root, "clusters", text_at(context, "cluster").unwrap_or_default(), "cluster");
    let cluster = cluster.ok_or_else(|| failed("the context has no cluster".to_owned()))?;
    let user = named(&root, "users", text_at(context, "user").unwrap_or_default(), "user");
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut http = HttpConfig::default();
    http.tls.ca = source(cluster, "certificate-authority", folder).map_err(failed)?;
    http.tls.insecure_skip_verify = text_at(cluster, "insecure-skip-tls-verify") == Some("true");
    http.tls.server_name = text_at(cluster, "tls-server-name").map(str::to_owned);
    if let Some(user) = user {
        http.tls.cert = source(user, "client-certificate", folder).map_err(failed)?;
        http.tls.key = source(user, "client-key", folder).map_err(failed)?;
        http.credentials = credentials(user, folder);
        refuse_programs(user, text_at(context, "user").unwrap_or_default()).map_err(failed)?;
    }
    let base_url = text_at(cluster, "server").ok_or_else(|| failed("the cluster has no server".to_owned()))?;
    let namespace = text_at(context, "namespace").unwrap_or("default").to_owned();
    Ok(Api { base_url: base_url.to_owned(), http, namespace })
}

/// Programs that fetch credentials are not run: who writes a file must not thereby run programs as the server.
fn refuse_programs(user: &Node, name: &str) -> Result<(), String> {
    let program = match (get(user, "exec"), get(user, "auth-provider")) {
        (Some(exec), _) => format!("running {:?} (exec)", text_at(exec, "command").unwrap_or("a program")),
        (None, Some(provider)) => format!("auth-provider {:?}", text_at(provider, "name").unwrap_or_default()),
        (None, None) => return Ok(()),
    };
    Err(format!(
        "user {name:?} signs in by {program}, which is not built in: give it the token of a service account \
         (kubectl create token NAME --duration 8760h) as token or tokenFile, or a client certificate"
    ))
}

fn credentials(user: &Node, folder: &Path) -> Credentials {
    let inline = |name: &str| text_at(user, name).map(|text| Source::Inline(text.to_owned()));
    let token = inline("token").or_else(|| text_at(user, "tokenFile").map(|path| Source::File(folder.join(path))));
    match (token, inline("username")) {
        (Some(token), _) => Credentials::Authorization { kind: "Bearer".to_owned(), credentials: Some(token) },
        (None, Some(username)) => Credentials::Basic { username: Some(username), password: inline("password") },
        (None, None) => Credentials::None,
    }
}

/// A file, or its content in base64.
fn source(node: &Node, name: &str, folder: &Path) -> Result<Option<Source>, String> {
    if let Some(data) = text_at(node, &format!("{name}-data")) {
        let bytes = STANDARD.decode(data.trim()).map_err(|_| format!("{name}-data is no base64"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{name}-data is no PEM"))?;
        return Ok(Some(Source::Inline(text)));
    }
    Ok(text_at(node, name).map(|path| Source::File(folder.join(PathBuf::from(path)))))
}

fn get<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) => entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
        _ => None,
    }
}

fn text_at<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    get(node, name)?.text().filter(|text| !text.is_empty())
}

/// The content of the item of this name in a list.
fn named<'a>(root: &'a Node, list: &str, name: &str, content: &str) -> Option<&'a Node> {
    let Value::List(items) = &get(root, list)?.value else { return None };
    get(items.iter().find(|item| text_at(item, "name") == Some(name))?, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_configurations_are_read() {
        let simulation = platform::sim::Simulation::new(1);
        let files = simulation.platform().files;
        let text = "
current-context: b
contexts:
- {name: a, context: {cluster: x, user: x}}
- {name: b, context: {cluster: c, user: u, namespace: team}}
clusters:
- name: c
  cluster: {server: 'https://api:6443/', certificate-authority-data: cGVt}
users:
- name: u
  user: {token: secret, client-certificate: own.pem, client-key: own.key}
";
        platform::write_file(&*files, Path::new("/k/config"), text.as_bytes()).unwrap();
        let found = from_kubeconfig(Path::new("/k/config"), &*files).unwrap();
        assert_eq!((found.base_url.as_str(), found.namespace.as_str()), ("https://api:6443/", "team"));
        assert_eq!(found.http.tls.ca, Some(Source::Inline("pem".to_owned())));
        assert_eq!(found.http.tls.cert, Some(Source::File("/k/own.pem".into())));
        assert!(matches!(found.http.credentials, Credentials::Authorization { .. }));
        let exec = text.replace("{token: secret,", "{exec: {command: aws, args: [eks]},");
        platform::write_file(&*files, Path::new("/k/exec"), exec.as_bytes()).unwrap();
        let Err(reason) = from_kubeconfig(Path::new("/k/exec"), &*files) else { panic!("exec is refused") };
        let expected =
            "/k/exec: user \"u\" signs in by running \"aws\" (exec), which is not built in: give it the token";
        assert!(reason.starts_with(expected) && reason.contains("kubectl create token"), "{reason}");
        platform::write_file(&*files, Path::new("/k/bad"), b"current-context: z\n").unwrap();
        assert!(from_kubeconfig(Path::new("/k/bad"), &*files).is_err());
    }
}
