//! Layers, compared with the values and gradients of PyTorch's layers in `layers.npz`.

use std::path::Path;

use cachescope::grad::nn::{
    BatchNorm, ConvTranspose2d, GroupNorm, Gru, Lstm, PoolOptions, Rotary, Upsampling,
    adaptive_avg_pool2d, adaptive_max_pool2d, alpha_dropout, avg_pool2d, drop_path,
    dropout_channels, max_pool2d, upsample,
};
use cachescope::grad::{checkpoint, value_and_grad};
use cachescope::npy::NpzReader;
use cachescope::{Array, ConvOptions, ErrorKind, Result, cache_scope, concat, manual_seed};
use ndarray::s;

use crate::grad::differences::{check, numbers};

/// The arrays of one case in `layers.npz`.
struct Case {
    reader: NpzReader,
    name: &'static str,
}

impl Case {
    fn of(name: &'static str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reference/layers.npz");
        let reader = NpzReader::open(path).unwrap();
        Self { reader, name }
    }

    #[track_caller]
    fn get(&mut self, key: &str) -> Array<f64> {
        self.reader.read(&format!("{}.{key}", self.name)).unwrap()
    }

    /// Compares an array with the array in the file.
    #[track_caller]
    fn check(&mut self, key: &str, own: &Array<f64>) {
        let expected = self.get(key);
        assert_eq!(own.shape(), expected.shape(), "{}.{key}", self.name);
        let error = (own - &expected).abs().max().unwrap().item().unwrap();
        assert!(error < 1e-10, "{}.{key} is wrong by {error}", self.name);
    }

    /// Compares the value and the gradient of a function of `x` with the values in the file.
    #[track_caller]
    fn run(&mut self, function: impl Fn(&Array<f64>) -> Result<Array<f64>>) {
        let (x, weights) = (self.get("x"), self.get("weights"));
        self.check("y", &function(&x).unwrap());
        let (_, gradient) = value_and_grad(&x, |x| (function(x)? * &weights).sum()).unwrap();
        self.check("x_gradient", &gradient);
    }
}

/// Compares a layer's result and all gradients. The layer has fields with PyTorch's names.
macro_rules! check_layer {
    ($name:literal, $layer:ident, [$($field:ident),+], |$own:ident, $x:ident| $run:expr) => {{
        let mut case = Case::of($name);
        let mut $layer = $layer;
        $($layer.$field = check_layer!(@wrap $layer.$field, case.get(stringify!($field)));)+
        let ($x, weights) = (case.get("x"), case.get("weights"));
        let parameters = ($layer, $x);
        let ($own, $x) = (&parameters.0, &parameters.1);
        case.check("y", &$run?);
        let (_, gradients) = value_and_grad(&parameters, |($own, $x)| ($run? * &weights).sum())?;
        case.check("x_gradient", &gradients.1);
        $(case.check(concat!(stringify!($field), "_gradient"), &gradients.0.$field.clone().into_iter_array());)+
        parameters.0
    }};
    (@wrap $place:expr, $value:expr) => { $value.into() };
}

/// Conversion of an array or an optional array to an array.
trait IntoIterArray {
    fn into_iter_array(self) -> Array<f64>;
}

impl IntoIterArray for Array<f64> {
    fn into_iter_array(self) -> Array<f64> {
        self
    }
}

impl IntoIterArray for Option<Array<f64>> {
    fn into_iter_array(self) -> Array<f64> {
        self.expect("it has a gradient")
    }
}

#[test]
fn recurrent_layers() -> Result<()> {
    let gru = Gru::new(3, 4)?;
    check_layer!(
        "gru",
        gru,
        [weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0],
        |own, x| { own.forward(x, None).map(|(states, _)| states) }
    );
    let lstm = Lstm::new(3, 4)?;
    check_layer!(
        "lstm",
        lstm,
        [weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0],
        |own, x| {
            let (_, (state, cell)) = own.forward(x, None)?;
            stacked(&state, &cell)
        }
    );
    Ok(())
}

