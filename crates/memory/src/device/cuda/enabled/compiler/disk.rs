//! The disk cache of compiled kernels, so that a second run of a program compiles no kernel.
//!
//! A file begins with its key, which contains everything that the image depends on. The name of the
//! file is a hash of the key. A reader compares the whole key, so kernels with equal hashes are
//! never confused. A hash of the image follows the key, so that a damaged file counts as missing.
//! Files are written under a temporary name and renamed, so no reader reads a partial file. Errors
//! of the cache are ignored, because they only cost time.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cache directory; `None` if the user has no cache directory, or disables the cache.
#[derive(Debug)]
pub(super) struct DiskCache(Option<PathBuf>);

/// Everything that an image depends on. Each part follows its length, so that different lists of
/// parts have different keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CacheKey(Vec<u8>);

/// The version of the file format: the length of the key, the key, a hash of the image, the image.
const FORMAT: &str = "cachescope kernel 2";

impl CacheKey {
    /// Returns the key of `text`, compiled by the compiler `version` with `options`. The compiler
    /// has no other input.
    pub(super) fn of_kernel(version: &str, options: &[String], text: &str) -> Self {
        let options = options.iter().map(String::as_str);
        let parts = [FORMAT, version].into_iter().chain(options).chain([text]);
        Self::of(&parts.collect::<Vec<_>>())
    }

    fn of(parts: &[&str]) -> Self {
        let mut key = Vec::new();
        for part in parts {
            key.extend((part.len() as u64).to_le_bytes());
            key.extend(part.as_bytes());
        }
        Self(key)
    }
}

impl DiskCache {
    /// Returns the cache in the directory that `CACHESCOPE_KERNEL_CACHE` names, else in
    /// `cachescope` in the user's cache directory. An empty variable disables the cache.
    pub(super) fn of_environment() -> Self {
        let folder = match env::var_os("CACHESCOPE_KERNEL_CACHE") {
            Some(folder) if folder.is_empty() => None,
            Some(folder) => Some(folder.into()),
            None => caches().map(|caches| caches.join("cachescope")),
        };
        Self(folder)
    }

    /// Returns the image of a key, if it is cached and intact.
    pub(super) fn read(&self, entry: &CacheKey) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(entry)?).ok()?;
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (key, rest) = rest.split_at_checked(length)?;
        let (hash, image) = rest.split_first_chunk()?;
        let is_intact = key == entry.0 && u64::from_le_bytes(*hash) == hash_of(image);
        is_intact.then(|| image.to_vec())
    }

    pub(super) fn write(&self, entry: &CacheKey, image: &[u8]) {
        let Some(path) = self.path(entry) else { return };
        let aside = beside(&path);
        let length = (entry.0.len() as u64).to_le_bytes();
        let hash = hash_of(image).to_le_bytes();
        let bytes = [&length, &entry.0[..], &hash, image].concat();
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = folder.and_then(|()| fs::write(&aside, bytes));
        if written.and_then(|()| fs::rename(&aside, &path)).is_err() {
            let _ = fs::remove_file(&aside);
        }
    }

    fn path(&self, entry: &CacheKey) -> Option<PathBuf> {
        let folder = self.0.as_ref()?;
        Some(folder.join(format!("{:016x}.kernel", hash_of(&entry.0))))
    }
}

fn caches() -> Option<PathBuf> {
    if cfg!(windows) {
        return env::var_os("LOCALAPPDATA").map(PathBuf::from);
    }
    if cfg!(target_vendor = "apple") {
        return Some(env::home_dir()?.join("Library/Caches"));
    }
    // The XDG Base Directory Specification ignores relative paths.
    let named = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let absolute = named.filter(|folder| folder.is_absolute());
    absolute.or_else(|| Some(env::home_dir()?.join(".cache")))
}

/// Returns a hash, which may differ between versions of Rust. A difference only costs a
/// compilation.
fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
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
        // The positions cover each part of the file: the length, the key, the hash and the image.
        for at in [0, 7, 8, whole.len() - 9, whole.len() - 1] {
            let mut turned = whole.clone();
            turned[at] ^= 1;
            fs::write(&path, turned).unwrap();
            assert_eq!(disk.read(&entry), None, "byte {at}");
        }
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
    fn a_file_of_another_key_is_not_taken_for_this_one() {
        let (disk, folder) = disk("collision");
        let [one, other] = ["one", "other"].map(|text| CacheKey::of(&[text]));
        disk.write(&one, b"an image");
        // The rename imitates two keys with one hash.
        fs::rename(disk.path(&one).unwrap(), disk.path(&other).unwrap()).unwrap();
        assert_eq!(disk.read(&other), None);
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
