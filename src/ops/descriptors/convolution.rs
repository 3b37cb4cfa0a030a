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

    /// Returns a bound of the scratch memory that a job of one row needs, in bytes, for results or
    /// for either gradient. Returns `None` if the bound overflows.
    pub(in crate::ops) fn scratch_bytes(&self, element_bytes: usize) -> Option<usize> {
        /// The most planes of a row that are packed without gaps, and the most rows of sums.
        const PLANES: usize = 8;
        const SUMS: usize = 40;
        let [(row_planes, row_reach, _), (planes, _, span)] = [0, 1].map(|at| {
            let reach = (self.kernel[at] - 1) * self.dilation[at] / self.stride[at];
            let longest = self.result[at].max(self.image[at] + self.padding[at]);
            (self.kernel[at].min(self.stride[at]), reach, longest + reach)
        });
        let rows = (self.channels.max(self.outputs))
            .checked_mul(row_planes)?
            .checked_mul(planes.max(PLANES))?
            .checked_mul(row_reach + 1)?
            .checked_add(SUMS)?;
        rows.checked_mul(span)?.checked_mul(element_bytes)
    }

    /// Returns the number of passes of the gradient of the images. Returns `None` if it overflows.
    pub(in crate::ops) fn passes(&self) -> Option<usize> {
        let [rows, columns] = [0, 1].map(|at| self.image[at].min(self.stride[at]));
        rows.checked_mul(columns)
    }
}
