//! The disk cache of compiled kernels, so that a second run compiles none.
//!
//! A file is named by a digest of everything that its image depends on, and begins with a digest of
//! the image: a damaged file counts as missing. Files are written under a temporary name and
//! renamed, so no reader sees a partial one. Errors of the cache are ignored: they only cost time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

/// The cache directory; `None` if the user has none, or disables the cache.
#[derive(Debug)]
pub(super) struct DiskCache(Option<PathBuf>);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CacheKey(String);

const DIGEST_BYTES: usize = 32;

/// The version of the file format: a digest of the image, then the image.
const FORMAT: &str = "cachescope kernel 1";

impl CacheKey {
    /// Returns the key of `text`, compiled by this version with these options. The compiler gets no
    /// other input.
    pub(super) fn of_kernel(version: &str, options: &[String], text: &str) -> Self {
        let options = options.iter().map(String::as_str);
        let parts = [FORMAT, version].into_iter().chain(options).chain([text]);
        Self::of(&parts.collect::<Vec<_>>())
    }

    fn of(parts: &[&str]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            // With their lengths, so that different lists never hash the same text.
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let hex = digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self(hex)
    }
}

impl DiskCache {
    /// Uses `CACHESCOPE_KERNEL_CACHE`, else `cachescope` in the user's cache directory; an empty
    /// variable disables the cache.
    pub(super) fn of_environment() -> Self {
        let folder = match std::env::var_os("CACHESCOPE_KERNEL_CACHE") {
            Some(folder) if folder.is_empty() => None,
            Some(folder) => Some(folder.into()),
            None => dirs::cache_dir().map(|caches| caches.join("cachescope")),
        };
        Self(folder)
    }

    /// Returns the image of a key, if it is cached and intact.
    pub(super) fn read(&self, entry: &CacheKey) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(entry)?).ok()?;
        let (digest, image) = bytes.split_at_checked(DIGEST_BYTES)?;
        (digest == digest_of(image)).then(|| image.to_vec())
    }

    pub(super) fn write(&self, entry: &CacheKey, image: &[u8]) {
        let Some(path) = self.path(entry) else { return };
        let aside = beside(&path);
        let bytes = [&digest_of(image), image].concat();
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = folder.and_then(|()| fs::write(&aside, bytes));
        if written.and_then(|()| fs::rename(&aside, &path)).is_err() {
            let _ = fs::remove_file(&aside);
        }
    }

    fn path(&self, entry: &CacheKey) -> Option<PathBuf> {
        let folder = self.0.as_ref()?;
        Some(folder.join(&entry.0).with_extension("kernel"))
    }
}

fn digest_of(image: &[u8]) -> Vec<u8> {
    Sha256::digest(image).to_vec()
}

/// Returns a temporary name that no concurrent writer uses.
fn beside(path: &Path) -> PathBuf {
    static WRITERS: AtomicU64 = AtomicU64::new(0);
    let number = WRITERS.fetch_add(1, Ordering::Relaxed);
    path.with_extension(format!("{}-{number}", process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str) -> (DiskCache, PathBuf) {
        let folder = std::env::temp_dir().join(format!("cachescope-{name}-{}", process::id()));
        (DiskCache(Some(folder.clone())), folder)
    }

    #[test]
    fn what_was_written_is_read_until_it_is_damaged() {
        let (disk, folder) = disk("kernels");
        let entry = CacheKey::of(&["12.0", "sm_80", "text"]);
        assert_eq!(disk.read(&entry), None);
        disk.write(&entry, b"an image");
        assert_eq!(disk.read(&entry).as_deref(), Some(&b"an image"[..]));
        assert_eq!(disk.read(&CacheKey::of(&["12.0", "sm_90", "text"])), None);

        let path = disk.path(&entry).unwrap();
        let whole = fs::read(&path).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..5], b""] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(disk.read(&entry), None);
        }
        let mut turned = whole.clone();
        turned[DIGEST_BYTES] ^= 1;
        fs::write(&path, turned).unwrap();
        assert_eq!(disk.read(&entry), None);
        disk.write(&entry, b"an image");
        assert!(disk.read(&entry).is_some());
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "something was left aside"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_cache() {
        let (_, file) = disk("in-the-way");
        fs::write(&file, b"").unwrap();
        let disk = DiskCache(Some(file.join("below")));
        let entry = CacheKey::of(&["text"]);
        disk.write(&entry, b"an image");
        assert_eq!(disk.read(&entry), None);
        fs::remove_file(file).unwrap();
        DiskCache(None).write(&entry, b"an image");
    }

    #[test]
    fn whatever_the_image_depends_on_makes_an_entry_of_its_own() {
        use super::super::nvrtc::CompileTarget;
        let options = CompileTarget::Code(80).options();
        let kernel = CacheKey::of_kernel("12.4", &options, "text");
        assert_eq!(kernel, CacheKey::of_kernel("12.4", &options, "text"));
        let other = |version, options: &[String], text| {
            assert_ne!(
                kernel,
                CacheKey::of_kernel(version, options, text),
                "{options:?}"
            );
        };
        other("12.6", &options, "text");
        other("12.4", &options, "another text");
        other("12.4", &CompileTarget::Code(90).options(), "text");
        other("12.4", &CompileTarget::Virtual(80).options(), "text");
        for (at, option) in options.iter().enumerate() {
            let mut changed = options.to_vec();
            changed[at] = format!("{option}x");
            other("12.4", &changed, "text");
            changed.remove(at);
            other("12.4", &changed, "text");
            changed.insert(at, format!("{option} -G"));
            other("12.4", &changed, "text");
        }
        other("12.4", &[&options[..], &["-G".to_owned()]].concat(), "text");
    }

    #[test]
    fn entries_are_of_lists_not_of_their_joined_texts() {
        assert_ne!(CacheKey::of(&["ab", "c"]), CacheKey::of(&["a", "bc"]));
    }
}
