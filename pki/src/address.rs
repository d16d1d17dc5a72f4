//! Addresses at which a machine is reached: `host:port`, with the host a DNS name or an IP address.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A reachable address. Port 0 and the unspecified addresses are refused: no client can connect to them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    host: String,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not an address: write HOST:PORT, or [HOST]:PORT for IPv6")]
    Shape(String),
    #[error("{0:?} has no usable port: give a number from 1 to 65535")]
    Port(String),
    #[error("{0:?} has no usable host: give a DNS name or an IP address")]
    Host(String),
    #[error(
        "{0:?} means every address of this machine, to which no other machine can connect: give a DNS name or an IP address"
    )]
    Unspecified(String),
}

// === impl HostPort ===

impl HostPort {
    /// The host as a certificate names it: IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address to listen on in order to be reached here: the same one if the host is an IP address, otherwise every
    /// address, because a name says nothing about this machine's interfaces.
    pub fn listen(&self) -> SocketAddr {
        let ip = self.host.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]));
        SocketAddr::new(ip, self.port)
    }
}

impl FromStr for HostPort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| Error::Shape(text.to_owned()))?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if bracketed.is_none() && host.contains(':') {
            return Err(Error::Shape(text.to_owned()));
        }
        let host = bracketed.unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| Error::Port(text.to_owned()))?;
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Err(Error::Unspecified(text.to_owned())),
            Ok(ip) => Ok(Self { host: ip.to_string(), port }),
            Err(_) if bracketed.is_none() && is_host_name(host) => Ok(Self { host: host.to_ascii_lowercase(), port }),
            Err(_) => Err(Error::Host(text.to_owned())),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl TryFrom<String> for HostPort {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

/// True for a host that may stand as a DNS name in a certificate.
pub fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_print_alike() {
        for text in ["127.0.0.1:7400", "[::1]:7400", "replica-1.example.org:1", "localhost:65535"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        assert_eq!("[::1]:7400".parse::<HostPort>().unwrap().host(), "::1");
    }

    #[test]
    fn an_address_that_cannot_be_connected_to_is_refused() {
        for (text, part) in [
            ("127.0.0.1", "HOST:PORT"),
            ("::1:7400", "HOST:PORT"),
            ("host:0", "port"),
            ("host:65536", "port"),
            ("host:", "port"),
            (":7400", "host"),
            ("under_score:1", "host"),
            ("[name]:1", "host"),
            ("0.0.0.0:7400", "every address"),
            ("[::]:7400", "every address"),
        ] {
            let message = text.parse::<HostPort>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_host_name_listens_on_every_address() {
        assert_eq!("db.example.org:7400".parse::<HostPort>().unwrap().listen().to_string(), "0.0.0.0:7400");
        assert_eq!("10.0.0.1:7400".parse::<HostPort>().unwrap().listen().to_string(), "10.0.0.1:7400");
    }
}