/// Returns the last state and cell, as PyTorch's script joins them.
fn stacked(state: &Array<f64>, cell: &Array<f64>) -> Result<Array<f64>> {
    concat(&[&state.unsqueeze(0)?, &cell.unsqueeze(0)?], 0)
}

#[test]
fn a_sequence_continues_from_its_last_state() -> Result<()> {
    manual_seed(4);
    let x = numbers(&[2, 6, 3], 1.0);
    let (head, tail) = (x.slice(s![.., ..4, ..])?, x.slice(s![.., 4.., ..])?);
    let gru = Gru::<f64>::new(3, 5)?;
    let (whole, last) = gru.forward(&x, None)?;
    let (first, state) = gru.forward(&head, None)?;
    let (second, end) = gru.forward(&tail, Some(&state))?;
    let close = |a: &Array<f64>, b: &Array<f64>| (a - b).abs().max()?.item();
    assert!(close(&whole, &concat(&[&first, &second], 1)?)? < 1e-14);
    assert!(close(&last, &end)? < 1e-14);
    let lstm = Lstm::<f64>::new(3, 5)?;
    let (_, (last, cell)) = lstm.forward(&x, None)?;
    let (_, (state, own)) = lstm.forward(&head, None)?;
    let (_, (end, own)) = lstm.forward(&tail, Some((&state, &own)))?;
    assert!(close(&last, &end)? < 1e-14 && close(&cell, &own)? < 1e-14);
    check(&state, |state| {
        gru.forward(&tail, Some(state))?.0.square().sum()
    });
    let (none, _) = gru.forward(&x.slice(s![.., ..0, ..])?, None)?;
    assert_eq!(none.shape(), [2, 0, 5]);
    for error in [
        gru.forward(&x.transpose()?, None).err(),
        gru.forward(&x, Some(&numbers(&[2, 4], 1.0))).err(),
        lstm.forward(&numbers(&[2, 3], 1.0), None).err(),
    ] {
        assert_eq!(error.unwrap().kind(), ErrorKind::ShapeMismatch);
    }
    let mut wrong = gru.clone();
    wrong.bias_hh_l0 = numbers(&[3], 1.0);
    assert_eq!(
        wrong.forward(&x, None).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
    wrong.weight_hh_l0 = numbers(&[5, 5], 1.0);
    assert_eq!(
        wrong.forward(&x, None).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
    Ok(())
}

#[test]
fn norms_of_batches_and_groups() -> Result<()> {
    let norm = BatchNorm::new(3)?;
    // The comparison runs `forward` twice, so the statistics are computed by a fresh layer.
    let mut case = Case::of("batch_norm");
    let fresh = BatchNorm::<f64>::new(3)?;
    cache_scope!("a step", {
        fresh.forward(&case.get("x"))?;
    });
    let (mean, variance) = fresh.statistics.arrays();
    case.check("running_mean", &mean);
    case.check("running_var", &variance);
    let own = check_layer!("batch_norm", norm, [weight, bias], |own, x| own.forward(x));
    own.statistics.set((mean.clone(), variance.clone()))?;
    let x = case.get("x");
    let shaped = |own: &Array<f64>| own.reshape([3, 1, 1]);
    let (scale, shift) = (shaped(&own.weight)?, shaped(&own.bias)?);
    let expected = (&x - shaped(&mean)?) / (shaped(&variance)? + 1e-5).sqrt() * scale + shift;
    let error = (own.forward_inference(&x)? - expected)
        .abs()
        .max()?
        .item()?;
    assert!(error < 1e-12, "{error}");
    let group = GroupNorm::new(2, 6)?;
    let group = check_layer!("group_norm", group, [weight, bias], |own, x| own.forward(x));
    for error in [
        own.forward(&numbers(&[2, 4], 1.0)).unwrap_err(),
        own.forward_inference(&numbers(&[3], 1.0)).unwrap_err(),
        group.forward(&numbers(&[3], 1.0)).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{error}");
    }
    let error = own.forward(&numbers(&[1, 3], 1.0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    Ok(())
}

#[test]
fn a_checkpoint_updates_the_statistics_once() -> Result<()> {
    let x = numbers(&[4, 2], 3.0);
    let (kept, again) = (BatchNorm::<f64>::new(2)?, BatchNorm::<f64>::new(2)?);
    value_and_grad(&kept, |own| own.forward(&x)?.square().sum())?;
    let (_, gradient) = value_and_grad(&again, |own| {
        let y = checkpoint(&(own.clone(), x.clone()), |(own, x)| own.forward(x))?;
        y.square().sum()
    })?;
    assert_eq!(kept.statistics.arrays(), again.statistics.arrays());
    assert_ne!(kept.statistics.arrays().0.to_vec()?, [0.0; 2]);
    assert_eq!(gradient.weight.shape(), [2]);
    Ok(())
}

#[test]
fn transposed_convolutions() -> Result<()> {
    let options = ConvOptions {
        stride: [2, 3],
        padding: [1, 0],
        dilation: [2, 1],
        groups: 2,
    };
    let mut layer = ConvTranspose2d::new((4, 6), [3, 2], options)?;
    layer.output_padding = [1, 2];
    check_layer!("conv_transpose", layer, [weight, bias], |own, x| own
        .forward(x));
    let options = ConvOptions {
        padding: [1, 2],
        ..ConvOptions::default()
    };
    let layer = ConvTranspose2d::new((2, 3), [1, 2], options)?;
    let layer = check_layer!("conv_transpose_cut", layer, [weight, bias], |own, x| own
        .forward(x));
    let mut wrong = layer.clone();
    wrong.output_padding = [0, 1];
    for error in [
        layer.forward(&numbers(&[1, 3, 4, 5], 1.0)).unwrap_err(),
        layer.forward(&numbers(&[1, 2, 1, 1], 1.0)).unwrap_err(),
        wrong.forward(&numbers(&[1, 2, 4, 5], 1.0)).unwrap_err(),
        ConvTranspose2d::<f64>::new(
            (3, 4),
            [1, 1],
            ConvOptions {
                groups: 2,
                ..options
            },
        )
        .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    Ok(())
}

#[test]
fn images_of_other_sizes() {
    for (nearest, bilinear, adaptive, size) in [
        ("nearest_7x5", "bilinear_7x5", "adaptive_avg_7x5", [7, 5]),
        ("nearest_2x3", "bilinear_2x3", "adaptive_avg_2x3", [2, 3]),
        ("nearest_4x4", "bilinear_4x4", "adaptive_avg_4x4", [4, 4]),
    ] {
        Case::of(nearest).run(|x| upsample(x, size, Upsampling::Nearest));
        Case::of(bilinear).run(|x| upsample(x, size, Upsampling::Bilinear));
        Case::of(adaptive).run(|x| adaptive_avg_pool2d(x, size));
    }
    Case::of("adaptive_max").run(|x| adaptive_max_pool2d(x, [4, 3]));
    for error in [
        upsample(&numbers(&[3], 1.0), [1, 1], Upsampling::Nearest).unwrap_err(),
        upsample(&numbers(&[0, 3], 1.0), [1, 1], Upsampling::Bilinear).unwrap_err(),
        adaptive_avg_pool2d(&numbers(&[3, 3], 1.0), [0, 1]).unwrap_err(),
        adaptive_max_pool2d(&numbers(&[3], 1.0), [1, 1]).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let none = upsample(&numbers(&[2, 2], 1.0), [0, 3], Upsampling::Bilinear).unwrap();
    assert_eq!(none.shape(), [0, 3]);
}

#[test]
fn pools_with_padding() {
    let options = PoolOptions {
        stride: [2, 2],
        padding: [1, 1],
        ..PoolOptions::of([3, 2])
    };
    Case::of("max_pool").run(|x| max_pool2d(x, options));
    Case::of("avg_pool").run(|x| avg_pool2d(x, options));
    let inside = PoolOptions {
        counts_padding: false,
        ..options
    };
    Case::of("avg_pool_inside").run(|x| avg_pool2d(x, inside));
    let wide = PoolOptions {
        padding: [2, 0],
        ..options
    };
    for error in [
        max_pool2d(&numbers(&[1, 6, 6], 1.0), wide).unwrap_err(),
        avg_pool2d(&numbers(&[6], 1.0), inside).unwrap_err(),
        avg_pool2d(
            &numbers(&[1, 1, 0], 1.0),
            PoolOptions {
                padding: [0, 0],
                ..options
            },
        )
        .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
fn rotary_embeddings_turn_pairs() -> Result<()> {
    let x = numbers(&[2, 3, 4], 1.0);
    for pairs_neighbours in [false, true] {
        let rotary = Rotary {
            base: 100.0,
            pairs_neighbours,
        };
        let turned = rotary.forward(&x, 5)?.to_vec()?;
        let own = x.to_vec()?;
        for row in 0..6 {
            let position = (5 + row % 3) as f64;
            for pair in 0..2 {
                let (left, right) = if pairs_neighbours {
                    (2 * pair, 2 * pair + 1)
                } else {
                    (pair, pair + 2)
                };
                let angle = position * 100.0_f64.powf(-(pair as f64) / 2.0);
                let (a, b) = (own[4 * row + left], own[4 * row + right]);
                let expected = (
                    a * angle.cos() - b * angle.sin(),
                    b * angle.cos() + a * angle.sin(),
                );
                assert!((turned[4 * row + left] - expected.0).abs() < 1e-14);
                assert!((turned[4 * row + right] - expected.1).abs() < 1e-14);
            }
        }
        check(&x, |x| {
            (rotary.forward(x, 5)? * numbers(&[2, 3, 4], 2.0)).sum()
        });
    }
    for shape in [&[4][..], &[2, 3]] {
        let error = Rotary::default()
            .forward(&numbers(shape, 1.0), 0)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    Ok(())
}

#[test]
fn dropout_of_parts() -> Result<()> {
    manual_seed(6);
    let x = numbers(&[50, 4, 3], 1.0);
    let channels = (dropout_channels(&x, 0.25)? / &x).eval()?.to_vec()?;
    assert!(
        channels
            .chunks(3)
            .all(|own| own.iter().all(|&own| own == 0.0)
                || own.iter().all(|own| (own - 4.0 / 3.0).abs() < 1e-12))
    );
    let dropped = channels.iter().filter(|&&own| own == 0.0).count();
    assert!((90..210).contains(&dropped), "{dropped} of 600");
    let paths = (drop_path(&x, 0.5)? / &x).eval()?.to_vec()?;
    assert!(
        paths.chunks(12).all(|own| own.iter().all(|&own| own == 0.0)
            || own.iter().all(|own| (own - 2.0).abs() < 1e-12))
    );
    // PyTorch's `alpha_dropout`: dropped elements have one value, and the other elements are on a
    // line.
    let (p, limit) = (0.3, 1.7580993408473766_f64);
    let a = ((limit * limit * p + 1.0) * (1.0 - p)).powf(-0.5);
    let own = alpha_dropout(&x, p)?.to_vec()?;
    for (own, x) in own.iter().zip(x.to_vec()?) {
        let (kept, gone) = (a * x + a * limit * p, -a * limit + a * limit * p);
        assert!((own - kept).abs() < 1e-12 || (own - gone).abs() < 1e-12);
    }
    for same in [
        dropout_channels(&x, 0.0)?,
        drop_path(&x, 0.0)?,
        alpha_dropout(&x, 0.0)?,
    ] {
        assert_eq!(same, x);
    }
    assert!(
        alpha_dropout(&x, 1.0)?
            .to_vec()?
            .iter()
            .all(|&own| own == 0.0)
    );
    assert!(alpha_dropout(&x, 1.5).is_err() && drop_path(&x, -0.5).is_err());
    Ok(())
}
