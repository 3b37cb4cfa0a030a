//! Layers in files, including their buffers.

use cachescope::grad::nn::{
    Attention, BatchNorm, Conv2d, ConvTranspose2d, Embedding, GroupNorm, Gru, LayerNorm, Linear,
    Lstm, RmsNorm,
};
use cachescope::grad::{CastParameters, MapBuffers};
use cachescope::{AnyElement, ConvOptions, Float, manual_seed};
use half::{bf16, f16};

use super::*;

const FORMATS: [&str; 2] = ["model.npz", "model.safetensors"];

/// Layers within each kind of container.
type Nested<T> = (Vec<BatchNorm<T>>, Option<Box<[BatchNorm<T>; 1]>>);

/// Saves a layer, and loads it into another layer. Both layers must compute equal results.
fn survives<P: Parameters, T: Float>(
    name: &str,
    make: impl Fn() -> Result<P>,
    train: impl Fn(&P) -> Result<()>,
    infer: impl Fn(&P) -> Result<Array<T>>,
) -> Result<()> {
    let scratch = Scratch::new(&format!("layer-{name}-{}", T::NAME));
    let trained = make()?;
    train(&trained)?;
    for file in FORMATS {
        if T::NAME == "bf16" && file.ends_with("npz") {
            continue;
        }
        let path = scratch.path(file);
        files::save(&trained, &path)?;
        let loaded = files::load(&make()?, &path)?;
        assert_eq!(
            infer(&loaded)?.to_vec()?,
            infer(&trained)?.to_vec()?,
            "{name} of {} in {file}",
            T::NAME
        );
    }
    Ok(())
}

fn every_layer<T: Float>() -> Result<()> {
    manual_seed(1);
    let numbers = |shape: &[usize]| Array::<f32>::randn(shape)?.cast::<T>().eval();
    let of = |value: f64| <T as AnyElement>::from_f64(value);
    let options = ConvOptions::default();
    let (rows, words) = (numbers(&[3, 4])?, numbers(&[2, 3, 4])?);
    let images = numbers(&[2, 4, 3, 3])?;
    let batch = (numbers(&[6, 4, 2])? * of(3.0) + of(2.0)).eval()?;
    let indices = Array::from_slice(&[2_i64, 0], 2)?;
    survives(
        "linear",
        || Linear::new(4, 2),
        |_| Ok(()),
        |own: &Linear<T>| own.forward(&rows),
    )?;
    survives(
        "embedding",
        || Embedding::new(3, 4),
        |_| Ok(()),
        |own: &Embedding<T>| own.forward(&indices),
    )?;
    survives(
        "layer_norm",
        || LayerNorm::new(4),
        |_| Ok(()),
        |own: &LayerNorm<T>| own.forward(&rows),
    )?;
    survives(
        "rms_norm",
        || RmsNorm::new(4),
        |_| Ok(()),
        |own: &RmsNorm<T>| own.forward(&rows),
    )?;
    survives(
        "group_norm",
        || GroupNorm::new(2, 4),
        |_| Ok(()),
        |own: &GroupNorm<T>| own.forward(&images),
    )?;
    survives(
        "batch_norm",
        || BatchNorm::new(4),
        |own| own.forward(&batch).map(drop),
        |own: &BatchNorm<T>| own.forward_inference(&images),
    )?;
    survives(
        "nested",
        || {
            Ok((
                vec![BatchNorm::new(4)?],
                Some(Box::new([BatchNorm::new(4)?])),
            ))
        },
        |(first, second)| {
            first[0].forward(&batch)?;
            second.as_ref().unwrap()[0].forward(&images).map(drop)
        },
        |(first, second): &Nested<T>| {
            second.as_ref().unwrap()[0].forward_inference(&first[0].forward_inference(&images)?)
        },
    )?;
    survives(
        "conv2d",
        || Conv2d::new((4, 2), [2, 2], options),
        |_| Ok(()),
        |own: &Conv2d<T>| own.forward(&images),
    )?;
    survives(
        "conv_transpose2d",
        || ConvTranspose2d::new((4, 2), [2, 2], options),
        |_| Ok(()),
        |own: &ConvTranspose2d<T>| own.forward(&images),
    )?;
    survives(
        "attention",
        || Attention::new(4, 2, true),
        |_| Ok(()),
        |own: &Attention<T>| own.forward(&words),
    )?;
    survives(
        "gru",
        || Gru::new(4, 3),
        |_| Ok(()),
        |own: &Gru<T>| Ok(own.forward(&words, None)?.0),
    )?;
    survives(
        "lstm",
        || Lstm::new(4, 3),
        |_| Ok(()),
        |own: &Lstm<T>| Ok(own.forward(&words, None)?.0),
    )
}

