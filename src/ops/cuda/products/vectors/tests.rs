use super::super::tests::KINDS;
use super::*;
use crate::array::{Layout, Shape};
use crate::device::cuda::{compile_for_all, ptx_of};
use crate::ops::cuda::copy::tests::numberings;
use crate::ops::cuda::walk::limit_of;

const ELEMENTS: Stores = stores(false, false);
const SUMS: Stores = stores(true, false);

const fn stores(of_sums: bool, is_begun: bool) -> Stores {
    Stores { of_sums, is_begun }
}

/// The kernels that sum elements: the text, the number of threads of a group, and the stored
/// values.
const FORMS: [(&str, usize, Stores); 9] = [
    (ROWS, 256, SUMS),
    (ROWS, 32, ELEMENTS),
    (ROWS, 1, stores(true, true)),
    (COLUMNS, 1, SUMS),
    (COLUMNS, 1, ELEMENTS),
    (COLUMNS, 1, stores(false, true)),
    (CHUNKS, 1, ELEMENTS),
    (CHUNKS, 32, ELEMENTS),
    (CHUNKS, 32, stores(false, true)),
];

#[test]
fn products_with_vectors_compile() {
    let [narrow, wide] = numberings();
    for (numbering, kinds) in [(narrow, &KINDS[..]), (wide, &[ProductKind::F32])] {
        for (text, group, stores) in FORMS {
            let kinds = kinds.iter();
            let sources = kinds.map(|&kind| source(kind, numbering, (group, 1), stores, text));
            compile_for_all(&sources.collect::<Vec<_>>());
        }
    }
}

#[test]
fn products_in_packs_compile_and_read_sixteen_bytes_at_once() {
    for numbering in numberings() {
        for (text, group, stores) in &FORMS[..6] {
            let kinds = [ProductKind::F16, ProductKind::Bf16];
            let sources = kinds.map(|kind| source(kind, numbering, (*group, 8), *stores, text));
            compile_for_all(&sources);
            for source in sources {
                let Some(ptx) = ptx_of(&source, 80) else {
                    return;
                };
                let is_long = |line: &str| line.contains("ld.global.nc.v4.") && line.contains("32");
                assert!(ptx.lines().any(is_long), "{}: {ptx}", source.text);
            }
        }
    }
}

/// Returns the pack size for a matrix and a vector at `addresses`.
fn packed(kind: ProductKind, left: &Layout, right: &Layout, addresses: [u64; 2]) -> usize {
    let words = |address, layout| Words {
        address: DevicePtr(address),
        bytes: 2,
        limit: limit_of(layout),
    };
    let operands = [words(addresses[0], left), words(addresses[1], right)];
    Vectors::new(kind, &Pairs::new(left, right), operands).pack
}

fn dense(dims: &[usize]) -> Layout {
    Layout::contiguous(&Shape::from(dims)).unwrap()
}

#[test]
fn what_begins_at_sixteen_bytes_is_read_in_packs() {
    let [rows, columns] = [dense(&[30, 40]), dense(&[40, 30]).transpose()];
    let even = dense(&[40, 32]).transpose();
    let vector = |length| dense(&[length, 1]);
    let of = |left: &Layout, right: &Layout| packed(ProductKind::F16, left, right, [512, 1024]);
    assert_eq!(of(&rows, &vector(40)), 8);
    assert_eq!(of(&even, &vector(40)), 8);
    assert_eq!(of(&columns, &vector(40)), 1, "30 elements apart");
    assert_eq!(of(&dense(&[1, 44]), &vector(44)), 8, "there is one row");
    assert_eq!(of(&dense(&[2, 44]), &vector(44)), 1);
    assert_eq!(of(&dense(&[9, 8]), &vector(8)), 8, "rows of a thread each");
    assert_eq!(of(&dense(&[9, 4]), &vector(4)), 1);
    assert_eq!(of(&dense(&[3, 5, 40]), &dense(&[3, 40, 1])), 8);
    let repeated = vector(40).broadcast_to(&Shape::from([3, 40, 1])).unwrap();
    assert_eq!(of(&dense(&[3, 5, 40]), &repeated), 8);
    assert_eq!(of(&rows.flip(0).unwrap(), &vector(40)), 8);
    assert_eq!(of(&rows.flip(1).unwrap(), &vector(40)), 1);
    // Slices of columns are read in packs only if each row begins at an aligned address.
    let part = |first: isize| {
        let parts = [(..).into(), ndarray::SliceInfoElem::from(first..first + 24)];
        rows.slice("slice", &parts).unwrap()
    };
    assert_eq!(of(&part(8), &vector(24)), 8);
    assert_eq!(of(&part(4), &vector(24)), 1);
    // Strided factors are not read in packs. Along columns, one factor is read for all rows of a
    // pack, so the factors may be strided.
    let steps = dense(&[40, 8])
        .slice("slice", &[(..).into(), (0..1isize).into()])
        .unwrap();
    assert_eq!(of(&rows, &steps), 1);
    assert_eq!(of(&even, &steps), 8);
    // Foreign memory may be aligned to 8 bytes only.
    for (addresses, by_rows, by_columns) in [([520, 1024], 1, 1), ([512, 1032], 1, 8)] {
        let of = |left| packed(ProductKind::Bf16, left, &vector(40), addresses);
        assert_eq!([of(&rows), of(&even)], [by_rows, by_columns]);
    }
    for kind in KINDS {
        let pack = packed(kind, &rows, &vector(40), [512, 1024]);
        let is_short = matches!(kind, ProductKind::F16 | ProductKind::Bf16);
        assert_eq!(pack, if is_short { 8 } else { 1 }, "{kind:?}");
    }
}
