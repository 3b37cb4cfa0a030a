//! Parameters as structures.

use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{Array, Result};

use crate::grad::differences::numbers;

#[derive(Parameters)]
struct Layer<T: cachescope::Float> {
    weight: Array<T>,
    bias: Option<Array<T>>,
}

#[derive(Parameters)]
struct Network {
    layers: Vec<Layer<f64>>,
    scale: (Array<f64>, [Array<f64>; 2]),
    #[parameters(skip)]
    name: String,
}

/// A structure that is generic over a layer.
#[derive(Parameters)]
struct Twice<L> {
    first: L,
    second: L,
}

#[derive(Parameters)]
struct Pair(Array<f64>, #[parameters(skip)] usize);

fn network() -> Network {
    let layer = |inputs: usize, outputs: usize, bias: bool| Layer {
        weight: numbers(&[inputs, outputs], 0.5),
        bias: bias.then(|| numbers(&[outputs], 0.3)),
    };
    Network {
        layers: vec![layer(3, 4, true), layer(4, 2, false)],
        scale: (numbers(&[2], 1.0), [numbers(&[], 1.0), numbers(&[1], 2.0)]),
        name: "small".into(),
    }
}

fn run(network: &Network, x: &Array<f64>) -> Result<Array<f64>> {
    let mut y = x.clone();
    for Layer { weight, bias } in &network.layers {
        y = y.matmul(weight)?;
        if let Some(bias) = bias {
            y = (y + bias).tanh().eval()?;
        }
    }
    let (scale, [offset, factor]) = &network.scale;
    ((y * scale + offset) * factor).square().mean()
}

#[test]
fn gradients_have_the_structure_of_the_parameters() -> Result<()> {
    let (network, x) = (network(), numbers(&[5, 3], 1.0));
    let (_, gradient) = value_and_grad(&network, |network| run(network, &x))?;
    assert_eq!(
        (gradient.layers.len(), gradient.name.as_str()),
        (2, "small")
    );
    assert_eq!(gradient.layers[0].weight.shape(), [3, 4]);
    assert!(gradient.layers[1].bias.is_none());
    // The gradient of each parameter is compared with finite differences.
    crate::grad::differences::check(&network.layers[0].weight, |weight| {
        let mut moved = crate::grad::structures::network();
        moved.layers[0].weight = weight.clone();
        run(&moved, &x)
    });
    crate::grad::differences::check(&network.scale.1[0], |offset| {
        let mut moved = crate::grad::structures::network();
        moved.scale.1[0] = offset.clone();
        run(&moved, &x)
    });
    let (_, alone) = value_and_grad(&network.scale.0, |scale| {
        let mut moved = crate::grad::structures::network();
        moved.scale.0 = scale.clone();
        run(&moved, &x)
    })?;
    assert_eq!(alone.to_vec()?, gradient.scale.0.to_vec()?);
    Ok(())
}

#[test]
fn structures_of_any_structure() -> Result<()> {
    let twice = Twice {
        first: Pair(numbers(&[2], 1.0), 1),
        second: Pair(numbers(&[3], 1.0), 2),
    };
    let (_, gradient) = value_and_grad(&twice, |twice| {
        (twice.first.0.sum()? * 3.0 + twice.second.0.sum()?).eval()
    })?;
    assert_eq!(gradient.first.0.to_vec()?, [3.0; 2]);
    assert_eq!(
        (gradient.second.0.to_vec()?, gradient.second.1),
        (vec![1.0; 3], 2)
    );
    Ok(())
}

#[test]
fn tuple_structures() -> Result<()> {
    let (_, gradient) = value_and_grad(&Pair(numbers(&[3], 1.0), 7), |pair| (&pair.0 * 2.0).sum())?;
    assert_eq!((gradient.0.to_vec()?, gradient.1), (vec![2.0; 3], 7));
    Ok(())
}
