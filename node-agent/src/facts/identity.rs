//! Identity of the machine, and the versions it runs.

use std::io;

use super::MissingFact;
use super::file::Root;

const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// The firmware's id comes first; virtual machines of other architectures have it in their device tree. The last file
/// is as unique, and upstream falls back to it too.
const SYSTEM_UUID: [&str; 4] =
    ["/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id", "/proc/device-tree/vm,uuid", "/etc/machine-id"];
const BOOT_ID: [&str; 1] = ["/proc/sys/kernel/random/boot_id"];
const KERNEL: [&str; 1] = ["/proc/sys/kernel/osrelease"];
const HOSTNAME: [&str; 1] = ["/proc/sys/kernel/hostname"];
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
const PRETTY_NAME: &str = "PRETTY_NAME";

/// A value that could not be read is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineIdentity {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel: String,
    pub os_image: String,
}

impl MachineIdentity {
    pub(crate) fn read(root: &Root, missing: &mut Vec<MissingFact>) -> Self {
        let mut line = |what, paths: &[&str]| {
            first(root, paths, Root::line).unwrap_or_else(|reason| leave_out(root, what, paths, &reason, missing))
        };
        Self {
            machine_id: line("machineID", &MACHINE_ID),
            system_uuid: line("systemUUID", &SYSTEM_UUID),
            boot_id: line("bootID", &BOOT_ID),
            kernel: line("kernelVersion", &KERNEL),
            os_image: first(root, &OS_RELEASE, pretty_name)
                .unwrap_or_else(|reason| leave_out(root, "osImage", &OS_RELEASE, &reason, missing)),
        }
    }
}

/// In lower case and trimmed, as upstream writes it.
pub(crate) fn hostname(root: &Root) -> Result<String, MissingFact> {
    first(root, &HOSTNAME, Root::line).map(|name| normal_hostname(&name)).map_err(|reason| MissingFact {
        what: "hostname",
        path: root.path(HOSTNAME[0]),
        reason,
    })
}

pub(crate) fn normal_hostname(name: &str) -> String {
    name.trim().to_lowercase()
}

fn first(root: &Root, paths: &[&str], read: fn(&Root, &str) -> io::Result<String>) -> Result<String, String> {
    let mut reason = String::new();
    for path in paths {
        match read(root, path) {
            Ok(text) => return Ok(text),
            // The first path is the regular one: an operator can act on its error.
            Err(error) if reason.is_empty() => reason = error.to_string(),
            Err(_) => {}
        }
    }
    Err(reason)
}

fn leave_out(root: &Root, what: &'static str, paths: &[&str], reason: &str, missing: &mut Vec<MissingFact>) -> String {
    let path = root.path(paths.first().copied().unwrap_or_default());
    missing.push(MissingFact { what, path, reason: reason.to_owned() });
    String::new()
}

fn pretty_name(root: &Root, path: &str) -> io::Result<String> {
    let text = root.text(path)?;
    let named = text.lines().find_map(|line| line.trim().strip_prefix(PRETTY_NAME)?.strip_prefix('='));
    let name = named.map(unquote).filter(|name| !name.is_empty() && !name.contains(char::is_control));
    name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("it has no {PRETTY_NAME}")))
}

/// Unquotes a value like a shell does; os-release is a shell file.
fn unquote(value: &str) -> String {
    let value = value.trim();
    let inner = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    let mut plain = String::new();
    let mut characters = inner.unwrap_or(value).chars().take(256);
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

/// The architecture in Go's terms, which labels and images use.
pub(crate) fn architecture() -> &'static str {
    match (std::env::consts::ARCH, cfg!(target_endian = "little")) {
        ("x86_64", _) => "amd64",
        ("aarch64", _) => "arm64",
        ("x86", _) => "386",
        ("powerpc64", true) => "ppc64le",
        ("powerpc64", false) => "ppc64",
        ("loongarch64", _) => "loong64",
        (same, _) => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_is_read_as_a_shell_would() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("etc")).unwrap();
        for (text, name) in [
            ("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n", Some("Debian GNU/Linux 12 (bookworm)")),
            ("PRETTY_NAME='One Two'", Some("One Two")),
            ("PRETTY_NAME=Plain\n", Some("Plain")),
            ("PRETTY_NAME=\"A \\\"quoted\\\" name\"", Some("A \"quoted\" name")),
            ("PRETTY_NAME=\"\"", None),
            ("PRETTY_NAMES=x", None),
            ("", None),
        ] {
            std::fs::write(tree.path().join("etc/os-release"), text).unwrap();
            let read = pretty_name(&Root::new(tree.path()), "/etc/os-release");
            assert_eq!(read.ok().as_deref(), name, "{text}");
        }
    }

    #[test]
    fn an_unreadable_fact_is_named_with_path_and_reason() {
        let tree = tempfile::tempdir().unwrap();
        let mut missing = Vec::new();
        assert_eq!(MachineIdentity::read(&Root::new(tree.path()), &mut missing), MachineIdentity::default());
        let named: Vec<_> = missing.iter().map(|missing| missing.what).collect();
        assert_eq!(named, ["machineID", "systemUUID", "bootID", "kernelVersion", "osImage"]);
        assert_eq!(missing[0].path, tree.path().join("etc/machine-id"));
        assert!(missing[0].reason.contains("No such file"), "{}", missing[0].reason);
    }

    #[test]
    fn the_second_path_is_read_if_the_first_is_empty() {
        let tree = tempfile::tempdir().unwrap();
        for directory in ["etc", "proc/device-tree"] {
            std::fs::create_dir_all(tree.path().join(directory)).unwrap();
        }
        std::fs::write(tree.path().join("etc/machine-id"), "abc\n").unwrap();
        std::fs::write(tree.path().join("proc/device-tree/vm,uuid"), "1-2-3\0").unwrap();
        let identity = MachineIdentity::read(&Root::new(tree.path()), &mut Vec::new());
        assert_eq!((identity.machine_id.as_str(), identity.system_uuid.as_str()), ("abc", "1-2-3"));
    }
}
