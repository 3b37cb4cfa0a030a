#![allow(unused_imports)]

use cachescope::{Policy, cache_scope};

fn main() {
    cache_scope!("loop", < work());
    cache_scope!("loop", < work() > 1);
    cache_scope!("loop", < |number: u32| ->);
    cache_scope!("loop", < work() >, policy = Policy::Release);
    cache_scope!("loop", < work() >, max_bytes = 1 > 2);
}

fn work() -> u32 {
    1
}
