//! `http_sd_configs`, and what all discoveries by HTTP have in common.

use platform::network::{HttpRequest, NetworkPlatform};

use super::{Found, Sink, list};
use crate::client::Client;
use crate::config::HttpDiscovery;

/// Bytes of an answer.
const BODY_BYTES_MAX: usize = 256 << 20;

/// How long a request may take.
const TIMEOUT_MS: u64 = 30_000;

pub(super) async fn run(config: &HttpDiscovery, network: &NetworkPlatform, sink: &Sink) {
    let client = Client::new(network, &config.http);
    loop {
        let asked = format!("{:.3}", config.refresh_ms as f64 / 1000.0);
        let request = HttpRequest::get(&config.url)
            .with_header("Accept", "application/json")
            .with_header("X-Prometheus-Refresh-Interval-Seconds", asked.trim_end_matches('0').trim_end_matches('.'));
        sink(targets(fetch(&client, network, request).await, &config.url));
        network.tasks.sleep_ms(config.refresh_ms).await;
    }
}

fn targets(answer: Result<Answer, String>, url: &str) -> Found {
    let answer = answer?;
    let content_type = answer.content_type.to_ascii_lowercase();
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind != "application/json" {
        return Err(format!("unsupported content type {content_type:?}: expected application/json"));
    }
    let mut groups = list::from_json(&answer.body, url)?;
    for group in &mut groups {
        group.labels.insert("__meta_url".to_owned(), url.to_owned());
    }
    Ok(groups)
}

/// An answer of status 200.
pub(super) struct Answer {
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

/// Sends a request and reads its answer, within half a minute.
pub(super) async fn fetch(client: &Client, network: &NetworkPlatform, request: HttpRequest) -> Result<Answer, String> {
    let answer = async {
        let mut response = client.send(request).await.map_err(|error| error.to_string())?;
        let content_type = response.header("content-type").unwrap_or_default().to_owned();
        let body = response.read_body(BODY_BYTES_MAX).await.map_err(|error| error.to_string())?;
        if response.status != 200 {
            return Err(format!("status {}: {}", response.status, beginning(&body)));
        }
        Ok(Answer { content_type, body })
    };
    tokio::select! {
        answer = answer => answer,
        () = network.tasks.sleep_ms(TIMEOUT_MS) => Err(format!("no answer within {} s", TIMEOUT_MS / 1000)),
    }
}

/// As [`fetch`], for answers that are JSON.
pub(super) async fn fetch_json(
    client: &Client,
    network: &NetworkPlatform,
    request: HttpRequest,
) -> Result<serde_json::Value, String> {
    let answer = fetch(client, network, request.with_header("Accept", "application/json")).await?;
    serde_json::from_slice(&answer.body).map_err(|error| format!("the answer is no JSON: {error}"))
}

fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.trim().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(content_type: &str, body: &str) -> Answer {
        Answer { content_type: content_type.to_owned(), body: body.as_bytes().to_vec() }
    }

    #[test]
    fn answers_are_lists_of_json() {
        let body = r#"[{"targets": ["a:1"], "labels": {"x": "y"}}]"#;
        let groups = targets(Ok(answer("application/json; charset=utf-8", body)), "http://sd/").unwrap();
        assert_eq!(groups[0].labels["__meta_url"], "http://sd/");
        assert_eq!(groups[0].targets[0]["__address__"], "a:1");
        assert!(targets(Ok(answer("text/html", body)), "http://sd/").is_err());
        assert!(targets(Ok(answer("application/json", "{}")), "http://sd/").is_err());
        assert!(targets(Err("down".to_owned()), "http://sd/").is_err());
    }
}
