//! Operations of neural networks.

pub(in crate::ops) mod attention;
pub(in crate::ops) mod convolution;
pub(in crate::ops) mod norms;
pub(in crate::ops) mod pooling;
