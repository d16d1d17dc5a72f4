//! Clients that read and write a few registers through all replicas, and remember what they were answered.
//!
//! The load has a thread and a runtime of its own, so that tests of processes and of tasks run it alike, and a stalled
//! runtime of the test does not stall its clients. It runs until the test ends it, or until it is dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::register::{Bystanders, RegisterAnswer, RegisterCall, RegisterOperation, RegisterValue};
use crate::search::{NotLinearizable, linearizable};
use crate::stale;

/// The end of a load that outlasts its test, and of what it remembers.
const OPERATIONS_MAX: usize = 200_000;

/// One replica as clients of registers see it.
#[allow(async_fn_in_trait)] // The load polls its clients on one thread.
pub trait RegisterDoor: Send + 'static {
    fn replica(&self) -> u64;
    async fn read(&self, key: usize, stale: bool) -> Result<(Option<RegisterValue>, u64), RegisterFailure>;
    /// Writes, on condition of a revision if one is given. Returns the object's revision after it.
    async fn write(&self, key: usize, value: RegisterValue, expected: Option<u64>) -> Result<u64, RegisterFailure>;
}

/// The reason why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterFailure {
    Conflict,
    /// It is certain that nothing was changed.
    Failed,
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub struct LoadPlan {
    pub clients: usize,
    pub keys: usize,
    /// The pause of each client between two calls.
    pub pause: Duration,
    pub bystanders: Bystanders,
}

/// A running load.
pub struct RegisterLoad {
    shared: Arc<LoadProgress>,
    bystanders: Bystanders,
    thread: Option<JoinHandle<()>>,
}

/// All that the clients of a load were answered.
#[derive(Debug)]
pub struct RegisterHistory {
    pub operations: Vec<RegisterOperation>,
    bystanders: Bystanders,
}

struct LoadProgress {
    /// The one clock of all clients.
    since: Instant,
    operations: Mutex<Vec<RegisterOperation>>,
    acknowledged: AtomicU64,
    stop: AtomicBool,
}

struct LoadClient<'a, D> {
    doors: &'a [D],
    number: usize,
    plan: LoadPlan,
    dice: StdRng,
    progress: &'a LoadProgress,
    next_value: RegisterValue,
    /// The last revision of each key that this client was told.
    revisions: BTreeMap<usize, u64>,
}

// === impl LoadPlan ===

impl Default for LoadPlan {
    /// Little enough to disturb no cluster beside it.
    fn default() -> Self {
        Self { clients: 6, keys: 3, pause: Duration::from_millis(15), bystanders: Bystanders::Present }
    }
}

// === impl RegisterLoad ===

impl RegisterLoad {
    /// Starts clients. Each gets doors of its own and asks all of them.
    pub fn start<D: RegisterDoor>(doors: impl Fn() -> Vec<D>, plan: LoadPlan) -> Self {
        let shared = Arc::new(LoadProgress {
            since: Instant::now(),
            operations: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let (progress, seed) = (Arc::clone(&shared), rand::random());
        let doors: Vec<Vec<D>> = (0..plan.clients).map(|_| doors()).collect();
        println!("register load: seed {seed}");
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let clients = doors.iter().enumerate();
            let working = clients.map(|(number, doors)| LoadClient::new(doors, number, plan, seed, &progress).work());
            runtime.block_on(join_all(working));
            // Calls that are still under way in the background must not hold up the test.
            runtime.shutdown_background();
        });
        Self { shared, bystanders: plan.bystanders, thread: Some(thread) }
    }

    /// How many writes were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Ends the load and hands over what it saw.
    pub fn finish(mut self) -> RegisterHistory {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("no client of the load panicked");
        let operations = std::mem::take(&mut *self.shared.operations.lock().unwrap());
        RegisterHistory { operations, bystanders: self.bystanders }
    }
}

