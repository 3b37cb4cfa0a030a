use super::*;

#[test]
fn lanes_fit_or_are_reduced() {
    let bounds = [1, 2, 4, 64, 256, 512, 1024, 4096, 8192, 1 << 16];
    for length in bounds.into_iter().flat_map(|length| [length, length + 1]) {
        for outputs in [1, 2, 1000, 1024, 1 << 24] {
            for width in [1, 2, 4, 8] {
                let lanes = Lanes {
                    length,
                    inner: 1,
                    outer: outputs,
                };
                let Some(split) = SoftmaxSplit::new(lanes, width) else {
                    assert!(length > 8192);
                    continue;
                };
                let what = format!("{lanes:?} by {width}: {split:?}");
                let (threads, block) = (split.threads, split.block);
                // The threads of a lane are at most a warp, or the whole block.
                assert!(threads.is_power_of_two(), "{what}");
                assert!(threads == block || threads <= 32, "{what}");
                assert!((64..=512).contains(&block), "{what}");
                // The threads hold the whole lane, with at most 16 elements per thread.
                let room = split.held * width * threads;
                assert!(split.held.is_power_of_two() && room >= length, "{what}");
                assert!(split.held * width <= 16, "{what}");
                assert!(split.variant() < 20, "{what}");
                assert_eq!(split.tiles, outputs.div_ceil(block / threads), "{what}");
            }
        }
    }
    let apart = Lanes {
        length: 4,
        inner: 2,
        outer: 4,
    };
    assert_eq!(SoftmaxSplit::new(apart, 1), None);
}

#[test]
fn every_element_is_in_one_part() {
    for length in [8193, 8208, 12_289, 50_257, 1 << 20, (1 << 20) + 1, 1 << 32] {
        for outer in [1, 2, 3, 2047, 2048, 2049, 1 << 24] {
            let lanes = Lanes {
                length,
                inner: 1,
                outer,
            };
            let parts = LaneParts::new(lanes);
            let what = format!("{lanes:?}: {parts:?}");
            assert!(parts.count * parts.length >= length, "{what}");
            assert!((parts.count - 1) * parts.length < length, "{what}");
            assert!((1..=THREADS as usize).contains(&parts.count), "{what}");
            assert!(
                parts.count == 1 || parts.length.is_multiple_of(16),
                "{what}"
            );
            assert!(parts.count == 1 || parts.count * outer <= 4096, "{what}");
        }
    }
}

#[cfg(feature = "cuda")]
mod compiled {
    use ndarray::s;

    use super::*;
    use crate::array::{Array, Float};
    use crate::device::cuda::compile_for_all;
    use crate::ops::cuda::tests::of_every_float;
    use crate::ops::expression::graph::ExpressionGraph;
    use crate::ops::expression::node::Leaf;

    fn sources<T: Float>() -> Vec<KernelSource> {
        // Kernels read rows of 64 elements in packs, and rows of 63 elements one by one.
        let mut sources = Vec::new();
        for shape in [[16, 64], [16, 63]] {
            let shape = Shape::from(shape);
            let array = Array::<T>::zeros([16, 64]).unwrap();
            let array = array.slice(s![.., ..shape.dims()[1]]).unwrap();
            let leaf = Leaf(array);
            let graph = ExpressionGraph::of(&leaf).unwrap();
            let program = Program::row_major(&graph, &shape);
            assert_eq!(program.width() > 1, shape.dims()[1] == 64);
            for kind in [false, true].map(|is_log| SoftmaxKind::of(T::DTYPE, is_log)) {
                for length in [64, 2048] {
                    let (inner, outer) = (1, 16);
                    let lanes = Lanes {
                        length,
                        inner,
                        outer,
                    };
                    let split = SoftmaxSplit::new(lanes, program.width()).unwrap();
                    sources.push(lanes_text(&program, kind, split, program.width() > 1));
                }
                sources.push(text(&program, kind, THREADS, NORMAL));
                sources.extend([false, true].map(|writes| parts_text(&program, kind, writes)));
            }
        }
        sources
    }

    #[test]
    fn softmax_compiles_for_every_float() {
        compile_for_all(&of_every_float!(sources).concat());
    }
}
