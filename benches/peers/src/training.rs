//! Synthetic training steps: the lifetimes of a transformer's tensors.
//!
//! A framework frees a tensor at the end of the last operation that reads it. So activations live
//! until their backward operation, and gradients until the optimizer's operation. Temporaries end
//! with their operation.

use cachescope_tools::trace::Lifetime;
use fastrand::Rng;

/// The bytes of a half-precision element. Computed tensors have half precision.
const HALF: u64 = 2;
/// The bytes of a single-precision element. Persistent tensors have single precision.
const SINGLE: u64 = 4;
/// The workspace of a matrix product, in bytes.
const WORKSPACE_BYTES: u64 = 8 << 20;

/// A transformer with its training parameters.
#[derive(Clone, Copy, Debug)]
pub struct Transformer {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub vocabulary: u64,
    /// The number of sequences per micro-batch.
    pub batch: u64,
    /// The sequence length of each micro-batch. A step sums the gradients of all micro-batches.
    pub lengths: &'static [u64],
    /// The number of expert networks per layer. The tokens of the layer are divided unevenly among
    /// them. If the number is 1, each layer has a plain feed-forward network.
    pub experts: usize,
    /// True if a layer's activations are recomputed for its backward pass.
    pub checkpoints: bool,
}

/// A transformer with the depth and the width of GPT-2 XL, and four micro-batches of equal length.
pub const PLAIN: Transformer = Transformer {
    layers: 48,
    hidden: 1600,
    heads: 25,
    vocabulary: 50_257,
    batch: 2,
    lengths: &[1024; 4],
    experts: 1,
    checkpoints: false,
};

/// A transformer with eight experts per layer, four micro-batches of different lengths, and
/// recomputed activations.
pub const EXPERTS: Transformer = Transformer {
    layers: 14,
    hidden: 1024,
    heads: 16,
    vocabulary: 128_000,
    batch: 4,
    lengths: &[512, 768, 960, 1024],
    experts: 8,
    checkpoints: true,
};

/// The index of a tensor in the tape.
#[derive(Clone, Copy, Debug)]
struct Tensor(usize);

/// The recorded tensors. An operation takes one unit of time.
#[derive(Debug, Default)]
struct Tape {
    now: u64,
    tensors: Vec<Lifetime>,
}

impl Tape {
    /// Appends an operation that reads `inputs` and creates one tensor.
    fn op(&mut self, inputs: &[Tensor], bytes: u64) -> Tensor {
        self.now += 1;
        self.read(inputs);
        self.make(bytes)
    }

    /// Appends an operation like [`Self::op`] that also uses a temporary workspace.
    fn product(&mut self, inputs: &[Tensor], bytes: u64) -> Tensor {
        let output = self.op(inputs, bytes);
        self.make(WORKSPACE_BYTES);
        output
    }

    /// Appends an operation that updates `tensors` in place.
    fn update(&mut self, tensors: &[Tensor]) {
        self.now += 1;
        self.read(tensors);
    }

    fn read(&mut self, tensors: &[Tensor]) {
        for tensor in tensors {
            self.tensors[tensor.0].upper = self.now + 1;
        }
    }

    fn make(&mut self, size_bytes: u64) -> Tensor {
        self.tensors.push(Lifetime {
            id: self.tensors.len().to_string(),
            lower: self.now,
            upper: self.now + 1,
            size_bytes,
        });
        Tensor(self.tensors.len() - 1)
    }
}

/// A trained weight, with its optimizer state and the sum of its gradients.
struct Weight {
    elements: u64,
    weight: Tensor,
    state: [Tensor; 3],
    sum: Option<Tensor>,
}

struct Weights {
    norm: [Weight; 2],
    qkv: [Weight; 2],
    out: [Weight; 2],
    norm2: [Weight; 2],
    experts: Vec<[[Weight; 2]; 2]>,
}

impl Weights {
    fn all(&mut self) -> impl Iterator<Item = &mut Weight> {
        let attention = [
            &mut self.norm,
            &mut self.qkv,
            &mut self.out,
            &mut self.norm2,
        ];
        let experts = self.experts.iter_mut().flatten();
        attention.into_iter().chain(experts).flatten()
    }
}

