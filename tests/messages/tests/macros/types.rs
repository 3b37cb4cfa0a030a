use cachescope::{Policy, cache_scope};

fn main() {
    let layer = 3;
    cache_scope!(layer + 1, { work() });
    cache_scope!("loop", policy = "release", { work() });
    cache_scope!("loop", max_bytes = -1_i64, policy = Policy::Release, { work() });
    cache_scope!("loop", device = "host", { work() });
    let _number: u32 = cache_scope!("loop", { "text" });
    let _text: &str = cache_scope!("loop", { work(); });
}

fn work() {}
