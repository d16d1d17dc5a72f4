//! Enrolment: a machine joins with a token, or is not let in.

use std::net::SocketAddr;

use crate::apply::{Application, ApplyResult};
use crate::command::ReceiptEffect;
use crate::object::credential::{Credential, Distrust, Join, Joining, SignedKey};
use crate::object::event::NodeHappening;
use crate::object::join_token::{JoinToken, TokenUse};
use crate::object::record::part_len;
use crate::rejection::{Limit, Rejection};
use crate::value::fingerprint::Fingerprint;
use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;

/// A refusal is a few names; more would fill the events.
const REFUSAL_BYTES_MAX: usize = 1024;

impl Application<'_> {
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
        self.tell(node, NodeHappening::Enrolled { token: token.clone() });
        Ok(self.receipt(ReceiptEffect::Created))
    }

    /// A refusal changes nothing, but it is worth an event.
    pub(crate) fn note_refusal(&mut self, node: &Text, remote: SocketAddr, why: &Distrust) -> ApplyResult {
        name::dns_subdomain(node).map_err(|rule| Invalid::new("node", rule))?;
        if part_len(why) > REFUSAL_BYTES_MAX {
            return Err(Rejection::limit(Limit::ReasonBytes, REFUSAL_BYTES_MAX));
        }
        self.tell(node, NodeHappening::EnrolmentRefused { remote, why: Box::new(why.clone()) });
        Ok(self.receipt(ReceiptEffect::Unchanged))
    }
}
