//! Commands about join tokens.

use std::sync::Arc;
use std::time::Duration;

use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, ReceiptEffect};
use crate::object::join_token::{self, JoinToken, TOKENS_MAX, TokenState};
use crate::rejection::{Limit, Rejection};
use crate::value::fingerprint::Fingerprint;
use crate::value::invalid::Invalid;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp, WallTime, later};
use crate::value::violation::AccessViolation;

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
            created_by: origin.author(),
            expires: after(self.now, ttl),
            used: None,
            revoked: None,
        };
        token.check()?;
        if self.state.join_tokens.contains(id) {
            return Err(Invalid::new("id", AccessViolation::TokenThere { id: id.clone() }).into());
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
            let ended = tokens.iter().filter(|token| token.state(now) != TokenState::Open);
            let oldest = ended.min_by_key(|token| (token.created.cluster, &token.id));
            let limit = Rejection::limit(Limit::OpenTokens, TOKENS_MAX);
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

    /// A token that is still on the machine must not bring it back.
    pub(crate) fn revoke_tokens_for(&mut self, node: &Text) {
        let open = self.state.join_tokens.iter().filter(|token| token.used.is_none() && token.revoked.is_none());
        let meant: Vec<_> = open.filter(|token| token.node.as_ref() == Some(node)).cloned().collect();
        for token in meant {
            self.put_token(JoinToken { revoked: Some(self.now), ..token.as_ref().clone() });
        }
    }

    pub(crate) fn put_token(&mut self, token: JoinToken) {
        self.touch::<JoinToken>(&token.id);
        self.state.join_tokens.insert(Arc::new(token));
    }

    fn forget_token(&mut self, id: &Text) {
        self.touch::<JoinToken>(id);
        self.state.join_tokens.remove(id);
    }
}

fn after(now: Stamp, ttl: Duration) -> Stamp {
    let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let cluster: ClusterTime = later(now.cluster, ttl);
    Stamp { cluster, wall: WallTime(now.wall.0.saturating_add(millis)) }
}
