//! Ranges of the process's address space, on platforms that can reserve them without memory.

#[cfg(not(all(
    any(target_os = "linux", target_os = "android", target_vendor = "apple"),
    not(miri)
)))]
mod fallback;
#[cfg(all(
    any(target_os = "linux", target_os = "android", target_vendor = "apple"),
    not(miri)
))]
mod unix;

#[cfg(not(all(
    any(target_os = "linux", target_os = "android", target_vendor = "apple"),
    not(miri)
)))]
pub(super) use fallback::Ranges;
#[cfg(all(
    any(target_os = "linux", target_os = "android", target_vendor = "apple"),
    not(miri)
))]
pub(super) use unix::Ranges;
