//! Settings of layers outside of their domain. The errors name the setting.

use cachescope::grad::nn::{
    Attention, BatchNorm, Conv2d, GroupNorm, LayerNorm, PoolOptions, RmsNorm, Rotary,
    adaptive_avg_pool2d, avg_pool2d, max_pool2d,
};
use cachescope::grad::value_and_grad;
use cachescope::{Array, ConvOptions, ErrorKind, Float, Result};
use half::{bf16, f16};

use super::narrow::number;

/// The values that neither an epsilon nor a base can have.
const NO_SIZE: [f64; 4] = [f64::NAN, -1e-9, -1.0, f64::INFINITY];

#[track_caller]
fn assert_refused<R>(outcome: Result<R>, setting: &str, given: impl ToString) {
    let given = given.to_string();
    let Err(error) = outcome else {
        panic!("{setting} of {given} is taken");
    };
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
    assert!(text.contains(setting) && text.contains(&given), "{text}");
}

fn settings_of<T: Float>() {
    let rows = Array::<T>::ones([2, 4]).unwrap();
    let images = Array::<T>::ones([2, 4, 3, 3]).unwrap();
    for epsilon in NO_SIZE {
        let layer = LayerNorm {
            epsilon,
            ..LayerNorm::<T>::new(4).unwrap()
        };
        assert_refused(layer.forward(&rows), "epsilon", epsilon);
        let layer = RmsNorm {
            epsilon,
            ..RmsNorm::<T>::new(4).unwrap()
        };
        assert_refused(layer.forward(&rows), "epsilon", epsilon);
        let layer = GroupNorm {
            epsilon,
            ..GroupNorm::<T>::new(2, 4).unwrap()
        };
        assert_refused(layer.forward(&images), "epsilon", epsilon);
        let mut layer = BatchNorm::<T>::new(4).unwrap();
        layer.epsilon = epsilon;
        assert_refused(layer.forward(&images), "epsilon", epsilon);
        assert_refused(layer.forward_inference(&images), "epsilon", epsilon);
        let ones = Array::<T>::ones(4).unwrap();
        let rounded = number::<T>(epsilon);
        let given = Array::full([], rounded).unwrap().cast::<f64>().eval();
        let given = given.unwrap().item().unwrap();
        if given != 0.0 {
            assert_refused(rows.layer_norm(&ones, &ones, rounded), "epsilon", given);
            assert_refused(rows.rms_norm(&ones, rounded), "epsilon", given);
        }
    }
    for base in NO_SIZE.into_iter().chain([0.0]) {
        let layer = Rotary {
            base,
            ..Rotary::default()
        };
        assert_refused(layer.forward(&rows, 0), "base", base);
    }
}

#[test]
fn refuses_settings_outside_of_their_domain() {
    settings_of::<f16>();
    settings_of::<bf16>();
    settings_of::<f32>();
    settings_of::<f64>();
}

#[test]
fn refuses_lengths_of_nothing() {
    let images = Array::<f32>::ones([2, 4, 3, 3]).unwrap();
    assert_refused(GroupNorm::<f32>::new(0, 4), "groups", 0);
    let layer = GroupNorm {
        groups: 0,
        ..GroupNorm::<f32>::new(2, 4).unwrap()
    };
    assert_refused(layer.forward(&images), "groups", 0);
    assert_refused(Attention::<f32>::new(4, 0, true), "heads", 0);
    for (stride, dilation, setting) in [([0, 1], [1, 1], "stride"), ([1, 1], [1, 0], "dilation")] {
        let options = ConvOptions {
            stride,
            dilation,
            ..ConvOptions::default()
        };
        let layer = Conv2d::<f32>::new((4, 4), [1, 1], options);
        assert_refused(layer.and_then(|layer| layer.forward(&images)), setting, 0);
    }
    let options = ConvOptions {
        groups: 0,
        ..ConvOptions::default()
    };
    assert_refused(Conv2d::<f32>::new((4, 4), [1, 1], options), "groups", 0);
    for (size, stride, setting) in [([0, 1], [1, 1], "window"), ([1, 1], [0, 1], "step")] {
        let options = PoolOptions {
            stride,
            ..PoolOptions::of(size)
        };
        assert_refused(max_pool2d(&images, options), setting, 0);
        assert_refused(avg_pool2d(&images, options), setting, 0);
    }
    assert_refused(adaptive_avg_pool2d(&images, [0, 1]), "windows", 0);
}