/// The values of a layer's forward pass that its backward pass reads.
struct Saved {
    input: Tensor,
    norm: Tensor,
    statistics: Tensor,
    heads: [Tensor; 3],
    probabilities: Tensor,
    kept: Tensor,
    dropped: Tensor,
    context: Tensor,
    kept_out: Tensor,
    middle: Tensor,
    norm2: Tensor,
    statistics2: Tensor,
    chosen: Tensor,
    experts: Vec<SavedExpert>,
    kept_down: Tensor,
}

struct SavedExpert {
    input: Tensor,
    raised: Tensor,
    activated: Tensor,
}

/// The activation sizes of a layer for one micro-batch.
struct Sizes {
    tokens: u64,
    hidden: u64,
    attention: u64,
    /// The size of a layer-width activation, for each expert.
    shares: Vec<u64>,
}

impl Transformer {
    /// Returns the tensors of one training step.
    pub fn step(&self) -> Vec<Lifetime> {
        let mut tape = Tape::default();
        let table = self.vocabulary * self.hidden;
        let mut embedding = weight(&mut tape, table);
        let mut layers: Vec<_> = (0..self.layers).map(|_| self.layer(&mut tape)).collect();
        let mut random = Rng::with_seed(1);
        for &length in self.lengths {
            let sizes: Vec<_> = (0..self.layers)
                .map(|_| self.sizes(length, &mut random))
                .collect();
            self.micro_batch(&mut tape, &mut embedding, &mut layers, &sizes);
        }
        for layer in &mut layers {
            layer.all().for_each(|weight| optimize(&mut tape, weight));
        }
        optimize(&mut tape, &mut embedding);
        // Weights and optimizer states live beyond the step.
        let weights = layers
            .iter_mut()
            .flat_map(Weights::all)
            .chain([&mut embedding]);
        let kept: Vec<_> = weights
            .flat_map(|weight| weight.state.into_iter().chain([weight.weight]))
            .collect();
        tape.update(&kept);
        tape.tensors
    }

    fn layer(&self, tape: &mut Tape) -> Weights {
        let hidden = self.hidden;
        let mut pair = |inputs, outputs| [weight(tape, inputs * outputs), weight(tape, outputs)];
        Weights {
            norm: pair(1, hidden),
            qkv: pair(hidden, 3 * hidden),
            out: pair(hidden, hidden),
            norm2: pair(1, hidden),
            experts: (0..self.experts)
                .map(|_| [pair(hidden, 4 * hidden), pair(4 * hidden, hidden)])
                .collect(),
        }
    }

    fn sizes(&self, length: u64, random: &mut Rng) -> Sizes {
        let tokens = self.batch * length;
        let wants: Vec<_> = (0..self.experts).map(|_| random.u64(1..=100)).collect();
        let all: u64 = wants.iter().sum();
        let share = |want: u64| (tokens * want / all).max(1) * self.hidden * HALF;
        Sizes {
            tokens,
            hidden: tokens * self.hidden * HALF,
            attention: self.batch * self.heads * length * length * HALF,
            shares: wants.into_iter().map(share).collect(),
        }
    }

    fn micro_batch(
        &self,
        tape: &mut Tape,
        embedding: &mut Weight,
        layers: &mut [Weights],
        sizes: &[Sizes],
    ) {
        let Sizes { tokens, hidden, .. } = sizes[0];
        let labels = tape.make(tokens * 8);
        let mut stream = tape.op(&[embedding.weight], hidden);
        let mut saved = Vec::new();
        for (layer, sizes) in layers.iter().zip(sizes) {
            let (output, own) = forward(tape, layer, stream, sizes);
            saved.push((stream, (!self.checkpoints).then_some(own)));
            stream = output;
        }
        let logits = tape.product(&[stream, embedding.weight], tokens * self.vocabulary * HALF);
        let wide = tape.op(&[logits], tokens * self.vocabulary * SINGLE);
        let losses = tape.op(&[wide, labels], tokens * SINGLE);
        tape.op(&[losses], SINGLE);
        let d_logits = tape.op(&[wide, labels], tokens * self.vocabulary * HALF);
        let mut gradient = tape.product(&[d_logits, embedding.weight], hidden);
        gradient_of(tape, embedding, &[d_logits, stream]);
        for ((layer, sizes), (input, own)) in layers.iter_mut().zip(sizes).zip(saved).rev() {
            let own = own.unwrap_or_else(|| forward(tape, layer, input, sizes).1);
            gradient = backward(tape, layer, &own, gradient, sizes);
        }
        gradient_of(tape, embedding, &[gradient]);
    }
}

