//! Readiness of this replica: whether it is fit to be sent requests, and if not, why not.

use std::time::Duration;

use muster_lifecycle::replica::ReplicaId;
use muster_raft::disk_health::DiskTrouble;

/// Equal to the time after which agents are told to move.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);

/// One readiness check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// What is wrong, if anything is.
    pub outcome: Result<(), String>,
}

// === impl Check ===

impl Check {
    /// A replica that knows no leader can neither take writes nor promise that its reads are fresh.
    pub fn leader(leader: Option<ReplicaId>) -> Self {
        let reason = "no leader is known; if this lasts, see with `muster status` which replicas do not answer";
        Self { name: "leader", outcome: leader.map(|_| ()).ok_or_else(|| reason.to_owned()) }
    }

    /// A leader that has lost every other replica still believes that it leads, and a follower still believes in its
    /// leader. So it also matters how long ago a quorum (for a leader) or the leader (for a follower) was last heard.
    pub fn contact(silence: Option<Duration>) -> Self {
        let outcome = match silence {
            Some(silence) if silence <= SILENCE_LIMIT => Ok(()),
            Some(silence) => Err(format!("cut off from the other replicas for {} s", silence.as_secs())),
            None => Err("no other replica has been heard yet".into()),
        };
        Self { name: "contact", outcome }
    }

    /// A replica that went back in time, diverged, differs from another one or panicked on an entry is not fit.
    pub fn standing(trouble: Option<String>) -> Self {
        Self { name: "standing", outcome: trouble.map_or(Ok(()), Err) }
    }

    /// A follower whose disk takes no writes falls behind, so its reads cannot be fresh; a leader's writes wait or
    /// fail.
    pub fn disk(trouble: Option<&DiskTrouble>) -> Self {
        Self { name: "disk", outcome: trouble.map_or(Ok(()), |trouble| Err(trouble.to_string())) }
    }

    /// A leader whose supervision tree does not grow judges no node. A replica that does not lead is not asked to.
    pub fn judging(leads: bool, trouble: Option<String>) -> Self {
        let reason = |trouble| {
            format!(
                "this replica leads and judges no node: {trouble}; it hands leadership over as soon as another replica \
                 can lead: see with `muster status` which replicas do not answer"
            )
        };
        Self { name: "judging", outcome: trouble.filter(|_| leads).map_or(Ok(()), |trouble| Err(reason(trouble))) }
    }

    pub(super) fn passed(&self) -> bool {
        self.outcome.is_ok()
    }

    /// In the format of Kubernetes' health endpoints.
    fn line(&self) -> String {
        match &self.outcome {
            Ok(()) => format!("[+]{} ok\n", self.name),
            Err(reason) => format!("[-]{} failed: {reason}\n", self.name),
        }
    }
}

/// All checks if detail is wanted; otherwise `ok`, or the failed checks.
pub(super) fn report(checks: &[Check], detail: bool) -> String {
    let failed = checks.iter().filter(|check| !check.passed()).count();
    let lines: String = checks.iter().filter(|check| detail || !check.passed()).map(Check::line).collect();
    match (failed, detail) {
        (0, false) => "ok\n".into(),
        (0, true) => lines + "readyz check passed\n",
        _ => lines + "readyz check failed\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_without_contact_is_not_ready_even_if_it_knows_a_leader() {
        assert!(Check::contact(Some(SILENCE_LIMIT)).passed());
        let cut_off = Check::contact(Some(SILENCE_LIMIT + Duration::from_millis(1)));
        assert_eq!(cut_off.line(), "[-]contact failed: cut off from the other replicas for 3 s\n");
        assert!(!Check::contact(None).passed());
    }

    #[test]
    fn a_replica_whose_disk_takes_no_writes_is_not_ready_and_says_why() {
        assert!(Check::disk(None).passed());
        let limit = Duration::from_secs(2);
        let trouble = DiskTrouble::Slow { location: "/data".into(), limit, lasting: Duration::from_secs(12) };
        let line = Check::disk(Some(&trouble)).line();
        assert!(line.starts_with("[-]disk failed: the disk under /data is slow: for 12 s every sync"), "{line}");
    }

    #[test]
    fn a_leader_that_cannot_judge_is_not_ready_and_says_why() {
        for (leads, trouble) in [(true, None), (false, None), (false, Some("no memory".to_owned()))] {
            assert!(Check::judging(leads, trouble).passed());
        }
        let line = Check::judging(true, Some("no memory".to_owned())).line();
        assert!(line.starts_with("[-]judging failed: this replica leads and judges no node: no memory; "), "{line}");
    }

    #[test]
    fn failed_checks_are_always_listed_and_passed_ones_on_request() {
        let disk = Check { name: "disk", outcome: Ok(()) };
        let fit = [Check::leader(Some(ReplicaId(2))), disk.clone()];
        assert_eq!(report(&fit, false), "ok\n");
        assert_eq!(report(&fit, true), "[+]leader ok\n[+]disk ok\nreadyz check passed\n");
        let unfit = [Check::leader(None), disk];
        let short = report(&unfit, false);
        assert!(short.starts_with("[-]leader failed: no leader is known") && short.ends_with("readyz check failed\n"));
        assert!(!short.contains("disk") && report(&unfit, true).contains("[+]disk ok\n"));
    }
}
