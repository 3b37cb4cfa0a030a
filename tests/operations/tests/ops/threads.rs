//! Results in thread pools of different sizes.

use std::fmt::Debug;

/// Asserts that `compute` returns equal bits in pools of one, two and three threads, and outside of
/// pools.
pub(crate) fn same_bits<T: Bits + Send>(compute: impl Fn() -> Vec<T> + Sync) {
    let bits = |values: Vec<T>| values.into_iter().map(Bits::bits).collect::<Vec<_>>();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        bits(pool.unwrap().install(&compute))
    };
    let alone = on(1);
    for threads in [2, 3] {
        assert!(on(threads) == alone, "{threads} threads differ from one");
    }
    assert!(bits(compute()) == alone, "outside of the pool differs");
}

/// Numbers that are compared by their bits, including NaN.
pub(crate) trait Bits: Debug {
    fn bits(self) -> u64;
}

impl Bits for f32 {
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
}

impl Bits for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl Bits for i64 {
    fn bits(self) -> u64 {
        self as u64
    }
}
