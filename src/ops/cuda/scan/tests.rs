use super::*;

fn check(lanes: Lanes) {
    let split = Split::new(lanes);
    let Split {
        way,
        group,
        tiles,
        parts,
        part_length,
    } = split;
    let what = format!("{lanes:?}: {split:?}");
    assert_eq!(way == Way::Apart, lanes.inner > 1, "{what}");
    let threads = THREADS as usize;
    let covered = match way {
        Way::Groups => tiles * (threads / group),
        Way::Block => tiles,
        Way::Apart => tiles * threads / parts,
    };
    assert!(covered >= lanes.count(), "{what}");
    assert!(
        way != Way::Groups || (group.is_power_of_two() && group <= 32),
        "{what}"
    );
    // The parts cover the lane, and none is empty.
    assert!(
        parts >= 1 && (parts - 1) * part_length < lanes.length,
        "{what}"
    );
    assert!(parts * part_length >= lanes.length, "{what}");
    assert!(
        split.grid().blocks.iter().all(|&blocks| blocks > 0),
        "{what}"
    );
    assert!(split.grid().blocks[1] <= 65_535, "{what}");
}

#[test]
fn every_element_is_in_one_part() {
    let bounds = [1usize, 2, 31, 256, 2048, 8192, 1 << 16, 1 << 22, 1 << 33];
    let lengths = || bounds.into_iter().flat_map(|length| [length, length + 1]);
    for length in lengths() {
        for outer in lengths().filter(|&outer| outer.saturating_mul(length) < 1 << 40) {
            for inner in [1, 2, 3, 32, 1000] {
                check(Lanes {
                    length,
                    inner,
                    outer,
                });
            }
        }
    }
}

#[cfg(feature = "cuda")]
mod compiled {
    use num_complex::Complex;

    use super::*;
    use crate::device::cuda::compile_for_all;
    use crate::ops::cuda::tests::{of_every_complex, of_every_ordered};
    use crate::ops::formula::Formula;
    use crate::ops::node::Leaf;

    fn with_program<T: AnyElement, R>(see: impl FnOnce(&Program<'_>) -> R) -> R {
        let shape = Shape::from([16, 64]);
        let leaf = Leaf(Array::<T>::zeros(shape).unwrap());
        let formula = Formula::of(&leaf).unwrap();
        see(&Program::row_major(&formula, &shape))
    }

    fn ways<T: AnyElement>(sums: Sums) -> [KernelSource; 3] {
        with_program::<T, _>(|program| {
            [Way::Groups, Way::Block, Way::Apart].map(|way| scan_source(program, sums, way))
        })
    }

    fn sums<T: AnyElement>() -> [KernelSource; 3] {
        ways::<T>(Sums::of::<T>())
    }

    fn products<T: AnyElement>() -> [KernelSource; 4] {
        let products = Sums::products_of::<T>();
        let [groups, block, apart] = ways::<T>(products);
        [groups, block, apart, before_source(products)]
    }

    #[test]
    fn running_sums_compile_for_every_element() {
        compile_for_all(&of_every_ordered!(sums).concat());
        compile_for_all(&of_every_complex!(sums).concat());
    }

    #[test]
    fn what_goes_between_compiles_for_every_type_of_sums() {
        let sums = [
            Sums::of::<f32>(),
            Sums::of::<f64>(),
            Sums::of::<i64>(),
            Sums::of::<u64>(),
            Sums::of::<Complex<f32>>(),
            Sums::of::<Complex<f64>>(),
        ];
        compile_for_all(&sums.map(before_source));
    }

    /// Of other elements they differ in what is read and written, which is that of their sums.
    #[test]
    fn running_products_compile_for_every_type_of_products() {
        let sources = [products::<f32>(), products::<i32>(), products::<u32>()];
        compile_for_all(&sources.concat());
        compile_for_all(&of_every_complex!(products).concat());
    }
}
