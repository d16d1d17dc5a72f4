//! etcd cluster of three members, started for the comparison and ended with it: real files, etcd's own defaults, and
//! TLS for clients as we have it.
//!
//! Members speak plain TCP to each other, which is in etcd's favour: a member that does not lead opens a connection
//! to the leader for most keep-alives that it passes on, and with TLS half of them would be lost to handshakes.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use muster_pki::HostPort;
use rustix::fs::{Access, access};
use rustls::ClientConfig;
use tokio::time::timeout;

use super::call::EtcdClient;
use super::credentials::Credentials;
use crate::harness::cluster::free_ports;

pub(super) const MEMBERS: u16 = 3;
const START_TIMEOUT: Duration = Duration::from_secs(60);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Lines shown of the log of a member that did not start.
const LOG_LINES: usize = 10;
/// etcd takes any flag from the environment; only the variable that lets it run at all on this processor is let
/// through.
const ENVIRONMENT_PREFIX: &str = "ETCD_";
const ENVIRONMENT_KEPT: &str = "ETCD_UNSUPPORTED_ARCH";

/// An `etcd` that is installed.
#[derive(Debug, Clone)]
pub(super) struct EtcdBinary {
    path: PathBuf,
    version: String,
}

#[derive(Debug)]
pub(super) struct EtcdCluster {
    members: Vec<Member>,
    tls: Arc<ClientConfig>,
    /// Removed after the members that write into it have ended.
    _dir: tempfile::TempDir,
}

/// Which members are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// All members, as clients call them that know all and choose one.
    All,
    /// No client can rely on it, but it is the best that etcd can do: no call has to be passed on.
    Leader,
}

#[derive(Debug)]
struct Member {
    process: Child,
    address: HostPort,
    log: PathBuf,
}

/// The loopback ports of one member.
#[derive(Debug, Clone, Copy)]
struct Place {
    number: u16,
    client: u16,
    peer: u16,
}

// === impl EtcdBinary ===

impl EtcdBinary {
    /// Nothing if none is installed.
    pub(super) fn find() -> Result<Option<Self>> {
        let path = env::var_os("PATH").unwrap_or_default();
        find_in(&path, "etcd").map(Self::ask_version).transpose()
    }

    fn ask_version(path: PathBuf) -> Result<Self> {
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{} --version", path.display()))?;
        let version = version(&String::from_utf8_lossy(&output.stdout)).unwrap_or("of unknown version").to_owned();
        Ok(Self { path, version })
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }
}

fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    let runs = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    env::split_paths(path).map(|dir| dir.join(name)).find(runs)
}

fn version(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("etcd Version:")).map(str::trim)
}

// === impl EtcdCluster ===

impl EtcdCluster {
    /// Returns when every member hears a leader.
    pub(super) async fn start(program: &EtcdBinary) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let credentials = Credentials::make(dir.path())?;
        let base = free_ports()?;
        let places: Vec<Place> = (0..MEMBERS).map(|number| Place::new(number, base)).collect();
        let start = |place: &Place| Member::start(program, *place, &places, &credentials, dir.path());
        let members = places.iter().map(start).collect::<Result<Vec<_>>>()?;
        let mut etcd = Self { members, tls: credentials.client()?, _dir: dir };
        etcd.wait_healthy().await?;
        Ok(etcd)
    }

    /// `count` connections, spread over the members or all to the leader.
    pub(super) async fn connect(&self, count: usize, reach: Reach) -> Result<Vec<EtcdClient>> {
        let members: Vec<&Member> = match reach {
            Reach::All => self.members.iter().collect(),
            Reach::Leader => vec![self.leader().await?],
        };
        try_join_all(members.into_iter().cycle().take(count).map(|member| self.client(member))).await
    }

    async fn leader(&self) -> Result<&Member> {
        for member in &self.members {
            if self.client(member).await?.leads().await? {
                return Ok(member);
            }
        }
        bail!("no etcd member says that it leads")
    }

    async fn client(&self, member: &Member) -> Result<EtcdClient> {
        let connecting = EtcdClient::connect(Arc::clone(&self.tls), member.address.clone());
        connecting.await.with_context(|| format!("a connection to the etcd member at {}", member.address))
    }

    /// Labels and process ids for a meter.
    pub(super) fn processes(&self) -> Vec<(String, u32)> {
        let label = |(index, member): (usize, &Member)| (format!("etcd {}", index + 1), member.process.id());
        self.members.iter().enumerate().map(label).collect()
    }

    async fn wait_healthy(&mut self) -> Result<()> {
        let start = Instant::now();
        for member in &mut self.members {
            while let Err(error) = member.answer(&self.tls).await {
                if let Some(status) = member.process.try_wait()? {
                    bail!("an etcd member did not start ({status}):\n{}", member.log_tail());
                }
                if start.elapsed() > START_TIMEOUT {
                    let waited = START_TIMEOUT.as_secs();
                    bail!("etcd is not healthy after {waited} s ({error:#}):\n{}", member.log_tail());
                }
                tokio::time::sleep(POLL_EVERY).await;
            }
        }
        Ok(())
    }
}

