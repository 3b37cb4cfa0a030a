use half::{bf16, f16};

use super::digits::{Widths, elements_each};
use super::*;

/// Returns the numbers after `#define CS_ORDER` and after `#define CS_INFINITE`.
fn order_of<T: Element>() -> (String, String) {
    let text = keys::<T>();
    let after = |name: &str| {
        let rest = text.split_once(&format!("#define {name} ")).unwrap().1;
        rest.lines().next().unwrap().to_owned()
    };
    (after("CS_ORDER"), after("CS_INFINITE"))
}

#[test]
fn elements_are_ordered_by_their_kind() {
    let order = |order: &str, infinite: &str| (order.to_owned(), infinite.to_owned());
    assert_eq!(order_of::<bool>(), order("0", "0ull"));
    assert_eq!(order_of::<u64>(), order("0", "0ull"));
    assert_eq!(order_of::<i8>(), order("1", "0ull"));
    assert_eq!(
        order_of::<f16>(),
        order("2", &format!("{}ull", f16::INFINITY.to_bits()))
    );
    assert_eq!(
        order_of::<bf16>(),
        order("2", &format!("{}ull", bf16::INFINITY.to_bits()))
    );
    assert_eq!(
        order_of::<f64>(),
        order("2", &format!("{}ull", f64::INFINITY.to_bits()))
    );
}

#[test]
fn contiguous_axes_are_merged() -> Result<()> {
    let whole = Layout::contiguous(&Shape::from([4, 5, 1, 6]))?;
    let lanes = SortLanes::along(512, &whole, 3);
    assert_eq!((lanes.length, lanes.step, lanes.count()), (6, 1, 20));
    assert!(lanes.others.axes().eq([(20, [6])]));
    let lanes = SortLanes::along(512, &whole, 1);
    assert_eq!((lanes.length, lanes.step, lanes.count()), (5, 6, 24));
    assert!(lanes.others.axes().eq([(4, [30]), (6, [1])]));
    let lanes = SortLanes::along(512, &Layout::contiguous(&Shape::from([7]))?, 0);
    assert_eq!((lanes.length, lanes.count()), (7, 1));
    Ok(())
}

/// Shared memory of a block: 48 KiB are available without an attribute of the kernel.
#[test]
fn the_rows_of_a_block_fit() {
    for element_bytes in [1, 2, 4, 8] {
        for place_bytes in [4, 8] {
            let tile = THREADS as usize * elements_each(element_bytes, place_bytes);
            let warps = THREADS as usize / 32;
            let counts = warps * (256 * 4 + 4 + 8) + 256 * (8 + 4) + 8;
            assert!(tile * (element_bytes + place_bytes) + counts <= 48 << 10);
        }
    }
    const { assert!(ITEMS * 16 <= 48 << 10) };
}

#[test]
fn numbers_are_as_wide_as_a_lane_is_long() {
    let widths = |length: u64| {
        let Widths { place, counts } = Widths::of(length as usize);
        (place, counts)
    };
    assert_eq!(widths(3000), (4, 4));
    // The upper two of 32 bits are the flag.
    assert_eq!(widths((1 << 30) - 1), (4, 4));
    assert_eq!(widths(1 << 30), (4, 8));
    assert_eq!(widths((1 << 32) - 1), (4, 8));
    assert_eq!(widths(1 << 32), (8, 8));
}

#[cfg(feature = "cuda")]
#[test]
fn sorting_compiles_for_every_element() {
    use super::digits::digits_source;
    fn sources<T: Element>() -> [KernelSource; 7] {
        let [short, long, longest] = [1 << 20, 1 << 31, 1 << 40].map(Widths::of);
        [
            network_source::<T>(),
            digits_source::<T>(short, true),
            digits_source::<T>(short, false),
            digits_source::<T>(long, true),
            digits_source::<T>(long, false),
            digits_source::<T>(longest, true),
            digits_source::<T>(longest, false),
        ]
    }
    let sources = crate::ops::cuda::tests::of_every_ordered!(sources);
    crate::device::cuda::compile_for_all(&sources.concat());
}
