//! Sums of products and biases of `f16` and `bf16` against `f64`.
//!
//! The products of large inputs exceed the range of `f16`, but the sums with the biases do not. The
//! biases cancel most of each product, so a rounded product would lose the digits of the sum.

use cachescope::grad::nn::{Conv2d, ConvTranspose2d, Gru, Linear, Lstm};
use cachescope::grad::{activation_budget, hvp, jvp, value_and_grad};
use cachescope::{Array, ConvOptions, Float, Result};
use half::{bf16, f16};

/// A layer, with the shapes of its input, its weight and its bias.
struct Case {
    name: &'static str,
    shapes: &'static [&'static [usize]],
}

const fn case(name: &'static str, shapes: &'static [&'static [usize]]) -> Case {
    Case { name, shapes }
}

const CASES: &[Case] = &[
    case("Linear", &[&[5, 6], &[7, 6], &[7]]),
    case("Linear of a row", &[&[1, 6], &[300, 6], &[300]]),
    case("Linear of a vector", &[&[6], &[7, 6], &[7]]),
    case("Linear of one output", &[&[300, 6], &[1, 6], &[1]]),
    case("Linear of sequences", &[&[2, 5, 6], &[7, 6], &[7]]),
    case("Linear of long rows", &[&[3, 600], &[5, 600], &[5]]),
    case("Linear of a long row", &[&[20_000], &[2, 20_000], &[2]]),
    case("Linear without inputs", &[&[5, 0], &[7, 0], &[7]]),
    case("Conv2d", &[&[2, 3, 5, 4], &[4, 3, 2, 2], &[4]]),
    case("Conv2d in groups", &[&[2, 4, 5, 4], &[6, 2, 2, 2], &[6]]),
    case("Conv2d of pixels", &[&[3, 4, 3, 2], &[5, 4, 1, 1], &[5]]),
    case("Conv2d by blocks", &[&[2, 8, 60, 62], &[3, 8, 3, 3], &[3]]),
    case("ConvTranspose2d", &[&[2, 3, 3, 4], &[3, 4, 2, 3], &[4]]),
    case(
        "ConvTranspose2d in groups",
        &[&[2, 4, 3, 4], &[4, 3, 2, 3], &[6]],
    ),
    case(
        "ConvTranspose2d of pixels",
        &[&[2, 3, 3, 4], &[3, 4, 1, 1], &[4]],
    ),
];

/// The magnitudes of the inputs. Each case runs with each magnitude. 6e4 is near the largest `f16`.
const SIZES: [f64; 4] = [6e4, 300.0, 1.0, 1e-3];

const OPTIONS: ConvOptions = ConvOptions {
    stride: [1, 1],
    padding: [0, 0],
    dilation: [1, 1],
    groups: 1,
};

fn applied<T: Float>(name: &str, operands: &[Array<T>]) -> Result<Array<T>> {
    let (x, weight, bias) = (&operands[0], operands[1].clone(), Some(operands[2].clone()));
    let groups = if name.contains("groups") { 2 } else { 1 };
    let options = ConvOptions { groups, ..OPTIONS };
    match name.split(' ').next() {
        Some("Linear") => Linear { weight, bias }.forward(x),
        Some("Conv2d") => Conv2d {
            weight,
            bias,
            options,
        }
        .forward(x),
        _ => ConvTranspose2d {
            weight,
            bias,
            options: ConvOptions {
                stride: [1, 2],
                ..options
            },
            output_padding: [0, 1],
        }
        .forward(x),
    }
}

fn from<T: Float>(values: &[f64], shape: &[usize]) -> Result<Array<T>> {
    Array::from_slice(values, shape)?.cast::<T>().eval()
}

/// Returns the values, rounded to `bf16`, so that they are equal in each type.
fn shared<T: Float>(values: &[f64], shape: &[usize]) -> Result<Array<T>> {
    from::<bf16>(values, shape)?.cast::<T>().eval()
}

fn read<T: Float>(array: &Array<T>) -> Result<Vec<f64>> {
    array.cast::<f64>().eval()?.to_vec()
}

/// Returns unsorted numbers from `least` to `most`.
fn spread(count: usize, [least, most]: [f64; 2]) -> Vec<f64> {
    let of = |at: usize| least + (most - least) * ((at * 37 + 11) % 101) as f64 / 100.0;
    (0..count).map(of).collect()
}

/// Returns the operands of a case: each product is about 1.5 times `size`, and the bias is `-size`.
fn operands<T: Float>(case: &Case, size: f64) -> Result<Vec<Array<T>>> {
    let count = |at: usize| case.shapes[at].iter().product::<usize>();
    let weight = case.shapes[1];
    let is_turned = case.name.starts_with("ConvTranspose2d");
    // `terms` is the inner length of the products.
    let terms = match weight {
        [_, inner] => *inner,
        // With stride 2, a result uses every other column of the kernel.
        [own, _, h, w] if is_turned => own * h * w.div_ceil(2),
        [_, rest @ ..] => rest.iter().product(),
        [] => unreachable!("weights have axes"),
    };
    let each = 1.5 / 0.8 / terms.max(1) as f64;
    let x = spread(count(0), [0.6 * size, size]);
    let weights = spread(count(1), [0.9 * each, 1.1 * each]);
    let biases = spread(count(2), [-size, -0.95 * size]);
    [x, weights, biases]
        .iter()
        .zip(case.shapes)
        .map(|(values, shape)| from(values, shape))
        .collect()
}

/// Returns the layer's value, and the gradients of a weighted sum of the value's elements.
fn both<T: Float>(name: &str, operands: &Vec<Array<T>>) -> Result<Vec<Vec<f64>>> {
    let value = applied(name, operands)?;
    let weights = shared::<T>(&spread(value.len(), [-1.0, 1.0]), value.shape())?;
    let sum = |operands: &Vec<Array<T>>| (applied(name, operands)? * &weights).sum();
    let (_, gradients) = value_and_grad(operands, sum)?;
    let mut all = vec![read(&value)?];
    for gradient in &gradients {
        all.push(read(gradient)?);
    }
    Ok(all)
}

/// The limits and the precision of a floating-point format.
struct Format {
    largest: f64,
    smallest: f64,
    epsilon: f64,
}

const F16: Format = Format {
    largest: 65_504.0,
    smallest: 6.103_515_625e-5,
    epsilon: 1.0 / 1024.0,
};

const BF16: Format = Format {
    largest: 3.389_531_389_251_535_5e38,
    smallest: 1.175_494_350_822_287_5e-38,
    epsilon: 1.0 / 128.0,
};

/// Returns the first element with an error above half a unit in the last place. The bound includes
/// the rounding error of `f32` sums with terms up to `scale`.
fn far(own: &[f64], exact: &[f64], scale: f64, format: &Format) -> Option<String> {
    assert_eq!(own.len(), exact.len());
    let pairs = own.iter().zip(exact);
    let mut far = pairs.filter(|(own, exact)| {
        let bound = 0.51 * format.epsilon * exact.abs().max(format.smallest) + scale * 1e-6;
        let is_beyond = exact.abs() + bound >= format.largest && own.is_infinite();
        let is_near = (*own - *exact).abs() <= bound;
        !(is_near || is_beyond && own.signum() == exact.signum())
    });
    far.next()
        .map(|(own, exact)| format!("{own} is not {exact}"))
}

fn table<T: Float>(format: &Format) -> Result<()> {
    let mut wrong = Vec::new();
    for case in CASES {
        for size in SIZES {
            let operands = operands::<T>(case, size)?;
            let wide: Result<Vec<_>> = operands
                .iter()
                .map(|own| own.cast::<f64>().eval())
                .collect();
            let own = both(case.name, &operands)?;
            let exact = both(case.name, &wide?)?;
            for (number, (own, exact)) in own.iter().zip(&exact).enumerate() {
                let largest = exact.iter().fold(0.0_f64, |most, own| most.max(own.abs()));
                // For a value, the largest term is a bias or a product.
                let scale = if number == 0 {
                    2.0 * size
                } else {
                    4.0 * largest
                };
                if let Some(text) = far(own, exact, scale, format) {
                    let what = [
                        "value",
                        "gradient of x",
                        "gradient of the weight",
                        "gradient of the bias",
                    ];
                    let (what, name) = (what[number], case.name);
                    wrong.push(format!(
                        "{name} of {} up to {size}: {what}: {text}",
                        T::NAME
                    ));
                }
            }
            if case.name != "Linear without inputs" && size == 6e4 {
                let finite = exact[0].iter().filter(|own| own.abs() < 6e4).count();
                assert!(
                    finite == exact[0].len(),
                    "{} is beyond the range",
                    case.name
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn layers_of_f16_add_the_bias_before_they_round() -> Result<()> {
    table::<f16>(&F16)
}

#[test]
fn layers_of_bf16_add_the_bias_before_they_round() -> Result<()> {
    table::<bf16>(&BF16)
}

/// Returns the states of a recurrent layer, and the gradients of the states' weighted sum.
///
/// In the first step, the products with the inputs are about 1.5 times `size`. The bias, `-size`,
/// and the products with the state, half of `-size`, cancel them.
fn recurrent<T: Float>(name: &str, size: f64) -> Result<[Vec<f64>; 4]> {
    let gates = if name == "Gru" { 3 } else { 4 };
    let (batch, width) = (2, 3);
    let rows = gates * width;
    let small = |count: usize| spread(count, [-0.5, 0.5]);
    let of_columns = |columns: &[&[f64]]| -> Vec<f64> {
        let row = |row: usize| columns.iter().map(move |own| own[row]);
        (0..columns[0].len()).flat_map(row).collect()
    };
    let (ones, halves, zeros) = (vec![1.0; rows], vec![0.5; rows], vec![0.0; rows]);
    let (few, others) = (small(rows), spread(rows, [0.5, -0.4]));
    let size = read(&from::<bf16>(&[size], &[])?)?[0];
    let weight = shared::<T>(&of_columns(&[&ones, &halves, &few]), &[rows, 3])?;
    let across = shared::<T>(&of_columns(&[&ones, &few, &others]), &[rows, width])?;
    let bias = shared::<T>(&vec![-size; rows], &[rows])?;
    let own_bias = shared::<T>(&zeros, &[rows])?;
    let first = [size, size, 0.7, size, 0.0, -0.6];
    let x = shared::<T>(
        &[first, [size, size, -0.3, size, 0.0, 0.9]].concat(),
        &[batch, 2, 3],
    )?;
    let state = [-size / 2.0, 0.25, -0.5, -size / 2.0, 0.5, 0.75];
    let state = shared::<T>(&state, &[batch, width])?;
    let cell = shared::<T>(&small(batch * width), &[batch, width])?;
    let weights = shared::<T>(&spread(batch * 2 * width, [-1.0, 1.0]), &[batch, 2, width])?;
    let forward = |own: &Vec<Array<T>>| -> Result<Array<T>> {
        let [x, weight_ih_l0, weight_hh_l0] = [0, 1, 2].map(|at: usize| own[at].clone());
        let (bias_ih_l0, bias_hh_l0) = (bias.clone(), own_bias.clone());
        if name == "Gru" {
            let layer = Gru {
                weight_ih_l0,
                weight_hh_l0,
                bias_ih_l0,
                bias_hh_l0,
            };
            return Ok(layer.forward(&x, Some(&state))?.0);
        }
        let layer = Lstm {
            weight_ih_l0,
            weight_hh_l0,
            bias_ih_l0,
            bias_hh_l0,
        };
        Ok(layer.forward(&x, Some((&state, &cell)))?.0)
    };
    let own = vec![x, weight, across];
    let states = forward(&own)?;
    let (_, gradients) = value_and_grad(&own, |own| (forward(own)? * &weights).sum())?;
    let [of_x, of_weight, of_across] = [0, 1, 2].map(|at: usize| read(&gradients[at]));
    Ok([read(&states)?, of_x?, of_weight?, of_across?])
}

fn recurrent_layers<T: Float>(format: &Format) -> Result<()> {
    for name in ["Gru", "Lstm"] {
        for size in [6e4, 300.0, 1.0] {
            let (own, exact) = (recurrent::<T>(name, size)?, recurrent::<f64>(name, size)?);
            for (own, exact) in own.iter().zip(&exact) {
                let scale = exact.iter().fold(1.0_f64, |most, own| most.max(own.abs()));
                let bound = scale * (8.0 * format.epsilon + size * 1e-6);
                for (own, exact) in own.iter().zip(exact) {
                    let is_beyond = scale >= 0.5 * format.largest;
                    assert!(
                        is_beyond || (own - exact).abs() <= bound,
                        "{name} of {} up to {size}: {own} is not {exact}",
                        T::NAME
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn recurrent_layers_of_f16_add_all_terms_of_a_gate_before_they_round() -> Result<()> {
    recurrent_layers::<f16>(&F16)
}

#[test]
fn recurrent_layers_of_bf16_add_all_terms_of_a_gate_before_they_round() -> Result<()> {
    recurrent_layers::<bf16>(&BF16)
}

#[test]
fn a_bias_has_derivatives_of_both_orders_in_half_precision() -> Result<()> {
    for case in CASES.iter().filter(|case| !case.name.contains("blocks")) {
        let operands = operands::<bf16>(case, 1.0)?;
        let tangents: Result<Vec<Array<bf16>>> = operands
            .iter()
            .map(|own| from(&spread(own.len(), [-1.0, 1.0]), own.shape()))
            .collect();
        let (operands, tangents) = (operands, tangents?);
        let wide = |own: &Vec<Array<bf16>>| -> Result<Vec<Array<f64>>> {
            own.iter().map(|own| own.cast::<f64>().eval()).collect()
        };
        let (of_wide, along) = (wide(&operands)?, wide(&tangents)?);
        let near = |own: &[f64], exact: &[f64]| {
            let scale = exact.iter().fold(0.0_f64, |most, own| most.max(own.abs()));
            let mut pairs = own.iter().zip(exact);
            assert!(
                pairs.all(|(own, exact)| (own - exact).abs() <= 0.05 * scale),
                "{}: {own:?} is not {exact:?}",
                case.name
            );
        };
        let (_, own) = jvp(&operands, &tangents, |own| applied(case.name, own))?;
        let (_, exact) = jvp(&of_wide, &along, |own| applied(case.name, own))?;
        near(&read(&own)?, &read(&exact)?);
        let (_, own) = hvp(&operands, &tangents, |own| {
            applied(case.name, own)?.square().sum()
        })?;
        let (_, exact) = hvp(&of_wide, &along, |own| {
            applied(case.name, own)?.square().sum()
        })?;
        for (own, exact) in own.iter().zip(&exact) {
            near(&read(own)?, &read(exact)?);
        }
    }
    Ok(())
}

#[test]
fn a_budget_keeps_the_bits_of_sums_with_biases() -> Result<()> {
    for case in CASES.iter().filter(|case| case.shapes[0] != [5, 0]) {
        let operands = operands::<f16>(case, 6e4)?;
        let gradients = |budget_bytes: u64| -> Result<_> {
            let budget = activation_budget(budget_bytes);
            let (_, gradients) = value_and_grad(&operands, |own| {
                let sums = applied(case.name, own)? * bf16_like(1.0 / 1024.0);
                sums.eval()?.square().eval()?.sum()
            })?;
            let all: Result<Vec<_>> = gradients.iter().map(read).collect();
            Ok((all?, budget.report()))
        };
        let (expected, all) = gradients(u64::MAX)?;
        let (own, report) = gradients(all.saved_bytes / 2)?;
        assert_eq!(own, expected, "{}", case.name);
        assert!(report.recomputed_bytes > 0, "{}: {report}", case.name);
    }
    Ok(())
}

/// Returns a factor as `f16`, the type of the sums.
fn bf16_like(value: f32) -> f16 {
    f16::from_f32(value)
}

/// Returns the errors of layers whose bias has a wrong length.
fn refused<T: Float>() -> Result<[String; 3]> {
    let bias = || Array::<T>::zeros(5).map(Some);
    let mut linear = Linear::<T>::new(3, 2)?;
    let mut convolution = Conv2d::<T>::new((3, 2), [3, 3], ConvOptions::default())?;
    let mut transposed = ConvTranspose2d::<T>::new((3, 2), [3, 3], ConvOptions::default())?;
    (linear.bias, convolution.bias, transposed.bias) = (bias()?, bias()?, bias()?);
    let images = Array::<T>::zeros([1, 3, 4, 4])?;
    let errors = [
        linear.forward(&Array::zeros([2, 3])?),
        convolution.forward(&images),
        transposed.forward(&images),
    ];
    // The line is removed from the text of each error.
    Ok(errors.map(|error| {
        let text = error.unwrap_err().to_string();
        text.split(" at ").next().unwrap_or_default().to_owned()
    }))
}

#[test]
fn a_bias_of_another_length_is_refused_alike_in_each_type() -> Result<()> {
    let expected = refused::<f32>()?;
    assert!(expected[0].starts_with("add: the shapes [2, 2] and [5] do not broadcast"));
    assert_eq!(refused::<f16>()?, expected);
    assert_eq!(refused::<bf16>()?, expected);
    Ok(())
}
