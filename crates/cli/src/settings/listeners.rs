//! Values of the flags that say where something listens.

use std::net::Ipv4Addr;

use server::Listener;

/// Where a listener beside HTTP listens. Its own default it may do without: another program may have the port.
pub(super) fn listener(flag: &str, given: Option<&str>, default_port: u16) -> Result<Option<Listener>, String> {
    match given {
        None => Ok(Some(Listener { address: (Ipv4Addr::LOCALHOST, default_port).into(), required: false })),
        Some("off") => Ok(None),
        Some(text) => {
            let address = text.parse();
            let address = address.map_err(|_| {
                format!("{flag} {text:?} is neither off nor an address such as 127.0.0.1:{default_port}")
            })?;
            Ok(Some(Listener { address, required: true }))
        }
    }
}

/// As [`listener`], of one that is off unless asked for.
pub(super) fn optional_listener(
    flag: &str,
    given: Option<&str>,
    default_port: u16,
) -> Result<Option<Listener>, String> {
    match given {
        None => Ok(None),
        Some("on") => Ok(Some(Listener { address: (Ipv4Addr::LOCALHOST, default_port).into(), required: true })),
        Some(_) => listener(flag, given, default_port),
    }
}
