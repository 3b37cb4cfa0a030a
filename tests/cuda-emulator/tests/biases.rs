//! Tests of products with a bias, which must equal the host's sums. The suite runs with cublasLt,
//! without its algorithms, with algorithms that are refused, and without its functions.

use cachescope::grad::nn::{Gru, Linear};
use cachescope::grad::value_and_grad;
use cachescope::graph::capture;
use cachescope::ndarray::s;
use cachescope::{Array, Device, DeviceConfig, Float, Result, dry_run};
use cuda_emulator::Control;
use half::{bf16, f16};

use crate::indexing::{numbers, same};

/// Returns a layer with whole numbers as parameters.
fn layer<T: Float>(inputs: usize, outputs: usize) -> Result<Linear<T>> {
    Ok(Linear {
        weight: numbers(&[outputs, inputs])?,
        bias: Some(numbers(&[outputs])?),
    })
}

fn layers<T: Float>() -> Result<()> {
    let name = T::NAME;
    for (rows, inputs, outputs) in [(2, 1, 2), (5, 6, 7), (16, 64, 32), (33, 200, 35)] {
        same(&format!("{name}: {rows}, {inputs}, {outputs}"), || {
            layer::<T>(inputs, outputs)?.forward(&numbers(&[rows, inputs])?)
        })?;
    }
    same(&format!("{name}: batches of rows"), || {
        layer::<T>(6, 8)?.forward(&numbers(&[3, 5, 6])?)
    })?;
    same(&format!("{name}: one batch of rows"), || {
        layer::<T>(6, 8)?.forward(&numbers(&[1, 5, 6])?)
    })?;
    same(&format!("{name}: columns of the input"), || {
        layer::<T>(9, 8)?.forward(&numbers::<T>(&[9, 7])?.transpose()?)
    })?;
    same(&format!("{name}: a part of the input"), || {
        let part = numbers::<T>(&[9, 20])?.slice(s![1.., 3..9])?;
        layer::<T>(6, 8)?.forward(&part)
    })?;
    same(&format!("{name}: gaps in the input"), || {
        let part = numbers::<T>(&[9, 20])?.slice(s![..;2, ..;-3])?;
        layer::<T>(7, 8)?.forward(&part)
    })?;
    same(&format!("{name}: batches with gaps"), || {
        let part = numbers::<T>(&[3, 9, 6])?.slice(s![.., 1..6, ..])?;
        layer::<T>(6, 8)?.forward(&part)
    })?;
    same(&format!("{name}: a row"), || {
        layer::<T>(6, 8)?.forward(&numbers(&[1, 6])?)
    })?;
    same(&format!("{name}: one output"), || {
        layer::<T>(6, 1)?.forward(&numbers(&[5, 6])?)
    })?;
    same(&format!("{name}: no inputs"), || {
        layer::<T>(0, 4)?.forward(&numbers(&[5, 0])?)
    })
}

#[test]
fn layers_of_halves_equal_the_host_s() -> Result<()> {
    layers::<f16>()?;
    layers::<bf16>()
}

#[test]
fn layers_of_floats_equal_the_host_s() -> Result<()> {
    layers::<f32>()?;
    layers::<f64>()
}

fn parameters_of_any_layout<T: Float>() -> Result<()> {
    let name = T::NAME;
    let forward = |weight: Array<T>, bias: Array<T>| {
        let bias = Some(bias);
        Linear { weight, bias }.forward(&numbers(&[5, 6])?)
    };
    same(&format!("{name}: a transposed weight"), || {
        forward(numbers::<T>(&[6, 8])?.transpose()?, numbers(&[8])?)
    })?;
    same(&format!("{name}: a part of the weight"), || {
        let part = numbers::<T>(&[9, 11])?.slice(s![1.., 5..])?;
        forward(part, numbers(&[8])?)
    })?;
    for offset in [1, 8] {
        same(&format!("{name}: a bias from {offset} on"), || {
            let bias = numbers::<T>(&[20])?.slice(s![offset..offset + 8])?;
            forward(numbers(&[8, 6])?, bias)
        })?;
    }
    same(&format!("{name}: gaps in the bias"), || {
        let bias = numbers::<T>(&[16])?.slice(s![..;2])?;
        forward(numbers(&[8, 6])?, bias)
    })?;
    same(&format!("{name}: one number as the bias"), || {
        let bias = numbers::<T>(&[1])?.broadcast_to([8])?;
        forward(numbers(&[8, 6])?, bias)
    })
}

#[test]
fn parameters_have_any_layout() -> Result<()> {
    parameters_of_any_layout::<bf16>()?;
    parameters_of_any_layout::<f32>()
}

#[test]
fn a_product_beyond_the_range_is_rounded_with_its_bias() -> Result<()> {
    let weight = Array::full([4, 2], f16::from_f32(256.0))?;
    let bias = Some(Array::full(4, f16::from_f32(-65_504.0))?);
    let x = Array::full([3, 2], f16::from_f32(160.0))?;
    let sums = Linear { weight, bias }.forward(&x)?.to_vec()?;
    assert_eq!(sums, [f16::from_f32(2.0 * 256.0 * 160.0 - 65_504.0); 12]);
    Ok(())
}

