//! Health of the pod runtime, checked on a thread of its own so that a hanging disk does not delay the session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::conditions::Readiness;

/// Between two checks.
const PAUSE: Duration = Duration::from_secs(5);
/// A check that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) type Answer = Result<(), String>;

pub(super) struct RuntimeHealth(Mutex<HealthProbe>);

struct HealthProbe {
    answer: Answer,
    at: Instant,
}

// === impl RuntimeHealth ===

impl RuntimeHealth {
    /// Checks once before it returns, and then repeatedly for as long as it is in use.
    pub(super) fn begin(ask: impl Fn() -> Answer + Send + 'static) -> std::io::Result<Arc<Self>> {
        let runtime_health = Arc::new(Self(Mutex::new(HealthProbe { answer: ask(), at: Instant::now() })));
        let asker = Arc::downgrade(&runtime_health);
        std::thread::Builder::new().name("runtime-health".into()).spawn(move || keep_asking(&asker, &ask))?;
        Ok(runtime_health)
    }

    fn answer_at(&self, now: Instant) -> Answer {
        let last = self.last();
        match now.saturating_duration_since(last.at) > TIMEOUT {
            true => Err(format!("the disk of the pods has not answered for {} s", TIMEOUT.as_secs())),
            false => last.answer.clone(),
        }
    }

    fn last(&self) -> MutexGuard<'_, HealthProbe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_asking(runtime_health: &Weak<RuntimeHealth>, ask: &impl Fn() -> Answer) {
    loop {
        std::thread::sleep(PAUSE);
        if runtime_health.strong_count() == 0 {
            return;
        }
        let answer = ask();
        let Some(runtime_health) = runtime_health.upgrade() else { return };
        *runtime_health.last() = HealthProbe { answer, at: Instant::now() };
    }
}

impl Readiness for RuntimeHealth {
    fn ready(&self) -> Answer {
        self.answer_at(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_health_answer_counts_until_the_next_one_is_overdue() {
        for answer in [Ok(()), Err("no shim".to_owned())] {
            let given = answer.clone();
            let runtime_health = RuntimeHealth::begin(move || given.clone()).unwrap();
            let start = runtime_health.last().at;
            assert_eq!(runtime_health.answer_at(start + TIMEOUT), answer);
            let overdue = runtime_health.answer_at(start + TIMEOUT + Duration::from_millis(1)).unwrap_err();
            assert_eq!(overdue, "the disk of the pods has not answered for 30 s");
        }
    }
}
