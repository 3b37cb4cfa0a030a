//! States of parameters in half precision: saved, loaded and restored.

use cachescope::grad::optim::{Adam, Lion, Muon, OptimizerState, Sgd, Stateful};
use cachescope::grad::{Parameters, files};
use cachescope::half::{bf16, f16};
use cachescope::npy::NpzReader;
use cachescope::{Array, Float, Result, cache_scope};

use super::Scratch;

#[derive(Parameters)]
struct Mixed<T: Float> {
    weight: Array<T>,
    bias: Option<Array<f32>>,
}

fn mixed<T: Float>(scale: f32) -> Result<Mixed<T>> {
    let weight = Array::<f32>::linspace(-scale, scale, 15)?.reshape([5, 3])?;
    Ok(Mixed {
        weight: weight.cast::<T>().eval()?,
        bias: Some(Array::full(3, scale)?),
    })
}

fn bits<T: Float>(own: &Mixed<T>) -> Result<Vec<f64>> {
    let mut bits = own.weight.cast::<f64>().eval()?.to_vec()?;
    bits.extend(own.bias.as_ref().unwrap().cast::<f64>().eval()?.to_vec()?);
    Ok(bits)
}

/// Returns the exact elements of all states.
fn exact<T: Float, O: Stateful>(optimizer: &mut O, own: &Mixed<T>) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    for which in 0..optimizer.states() {
        let state = optimizer.state_of(which, 0, &own.weight)?;
        found.extend(state.cast::<f64>().eval()?.to_vec()?);
        let state = optimizer.state_of(which, 1, own.bias.as_ref().unwrap())?;
        found.extend(state.cast::<f64>().eval()?.to_vec()?);
    }
    Ok(found)
}

fn steps<T: Float, O: Stateful>(own: &mut Mixed<T>, optimizer: &mut O) -> Result<()> {
    for number in 0..3 {
        optimizer.step(own, &mixed([1e-5, 0.3, 7.0][number])?)?;
    }
    Ok(())
}

/// Saves a training run, and compares the resumed run with an uninterrupted run.
fn resumes<T: Float, O: Stateful>(make: fn() -> O, ending: &str) -> Result<()> {
    let scratch = Scratch::new("narrow-states");
    let path = scratch.path(&format!("state.{ending}"));
    let (mut own, mut optimizer) = (mixed::<T>(1.0)?, make());
    steps(&mut own, &mut optimizer)?;
    let state = optimizer.state(&own)?;
    for (array, rounded) in state.arrays.iter().enumerate() {
        let exact = optimizer.state_of(array, 0, &own.weight)?;
        let exact = exact.cast::<T>().eval()?;
        assert_eq!(rounded.weight.to_vec()?, exact.to_vec()?);
    }
    files::save(&state, &path)?;

    let mut other = make();
    let like = make().state(&own)?;
    let loaded = files::load(&like, &path)?;
    other.set_state(&own, &loaded)?;
    assert_eq!(exact(&mut other, &own)?, exact(&mut optimizer, &own)?);
    let mut again = Mixed {
        weight: own.weight.clone(),
        bias: own.bias.clone(),
    };
    steps(&mut own, &mut optimizer)?;
    steps(&mut again, &mut other)?;
    assert_eq!(bits(&own)?, bits(&again)?);
    assert_eq!(exact(&mut other, &own)?, exact(&mut optimizer, &own)?);
    Ok(())
}

#[test]
fn resumed_trainings_equal_uninterrupted_ones() -> Result<()> {
    fn of<O: Stateful>(make: fn() -> O) -> Result<()> {
        for ending in ["npz", "safetensors"] {
            resumes::<f16, O>(make, ending)?;
            resumes::<bf16, O>(make, ending)?;
            resumes::<f32, O>(make, ending)?;
            resumes::<f64, O>(make, ending)?;
        }
        Ok(())
    }
    of(|| Adam::new(1e-3))?;
    of(|| Adam::new(1e-3).capturable())?;
    of(|| Sgd::new(1e-3).momentum(0.9))?;
    of(|| Lion::new(1e-3))?;
    of(|| Muon::new(1e-3))
}

#[test]
fn files_have_the_exact_states() -> Result<()> {
    let scratch = Scratch::new("narrow-names");
    let path = scratch.path("state.npz");
    let (mut own, mut optimizer) = (mixed::<f16>(1.0)?, Adam::new(1e-3));
    steps(&mut own, &mut optimizer)?;
    files::save(&optimizer.state(&own)?, &path)?;
    let read = NpzReader::open(&path)?.read::<f32>("arrays.1.weight")?;
    let state = optimizer.state_of(1, 0, &own.weight)?;
    assert_eq!(read.to_vec()?, state.to_vec()?);
    Ok(())
}

