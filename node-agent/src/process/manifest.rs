//! Manifest of a pod, read as far as plain processes can run it. Fields that this runtime cannot honour and that would
//! change the meaning of the pod are refused by name. Fields for other components, or that only narrow the placement,
//! are ignored.

use std::time::Duration;

use muster_lifecycle::quantity::Quantity;
use serde_json::Value;
use thiserror::Error;

use super::expansion::expand;

use place::Place;

mod place;
#[cfg(test)]
mod tests;

/// More would be a mistake, or an attack on the machine's file descriptors.
const CONTAINERS_MAX: usize = 64;
const NAME_MAX: usize = 63;
/// Kubernetes' default grace period.
const GRACE: Duration = Duration::from_secs(30);
/// The default search path of programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Environment variables that name the pod and container of a process: an agent finds the process by them if
/// everything else is lost.
pub(super) const POD_MARK: &str = "MUSTER_POD_UID";
pub(super) const CONTAINER_MARK: &str = "MUSTER_CONTAINER";

/// Isolation, identities, devices and files that this runtime does not provide.
const POD_REFUSED: [&str; 5] = ["volumes", "ephemeralContainers", "runtimeClassName", "resourceClaims", "hostAliases"];
const CONTAINER_REFUSED: [&str; 8] =
    ["volumeMounts", "volumeDevices", "envFrom", "lifecycle", "tty", "stdin", "restartPolicy", "restartPolicyRules"];
/// Fields that this runtime does not honour; the pod runs without them.
const CONTAINER_IGNORED: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const SECURITY_KNOWN: [&str; 3] = ["runAsUser", "runAsGroup", "runAsNonRoot"];

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {rule}")]
pub(super) struct Unsupported {
    pub(super) field: String,
    pub(super) rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodPlan {
    /// Init containers first.
    pub(super) containers: Vec<ContainerPlan>,
    pub(super) inits: usize,
    pub(super) policy: RestartPolicy,
    pub(super) grace: Duration,
    pub(super) active_deadline: Option<Duration>,
    /// The fields that are not honoured.
    pub(super) ignored: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerPlan {
    pub(super) name: String,
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) dir: String,
    pub(super) user: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) limits: Limits,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) cpu_millis: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
}

/// The user and group of a container, if its pod or the container names them.
#[derive(Clone, Copy, Default)]
struct Identity {
    user: Option<u32>,
    group: Option<u32>,
    non_root: bool,
}

// === impl PodPlan ===

impl PodPlan {
    /// `as_root`: whether a container without a user of its own would run as root.
    pub(super) fn read(manifest: &[u8], as_root: bool) -> Result<Self, Unsupported> {
        let pod: Value = serde_json::from_slice(manifest).map_err(|error| Unsupported {
            field: "manifest".to_owned(),
            rule: format!("it is not JSON ({error}): create the pod anew"),
        })?;
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let spec = Place::root(&pod).child("spec");
        spec.refuse(&POD_REFUSED)?;
        if let Some(name) = spec.child("os").child("name").text()?.filter(|name| *name != "linux") {
            return Err(spec.child("os").child("name").error(&format!("{name:?} does not run on this linux node")));
        }
        let identity = Identity::default().refined(&spec.child("securityContext"))?;
        let inits = spec.child("initContainers").items()?;
        let mains = spec.child("containers").items()?;
        if mains.is_empty() || inits.len() + mains.len() > CONTAINERS_MAX {
            return Err(spec.child("containers").error(&format!("a pod has 1 to {CONTAINERS_MAX} containers")));
        }
        let all: Vec<Place<'_>> = inits.iter().chain(&mains).cloned().collect();
        let read = |place: &Place<'_>| ContainerPlan::read(place, identity, as_root, &pod_name);
        let containers = all.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        require_different_names(&containers, &spec)?;
        Ok(Self {
            containers,
            inits: inits.len(),
            policy: RestartPolicy::read(&spec.child("restartPolicy"))?,
            grace: spec.child("terminationGracePeriodSeconds").seconds()?.unwrap_or(GRACE),
            active_deadline: spec.child("activeDeadlineSeconds").seconds()?,
            ignored: all.iter().flat_map(|place| place.present(&CONTAINER_IGNORED)).collect(),
        })
    }
}

fn require_different_names(containers: &[ContainerPlan], spec: &Place<'_>) -> Result<(), Unsupported> {
    let mut names: Vec<_> = containers.iter().map(|container| container.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair.first() == pair.last());
    twice.map_or(Ok(()), |pair| Err(spec.child("containers").error(&format!("{pair:?}: names must differ"))))
}

// === impl RestartPolicy ===

impl RestartPolicy {
    fn read(place: &Place<'_>) -> Result<Self, Unsupported> {
        match place.text()? {
            None | Some("Always") => Ok(Self::Always),
            Some("OnFailure") => Ok(Self::OnFailure),
            Some("Never") => Ok(Self::Never),
            Some(other) => Err(place.error(&format!("{other:?} is none of Always, OnFailure and Never"))),
        }
    }
}

