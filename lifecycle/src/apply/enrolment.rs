//! Enrolment: a machine joins with a token, or is not let in.

use crate::apply::{Application, ApplyResult};
use crate::command::ReceiptEffect;
use crate::object::credential::{Credential, Join, Joining, NODE_ENROLLED, SignedKey};
use crate::object::event::EventType;
use crate::object::join_token::{JoinToken, TokenUse};
use crate::value::fingerprint::Fingerprint;
use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;

const ENROLMENT_REFUSED: &str = "EnrolmentRefused";

/// How much of a reason an event keeps.
const WHY_MAX: usize = 512;

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
        self.tell(EventType::Normal, node, NODE_ENROLLED, format!("joined with token {token}"));
        Ok(self.receipt(ReceiptEffect::Created))
    }

    /// A refusal changes nothing, but it is worth an event.
    pub(crate) fn note_refusal(&mut self, node: &Text, why: &Text) -> ApplyResult {
        name::dns_subdomain(node).map_err(|rule| Invalid::new("node", rule))?;
        self.tell(EventType::Warning, node, ENROLMENT_REFUSED, Text::clipped(why, WHY_MAX).to_string());
        Ok(self.receipt(ReceiptEffect::Unchanged))
    }
}
