//! `einsum`, losses, normalizations and attention: the inputs that they refuse, and the memory that
//! they use.

use cachescope::{Array, Device, DeviceConfig, ErrorKind, Result, attention, einsum};
use half::f16;
use under_test::device_with;

use crate::arrays::fails;

fn ones(shape: &[usize]) -> Array<f32> {
    Array::ones(shape).unwrap()
}

#[test]
fn subscripts_that_do_not_fit_the_shapes_are_named() {
    const KIND: ErrorKind = ErrorKind::ShapeMismatch;
    let (a, b) = (ones(&[2, 3]), ones(&[4, 5]));
    fails(
        einsum("ij,jk->ik", (&a, &b)),
        KIND,
        "einsum: the letter j has length 3 in operand 0 of shape [2, 3] and length 4 in operand 1 of shape [4, 5]",
    );
    fails(
        einsum("ij,kj,Kj", (&a, &a, &b)),
        KIND,
        "the letter j has length 3 in operand 0 of shape [2, 3] and length 5 in operand 2 of shape [4, 5]",
    );
    // A diagonal in the subscripts does not broadcast.
    fails(
        einsum("ii", (&ones(&[1, 3]),)),
        KIND,
        "the letter i has the lengths 1 and 3 in operand 0 of shape [1, 3]",
    );
    fails(
        einsum("...i,...j", (&a, &ones(&[3, 2]))),
        KIND,
        "an axis of \"...\" has length 2 in operand 0 of shape [2, 3] and length 3 in operand 1 of shape [3, 2]",
    );
    fails(
        einsum("ijk,jk", (&a, &b)),
        KIND,
        "\"ijk,jk\" names 3 axes of operand 0, which has the shape [2, 3] of rank 2",
    );
    fails(
        einsum("i,jk", (&a, &b)),
        KIND,
        "names 1 axis of operand 0, which has the shape [2, 3] of rank 2",
    );
    fails(
        einsum("i...jk", (&a,)),
        KIND,
        "names at least 3 axes of operand 0",
    );
}

#[test]
fn subscripts_that_mean_nothing_are_named() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let (a, b) = (ones(&[2, 3]), ones(&[3, 5]));
    let of_two = |text: &str| einsum(text, (&a, &b));
    for (text, why) in [
        ("ij", "einsum: \"ij\" names 1 operand, expected 2"),
        ("ij,jk,k", "names 3 operands, expected 2"),
        ("i1,jk", "\"i1,jk\" has '1', expected letters"),
        ("ij,jk-ik", "\"ij,jk-ik\" has '-', expected letters"),
        ("ij->jk->ik", "\"ij->jk->ik\" has '-'"),
        ("ié,jk", "\"ié,jk\" has 'é'"),
        ("ij,..k", "\"ij,..k\" has a '.' outside of \"...\""),
        ("......,jk", "has a '.' outside of"),
        (
            "ij,jk->im",
            "the output of \"ij,jk->im\" has the letter m, which no operand has",
        ),
        (
            "ij,jk->iki",
            "the output of \"ij,jk->iki\" has the letter i twice",
        ),
        (
            "...j,jk->k",
            "lacks \"...\", which has 1 axis in the operands: write it",
        ),
    ] {
        let error = of_two(text).expect_err(text);
        assert_eq!(error.kind(), KIND, "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert!(
            error
                .location()
                .is_some_and(|location| location.file() == file!())
        );
    }
    let nine = [&a; 9];
    fails(
        einsum("ij,ij,ij,ij,ij,ij,ij,ij,ij", &nine),
        KIND,
        "einsum: 9 operands, expected at most 8",
    );
    let none: &[&Array<f32>] = &[];
    fails(einsum("", none), KIND, "\"\" names 1 operand, expected 0");
    let many = ones(&[1, 2, 2, 2, 2]);
    fails(
        einsum("abcde,fghij->abcdefghij", (&many, &many)),
        ErrorKind::InvalidShape,
        "einsum: ",
    );
    let long = ones(&[1]).broadcast_to(1 << 40).unwrap();
    fails(
        einsum("i,j", (&long, &long)),
        ErrorKind::InvalidShape,
        "einsum: ",
    );
}

