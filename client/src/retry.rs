//! Retries of one call, on one replica after the other until a deadline.

use std::time::Duration;

use muster_proto::v1::operator_client::OperatorClient;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use crate::endpoint::Endpoints;
use crate::error::{self, Error, Exhausted, Tried, Why};

pub(crate) type Operator = OperatorClient<Channel>;

/// An answer and the address it came from.
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) address: String,
}

/// The failure of one replica.
pub(crate) enum Failed {
    /// Another replica would answer the same.
    Final(Status),
    /// Another replica may do better.
    Next(Why),
}

/// The time that one replica may take before the next is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The limit of the whole attempt, connecting included; `None` if the call bounds its own silences.
    whole: Option<Duration>,
    step: Duration,
    changes_state: bool,
}

/// A pause between rounds that doubles up to a cap.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    pause: Duration,
}

const QUICK: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

// === impl Patience ===

impl Patience {
    /// For calls that a healthy replica answers in milliseconds, with room for an election.
    pub(crate) fn quick() -> Self {
        Self { whole: Some(QUICK), step: QUICK, changes_state: false }
    }

    /// As `quick`, for calls whose lost answer leaves the outcome unknown.
    pub(crate) fn write() -> Self {
        Self { changes_state: true, ..Self::quick() }
    }

    /// For optional questions that must not hold the caller up.
    pub(crate) fn glance() -> Self {
        Self { whole: Some(Duration::from_secs(1)), step: Duration::from_secs(1), changes_state: false }
    }

    /// For calls that work for a while before they answer.
    pub(crate) fn patient(whole: Duration) -> Self {
        Self { whole: Some(whole), step: whole, changes_state: true }
    }

    /// For streams: the time is a bound on each silence, not on the whole.
    pub(crate) fn stream(silence: Duration) -> Self {
        Self { whole: None, step: silence.min(QUICK), changes_state: false }
    }

    /// For streams that are prepared before they begin, such as a backup.
    pub(crate) fn prepared_stream(silence: Duration) -> Self {
        Self { whole: None, step: silence, changes_state: false }
    }

    /// Shortened to the time that the caller has left.
    pub(crate) fn within(self, left: Duration) -> Self {
        Self { whole: self.whole.map(|whole| whole.min(left)), step: self.step.min(left), ..self }
    }
}

// === impl Backoff ===

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { pause: FIRST_PAUSE }
    }

    pub(crate) async fn pause(&mut self, left: Duration) {
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tries `call` on every replica, in rounds, until one answers, all refuse the connection or the deadline has passed.
pub(crate) async fn call<T, F, Fut>(
    endpoints: &Endpoints,
    timeout: Duration,
    patience: Patience,
    mut backoff: Backoff,
    mut call: F,
) -> Result<Answer<T>, Error>
where
    F: FnMut(Operator, Duration) -> Fut,
    Fut: Future<Output = Result<T, Status>>,
{
    let deadline = Instant::now() + timeout;
    let mut diary = Diary::new(endpoints, timeout);
    loop {
        for index in endpoints.order() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(diary.exhausted());
            }
            match endpoints.attempt(index, patience.within(left), &mut call).await {
                Ok(value) => {
                    endpoints.remember(index);
                    return Ok(Answer { value, address: endpoints.address(index).into() });
                }
                Err(Failed::Final(status)) => {
                    endpoints.remember(index);
                    return Err(refused(&status, endpoints.address(index)));
                }
                Err(Failed::Next(why)) => diary.note(index, why, left < patience.step, patience.changes_state),
            }
        }
        // A replica that is slow, or without a leader, may answer in a moment. Where no replica runs, waiting does not
        // help.
        if diary.only_refusals() {
            return Err(diary.exhausted());
        }
        backoff.pause(deadline.saturating_duration_since(Instant::now())).await;
    }
}

pub(crate) fn refused(status: &Status, address: &str) -> Error {
    let message = match status.message() {
        "" => format!("{:?}", status.code()),
        message => message.into(),
    };
    Error::Refused { code: status.code(), message, address: address.into() }
}

impl Endpoints {
    /// One attempt on one replica.
    pub(crate) async fn attempt<T, F, Fut>(&self, index: usize, patience: Patience, call: &mut F) -> Result<T, Failed>
    where
        F: FnMut(Operator, Duration) -> Fut,
        Fut: Future<Output = Result<T, Status>>,
    {
        let operator = match self.operator(index, patience.step).await {
            Ok(operator) => operator,
            Err(why) => return Err(Failed::Next(why)),
        };
        let answer = call(operator, patience.step);
        let result = match patience.whole {
            None => Ok(answer.await),
            Some(whole) => tokio::time::timeout(whole, answer).await,
        };
        let failed = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(status)) if is_from_the_replica(&status) && error::is_final(status.code()) => {
                return Err(Failed::Final(status));
            }
            Ok(Err(status)) => error::why(&status),
            Err(_) => Why::Silent(patience.step),
        };
        if !matches!(failed, Why::Unavailable(_)) {
            self.forget(index);
        }
        Err(Failed::Next(failed))
    }
}

/// The transport makes statuses of its own, with the same codes as answers; those carry their cause as source.
fn is_from_the_replica(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}

/// The reason of each replica's last failure.
pub(crate) struct Diary {
    deadline: Duration,
    tried: Vec<Tried>,
    outcome_unknown: bool,
}

// === impl Diary ===

impl Diary {
    pub(crate) fn new(endpoints: &Endpoints, deadline: Duration) -> Self {
        let tried = endpoints.addresses().map(|address| Tried { address: address.into(), why: Why::NotTried });
        Self { deadline, tried: tried.collect(), outcome_unknown: false }
    }

    /// A wait that the client's own deadline cut short does not replace what the replica answered before.
    pub(crate) fn note(&mut self, index: usize, why: Why, cut_short: bool, changes_state: bool) {
        self.outcome_unknown |= changes_state && matches!(why, Why::Silent(_) | Why::Broken(_));
        let Some(tried) = self.tried.get_mut(index) else { return };
        if !(cut_short && why.is_timeout()) || tried.why == Why::NotTried {
            tried.why = why;
        }
    }

    /// The last attempt at every replica was refused.
    fn only_refusals(&self) -> bool {
        self.tried.iter().all(|tried| tried.why == Why::Refused)
    }

    pub(crate) fn exhausted(self) -> Error {
        Error::Exhausted(Exhausted {
            deadline: self.deadline,
            tried: self.tried,
            outcome_unknown: self.outcome_unknown,
        })
    }
}
