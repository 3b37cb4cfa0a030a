//! The lengths of a convolution.

/// A convolution of images with kernels. A result is the sum of products of `[channels, h, w]`
/// elements of an image and of a kernel. In each array of two numbers, the first is for rows, and
/// the second for columns.
///
/// Invariant: The kernel fits the padded image. Strides, dilations and groups are at least 1.
/// Paddings, strides and dilations are below [`MOST`](Self::MOST).
#[derive(Clone, Copy, Debug)]
pub struct ConvLengths {
    pub images: usize,
    pub groups: usize,
    /// The number of channels of an image in each group.
    pub channels: usize,
    /// The number of channels of a result in each group.
    pub outputs: usize,
    pub image: [usize; 2],
    pub kernel: [usize; 2],
    pub result: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

impl ConvLengths {
    /// The exclusive bound of paddings, strides and dilations. Below the bound, positions do not
    /// overflow.
    pub const MOST: usize = 1 << 30;

    /// Returns a bound of the scratch memory that a job of one row needs, in bytes. The bound holds
    /// for the convolution and both gradients. If the bound overflows, returns `None`.
    pub fn scratch_bytes(&self, element_bytes: usize) -> Option<usize> {
        let phases = [0, 1].map(|at| self.kernel[at].min(self.stride[at]));
        let columns = (self.image[1] + self.padding[1]) / self.stride[1] + 1;
        let gathered = self.row_elements(self.channels, phases, self.result[1])?;
        let transposed = self.row_elements(self.outputs, [1, 1], columns)?;
        gathered.max(transposed).checked_mul(element_bytes)
    }

    /// Returns a bound of the scratch memory for one row of `count` results, in elements. Each of
    /// `channels` has a plane for each of the `phases`. If the bound overflows, returns `None`.
    fn row_elements(&self, channels: usize, phases: [usize; 2], count: usize) -> Option<usize> {
        /// The maximum number of gapless planes of a row.
        const PLANES: usize = 8;
        const SUMS: usize = 40;
        let planes = phases[1].max(PLANES.min(self.kernel[1]));
        let rows = channels.checked_mul(phases[0])?.checked_mul(planes)?;
        let rows = rows.checked_add(phases[1])?;
        let rows = rows.checked_mul(self.reach(0) + 1)?.checked_add(SUMS)?;
        rows.checked_mul(count + self.reach(1))
    }

    /// Returns the distance between the first and the last row (or column) that a result is summed
    /// from.
    pub fn reach(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1) * self.dilation[axis] / self.stride[axis]
    }

    /// Returns the number of passes of the gradient of the images. If the number overflows, returns
    /// `None`.
    pub fn passes(&self) -> Option<usize> {
        let [rows, columns] = [0, 1].map(|at| self.image[at].min(self.stride[at]));
        rows.checked_mul(columns)
    }
}
