//! The duties and doors under way, each by its name.
//!
//! None of them has an end of its own. If one ends all the same, or panics, the replica still answers but is blind or
//! mute in one respect, and no caller notices. So its end is an error of the whole replica.

use std::future::Future;

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::{Id, JoinError, JoinSet};

/// The set of running duties. Its size is the number of duties begun.
#[derive(Default)]
pub(crate) struct Performed {
    tasks: JoinSet<()>,
    names: Vec<(Id, &'static str)>,
}

/// A duty ended, although the replica was not told to stop.
#[derive(Debug, Error)]
#[error("{duty} {how}, and a replica must not go on without it: restart it, as systemd does")]
pub struct Abandoned {
    duty: &'static str,
    how: How,
}

#[derive(Debug, Error)]
enum How {
    #[error("ended by itself")]
    Ended,
    #[error("died ({0})")]
    Died(JoinError),
}

// === impl Performed ===

impl Performed {
    /// `duty` is its name for operators.
    pub(crate) fn begin(&mut self, duty: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(work).id();
        self.names.push((id, duty));
    }

    /// The same on another runtime.
    pub(crate) fn begin_on(
        &mut self,
        threads: &Handle,
        duty: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.tasks.spawn_on(work, threads).id();
        self.names.push((id, duty));
    }

    /// The first duty that ended. Pending while all of them run.
    pub(crate) async fn abandoned(&mut self) -> Abandoned {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => Abandoned { duty: self.name(id), how: How::Ended },
            Some(Err(error)) => Abandoned { duty: self.name(error.id()), how: How::Died(error) },
            None => std::future::pending().await,
        }
    }

    /// Waits until all have ended, after they were told to.
    pub(crate) async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn name(&self, id: Id) -> &'static str {
        self.names.iter().find(|(known, _)| *known == id).map_or("a duty", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_duty_that_ends_early_is_named_with_a_remedy() {
        let mut performed = performing("leading");
        performed.begin("the canary", async {});
        assert_eq!(
            abandoned(&mut performed).await,
            "the canary ended by itself, and a replica must not go on without it: restart it, as systemd does"
        );
    }

    #[tokio::test]
    async fn a_duty_that_panics_is_named_with_its_panic() {
        let mut performed = performing("leading");
        performed.begin("the exchange", async { panic!("injected panic") });
        let said = abandoned(&mut performed).await;
        assert!(said.starts_with("the exchange died (") && said.contains("injected panic"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_reported_while_all_duties_run() {
        let mut performed = performing("leading");
        assert!(timeout(PATIENCE, performed.abandoned()).await.is_err());
        assert!(timeout(PATIENCE, Performed::default().abandoned()).await.is_err());
    }

    #[tokio::test]
    async fn duties_that_were_told_to_end_are_awaited() {
        let (mut performed, (tell, told)) = (Performed::default(), tokio::sync::oneshot::channel::<()>());
        performed.begin("leading", async { drop(told.await) });
        tell.send(()).unwrap();
        timeout(PATIENCE, performed.all_ended()).await.unwrap();
    }

    fn performing(duty: &'static str) -> Performed {
        let mut performed = Performed::default();
        performed.begin(duty, std::future::pending());
        performed
    }

    async fn abandoned(performed: &mut Performed) -> String {
        timeout(PATIENCE, performed.abandoned()).await.unwrap().to_string()
    }
}
