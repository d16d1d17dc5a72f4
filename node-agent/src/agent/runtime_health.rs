//! Whether what runs pods can do its work, asked on a thread of its own: a disk that hangs must not hold up the session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::conditions::Readiness;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// A look that takes longer is an answer, too.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) type Answer = Result<(), String>;

pub(super) struct RuntimeHealth(Mutex<HealthProbe>);

struct HealthProbe {
    answer: Answer,
    at: Instant,
}

// === impl RuntimeHealth ===

impl RuntimeHealth {
    /// Looks once before it returns, and then again and again for as long as somebody wants to know.
    pub(super) fn begin(ask: impl Fn() -> Answer + Send + 'static) -> std::io::Result<Arc<Self>> {
        let runtime_health = Arc::new(Self(Mutex::new(HealthProbe { answer: ask(), at: Instant::now() })));
        let asker = Arc::downgrade(&runtime_health);
        std::thread::Builder::new().name("runtime_health".into()).spawn(move || keep_asking(&asker, &ask))?;
        Ok(runtime_health)
    }

    fn answer_at(&self, now: Instant) -> Answer {
        let look = self.look();
        match now.saturating_duration_since(look.at) > TIMEOUT {
            true => Err(format!("the disk with the pods has not answered for {} s", TIMEOUT.as_secs())),
            false => look.answer.clone(),
        }
    }

    fn look(&self) -> MutexGuard<'_, HealthProbe> {
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
        *runtime_health.look() = HealthProbe { answer, at: Instant::now() };
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
    fn the_last_answer_counts_until_the_next_one_is_overdue() {
        for answer in [Ok(()), Err("no shim".to_owned())] {
            let given = answer.clone();
            let runtime_health = RuntimeHealth::begin(move || given.clone()).unwrap();
            let start = runtime_health.look().at;
            assert_eq!(runtime_health.answer_at(start + TIMEOUT), answer);
            let overdue = runtime_health.answer_at(start + TIMEOUT + Duration::from_millis(1)).unwrap_err();
            assert_eq!(overdue, "the disk with the pods has not answered for 30 s");
        }
    }
}
