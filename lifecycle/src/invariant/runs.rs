//! Runs of pods on machines, and what is true of them over a whole history (I-12, I-14).
//!
//! A history is what the machines themselves did, not what the fleet believes. A machine notes that a run begins before
//! anything starts, and that it has ended after nothing is left, so a run is never shorter than the processes were.

use std::collections::BTreeMap;

use thiserror::Error;

/// One run of a pod on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRun {
    /// The machine itself: two machines may claim to be the same node.
    pub machine: String,
    pub node: String,
    /// Namespace and name.
    pub pod: String,
    pub uid: String,
    /// In milliseconds of one clock for all machines.
    pub began: u64,
    /// None: it still runs.
    pub ended: Option<u64>,
}

/// What machines did, in the order in which it is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunHistory {
    runs: Vec<PodRun>,
    /// The run of each pod that runs, by machine and uid.
    open: BTreeMap<(String, String), usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunViolation {
    #[error("I-12: two pods of the name {} ran at the same time: {}; {}", first.pod, first.shown(), second.shown())]
    NameTwice { first: Box<PodRun>, second: Box<PodRun> },
    #[error("I-14: two machines obeyed orders for node {}: {}; {}", first.node, first.shown(), second.shown())]
    ObeyedByClone { first: Box<PodRun>, second: Box<PodRun> },
}

// === impl PodRun ===

impl PodRun {
    fn overlaps(&self, other: &Self) -> bool {
        let begins_before_end = |one: &Self, other: &Self| other.ended.is_none_or(|ended| one.began < ended);
        begins_before_end(self, other) && begins_before_end(other, self)
    }

    fn shown(&self) -> String {
        let seconds = |millis: u64| format!("{}.{:03} s", millis / 1000, millis % 1000);
        let until = self.ended.map_or_else(|| "still".to_owned(), |ended| format!("until {}", seconds(ended)));
        let Self { machine, pod, uid, began, .. } = self;
        format!("{pod} (uid {uid}) on machine {machine} from {}, {until}", seconds(*began))
    }
}

// === impl RunHistory ===

impl RunHistory {
    /// A run begins; a pod that runs on the machine already has not begun again.
    pub fn began(&mut self, run: PodRun) {
        let key = (run.machine.clone(), run.uid.clone());
        self.open.entry(key).or_insert_with(|| {
            self.runs.push(PodRun { ended: None, ..run });
            self.runs.len() - 1
        });
    }

    /// Nothing of the pod is left on the machine. The end of a pod that did not run there is no news.
    pub fn ended(&mut self, machine: &str, uid: &str, at: u64) {
        if let Some(place) = self.open.remove(&(machine.to_owned(), uid.to_owned())) {
            self.runs[place].ended = Some(at);
        }
    }

    /// The machine lost its power, and everything on it.
    pub fn lost_all(&mut self, machine: &str, at: u64) {
        let runs = &mut self.runs;
        self.open.retain(|(on, _), place| {
            let stays = on != machine;
            if !stays {
                runs[*place].ended = Some(at);
            }
            stays
        });
    }

    pub fn runs(&self) -> &[PodRun] {
        &self.runs
    }

    /// The uids of the pods that run on the machine.
    pub fn running_on(&self, machine: &str) -> impl Iterator<Item = &str> {
        let on_machine = self.open.range((machine.to_owned(), String::new())..);
        on_machine.take_while(move |((on, _), _)| on == machine).map(|((_, uid), _)| uid.as_str())
    }

    /// Adds what another history tells of other machines.
    pub fn merge(&mut self, other: Self) {
        let before = self.runs.len();
        self.runs.extend(other.runs);
        self.open.extend(other.open.into_iter().map(|(key, place)| (key, before + place)));
    }

    /// At no time did two pods of one name run, nor two machines run pods of one node.
    pub fn check(&self) -> Result<(), RunViolation> {
        let named = self.overlapping(|run| run.pod.as_str(), |_, _| true);
        if let Some((first, second)) = named {
            return Err(RunViolation::NameTwice { first, second });
        }
        match self.overlapping(|run| run.node.as_str(), |first, second| first.machine != second.machine) {
            Some((first, second)) => Err(RunViolation::ObeyedByClone { first, second }),
            None => Ok(()),
        }
    }