// === impl ContainerPlan ===

impl ContainerPlan {
    fn read(place: &Place<'_>, pod: Identity, as_root: bool, pod_name: &str) -> Result<Self, Unsupported> {
        place.refuse(&CONTAINER_REFUSED)?;
        let name = name_of(&place.child("name"))?;
        let env = environment(&place.child("env"), pod_name)?;
        let lookup = |wanted: &str| env.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let words = |field: &str| -> Result<Vec<String>, Unsupported> {
            let words = place.child(field).texts()?;
            Ok(words.into_iter().map(|word| expand(word, lookup)).collect())
        };
        let mut command = words("command")?.into_iter();
        let program = command.next().filter(|program| !program.is_empty()).ok_or_else(|| {
            place.child("command").error(
                "it must name a program: this node runs plain processes and cannot look up what the image would run",
            )
        })?;
        let identity = pod.refined(&place.child("securityContext"))?;
        identity.require_allowed(as_root, &place.child("securityContext"))?;
        let (user, group) = (identity.user, identity.group);
        Ok(Self {
            args: command.chain(words("args")?).collect(),
            dir: working_dir(&place.child("workingDir"))?,
            limits: Limits::read(&place.child("resources").child("limits"))?,
            name,
            program,
            env,
            user,
            group,
        })
    }
}

/// The name becomes a part of paths.
fn name_of(place: &Place<'_>) -> Result<String, Unsupported> {
    let name = place.text()?.unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edges = !name.starts_with('-') && !name.ends_with('-');
    match !name.is_empty() && name.len() <= NAME_MAX && edges && name.bytes().all(plain) {
        true => Ok(name.to_owned()),
        false => Err(place.error("it must be 1 to 63 of a-z, 0-9 and -, and neither begin nor end with -")),
    }
}

/// Later variables may refer to earlier ones. Nothing is inherited from the agent, whose environment may hold secrets.
fn environment(place: &Place<'_>, pod_name: &str) -> Result<Vec<(String, String)>, Unsupported> {
    let mut env = vec![("PATH".to_owned(), PATH.to_owned()), ("HOSTNAME".to_owned(), pod_name.to_owned())];
    for item in place.items()? {
        item.refuse(&["valueFrom"])?;
        let name = item.child("name").text()?.unwrap_or_default();
        if name.is_empty() || name.contains('=') {
            return Err(item.child("name").error("it must not be empty and must not contain ="));
        }
        let value = item.child("value").text()?.unwrap_or_default();
        let lookup = |wanted: &str| env.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let value = expand(value, lookup);
        env.retain(|(known, _)| known != name);
        env.push((name.to_owned(), value));
    }
    Ok(env)
}

fn working_dir(place: &Place<'_>) -> Result<String, Unsupported> {
    match place.text()?.unwrap_or_default() {
        "" => Ok("/".to_owned()),
        dir if dir.starts_with('/') => Ok(dir.to_owned()),
        dir => Err(place.error(&format!("{dir:?} is not an absolute path"))),
    }
}

// === impl Limits ===

impl Limits {
    fn read(place: &Place<'_>) -> Result<Self, Unsupported> {
        let quantity = |field: &str| -> Result<Option<Quantity>, Unsupported> {
            let place = place.child(field);
            let written = place.quantity_text()?;
            let parse = |text: String| text.parse().map_err(|error| place.error(&format!("{error}")));
            let quantity: Option<Quantity> = written.map(parse).transpose()?;
            match quantity.filter(|quantity| quantity.is_negative()) {
                Some(_) => Err(place.error("it must not be negative")),
                None => Ok(quantity.filter(|quantity| !quantity.is_zero())),
            }
        };
        let millis = |cpu: Quantity| u64::try_from(cpu.nanos().div_euclid(1_000_000)).unwrap_or(u64::MAX).max(1);
        let bytes = |memory: Quantity| u64::try_from(memory.to_i64_ceil()).unwrap_or(u64::MAX);
        Ok(Self { cpu_millis: quantity("cpu")?.map(millis), memory_bytes: quantity("memory")?.map(bytes) })
    }
}

// === impl Identity ===

impl Identity {
    /// The container's values win over the pod's. A restriction that cannot be honoured is refused: running without it
    /// would be worse than not running.
    fn refined(self, place: &Place<'_>) -> Result<Self, Unsupported> {
        place.refuse_all_but(&SECURITY_KNOWN)?;
        Ok(Self {
            user: place.child("runAsUser").id()?.or(self.user),
            group: place.child("runAsGroup").id()?.or(self.group),
            non_root: place.child("runAsNonRoot").flag()?.unwrap_or(self.non_root),
        })
    }

    fn require_allowed(self, as_root: bool, place: &Place<'_>) -> Result<(), Unsupported> {
        let root = self.user.map_or(as_root, |user| user == 0);
        match self.non_root && root {
            true => Err(place.child("runAsNonRoot").error("it would run as root: set runAsUser")),
            false => Ok(()),
        }
    }
}
