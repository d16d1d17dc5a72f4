//! Relocation of agents to other replicas while this one cannot pass on what it hears.
//!
//! The streams stay open: an agent leaves when another replica has accepted it, and not before. While the trouble lasts
//! the agents are asked again, at growing intervals.
//!
//! A replica that is merely slow sends no agent away while others wait at its door, or when no other replica is known
//! to be quicker: agents that leave a busy replica for a busy one make both busier.

use std::time::Duration;

use tokio::time::sleep;

use crate::hearing::Hearing;
use crate::hearing::contact::{CONTACT_LOST, Contact};
use crate::session::wake::entry::Signal;
use crate::session::wake::registry::Registry;

/// How long the canary must be late: a short lateness is no reason to relocate.
const SLOW_FOR: Duration = Duration::from_secs(10);
/// The maximum age of a peer's report that it is well.
const PEER_WORD_MAX: Duration = Duration::from_secs(3);

const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// The pause until agents are asked again; it doubles.
const AGAIN_FIRST: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Decides whether agents are better off at another replica.
pub(crate) struct Relocation {
    contact: Contact,
    hearing: Hearing,
}

// === impl Relocation ===

impl Relocation {
    pub(crate) fn new(contact: Contact, hearing: Hearing) -> Self {
        Self { contact, hearing }
    }

    /// Asks agents to move whenever they should, for ever.
    pub(crate) async fn run(&self, registry: &Registry) {
        loop {
            let mut again = AGAIN_FIRST;
            while let Some(why) = self.reason() {
                tracing::warn!(why, "agents are asked to attach elsewhere");
                registry.signal_gradually(Signal::Relocate).await;
                self.wait_or_recover(again).await;
                again = (again * 2).min(AGAIN_MAX);
            }
            sleep(LOOK_PERIOD).await;
        }
    }

    /// Whether what this replica hears reaches the leader.
    pub(crate) fn is_in_contact(&self) -> bool {
        self.contact.lost_for().is_none()
    }

    /// Why agents are better off elsewhere, if they are.
    pub(crate) fn reason(&self) -> Option<String> {
        if let Some(lost) = self.contact.lost_for().filter(|lost| *lost >= CONTACT_LOST) {
            return Some(format!("this replica has had no contact to a leader for {:.0} s", lost.as_secs_f64()));
        }
        let late = Lateness {
            canary: self.hearing.canary_late_for(),
            queue: self.hearing.handshakes().queued(),
            another_is_well: self.hearing.another_is_well(PEER_WORD_MAX),
        };
        late.is_reason().then(|| "this replica is slow: its own beat through its own door is late".to_owned())
    }

    async fn wait_or_recover(&self, pause: Duration) {
        let mut waited = Duration::ZERO;
        while waited < pause && self.reason().is_some() {
            sleep(LOOK_PERIOD).await;
            waited += LOOK_PERIOD;
        }
    }
}

/// The facts that are known when the own canary is late.
struct Lateness {
    canary: Option<Duration>,
    /// Agents wait at the door, so the queue may cause the lateness.
    queue: bool,
    another_is_well: bool,
}

// === impl Lateness ===

impl Lateness {
    fn is_reason(&self) -> bool {
        self.canary.is_some_and(|late| late >= SLOW_FOR) && !self.queue && self.another_is_well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_canary_moves_agents_only_if_another_replica_is_healthy() {
        let is_reason = |late_secs: Option<u64>, queue, another_is_well| {
            let canary = late_secs.map(Duration::from_secs);
            Lateness { canary, queue, another_is_well }.is_reason()
        };
        assert!(is_reason(Some(10), false, true));
        assert!(!is_reason(Some(9), false, true), "for a moment only");
        assert!(!is_reason(Some(60), true, true), "the queue at the door may be why");
        assert!(!is_reason(Some(60), false, false), "no other replica is known to be quicker");
        assert!(!is_reason(None, false, true));
    }
}
