//! Forwarder of a follower's writes to the leader: writes that wait together go together.
//!
//! A write waits for one of a few calls under way, and the writes that arrive meanwhile go with the next one. So a
//! single write pays one round trip, and in a storm of registrations one call carries some hundreds of them. Each write
//! gets its own answer.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::replica::RequestError;
use crate::write::proposer::{Committed, ProposeError, WriterClass};
use muster_lifecycle::replica::ReplicaId;

/// Writes in one call.
pub(crate) const CALL_COMMANDS_MAX: usize = 512;
/// Bytes of writes in one call beyond which no more are added.
const CALL_BYTES_MAX: usize = 512 * 1024;
/// Calls under way.
const CALLS_MAX: usize = 4;

pub(crate) type Answer = Result<Committed, RequestError>;

/// Several writes, to be made by `leader`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) leader: ReplicaId,
    pub(crate) commands: Vec<Bytes>,
    /// The moment after which no caller waits for any of them.
    pub(crate) deadline: Instant,
}

/// The way in which leaders are asked.
pub(crate) trait Leaders: Send + Sync + 'static {
    /// One answer per command, in their order, or one error for all of them.
    fn ask(&self, call: Call) -> BoxFuture<'static, Result<Vec<Answer>, RequestError>>;
}

/// A cheap handle; the work happens in one task, and in one more for each call.
#[derive(Clone)]
pub(crate) struct Forwarder {
    class: WriterClass,
    queue: mpsc::Sender<Errand>,
}

/// A forwarder for each class of writers, so that a storm of one does not turn the others away.
#[derive(Clone)]
pub(crate) struct Forwarders {
    replica: Forwarder,
    operators: Forwarder,
    agents: Forwarder,
}

struct Errand {
    leader: ReplicaId,
    command: Bytes,
    deadline: Instant,
    reply: oneshot::Sender<Answer>,
}

struct Gatherer {
    leaders: Arc<dyn Leaders>,
    errands: mpsc::Receiver<Errand>,
    /// An errand for another leader than those before it.
    held_over: Option<Errand>,
    calls: Arc<Semaphore>,
}

// === impl Forwarders ===

impl Forwarders {
    pub(crate) fn spawn(leaders: &Arc<dyn Leaders>) -> Self {
        let forwarder = |class| Forwarder::spawn(Arc::clone(leaders), class);
        Self {
            replica: forwarder(WriterClass::Leader),
            operators: forwarder(WriterClass::Operators),
            agents: forwarder(WriterClass::Agents),
        }
    }

    pub(crate) fn of(&self, class: WriterClass) -> &Forwarder {
        match class {
            WriterClass::Leader => &self.replica,
            WriterClass::Operators => &self.operators,
            WriterClass::Agents => &self.agents,
        }
    }
}

// === impl Forwarder ===

impl Forwarder {
    /// As many writes wait for a call as may wait at the leader. Beyond this the caller is told to come back later.
    fn spawn(leaders: Arc<dyn Leaders>, class: WriterClass) -> Self {
        let (queue, errands) = mpsc::channel(class.room());
        let gatherer = Gatherer { leaders, errands, held_over: None, calls: Arc::new(Semaphore::new(CALLS_MAX)) };
        tokio::spawn(gatherer.run());
        Self { class, queue }
    }

    /// Passes one encoded command on. Dropping the future takes it back only if it is not under way yet.
    pub(crate) async fn forward(&self, leader: ReplicaId, command: Bytes, deadline: Instant) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Errand { leader, command, deadline, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => self.class.overloaded(),
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped,
        })?;
        answer.await.unwrap_or(Err(ProposeError::Unknown.into()))
    }
}

// === impl Gatherer ===

impl Gatherer {
    async fn run(mut self) {
        while let Some(first) = self.next().await {
            let Ok(place) = Arc::clone(&self.calls).acquire_owned().await else { return };
            let errands = self.gather(first);
            tokio::spawn(deliver(Arc::clone(&self.leaders), errands, place));
        }
    }

    async fn next(&mut self) -> Option<Errand> {
        match self.held_over.take() {
            Some(errand) => Some(errand),
            None => self.errands.recv().await,
        }
    }

