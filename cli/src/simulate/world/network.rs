//! The network between replicas: digests.

use super::replica;
use super::{REPLICAS, ReplicaIndex, Witness, World};

impl<W: Witness> World<W> {
    pub(super) fn exchange_digests(&mut self) {
        for listener in 0..REPLICAS {
            for teller in (0..REPLICAS).filter(|teller| *teller != listener) {
                self.pull(listener, teller);
            }
        }
        self.follow_contact();
    }

    fn pull(&mut self, listener: ReplicaIndex, teller: ReplicaIndex) {
        if !self.replicas[listener].is_awake() {
            return;
        }
        let cut = self.cut[listener][teller];
        match self.replicas.get_disjoint_mut([listener, teller]) {
            Ok([listening, telling]) if telling.is_awake() && cut => {
                replica::pull_in_vain(listening, telling, self.now)
            }
            Ok([listening, telling]) if telling.is_awake() => {
                replica::pull(listening, telling, self.now);
                self.witness.told(self.now, listener, teller);
            }
            Ok([listening, _]) => listening.digest_missed(teller, self.now),
            Err(_) => {}
        }
    }
}
