//! Sharded states of parameters in half precision. The states are stored in `f32`.

use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::optim::{Adam, Stateful};
use cachescope::half::{bf16, f16};
use cachescope::{Array, Float, Result};

type Network<T> = Vec<Array<T>>;

fn network<T: Float>() -> Result<Network<T>> {
    let own = |count: usize| -> Result<Array<T>> {
        Array::<f32>::linspace(-1.0, 1.0, count)?.cast::<T>().eval()
    };
    Ok(vec![own(7)?, own(5)?, own(12)?])
}

/// The gradient of each step, equal on all ranks.
const GRADIENTS: [f32; 6] = [1e-3, 0.25, 2.0, 1e-3, 0.25, 2.0];

fn states<T: Float>(optimizer: &mut Adam, own: &Network<T>) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    for which in 0..2 {
        for (number, own) in own.iter().enumerate() {
            let state = optimizer.state_of(which, number, own)?;
            found.extend(state.cast::<f64>().eval()?.to_vec()?);
        }
    }
    Ok(found)
}

fn divides_exactly<T: Float>(size: usize) -> Result<()> {
    // The expected values are from a training run on one rank, without sharding.
    let (mut expected, mut whole) = (network::<T>()?, Adam::new(0.01));
    let mut halfway = None;
    for (step, scale) in GRADIENTS.into_iter().enumerate() {
        let slope = |own: &Array<T>| Array::<f32>::full(own.len(), scale)?.cast::<T>().eval();
        let slopes = expected.iter().map(slope).collect::<Result<Network<T>>>()?;
        whole.step(&mut expected, &slopes)?;
        if step == 2 {
            halfway = Some(states(&mut whole, &expected)?);
        }
    }
    let last = states(&mut whole, &expected)?;
    let found = Group::threads(size, |group| {
        let mut parallel = DataParallel::new(&group).bucket_bytes(20, 20);
        let mut own = network::<T>()?;
        let mut optimizer = Sharded::new(&group, Adam::new(0.01))?;
        let mut middle = None;
        for (step, scale) in GRADIENTS.into_iter().enumerate() {
            parallel.value_and_step(&mut own, &mut optimizer, |own| {
                let mut sum = Array::<f32>::zeros([])?;
                for own in own {
                    sum = (sum + own.cast::<f32>().sum()? * scale).eval()?;
                }
                Ok(sum)
            })?;
            if step == 2 {
                // A new optimizer continues the training. Its state can be saved before its first
                // step.
                let state = optimizer.state(&own)?;
                let mut again = Adam::new(0.01);
                again.set_state(&own, &state)?;
                middle = Some(states(&mut again, &own)?);
                optimizer = Sharded::new(&group, Adam::new(0.01))?;
                optimizer.set_state(&state)?;
                let state = optimizer.state(&own)?;
                optimizer.set_state(&state)?;
            }
        }
        let state = optimizer.state(&own)?;
        optimizer.set_state(&state)?;
        let mut again = Adam::new(0.01);
        again.set_state(&own, &optimizer.state(&own)?)?;
        let own: Result<Vec<Vec<T>>> = own.iter().map(Array::to_vec).collect();
        Ok((own?, middle, states(&mut again, &network::<T>()?)?))
    })?;
    let expected: Result<Vec<Vec<T>>> = expected.iter().map(Array::to_vec).collect();
    let expected = (expected?, halfway, last);
    for found in found {
        assert_eq!(found, expected, "{size} ranks");
    }
    Ok(())
}

#[test]
fn narrow_parameters_have_wide_states() -> Result<()> {
    for size in [1, 2, 4] {
        divides_exactly::<f16>(size)?;
        divides_exactly::<bf16>(size)?;
        divides_exactly::<f32>(size)?;
    }
    Ok(())
}