    /// `first` and the other errands that wait for the same leader, up to one call's worth.
    fn gather(&mut self, first: Errand) -> Vec<Errand> {
        let (leader, mut bytes) = (first.leader, first.command.len());
        let mut errands = vec![first];
        while errands.len() < CALL_COMMANDS_MAX && bytes < CALL_BYTES_MAX {
            let Ok(next) = self.errands.try_recv() else { break };
            if next.leader != leader {
                self.held_over = Some(next);
                break;
            }
            bytes += next.command.len();
            errands.push(next);
        }
        errands
    }
}

async fn deliver(leaders: Arc<dyn Leaders>, mut errands: Vec<Errand>, place: OwnedSemaphorePermit) {
    // A caller that went away has given up its write, so the write is not made.
    errands.retain(|errand| !errand.reply.is_closed());
    let (Some(leader), Some(deadline)) =
        (errands.first().map(|errand| errand.leader), errands.iter().map(|errand| errand.deadline).max())
    else {
        return;
    };
    let (commands, replies): (Vec<_>, Vec<_>) =
        errands.into_iter().map(|errand| (errand.command, errand.reply)).unzip();
    let answered = leaders.ask(Call { leader, commands, deadline }).await;
    drop(place);
    for (reply, answer) in replies.into_iter().zip(each(answered)) {
        // A caller that went away no longer wants to know.
        let _ = reply.send(answer);
    }
}

