//! Abort: ends the process when the disk fails.
//!
//! After a failed write or sync the content of the disk is unknown. So nothing may be acknowledged any more and nothing
//! may be retried. The process ends, and recovery starts from what the disk really holds. Tests inject a recorder
//! instead.

use std::sync::{Mutex, PoisonError};

/// Ends the process. An implementation that returns must be prepared for a replica that answers nothing more.
pub trait Abort: Send + Sync + 'static {
    fn abort(&self, reason: &str);
}

/// Ends the process at once, without unwinding or running exit handlers.
#[derive(Debug, Clone, Copy, Default)]
pub struct AbortProcess;

impl Abort for AbortProcess {
    fn abort(&self, reason: &str) {
        // Logging may be asynchronous; the last line must not be lost with it.
        eprintln!("muster: fatal: {reason}");
        std::process::abort()
    }
}

/// Records why the process should have ended.
#[derive(Debug, Default)]
pub struct RecordAbort(Mutex<Vec<String>>);

impl RecordAbort {
    pub fn reasons(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The most reasons that are recorded: a recorder is as bounded as everything else.
const REASONS_MAX: usize = 64;

impl Abort for RecordAbort {
    fn abort(&self, reason: &str) {
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reasons.len() < REASONS_MAX {
            reasons.push(reason.to_owned());
        }
    }
}
