use super::*;

fn check(lanes: Lanes, rows: usize) {
    let split = ScanSplit::new(lanes, rows);
    let ScanSplit {
        algorithm,
        threads,
        parts,
        blocks,
    } = split;
    let what = format!("{lanes:?}: {split:?}");
    let is_apart = matches!(algorithm, ScanAlgorithm::Apart | ScanAlgorithm::TilesApart);
    assert_eq!(is_apart, lanes.inner > 1, "{what}");
    let block = THREADS as usize;
    assert!(threads.is_power_of_two() && threads <= block, "{what}");
    let (side, tile) = match algorithm {
        ScanAlgorithm::Groups => (block / threads, lanes.length),
        ScanAlgorithm::Block => (1, lanes.length),
        ScanAlgorithm::Apart => (block, lanes.length),
        ScanAlgorithm::Tiles => (1, TILE),
        ScanAlgorithm::TilesApart => (block / threads, threads * rows),
    };
    assert!(
        algorithm != ScanAlgorithm::Groups || threads <= 32,
        "{what}"
    );
    assert_eq!(split.side(), side, "{what}");
    // The tiles cover the lane, and no tile is empty.
    assert!((parts - 1) * tile < lanes.length, "{what}");
    assert!(parts * tile >= lanes.length, "{what}");
    assert_eq!(blocks, lanes.count().div_ceil(side) * parts, "{what}");
    assert!(
        split.grid().blocks.iter().all(|&blocks| blocks > 0),
        "{what}"
    );
    // The published sums need less memory than the elements.
    if matches!(algorithm, ScanAlgorithm::Tiles | ScanAlgorithm::TilesApart) {
        let told = split.side() * blocks;
        let elements = lanes.length * lanes.count();
        assert!(told <= elements.div_ceil(4) + block, "{what}");
    }
}

#[test]
fn every_element_is_in_one_tile() {
    let bounds = [
        1usize,
        2,
        31,
        63,
        256,
        2048,
        8191,
        1 << 16,
        1 << 22,
        1 << 33,
    ];
    let lengths = || bounds.into_iter().flat_map(|length| [length, length + 1]);
    for length in lengths() {
        for outer in lengths().filter(|&outer| outer.saturating_mul(length) < 1 << 40) {
            for inner in [1, 2, 3, 32, 1000] {
                let lanes = Lanes {
                    length,
                    inner,
                    outer,
                };
                for rows in [8, 16, 32] {
                    check(lanes, rows);
                }
            }
        }
    }
}

#[test]
fn long_lanes_are_tiles_where_they_are_few() {
    let algorithm = |length, inner, outer| {
        let lanes = Lanes {
            length,
            inner,
            outer,
        };
        ScanSplit::new(lanes, 32).algorithm
    };
    assert_eq!(algorithm(4 * TILE, 1, 1), ScanAlgorithm::Tiles);
    assert_eq!(algorithm(4 * TILE - 1, 1, 1), ScanAlgorithm::Block);
    assert_eq!(algorithm(1 << 20, 1, 1023), ScanAlgorithm::Tiles);
    assert_eq!(algorithm(1 << 20, 1, 1024), ScanAlgorithm::Block);
    assert_eq!(algorithm(64, 2, 1), ScanAlgorithm::TilesApart);
    assert_eq!(algorithm(63, 2, 1), ScanAlgorithm::Apart);
    assert_eq!(algorithm(1 << 20, 1 << 15, 1), ScanAlgorithm::TilesApart);
    assert_eq!(algorithm(1 << 20, 1 << 15, 2), ScanAlgorithm::Apart);
}

#[cfg(feature = "cuda")]
mod compiled {
    use super::*;
    use crate::array::{AnyElement, Array};
    use crate::device::cuda::compile_for_all;
    use crate::ops::cuda::tests::{of_every_complex, of_every_ordered};
    use crate::ops::expression::graph::ExpressionGraph;
    use crate::ops::expression::node::Leaf;

    fn with_program<T: AnyElement, R>(see: impl FnOnce(&Program<'_>) -> R) -> R {
        let shape = Shape::from([16, 64]);
        let leaf = Leaf(Array::<T>::zeros(shape).unwrap());
        let graph = ExpressionGraph::of(&leaf).unwrap();
        see(&Program::row_major(&graph, &shape))
    }

    fn algorithms<T: AnyElement>(sums: ScanOperation) -> [KernelSource; 5] {
        let algorithms = [
            ScanAlgorithm::Groups,
            ScanAlgorithm::Block,
            ScanAlgorithm::Apart,
            ScanAlgorithm::Tiles,
            ScanAlgorithm::TilesApart,
        ];
        with_program::<T, _>(|program| {
            algorithms.map(|algorithm| scan_source(program, sums, algorithm))
        })
    }

    fn sums<T: AnyElement>() -> [KernelSource; 5] {
        algorithms::<T>(ScanOperation::of(T::DTYPE, false))
    }

    fn products<T: AnyElement>() -> [KernelSource; 5] {
        algorithms::<T>(ScanOperation::of(T::DTYPE, true))
    }

    #[test]
    fn running_sums_compile_for_every_element() {
        compile_for_all(&of_every_ordered!(sums).concat());
        compile_for_all(&of_every_complex!(sums).concat());
    }

    /// The kernels of other element types differ only in loads and stores. The test of running sums
    /// compiles these loads and stores.
    #[test]
    fn running_products_compile_for_every_type_of_products() {
        let sources = [products::<f32>(), products::<i32>(), products::<u32>()];
        compile_for_all(&sources.concat());
        compile_for_all(&of_every_complex!(products).concat());
    }
}
