//! Invariants of join tokens and credentials.

use std::collections::BTreeSet;

use crate::object::credential::CREDENTIALS_MAX;
use crate::object::join_token::TOKENS_MAX;
use crate::state::State;
use crate::value::name;

use super::{Held, ensure};

pub(super) fn tokens_and_credentials_are_valid(state: &State) -> Held {
    let (tokens, credentials) = (state.join_tokens().len(), state.credentials().len());
    ensure(tokens <= TOKENS_MAX, || format!("{tokens} join tokens, at most {TOKENS_MAX}"))?;
    ensure(credentials <= CREDENTIALS_MAX, || format!("{credentials} credentials, at most {CREDENTIALS_MAX}"))?;
    state.join_tokens().iter().try_for_each(|token| {
        token.check().map_err(|invalid| format!("token {}: {invalid}", token.id))?;
        let meant = token.used.as_ref().zip(token.node.as_ref());
        let astray = meant.is_some_and(|(used, node)| used.node != *node);
        ensure(!astray, || format!("token {} was used by another node than it was for", token.id))
    })?;
    state.credentials().iter().try_for_each(|credential| {
        let node = &credential.node;
        name::dns_subdomain(node).map_err(|rule| format!("credential {node}: {rule}"))?;
        let has_key = credential.key.is_some() || credential.revoked.is_some();
        ensure(has_key, || format!("credential {node} has no key and is not revoked"))?;
        let twice = credential.previous.is_some() && credential.previous == credential.key;
        ensure(!twice, || format!("credential {node} has the same key twice"))
    })
}

pub(super) fn expired_credentials_equal_recomputation(state: &State) -> Held {
    let without_node = state.credentials().iter().filter(|credential| !state.nodes().contains(&credential.node));
    let recomputed: BTreeSet<_> =
        without_node.map(|credential| (credential.forgettable_from(), &credential.node)).collect();
    let kept: BTreeSet<_> = state.expired_credentials().collect();
    ensure(kept == recomputed, || format!("kept {kept:?}, recomputed {recomputed:?}"))
}
