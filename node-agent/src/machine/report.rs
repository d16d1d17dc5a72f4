//! Machine report: whether the cluster has been told what this machine is. It is sent once per process, after the first
//! welcome (RG-4).
//!
//! A registration contains the report. A known node is welcomed as it was, perhaps registered by a former process with
//! other labels, so its agent reports what the machine is now; the cluster decides whether that is a change. A machine
//! that does not register reports nothing, as its operator wanted.

use std::time::Duration;

use tokio::time::Instant;

/// An unanswered or refused report is sent again after this time, up to half of it earlier or later.
const RETRY_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineReport {
    /// When to send it; none once the cluster has it.
    due: Option<Instant>,
}

impl MachineReport {
    pub(crate) fn new(registers: bool, now: Instant) -> Self {
        Self { due: registers.then_some(now) }
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// It was sent or refused; `dice` is drawn from 0 to 1.
    pub(crate) fn put_off(&mut self, now: Instant, dice: f64) {
        self.due = self.due.map(|_| now + RETRY_AFTER.mul_f64(0.5 + dice.clamp(0.0, 1.0)));
    }

    pub(crate) fn known(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rg_4_the_machine_report_is_sent_once_and_again_only_if_not_accepted() {
        let now = Instant::now();
        let mut machine_report = MachineReport::new(true, now);
        assert!(machine_report.is_due(now));
        machine_report.put_off(now, 0.5);
        assert_eq!((machine_report.is_due(now), machine_report.due()), (false, Some(now + RETRY_AFTER)));
        machine_report.known();
        machine_report.put_off(now, 0.5);
        assert_eq!(machine_report.due(), None, "an answer that comes late changes nothing");
    }

    #[tokio::test]
    async fn rg_4_a_machine_that_does_not_register_reports_nothing() {
        assert_eq!(MachineReport::new(false, Instant::now()).due(), None);
    }
}
