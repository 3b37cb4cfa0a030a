use cachescope::{cache_scope, uncached};

fn main() {
    cache_scope!("loop", { drop(__guard) });
    cache_scope!("loop", max_bytes = 1, { &SITE });
    cache_scope!("loop", max_bytes = SITE, {});
    uncached!(drop(__guard));
}
