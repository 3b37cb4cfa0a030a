//! The user's own code keeps its warnings.

#![deny(warnings)]

use cachescope::{cache_scope, uncached};

fn main() {
    cache_scope!("loop", { let unused = 1; });
    cache_scope!("loop", { fallible(); });
    cache_scope!("loop", { fallible() });
    uncached!(fallible());
    cache_scope!("loop", { let mut constant = 1; constant });
    cache_scope!("loop", { { 1 } });
    cache_scope!("loop", {
        return;
        fallible().unwrap();
    });
}

fn fallible() -> Result<(), ()> {
    Ok(())
}
