//! Certificates, the identities read from them, and the folder in which a fleet's keys live.
//!
//! ```text
//!  fleet_folder   files that `muster init` writes: CAs, and those of each replica and operator
//!    |        \
//!  authority   tls          certificates that a CA signs    rustls configurations from these files
//!    |          |
//!  identity   secret        the role of a certificate       files that must not leak or tear
//! ```
//!
//! The crate is below the controller, the client and the benchmarks; of the network it knows only how to `dial` a
//! replica, and nothing of consensus.

pub mod address;
mod authority;
mod client_config;
mod dial;
pub mod fleet_folder;
mod fleet_id;
pub mod identity;
mod member;
mod replica_plan;
pub mod secret;
pub mod settings;
pub mod tls;

pub use self::address::HostPort;
pub use self::authority::{
    AGENT_LIFETIME, AUTHORITY_LIFETIME, Authority, CLOCK_SKEW, CertificateSubject, Error as SigningError, Issued,
    OPERATOR_LIFETIME, REPLICA_LIFETIME, USER_LIMIT, Usage, Validity, authority_print,
};
pub use self::client_config::{ClientConfig, ClientTls};
pub use self::dial::dial;
pub use self::fleet_folder::{FleetFolder, Grant};
pub use self::fleet_id::{FleetId, NotAFleetId};
pub use self::member::{FleetMember, http_beside, unique_members};
pub use self::replica_plan::ReplicaPlan;