fn gradients<T: Float>() -> Result<()> {
    for shape in [&[5, 6][..], &[2, 5, 6]] {
        let gradient = |at: usize| {
            let layer = layer::<T>(6, 8)?;
            let operands = [numbers(shape)?, layer.weight, layer.bias.unwrap()].to_vec();
            let (_, gradients) = value_and_grad(&operands, |own| {
                let (weight, bias) = (own[1].clone(), Some(own[2].clone()));
                let sums = Linear { weight, bias }.forward(&own[0])?;
                let factors = numbers::<T>(sums.shape())?;
                (sums * factors).sum()
            })?;
            Ok(gradients[at].clone())
        };
        for at in 0..3 {
            same(&format!("{}: gradient {at} of {shape:?}", T::NAME), || {
                gradient(at)
            })?;
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_the_host_s() -> Result<()> {
    gradients::<f32>()?;
    gradients::<bf16>()
}

/// The products of a recurrent layer's inputs have a bias in `f32`, and operands of any type.
#[test]
fn recurrent_layers_are_near_the_host_s() -> Result<()> {
    fn forward<T: Float>(device: &Device) -> Result<Vec<f32>> {
        let _guard = device.enter();
        let part = |shape: &[usize]| (numbers::<f32>(shape)? * 0.1).cast::<T>().eval();
        let layer = Gru {
            weight_ih_l0: part(&[12, 6])?,
            weight_hh_l0: part(&[12, 4])?,
            bias_ih_l0: part(&[12])?,
            bias_hh_l0: part(&[12])?,
        };
        let (states, _) = layer.forward(&part(&[2, 3, 6])?, None)?;
        states.cast::<f32>().eval()?.to_vec()
    }
    let near = |own: Vec<f32>, expected: Vec<f32>, bound: f32| {
        let mut pairs = own.iter().zip(&expected);
        assert!(pairs.all(|(own, expected)| (own - expected).abs() <= bound));
    };
    let (device, host) = (Device::current(), Device::host());
    near(forward::<f32>(&device)?, forward::<f32>(&host)?, 1e-5);
    near(forward::<bf16>(&device)?, forward::<bf16>(&host)?, 1e-2);
    Ok(())
}

#[test]
fn a_layer_waits_for_the_stream_that_wrote_its_bias() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let (weight, x) = (Array::<f32>::ones([8, 6])?, Array::<f32>::ones([5, 6])?);
    let mut bias = Array::<f32>::zeros(8)?;
    let streams = [device.new_stream()?, device.new_stream()?];
    for round in 1..4 {
        {
            let _guard = streams[0].enter();
            bias.update(|bias| bias + 1.0)?;
        }
        let _guard = streams[1].enter();
        let (weight, bias) = (weight.clone(), Some(bias.clone()));
        let sums = Linear { weight, bias }.forward(&x)?;
        assert_eq!(sums.to_vec()?, [6.0 + round as f32; 40]);
    }
    Ok(())
}

#[test]
fn a_captured_layer_reads_its_bias_at_each_launch() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let mut bias = Array::<bf16>::zeros(8)?;
    let (weight, x) = (Array::<bf16>::ones([8, 6])?, Array::<bf16>::ones([5, 6])?);
    let mut sums = Array::<bf16>::zeros([5, 8])?;
    let mut forward = |bias: &Array<bf16>| {
        let (weight, bias) = (weight.clone(), Some(bias.clone()));
        sums.assign(Linear { weight, bias }.forward(&x)? * bf16::ONE)?;
        Ok(sums.clone())
    };
    forward(&bias)?;
    let mut held = None;
    let graph = capture(&device, || {
        held = Some(forward(&bias)?);
        Ok(())
    })?;
    for round in [1.0, 2.0] {
        bias.assign(Array::full(8, bf16::from_f32(round))?)?;
        graph.launch()?;
        let sums = held.as_ref().unwrap().to_vec()?;
        assert_eq!(sums, [bf16::from_f32(6.0 + round); 40]);
    }
    Ok(())
}

#[test]
fn a_dry_run_allocates_only_the_sums() -> Result<()> {
    let dry = dry_run(Default::default(), || {
        let layer = Linear::<f32>::new(64, 128)?;
        let x = Array::<f32>::zeros([32, 64])?;
        layer.forward(&x).map(drop)
    })?;
    let parameters = (64 * 128 + 128 + 32 * 64) * 4;
    let sums = 32 * 128 * 4;
    assert!(
        dry.peak_live_bytes >= parameters + sums && dry.peak_live_bytes < parameters + 2 * sums,
        "{} bytes",
        dry.peak_live_bytes
    );
    Ok(())
}

#[test]
fn cublas_lt_is_called_if_it_has_algorithms() -> Result<()> {
    let Some(control) = Control::of_process() else {
        return Ok(());
    };
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    layer::<f32>(6, 8)?.forward(&numbers(&[5, 6])?)?;
    layer::<f32>(6, 8)?.forward(&numbers(&[5, 6])?)?;
    let setting = |name: &str| std::env::var(name).unwrap_or_else(|_| "1".to_owned());
    let has_functions = setting("CACHESCOPE_EMULATOR_CUBLASLT") != "0";
    let has_algorithms = has_functions && setting("CACHESCOPE_EMULATOR_EPILOGUES") != "0";
    let searches = control.calls_of("cublasLtMatmulAlgoGetHeuristic");
    assert_eq!(searches > 0, has_functions);
    assert_eq!(control.calls_of("cublasLtMatmul") > 0, has_algorithms);
    assert_eq!(control.complaints(), 0, "{}", control.last_complaint());
    Ok(())
}