impl Drop for RegisterLoad {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

// === impl RegisterHistory ===

impl RegisterHistory {
    /// I-09. Prints how much was checked; a history without acknowledged writes, reads and swaps proves nothing.
    pub fn assert_linearizable(&self) {
        let count = |is: fn(&RegisterOperation) -> bool| self.operations.iter().filter(|one| is(one)).count();
        let is_read = |one: &RegisterOperation| {
            one.call == RegisterCall::Read && matches!(one.answer, RegisterAnswer::Found { .. })
        };
        let is_write = |one: &RegisterOperation| matches!(one.answer, RegisterAnswer::Written { .. });
        let is_swap = |one: &RegisterOperation| {
            matches!((one.call, one.answer), (RegisterCall::Swap { .. }, RegisterAnswer::Written { .. }))
        };
        let (reads, writes, swaps) = (count(is_read), count(is_write), count(is_swap));
        let unknown = count(RegisterOperation::is_unknown);
        println!("register load: {reads} reads, {writes} writes ({swaps} on condition), {unknown} without an answer");
        assert!(reads > 0 && writes > swaps && swaps > 0, "too little was answered to check anything");
        assert!(self.operations.len() < OPERATIONS_MAX, "the load ended before the test did: give it longer pauses");
        match self.check() {
            Ok(()) => {}
            Err(NotLinearizable::Violation(why)) => panic!("not linearizable: {why}"),
            Err(undecided @ NotLinearizable::Undecided { .. }) => panic!("{undecided:?}"),
        }
        stale::found_what_existed(&self.operations).unwrap_or_else(|why| panic!("a stale read found {why}"));
    }

    pub fn check(&self) -> Result<(), NotLinearizable> {
        linearizable(&self.operations, self.bystanders)
    }

    /// For histories in which no replica was started again: none may go back in time.
    pub fn assert_stale_reads_advance(&self) {
        stale::never_went_back(&self.operations).unwrap_or_else(|why| panic!("{why}"));
    }
}

// === impl LoadClient ===

impl<'a, D: RegisterDoor> LoadClient<'a, D> {
    fn new(doors: &'a [D], number: usize, plan: LoadPlan, seed: u64, progress: &'a LoadProgress) -> Self {
        let dice = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
        // Values of clients never meet.
        let next_value = number as u64 + 1;
        let revisions = BTreeMap::new();
        Self { doors, number, plan, dice, progress, next_value, revisions }
    }

    async fn work(mut self) {
        while !self.progress.stop.load(Ordering::Relaxed) {
            let operation = self.operate().await;
            self.progress.note(operation);
            tokio::time::sleep(self.plan.pause.mul_f64(self.dice.random_range(0.5..1.5))).await;
        }
    }

    async fn operate(&mut self) -> RegisterOperation {
        let key = self.dice.random_range(0..self.plan.keys);
        let door = &self.doors[self.dice.random_range(0..self.doors.len())];
        let call = self.choose(key);
        let start = self.now();
        let answer = match call {
            RegisterCall::Read => found(door.read(key, false).await),
            RegisterCall::StaleRead => found(door.read(key, true).await),
            RegisterCall::Write(value) => written(door.write(key, value, None).await),
            RegisterCall::Swap { expected, value } => written(door.write(key, value, Some(expected)).await),
        };
        let end = self.now();
        if let (RegisterCall::Read, RegisterAnswer::Found { revision, .. })
        | (_, RegisterAnswer::Written { revision }) = (call, answer)
        {
            self.revisions.insert(key, revision);
        }
        RegisterOperation { key, client: self.number, replica: door.replica(), start, end, call, answer }
    }

    fn choose(&mut self, key: usize) -> RegisterCall {
        let known = self.revisions.get(&key).copied();
        let mut value = || {
            self.next_value += self.plan.clients as u64;
            self.next_value
        };
        match (self.dice.random_range(0..10), known) {
            (0..4, _) => RegisterCall::Read,
            (4, _) => RegisterCall::StaleRead,
            (5..8, Some(expected)) => RegisterCall::Swap { expected, value: value() },
            _ => RegisterCall::Write(value()),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.progress.since.elapsed().as_nanos()).unwrap()
    }
}

fn found(answer: Result<(Option<RegisterValue>, u64), RegisterFailure>) -> RegisterAnswer {
    match answer {
        Ok((value, revision)) => RegisterAnswer::Found { value, revision },
        // A read changes nothing, whatever became of it.
        Err(_) => RegisterAnswer::Failed,
    }
}

fn written(answer: Result<u64, RegisterFailure>) -> RegisterAnswer {
    match answer {
        Ok(revision) => RegisterAnswer::Written { revision },
        Err(RegisterFailure::Conflict) => RegisterAnswer::Conflict,
        Err(RegisterFailure::Failed) => RegisterAnswer::Failed,
        Err(RegisterFailure::Unknown) => RegisterAnswer::Unknown,
    }
}

// === impl LoadProgress ===

impl LoadProgress {
    fn note(&self, operation: RegisterOperation) {
        if matches!(operation.answer, RegisterAnswer::Written { .. }) {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        let mut operations = self.operations.lock().unwrap();
        operations.push(operation);
        if operations.len() >= OPERATIONS_MAX {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