fn weight(tape: &mut Tape, elements: u64) -> Weight {
    Weight {
        elements,
        weight: tape.make(elements * HALF),
        state: std::array::from_fn(|_| tape.make(elements * SINGLE)),
        sum: None,
    }
}

/// Appends the forward pass of a layer. Returns its output, and the tensors that the backward pass
/// reads.
fn forward(tape: &mut Tape, layer: &Weights, input: Tensor, sizes: &Sizes) -> (Tensor, Saved) {
    let hidden = sizes.hidden;
    let of = |pair: &[Weight; 2]| [pair[0].weight, pair[1].weight];

    let statistics = tape.op(&[input], 2 * sizes.tokens * SINGLE);
    let norm = tape.op(&[input, statistics, layer.norm[0].weight], hidden);
    let qkv = tape.product(&[norm, layer.qkv[0].weight], 3 * hidden);
    let biased = tape.op(&[qkv, layer.qkv[1].weight], 3 * hidden);
    let heads = [(); 3].map(|()| tape.op(&[biased], hidden));
    let scores = tape.product(&[heads[0], heads[1]], sizes.attention);
    let masked = tape.op(&[scores], sizes.attention);
    let probabilities = tape.op(&[masked], sizes.attention);
    let kept = tape.op(&[], sizes.attention / HALF);
    let dropped = tape.op(&[probabilities, kept], sizes.attention);
    let mixed = tape.product(&[dropped, heads[2]], hidden);
    let context = tape.op(&[mixed], hidden);
    let [weight, bias] = of(&layer.out);
    let projected = tape.product(&[context, weight, bias], hidden);
    let kept_out = tape.op(&[], hidden / HALF);
    let middle = tape.op(&[input, projected, kept_out], hidden);

    let statistics2 = tape.op(&[middle], 2 * sizes.tokens * SINGLE);
    let norm2 = tape.op(&[middle, statistics2, layer.norm2[0].weight], hidden);
    let chosen = tape.op(&[norm2], sizes.tokens * 8);
    let mut experts = Vec::new();
    let mut parts = Vec::new();
    for ([up, down], &share) in layer.experts.iter().zip(&sizes.shares) {
        let input = tape.op(&[norm2, chosen], share);
        let [weight, bias] = of(up);
        let raised = tape.product(&[input, weight, bias], 4 * share);
        let activated = tape.op(&[raised], 4 * share);
        let [weight, bias] = of(down);
        parts.push(tape.product(&[activated, weight, bias], share));
        experts.push(SavedExpert {
            input,
            raised,
            activated,
        });
    }
    parts.push(chosen);
    let lowered = tape.op(&parts, hidden);
    let kept_down = tape.op(&[], hidden / HALF);
    let output = tape.op(&[middle, lowered, kept_down], hidden);
    let saved = Saved {
        input,
        norm,
        statistics,
        heads,
        probabilities,
        kept,
        dropped,
        context,
        kept_out,
        middle,
        norm2,
        statistics2,
        chosen,
        experts,
        kept_down,
    };
    (output, saved)
}

