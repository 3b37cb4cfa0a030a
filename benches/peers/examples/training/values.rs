// Initial values and inputs. They are equal in all frameworks, so that the losses are comparable.
//
// Element `i` of tensor `t` is a hash of `t * 2^32 + i` (splitmix64's finalizer; Steele, Lea,
// Flood 2014). Tensors are numbered in order of their creation, as listed below. Weights of linear
// layers have the shape `[outputs, inputs]`. Weights of convolutions have the shape `[outputs,
// inputs, rows, columns]`.
//
// - GPT: token embedding; position embedding; for each block, the weight and the bias of `qkv`,
//   `out`, `wide` and `narrow`; the weight of the head; the tokens. Each sequence has `length + 1`
//   tokens: the inputs, and one more token for the targets.
// - CNN: weights and biases of the two convolutions and the two linear layers; images; classes.
//
// Normalizations have the initial weight 1 and the initial bias 0, and no tensor number.

/// The number of created tensors, which is the number of the next tensor.
#[derive(Debug, Default)]
pub struct Values {
    tensors: u64,
}

/// Hashes a number. If one input bit changes, about half of the output bits change.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Values {
    fn bits(&mut self, elements: usize) -> impl Iterator<Item = u64> + use<> {
        let first = self.tensors << 32;
        self.tensors += 1;
        (first..).take(elements).map(mix)
    }

    /// Returns the next tensor with values that are uniform in `[-bound, bound)`.
    pub fn uniform(&mut self, elements: usize, bound: f32) -> Vec<f32> {
        let unit = |bits: u64| (bits >> 40) as f32 / (1 << 24) as f32;
        let bits = self.bits(elements);
        bits.map(|bits| (unit(bits) * 2.0 - 1.0) * bound).collect()
    }

    /// Returns the next tensor with integers below `limit`.
    pub fn below(&mut self, elements: usize, limit: usize) -> Vec<u32> {
        let bits = self.bits(elements);
        bits.map(|bits| ((bits >> 32) % limit as u64) as u32)
            .collect()
    }

    /// Returns the inputs and the targets of a GPT. Inputs are the sequences without their last
    /// token. Targets are the sequences without their first token.
    pub fn text(&mut self, batch: usize, length: usize, vocabulary: usize) -> (Vec<u32>, Vec<u32>) {
        let tokens = self.below(batch * (length + 1), vocabulary);
        let sequences = || tokens.chunks(length + 1);
        let inputs = sequences().flat_map(|tokens| &tokens[..length]);
        let targets = sequences().flat_map(|tokens| &tokens[1..]);
        (inputs.copied().collect(), targets.copied().collect())
    }
}

/// Returns PyTorch's bound for the initial weight and bias of a layer with `inputs` inputs.
pub fn bound_of(inputs: usize) -> f32 {
    1.0 / (inputs as f32).sqrt()
}

/// The bound of initial embeddings, as small as in GPT-2.
pub const EMBEDDED: f32 = 0.05;
