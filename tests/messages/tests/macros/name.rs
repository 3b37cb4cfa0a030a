#![allow(unused_imports)]

use cachescope::{Policy, cache_scope};

fn main() {
    cache_scope!();
    cache_scope!({ work() });
    cache_scope!(< work() >);
    cache_scope!(policy = Policy::Release, { work() });
    cache_scope!({ work() }, policy = Policy::Release);
    cache_scope!(7, { work() });
    cache_scope!(b"loop", { work() });
}

fn work() {}
