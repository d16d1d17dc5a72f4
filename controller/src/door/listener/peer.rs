//! The peer of a connection, and how long its certificate lasts.
//!
//! A handshake looks at a certificate once, and connections last for months. So every request checks the expiry again
//! and is judged as a handshake of that moment would be.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_pki::identity::{Identity, Role};
use tokio::time::sleep;
use tonic::{Request, Status};

use crate::door::certificate_clock::CertificateClock;
use crate::door::listener::DoorRefusal;

/// The identity at the other end. Every request of a connection carries it as an extension.
#[derive(Debug, Clone)]
pub struct Peer {
    pub identity: Arc<Identity>,
    pub remote: SocketAddr,
    pub validity: CertificateLife,
}

/// The time for which a certificate is good.
#[derive(Debug, Clone, Default)]
pub struct CertificateLife {
    /// `None` for a caller without a certificate.
    pub until: Option<SystemTime>,
    /// How long after that a node's certificate may be used to renew it.
    pub renewal_grace: Duration,
    /// The clock by which it expires.
    pub clock: CertificateClock,
}

// === impl Peer ===

impl Peer {
    /// The caller of a request, as of this moment.
    pub fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        let peer = request.extensions().get::<Self>();
        let peer = peer.ok_or_else(|| Status::unauthenticated("no client certificate"))?;
        // The canary is this replica calling itself, on a connection that was opened with a good certificate. As
        // between replicas, the end of a certificate must not make a working cluster go blind.
        if let Role::Canary(_) = peer.identity.kind {
            return Ok(peer.clone());
        }
        peer.as_of(peer.validity.clock.now()).map_err(|refusal| Status::unauthenticated(refusal.to_string()))
    }

    /// The peer as of `now`. A node whose certificate has expired may only renew it for a while; any other expired peer
    /// is refused.
    pub fn as_of(&self, now: SystemTime) -> Result<Self, DoorRefusal> {
        let Some(ago) = self.validity.over_for(now) else { return Ok(self.clone()) };
        let identity = Identity::clone(&self.identity).lapsed().ok_or(DoorRefusal::Expired)?;
        if ago > self.validity.renewal_grace {
            return Err(DoorRefusal::Lapsed { user: identity.user, ago: ago.as_secs() });
        }
        Ok(Self { identity: Arc::new(identity), ..self.clone() })
    }
}

// === impl CertificateLife ===

impl CertificateLife {
    /// Whether it is over by its own clock.
    pub fn has_ended(&self) -> bool {
        self.is_over(self.clock.now())
    }

    pub fn is_over(&self, now: SystemTime) -> bool {
        self.over_for(now).is_some()
    }

    /// The time that is left, or `None` if it has no end.
    pub fn left(&self, now: SystemTime) -> Option<Duration> {
        self.until.map(|until| until.duration_since(now).unwrap_or_default())
    }

    /// Completes when the certificate has expired.
    pub async fn ended(self) {
        match self.left(self.clock.now()) {
            Some(left) => sleep(left).await,
            None => pending().await,
        }
    }

    fn over_for(&self, now: SystemTime) -> Option<Duration> {
        now.duration_since(self.until?).ok().filter(|ago| !ago.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use muster_lifecycle::fingerprint::Fingerprint;
    use muster_lifecycle::replica::ReplicaId;
    use muster_pki::FleetId;

    use super::*;

    const GRACE: u64 = 100;
    const UNTIL: u64 = 1_000;

    fn peer(kind: Role) -> Peer {
        let (user, groups, key) = ("u".to_owned(), Vec::new(), Fingerprint([0; 32]));
        let fleet = FleetId::from_uri("muster://fleet/0f0e0d0c-0b0a-4909-8807-060504030201").unwrap();
        let until = (kind != Role::Stranger).then(|| at(UNTIL));
        let (renewal_grace, clock) = (Duration::from_secs(GRACE), CertificateClock::default());
        let validity = CertificateLife { until, renewal_grace, clock };
        let identity = Arc::new(Identity { user, groups, fleet, kind, key });
        Peer { identity, remote: "127.0.0.1:1".parse().unwrap(), validity }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn an_open_connection_has_the_role_a_new_handshake_would_get() {
        let (node, lapsed) = (Role::Node("a".into()), Role::Lapsed("a".into()));
        let expired = "the certificate has expired";
        let cases = [
            (node.clone(), UNTIL, Ok(node.clone())),
            (node.clone(), UNTIL + 1, Ok(lapsed.clone())),
            (node.clone(), UNTIL + GRACE, Ok(lapsed.clone())),
            (node, UNTIL + GRACE + 1, Err("the certificate of u expired 101 s ago: too long to renew it")),
            (lapsed.clone(), UNTIL + GRACE, Ok(lapsed.clone())),
            (lapsed, UNTIL + GRACE + 1, Err("the certificate of u expired 101 s ago: too long to renew it")),
            (Role::Aggregator("a".into()), UNTIL, Ok(Role::Aggregator("a".into()))),
            (Role::Aggregator("a".into()), UNTIL + 1, Err(expired)),
            (Role::Canary(ReplicaId(1)), UNTIL + 1, Err(expired)),
            (Role::Operator, UNTIL, Ok(Role::Operator)),
            (Role::Operator, UNTIL + 1, Err(expired)),
            (Role::Viewer, UNTIL + GRACE + 1, Err(expired)),
            (Role::Stranger, UNTIL + GRACE + 1, Ok(Role::Stranger)),
        ];
        for (role, now, wanted) in cases {
            let got = peer(role.clone()).as_of(at(now)).map(|peer| peer.identity.kind.clone());
            match (got, wanted) {
                (Ok(got), Ok(wanted)) => assert_eq!(got, wanted, "{role:?} at {now}"),
                (Err(got), Err(wanted)) => assert!(got.to_string().starts_with(wanted), "{role:?} at {now}: {got}"),
                (got, wanted) => panic!("{role:?} at {now}: {got:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn an_admitted_canary_is_accepted_after_its_certificate_expired() {
        let asks = |kind| {
            let mut request = Request::new(());
            request.extensions_mut().insert(peer(kind));
            Peer::of(&request).map(|peer| peer.identity.kind.clone())
        };
        assert_eq!(asks(Role::Canary(ReplicaId(1))).unwrap(), Role::Canary(ReplicaId(1)));
        assert!(asks(Role::Aggregator("a".into())).is_err(), "long expired");
    }

    #[test]
    fn the_remaining_life_of_a_certificate_counts_down_to_zero() {
        let validity = peer(Role::Operator).validity;
        assert_eq!(validity.left(at(UNTIL - 7)), Some(Duration::from_secs(7)));
        assert_eq!(validity.left(at(UNTIL + 7)), Some(Duration::ZERO));
        assert!(!validity.is_over(at(UNTIL)) && validity.is_over(at(UNTIL + 1)));
        assert_eq!(CertificateLife::default().left(at(UNTIL)), None);
    }
}
