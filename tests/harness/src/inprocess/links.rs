//! The network between replicas, with faults that no signal can make: a link can be broken or left hanging while
//! everything at both of its ends goes on.
//!
//! Both directions of a connection pass through the side that opened it, so faults are made there.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::connector::{Connector, Io};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// Connections are reset and new ones refused.
    Broken,
    /// A black hole: nothing passes and nothing fails. Bytes that wait go on when the link heals.
    Hung,
}

/// All links, by the replica that opens the connection and the one that accepts it.
#[derive(Default)]
pub struct Links(Mutex<BTreeMap<(u64, u64), Arc<Link>>>);

/// The way from one replica to the others, faults included.
pub struct Cable {
    links: Arc<Links>,
    from: u64,
    inner: Arc<dyn Connector>,
}

#[derive(Default)]
struct Link(Mutex<Condition>);

#[derive(Default)]
struct Condition {
    fault: Option<LinkFault>,
    /// How often the link broke: a connection ends with the first break after it was opened.
    breaks: u64,
    /// Tasks that used the link since its condition last changed.
    users: Vec<Waker>,
    /// Connections given up while nothing passed: the other side must not notice.
    buried: Vec<Box<dyn Io>>,
}

/// One connection.
struct Wire {
    link: Arc<Link>,
    breaks: u64,
    io: Option<Box<dyn Io>>,
}

// === impl Links ===

impl Links {
    pub fn cable(self: &Arc<Self>, from: u64, inner: Arc<dyn Connector>) -> Arc<Cable> {
        Arc::new(Cable { links: Arc::clone(self), from, inner })
    }

    /// Cuts one replica off from these others, in both directions.
    pub fn cut(&self, one: u64, others: impl IntoIterator<Item = u64>, fault: LinkFault) {
        for other in others {
            self.link(one, other).become_(Some(fault));
            self.link(other, one).become_(Some(fault));
        }
    }

    pub fn heal(&self) {
        let links: Vec<Arc<Link>> = self.lock().values().cloned().collect();
        links.iter().for_each(|link| link.become_(None));
    }

    fn link(&self, from: u64, to: u64) -> Arc<Link> {
        Arc::clone(self.lock().entry((from, to)).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), Arc<Link>>> {
        self.0.lock().unwrap()
    }
}

// === impl Cable ===

impl Connector for Cable {
    fn connect(&self, target: ReplicaId, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (link, connecting) = (self.links.link(self.from, target.0), self.inner.connect(target, address));
        async move {
            let breaks = link.lock().breaks;
            poll_fn(|context| link.poll_passes(breaks, context)).await?;
            let io = Some(connecting.await?);
            Ok(Box::new(Wire { link, breaks, io }) as Box<dyn Io>)
        }
        .boxed()
    }
}

// === impl Link ===

impl Link {
    fn become_(&self, fault: Option<LinkFault>) {
        let mut condition = self.lock();
        condition.fault = fault;
        condition.breaks += u64::from(fault == Some(LinkFault::Broken));
        let buried = std::mem::take(&mut condition.buried);
        let users = std::mem::take(&mut condition.users);
        drop(condition);
        drop(buried);
        users.into_iter().for_each(Waker::wake);
    }

    /// Whether a connection that has seen so many breaks is of use now.
    fn poll_passes(&self, breaks: u64, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut condition = self.lock();
        if !condition.users.iter().any(|known| known.will_wake(context.waker())) {
            condition.users.push(context.waker().clone());
        }
        match condition.fault {
            Some(LinkFault::Broken) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            _ if condition.breaks != breaks => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(LinkFault::Hung) => Poll::Pending,
            None => Poll::Ready(Ok(())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Condition> {
        self.0.lock().unwrap()
    }
}

// === impl Wire ===

impl Wire {
    fn poll_io<T>(
        &mut self,
        context: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut Box<dyn Io>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        ready!(self.link.poll_passes(self.breaks, context))?;
        act(Pin::new(self.io.as_mut().expect("present until it is dropped")), context)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let mut condition = self.link.lock();
        if condition.fault == Some(LinkFault::Hung) {
            condition.buried.extend(self.io.take());
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_io(context, |io, context| io.poll_read(context, into))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_io(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_io(context, |io, context| io.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_io(context, |io, context| io.poll_shutdown(context))
    }
}
