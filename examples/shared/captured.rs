//! Gradients as a graph, on CUDA: the computation of a step is captured once. The optimizer steps
//! between launches, because its learning rate and step count would be fixed at capture.

use std::time::Duration;

use cachescope::grad::{Parameters, ZipArrays, value_and_grad};
use cachescope::graph::{self, Graph};
use cachescope::{Array, Device, Float, Policy, Result, cache_scope};

/// A captured computation, with the arrays that each launch writes to.
#[derive(Debug)]
pub struct Captured<P> {
    graph: Graph,
    loss: Array<f32>,
    gradients: P,
}

impl<P: Parameters> Captured<P> {
    /// Captures the gradients of `loss` at `parameters`, on the current device. A launch reads the
    /// parameters, and the arrays that `loss` reads, at their addresses at capture. Write new
    /// values to these arrays in place. All launches draw equal random numbers.
    pub fn new(parameters: &P, loss: impl Fn(&P) -> Result<Array<f32>>) -> Result<Self> {
        let (mut value, mut gradients) = value_and_grad(parameters, &loss)?;
        let mut step = || {
            cache_scope!("captured", policy = Policy::Plan, {
                let (new_value, new_gradients) = value_and_grad(parameters, &loss)?;
                value.assign(&new_value)?;
                gradients.zip_arrays(&new_gradients, &mut Overwrite)
            })
        };
        // The first step records its allocations, from which the memory is planned, and compiles
        // the kernels.
        step()?;
        step()?;
        let graph = graph::capture(&Device::current(), step)?;
        Ok(Self {
            graph,
            loss: value,
            gradients,
        })
    }

    /// Computes the loss and the gradients anew.
    pub fn launch(&self) -> Result<&P> {
        self.graph.launch()?;
        Ok(&self.gradients)
    }

    /// Returns the loss of the last launch.
    pub fn loss(&self) -> Result<f32> {
        self.loss.item()
    }
}

/// Prints the results of some launches.
pub fn print(steps: usize, loss: f32, time: Duration) {
    println!(
        "\nas a graph: {steps} steps more in {:.2} s, to a loss of {loss:.4}",
        time.as_secs_f64()
    );
}

struct Overwrite;

impl ZipArrays for Overwrite {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        own.assign(other)
    }
}
