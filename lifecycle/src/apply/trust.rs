//! Commands about tokens and credentials: which machine may join, which may renew, and which is shut out.

use std::sync::Arc;
use std::time::Duration;

use crate::apply::lifecycle::subject;
use crate::apply::{Application, ApplyResult, EVENT_SOURCE, Note, node_subject};
use crate::command::{Origin, ReceiptEffect};
use crate::object::credential::{
    BY_HAND_LIFE, CREDENTIALS_MAX, Credential, FORGOTTEN_MAX, Join, Joining, NODE_ENROLLED, NODE_REVOKED, Revocation,
    SignedKey,
};
use crate::object::event::{EventType, Subject};
use crate::object::join_token::{self, JoinToken, Standing, TOKENS_MAX, TokenUse};
use crate::rejection::Rejection;
use crate::value::fingerprint::Fingerprint;
use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp, WallTime, later};

const RENEWED_LATE: &str = "ExpiredCertificateRenewed";
const ENROLMENT_REFUSED: &str = "EnrolmentRefused";

/// How much of a reason an event keeps.
const WHY_MAX: usize = 512;

impl Application<'_> {
    pub(crate) fn create_token(
        &mut self,
        origin: &Origin,
        id: &Text,
        hash: Fingerprint,
        node: Option<&Text>,
        ttl_ms: u64,
    ) -> ApplyResult {
        let ttl = Duration::from_millis(ttl_ms);
        join_token::check_ttl(ttl)?;
        let token = JoinToken {
            id: id.clone(),
            hash,
            node: node.cloned(),
            created: self.now,
            created_by: Text::from(origin.to_string()),
            expires: after(self.now, ttl),
            used: None,
            revoked: None,
        };
        token.check()?;
        if self.state.join_tokens.contains(id) {
            return Err(Invalid::new("id", format!("token {id} exists already; draw another")).into());
        }
        let room = self.room_for_a_token()?;
        room.iter().for_each(|id| self.forget_token(id));
        self.put_token(token);
        Ok(self.receipt(ReceiptEffect::Created))
    }

    /// The tokens that make room: all that may be forgotten, and if need be the oldest that has ended.
    fn room_for_a_token(&self) -> Result<Vec<Text>, Rejection> {
        let (now, tokens) = (self.now.cluster, &self.state.join_tokens);
        let mut swept: Vec<Text> =
            tokens.iter().filter(|token| token.is_forgettable(now)).map(|token| token.id.clone()).collect();
        if tokens.len() - swept.len() >= TOKENS_MAX {
            let ended = tokens.iter().filter(|token| token.standing(now) != Standing::Open);
            let oldest = ended.min_by_key(|token| (token.created.cluster, &token.id));
            let limit = Rejection::LimitReached { what: Text::from("open join tokens"), limit: TOKENS_MAX as u64 };
            swept.push(oldest.ok_or(limit)?.id.clone());
        }
        Ok(swept)
    }

    pub(crate) fn revoke_token(&mut self, id: &Text) -> ApplyResult {
        let Some(token) = self.state.join_tokens.get(id) else {
            return Err(Rejection::NoSuchToken { id: Text::clipped(id, 64) });
        };
        if let Some(used) = &token.used {
            return Err(Rejection::TokenSpent { id: id.clone(), node: used.node.clone() });
        }
        if token.revoked.is_some() {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        let revoked = JoinToken { revoked: Some(self.now), ..token.as_ref().clone() };
        self.put_token(revoked);
        Ok(self.receipt(ReceiptEffect::Changed))
    }

    pub(crate) fn enrol_node(
        &mut self,
        node: &Text,
        token: &Text,
        secret: Fingerprint,
        signed: &SignedKey,
    ) -> ApplyResult {
        name::dns_subdomain(node).map_err(|rule| Invalid::new("node", rule))?;
        let joining = Joining { token, secret, node, key: signed.key };
        if self.state.admits_joining(&joining, self.now.cluster)? == Join::Again {
            self.outlast(node, signed);
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        self.require_room_for(node)?;
        let used = TokenUse { node: node.clone(), key: signed.key, at: self.now };
        if let Some(token) = self.state.join_tokens.get(token) {
            let consumed = JoinToken { used: Some(used), ..token.as_ref().clone() };
            self.put_token(consumed);
        }
        let lapses = self.lapse(node, signed, self.state.nodes.contains(node));
        self.put_credential(Credential::enrolled(node.clone(), *signed, lapses));
        self.tell(EventType::Normal, node, NODE_ENROLLED, format!("joined with token {token}"));
        Ok(self.receipt(ReceiptEffect::Created))
    }

    /// `from` is the key by which the node asks; `late` says that its certificate had expired.
    pub(crate) fn renew_credential(
        &mut self,
        node: &Text,
        from: Fingerprint,
        signed: &SignedKey,
        late: bool,
    ) -> ApplyResult {
        name::dns_subdomain(node).map_err(|rule| Invalid::new("node", rule))?;
        self.state.admits_key(node, &from)?;
        if self.state.credentials.get(node).is_some_and(|known| known.key == Some(signed.key) && from != signed.key) {
            self.outlast(node, signed);
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        if from == signed.key {
            return Err(Invalid::new("csr", "asks for the key that the node has: a renewal needs a new one").into());
        }
        self.require_room_for(node)?;
        let known = self.state.credentials.get(node).cloned();
        let lapses = self.lapse(node, signed, true);
        self.put_credential(Credential::renewed(node.clone(), known.as_deref(), from, *signed, lapses));
        if late {
            let message = "renewed its certificate after it had expired".to_owned();
            self.tell(EventType::Warning, node, RENEWED_LATE, message);
        }
        Ok(self.receipt(ReceiptEffect::Changed))
    }

    /// The node came with its newest key, so the one before it is no longer valid.
    pub(crate) fn confirm_credential(&mut self, node: &Text, key: Fingerprint) -> ApplyResult {
        self.state.admits_key(node, &key)?;
        if !self.state.awaits_confirmation(node, &key) {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        if let Some(known) = self.state.credentials.get(node) {
            let confirmed = Credential { previous: None, ..known.as_ref().clone() };
            self.put_credential(confirmed);
        }
        Ok(self.receipt(ReceiptEffect::Changed))
    }

    /// A name may be revoked even if no node has it: the certificate of a node need not come from this cluster.
    pub(crate) fn revoke_node(&mut self, origin: &Origin, node: &Text) -> ApplyResult {
        name::dns_subdomain(node).map_err(|rule| Invalid::new("name", rule))?;
        self.require_room_for(node)?;
        let known = self.state.credentials.get(node).map(|known| known.as_ref().clone());
        let known = known.unwrap_or_else(|| Credential::unsigned(node.clone()));
        // An operator may have made a certificate by hand, as late as now.
        let lapses = known.lapses.max(later(self.now.cluster, BY_HAND_LIFE));
        if known.revoked.is_some() {
            self.put_credential(Credential { lapses, ..known });
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        let by = Text::from(origin.to_string());
        let revoked = Some(Revocation { at: self.now, by: by.clone() });
        let credential = Credential { revoked, lapses, ..known };
        let is_nobody = credential.key.is_none() && !self.state.nodes.contains(node);
        self.put_credential(credential);
        self.revoke_tokens_for(node);
        self.tell(EventType::Warning, node, NODE_REVOKED, format!("its credentials were revoked by {by}"));
        // An operator who mistypes a name should hear that no node has it.
        Ok(self.receipt(if is_nobody { ReceiptEffect::Created } else { ReceiptEffect::Changed }))
    }

    /// A token that is still on the machine must not bring it back.
    fn revoke_tokens_for(&mut self, node: &Text) {
        let open = self.state.join_tokens.iter().filter(|token| token.used.is_none() && token.revoked.is_none());
        let meant: Vec<_> = open.filter(|token| token.node.as_ref() == Some(node)).cloned().collect();
        for token in meant {
            self.put_token(JoinToken { revoked: Some(self.now), ..token.as_ref().clone() });
        }
    }

    /// Forgets the names of nodes that are gone, once no certificate for them is good for anything.
    pub(crate) fn forget_credentials(&mut self, names: &[Text]) -> ApplyResult {
        if names.len() > FORGOTTEN_MAX {
            return Err(Rejection::LimitReached {
                what: Text::from("names in one entry"),
                limit: FORGOTTEN_MAX as u64,
            });
        }
        let now = self.now.cluster;
        let due: Vec<_> = names.iter().filter(|name| self.state.is_forgettable(name, now)).collect();
        due.iter().for_each(|name| self.forget_credential(name));
        Ok(self.receipt(if due.is_empty() { ReceiptEffect::Unchanged } else { ReceiptEffect::Deleted }))
    }

    /// When everything that was ever signed for a node has expired. If the node is known but has no record yet, its
    /// certificate may have been made by hand.
    fn lapse(&self, node: &Text, signed: &SignedKey, is_known: bool) -> ClusterTime {
        let lapses = signed.lapses(self.now);
        match self.state.credentials.get(node) {
            Some(known) => lapses.max(known.lapses),
            None if is_known => lapses.max(later(self.now.cluster, BY_HAND_LIFE)),
            None => lapses,
        }
    }

    /// The answer is signed anew, and may last longer than the one that was lost.
    fn outlast(&mut self, node: &Text, signed: &SignedKey) {
        let lapses = self.lapse(node, signed, true);
        if let Some(known) = self.state.credentials.get(node).filter(|known| known.lapses < lapses) {
            let known = known.as_ref().clone();
            self.put_credential(Credential { lapses, ..known });
        }
    }

    /// A refusal changes nothing, but it is worth an event.
    pub(crate) fn note_refusal(&mut self, node: &Text, why: &Text) -> ApplyResult {
        name::dns_subdomain(node).map_err(|rule| Invalid::new("node", rule))?;
        self.tell(EventType::Warning, node, ENROLMENT_REFUSED, Text::clipped(why, WHY_MAX).to_string());
        Ok(self.receipt(ReceiptEffect::Unchanged))
    }

    fn require_room_for(&self, node: &Text) -> Result<(), Rejection> {
        let credentials = &self.state.credentials;
        if !credentials.contains(node) && credentials.len() >= CREDENTIALS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("credentials"), limit: CREDENTIALS_MAX as u64 });
        }
        Ok(())
    }

    fn put_token(&mut self, token: JoinToken) {
        self.touch::<JoinToken>(&token.id);
        self.state.join_tokens.insert(Arc::new(token));
    }

    fn forget_token(&mut self, id: &Text) {
        self.touch::<JoinToken>(id);
        self.state.join_tokens.remove(id);
    }

    fn put_credential(&mut self, credential: Credential) {
        self.touch::<Credential>(&credential.node);
        self.state.insert_credential(credential);
    }

    fn forget_credential(&mut self, node: &Text) {
        self.touch::<Credential>(node);
        self.state.remove_credential(node);
    }

    /// The node need not exist yet.
    fn tell(&mut self, event_type: EventType, node: &Text, reason: &str, message: String) {
        let note = Note { event_type, reason, message, source: EVENT_SOURCE };
        self.record_event(self.subject_of(node), note);
    }

    fn subject_of(&self, node: &Text) -> Subject {
        self.state.nodes.get(node).map_or_else(|| subject("Node", node), |known| node_subject(known))
    }
}

fn after(now: Stamp, ttl: Duration) -> Stamp {
    let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let cluster: ClusterTime = later(now.cluster, ttl);
    Stamp { cluster, wall: WallTime(now.wall.0.saturating_add(millis)) }
}
