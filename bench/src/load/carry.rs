//! Messages of an aggregator's stream, encoded, and the wait until its nodes are bound.

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use muster_proto::v1;
use muster_proto::v1::aggregator_message::Message as Up;
use muster_proto::v1::aggregator_reply::Message as Down;
use prost::Message as _;

use super::node;
use super::wire::{StreamId, Wire, WireEvent};

/// The handle of a stream's only node.
pub(super) const ONLY_HANDLE: u32 = 0;

/// The version with which the load introduces itself to a replica.
pub(super) const VERSION: &str = "bench";

pub(super) fn encoded(message: Up) -> Vec<u8> {
    v1::AggregatorMessage { message: Some(message) }.encode_to_vec()
}

pub(super) fn hello(instance: u64) -> Vec<u8> {
    encoded(Up::Hello(v1::AggregatorHello { instance, version: VERSION.to_owned(), ..v1::AggregatorHello::default() }))
}

/// Asks for the binding of a node whose incarnation is not known.
pub(super) fn binding(handle: u32, number: usize) -> v1::Binding {
    v1::Binding { handle, node: node::name(number), incarnation: 0, orders_revision: 0, continues: false }
}

pub(super) fn bind(bindings: Vec<v1::Binding>) -> Vec<u8> {
    encoded(Up::Bind(v1::Bind { bindings }))
}

/// One beat per handle; `acknowledge` is the number of the answer that is asked for, zero for none.
pub(super) fn beats(handles: Vec<u32>, acknowledge: u64) -> Vec<u8> {
    encoded(Up::Beats(v1::Beats { handles, acknowledge }))
}

/// One node's status.
pub(super) fn status(handle: u32, sequence: u64, status: String) -> Vec<u8> {
    let report = v1::StatusReport { sequence, status: status.into(), running: Some(v1::Running::default()) };
    encoded(Up::Status(v1::CarriedStatus { handle, report: Some(report) }))
}

/// The stream and the message of an event. A stream that ended is an error; a pong is nothing.
pub(super) fn message(event: WireEvent) -> Result<Option<(StreamId, Bytes)>> {
    match event {
        WireEvent::Message { stream, message } => Ok(Some((stream, message))),
        WireEvent::Pong(_) => Ok(None),
        WireEvent::Ended { stream } => bail!("the replica ended stream {stream}"),
    }
}

/// The replica's message on an aggregator's stream.
pub(super) fn decoded(message: Bytes) -> Result<Option<Down>> {
    Ok(v1::AggregatorReply::decode(message)?.message)
}

/// Waits until `nodes` nodes are bound. A refusal is an error.
pub(super) async fn wait_bound(wire: &mut Wire, nodes: usize) -> Result<()> {
    let mut missing = nodes;
    while missing > 0 {
        let Some((_, message)) = message(wire.next().await?)? else { continue };
        if let Some(Down::Bound(bound)) = decoded(message)? {
            let refused = bound.nodes.iter().find(|node| node.incarnation == 0);
            ensure!(refused.is_none(), "a node was not bound: {refused:?}");
            missing = missing.saturating_sub(bound.nodes.len());
        }
    }
    Ok(())
}