/// The states of a narrow type, in the former format of files.
#[derive(Parameters)]
struct Former<T: Float> {
    steps: Array<f64>,
    arrays: Vec<Mixed<T>>,
}

#[test]
fn files_of_narrow_states_are_loaded() -> Result<()> {
    fn of<T: Float>(ending: &str) -> Result<()> {
        let scratch = Scratch::new("narrow-former");
        let path = scratch.path(&format!("state.{ending}"));
        let former = Former::<T> {
            steps: Array::full([], 5.0)?,
            arrays: vec![mixed(0.25)?, mixed(3.0)?],
        };
        files::save(&former, &path)?;
        let (own, mut optimizer) = (mixed::<T>(1.0)?, Adam::new(1e-3));
        let like = OptimizerState {
            steps: Array::zeros([])?,
            arrays: vec![mixed(0.0)?, mixed(0.0)?],
        };
        let loaded: OptimizerState<Mixed<T>> = files::load(&like, &path)?;
        optimizer.set_state(&own, &loaded)?;
        assert_eq!(optimizer.steps(), 5);
        let expected = [bits(&former.arrays[0])?, bits(&former.arrays[1])?].concat();
        assert_eq!(exact(&mut optimizer, &own)?, expected);
        Ok(())
    }
    of::<f16>("npz")?;
    of::<f16>("safetensors")?;
    of::<bf16>("safetensors")?;
    of::<f32>("npz")
}

#[test]
fn parameters_of_another_type_are_not_loaded() -> Result<()> {
    let scratch = Scratch::new("narrow-others");
    let path = scratch.path("parameters.npz");
    files::save(&mixed::<f16>(1.0)?, &path)?;
    assert!(files::load(&mixed::<f32>(1.0)?, &path).is_err());
    files::save(&mixed::<f32>(1.0)?, &path)?;
    assert!(files::load(&mixed::<f16>(1.0)?, &path).is_err());
    Ok(())
}

/// Clones and moves keep the exact elements. A write replaces them by the written elements.
#[test]
fn writes_replace_exact_states() -> Result<()> {
    let (mut own, mut optimizer) = (mixed::<f16>(1.0)?, Adam::new(1e-3));
    steps(&mut own, &mut optimizer)?;
    let before = exact(&mut optimizer, &own)?;
    let state = optimizer.state(&own)?;
    let weight = state.arrays[0].weight.clone();
    let mut moved = OptimizerState {
        steps: Array::full([], 9.0)?,
        arrays: state.arrays,
    };
    moved.arrays[0].weight = weight;
    let mut other = Adam::new(1e-3);
    other.set_state(&own, &moved)?;
    assert_eq!(exact(&mut other, &own)?, before);

    let two = f16::from_f32(2.0);
    moved.arrays[0].weight.fill(two)?;
    moved.arrays[1]
        .weight
        .slice_mut(cachescope::ndarray::s![1, ..])?
        .fill(two)?;
    other.set_state(&own, &moved)?;
    let written = other.state_of(0, 0, &own.weight)?.to_vec()?;
    assert_eq!(written, [2.0; 15]);
    let written = other.state_of(1, 0, &own.weight)?.to_vec()?;
    assert_eq!(written[3..6], [2.0; 3]);
    let rounded = moved.arrays[1].weight.cast::<f32>().eval()?.to_vec()?;
    assert_eq!(written, rounded);
    Ok(())
}

#[test]
fn rounded_states_come_from_no_cache() -> Result<()> {
    let (mut own, mut optimizer) = (mixed::<bf16>(1.0)?, Adam::new(1e-3));
    let state = cache_scope!("narrow states", {
        steps(&mut own, &mut optimizer)?;
        optimizer.state(&own)?
    });
    let device = cachescope::Device::current();
    assert_eq!(
        device.cache_stats("narrow states").unwrap().escaped_blocks,
        0
    );
    let before = exact(&mut optimizer, &own)?;
    let mut other = Adam::new(1e-3);
    cache_scope!("narrow states", {
        other.set_state(&own, &state)?;
    });
    assert_eq!(exact(&mut other, &own)?, before);
    assert_eq!(
        device.cache_stats("narrow states").unwrap().escaped_blocks,
        0
    );
    Ok(())
}
