//! What trusted proxies say of their clients: where they are, and who.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;

use crate::listen::socket::Peer;
use crate::settings::Network;

/// The addresses that a request came through, the client's first.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The account's name.
const USER: &str = "x-webauth-user";

/// A client as a trusted proxy tells of it.
pub(super) struct Proxied {
    /// The other end of the connection, with the client's address.
    pub(super) peer: Peer,
    /// The account that the proxy has signed in.
    pub(super) user: Option<String>,
}

/// Believes the headers of a request, if its peer is a trusted proxy; `None` if it is not. What a client itself wrote into `X-Forwarded-For`
/// stands left of what the first trusted proxy added, and is not believed.
pub(super) fn read(peer: &Peer, headers: &HeaderMap, trusted: &[Network]) -> Option<Proxied> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer.address.ip()) {
        return None;
    }
    let hops: Vec<&str> = headers
        .get_all(FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(',').map(str::trim))
        .collect();
    let hops = hops.into_iter().rev().map_while(|hop| hop.parse::<IpAddr>().ok());
    let mut address = peer.address.ip();
    for hop in hops {
        address = hop;
        if !is_trusted(hop) {
            break;
        }
    }
    let peer = Peer { address: SocketAddr::new(address, peer.address.port()), ..peer.clone() };
    let mut users = headers.get_all(USER).iter();
    let user = match (users.next(), users.next()) {
        // Two of them: a client has smuggled one in.
        (Some(user), None) => user.to_str().ok().map(str::to_owned),
        _ => None,
    };
    Some(Proxied { peer, user })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_and_user(peer: &str, headers: &[(&'static str, &str)]) -> Option<(String, Option<String>)> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let peer = Peer::tcp(format!("{peer}:5").parse().unwrap());
        let proxied = read(&peer, &map, &[Network::parse("10.0.0.0/8").unwrap()])?;
        Some((proxied.peer.address.ip().to_string(), proxied.user))
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        for (peer, headers, expected) in [
            ("192.0.2.1", &[("x-forwarded-for", "203.0.113.7"), ("x-webauth-user", "admin")][..], None),
            ("10.0.0.1", &[], Some(("10.0.0.1", None))),
            ("10.0.0.1", &[("x-forwarded-for", "203.0.113.7")], Some(("203.0.113.7", None))),
            ("10.0.0.1", &[("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.9")], Some(("203.0.113.7", None))),
            (
                "10.0.0.1",
                &[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.7")],
                Some(("203.0.113.7", None)),
            ),
            ("10.0.0.1", &[("x-forwarded-for", "1.1.1.1, nonsense")], Some(("10.0.0.1", None))),
            ("10.0.0.1", &[("x-webauth-user", "alice")], Some(("10.0.0.1", Some("alice")))),
            ("10.0.0.1", &[("x-webauth-user", "alice"), ("x-webauth-user", "admin")], Some(("10.0.0.1", None))),
        ] {
            let expected =
                expected.map(|(address, user): (&str, Option<&str>)| (address.to_owned(), user.map(str::to_owned)));
            assert_eq!(address_and_user(peer, headers), expected, "{peer} {headers:?}");
        }
    }
}
