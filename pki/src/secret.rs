//! Files that must not leak or tear: keys, certificates and the configuration beside them.
//!
//! Every write is durable before it is visible (temporary file, sync, rename). A private key is refused while any user
//! but its owner can open it, because a key that was readable once has to be considered known.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// No key, certificate or configuration file of ours comes near this.
const SIZE_LIMIT: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path} is open to others (mode {mode:04o}): a private key must be readable by its owner only; \
         run `chmod 600 {path}`, and issue a new one if others may have read it",
        path = path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{} is larger than {SIZE_LIMIT} bytes: it cannot be a key, a certificate or a configuration", path.display())]
    TooLarge { path: PathBuf },
}

/// The users that may read a file we write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Owner,
    Public,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Public => 0o644,
        }
    }
}

/// Reads a file that may be public.
pub fn read(path: &Path) -> Result<String, Error> {
    contents(File::open(path).map_err(failed("open", path))?, path)
}

/// Reads a private key; refuses while group or world have any access to it.
pub fn read_private(path: &Path) -> Result<String, Error> {
    let file = File::open(path).map_err(failed("open", path))?;
    // The mode comes from the open file, not the path: the path could be exchanged in between.
    let mode = file.metadata().map_err(failed("inspect", path))?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Error::Exposed { path: path.to_owned(), mode });
    }
    contents(file, path)
}

/// Writes a file that does not exist yet, into a folder that is not in use yet.
pub fn write_new(path: &Path, text: &str, access: Access) -> Result<(), Error> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(access.mode())
        .open(path)
        .map_err(failed("create", path))?;
    file.write_all(text.as_bytes()).map_err(failed("write", path))?;
    file.sync_all().map_err(failed("sync", path))
}

/// Exchanges a file's contents in one step: a reader sees the old or the new text, never a mixture.
pub fn replace(path: &Path, text: &str, access: Access) -> Result<(), Error> {
    let staged = path.with_added_extension("new");
    discard(&staged)?;
    write_new(&staged, text, access)?;
    publish(&staged, path)
}

/// Moves a finished file or folder to its place and makes the move durable.
pub fn publish(staged: &Path, path: &Path) -> Result<(), Error> {
    fs::rename(staged, path).map_err(failed("move into place", path))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes a folder, and the missing ones above it, that only its owner can enter.
pub fn make_dir(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create folder", path))
}

pub fn sync_dir(path: &Path) -> Result<(), Error> {
    // `parent` of a bare name is the empty path, which means the current folder.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|dir| dir.sync_all()).map_err(failed("sync folder", path))
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { action, path: path.to_owned(), source }
}

fn contents(file: File, path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let size = file.take(SIZE_LIMIT + 1).read_to_string(&mut text).map_err(failed("read", path))?;
    if size as u64 > SIZE_LIMIT {
        return Err(Error::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

fn discard(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_file_is_written_for_its_owner_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write_new(&path, "secret", Access::Owner).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_private(&path).unwrap(), "secret");
    }

    #[test]
    fn a_private_file_open_to_others_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write_new(&path, "secret", Access::Owner).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o644, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let message = read_private(&path).unwrap_err().to_string();
            assert!(message.contains("chmod 600"), "{mode:o}: {message}");
        }
    }

    #[test]
    fn replacing_leaves_one_file_with_the_new_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet.toml");
        write_new(&path, "old", Access::Public).unwrap();
        fs::write(dir.path().join("fleet.toml.new"), "left by a crash").unwrap();
        replace(&path, "new", Access::Public).unwrap();
        assert_eq!(read(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        fs::write(&path, vec![b'x'; SIZE_LIMIT as usize + 1]).unwrap();
        assert!(matches!(read(&path), Err(Error::TooLarge { .. })));
    }
}
