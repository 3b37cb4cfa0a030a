//! A draft: a file that replaces another file when the draft is complete.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind as IoKind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FileContext;
use crate::error::{ErrorKind, Result};

/// The maximum length of a chain of symbolic links, as in Linux.
const MAX_LINKS: usize = 40;

/// A file beside the file to replace. An unfinished draft is removed when it drops.
pub(super) struct Draft {
    pub(super) path: PathBuf,
    /// The file to replace: the path of the call, or the file that it links to.
    target: PathBuf,
    /// The permissions of the file to replace, if it exists.
    permissions: Option<Permissions>,
    is_finished: bool,
}

impl Draft {
    /// Creates an empty file with a unique name in the folder of the file to replace. A rename
    /// from another folder might have to move the file to another disk.
    pub(super) fn begin(context: &FileContext<'_>) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let target = target_of(context.path).map_err(|error| context.io(error))?;
        let Some(own) = target.file_name() else {
            let problem = "the path does not end in the name of a file";
            return Err(context.error(ErrorKind::InvalidArgument, None, problem));
        };
        let metadata = fs::metadata(&target).ok();
        let permissions = metadata.map(|metadata| metadata.permissions());
        let options = options(permissions.is_some());
        loop {
            let mut name = own.to_owned();
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            name.push(format!(".{}-{count}.part", process::id()));
            let path = target.with_file_name(name);
            match options.open(&path) {
                Ok(_) => {
                    return Ok(Self {
                        path,
                        target,
                        permissions,
                        is_finished: false,
                    });
                }
                // An earlier process with the same id left this file behind.
                Err(error) if error.kind() == IoKind::AlreadyExists => {}
                Err(error) => return Err(context.io(error)),
            }
        }
    }

    /// Replaces the target, once the bytes are on the disk. After a crash, the disk has either the
    /// complete old file or the complete new file.
    pub(super) fn finish(mut self, context: &FileContext<'_>) -> Result<()> {
        let file = File::options().write(true).open(&self.path);
        let synced = file.and_then(|file| {
            self.permit(&file)?;
            file.sync_all()
        });
        let renamed = synced.and_then(|()| fs::rename(&self.path, &self.target));
        renamed.map_err(|error| context.io(error))?;
        self.is_finished = true;
        Ok(())
    }

    /// Sets the draft's permissions to the permissions of the replaced file.
    fn permit(&self, file: &File) -> io::Result<()> {
        match &self.permissions {
            Some(permissions) if file.metadata()?.permissions() != *permissions => {
                file.set_permissions(permissions.clone())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the options to create a draft. A draft that replaces a file is private until it is
/// complete.
fn options(replaces: bool) -> OpenOptions {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if replaces {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = replaces;
    options
}

/// Returns the path to which symbolic links resolve `path`. The file at the returned path need not
/// exist.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            // The target is not a link, or does not exist.
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}
