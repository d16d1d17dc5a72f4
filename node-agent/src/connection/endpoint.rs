//! Endpoint of a replica's agents' door, `HOST:PORT`: parsed and checked once, before anything starts.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use thiserror::Error;
use tonic::transport;

/// More than any fleet has; a longer list is a mistake.
const ENDPOINTS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionSetupError {
    #[error("no endpoints: give the agent address of at least one replica, as HOST:PORT")]
    NoEndpoints,
    #[error("{count} endpoints are too many: give at most {ENDPOINTS_MAX}")]
    TooManyEndpoints { count: usize },
    #[error("{0:?} is not an endpoint: write HOST:PORT, or [HOST]:PORT for IPv6")]
    Endpoint(String),
    #[error("{count} nodes are too many for one stream: give at most {max}")]
    TooManyNodes { count: usize, max: usize },
    #[error("node {0:?} was given twice: give each node once")]
    Twice(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The name that the replica's certificate must carry.
    pub(crate) name: ServerName<'static>,
    pub(crate) channel: transport::Endpoint,
}

// === impl Endpoint ===

impl Endpoint {
    pub(crate) fn list(endpoints: &[String]) -> Result<Arc<[Self]>, SessionSetupError> {
        match endpoints.len() {
            0 => Err(SessionSetupError::NoEndpoints),
            count if count > ENDPOINTS_MAX => Err(SessionSetupError::TooManyEndpoints { count }),
            _ => endpoints.iter().map(|text| Self::parse(text)).collect(),
        }
    }

    fn parse(text: &str) -> Result<Self, SessionSetupError> {
        let wrong = || SessionSetupError::Endpoint(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if bracketed.is_none() && host.contains(':') {
            return Err(wrong());
        }
        let host = bracketed.unwrap_or(host).to_owned();
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
        let channel = transport::Endpoint::from_shared(format!("https://{text}")).map_err(|_| wrong())?;
        Ok(Self { host, port, name, channel })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_parse_and_print_alike() {
        for text in ["127.0.0.1:7401", "[::1]:7401", "replica-1.example.org:1"] {
            let endpoints = Endpoint::list(&[text.to_owned()]).unwrap();
            assert_eq!(endpoints[0].to_string(), text);
        }
    }

    #[test]
    fn a_malformed_endpoint_is_refused_before_anything_starts() {
        for text in ["replica", "replica:", "replica:0", "::1:7401", "two words:1", ":1", "[::1:1"] {
            let refusal = Endpoint::list(&[text.to_owned()]).unwrap_err();
            assert_eq!(refusal, SessionSetupError::Endpoint(text.to_owned()));
        }
        assert_eq!(Endpoint::list(&[]).unwrap_err(), SessionSetupError::NoEndpoints);
        let many = vec!["a:1".to_owned(); ENDPOINTS_MAX + 1];
        assert_eq!(
            Endpoint::list(&many).unwrap_err(),
            SessionSetupError::TooManyEndpoints { count: ENDPOINTS_MAX + 1 }
        );
    }
}
