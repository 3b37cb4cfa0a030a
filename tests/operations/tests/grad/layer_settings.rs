//! Settings of layers outside of their domain, which are errors with the name of the setting.

use cachescope::grad::nn::{
    Attention, BatchNorm, Conv2d, GroupNorm, LayerNorm, PoolOptions, RmsNorm, Rotary,
    adaptive_avg_pool2d, avg_pool2d, max_pool2d,
};
use cachescope::{Array, ConvOptions, ErrorKind, Float, Result};
use half::{bf16, f16};

use super::narrow::number;

/// The values that no epsilon and no base has.
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
