//! A network of two layers, and its training.

use cachescope::collective::{DataParallel, Group};
use cachescope::grad::optim::Sgd;
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{Array, Generator, Result};

use crate::dataset::Dataset;
use crate::digits::{CLASSES, PIXELS};

const LEARNING_RATE: f64 = 0.1;
const MOMENTUM: f64 = 0.9;

/// The network with its optimizer.
#[derive(Debug)]
pub struct Model {
    /// The network.
    pub network: Network,
    optimizer: Sgd,
    /// The data-parallel ranks, if there are several.
    ranks: Option<DataParallel>,
}

/// 64 pixels → hidden units with relu → 10 scores, one for each digit.
#[derive(Debug, Parameters)]
pub struct Network {
    /// The hidden layer.
    pub hidden: Layer,
    output: Layer,
}

/// Weights of shape `[inputs, outputs]` and a bias of shape `[outputs]`.
#[derive(Debug, Parameters)]
pub struct Layer {
    /// The weights.
    pub weights: Array<f32>,
    bias: Array<f32>,
}

impl Model {
    /// Makes a network with random weights on the current device.
    pub fn new(hidden_units: usize, generator: &mut Generator) -> Result<Self> {
        Ok(Self {
            network: Network {
                hidden: Layer::new(PIXELS, hidden_units, generator)?,
                output: Layer::new(hidden_units, CLASSES, generator)?,
            },
            optimizer: Sgd::new(LEARNING_RATE).momentum(MOMENTUM),
            ranks: None,
        })
    }

    /// Makes later steps data-parallel over all ranks of the group. Broadcasts the first rank's
    /// network to all ranks.
    pub fn learn_with(&mut self, group: &Group) -> Result<()> {
        let ranks = DataParallel::new(group);
        ranks.broadcast(&mut self.network)?;
        self.ranks = Some(ranks);
        Ok(())
    }

    /// Runs one step of gradient descent on a batch. Returns the mean loss of all ranks' images
    /// before the step, of rank 0.
    pub fn step(&mut self, batch: &Dataset) -> Result<Array<f32>> {
        let Self {
            network,
            optimizer,
            ranks,
        } = self;
        let loss = |network: &Network| network.scores(&batch.images)?.cross_entropy(&batch.labels);
        let (loss, gradients) = match ranks {
            Some(ranks) => ranks.value_and_grad(&*network, loss)?,
            None => value_and_grad(&*network, loss)?,
        };
        optimizer.step(network, &gradients)?;
        Ok(loss)
    }

    /// Returns the fraction of the images whose label has the highest score.
    pub fn accuracy(&self, data: &Dataset) -> Result<f64> {
        let guesses = self.network.scores(&data.images)?.argmax_axis(1)?;
        guesses.eq(&data.labels).mean()?.item()
    }
}

impl Network {
    fn scores(&self, images: &Array<f32>) -> Result<Array<f32>> {
        let Self { hidden, output } = self;
        let hidden = (images.matmul(&hidden.weights)? + &hidden.bias)
            .relu()
            .eval()?;
        (hidden.matmul(&output.weights)? + &output.bias).eval()
    }
}

impl Layer {
    /// Makes random weights of variance 2 / inputs, and a bias of zeros. Through a relu, this
    /// variance preserves the variance of the signal (He et al. 2015).
    fn new(inputs: usize, outputs: usize, generator: &mut Generator) -> Result<Self> {
        let scale = (2.0 / inputs as f32).sqrt();
        let weights = Array::randn_with(generator, [inputs, outputs])? * scale;
        Ok(Self {
            weights: weights.eval()?,
            bias: Array::zeros(outputs)?,
        })
    }
}
