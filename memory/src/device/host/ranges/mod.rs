//! Ranges of the process's address space, on platforms that can reserve them without memory.

#[cfg_attr(
    all(
        any(target_os = "linux", target_os = "android", target_vendor = "apple"),
        not(miri)
    ),
    path = "unix.rs"
)]
#[cfg_attr(
    not(all(
        any(target_os = "linux", target_os = "android", target_vendor = "apple"),
        not(miri)
    )),
    path = "fallback.rs"
)]
mod platform;

pub(super) use platform::Ranges;