#[test]
fn a_single_operand_of_an_einsum_is_a_view() -> Result<()> {
    let a = Array::<i32>::arange(0, 9, 1)?.reshape([3, 3])?;
    let turned = einsum("ij->ji", (&a,))?;
    assert_eq!(turned.address(), a.address());
    assert_eq!(einsum("ii->i", (&a,))?.to_vec()?, [0, 4, 8]);
    assert_eq!(einsum("ii->i", (&a,))?.address(), a.address());
    assert_eq!(einsum("...i,i...", &[&a, &a])?.to_vec()?, [15, 54, 111]);
    Ok(())
}

#[test]
fn sums_of_an_einsum_wrap_in_the_type_of_its_operands() -> Result<()> {
    let bytes = Array::<u8>::full([2, 3], 100)?;
    assert_eq!(einsum("ij->i", (&bytes,))?.to_vec()?, [44, 44]);
    assert_eq!(einsum("ij,ij->j", (&bytes, &bytes))?.to_vec()?, [32; 3]);
    let large = Array::<u64>::full([3], u64::MAX - 1)?;
    assert_eq!(einsum("i->", (&large,))?.item()?, u64::MAX - 5);
    let half = Array::<f16>::full([4000], f16::from_f32(0.5))?;
    assert_eq!(einsum("i->", (&half,))?.item()?, f16::from_f32(2000.0));
    Ok(())
}

#[test]
fn a_chain_is_multiplied_in_the_cheapest_order() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let _current = device.enter();
    // The product (x y) z needs an intermediate result of 4 MB. The intermediate result of x (y z)
    // has only a few bytes.
    let x = Array::<f32>::ones([1000, 2])?;
    let y = Array::<f32>::ones([2, 1000])?;
    let z = Array::<f32>::ones([1000, 1])?;
    device.reset_peaks();
    let before = device.memory_stats().live_bytes;
    let product = einsum("ij,jk,kl->il", (&x, &y, &z))?;
    assert!(device.memory_stats().peak_live_bytes - before < 100_000);
    assert_eq!(product.to_vec()?, [2000.0; 1000]);
    Ok(())
}

#[test]
fn a_bad_class_is_named() -> Result<()> {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let logits = ones(&[2, 3]);
    for bad in [3, -1, -100, i64::MAX, i64::MIN] {
        let classes = Array::from_slice(&[0, bad], 2)?;
        let text = format!(
            "cross_entropy: the class {bad} is out of range for logits [2, 3] of 3 classes"
        );
        fails(logits.cross_entropy(&classes), KIND, &text);
    }
    let classes = Array::from_slice(&[0, 0], 2)?;
    fails(
        ones(&[2, 0]).cross_entropy(&classes),
        KIND,
        "cross_entropy: ",
    );
    Ok(())
}

#[test]
fn classes_that_do_not_match_the_logits_are_named() -> Result<()> {
    const KIND: ErrorKind = ErrorKind::ShapeMismatch;
    let classes = Array::<i64>::zeros(2)?;
    for shape in [&[3, 3][..], &[2], &[2, 3, 1], &[]] {
        fails(
            ones(shape).cross_entropy(&classes),
            KIND,
            &format!(
                "cross_entropy: logits {shape:?} and classes [2] do not fit, expected [N, C] and [N]"
            ),
        );
    }
    let table = Array::<i64>::zeros([2, 1])?;
    fails(
        ones(&[2, 3]).cross_entropy(&table),
        KIND,
        "cross_entropy: logits [2, 3] and classes [2, 1] do not fit",
    );
    // The mean of no elements is NaN.
    let none = ones(&[0, 3]).cross_entropy(&Array::zeros(0)?)?;
    assert!(none.item()?.is_nan());
    Ok(())
}

