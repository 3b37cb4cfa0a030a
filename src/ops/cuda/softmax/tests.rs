use super::*;

#[test]
fn lanes_fit_or_are_folded() {
    let bounds = [1, 2, 4, 64, 256, 1024, 4096, 8192, 1 << 16];
    for length in bounds.into_iter().flat_map(|length| [length, length + 1]) {
        for outputs in [1, 2, 1000, 1024, 1 << 24] {
            for element_bytes in [4, 8] {
                let folds = Lanes {
                    length,
                    inner: 1,
                    outer: outputs,
                };
                let Some(split) = Split::new(folds, element_bytes) else {
                    assert!(length * element_bytes > ROOM_BYTES);
                    continue;
                };
                let what = format!("{folds:?} of {element_bytes}: {split:?}");
                let (threads, block) = (split.threads, THREADS as usize);
                assert!(threads.is_power_of_two(), "{what}");
                assert!(threads <= 32 || threads == block, "{what}");
                let side = block / threads;
                assert_eq!(split.room_bytes, side * length * element_bytes, "{what}");
                assert!(split.room_bytes <= ROOM_BYTES, "{what}");
                assert_eq!(split.tiles, outputs.div_ceil(side), "{what}");
            }
        }
    }
    let apart = Lanes {
        length: 4,
        inner: 2,
        outer: 4,
    };
    assert_eq!(Split::new(apart, 4), None);
}

#[cfg(feature = "cuda")]
mod compiled {
    use super::*;
    use crate::device::cuda::compile_for_all;
    use crate::ops::cuda::tests::of_every_float;
    use crate::ops::formula::Formula;
    use crate::ops::node::Leaf;

    fn sources<T: Float>() -> [KernelSource; 4] {
        let shape = Shape::from([16, 64]);
        let leaf = Leaf(Array::<T>::zeros(shape).unwrap());
        let formula = Formula::of(&leaf).unwrap();
        let program = Program::row_major(&formula, &shape);
        let (plain, log) = (Kind::of::<T, false>(), Kind::of::<T, true>());
        [
            text(&program, plain, LANES),
            text(&program, plain, NORMAL),
            text(&program, log, LANES),
            text(&program, log, NORMAL),
        ]
    }

    #[test]
    fn softmax_compiles_for_every_float() {
        compile_for_all(&of_every_float!(sources).concat());
    }
}