#[test]
fn sizes_beyond_every_memory_are_errors() {
    let outcome = Attention::<f32>::new(usize::MAX / 3 + 1, 1, true);
    assert!(outcome.is_err(), "a layer of that width");
}

#[test]
fn padding_around_no_image_is_refused() {
    let options = PoolOptions {
        padding: [1, 1],
        counts_padding: false,
        ..PoolOptions::of([2, 2])
    };
    for shape in [[1, 2, 0, 4], [1, 2, 4, 0]] {
        let image = Array::<f32>::zeros(shape).unwrap();
        assert_refused(max_pool2d(&image, options), "padding", "[1, 1]");
        assert_refused(avg_pool2d(&image, options), "padding", "[1, 1]");
    }
}
type Normed<T> = fn(&Array<T>, f64) -> Result<Array<T>>;

/// Returns the normalization layers for rows of 4 elements, or for 4 channels.
fn normed<T: Float>() -> [Normed<T>; 4] {
    [
        |x, epsilon| {
            let layer = LayerNorm::new(4)?;
            LayerNorm { epsilon, ..layer }.forward(x)
        },
        |x, epsilon| {
            let layer = RmsNorm::new(4)?;
            RmsNorm { epsilon, ..layer }.forward(x)
        },
        |x, epsilon| {
            let layer = GroupNorm::new(2, 4)?;
            GroupNorm { epsilon, ..layer }.forward(x)
        },
        |x, epsilon| {
            let mut layer = BatchNorm::new(4)?;
            layer.epsilon = epsilon;
            layer.forward(x)
        },
    ]
}

/// Compares values and gradients with results in `f64`.
fn assert_normed<T: Float>(size: f64, epsilon: f64) {
    let of = |share: f64| number::<T>(share * size);
    let x = Array::from_slice(
        &[1.0, -0.5, -1.0, 0.75, 0.25, 1.0, 0.5, -1.0].map(of),
        [2, 4],
    );
    let x = x.unwrap();
    let wide = x.cast::<f64>().eval().unwrap();
    for (number, (own, exact)) in normed::<T>().into_iter().zip(normed::<f64>()).enumerate() {
        let (_, slope) = value_and_grad(&x, |x| (own(x, epsilon)? * x).sum()).unwrap();
        let (_, exact_slope) = value_and_grad(&wide, |x| (exact(x, epsilon)? * x).sum()).unwrap();
        let value = own(&x, epsilon).unwrap();
        let exact_value = exact(&wide, epsilon).unwrap();
        for (own, exact) in [(value, exact_value), (slope, exact_slope)] {
            let own = own.cast::<f64>().eval().unwrap().to_vec().unwrap();
            for (own, exact) in own.into_iter().zip(exact.to_vec().unwrap()) {
                let slack = 8.0 * T::epsilon().to_f64() * exact.abs();
                assert!(
                    (own - exact).abs() <= slack,
                    "layer {number} of {}, epsilon {epsilon}: {own} instead of {exact}",
                    T::NAME
                );
            }
        }
    }
}

#[test]
fn an_epsilon_beyond_f32_counts() {
    for epsilon in [3e38, 1e40, 1e60] {
        assert_normed::<f32>(1.0, epsilon);
        assert_normed::<bf16>(1.0, epsilon);
    }
    assert_normed::<f32>(1e19, 3e38);
}
