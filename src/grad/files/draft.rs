//! A file that takes another's place when it is complete.

use std::fs::{self, File};
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Context;
use crate::error::{ErrorKind, Result};

/// A file beside that of a call, removed unless it is finished.
pub(super) struct Draft {
    path: PathBuf,
    is_finished: bool,
}

impl Draft {
    /// An empty file of a name that no other has, in the folder of the call's: what is renamed must not move to another disk.
    pub(super) fn begin(context: &Context<'_>) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(own) = context.path.file_name() else {
            let problem = "this is no name of a file";
            return Err(context.error(ErrorKind::InvalidArgument, None, problem));
        };
        loop {
            let mut name = own.to_owned();
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            name.push(format!(".{}-{count}.part", process::id()));
            let path = context.path.with_file_name(name);
            match File::create_new(&path) {
                Ok(_) => {
                    return Ok(Self {
                        path,
                        is_finished: false,
                    });
                }
                // What an earlier process of this number left behind.
                Err(error) if error.kind() == IoKind::AlreadyExists => {}
                Err(error) => return Err(context.io(&error)),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in its place, once its bytes are on the disk: a machine that stops then has the old one or the new one.
    pub(super) fn finish(mut self, context: &Context<'_>) -> Result<()> {
        let file = File::options().write(true).open(&self.path);
        let synced = file.and_then(|file| file.sync_all());
        let renamed = synced.and_then(|()| fs::rename(&self.path, context.path));
        renamed.map_err(|error| context.io(&error))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}
