//! Processes of a pod: started in their groups, asked to end, killed with all their descendants, and reaped.

use std::collections::HashMap;
use std::io::{self, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process_group, wait, waitid,
};

use super::super::cgroup::PodGroup;
use super::super::core::Exit;
use super::super::manifest::{CONTAINER_MARK, ContainerPlan, POD_MARK};
use super::super::pod_files::PodRecord;
use super::super::process_tree;
use super::super::unrecorded::{NAME_MARK, NAMESPACE_MARK};
use super::log;

pub(super) struct PodProcesses {
    /// Environment variables that mark every process of the pod.
    marks: Vec<(&'static str, String)>,
    group: Option<PodGroup>,
    /// A group that could not be created or entered: it is not used, but still removed in the end.
    unusable: Option<PodGroup>,
    running: HashMap<Pid, ContainerProcess>,
}

struct ContainerProcess {
    index: usize,
    name: String,
    /// Kills for lack of memory in the group before this container started.
    oom_kills: u64,
}

/// The reading ends of a container's output.
pub(super) struct Output {
    pub(super) out: PipeReader,
    pub(super) err: PipeReader,
}

// === impl PodProcesses ===

impl PodProcesses {
    pub(super) fn new(record: &PodRecord) -> Self {
        let marks = vec![
            (POD_MARK, record.uid.clone()),
            (NAMESPACE_MARK, record.namespace.clone()),
            (NAME_MARK, record.name.clone()),
        ];
        let group = record.settings.cgroup.clone().map(PodGroup::new);
        let mut processes = Self { marks, group, unusable: None, running: HashMap::new() };
        if let Some(Err(error)) = processes.group.as_ref().map(PodGroup::make) {
            log(format_args!("the pod runs without a control group and without limits: {error}"));
            processes.stop_using_group();
        }
        processes
    }

    fn stop_using_group(&mut self) {
        self.unusable = self.group.take();
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
                    log(format_args!(
                        "container {} runs outside its control group or without its limits: {error}",
                        plan.name
                    ));
                    self.stop_using_group();
                }
                child
            }
        }?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        // The agent lowers its own OOM score; its pods must not inherit that.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), "0");
        self.running.insert(pid, ContainerProcess { index, name: plan.name.clone(), oom_kills });
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

    /// Signals each process once: some programs take a second signal as a demand to exit at once.
    pub(super) fn terminate(&self) {
        let leads = |group: i32| Pid::from_raw(group).is_some_and(|leader| self.running.contains_key(&leader));
        for stray in process_tree::descendants_of(own()).iter().filter(|process| !leads(process.group)) {
            stray.signal(Signal::TERM);
        }
        for leader in self.running.keys() {
            // The leader is not reaped yet, so the pid is still its own.
            let _ = kill_process_group(*leader, Signal::TERM);
        }
    }

    pub(super) fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill(None);
        }
        for process in process_tree::descendants_of(own()) {
            process.signal(Signal::KILL);
        }
    }

    /// Whether nothing is left, not even a group.
    pub(super) fn all_gone(&self) -> bool {
        if let Some(unusable) = &self.unusable {
            // Its processes are found among the descendants; the removal is not waited for, because the group may
            // never have existed.
            unusable.remove();
        }
        process_tree::descendants_of(own()).is_empty() && self.group.as_ref().is_none_or(PodGroup::remove)
    }

    /// The containers whose main process ended. Processes they leave behind are killed.
    pub(super) fn reap(&mut self) -> Vec<(usize, Exit)> {
        for leader in self.running.keys().filter(|pid| has_ended(**pid)) {
            let _ = kill_process_group(*leader, Signal::KILL);
        }
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(member) = self.running.remove(&pid) {
                ended.push((member.index, self.clean_up(&member, status)));
            }
        }
        ended
    }

    fn clean_up(&self, member: &ContainerProcess, status: WaitStatus) -> Exit {
        let container = member.name.as_str();
        let Some(group) = &self.group else {
            for process in
                process_tree::marked(process_tree::descendants_of(own()), &format!("{CONTAINER_MARK}={container}"))
            {
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

/// `oom_kills`: kills for lack of memory while the container ran.
fn explained(exit: Exit, oom_kills: u64) -> Exit {
    match exit == Exit::Signal(Signal::KILL.as_raw()) && oom_kills > 0 {
        true => Exit::OutOfMemory,
        false => exit,
    }
}

fn own() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Checks without reaping.
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
    use super::super::super::pod_files::{CgroupSettings, ShimSettings};
    use super::*;

    fn record(cgroup: CgroupSettings) -> PodRecord {
        let [uid, namespace, name, boot_id, manifest] = ["7", "default", "web", "now", "{}"].map(str::to_owned);
        let settings = ShimSettings { log_bytes: 1, log_files: 1, cgroup: Some(cgroup) };
        PodRecord { uid, namespace, name, boot_id, manifest, settings }
    }

    #[test]
    fn a_kill_for_lack_of_memory_is_reported_as_out_of_memory() {
        let killed = || Exit::Signal(9);
        let table = [(killed(), 1, Exit::OutOfMemory), (killed(), 0, killed()), (Exit::Code(1), 1, Exit::Code(1))];
        for (exit, oom_kills, expected) in table {
            assert_eq!(explained(exit, oom_kills), expected, "{oom_kills}");
        }
    }

    #[test]
    fn an_unusable_cgroup_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, home) = (dir.path().join("pod"), dir.path().to_owned());
        // Makes writing the limit fail.
        for file in ["pids.max", "cgroup.subtree_control"] {
            std::fs::create_dir_all(pod.join(file)).unwrap();
        }
        let controllers = vec!["pids".to_owned()];
        let processes =
            PodProcesses::new(&record(CgroupSettings { pod: pod.clone(), home, controllers, pids_max: Some(9) }));
        assert!(processes.group.is_none() && pod.exists());
        processes.all_gone();
        assert!(!pod.exists());
    }
}
