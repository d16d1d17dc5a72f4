//! The processes of a pod: born in their groups, asked to end, killed with all their descendants, and reaped.

use std::collections::HashMap;
use std::io::{self, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process_group, wait, waitid,
};

use super::super::cgroup::PodGroup;
use super::super::core::Exit;
use super::super::kin;
use super::super::manifest::{CONTAINER_MARK, ContainerPlan, POD_MARK};
use super::super::record::Record;
use super::say;

pub(super) struct Family {
    /// In every environment: of which pod a process is.
    marks: Vec<(&'static str, String)>,
    group: Option<PodGroup>,
    /// A group that could not be made or entered: not to be relied on, but not to be left behind either.
    spoilt: Option<PodGroup>,
    running: HashMap<Pid, Member>,
}

struct Member {
    index: usize,
    name: String,
    /// Those before it, in a group that could not be removed when they had ended.
    oom_kills: u64,
}

/// The other ends of what a container prints.
pub(super) struct Output {
    pub(super) out: PipeReader,
    pub(super) err: PipeReader,
}

// === impl Family ===

impl Family {
    pub(super) fn new(record: &Record) -> Self {
        let marks = vec![
            (POD_MARK, record.uid.clone()),
            ("MUSTER_POD_NAMESPACE", record.namespace.clone()),
            ("MUSTER_POD_NAME", record.name.clone()),
        ];
        let group = record.settings.cgroup.clone().map(PodGroup::new);
        let mut family = Self { marks, group, spoilt: None, running: HashMap::new() };
        if let Some(Err(error)) = family.group.as_ref().map(PodGroup::make) {
            say(format_args!("the pod has no control group, and no limits: {error}"));
            family.give_up_group();
        }
        family
    }

    fn give_up_group(&mut self) {
        self.spoilt = self.group.take();
    }

    pub(super) fn pid_of(&self, index: usize) -> Option<i32> {
        let member = self.running.iter().find(|(_, member)| member.index == index);
        member.map(|(pid, _)| pid.as_raw_nonzero().get())
    }

    pub(super) fn spawn(&mut self, index: usize, plan: &ContainerPlan) -> io::Result<Output> {
        let ((out, out_end), (err, err_end)) = (io::pipe()?, io::pipe()?);
        let oom_kills = self.group.as_ref().map_or(0, |group| group.oom_kills(&plan.name));
        let mut command = self.command(plan);
        command.stdin(Stdio::null()).stdout(out_end).stderr(err_end);
        let child = match &self.group {
            None => command.spawn(),
            Some(group) => {
                let (child, grouped) = group.spawn_in(&plan.name, &plan.limits, || command.spawn());
                if let Err(error) = grouped {
                    say(format_args!("container {} is outside of its control group or limits: {error}", plan.name));
                    self.give_up_group();
                }
                child
            }
        }?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        // The agent asks to be spared when memory runs out; its pods must not be.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), "0");
        self.running.insert(pid, Member { index, name: plan.name.clone(), oom_kills });
        Ok(Output { out, err })
    }

    fn command(&self, plan: &ContainerPlan) -> Command {
        let mut command = Command::new(&plan.program);
        command.args(&plan.args).current_dir(&plan.dir).process_group(0).env_clear();
        command.envs(plan.env.iter().map(|(name, value)| (name, value)));
        command.envs(self.marks.iter().map(|(name, value)| (name, value))).env(CONTAINER_MARK, &plan.name);
        if let Some(group) = plan.group {
            command.gid(group);
        }
        if let Some(user) = plan.user {
            command.uid(user);
        }
        command
    }

    /// Once each: some programs take a second signal for impatience.
    pub(super) fn terminate(&self) {
        let leads = |group: i32| Pid::from_raw(group).is_some_and(|leader| self.running.contains_key(&leader));
        for stray in kin::descendants_of(own()).iter().filter(|process| !leads(process.group)) {
            stray.signal(Signal::TERM);
        }
        for leader in self.running.keys() {
            // Not reaped yet, so that the number is still theirs.
            let _ = kill_process_group(*leader, Signal::TERM);
        }
    }

    pub(super) fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill(None);
        }
        for process in kin::descendants_of(own()) {
            process.signal(Signal::KILL);
        }
    }

    /// True if it is so: nothing is left, not even a group.
    pub(super) fn is_extinct(&self) -> bool {
        if let Some(spoilt) = &self.spoilt {
            // What is in it is found among the descendants; nobody waits for a group that may never have been there.
            spoilt.remove();
        }
        kin::descendants_of(own()).is_empty() && self.group.as_ref().is_none_or(PodGroup::remove)
    }

    /// The containers whose own process ended. What they leave behind is killed.
    pub(super) fn reap(&mut self) -> Vec<(usize, Exit)> {
        for leader in self.running.keys().filter(|pid| has_ended(**pid)) {
            let _ = kill_process_group(*leader, Signal::KILL);
        }
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(member) = self.running.remove(&pid) {
                ended.push((member.index, self.bury(&member, status)));
            }
        }
        ended
    }

    fn bury(&self, member: &Member, status: WaitStatus) -> Exit {
        let container = member.name.as_str();
        let Some(group) = &self.group else {
            for process in kin::marked(kin::descendants_of(own()), &format!("{CONTAINER_MARK}={container}")) {
                process.signal(Signal::KILL);
            }
            return exit_of(status);
        };
        group.kill(Some(container));
        let exit = exit_of(status);
        let oom_kills = group.oom_kills(container).saturating_sub(member.oom_kills);
        group.remove_container(container);
        explained(exit, oom_kills)
    }
}

/// `oom_kills`: how many the kernel killed for want of memory while the container ran.
fn explained(exit: Exit, oom_kills: u64) -> Exit {
    match exit == Exit::Signal(Signal::KILL.as_raw()) && oom_kills > 0 {
        true => Exit::OutOfMemory,
        false => exit,
    }
}

fn own() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Without reaping it.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::NotStarted("it ended in an unknown way".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::{CgroupSettings, Settings};
    use super::*;

    fn record(cgroup: CgroupSettings) -> Record {
        let [uid, namespace, name, boot_id, manifest] = ["7", "default", "web", "now", "{}"].map(str::to_owned);
        let settings = Settings { log_bytes: 1, log_files: 1, cgroup: Some(cgroup) };
        Record { uid, namespace, name, boot_id, manifest, settings }
    }

    #[test]
    fn who_was_killed_for_want_of_memory_while_it_ran_starved() {
        let killed = || Exit::Signal(9);
        let table = [(killed(), 1, Exit::OutOfMemory), (killed(), 0, killed()), (Exit::Code(1), 1, Exit::Code(1))];
        for (exit, oom_kills, expected) in table {
            assert_eq!(explained(exit, oom_kills), expected, "{oom_kills}");
        }
    }

    #[test]
    fn a_group_that_is_not_to_be_relied_on_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, home) = (dir.path().join("pod"), dir.path().to_owned());
        // So that the limit cannot be written.
        for file in ["pids.max", "cgroup.subtree_control"] {
            std::fs::create_dir_all(pod.join(file)).unwrap();
        }
        let controllers = vec!["pids".to_owned()];
        let family = Family::new(&record(CgroupSettings { pod: pod.clone(), home, controllers, pids_max: Some(9) }));
        assert!(family.group.is_none() && pod.exists());
        family.is_extinct();
        assert!(!pod.exists());
    }
}
