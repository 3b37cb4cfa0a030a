//! The trained networks: two kinds of networks, each in three sizes. `python/training.py` uses the
//! same sizes.

use std::fmt;
use std::str::FromStr;

/// The number of different tokens of a GPT.
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
const GPT_2: Case = gpt(
    "gpt2",
    12,
    Gpt {
        layers: 12,
        width: 768,
        heads: 12,
        length: 512,
        batch: 8,
    },
);

/// The cases of the argument `all`.
pub const CASES: [Case; 6] = [
    gpt(
        "small",
        20,
        Gpt {
            layers: 2,
            width: 128,
            heads: 4,
            length: 128,
            batch: 8,
        },
    ),
    gpt(
        "medium",
        10,
        Gpt {
            layers: 4,
            width: 256,
            heads: 8,
            length: 256,
            batch: 4,
        },
    ),
    gpt(
        "large",
        7,
        Gpt {
            layers: 6,
            width: 384,
            heads: 6,
            length: 256,
            batch: 8,
        },
    ),
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
        let mut cases = CASES.into_iter().chain([GPT_2]);
        cases
            .find(|case| case.to_string() == text)
            .ok_or_else(|| format!("no case \"{text}\""))
    }
}
