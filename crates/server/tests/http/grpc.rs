//! OpenTelemetry's gRPC, spoken by a client of HTTP/2.

use std::io::Write;
use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ingest::otlp::{NumberPoint, encode_gauge};

use crate::harness::Running;

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Makes a call; the status of gRPC, its message, and the answer's body.
fn call(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (String, String, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post(format!("http://{address}{path}")).header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Body::new(Full::new(Bytes::from(body)));
        let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
        let head = response.headers().clone();
        let collected = response.into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let text = |name: &str| {
            let value = |map: &HeaderMap| map.get(name).map(|value| value.to_str().unwrap().to_owned());
            value(&trailers).or_else(|| value(&head)).unwrap_or_default()
        };
        (text("grpc-status"), text("grpc-message"), collected.to_bytes().to_vec())
    })
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut framed = vec![flag];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

#[test]
fn metrics_are_exported_by_grpc() {
    let server = Running::start_listening(|_| {});
    let address = server.at("--otlp-grpc");
    let message = |value| {
        let point = NumberPoint { attributes: &[], time_ns: 1_000_000_000, value };
        encode_gauge(&[("service.name", "cart")], "", "queue.length", "", &[point])
    };
    let ok = ("0".to_owned(), String::new(), framed(0, b""));
    assert_eq!(call(address, EXPORT, &[], framed(0, &message(2.5))), ok);
    assert!(server.result("default", "queue_length", 1).contains(r#""2.5""#));

    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&message(3.5)).unwrap();
    let headers = [("grpc-encoding", "gzip"), ("x-thalweg-database", "other")];
    assert_eq!(call(address, EXPORT, &headers, framed(1, &packed.finish().unwrap())), ok);
    assert!(server.result("other", "queue_length", 1).contains(r#""3.5""#));
}

#[test]
fn bad_calls_are_told() {
    let server = Running::start_listening(|settings| settings.body_bytes_max = 1000);
    let address = server.at("--otlp-grpc");
    for (path, headers, body, code, message) in [
        (EXPORT, &[][..], b"\0\0".to_vec(), "3", "at least five bytes"),
        (EXPORT, &[], framed(0, b"\x0a\x05"), "3", "not a protobuf message"),
        (EXPORT, &[("grpc-encoding", "lzma")], framed(1, b"x"), "12", "lzma"),
        (EXPORT, &[("grpc-encoding", "gzip")], framed(1, b"x"), "3", "not a gzip body"),
        (EXPORT, &[], framed(0, &[0; 2000]), "3", "body_bytes_max"),
        ("/other.Service/Call", &[], framed(0, b""), "12", "there is no /other.Service/Call"),
    ] {
        let (found, told, _) = call(address, path, headers, body);
        assert_eq!(found, code, "{told}");
        assert!(told.contains(message), "{told}");
    }
}
