//! Gradients of a training step as a CUDA graph. The optimizer is not captured, because the capture
//! would fix its learning rate and step count.

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
    /// Captures the gradients of `loss` at `parameters`, on the current device. Each launch reads
    /// the parameters and the other arrays of `loss` at the addresses that they had at capture.
    /// Therefore write new values to these arrays in place. All launches draw equal random numbers.
    pub fn new(parameters: &P, loss: impl Fn(&P) -> Result<Array<f32>>) -> Result<Self> {
        let (mut value, mut gradients) = value_and_grad(parameters, &loss)?;
        let mut step = || {
            cache_scope!("captured", policy = Policy::Plan, {
                let (new_value, new_gradients) = value_and_grad(parameters, &loss)?;
                value.assign(&new_value)?;
                gradients.zip_arrays(&new_gradients, &mut Overwrite)
            })
        };
        // The first step compiles the kernels and records its allocations. The second step runs in
        // memory that is planned from this record.
        step()?;
        step()?;
        let graph = graph::capture(&Device::current(), step)?;
        Ok(Self {
            graph,
            loss: value,
            gradients,
        })
    }

    /// Launches the graph, which computes the loss and the gradients anew. Returns the gradients.
    pub fn launch(&self) -> Result<&P> {
        self.graph.launch()?;
        Ok(&self.gradients)
    }

    /// Returns the loss of the last launch.
    pub fn loss(&self) -> Result<f32> {
        self.loss.item()
    }
}

/// Prints the loss and the duration of `steps` launches.
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