/// The answer for each command. A command that the leader left out of its answers may or may not have been applied.
fn each(answered: Result<Vec<Answer>, RequestError>) -> Box<dyn Iterator<Item = Answer> + Send> {
    let unheard = || Err(RequestError::Forwarding("asking the leader: it answered less than it was asked".to_owned()));
    match answered {
        Ok(answers) => Box::new(answers.into_iter().chain(std::iter::repeat_with(unheard))),
        Err(error) => Box::new(std::iter::repeat_with(move || Err(error.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::FutureExt;
    use futures::future::join_all;
    use muster_lifecycle::command::{Outcome, Receipt, ReceiptEffect};
    use muster_lifecycle::meta::Revision;

    use super::*;

    /// Records calls, and answers when it is allowed to.
    struct Scripted {
        calls: Mutex<Vec<(ReplicaId, Vec<u8>)>>,
        under_way: Arc<AtomicUsize>,
        most_under_way: AtomicUsize,
        gate: Arc<Semaphore>,
        answer: fn(&[u8]) -> Result<Vec<Answer>, RequestError>,
    }

    impl Leaders for Scripted {
        fn ask(&self, call: Call) -> BoxFuture<'static, Result<Vec<Answer>, RequestError>> {
            let said: Vec<u8> = call.commands.iter().map(|command| command[0]).collect();
            self.calls.lock().unwrap().push((call.leader, said.clone()));
            let (gate, answer, under_way) = (Arc::clone(&self.gate), self.answer, Arc::clone(&self.under_way));
            self.most_under_way.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            async move {
                gate.acquire().await.unwrap().forget();
                under_way.fetch_sub(1, Ordering::SeqCst);
                answer(&said)
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn waiting_writes_share_a_call_and_each_gets_its_own_answer() {
        let (leader, forwarder) = scripted(echo);
        let writes = (0..40).map(|number| write(&forwarder, ReplicaId(1), number));
        leader.gate.add_permits(40);
        let answers = join_all(writes).await;
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer, done(number as u8), "{number}");
        }
        assert!(leader.calls().len() < 40, "{:?}", leader.calls());
    }

    #[tokio::test]
    async fn a_refused_write_does_not_affect_others_of_its_call() {
        let (leader, forwarder) = scripted(|said| Ok(said.iter().map(|number| odd_refused(*number)).collect()));
        leader.gate.add_permits(8);
        let answers = join_all((0..8).map(|number| write(&forwarder, ReplicaId(1), number))).await;
        let expected: Vec<Answer> = (0..8).map(odd_refused).collect();
        assert_eq!(answers, expected);
    }

    #[tokio::test]
    async fn a_failed_call_fails_each_write_and_writes_without_an_answer_fail_too() {
        let (leader, forwarder) = scripted(|_| Err(ProposeError::Unknown.into()));
        leader.gate.add_permits(3);
        let answers = join_all((0..3).map(|number| write(&forwarder, ReplicaId(1), number))).await;
        assert_eq!(answers, vec![Err(RequestError::Refused(ProposeError::Unknown)); 3]);
        let (leader, forwarder) = scripted(|said| Ok(vec![done(said[0])]));
        leader.gate.add_permits(3);
        let answers = join_all((0..3).map(|number| write(&forwarder, ReplicaId(1), number))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(RequestError::Forwarding(_)))));
        assert_eq!(answers[0], done(0));
    }

    #[tokio::test]
    async fn the_number_and_the_size_of_calls_are_bounded() {
        let (leader, forwarder) = scripted(echo);
        let writes: Vec<_> =
            (0..2_000).map(|number| tokio::spawn(write(&forwarder, ReplicaId(1), number as u8))).collect();
        leader.until_asked(CALLS_MAX).await;
        leader.gate.add_permits(2_000);
        for written in join_all(writes).await {
            assert!(written.unwrap().is_ok());
        }
        let sizes: Vec<usize> = leader.calls().iter().map(|(_, said)| said.len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 2_000);
        assert!(leader.most_under_way.load(Ordering::SeqCst) <= CALLS_MAX);
        assert!(sizes.iter().all(|size| *size <= CALL_COMMANDS_MAX), "{sizes:?}");
    }

    #[tokio::test]
    async fn a_full_queue_refuses_writes_and_abandoned_writes_are_not_sent() {
        let (leader, forwarder) = scripted(echo);
        for calls in 1..=CALLS_MAX {
            tokio::spawn(write(&forwarder, ReplicaId(1), 1));
            leader.until_asked(calls).await;
        }
        // Given up as soon as they wait. The gatherer takes one of them meanwhile, so once is not enough.
        let turned_away = loop {
            while write(&forwarder, ReplicaId(1), 2).now_or_never().is_none() {}
            tokio::task::yield_now().await;
            if let Some(answer) = write(&forwarder, ReplicaId(1), 3).now_or_never() {
                break answer;
            }
        };
        assert_eq!(turned_away, Err(RequestError::Refused(WriterClass::Operators.overloaded())));
        leader.gate.add_permits(WriterClass::Operators.room());
        while write(&forwarder, ReplicaId(1), 4).await != done(4) {
            tokio::task::yield_now().await;
        }
        assert!(leader.calls().iter().all(|(_, said)| !said.contains(&2)), "given up before they were under way");
    }

    #[tokio::test]
    async fn a_call_is_for_one_leader() {
        let (leader, forwarder) = scripted(echo);
        leader.gate.add_permits(8);
        let answers = join_all((0..8).map(|number| write(&forwarder, ReplicaId(number.into()), number))).await;
        assert!(answers.iter().all(Result::is_ok));
        for (to, said) in leader.calls() {
            assert!(said.iter().all(|number| ReplicaId(u64::from(*number)) == to), "{to}: {said:?}");
        }
    }

    impl Scripted {
        fn calls(&self) -> Vec<(ReplicaId, Vec<u8>)> {
            self.calls.lock().unwrap().clone()
        }

        async fn until_asked(&self, calls: usize) {
            while self.calls().len() < calls {
                tokio::task::yield_now().await;
            }
        }
    }

    fn scripted(answer: fn(&[u8]) -> Result<Vec<Answer>, RequestError>) -> (Arc<Scripted>, Forwarder) {
        let leader = Arc::new(Scripted {
            calls: Mutex::default(),
            under_way: Arc::default(),
            most_under_way: AtomicUsize::new(0),
            gate: Arc::new(Semaphore::new(0)),
            answer,
        });
        let forwarder = Forwarder::spawn(Arc::clone(&leader) as _, WriterClass::Operators);
        (leader, forwarder)
    }

    fn write(forwarder: &Forwarder, leader: ReplicaId, number: u8) -> impl Future<Output = Answer> + use<> {
        let forwarder = forwarder.clone();
        let deadline = Instant::now() + Duration::from_secs(60);
        async move { forwarder.forward(leader, Bytes::copy_from_slice(&[number]), deadline).await }
    }

    fn echo(said: &[u8]) -> Result<Vec<Answer>, RequestError> {
        Ok(said.iter().copied().map(done).collect())
    }

    fn done(number: u8) -> Answer {
        let receipt = Receipt { revision: Revision(number.into()), effect: ReceiptEffect::Created };
        Ok(Committed { outcome: Outcome::Done(receipt), index: number.into() })
    }

    fn odd_refused(number: u8) -> Answer {
        if number.is_multiple_of(2) { done(number) } else { Err(ProposeError::Exhausted(number.to_string()).into()) }
    }
}
