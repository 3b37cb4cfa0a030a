//! An `.await` out of a macro that is defined elsewhere: no token of the call says it.

use cachescope::{cache_scope, uncached};

macro_rules! wait {
    ($future:expr) => { $future.await };
}

async fn scope() {
    cache_scope!("loop", { wait!(other()) });
}

async fn angle() {
    cache_scope!("loop", policy = cachescope::Policy::Bump, < wait!(other()); >);
}

async fn outside() {
    uncached!(wait!(other()));
}

/// An await before or after a scope is allowed.
async fn around() {
    wait!(other());
    cache_scope!("loop", { uncached!({}) });
    wait!(other());
}

async fn other() {}

fn spawn(_: impl Future<Output = ()> + Send) {}

fn main() {
    spawn(scope());
    spawn(angle());
    spawn(outside());
    spawn(around());
}