#[test]
fn a_small_loss_of_large_logits_keeps_its_digits() -> Result<()> {
    let logits = Array::from_slice(&[1.0e6_f32, 1.0e6 - 10.0], [1, 2])?;
    let loss = logits.cross_entropy(&Array::zeros(1)?)?.item()?;
    let wanted = (-10.0_f32).exp().ln_1p();
    assert!((loss - wanted).abs() < 2e-7, "{loss} and not {wanted}");
    Ok(())
}

#[test]
fn weights_of_another_length_are_named() {
    const KIND: ErrorKind = ErrorKind::ShapeMismatch;
    let (x, fits) = (ones(&[2, 3]), ones(&[3]));
    for other in [&[2][..], &[1], &[1, 3], &[2, 3], &[]] {
        let other = ones(other);
        let says = |name: &str| {
            let shape = format!("{:?}", other.shape());
            format!(
                "{name} {shape} does not fit x [2, 3]: expected a vector as long as the last axis of x"
            )
        };
        fails(
            x.layer_norm(&other, &fits, 1e-5),
            KIND,
            &format!("layer_norm: {}", says("weight")),
        );
        fails(
            x.layer_norm(&fits, &other, 1e-5),
            KIND,
            &format!("layer_norm: {}", says("bias")),
        );
        fails(
            x.rms_norm(&other, 1e-5),
            KIND,
            &format!("rms_norm: {}", says("weight")),
        );
    }
    fails(ones(&[]).rms_norm(&fits, 1e-5), KIND, "rms_norm: ");
    fails(
        ones(&[]).layer_norm(&fits, &fits, 1e-5),
        KIND,
        "layer_norm: ",
    );
}

#[test]
fn mismatched_queries_keys_and_values_are_named() {
    const KIND: ErrorKind = ErrorKind::ShapeMismatch;
    let (q, k, v) = (ones(&[2, 4, 3]), ones(&[2, 5, 3]), ones(&[2, 5, 6]));
    fails(
        attention(&q, &ones(&[2, 5, 4]), &v, false),
        KIND,
        "attention: q [2, 4, 3], k [2, 5, 4] and v [2, 5, 6] do not fit: the last axis of q has length 3, the last axis of k has length 4",
    );
    fails(
        attention(&q, &k, &ones(&[2, 4, 6]), true),
        KIND,
        "axis -2 of k has length 5, axis -2 of v has length 4",
    );
    fails(
        attention(&ones(&[3, 4, 3]), &k, &v, true),
        KIND,
        "[3], [2] and [2], do not broadcast",
    );
    fails(
        attention(&q, &k, &ones(&[6]), true),
        KIND,
        "expected at least two axes in each",
    );
}

/// Returns the attention, computed without blocks.
fn at_once(q: &Array<f32>, k: &Array<f32>, v: &Array<f32>, causal: bool) -> Vec<f64> {
    let scale = 1.0 / (q.shape()[q.ndim() - 1] as f32).sqrt();
    let scores = q.matmul(&k.swap_axes(-1, -2).unwrap()).unwrap();
    let mut scores = (scores * scale).eval().unwrap();
    if causal {
        let shown = Array::<f32>::ones(scores.shape()).unwrap().tril(0).unwrap();
        scores = cachescope::select(shown.gt(0.0), &scores, f32::NEG_INFINITY)
            .eval()
            .unwrap();
    }
    let means = scores.softmax(-1).unwrap().matmul(v).unwrap();
    means.cast::<f64>().eval().unwrap().to_vec().unwrap()
}

