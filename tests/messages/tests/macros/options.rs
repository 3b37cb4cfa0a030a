#![allow(unused_imports)]

use cachescope::{Device, Policy, cache_scope};

fn main() {
    let device = Device::host();
    cache_scope!("loop", polcy = Policy::Release, { work() });
    cache_scope!("loop", streams, { work() });
    cache_scope!("loop", policy = Policy::Release, max_bytes = 1, policy = Policy::Recycle, { work() });
    cache_scope!("loop", max_bytes, { work() });
    cache_scope!("loop", max_bytes = , { work() });
    cache_scope!("loop", max_bytes { work() });
    cache_scope!("loop", device = { work() });
    cache_scope!("loop", device: &device, { work() });
    cache_scope!("loop", "other", { work() });
    cache_scope!("loop", max_bytes = 1 +, { work() });
}

fn work() {}
