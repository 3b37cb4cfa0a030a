//! Training in half precision, compared with PyTorch's autocast: `tests/reference/torch_half.py`.

use std::path::Path;

use cachescope::grad::nn::{Attention, LayerNorm, Linear};
use cachescope::grad::optim::{AdamW, LossScaled, Sgd};
use cachescope::grad::{
    CastParameters, MapArrays, Optimizer, Parameters, value_and_grad, value_and_step,
};
use cachescope::npy::NpzReader;
use cachescope::{Array, Float, Result, cache_scope};
use half::{bf16, f16};
use ndarray::s;
use shared::digits::Digits;

const BATCH: usize = 50;
const TRAIN: usize = 1500;

/// A network of the script, with the name that the script uses.
trait Network: Parameters {
    const NAME: &'static str;

    fn new() -> Result<Self>;

    /// Returns `f32` scores, computed in `C`.
    fn forward<C: Float>(&self, x: &Array<f32>) -> Result<Array<f32>>;
}

#[derive(Parameters, CastParameters)]
struct Mlp<T: Float> {
    hidden: Linear<T>,
    out: Linear<T>,
}

impl<T: Float> Mlp<T> {
    fn scores(&self, x: &Array<T>) -> Result<Array<T>> {
        self.out.forward(&self.hidden.forward(x)?.relu().eval()?)
    }
}

impl Network for Mlp<f32> {
    const NAME: &'static str = "mlp";

    fn new() -> Result<Self> {
        Ok(Self {
            hidden: Linear::new(64, 32)?,
            out: Linear::new(32, 10)?,
        })
    }

    fn forward<C: Float>(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let scores = self.cast::<C>()?.scores(&x.cast().eval()?)?;
        scores.cast::<f32>().eval()
    }
}

#[derive(Parameters, CastParameters)]
struct Block<T: Float> {
    first: LayerNorm<T>,
    attention: Attention<T>,
    second: LayerNorm<T>,
    up: Linear<T>,
    down: Linear<T>,
}

impl<T: Float> Block<T> {
    /// Computes products and attention in `C`, and the norms in `T`. The sum of the branches is in
    /// `T`.
    fn forward<C: Float>(&self, x: &Array<T>) -> Result<Array<T>> {
        let seen = self.first.forward(x)?.cast::<C>().eval()?;
        let seen = self.attention.cast::<C>()?.forward(&seen)?;
        let x = (x + seen.cast::<T>()).eval()?;
        let y = self.second.forward(&x)?.cast::<C>().eval()?;
        let hidden = self.up.cast::<C>()?.forward(&y)?.gelu().eval()?;
        let y = self.down.cast::<C>()?.forward(&hidden)?;
        (&x + y.cast::<T>()).eval()
    }
}

/// A transformer that reads an image as a sequence of its rows.
#[derive(Parameters, CastParameters)]
struct Transformer<T: Float> {
    places: Array<T>,
    embed: Linear<T>,
    blocks: Vec<Block<T>>,
    norm: LayerNorm<T>,
    out: Linear<T>,
}

impl<T: Float> Transformer<T> {
    fn scores<C: Float>(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let rows = x.reshape([x.len() / 64, 8, 8])?.cast::<C>().eval()?;
        let embedded = self.embed.cast::<C>()?.forward(&rows)?;
        let mut x = (embedded.cast::<T>() + &self.places).eval()?;
        for block in &self.blocks {
            x = block.forward::<C>(&x)?;
        }
        let y = self.norm.forward(&x)?.mean_axis(1)?.cast::<C>().eval()?;
        self.out.cast::<C>()?.forward(&y)?.cast::<f32>().eval()
    }
}

impl Network for Transformer<f32> {
    const NAME: &'static str = "transformer";

    fn new() -> Result<Self> {
        const WIDTH: usize = 32;
        let block = |_| {
            Ok(Block {
                first: LayerNorm::new(WIDTH)?,
                attention: Attention::new(WIDTH, 4, false)?,
                second: LayerNorm::new(WIDTH)?,
                up: Linear::new(WIDTH, 2 * WIDTH)?,
                down: Linear::new(2 * WIDTH, WIDTH)?,
            })
        };
        Ok(Self {
            places: Array::zeros([8, WIDTH])?,
            embed: Linear::new(8, WIDTH)?,
            blocks: (0..2).map(block).collect::<Result<_>>()?,
            norm: LayerNorm::new(WIDTH)?,
            out: Linear::new(WIDTH, 10)?,
        })
    }

    fn forward<C: Float>(&self, x: &Array<f32>) -> Result<Array<f32>> {
        self.scores::<C>(x)
    }
}

