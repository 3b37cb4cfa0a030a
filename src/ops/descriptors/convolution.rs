//! The lengths of a convolution.

/// A convolution of images with kernels: for each image and group, each result is the sum of the
/// products of `[channels, h, w]` elements. Pairs are of rows and columns.
///
/// Invariant: the kernel fits the padded image; strides, dilations and groups are at least 1;
/// paddings, strides and dilations are below [`MOST`](Self::MOST).
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct ConvLengths {
    pub(in crate::ops) images: usize,
    pub(in crate::ops) groups: usize,
    /// The channels of an image, of each group.
    pub(in crate::ops) channels: usize,
    /// The channels of a result, of each group.
    pub(in crate::ops) outputs: usize,
    pub(in crate::ops) image: [usize; 2],
    pub(in crate::ops) kernel: [usize; 2],
    pub(in crate::ops) result: [usize; 2],
    pub(in crate::ops) stride: [usize; 2],
    pub(in crate::ops) padding: [usize; 2],
    pub(in crate::ops) dilation: [usize; 2],
}

impl ConvLengths {
    /// The bound of paddings, strides and dilations, below which no position overflows.
    pub(in crate::ops) const MOST: usize = 1 << 30;
}
