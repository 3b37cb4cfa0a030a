//! Functions from the positions of elements to their values.

/// A function from positions to elements.
pub(in crate::ops) trait Fill<T>: Copy + Send + Sync + 'static {
    /// Writes the elements from position `start` on to `part`, of at most `host::RUN` of them. This
    /// function and all that it calls must be marked `#[inline(always)]`, so that they are compiled
    /// for vectors.
    fn fill(&self, start: usize, part: &mut [T]);

    /// The name in error messages.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    const NAME: &'static str;

    /// The function in CUDA C++, in parts: the structure `Operands`, whose first member is `draws`,
    /// and the function `fill`, which makes `CS_BLOCK` elements of the stored type `I` from a block
    /// of words.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    const CUDA: &'static [&'static str];

    /// Calls `visit` with the bits of every member of `Operands`, each of which takes eight bytes.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    fn operands(&self, visit: &mut dyn FnMut(u64));
}