    /// Two runs with the same key at the same time that are in each other's way.
    fn overlapping<'a>(
        &'a self,
        key: impl Fn(&'a PodRun) -> &'a str,
        in_the_way: impl Fn(&PodRun, &PodRun) -> bool,
    ) -> Option<(Box<PodRun>, Box<PodRun>)> {
        let mut by_key: BTreeMap<&str, Vec<&PodRun>> = BTreeMap::new();
        self.runs.iter().for_each(|run| by_key.entry(key(run)).or_default().push(run));
        for mut runs in by_key.into_values() {
            runs.sort_by_key(|run| run.began);
            // Only runs that have not ended when the next begins can be in its way.
            let mut open: Vec<&PodRun> = Vec::new();
            for run in runs {
                open.retain(|earlier| earlier.overlaps(run));
                if let Some(first) = open.iter().find(|earlier| in_the_way(earlier, run)) {
                    return Some((Box::new((*first).clone()), Box::new(run.clone())));
                }
                open.push(run);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run((machine, node): (&str, &str), (pod, uid): (&str, &str), began: u64, ended: Option<u64>) -> PodRun {
        let [machine, node, pod, uid] = [machine, node, pod, uid].map(str::to_owned);
        PodRun { machine, node, pod, uid, began, ended }
    }

    fn history(runs: Vec<PodRun>) -> RunHistory {
        let mut history = RunHistory::default();
        for run in runs {
            let (machine, uid, ended) = (run.machine.clone(), run.uid.clone(), run.ended);
            history.began(run);
            ended.into_iter().for_each(|ended| history.ended(&machine, &uid, ended));
        }
        history
    }

    const A: (&str, &str) = ("a", "a");
    const B: (&str, &str) = ("b", "b");

    #[test]
    fn i_12_two_runs_of_one_name_at_the_same_time_are_found() {
        let (first, second) = (("default/web-0", "1"), ("default/web-0", "2"));
        for (ended, began, is_sound) in
            [(Some(10), 10, true), (Some(10), 11, true), (Some(10), 9, false), (None, 99, false)]
        {
            let history = history(vec![run(A, first, 0, ended), run(B, second, began, None)]);
            assert_eq!(history.check().is_ok(), is_sound, "{ended:?} {began}");
        }
        let overlapping = history(vec![run(B, second, 1_500, None), run(A, first, 0, Some(2_000))]);
        assert_eq!(
            overlapping.check().unwrap_err().to_string(),
            "I-12: two pods of the name default/web-0 ran at the same time: default/web-0 (uid 1) on machine a from \
             0.000 s, until 2.000 s; default/web-0 (uid 2) on machine b from 1.500 s, still"
        );
        let short =
            vec![run(A, first, 0, Some(100)), run(A, ("default/web-0", "3"), 5, Some(6)), run(B, second, 50, None)];
        assert!(matches!(history(short).check(), Err(RunViolation::NameTwice { .. })));
    }

    #[test]
    fn i_14_an_order_that_two_machines_of_one_name_obeyed_is_found() {
        let clone = ("a'", "a");
        let two =
            |began| vec![run(A, ("default/web-0", "1"), 0, Some(10)), run(clone, ("default/db", "2"), began, None)];
        assert_eq!(history(two(10)).check(), Ok(()), "one after the other, as after the exchange of a machine");
        let violation = history(two(9)).check().unwrap_err();
        assert!(violation.to_string().starts_with("I-14: two machines obeyed orders for node a: "), "{violation}");
        assert_eq!(history(vec![run(A, ("x", "1"), 0, None), run(A, ("y", "2"), 0, None)]).check(), Ok(()));
    }

    #[test]
    fn a_loss_of_power_ends_every_run_of_the_machine() {
        let mut history =
            history(vec![run(A, ("x", "1"), 0, None), run(A, ("y", "2"), 0, None), run(B, ("z", "3"), 0, None)]);
        assert_eq!(history.running_on("a").collect::<Vec<_>>(), ["1", "2"]);
        history.lost_all("a", 7);
        assert_eq!((history.running_on("a").count(), history.running_on("b").count()), (0, 1));
        assert_eq!(history.runs()[1].ended, Some(7));
        let mut all = RunHistory::default();
        all.merge(history.clone());
        all.merge(super::RunHistory::default());
        all.ended("b", "3", 9);
        assert_eq!(all.runs()[2].ended, Some(9));
    }
}
