//! Binding many nodes at once: one look at the state, at most one catching up, one claim for all.

use std::collections::HashSet;

use muster_lifecycle::text::Text;
use muster_proto::v1;

use crate::session::Sessions;
use crate::session::admission::{Admitted, Look, look};
use crate::session::binding::Binding;
use crate::session::claimant::Verdict;
use crate::session::claims::CLAIMS_MAX;
use crate::session::figures::Refused;
use crate::session::refusal::Refusal;
use crate::session::terms::status_wanted;

use super::{Carrier, HANDLES_MAX, refused_node};

/// Bindings in one message. They are claimed together.
pub(super) const BINDINGS_MAX: usize = CLAIMS_MAX;

/// How much of a name that may be anything is quoted.
const QUOTED_MAX: usize = 64;

impl Carrier {
    pub(super) async fn bind(&mut self, v1::Bind { bindings }: v1::Bind) -> Result<(), Refusal> {
        if bindings.len() > BINDINGS_MAX {
            let text = format!("{} bindings in one message; at most {BINDINGS_MAX} are taken", bindings.len());
            return Err(Refusal::message(text));
        }
        let mut answers = Vec::with_capacity(bindings.len());
        let mut allowed = Vec::with_capacity(bindings.len());
        let mut handles = HashSet::with_capacity(bindings.len());
        for binding in bindings {
            match self.check(&binding, &mut handles) {
                Ok(()) => allowed.push(binding),
                Err(why) => {
                    self.sessions.figures().refuse(Refused::Scope);
                    answers.push(refused_node(binding.handle, &why));
                }
            }
        }
        let looks = look_for_all(&self.sessions, &allowed).await;
        let known = self.divide(allowed, looks, &mut answers);
        self.bind_known(known, &mut answers).await;
        self.bound(answers);
        Ok(())
    }

    fn check(&self, binding: &v1::Binding, handles: &mut HashSet<u32>) -> Result<(), String> {
        let v1::Binding { handle, node, .. } = binding;
        if *handle >= HANDLES_MAX {
            return Err(format!("handle {handle} is too high; they must be below {HANDLES_MAX}"));
        }
        if !handles.insert(*handle) {
            return Err(format!("handle {handle} is bound twice in one message"));
        }
        if !self.scope.may_carry(node) {
            return Err(self.out_of_scope(&Text::clipped(node, QUOTED_MAX)));
        }
        Ok(())
    }

    /// Answers for the nodes that cannot be bound now, and hands back the others.
    fn divide(
        &mut self,
        bindings: Vec<v1::Binding>,
        looks: Vec<Look>,
        answers: &mut Vec<v1::BoundNode>,
    ) -> Vec<(u32, Admitted)> {
        let mut known = Vec::with_capacity(bindings.len());
        for (v1::Binding { handle, node, .. }, look) in bindings.into_iter().zip(looks) {
            match look {
                Look::Known(node) => {
                    let number = self.sessions.claimant().number();
                    known.push((handle, Admitted { node, number, verdict: Verdict::Provisional }));
                }
                Look::Unknown(_) => {
                    self.strangers.remove(&handle);
                    self.holds.expect(handle, node.into());
                    answers.push(v1::BoundNode { handle, registration_wanted: true, ..Default::default() });
                }
                Look::Doubtful(why) => {
                    self.sessions.figures().refuse(Refused::NoLeader);
                    let why = format!("{why}, it seems, but no leader can be asked; try again in a moment");
                    answers.push(refused_node(handle, &why));
                }
            }
        }
        known
    }

    async fn bind_known(&mut self, mut known: Vec<(u32, Admitted)>, answers: &mut Vec<v1::BoundNode>) {
        let claim = |(_, admitted): &(u32, Admitted)| self.caller.claim(admitted.node.slot, admitted.number);
        let verdicts = self.sessions.claimant().claim(known.iter().map(claim).collect()).await;
        for ((_, admitted), verdict) in known.iter_mut().zip(verdicts) {
            admitted.verdict = verdict;
        }
        for (handle, admitted) in known {
            let place = (&self.stream.bell, handle);
            match Binding::new(&self.sessions, &admitted, &self.caller, place) {
                Ok(binding) => {
                    let (incarnation, status_wanted) = (binding.incarnation().0, status_wanted(&admitted.node));
                    self.strangers.remove(&handle);
                    self.holds.bind(handle, binding);
                    answers.push(v1::BoundNode { handle, incarnation, status_wanted, ..Default::default() });
                }
                Err(refusal) => {
                    self.sessions.figures().refuse(refusal.reason);
                    self.holds.remove(handle);
                    answers.push(refused_node(handle, refusal.status.message()));
                }
            }
        }
    }
}

/// Those in doubt are doubtful still if this replica cannot catch up.
async fn look_for_all(sessions: &Sessions, bindings: &[v1::Binding]) -> Vec<Look> {
    let look_now = || -> Vec<Look> {
        let current = sessions.replica().current();
        bindings.iter().map(|binding| look(&current.state, &binding.node, binding.incarnation)).collect()
    };
    let looks = look_now();
    if !looks.iter().any(|look| matches!(look, Look::Doubtful(_))) || sessions.catch_up().await.is_err() {
        return looks;
    }
    look_now().into_iter().map(Look::decided).collect()
}