/// The transformer with every value in `C`, including the sums of the branches.
#[derive(Parameters)]
struct Converted(Transformer<f32>);

impl Network for Converted {
    const NAME: &'static str = "transformer";

    fn new() -> Result<Self> {
        Transformer::new().map(Self)
    }

    fn forward<C: Float>(&self, x: &Array<f32>) -> Result<Array<f32>> {
        self.0.cast::<C>()?.scores::<C>(x)
    }
}

/// A visitor that sets the script's initial values. Matrices have hashed numbers, which depend on
/// the parameter's index.
struct Initialize {
    number: u32,
    is_bias: bool,
}

impl MapArrays for Initialize {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let number = self.number;
        self.number += 1;
        match array.shape() {
            &[_, inputs] => {
                let hashed = (0..array.len() as u32).map(|place| hash(place, number));
                let hashed = Array::from_vec(hashed.collect(), array.shape())?;
                (hashed / (inputs as f32).sqrt()).cast::<T>().eval()
            }
            _ if self.is_bias => Array::zeros(array.len()),
            _ => Ok(array.clone()),
        }
    }

    fn enter(&mut self, name: &dyn std::fmt::Display) {
        self.is_bias = name.to_string() == "bias";
    }
}

/// Returns a number from -1 to 1: the hash of the script's `numbers`.
fn hash(place: u32, seed: u32) -> f32 {
    let x = place
        .wrapping_add(seed.wrapping_mul(1_000_003))
        .wrapping_mul(0x9e37_79b9);
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    ((x ^ (x >> 16)) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// Returns the images and labels, in the script's order.
fn data() -> Result<(Array<f32>, Array<i64>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/digits.csv.gz");
    let digits = Digits::read(&path).unwrap_or_else(|_| panic!("{} is no data", path.display()));
    let count = digits.labels.len();
    let order = (0..count as i64).map(|row| row * 1000 % count as i64);
    let order = Array::from_vec(order.collect(), count)?;
    let images = Array::from_vec(digits.pixels, [count, 64])?;
    let labels = Array::from_vec(digits.labels, count)?;
    Ok((images.take(&order, 0)?, labels.take(&order, 0)?))
}

/// The losses of the steps, and the fraction of the test images that are classified correctly.
struct Trained {
    losses: Vec<f32>,
    right: f32,
}

impl Trained {
    fn last_loss(&self) -> f32 {
        mean(&self.losses[self.losses.len() - 50..])
    }
}

fn mean(numbers: &[f32]) -> f32 {
    numbers.iter().sum::<f32>() / numbers.len() as f32
}

fn train<N: Network, C: Float>(
    optimizer: &mut impl Optimizer,
    seed: u32,
    steps: usize,
) -> Result<Trained> {
    let (images, labels) = data()?;
    let mut network = initialized::<N>(seed)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let first = step * BATCH % TRAIN;
        cache_scope!("step", {
            let rows = s![first..first + BATCH, ..];
            let (x, y) = (images.slice(rows)?, labels.slice(s![first..first + BATCH])?);
            let loss = value_and_step(&mut network, optimizer, |own| {
                own.forward::<C>(&x)?.cross_entropy(&y)
            })?;
            losses.push(loss.item()?);
        });
    }
    let scores = network.forward::<f32>(&images.slice(s![TRAIN.., ..])?)?;
    let right = scores.argmax_axis(1)?.eq(&labels.slice(s![TRAIN..])?);
    let right = right.cast::<f32>().mean()?.item()?;
    Ok(Trained { losses, right })
}

fn initialized<N: Network>(seed: u32) -> Result<N> {
    N::new()?.map_arrays(&mut Initialize {
        number: 100 * seed,
        is_bias: false,
    })
}

fn reference() -> NpzReader {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reference/half.npz");
    NpzReader::open(path).unwrap()
}

/// Compares the losses of the first 100 steps with PyTorch's, up to `bound`. After these steps,
/// rounding alone makes training runs diverge: PyTorch's own last losses differ by half.
fn agrees<N: Network, C: Float>(optimizer: &mut impl Optimizer, bound: f32) -> Result<()> {
    let case = format!("{}.{}.losses", N::NAME, C::NAME);
    let losses = reference().read::<f32>(&case)?.to_vec()?;
    let own = train::<N, C>(optimizer, 0, 100)?;
    for range in [0..20, 20..100] {
        let apart = mean(&own.losses[range.clone()]) / mean(&losses[range.clone()]) - 1.0;
        assert!(apart.abs() < bound, "{case} of {range:?} differ by {apart}");
    }
    Ok(())
}

#[test]
fn a_perceptron_learns_as_with_autocast() -> Result<()> {
    agrees::<Mlp<f32>, f32>(&mut sgd(), 1e-4)?;
    agrees::<Mlp<f32>, bf16>(&mut sgd(), 5e-3)?;
    agrees::<Mlp<f32>, f16>(&mut LossScaled::new(sgd()), 1e-3)
}

#[test]
fn a_transformer_learns_as_with_autocast() -> Result<()> {
    agrees::<Transformer<f32>, f32>(&mut adam(), 1e-3)?;
    agrees::<Transformer<f32>, bf16>(&mut adam(), 0.02)?;
    agrees::<Transformer<f32>, f16>(&mut LossScaled::new(adam()), 5e-3)
}

#[test]
fn a_transformer_with_every_value_in_half_precision_learns() -> Result<()> {
    agrees::<Converted, bf16>(&mut adam(), 0.03)?;
    agrees::<Converted, f16>(&mut LossScaled::new(adam()), 5e-3)
}

fn sgd() -> Sgd {
    Sgd::new(0.05).momentum(0.9)
}

fn adam() -> AdamW {
    AdamW::new(2e-3).weight_decay(0.01)
}

/// Prints the mean loss and accuracy of five training runs with different initial values.
fn report<N: Network, C: Float, O: Optimizer>(case: &str, optimizer: fn() -> O) -> Result<()> {
    let runs = (0..5).map(|seed| train::<N, C>(&mut optimizer(), seed, 300));
    let runs = runs.collect::<Result<Vec<Trained>>>()?;
    let losses: Vec<f32> = runs.iter().map(Trained::last_loss).collect();
    let rights: Vec<f32> = runs.iter().map(|own| 100.0 * own.right).collect();
    let (least, most) = losses
        .iter()
        .fold((f32::MAX, 0.0_f32), |(least, most), own| {
            (least.min(*own), most.max(*own))
        });
    let (loss, right) = (mean(&losses), mean(&rights));
    let name = C::NAME;
    println!("{case} in {name}: loss {loss:.4} ({least:.4} to {most:.4}), {right:.1} % right");
    Ok(())
}

/// Prints the losses and accuracies of each type.
#[test]
#[ignore = "30 trainings"]
fn figures() -> Result<()> {
    report::<Mlp<f32>, f32, _>("mlp", sgd)?;
    report::<Mlp<f32>, bf16, _>("mlp", sgd)?;
    report::<Mlp<f32>, f16, _>("mlp", || LossScaled::new(sgd()))?;
    report::<Transformer<f32>, f32, _>("transformer", adam)?;
    report::<Transformer<f32>, bf16, _>("transformer, layers", adam)?;
    report::<Transformer<f32>, f16, _>("transformer, layers", || LossScaled::new(adam()))
}

/// Prints the figures of networks that are converted as a whole.
#[test]
#[ignore = "10 trainings"]
fn figures_of_converted_networks() -> Result<()> {
    report::<Converted, bf16, _>("transformer, converted", adam)?;
    report::<Converted, f16, _>("transformer, converted", || LossScaled::new(adam()))
}

/// Compares the gradients of the first step with PyTorch's.
fn has_gradients<C: Float>(scale: f32, bound: f32) -> Result<()> {
    let (images, labels) = data()?;
    let (x, y) = (images.slice(s![..BATCH, ..])?, labels.slice(s![..BATCH])?);
    let network = initialized::<Mlp<f32>>(0)?;
    let (_, gradients) = value_and_grad(&network, |own| {
        Ok(own.forward::<C>(&x)?.cross_entropy(&y)? * scale)
    })?;
    let mut file = reference();
    let layers = [(gradients.hidden, "hidden"), (gradients.out, "out")];
    for (layer, name) in layers {
        let bias = layer.bias.expect("the layer has one");
        for (own, of) in [(layer.weight, "weight"), (bias, "bias")] {
            let place = format!("mlp.{}.{name}.{of}", C::NAME);
            let expected: Array<f32> = file.read(&place)?;
            let apart = (own / scale - &expected).norm()?.item()? / expected.norm()?.item()?;
            assert!(apart < bound, "{place} differs by {apart}");
        }
    }
    Ok(())
}

#[test]
fn gradients_are_autocasts() -> Result<()> {
    // The bounds allow for some roundings to 24, 8 and 11 bits.
    has_gradients::<f32>(1.0, 1e-5)?;
    has_gradients::<bf16>(1.0, 1e-2)?;
    has_gradients::<f16>(65536.0, 2e-3)
}
