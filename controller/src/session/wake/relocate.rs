//! Sends agents to other replicas while this one cannot pass on what it hears.
//!
//! Their streams stay open: an agent leaves when another replica has accepted it, and not before. While the trouble
//! lasts they are asked again, at growing intervals.
//!
//! A replica that is merely slow is no reason to go while others wait at its door, or when no other is known to be
//! quicker: agents that leave a busy replica for a busy one make both busier.

use std::time::Duration;

use tokio::time::sleep;

use crate::hearing::contact::CONTACT_LOST;
use crate::session::Sessions;
use crate::session::wake::entry::Signal;
use crate::session::wake::following::ring_all;

/// A canary that was late for a moment is no reason yet.
const SLOW_FOR: Duration = Duration::from_secs(10);
/// How old a peer's word that it is well may be.
const PEER_WORD_MAX: Duration = Duration::from_secs(3);

const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// Until agents are asked again, doubling.
const AGAIN_FIRST: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Asks agents to move whenever they should, for ever.
pub(crate) async fn run(sessions: &Sessions) {
    loop {
        let mut again = AGAIN_FIRST;
        while let Some(why) = sessions.why_move() {
            tracing::warn!(why, "agents are asked to attach elsewhere");
            ring_all(sessions, Signal::Move).await;
            wait_or_recover(sessions, again).await;
            again = (again * 2).min(AGAIN_MAX);
        }
        sleep(LOOK_PERIOD).await;
    }
}

async fn wait_or_recover(sessions: &Sessions, pause: Duration) {
    let mut waited = Duration::ZERO;
    while waited < pause && sessions.why_move().is_some() {
        sleep(LOOK_PERIOD).await;
        waited += LOOK_PERIOD;
    }
}

impl Sessions {
    /// Why agents are better off elsewhere, if they are.
    pub(crate) fn why_move(&self) -> Option<String> {
        if let Some(lost) = self.contact().lost_for().filter(|lost| *lost >= CONTACT_LOST) {
            return Some(format!("this replica has had no contact to a leader for {:.0} s", lost.as_secs_f64()));
        }
        let late = Lateness {
            canary: self.hearing().canary_late_for(),
            queue: self.hearing().handshakes().queued(),
            another_is_well: self.hearing().another_is_well(PEER_WORD_MAX),
        };
        late.is_reason().then(|| "this replica is slow: its own beat through its own door is late".to_owned())
    }
}

/// What is known when the own canary is late.
struct Lateness {
    canary: Option<Duration>,
    /// Agents wait at the door, so what is late may be the queue.
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
    fn a_late_canary_sends_agents_away_only_where_they_are_better_off() {
        let is_reason = |late_secs: Option<u64>, queue, another_is_well| {
            let canary = late_secs.map(Duration::from_secs);
            Lateness { canary, queue, another_is_well }.is_reason()
        };
        assert!(is_reason(Some(10), false, true));
        assert!(!is_reason(Some(9), false, true), "for a moment only");
        assert!(!is_reason(Some(60), true, true), "the queue at the door may be why");
        assert!(!is_reason(Some(60), false, false), "nobody is known to be quicker");
        assert!(!is_reason(None, false, true));
    }
}
