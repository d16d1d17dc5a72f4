//! Sends agents to other replicas while this one cannot pass on what it hears.
//!
//! Their streams stay open: an agent leaves when another replica has accepted it, and not before. While the trouble
//! lasts they are asked again, at growing intervals.

use std::time::Duration;

use tokio::time::sleep;

use crate::hearing::contact::CONTACT_LOST;
use crate::session::Sessions;
use crate::session::entry::Signal;
use crate::session::following::ring_all;

const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// Until agents are asked again, doubling.
const AGAIN_FIRST: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Asks agents to move whenever they should, for ever.
pub(super) async fn run(sessions: &Sessions) {
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
    pub(super) fn why_move(&self) -> Option<String> {
        if let Some(lost) = self.contact().lost_for().filter(|lost| *lost >= CONTACT_LOST) {
            return Some(format!("this replica has had no contact to a leader for {:.0} s", lost.as_secs_f64()));
        }
        let late = self.hearing().canary_late();
        late.then(|| "this replica is slow: its own beat through its own door is late".to_owned())
    }
}
