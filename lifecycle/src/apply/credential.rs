//! Commands about credentials: which key speaks for a node, and which nodes are shut out.

use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, ReceiptEffect};
use crate::object::credential::{BY_HAND_LIFE, CREDENTIALS_MAX, Credential, FORGOTTEN_MAX, Revocation, SignedKey};
use crate::object::event::NodeHappening;
use crate::rejection::{Limit, Rejection};
use crate::value::fingerprint::Fingerprint;
use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, later};
use crate::value::violation::AccessViolation;

impl Application<'_> {
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
            return Err(Invalid::new("csr", AccessViolation::SameKey).into());
        }
        self.require_room_for(node)?;
        let known = self.state.credentials.get(node).cloned();
        let lapses = self.lapse(node, signed, true);
        self.put_credential(Credential::renewed(node.clone(), known.as_deref(), from, *signed, lapses));
        if late {
            self.tell(node, NodeHappening::ExpiredCertificateRenewed);
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
        let by = origin.author();
        let revoked = Some(Revocation { at: self.now, by: by.clone() });
        let credential = Credential { revoked, lapses, ..known };
        let is_unknown = credential.key.is_none() && !self.state.nodes.contains(node);
        self.put_credential(credential);
        self.revoke_tokens_for(node);
        self.tell(node, NodeHappening::Revoked { by });
        // An operator who mistypes a name should hear that no node has it.
        Ok(self.receipt(if is_unknown { ReceiptEffect::Created } else { ReceiptEffect::Changed }))
    }

    /// Forgets the names of nodes that are gone, once no certificate for them is good for anything.
    pub(crate) fn forget_credentials(&mut self, names: &[Text]) -> ApplyResult {
        if names.len() > FORGOTTEN_MAX {
            return Err(Rejection::limit(Limit::NamesPerEntry, FORGOTTEN_MAX));
        }
        let now = self.now.cluster;
        let due: Vec<_> = names.iter().filter(|name| self.state.is_forgettable(name, now)).collect();
        due.iter().for_each(|name| self.forget_credential(name));
        Ok(self.receipt(if due.is_empty() { ReceiptEffect::Unchanged } else { ReceiptEffect::Deleted }))
    }

    /// When everything that was ever signed for a node has expired. If the node is known but has no record yet, its
    /// certificate may have been made by hand.
    pub(crate) fn lapse(&self, node: &Text, signed: &SignedKey, is_known: bool) -> ClusterTime {
        let lapses = signed.lapses(self.now);
        match self.state.credentials.get(node) {
            Some(known) => lapses.max(known.lapses),
            None if is_known => lapses.max(later(self.now.cluster, BY_HAND_LIFE)),
            None => lapses,
        }
    }

    /// The answer is signed anew, and may last longer than the one that was lost.
    pub(crate) fn outlast(&mut self, node: &Text, signed: &SignedKey) {
        let lapses = self.lapse(node, signed, true);
        if let Some(known) = self.state.credentials.get(node).filter(|known| known.lapses < lapses) {
            let known = known.as_ref().clone();
            self.put_credential(Credential { lapses, ..known });
        }
    }

    pub(crate) fn require_room_for(&self, node: &Text) -> Result<(), Rejection> {
        let credentials = &self.state.credentials;
        if !credentials.contains(node) && credentials.len() >= CREDENTIALS_MAX {
            return Err(Rejection::limit(Limit::Credentials, CREDENTIALS_MAX));
        }
        Ok(())
    }

    pub(crate) fn put_credential(&mut self, credential: Credential) {
        self.touch::<Credential>(&credential.node);
        self.state.insert_credential(credential);
    }

    fn forget_credential(&mut self, node: &Text) {
        self.touch::<Credential>(node);
        self.state.remove_credential(node);
    }
}
