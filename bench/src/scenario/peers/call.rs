//! Client of one etcd member over one TLS connection; its clones share it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use muster_client::connect;
use muster_pki::HostPort;
use prost::Message;
use rustls::ClientConfig;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::wire::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, RangeRequest, RangeResponse,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct EtcdClient {
    grpc: Grpc<Channel>,
}

/// A stream of keep-alives, each sent when the one before was answered.
#[derive(Debug)]
pub(super) struct KeepAlives {
    up: mpsc::Sender<LeaseKeepAliveRequest>,
    down: Streaming<LeaseKeepAliveResponse>,
}

// === impl EtcdClient ===

impl EtcdClient {
    pub(super) async fn connect(tls: Arc<ClientConfig>, address: HostPort) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("https://{address}"))?.connect_timeout(CONNECT_TIMEOUT);
        let dial = tower::service_fn(move |_: Uri| {
            let (tls, address) = (Arc::clone(&tls), address.clone());
            async move { connect(tls, &address).await.map(TokioIo::new) }
        });
        Ok(Self { grpc: Grpc::new(endpoint.connect_with_connector(dial).await?) })
    }

    /// The revision of the store. Answered only by a member that hears a leader.
    pub(super) async fn revision(&mut self) -> Result<i64> {
        let request = RangeRequest { key: Bytes::from_static(b"revision") };
        let answer: RangeResponse = self.call("/etcdserverpb.KV/Range", request).await?;
        Ok(answer.header.context("etcd answered a read without a header")?.revision)
    }

    /// Whether the member at the other end leads.
    pub(super) async fn leads(&mut self) -> Result<bool> {
        let answer: StatusResponse = self.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await?;
        Ok(answer.header.context("etcd answered for its status without a header")?.member_id == answer.leader)
    }

    pub(super) async fn grant(&mut self, ttl: Duration) -> Result<i64> {
        let ttl_seconds = i64::try_from(ttl.as_secs())?;
        let answer: LeaseGrantResponse =
            self.call("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl_seconds }).await?;
        Ok(answer.id)
    }

    pub(super) async fn transact(&mut self, request: TxnRequest) -> Result<TxnResponse> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Opens a stream with a keep-alive of this lease: etcd begins to answer only when it was asked something.
    pub(super) async fn keep_alives(&mut self, first: i64) -> Result<KeepAlives> {
        let (up, requests) = mpsc::channel(1);
        up.send(LeaseKeepAliveRequest { id: first }).await?;
        self.grpc.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
        let answers = self.grpc.streaming(Request::new(ReceiverStream::new(requests)), path, codec).await?;
        let mut keep_alives = KeepAlives { up, down: answers.into_inner() };
        keep_alives.answer(first).await?;
        Ok(keep_alives)
    }

    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.grpc.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        Ok(self.grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await?.into_inner())
    }
}

// === impl KeepAlives ===

impl KeepAlives {
    pub(super) async fn keep(&mut self, lease: i64) -> Result<()> {
        self.up.send(LeaseKeepAliveRequest { id: lease }).await.context("etcd ended a stream of keep-alives")?;
        self.answer(lease).await
    }

    async fn answer(&mut self, lease: i64) -> Result<()> {
        let answer = self.down.message().await?.context("etcd ended a stream of keep-alives")?;
        anyhow::ensure!(answer.id == lease && answer.ttl_seconds > 0, "etcd let lease {lease} expire: {answer:?}");
        Ok(())
    }
}
