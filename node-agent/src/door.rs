//! The doors an agent may knock at: `host:port`, checked once, before anything is started.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use thiserror::Error;
use tonic::transport::Endpoint;

/// More replicas than a fleet has; a longer list is a mistake.
const DOORS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    #[error("no endpoints: give the agent address of at least one replica, as HOST:PORT")]
    NoEndpoints,
    #[error("{count} endpoints are too many: give at most {DOORS_MAX}")]
    TooManyEndpoints { count: usize },
    #[error("{0:?} is not an endpoint: write HOST:PORT, or [HOST]:PORT for IPv6")]
    Endpoint(String),
    #[error("{count} nodes are too many for one stream: give at most {max}")]
    TooManyNodes { count: usize, max: usize },
    #[error("node {0:?} was given twice: give each node once")]
    Twice(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whom the server's certificate must name.
    pub(crate) name: ServerName<'static>,
    pub(crate) endpoint: Endpoint,
}

// === impl Door ===

impl Door {
    pub(crate) fn list(endpoints: &[String]) -> Result<Arc<[Self]>, SetupError> {
        match endpoints.len() {
            0 => Err(SetupError::NoEndpoints),
            count if count > DOORS_MAX => Err(SetupError::TooManyEndpoints { count }),
            _ => endpoints.iter().map(|text| Self::parse(text)).collect(),
        }
    }

    fn parse(text: &str) -> Result<Self, SetupError> {
        let wrong = || SetupError::Endpoint(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if bracketed.is_none() && host.contains(':') {
            return Err(wrong());
        }
        let host = bracketed.unwrap_or(host).to_owned();
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
        let endpoint = Endpoint::from_shared(format!("https://{text}")).map_err(|_| wrong())?;
        Ok(Self { host, port, name, endpoint })
    }
}

impl fmt::Display for Door {
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
    fn doors_parse_and_print_alike() {
        for text in ["127.0.0.1:7401", "[::1]:7401", "replica-1.example.org:1"] {
            let doors = Door::list(&[text.to_owned()]).unwrap();
            assert_eq!(doors[0].to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_dialled_is_refused_before_anything_starts() {
        for text in ["replica", "replica:", "replica:0", "::1:7401", "two words:1", ":1", "[::1:1"] {
            let refusal = Door::list(&[text.to_owned()]).unwrap_err();
            assert_eq!(refusal, SetupError::Endpoint(text.to_owned()));
        }
        assert_eq!(Door::list(&[]).unwrap_err(), SetupError::NoEndpoints);
        let many = vec!["a:1".to_owned(); DOORS_MAX + 1];
        assert_eq!(Door::list(&many).unwrap_err(), SetupError::TooManyEndpoints { count: DOORS_MAX + 1 });
    }
}
