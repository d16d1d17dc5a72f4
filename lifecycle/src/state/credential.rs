//! Questions about credentials and join tokens: which key may speak for a node, and which machine may join.

use std::sync::Arc;

use crate::object::credential::{Credential, Distrust, Join, Joining};
use crate::object::join_token::{JoinToken, TokenState};
use crate::state::State;
use crate::value::fingerprint::Fingerprint;
use crate::value::text::Text;
use crate::value::time::ClusterTime;

impl State {
    /// Whether this key may speak for the node.
    pub fn admits_key(&self, node: &str, key: &Fingerprint) -> Result<(), Distrust> {
        self.credentials.get(node).map_or(Ok(()), |credential| credential.admits(key))
    }

    /// The key by which an open session of this key is known, whatever key comes after it.
    pub fn lineage_of(&self, node: &str, key: &Fingerprint) -> Fingerprint {
        self.credentials.get(node).and_then(|credential| credential.lineage).unwrap_or(*key)
    }

    /// Whether a session that was admitted may stay: renewals do not end it, a revocation or another machine does.
    pub fn admits_lineage(&self, node: &str, lineage: &Fingerprint) -> Result<(), Distrust> {
        let Some(credential) = self.credentials.get(node) else { return Ok(()) };
        credential.require_unrevoked()?;
        match credential.lineage == Some(*lineage) {
            true => Ok(()),
            false => Err(Distrust::OtherKey { node: credential.node.clone() }),
        }
    }

    /// Whether an aggregator may speak for the node.
    pub fn admits_carried(&self, node: &str) -> Result<(), Distrust> {
        self.credentials.get(node).map_or(Ok(()), |credential| credential.require_unrevoked())
    }

    /// The node's key is its newest one, and the one before it still counts.
    pub fn awaits_confirmation(&self, node: &str, key: &Fingerprint) -> bool {
        let credential = self.credentials.get(node);
        credential.is_some_and(|credential| credential.key == Some(*key) && credential.previous.is_some())
    }

    /// Whether the record of the name may be forgotten.
    pub fn is_forgettable(&self, node: &str, now: ClusterTime) -> bool {
        let credential = self.credentials.get(node).filter(|_| !self.nodes.contains(node));
        credential.is_some_and(|credential| credential.forgettable_from() <= now)
    }

    /// Names without a Node, and from when on each may be forgotten, the earliest first.
    pub fn expired_credentials(&self) -> impl Iterator<Item = (ClusterTime, &Text)> {
        self.derived.expired_credentials.iter().map(|(from, name)| (*from, name))
    }

    pub(crate) fn insert_credential(&mut self, credential: Credential) {
        self.remove_credential(&credential.node.clone());
        self.derived.claim(&credential, self.nodes.contains(&credential.node));
        self.credentials.insert(Arc::new(credential));
    }

    pub(crate) fn remove_credential(&mut self, node: &str) {
        if let Some(before) = self.credentials.remove(node) {
            self.derived.claim(&before, true);
        }
    }

    /// Whether a machine may join.
    pub fn admits_joining(&self, joining: &Joining<'_>, now: ClusterTime) -> Result<Join, Distrust> {
        let Some(token) = self.join_tokens.get(joining.token) else {
            return Err(Distrust::UnknownToken { id: Text::clipped(joining.token, 64) });
        };
        if token.hash != joining.secret {
            return Err(Distrust::WrongSecret { id: token.id.clone() });
        }
        if token.used.is_some() {
            return self.admits_again(token, joining);
        }
        self.require_open(token, joining.node, now).map(|()| Join::First)
    }

    /// A machine may ask again as long as nothing has happened since.
    fn admits_again(&self, token: &JoinToken, joining: &Joining<'_>) -> Result<Join, Distrust> {
        let same = token.used.as_ref().is_some_and(|used| used.node == *joining.node && used.key == joining.key);
        let credential = self.credentials.get(joining.node);
        let still = credential.is_some_and(|known| known.key == Some(joining.key) && known.revoked.is_none());
        if same && still {
            return Ok(Join::Again);
        }
        let node = token.used.as_ref().map(|used| used.node.clone()).unwrap_or_default();
        Err(Distrust::ReplayedToken { id: token.id.clone(), node })
    }

    fn require_open(&self, token: &JoinToken, node: &str, now: ClusterTime) -> Result<(), Distrust> {
        let id = token.id.clone();
        match token.state(now) {
            TokenState::Open => {}
            TokenState::Revoked => return Err(Distrust::RevokedToken { id }),
            TokenState::Expired | TokenState::Used => return Err(Distrust::ExpiredToken { id }),
        }
        match &token.node {
            Some(meant) if *meant == node => Ok(()),
            Some(meant) => Err(Distrust::OtherNode { id, meant: meant.clone(), node: Text::clipped(node, 253) }),
            None => self.require_free(node),
        }
    }

    /// No node has or had the name: no key was signed for it or revoked, and the node was never heard of. A name is
    /// free if an operator has created its Node for a machine that is yet to come.
    fn require_free(&self, node: &str) -> Result<(), Distrust> {
        let credential = self.credentials.get(node);
        credential.map_or(Ok(()), |credential| credential.require_unrevoked())?;
        let is_known = self.nodes.get(node).is_some_and(|node| node.status.ready().is_some());
        match credential.is_some() || is_known {
            true => Err(Distrust::NameTaken { node: Text::clipped(node, 253) }),
            false => Ok(()),
        }
    }
}
