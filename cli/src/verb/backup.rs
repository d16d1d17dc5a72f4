//! `muster backup FILE`: the whole state in one file, complete or not there at all.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::Context;
use crate::exit::Failure;
use crate::output::{Out, say};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Where to write the backup; an existing file is not overwritten
    pub file: PathBuf,
}

/// A large state takes a while to be collected before the first byte comes.
const TIMEOUT: Duration = Duration::from_secs(150);

/// A file under another name until it is complete; removed if it never is.
struct Unfinished {
    file: File,
    path: PathBuf,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    if args.file.exists() {
        let path = args.file.display();
        return Err(Failure::Conflict(format!("{path} exists already; choose another name or move it away")));
    }
    let client = context.client_within(TIMEOUT)?;
    let unfinished = Unfinished::beside(&args.file).map_err(Failure::Other)?;
    let bytes = client.backup(&unfinished.file).await?;
    unfinished.publish(&args.file).map_err(Failure::Other)?;
    say(format_args!("{bytes} bytes; bring them back with `muster restore {}`", args.file.display()));
    let mut out = Out::stdout();
    out.line(args.file.display())?;
    out.flush()
}

// === impl Unfinished ===

impl Unfinished {
    fn beside(target: &Path) -> anyhow::Result<Self> {
        let mut name = target.file_name().context("the backup needs a file name")?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(name);
        // The state may hold data that only operators should read.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, path })
    }

    fn publish(self, target: &Path) -> anyhow::Result<()> {
        self.file.sync_all().with_context(|| format!("cannot sync {}", self.path.display()))?;
        // A hard link fails where a rename would overwrite what appeared meanwhile; dropping `self` removes the
        // first name.
        fs::hard_link(&self.path, target).with_context(|| format!("cannot create {}", target.display()))?;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .with_context(|| format!("cannot sync {}", folder.display()))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Best effort: a leftover is named `.part` and does no harm.
        let _ = fs::remove_file(&self.path);
    }
}
