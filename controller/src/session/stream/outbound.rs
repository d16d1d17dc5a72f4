//! Outbound messages of one agent, coalesced: the newest of each kind, most urgent first.
//!
//! An agent that does not read fills its queue of a few messages. Later messages wait here and coalesce, so that a
//! stuck agent costs the same as any other.

use muster_proto::v1;
use muster_proto::v1::server_message::Message as Down;

#[derive(Debug, Default)]
pub(super) struct Outbound {
    removed: Option<v1::Removed>,
    registration: Option<String>,
    welcome: Option<Box<v1::Welcome>>,
    moving: Option<String>,
    acknowledged: Option<u64>,
    taken: Option<v1::StatusTaken>,
    status_wanted: Option<u64>,
    terms: Option<v1::Terms>,
    pods_taken: Option<v1::PodsTaken>,
    registered: Option<v1::Registered>,
    /// There may be orders to give; they are worked out when there is room for them.
    orders: bool,
}

// === impl Outbound ===

impl Outbound {
    pub(super) fn is_waiting(&self) -> bool {
        let Self { removed, registration, welcome, moving, acknowledged, taken, status_wanted, terms, .. } = self;
        removed.is_some()
            || registration.is_some()
            || welcome.is_some()
            || moving.is_some()
            || acknowledged.is_some()
            || taken.is_some()
            || status_wanted.is_some()
            || terms.is_some()
            || self.pods_taken.is_some()
            || self.registered.is_some()
            || self.orders
    }

    /// The state of the node's pods may call for orders.
    pub(super) fn add_orders(&mut self) {
        self.orders = true;
    }

    pub(super) fn add(&mut self, message: Down) {
        match message {
            Down::Welcome(welcome) => self.welcome = Some(Box::new(welcome)),
            Down::RegistrationWanted(wanted) => {
                self.forget_former_life();
                self.registration = Some(wanted.why);
            }
            Down::Terms(terms) => self.terms = Some(terms),
            Down::StatusWanted(wanted) => self.status_wanted = Some(wanted.revision),
            Down::Acknowledged(acknowledged) => self.acknowledged = Some(acknowledged.sequence),
            Down::StatusTaken(taken) => self.taken = Some(taken),
            Down::Move(moving) => self.moving = Some(moving.why),
            Down::Removed(removed) => {
                self.forget_former_life();
                self.removed = Some(removed);
            }
            Down::PodsTaken(taken) => self.pods_taken = Some(taken),
            Down::Registered(registered) => self.registered = Some(registered),
            Down::Pods(_) => self.orders = true,
        }
    }

    /// The next message. Orders come last, one message after the other until there are no more.
    pub(super) fn next_or(&mut self, orders: impl FnOnce() -> Option<Down>) -> Option<v1::ServerMessage> {
        self.next().or_else(|| {
            let orders = if std::mem::take(&mut self.orders) { orders() } else { None };
            self.orders = orders.is_some();
            orders.map(server_message)
        })
    }

    fn next(&mut self) -> Option<v1::ServerMessage> {
        let removed = self.removed.take().map(Down::Removed);
        let message = removed
            .or_else(|| self.registration.take().map(|why| Down::RegistrationWanted(v1::RegistrationWanted { why })))
            .or_else(|| self.welcome.take().map(|welcome| Down::Welcome(*welcome)))
            .or_else(|| self.moving.take().map(|why| Down::Move(v1::Move { why })))
            .or_else(|| self.acknowledged.take().map(|sequence| Down::Acknowledged(v1::Acknowledged { sequence })))
            .or_else(|| self.pods_taken.take().map(Down::PodsTaken))
            .or_else(|| self.taken.take().map(Down::StatusTaken))
            .or_else(|| self.registered.take().map(Down::Registered))
            .or_else(|| self.status_wanted.take().map(|revision| Down::StatusWanted(v1::StatusWanted { revision })))
            .or_else(|| self.terms.take().map(Down::Terms));
        message.map(server_message)
    }

    /// Drops the messages about a node that is gone.
    fn forget_former_life(&mut self) {
        self.welcome = None;
        self.taken = None;
        self.status_wanted = None;
        self.pods_taken = None;
        self.registered = None;
        self.orders = false;
    }
}

pub(super) fn server_message(message: Down) -> v1::ServerMessage {
    v1::ServerMessage { message: Some(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_terms_win_and_a_move_is_sent_first() {
        let mut outbound = Outbound::default();
        assert!(!outbound.is_waiting());
        let terms = |revision| Down::Terms(v1::Terms { revision, ..Default::default() });
        outbound.add(terms(1));
        outbound.add(Down::StatusWanted(v1::StatusWanted { revision: 1 }));
        outbound.add(terms(2));
        outbound.add(Down::Move(v1::Move { why: "w".into() }));
        let told: Vec<Down> = std::iter::from_fn(|| outbound.next()).filter_map(|message| message.message).collect();
        let wanted =
            [Down::Move(v1::Move { why: "w".into() }), Down::StatusWanted(v1::StatusWanted { revision: 1 }), terms(2)];
        assert_eq!(told, wanted);
        assert!(!outbound.is_waiting());
    }

    #[test]
    fn a_removal_drops_messages_about_the_removed_node() {
        let mut outbound = Outbound::default();
        outbound.add(Down::StatusWanted(v1::StatusWanted { revision: 1 }));
        outbound.add(Down::StatusTaken(v1::StatusTaken::default()));
        outbound.add(Down::Removed(v1::Removed { incarnation: 3, revision: 9 }));
        assert_eq!(outbound.next().unwrap().message, Some(Down::Removed(v1::Removed { incarnation: 3, revision: 9 })));
        assert_eq!(outbound.next(), None);
    }
}
