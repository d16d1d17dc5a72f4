//! Whether what runs pods can do its work, asked on a thread of its own: a disk that hangs must not hold up the session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::conditions::Readiness;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// A look that takes longer is an answer, too.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) type Answer = Result<(), String>;

pub(super) struct Checkup(Mutex<Look>);

struct Look {
    answer: Answer,
    at: Instant,
}

// === impl Checkup ===

impl Checkup {
    /// Looks once before it returns, and then again and again for as long as somebody wants to know.
    pub(super) fn begin(ask: impl Fn() -> Answer + Send + 'static) -> std::io::Result<Arc<Self>> {
        let checkup = Arc::new(Self(Mutex::new(Look { answer: ask(), at: Instant::now() })));
        let asker = Arc::downgrade(&checkup);
        std::thread::Builder::new().name("checkup".into()).spawn(move || keep_asking(&asker, &ask))?;
        Ok(checkup)
    }

    fn answer_at(&self, now: Instant) -> Answer {
        let look = self.look();
        match now.saturating_duration_since(look.at) > PATIENCE {
            true => Err(format!("the disk with the pods has not answered for {} s", PATIENCE.as_secs())),
            false => look.answer.clone(),
        }
    }

    fn look(&self) -> MutexGuard<'_, Look> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_asking(checkup: &Weak<Checkup>, ask: &impl Fn() -> Answer) {
    loop {
        std::thread::sleep(PAUSE);
        if checkup.strong_count() == 0 {
            return;
        }
        let answer = ask();
        let Some(checkup) = checkup.upgrade() else { return };
        *checkup.look() = Look { answer, at: Instant::now() };
    }
}

impl Readiness for Checkup {
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
            let checkup = Checkup::begin(move || given.clone()).unwrap();
            let start = checkup.look().at;
            assert_eq!(checkup.answer_at(start + PATIENCE), answer);
            let overdue = checkup.answer_at(start + PATIENCE + Duration::from_millis(1)).unwrap_err();
            assert_eq!(overdue, "the disk with the pods has not answered for 30 s");
        }
    }
}
