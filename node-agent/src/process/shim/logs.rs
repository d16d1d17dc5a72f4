//! Logs of containers, line by line in the format of Kubernetes' container logs. The number and size of the files are
//! bounded by rotation. Output that cannot be written is dropped and counted; the container never waits.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::durable::with_suffix;

/// Longer lines are written in parts.
const LINE_MAX: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    files: u32,
    file: Option<File>,
    bytes: u64,
    lost: u64,
}

/// Splits output of any size into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pending: Vec<u8>,
}

// === impl LogFile ===

impl LogFile {
    pub(super) fn new(path: PathBuf, bytes_max: u64, files: u32) -> Self {
        Self { path, bytes_max, files: files.max(1), file: None, bytes: 0, lost: 0 }
    }

    /// `whole`: the line ends here.
    pub(super) fn write(&mut self, now: Timestamp, stream: Stream, line: &[u8], whole: bool) {
        if self.lost > 0 {
            let note = format!("{} bytes of output before this line could not be written and are lost", self.lost);
            if self.append(&entry(now, Stream::Err, note.as_bytes(), true)).is_err() {
                return self.lost += line.len() as u64;
            }
            self.lost = 0;
        }
        if self.append(&entry(now, stream, line, whole)).is_err() {
            self.lost += line.len() as u64;
        }
    }

    fn append(&mut self, entry: &[u8]) -> io::Result<()> {
        if self.file.is_some() && self.bytes + entry.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        if self.file.is_none() {
            self.open()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = file.write_all(entry);
        // A partial write counts as well.
        self.bytes += entry.len() as u64;
        written
    }

    /// Continues the file of an earlier shim of the pod, if there is one.
    fn open(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        self.bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        for older in (1..self.files).rev() {
            let newer = if older == 1 { self.path.clone() } else { numbered(&self.path, older - 1) };
            match std::fs::rename(newer, numbered(&self.path, older)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        if self.files == 1 {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    with_suffix(path, &format!(".{number}"))
}

fn entry(now: Timestamp, stream: Stream, line: &[u8], whole: bool) -> Vec<u8> {
    let stream = match stream {
        Stream::Out => "stdout",
        Stream::Err => "stderr",
    };
    let tag = if whole { 'F' } else { 'P' };
    let mut entry = format!("{now:.9} {stream} {tag} ").into_bytes();
    entry.extend_from_slice(line);
    entry.push(b'\n');
    entry
}

// === impl Lines ===

impl Lines {
    pub(super) fn feed(&mut self, output: &[u8], mut write: impl FnMut(&[u8], bool)) {
        for piece in output.split_inclusive(|byte| *byte == b'\n') {
            let (text, whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            self.pending.extend_from_slice(text);
            while self.pending.len() > LINE_MAX {
                let rest = self.pending.split_off(LINE_MAX);
                write(&self.pending, false);
                self.pending = rest;
            }
            if whole {
                write(&self.pending, true);
                self.pending.clear();
            }
        }
    }

    /// The output has ended.
    pub(super) fn finish(&mut self, mut write: impl FnMut(&[u8], bool)) {
        if !self.pending.is_empty() {
            write(&std::mem::take(&mut self.pending), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn lines_are_assembled_from_reads_and_long_ones_are_split() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for piece in [&b"a"[..], b"b\n\nc", b"", b"\n", &[b'x'; LINE_MAX + 1], b"y\nlast"] {
            lines.feed(piece, |line, whole| seen.push((line.len(), whole)));
        }
        lines.finish(|line, whole| seen.push((line.len(), whole)));
        lines.finish(|_, _| panic!("nothing is left"));
        assert_eq!(seen, [(2, true), (0, true), (1, true), (LINE_MAX, false), (2, true), (4, true)]);
    }

    #[test]
    fn entries_are_as_kubernetes_writes_them() {
        let now: Timestamp = "2026-01-02T03:04:05.000000006Z".parse().unwrap();
        let text = |entry: Vec<u8>| String::from_utf8(entry).unwrap();
        assert_eq!(text(entry(now, Stream::Out, b"hello", true)), "2026-01-02T03:04:05.000000006Z stdout F hello\n");
        assert_eq!(text(entry(now, Stream::Err, b"hel", false)), "2026-01-02T03:04:05.000000006Z stderr P hel\n");
    }

    #[test]
    fn files_are_rotated_private_and_bounded() {
        for files in [1, 3] {
            let dir = tempfile::tempdir().unwrap();
            let mut log = LogFile::new(dir.path().join("c.log"), 1000, files);
            for number in 0..500 {
                log.write(Timestamp::now(), Stream::Out, format!("line {number}").as_bytes(), true);
            }
            let entries: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
            assert_eq!(entries.len(), files as usize);
            for entry in entries {
                let metadata = entry.metadata().unwrap();
                assert!(metadata.len() <= 1000 && metadata.permissions().mode() & 0o777 == 0o600);
            }
            let newest = std::fs::read_to_string(dir.path().join("c.log")).unwrap();
            assert!(newest.ends_with("line 499\n"), "{newest}");
        }
    }

    #[test]
    fn lost_output_is_counted_and_logged() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("later");
        let mut log = LogFile::new(place.join("c.log"), 1000, 2);
        log.write(Timestamp::now(), Stream::Out, b"12345", true);
        std::fs::create_dir(&place).unwrap();
        log.write(Timestamp::now(), Stream::Out, b"again", true);
        let text = std::fs::read_to_string(place.join("c.log")).unwrap();
        assert!(text.contains(" stderr F 5 bytes of output") && text.ends_with("again\n"), "{text}");
    }
}
