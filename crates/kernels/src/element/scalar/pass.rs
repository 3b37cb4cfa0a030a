//! The two passes over elements: a fast pass and a careful pass.
//!
//! A function of an element is written once, generic over its [`Pass`]. A loop over many elements
//! runs the fast pass. The fast pass has no branches and no calls, so the compiler vectorises the
//! whole loop. If the fast pass cannot compute an element, it flags the element as rare. An example
//! is the sine of a huge number. The careful pass then computes the element's block again. For
//! elements that are not rare, both passes return the same bits. Therefore a result depends on the
//! element alone, never on its neighbours.

/// A pass over elements.
pub trait Pass {
    /// `true` if the processor has a fused multiply-add.
    const FMA: bool;

    /// `true` if rare elements are computed at once, `false` if they are only flagged.
    const CAREFUL: bool;

    /// Records whether an element was rare.
    fn note(&mut self, rare: bool);
}

/// The fast pass, without branches. It flags rare elements, whose results are wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fast<const FMA: bool> {
    rare: u32,
}

impl<const FMA: bool> Fast<FMA> {
    /// Returns whether an element was rare.
    #[inline(always)]
    pub fn met_rare(&self) -> bool {
        self.rare != 0
    }
}

impl<const FMA: bool> Pass for Fast<FMA> {
    const FMA: bool = FMA;
    const CAREFUL: bool = false;

    #[inline(always)]
    fn note(&mut self, rare: bool) {
        self.rare |= u32::from(rare);
    }
}

/// The careful pass, which is correct for every element.
#[derive(Clone, Copy, Debug, Default)]
pub struct Careful<const FMA: bool>;

impl<const FMA: bool> Pass for Careful<FMA> {
    const FMA: bool = FMA;
    const CAREFUL: bool = true;

    #[inline(always)]
    fn note(&mut self, _rare: bool) {}
}

/// Returns `a * b + c`. If the processor has a fused multiply-add, the result is rounded once,
/// otherwise twice.
#[inline(always)]
pub fn multiply_add<L: Pass, A: num_traits::Float>(a: A, b: A, c: A) -> A {
    if L::FMA { a.mul_add(b, c) } else { a * b + c }
}
