//! A guard rail: agents with a TLS connection each, and one replica dies for good. Those that it served are elsewhere
//! before anybody misses them; how fast they come says how many a replica may serve.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::calm::{Calm, Disturbance};
use crate::comeback::{Comeback, Present};
use crate::figure::grouped;
use crate::load::agents::{Agents, RETRY_CAP};
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::{Meter, Usage};

const SCENARIO: &str = "bereft";
const GUARD: &str = "guard";
/// For which it is told how many agents a replica may serve.
const USUAL_GRACE: Duration = Duration::from_secs(40);
const USUAL_INTERVAL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(180);
/// Beyond another grace: by then whoever is falsely held for lost would have been.
const WATCH_ON: Duration = Duration::from_secs(3);

/// What the comeback came to.
struct Measured {
    agents: usize,
    grace: Duration,
    /// Agents of the replica that died.
    bereft: usize,
    seconds: f64,
    /// Connections that were begun meanwhile, also in vain.
    attempts: usize,
    disturbance: Disturbance,
    usage: Usage,
    timeline: Timeline,
}

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (count, grace) = (setting.nodes(300, 18_000), GRACE.of(setting.scale));
    let stage = Stage::set(setting, &GRACE.flags(setting.scale)).await?;
    ensure!(stage.cluster.is_own(), "a replica is killed for good: leave out --dir, a cluster is started for it");
    stage.registered(count).await?;
    let agents = Agents::start(&stage.doors, count, stage.instance)?;
    agents.beat(count as f64 / (grace / 4).as_secs_f64());
    agents.wait_attached(count).await?;
    stage.on_duty(count).await?;
    agents.rush();
    Ok(measure(&stage, &agents, grace).await?.outcome())
}

async fn measure(stage: &Stage, agents: &Agents, grace: Duration) -> Result<Measured> {
    let calm = Calm::watch(&stage.client).await?;
    let door = (0..stage.doors.count()).find(|door| Some(stage.doors.replica(*door)) != calm.leader());
    let door = door.context("there is no follower")?;
    let (bereft, attempts) = (agents.attached_at(door), agents.attempts());
    let (meter, began, mut timeline) = (Meter::start(&stage.processes()?), Instant::now(), Timeline::default());
    timeline.push("attached", "agents", 0.0, agents.attached() as f64);
    let replica = stage.doors.replica(door);
    progress::say(format_args!("kill -9 of replica {replica}, which follows and serves {bereft} agents"));
    stage.cluster.kill(replica)?;
    let since = Instant::now();
    let comeback = Comeback { name: "attached", unit: "agents", since, began, patience: PATIENCE };
    let present = || {
        // Those who have not noticed yet are the dead replica's.
        let (gone, count) = (agents.attached_at(door) == 0, agents.attached());
        Present { count, complete: gone && count == agents.count }
    };
    let seconds = comeback.wait(&mut timeline, present).await?;
    let attempts = agents.attempts() - attempts;
    progress::say(format_args!("all are attached again after {seconds:.1} s"));
    sleep(grace + WATCH_ON).await;
    let usage = meter.stop();
    let disturbance = calm.end(&stage.client, agents.count).await?;
    Ok(Measured { agents: agents.count, grace, bereft, seconds, attempts, disturbance, usage, timeline })
}

// === impl Measured ===

impl Measured {
    fn rate(&self) -> f64 {
        self.bereft as f64 / self.seconds.max(f64::EPSILON)
    }

    fn table(&self) -> Table {
        let title = format!(
            "{} agents with a TLS connection each, the {} of one replica lose it for good, grace {} s",
            self.agents,
            self.bereft,
            self.grace.as_secs()
        );
        let header = [
            "attached again after s",
            "handshakes/s",
            "attempts",
            "agents per replica at a grace of 40 s",
            "false verdicts",
        ];
        let mut table = Table::new(title, &header);
        table.row([
            format!("{:.1}", self.seconds),
            grouped(self.rate().round()),
            self.attempts.to_string(),
            grouped(supported(self.rate(), USUAL_GRACE - RETRY_CAP)),
            self.disturbance.condemned.to_string(),
        ]);
        table
    }

    fn finding(&self, what: &'static str, value: f64, unit: &'static str) -> Finding {
        self.detailed(Finding::new(SCENARIO, Goal::told(GUARD), what, value, unit))
    }

    fn detailed(&self, finding: Finding) -> Finding {
        finding
            .with("agents", self.agents)
            .with("connections", self.agents)
            .with("multiplexed", "nothing")
            .with("bereft", self.bereft)
            .with("attempts", self.attempts)
            .with("grace_s", self.grace.as_secs())
            .with("longest_pause_s", RETRY_CAP.as_secs())
    }

    fn outcome(self) -> Outcome {
        let rate = self.rate();
        // Whoever would have beaten next just when its replica died has been silent for an interval already.
        let strict = supported(rate, USUAL_GRACE - RETRY_CAP - USUAL_INTERVAL);
        let fleet = supported(rate, USUAL_GRACE - RETRY_CAP);
        let findings = vec![
            self.finding("until all are attached again", self.seconds, "s"),
            self.finding("handshakes in the comeback", rate, "/s"),
            self.finding("fleet per lost replica at a grace of 40 s", fleet, "agents")
                .with("if_a_beat_was_just_due", strict),
            self.detailed(self.disturbance.finding(SCENARIO)),
        ];
        let tables = vec![self.table(), self.usage.table()];
        let mut timeline = self.timeline;
        timeline.extend(self.usage.series);
        Outcome { findings, tables, timeline, faults: self.disturbance.faults, ..Outcome::default() }
    }
}

/// So many are elsewhere in time.
fn supported(rate: f64, time: Duration) -> f64 {
    (rate * time.as_secs_f64()).floor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rate_supports_leaves_out_the_pause() {
        assert_eq!(supported(1_000.0, USUAL_GRACE - RETRY_CAP), 33_000.0);
        assert_eq!(supported(0.5, Duration::from_secs(33)), 16.0);
    }

    #[test]
    fn a_comeback_is_told_in_whole() {
        let measured = Measured {
            agents: 300,
            grace: Duration::from_secs(8),
            bereft: 100,
            seconds: 2.0,
            attempts: 130,
            disturbance: Disturbance::default(),
            usage: Usage::default(),
            timeline: Timeline::default(),
        };
        assert_eq!(measured.table().rows, [["2.0", "50", "130", "1,650", "0"]]);
        let outcome = measured.outcome();
        let values: Vec<f64> = outcome.findings.iter().map(|finding| finding.value).collect();
        assert_eq!(values, [2.0, 50.0, 1_650.0, 0.0]);
        assert_eq!(outcome.findings[2].details["if_a_beat_was_just_due"], 1_150.0);
        assert!(!outcome.failed());
    }
}
