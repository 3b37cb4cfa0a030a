// The trained networks: two kinds of networks, each in three sizes, and GPT-2.
// `python/training.py` uses the same sizes.

use std::fmt;
use std::str::FromStr;

/// The number of different tokens of a GPT. GPT-2 has more.
pub const VOCABULARY: usize = 256;
pub const CLASSES: usize = 10;
/// The number of rows, and the number of columns, of an image.
pub const SIDE: usize = 28;
/// The number of features between the two linear layers of the CNN.
pub const FEATURES: usize = 128;
/// The epsilon that is added to a variance before the square root.
pub const EPSILON: f64 = 1e-5;
/// The learning rate of AdamW. Its other coefficients are 0.9, 0.999 and 1e-8.
pub const RATE: f64 = 1e-3;
/// The weight decay of AdamW.
pub const DECAY: f64 = 0.01;

/// A pre-normalization transformer for text.
#[derive(Clone, Copy, Debug)]
pub struct Gpt {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    /// The number of tokens per sequence.
    pub length: usize,
    /// The number of sequences per step.
    pub batch: usize,
    /// The number of different tokens.
    pub vocabulary: usize,
    /// True if the head is the embedding of the tokens.
    pub tied: bool,
}

/// Two convolutions and two linear layers for single-channel images.
#[derive(Clone, Copy, Debug)]
pub struct Cnn {
    /// The output channels of the first convolution. The second convolution has twice as many.
    pub channels: usize,
    /// The number of images per step.
    pub batch: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Network {
    Gpt(Gpt),
    Cnn(Cnn),
}

/// A network with its number of training steps.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub network: Network,
    /// The number of steps, including two warm-up steps.
    pub steps: usize,
    names: (&'static str, &'static str),
}

/// Returns a GPT with the given layers, width, heads, length and batch.
const fn plain([layers, width, heads, length, batch]: [usize; 5]) -> Gpt {
    Gpt {
        layers,
        width,
        heads,
        length,
        batch,
        vocabulary: VOCABULARY,
        tied: false,
    }
}

/// GPT-2 with 124 million parameters and 1,024 tokens per sequence, for a GPU.
const fn gpt2(size: &'static str, batch: usize) -> Case {
    Case {
        network: Network::Gpt(Gpt {
            vocabulary: 50_257,
            tied: true,
            ..plain([12, 768, 12, 1024, batch])
        }),
        steps: 12,
        names: ("gpt2", size),
    }
}

const fn gpt(size: &'static str, steps: usize, gpt: Gpt) -> Case {
    Case {
        network: Network::Gpt(gpt),
        steps,
        names: ("gpt", size),
    }
}

const fn cnn(size: &'static str, steps: usize, channels: usize, batch: usize) -> Case {
    Case {
        network: Network::Cnn(Cnn { channels, batch }),
        steps,
        names: ("cnn", size),
    }
}

/// A GPT with the depth and the width of GPT-2, for a GPU.
const GPT_2: Case = gpt("gpt2", 12, plain([12, 768, 12, 512, 8]));

/// Cases of a few elements, for tests of the programs.
const TINY: [Case; 3] = [
    gpt("tiny", 5, plain([1, 64, 2, 16, 2])),
    cnn("tiny", 5, 2, 4),
    Case {
        network: Network::Gpt(Gpt {
            tied: true,
            ..plain([1, 64, 2, 16, 2])
        }),
        steps: 5,
        names: ("gpt2", "tiny"),
    },
];

/// The cases of the argument `all`.
pub const CASES: [Case; 6] = [
    gpt("small", 20, plain([2, 128, 4, 128, 8])),
    gpt("medium", 10, plain([4, 256, 8, 256, 4])),
    gpt("large", 7, plain([6, 384, 6, 256, 8])),
    cnn("small", 20, 16, 64),
    cnn("medium", 10, 32, 128),
    cnn("large", 7, 64, 256),
];

/// Formats a case as `NETWORK,SIZE`, as in a row of the table.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.names.0, self.names.1)
    }
}

/// Parses a case from `NETWORK,SIZE`.
impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of_gpt2 = [GPT_2, gpt2("8", 8), gpt2("16", 16), gpt2("64", 64)];
        let mut cases = CASES.into_iter().chain(of_gpt2).chain(TINY);
        cases
            .find(|case| case.to_string() == text)
            .ok_or_else(|| format!("no case \"{text}\""))
    }
}
