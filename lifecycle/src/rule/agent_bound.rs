//! Bounds of an agent: how long it may take until nothing of a deleted Node's pods runs and the fleet knows it.
//!
//! The agent and the rules must not drift apart: the agent uses [`BACKOFF_MAX`], [`LAST_GRACE_MAX`] and
//! [`KILL_ALLOWANCE`] as its own constants, and its tests compare its other timings with the sums here. GC-3 waits for
//! longer than all of them together.

use crate::value::time::Period;

/// How long an agent takes to notice that its replica is frozen, at the longest beat interval.
pub const HANG_NOTICED_MAX: Period = Period::from_secs(35);

/// The longest pause between two attempts to connect (L-4).
pub const BACKOFF_MAX: Period = Period::from_secs(7);

/// How long an agent waits at one endpoint: for the connection, for the handshake and for the first answer.
pub const ATTEMPT_MAX: Period = Period::from_secs(25);

/// The longest grace of a pod whose Node is gone, whatever the pod's own grace is.
pub const LAST_GRACE_MAX: Period = Period::from_secs(30);

/// How long killed processes may take to end before the agent registers all the same and says that they still run.
pub const KILL_ALLOWANCE: Period = Period::from_secs(5);

/// How long the registration may take that says which pods still run.
pub const REGISTRATION_MAX: Period = Period::from_secs(15);

/// From the deletion of a Node until its agent, if it reaches any replica, has said which of its pods still run.
pub const ACCOUNT_MAX: Period = Period(
    HANG_NOTICED_MAX.0 + BACKOFF_MAX.0 + ATTEMPT_MAX.0 + LAST_GRACE_MAX.0 + KILL_ALLOWANCE.0 + REGISTRATION_MAX.0,
);
