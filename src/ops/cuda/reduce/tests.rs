use super::*;

/// Returns lengths around every bound of the split.
fn lengths() -> impl Iterator<Item = usize> {
    let bounds = [
        1,
        2,
        4,
        8,
        33,
        64,
        256,
        1024,
        4096,
        8192,
        1 << 17,
        1 << 24,
        1 << 33,
    ];
    bounds
        .into_iter()
        .flat_map(|length| [length, length + 1, 2 * length - 1])
}

fn check(lanes: Lanes, width: usize) {
    let split = ReductionSplit::new(lanes, width);
    let ReductionSplit {
        threads,
        is_beside,
        tiles,
        parts,
        part_length,
    } = split;
    let what = format!("{lanes:?} by {width}: {split:?}");
    assert!(
        threads.is_power_of_two() && threads <= THREADS as usize,
        "{what}"
    );
    // If the threads of an output are adjacent, they are at most one warp, or the whole block.
    assert!(
        !is_beside || threads <= 32 || threads == THREADS as usize,
        "{what}"
    );
    assert_eq!(is_beside, lanes.inner == 1, "{what}");
    let side = THREADS as usize / threads;
    // If lanes are strided, a thread has several outputs.
    let outputs = if is_beside { 1 } else { width };
    assert_eq!(tiles, (lanes.count() / outputs).div_ceil(side), "{what}");
    // The parts cover the output. No part is empty or begins inside a pack.
    assert!(
        parts >= 1 && (parts - 1) * part_length < lanes.length,
        "{what}"
    );
    assert!(parts * part_length >= lanes.length, "{what}");
    let own = if is_beside { width } else { 1 };
    assert!(parts == 1 || part_length.is_multiple_of(own), "{what}");
    // A grid has at most 65,535 blocks along y. The totals of all parts need little memory.
    assert!(
        parts <= 65_535 && parts * lanes.count() <= 1 << 21 || parts == 1,
        "{what}"
    );
    let grid = grid([tiles, parts]);
    assert!(grid.blocks.iter().all(|&blocks| blocks > 0), "{what}");
    assert!(
        grid.threads.is_multiple_of(32) && grid.threads <= 1024,
        "{what}"
    );
}

#[test]
fn every_element_is_in_one_part() {
    for length in lengths() {
        for outputs in lengths().filter(|&outputs| outputs.saturating_mul(length) < 1 << 40) {
            for width in [1, 4, 8, 16] {
                if length.is_multiple_of(width) {
                    check(
                        Lanes {
                            length,
                            inner: 1,
                            outer: outputs,
                        },
                        width,
                    );
                }
            }
            for (inner, width) in [
                (2, 1),
                (3, 1),
                (32, 1),
                (1000, 1),
                (4, 4),
                (32, 8),
                (1000, 2),
            ] {
                check(
                    Lanes {
                        length,
                        inner,
                        outer: outputs,
                    },
                    width,
                );
            }
        }
    }
}

#[test]
fn a_long_reduction_has_many_blocks() {
    let split = |length, inner, outputs| {
        let lanes = Lanes {
            length,
            inner,
            outer: outputs / inner,
        };
        let split = ReductionSplit::new(lanes, 1);
        split.tiles * split.parts
    };
    assert!(split(1 << 20, 1, 1) >= 256);
    // An H200 runs 1,056 blocks at once. With four times as many blocks, a reduction was slower.
    assert!((1000..=1056).contains(&split(1 << 28, 1, 1)));
    assert!((512..=1056).contains(&split(1 << 20, 4, 4)));
    assert!((512..=1056).contains(&split(4096, 4096, 4096)));
}

#[cfg(feature = "cuda")]
mod compiled {
    use super::*;
    use crate::array::{Array, Element, Float, Shape};
    use crate::device::cuda::compile_for_all;
    use crate::ops::cuda::tests::{of_every_complex, of_every_float, of_every_ordered};
    use crate::ops::expression::graph::ExpressionGraph;
    use crate::ops::expression::node::Leaf;
    use cachescope_kernels::reduce::{Logsumexp, Visit, visit_reducers, visit_sums};

    #[derive(Default)]
    struct Sources(Vec<KernelSource>);

    impl<T: AnyElement> Visit<T> for Sources {
        fn visit<F: Reducer<T>>(&mut self) {
            let shape = Shape::from([16, 64]);
            let leaf = Leaf(Array::<T>::zeros(shape).unwrap());
            let graph = ExpressionGraph::of(&leaf).unwrap();
            let program = Program::row_major(&graph, &shape);
            assert!(program.width() > 1);
            let packing = match F::NAME {
                "sum" => Packing::Across,
                "argmax" => Packing::Single,
                _ => Packing::Along,
            };
            let reduction = &ReductionKernels::of::<F, T>();
            self.0.push(lanes_source(&program, reduction, packing));
            self.0.push(parts_source(reduction));
        }
    }

    fn sources<T: Element>() -> Vec<KernelSource> {
        let mut sources = Sources::default();
        visit_reducers::<T>(&mut sources);
        sources.0
    }

    fn sources_of_sums<T: AnyElement>() -> Vec<KernelSource> {
        let mut sources = Sources::default();
        visit_sums::<T>(&mut sources);
        sources.0
    }

    fn sources_of_exponents<T: Float>() -> Vec<KernelSource> {
        let mut sources = Sources::default();
        Visit::<T>::visit::<Logsumexp>(&mut sources);
        sources.0
    }

    #[test]
    fn every_reducer_compiles_for_every_element() {
        compile_for_all(&of_every_ordered!(sources).concat());
        compile_for_all(&of_every_complex!(sources_of_sums).concat());
        compile_for_all(&of_every_float!(sources_of_exponents).concat());
    }
}