/// Appends the backward pass of a layer. Returns the gradient of the layer's input, given the
/// gradient of the layer's output.
fn backward(
    tape: &mut Tape,
    layer: &mut Weights,
    saved: &Saved,
    gradient: Tensor,
    sizes: &Sizes,
) -> Tensor {
    let hidden = sizes.hidden;
    let d_lowered = tape.op(&[gradient, saved.kept_down], hidden);
    let mut parts = vec![saved.norm2];
    let experts = layer.experts.iter_mut().zip(&saved.experts);
    for (([up, down], saved_expert), &share) in experts.zip(&sizes.shares) {
        let d_part = tape.op(&[d_lowered, saved.chosen], share);
        parts.push(expert_backward(tape, up, down, saved_expert, d_part, share));
    }
    let d_norm2 = tape.op(&parts, hidden);
    let d_normed = tape.op(&[d_norm2, saved.middle, saved.statistics2], hidden);
    gradients_of(
        tape,
        &mut layer.norm2,
        &[d_norm2, saved.middle, saved.statistics2],
    );
    let d_middle = tape.op(&[gradient, d_normed], hidden);

    let d_projected = tape.op(&[d_middle, saved.kept_out], hidden);
    let d_context = tape.product(&[d_projected, layer.out[0].weight], hidden);
    gradients_of(tape, &mut layer.out, &[d_projected, saved.context]);
    let d_mixed = tape.op(&[d_context], hidden);
    let d_dropped = tape.product(&[d_mixed, saved.heads[2]], sizes.attention);
    let d_values = tape.product(&[saved.dropped, d_mixed], hidden);
    let d_probabilities = tape.op(&[d_dropped, saved.kept], sizes.attention);
    let d_scores = tape.op(&[d_probabilities, saved.probabilities], sizes.attention);
    let d_queries = tape.product(&[d_scores, saved.heads[1]], hidden);
    let d_keys = tape.product(&[d_scores, saved.heads[0]], hidden);
    let d_qkv = tape.op(&[d_queries, d_keys, d_values], 3 * hidden);
    let d_norm = tape.product(&[d_qkv, layer.qkv[0].weight], hidden);
    gradients_of(tape, &mut layer.qkv, &[d_qkv, saved.norm]);
    let d_normed = tape.op(&[d_norm, saved.input, saved.statistics], hidden);
    gradients_of(
        tape,
        &mut layer.norm,
        &[d_norm, saved.input, saved.statistics],
    );
    tape.op(&[d_middle, d_normed], hidden)
}

fn expert_backward(
    tape: &mut Tape,
    up: &mut [Weight; 2],
    down: &mut [Weight; 2],
    saved: &SavedExpert,
    gradient: Tensor,
    share: u64,
) -> Tensor {
    let d_activated = tape.product(&[gradient, down[0].weight], 4 * share);
    gradients_of(tape, down, &[gradient, saved.activated]);
    let d_raised = tape.op(&[d_activated, saved.raised], 4 * share);
    let d_input = tape.product(&[d_raised, up[0].weight], share);
    gradients_of(tape, up, &[d_raised, saved.input]);
    d_input
}

fn gradients_of(tape: &mut Tape, weights: &mut [Weight; 2], inputs: &[Tensor]) {
    for weight in weights {
        gradient_of(tape, weight, inputs);
    }
}

/// Appends a gradient of a weight. The first micro-batch initialises the sum. Later micro-batches
/// add to this sum.
fn gradient_of(tape: &mut Tape, weight: &mut Weight, inputs: &[Tensor]) {
    let gradient = tape.product(inputs, weight.elements * HALF);
    match weight.sum {
        None => weight.sum = Some(tape.op(&[gradient], weight.elements * SINGLE)),
        Some(sum) => tape.update(&[sum, gradient]),
    }
}

/// Appends an Adam step for a weight, with two temporaries.
fn optimize(tape: &mut Tape, weight: &mut Weight) {
    let sum = weight.sum.take().expect("a micro-batch went before");
    let [master, mean, variance] = weight.state;
    tape.update(&[sum, mean]);
    tape.update(&[sum, variance]);
    let root = tape.op(&[variance], weight.elements * SINGLE);
    let change = tape.op(&[mean, root], weight.elements * SINGLE);
    tape.update(&[master, change]);
    tape.update(&[master, weight.weight]);
}