#[test]
fn every_layer_computes_the_same_from_a_file() -> Result<()> {
    every_layer::<f32>()?;
    every_layer::<f64>()?;
    every_layer::<f16>()?;
    every_layer::<bf16>()
}

#[derive(Parameters)]
struct Block {
    linear: Linear,
    bn: BatchNorm,
    #[parameters(skip)]
    frozen: BatchNorm,
}

fn block() -> Result<Block> {
    Ok(Block {
        linear: Linear::new(2, 2)?,
        bn: BatchNorm::new(2)?,
        frozen: BatchNorm::new(2)?,
    })
}

/// A visitor that collects the names and types of buffers.
#[derive(Default)]
struct Buffers {
    place: Vec<String>,
    found: Vec<(String, &'static str)>,
}

impl MapBuffers for Buffers {
    fn map<T: AnyElement>(&mut self, _: &Array<T>) -> Result<Option<Array<T>>> {
        self.found.push((self.place.join("."), T::NAME));
        Ok(None)
    }

    fn enter(&mut self, name: &dyn std::fmt::Display) {
        self.place.push(name.to_string());
    }

    fn leave(&mut self) {
        self.place.pop();
    }
}

#[test]
fn buffers_are_seen_by_files_alone() -> Result<()> {
    let mut own = block()?;
    let mut buffers = Buffers::default();
    own.map_buffers(&mut buffers)?;
    let names = ["running_mean", "running_var", "num_batches_tracked"];
    let expected: Vec<_> = names.iter().zip(["f32", "f32", "i64"]).collect();
    assert_eq!(buffers.found.len(), 3);
    for ((found, dtype), (name, of)) in buffers.found.iter().zip(expected) {
        assert_eq!((found, *dtype), (&format!("bn.{name}"), of));
    }
    let parameters = ["linear.weight", "linear.bias", "bn.weight", "bn.bias"];
    assert_eq!(listed(&own)?.names, parameters);
    Ok(())
}

#[test]
fn a_loaded_layer_has_statistics_of_its_own() -> Result<()> {
    let scratch = Scratch::new("own-statistics");
    let path = scratch.path("model.npz");
    let x = Array::<f32>::from_slice(&[1.0, 2.0, 3.0, 5.0], [2, 2])?;
    let trained = BatchNorm::<f32>::new(2)?;
    trained.forward(&x)?;
    trained.forward(&x)?;
    files::save(&trained, &path)?;
    let like = BatchNorm::<f32>::new(2)?;
    let loaded = files::load(&like, &path)?;
    assert_eq!(loaded.statistics.arrays(), trained.statistics.arrays());
    assert_eq!(loaded.statistics.batches().item()?, 2);
    loaded.forward(&x)?;
    assert_eq!(loaded.statistics.batches().item()?, 3);
    assert_eq!(trained.statistics.batches().item()?, 2);
    assert_eq!(
        like.statistics.arrays(),
        BatchNorm::<f32>::new(2)?.statistics.arrays()
    );
    assert_eq!(like.statistics.batches().item()?, 0);
    // A converted layer saves the statistics that it reads. A loaded layer does not count as
    // converted.
    let halves = trained.cast::<f16>()?;
    files::save(&halves, &path)?;
    let loaded = files::load(&halves, &path)?;
    assert_eq!(loaded.statistics.arrays(), trained.statistics.arrays());
    loaded.statistics.set(loaded.statistics.arrays())?;
    let doubles = trained.cast::<f64>()?;
    doubles.forward(&x.cast().eval()?)?;
    assert_eq!(trained.statistics.batches().item()?, 3);
    assert_eq!(doubles.statistics.batches().item()?, 3);
    Ok(())
}

/// The name, type, shape and bytes of an array.
type Entry<'a> = (&'a str, &'a str, &'a [usize], &'a [u8]);

/// Returns a file in Hugging Face's format with these arrays.
fn safetensors(arrays: &[Entry<'_>]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in arrays {
        let start = data.len();
        data.extend_from_slice(bytes);
        let entry = serde_json::json!({
            "dtype": dtype, "shape": shape, "data_offsets": [start, data.len()],
        });
        header.insert((*name).into(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

fn floats(numbers: [f32; 2]) -> Vec<u8> {
    numbers.iter().flat_map(|own| own.to_le_bytes()).collect()
}

#[test]
fn state_dicts_of_pytorch_are_loaded() -> Result<()> {
    let scratch = Scratch::new("state-dict");
    let halves = |numbers: [f32; 2]| -> Vec<u8> {
        let halves = numbers.map(f16::from_f32);
        halves.iter().flat_map(|own| own.to_le_bytes()).collect()
    };
    let (weight, bias) = (floats([2.0, 3.0]), floats([0.5, -0.5]));
    let (mean, variance) = (floats([1.0, 2.0]), floats([4.0, 16.0]));
    let count = 1_234_i64.to_le_bytes();
    let full: [Entry<'_>; 5] = [
        ("bias", "F32", &[2], &bias),
        ("num_batches_tracked", "I64", &[], &count),
        ("running_mean", "F32", &[2], &mean),
        ("running_var", "F32", &[2], &variance),
        ("weight", "F32", &[2], &weight),
    ];
    let like = BatchNorm::<f32>::new(2)?;
    let x = Array::from_slice(&[3.0, 6.0], [1, 2])?;
    let expected = [
        2.0_f32.mul_add(2.0 / 2.0, 0.5),
        3.0_f32.mul_add(4.0 / 4.0, -0.5),
    ];
    let load = |arrays: &[Entry<'_>]| {
        files::load(
            &like,
            scratch.holding("bn.safetensors", &safetensors(arrays)),
        )
    };
    let check = |own: &BatchNorm, batches: i64| -> Result<()> {
        for (own, expected) in own.forward_inference(&x)?.to_vec()?.iter().zip(expected) {
            assert!((own - expected).abs() < 1e-4, "{own} {expected}");
        }
        assert_eq!(own.statistics.batches().item()?, batches);
        Ok(())
    };
    check(&load(&full)?, 1_234)?;
    // PyTorch before 0.4.1 wrote no counts of batches.
    let old: Vec<_> = full.iter().filter(|own| own.1 != "I64").copied().collect();
    check(&load(&old)?, 0)?;
    // The file's statistics are of another float type.
    let (mean, variance) = (halves([1.0, 2.0]), halves([4.0, 16.0]));
    let mut narrow = full;
    narrow[2] = ("running_mean", "F16", &[2], &mean);
    narrow[3] = ("running_var", "F16", &[2], &variance);
    check(&load(&narrow)?, 1_234)?;
    // A file without buffers leaves the layer's statistics unchanged.
    let none: Vec<_> = [full[0], full[4]].to_vec();
    let loaded = load(&none)?;
    assert_eq!(loaded.statistics.arrays(), like.statistics.arrays());
    assert_eq!(loaded.weight.to_vec()?, [2.0, 3.0]);
    loaded.forward(&Array::from_slice(&[1.0, 2.0, 3.0, 4.0], [2, 2])?)?;
    assert_eq!(like.statistics.batches().item()?, 0);
    // The files below are refused.
    let invalid = ErrorKind::InvalidArgument;
    let mut partial = old.clone();
    partial.remove(2);
    fails(load(&partial), invalid, &["lacks \"running_var\""]);
    let mut wrong = full;
    wrong[1] = ("num_batches_tracked", "F64", &[], &count);
    fails(
        load(&wrong),
        invalid,
        &["\"num_batches_tracked\"", "F64", "i64"],
    );
    let mut wrong = full;
    wrong[2] = ("running_mean", "F32", &[1, 2], full[2].3);
    fails(
        load(&wrong),
        ErrorKind::ShapeMismatch,
        &["\"running_mean\"", "[1, 2]"],
    );
    let mut wrong = full.to_vec();
    let other = floats([0.0; 2]);
    wrong.push(("x.running_mean", "F32", &[2], &other));
    fails(
        load(&wrong),
        invalid,
        &["x.running_mean", "the structure lacks"],
    );
    Ok(())
}

#[test]
fn statistics_of_narrow_types_are_wide() -> Result<()> {
    for sign in [1.0, -1.0] {
        let layer = BatchNorm::<f16>::new(1)?;
        let large = f16::from_f32(60_000.0 * sign);
        let x = Array::from_slice(&[large, -large, large, -large], [4, 1])?;
        layer.forward(&x)?;
        let (_, variance) = layer.statistics.arrays();
        let expected = 0.9 + 0.1 * 3.6e9 * 4.0 / 3.0;
        assert!((variance.item()? / expected - 1.0).abs() < 1e-3);
        let y = layer.forward_inference(&x)?.to_vec()?[0].to_f32();
        let expected = 60_000.0 * sign / expected.sqrt();
        assert!((y / expected - 1.0).abs() < 1e-2, "{y} {expected}");
    }
    // The layer makes a thousand small steps. If the mean were rounded to bf16, it would stop at a
    // half.
    let layer = BatchNorm::<bf16>::new(1)?;
    let layer = BatchNorm {
        momentum: 1e-3,
        ..layer
    };
    let x = Array::from_slice(&[bf16::ONE, bf16::ONE], [2, 1])?;
    for _ in 0..1000 {
        layer.forward(&x)?;
    }
    let mean = layer.statistics.arrays().0.item()?;
    assert!((mean - (1.0 - 0.999_f32.powi(1000))).abs() < 1e-3, "{mean}");
    Ok(())
}

#[test]
fn settings_outside_of_their_range_are_refused() -> Result<()> {
    let x = Array::<f32>::from_slice(&[1.0, 2.0, 3.0, 5.0], [2, 2])?;
    let bad_momenta = [-1e-300, -1.0, 1.000_000_1, 2.0, f64::NAN, f64::INFINITY];
    let bad_epsilons = [-1e-300, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let momenta = bad_momenta.map(|own| ("momentum", 1e-5, own));
    let epsilons = bad_epsilons.map(|own| ("epsilon", own, 0.1));
    for (name, epsilon, momentum) in momenta.into_iter().chain(epsilons) {
        let layer = BatchNorm {
            epsilon,
            momentum,
            ..BatchNorm::<f32>::new(2)?
        };
        for outcome in [layer.forward(&x), layer.forward_inference(&x)] {
            fails(outcome, ErrorKind::InvalidArgument, &["BatchNorm", name]);
        }
        assert_eq!(layer.statistics.batches().item()?, 0, "nothing was updated");
    }
    for (epsilon, momentum) in [(0.0, 0.0), (1e300, 1.0)] {
        let layer = BatchNorm {
            epsilon,
            momentum,
            ..BatchNorm::<f32>::new(2)?
        };
        layer.forward(&x)?;
        layer.forward_inference(&x)?;
    }
    Ok(())
}
