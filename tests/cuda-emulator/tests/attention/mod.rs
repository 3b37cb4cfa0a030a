//! Tests of fused attention: errors against `f64`, layouts, edges, memory and driver calls.

mod accuracy;
mod edges;
mod work;

use cachescope::grad::value_and_grad;
use cachescope::{Array, Device, DeviceConfig, Float, Generator, Result, attention};

/// Returns a device whose memory no concurrent test uses.
fn own_device() -> Result<Device> {
    Device::cuda_with(0, DeviceConfig::default())
}

/// The operands of an attention, and the weights of a loss that sums the weighted result.
#[derive(Clone, Debug)]
struct Operands<T: Float> {
    q: Array<T>,
    k: Array<T>,
    v: Array<T>,
    weights: Array<T>,
}

/// The result of an attention and its gradients, as `f64`.
#[derive(Debug)]
struct Outcome([Vec<f64>; 4]);

/// The lengths of an attention.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The leading axes of q, k and v.
    heads: [&'static [usize]; 3],
    queries: usize,
    keys: usize,
    depth: usize,
    width: usize,
    causal: bool,
}

/// Returns a case with the same heads in all operands.
const fn case(
    heads: &'static [usize],
    [queries, keys]: [usize; 2],
    [depth, width]: [usize; 2],
    causal: bool,
) -> Case {
    Case {
        heads: [heads; 3],
        queries,
        keys,
        depth,
        width,
        causal,
    }
}

impl Case {
    /// Returns operands of normal random numbers on the current device.
    fn operands<T: Float>(&self, spread: f64) -> Result<Operands<T>> {
        let generator = &mut Generator::new(7);
        let mut of = |heads: &[usize], rows: usize, columns: usize| {
            let shape: Vec<usize> = heads.iter().copied().chain([rows, columns]).collect();
            let wide = Array::<f64>::randn_with(generator, shape)?;
            (wide * spread).cast::<T>().eval()
        };
        let [q, k, v] = self.heads;
        let longest = self.heads.into_iter().max_by_key(|heads| {
            let count: usize = heads.iter().product();
            (heads.len(), count)
        });
        Ok(Operands {
            q: of(q, self.queries, self.depth)?,
            k: of(k, self.keys, self.depth)?,
            v: of(v, self.keys, self.width)?,
            weights: of(longest.unwrap_or(q), self.queries, self.width)?,
        })
    }
}

impl<T: Float> Operands<T> {
    fn on(&self, device: &Device) -> Result<Self> {
        Ok(Self {
            q: self.q.to_device(device)?,
            k: self.k.to_device(device)?,
            v: self.v.to_device(device)?,
            weights: self.weights.to_device(device)?,
        })
    }

    fn cast<W: Float>(&self) -> Result<Operands<W>> {
        let cast = |array: &Array<T>| array.cast::<W>().eval();
        Ok(Operands {
            q: cast(&self.q)?,
            k: cast(&self.k)?,
            v: cast(&self.v)?,
            weights: cast(&self.weights)?,
        })
    }

    /// Returns the result and the gradients of the function `attend`.
    fn outcome(
        &self,
        attend: impl Fn(&Array<T>, &Array<T>, &Array<T>) -> Result<Array<T>>,
    ) -> Result<Outcome> {
        let parameters = (self.q.clone(), self.k.clone(), self.v.clone());
        let mut result = None;
        let (_, (q, k, v)) = value_and_grad(&parameters, |(q, k, v)| {
            let attended = attend(q, k, v)?;
            result = Some(cachescope::grad::stop_gradient(&attended));
            (attended * &self.weights).sum()
        })?;
        let result = result.expect("the loss was computed");
        let numbers = |array: Array<T>| array.cast::<f64>().eval()?.to_vec();
        Ok(Outcome([
            numbers(result)?,
            numbers(q)?,
            numbers(k)?,
            numbers(v)?,
        ]))
    }

    fn attended(&self, causal: bool) -> Result<Outcome> {
        self.outcome(|q, k, v| attention(q, k, v, causal))
    }

    /// Computes attention by separate operations, which round each result to `T`.
    fn unfused(&self, causal: bool) -> Result<Outcome> {
        self.outcome(|q, k, v| {
            let scale = T::from_f64(1.0 / (q.shape()[q.ndim() - 1] as f64).sqrt());
            let scores = (q.matmul(&k.swap_axes(-1, -2)?)? * scale).eval()?;
            let scores = match causal {
                false => scores,
                true => {
                    let shown = Array::<T>::ones(scores.shape())?
                        .tril(0)?
                        .gt(T::zero())
                        .eval()?;
                    let least = T::from_f64(f64::NEG_INFINITY);
                    cachescope::select(&shown, &scores, least).eval()?
                }
            };
            scores.softmax(-1)?.matmul(v)
        })
    }
}

impl Outcome {
    /// Returns the root mean square error of the result and of each gradient.
    fn errors(&self, exact: &Self) -> [f64; 4] {
        std::array::from_fn(|at| {
            let (own, exact) = (&self.0[at], &exact.0[at]);
            assert_eq!(own.len(), exact.len());
            let squares = own.iter().zip(exact).map(|(a, b)| (a - b).powi(2));
            (squares.sum::<f64>() / own.len() as f64).sqrt()
        })
    }

    fn bits(&self) -> Vec<u64> {
        self.0
            .iter()
            .flatten()
            .map(|number| number.to_bits())
            .collect()
    }
}
