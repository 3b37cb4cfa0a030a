#![allow(unused_imports)]

use cachescope::{Policy, cache_scope};

fn main() {
    cache_scope!("loop");
    cache_scope!("loop",);
    cache_scope!("loop", policy = Policy::Release);
    cache_scope!("loop" { work() });
    let name = "loop";
    cache_scope!(name { work() });
    cache_scope!(name, max_bytes = 1 { work() });
    cache_scope!("loop", { work() }, policy = Policy::Release);
    cache_scope!("loop", { work() }.max(1));
    cache_scope!("loop", { work() } { work() });
    cache_scope!("loop", unsafe { work() });
    cache_scope!("loop", || { work() });
}

fn work() -> u32 {
    1
}