#[test]
fn attention_by_blocks_is_attention() -> Result<()> {
    cachescope::manual_seed(3);
    // The cases need blocks of heads, blocks of queries, and blocks of queries with few keys.
    for (heads, queries, keys, causal) in [
        (&[3, 5][..], 800, 800, false),
        (&[1], 3000, 3000, false),
        (&[2], 600, 500, true),
        (&[], 500, 700, true),
    ] {
        let of = |length: usize, width: usize| {
            let shape: Vec<usize> = heads.iter().copied().chain([length, width]).collect();
            Array::<f32>::randn(shape)
        };
        let (q, k, v) = (of(queries, 2)?, of(keys, 2)?, of(keys, 3)?);
        let y = attention(&q, &k, &v, causal)?;
        let wanted = at_once(&q, &k, &v, causal);
        let y = y.cast::<f64>().eval()?.to_vec()?;
        let off = y.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        let off = off.fold(0.0, f64::max);
        assert!(off < 2e-5, "{heads:?} {queries} {keys}: {off}");
    }
    Ok(())
}

#[test]
fn attention_does_not_store_the_scores_of_all_heads() -> Result<()> {
    let device: Device = device_with(DeviceConfig::default())?;
    let _current = device.enter();
    let (heads, length, width) = (9, 2048, 4);
    let q = Array::<f32>::ones([heads, length, width])?;
    device.reset_peaks();
    let before = device.memory_stats().live_bytes;
    let y = attention(&q, &q, &q, false)?;
    assert_eq!(y.shape(), [heads, length, width]);
    let peak = device.memory_stats().peak_live_bytes - before;
    // The bound includes scores and weights of 32 MiB each, the result, and the size of a block.
    assert!(peak <= 66 << 20, "{peak}");
    assert!(peak < (heads * length * length * 4) as u64 / 2, "{peak}");
    Ok(())
}

/// Compares a contraction of halves with the contraction in `f64`, rounded once.
fn rounds_once(subscripts: &str, operands: &[(&[f64], &[usize])]) {
    let halves: Vec<Array<f16>> = (operands.iter())
        .map(|(values, shape)| {
            let values: Vec<f16> = values.iter().map(|value| f16::from_f64(*value)).collect();
            Array::from_slice(&values, *shape).unwrap()
        })
        .collect();
    let wide: Vec<Array<f64>> = (halves.iter())
        .map(|own| own.cast::<f64>().eval().unwrap())
        .collect();
    let result = einsum(subscripts, &halves.iter().collect::<Vec<_>>()[..]).unwrap();
    let expected = einsum(subscripts, &wide.iter().collect::<Vec<_>>()[..]).unwrap();
    for (result, expected) in (result.to_vec().unwrap().iter()).zip(expected.to_vec().unwrap()) {
        let near = f16::from_f64(expected).to_f64();
        let error = (result.to_f64() - near).abs();
        assert!(
            error <= near.abs() * 1e-3,
            "{subscripts}: {result}, expected {expected}"
        );
    }
}

#[test]
fn contractions_of_several_operands_are_rounded_once() {
    let small = 1e-3;
    rounds_once(
        "i,i,i->i",
        &[(&[300.0], &[1]), (&[300.0], &[1]), (&[0.01], &[1])],
    );
    rounds_once(
        "i,i,i->i",
        &[(&[300.0; 3], &[3]), (&[300.0; 3], &[3]), (&[0.01; 3], &[3])],
    );
    rounds_once(
        "ij,jk,kl->il",
        &[
            (&[300.0; 2], &[1, 2]),
            (&[400.0; 2], &[2, 1]),
            (&[small], &[1, 1]),
        ],
    );
    rounds_once("i,j->", &[(&[6e4; 2], &[2]), (&[small], &[1])]);
    rounds_once("ij,k->k", &[(&[3e4; 4], &[2, 2]), (&[0.01, 0.02], &[2])]);
    rounds_once(
        "ij,j,j->i",
        &[
            (&[0.5, -0.25], &[1, 2]),
            (&[300.0; 2], &[2]),
            (&[300.0; 2], &[2]),
        ],
    );
}
