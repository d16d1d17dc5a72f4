//! The canary: this replica's own beat through its own agent door.
//!
//! If a replica does not hear even itself in time, the silence of its agents says nothing about them. So it calls its
//! own door as an agent would, with a certificate of its own, over TLS, and tells its peers when that is late. The call
//! and the judgement run apart: a call that hangs must not delay the report that it hangs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use muster_pki::HostPort;
use muster_proto::v1;
use muster_proto::v1::agent_client::AgentClient;
use muster_pulse::tick::Tick;
use muster_raft::connector::Connector;
use thiserror::Error;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::hearing::Hearing;

const BEAT_PERIOD: Duration = Duration::from_millis(500);

/// The canary is late when its last success is older than this.
pub const CANARY_LATE: Duration = Duration::from_secs(2);

const JUDGE_PERIOD: Duration = Duration::from_millis(250);

pub struct Canary {
    hearing: Hearing,
    /// Presents the canary's certificate, and accepts no other replica than this one.
    connector: Arc<dyn Connector>,
    address: HostPort,
    heard: Mutex<Heard>,
}

struct Heard {
    last: Tick,
    /// Why the last call failed, if it did.
    trouble: Option<Trouble>,
}

#[derive(Debug, Error)]
enum Trouble {
    #[error("no answer within {CANARY_LATE:?}")]
    NoAnswer,
    #[error("{0}")]
    Refused(#[from] Box<tonic::Status>),
}

// === impl Canary ===

impl Canary {
    /// `address` is where agents reach this replica.
    pub fn new(hearing: Hearing, connector: Arc<dyn Connector>, address: HostPort) -> Self {
        let heard = Mutex::new(Heard { last: hearing.tick(), trouble: None });
        Self { hearing, connector, address, heard }
    }

    /// Beats until `stop`. To be started when the door opens.
    pub async fn run(self, stop: CancellationToken) {
        self.heard().last = self.hearing.tick();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.beat() => {}
            () = self.judge() => {}
        }
    }

    async fn beat(&self) {
        let mut beats = interval(BEAT_PERIOD);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut channel = self.open();
        loop {
            beats.tick().await;
            let called = call(channel.clone()).await;
            if called.is_err() {
                // The connection itself may be the cause.
                channel = self.open();
            }
            self.note(called);
        }
    }

    async fn judge(&self) {
        let mut looks = interval(JUDGE_PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look();
        }
    }

    fn note(&self, called: Result<(), Trouble>) {
        let now = self.hearing.tick();
        let mut heard = self.heard();
        match called {
            Ok(()) => *heard = Heard { last: now, trouble: None },
            Err(trouble) => heard.trouble = Some(trouble),
        }
    }

    fn look(&self) {
        let now = self.hearing.tick();
        let heard = self.heard();
        let late = now.elapsed_since(heard.last) > CANARY_LATE;
        match (self.hearing.canary_late(), late) {
            (false, true) => {
                let reason = heard.trouble.as_ref().map_or_else(|| Trouble::NoAnswer.to_string(), ToString::to_string);
                tracing::warn!(address = %self.address, reason, "this replica does not hear itself at its agent door");
            }
            (true, false) => tracing::info!(address = %self.address, "this replica hears itself again"),
            (true, true) | (false, false) => {}
        }
        drop(heard);
        self.hearing.canary(self.hearing.me(), late, now);
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Channel {
        let (connector, me, address) = (Arc::clone(&self.connector), self.hearing.me(), self.address.to_string());
        let connect = service_fn(move |_: Uri| {
            let connecting = connector.connect(me, &address);
            async move { connecting.await.map(TokioIo::new) }
        });
        // The URI names nothing: the connector knows the address and checks the certificate.
        Endpoint::from_static("http://replica.muster").connect_with_connector_lazy(connect)
    }
}

async fn call(channel: Channel) -> Result<(), Trouble> {
    let mut client = AgentClient::new(channel);
    let called = timeout(CANARY_LATE, client.who_is(v1::WhoIsRequest {})).await;
    called.map_err(|_| Trouble::NoAnswer)?.map_err(Box::new)?;
    Ok(())
}