// === impl Member ===

impl Member {
    fn start(
        program: &EtcdBinary,
        place: Place,
        places: &[Place],
        credentials: &Credentials,
        dir: &Path,
    ) -> Result<Self> {
        let log = dir.join(format!("{}.log", place.name()));
        let mut command = Command::new(&program.path);
        for (name, _) in env::vars_os().filter(|(name, _)| is_foreign(name)) {
            command.env_remove(name);
        }
        let process = command
            .args(place.flags(places))
            .args(credentials.flags())
            .arg("--data-dir")
            .arg(dir.join(place.name()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.path.display()))?;
        Ok(Self { process, address: format!("127.0.0.1:{}", place.client).parse()?, log })
    }

    async fn answer(&self, tls: &Arc<ClientConfig>) -> Result<()> {
        let asking = async { EtcdClient::connect(Arc::clone(tls), self.address.clone()).await?.revision().await };
        timeout(ATTEMPT_TIMEOUT, asking).await.context("no answer")??;
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Its data are of no further use, so it need not end in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_foreign(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(ENVIRONMENT_PREFIX) && name != ENVIRONMENT_KEPT)
}

// === impl Place ===

impl Place {
    fn new(number: u16, base: u16) -> Self {
        Self { number, client: base + 2 * number, peer: base + 2 * number + 1 }
    }

    fn name(self) -> String {
        format!("member-{}", self.number + 1)
    }

    fn peer_url(self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }

    fn flags(self, all: &[Self]) -> Vec<String> {
        let client = format!("https://127.0.0.1:{}", self.client);
        let members: Vec<String> = all.iter().map(|place| format!("{}={}", place.name(), place.peer_url())).collect();
        let pairs = [
            ("name", self.name()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", self.peer_url()),
            ("initial-advertise-peer-urls", self.peer_url()),
            ("initial-cluster", members.join(",")),
            ("initial-cluster-token", "muster-bench".to_owned()),
            ("initial-cluster-state", "new".to_owned()),
            ("logger", "zap".to_owned()),
            ("log-level", "warn".to_owned()),
        ];
        pairs.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_an_executable_etcd_is_found() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path = env::join_paths(dirs.iter().map(|dir| dir.path())).unwrap();
        assert_eq!(find_in(&path, "etcd"), None);
        std::fs::write(dirs[0].path().join("etcd"), "not a program").unwrap();
        std::fs::create_dir(dirs[1].path().join("etcd")).unwrap();
        assert_eq!(find_in(&path, "etcd"), None);
        let program = dirs[2].path().join("etcd");
        std::fs::write(&program, "a program").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(find_in(&path, "etcd"), Some(program));
    }

    #[test]
    fn the_version_is_read_from_several_lines_of_output() {
        assert_eq!(version("etcd Version: 3.4.23\nGit SHA: none\nGo Version: go1.19.8\n"), Some("3.4.23"));
        assert_eq!(version("usage: etcd"), None);
    }

    #[test]
    fn settings_of_another_etcd_do_not_reach_ours() {
        for (name, foreign) in [("ETCD_DATA_DIR", true), ("ETCD_UNSUPPORTED_ARCH", false), ("PATH", false)] {
            assert_eq!(is_foreign(OsStr::new(name)), foreign, "{name}");
        }
    }

    #[test]
    fn no_two_listeners_share_a_port() {
        let places: Vec<Place> = (0..MEMBERS).map(|number| Place::new(number, 12_000)).collect();
        let mut ports: Vec<u16> = places.iter().flat_map(|place| [place.client, place.peer]).collect();
        ports.sort_unstable();
        assert_eq!(ports, (12_000..12_006).collect::<Vec<_>>());
        let flags = places[1].flags(&places);
        let cluster = "--initial-cluster=member-1=http://127.0.0.1:12001,member-2=http://127.0.0.1:12003,\
                       member-3=http://127.0.0.1:12005";
        assert!(flags.iter().any(|flag| flag == cluster), "{flags:?}");
    }
}
