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
    use super::*;
    use crate::device::cuda::compile_for_all;
    use crate::ops::cuda::tests::of_every_element;
    use crate::ops::formula::Formula;
    use crate::ops::node::Leaf;

    fn sources<T: Element>() -> [KernelSource; 8] {
        let shape = Shape::from([16, 64]);
        let leaf = Leaf(Array::<T>::zeros(shape).unwrap());
        let formula = Formula::of(&leaf).unwrap();
        let program = Program::row_major(&formula, &shape);
        let (sums, products) = (Sums::of::<T>(), Sums::products_of::<T>());
        [
            scan_source(&program, sums, Way::Groups),
            scan_source(&program, sums, Way::Block),
            scan_source(&program, sums, Way::Apart),
            before_source(sums),
            scan_source(&program, products, Way::Groups),
            scan_source(&program, products, Way::Block),
            scan_source(&program, products, Way::Apart),
            before_source(products),
        ]
    }

    #[test]
    fn running_sums_and_products_compile_for_every_element() {
        compile_for_all(&of_every_element!(sources).concat());
    }
}
