//! The inner nodes of kernels: each passes a run of its children through its operation.

use crate::array::Element;
use crate::array::scalar::convert;
use crate::ops::node::{Binary, BinaryOp, Cast, Scalar, Select, Unary, UnaryOp};

use super::kernel::{Kernel, Run};

impl<T: Element> Kernel for Scalar<T> {
    type Item = T;
    type Scratch = ();
    type Run = Self;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn prepare(&self, _scratch: *mut ()) {}

    #[inline(always)]
    unsafe fn run(&self, _start: usize, _count: usize, _scratch: *mut ()) -> Self {
        *self
    }
}

impl<T: Element> Run for Scalar<T> {
    type Item = T;

    #[inline(always)]
    unsafe fn at(self, _index: usize) -> T {
        self.0
    }
}

impl<X: Kernel, Op: UnaryOp<X::Item>> Kernel for Unary<Op, X> {
    type Item = Op::Output;
    type Scratch = X::Scratch;
    type Run = Unary<Op, X::Run>;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        self.x.is_flat()
    }

    #[inline(always)]
    unsafe fn prepare(&self, scratch: *mut X::Scratch) {
        // SAFETY: the caller keeps this contract.
        unsafe { self.x.prepare(scratch) };
    }

    #[inline(always)]
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut X::Scratch) -> Self::Run {
        Unary {
            op: self.op,
            // SAFETY: the caller keeps this contract.
            x: unsafe { self.x.run(start, count, scratch) },
        }
    }
}

impl<X: Run, Op: UnaryOp<X::Item>> Run for Unary<Op, X> {
    type Item = Op::Output;

    #[inline(always)]
    unsafe fn at(self, index: usize) -> Op::Output {
        // SAFETY: the caller keeps this contract.
        Op::apply(unsafe { self.x.at(index) })
    }
}

impl<A, B, Op> Kernel for Binary<Op, A, B>
where
    A: Kernel,
    B: Kernel<Item = A::Item>,
    Op: BinaryOp<A::Item>,
{
    type Item = Op::Output;
    type Scratch = (A::Scratch, B::Scratch);
    type Run = Binary<Op, A::Run, B::Run>;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        self.left.is_flat() && self.right.is_flat()
    }

    #[inline(always)]
    unsafe fn prepare(&self, scratch: *mut Self::Scratch) {
        // SAFETY: the caller keeps this contract.
        unsafe {
            self.left.prepare(&raw mut (*scratch).0);
            self.right.prepare(&raw mut (*scratch).1);
        }
    }

    #[inline(always)]
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut Self::Scratch) -> Self::Run {
        Binary {
            op: self.op,
            // SAFETY: the caller keeps this contract.
            left: unsafe { self.left.run(start, count, &raw mut (*scratch).0) },
            // SAFETY: as above.
            right: unsafe { self.right.run(start, count, &raw mut (*scratch).1) },
        }
    }
}

impl<A, B, Op> Run for Binary<Op, A, B>
where
    A: Run,
    B: Run<Item = A::Item>,
    Op: BinaryOp<A::Item>,
{
    type Item = Op::Output;

    #[inline(always)]
    unsafe fn at(self, index: usize) -> Op::Output {
        // SAFETY: the caller keeps this contract.
        unsafe { Op::apply(self.left.at(index), self.right.at(index)) }
    }
}

impl<M, A, B> Kernel for Select<M, A, B>
where
    M: Kernel<Item = bool>,
    A: Kernel,
    B: Kernel<Item = A::Item>,
{
    type Item = A::Item;
    type Scratch = (M::Scratch, A::Scratch, B::Scratch);
    type Run = Select<M::Run, A::Run, B::Run>;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        self.mask.is_flat() && self.yes.is_flat() && self.no.is_flat()
    }

    #[inline(always)]
    unsafe fn prepare(&self, scratch: *mut Self::Scratch) {
        // SAFETY: the caller keeps this contract.
        unsafe {
            self.mask.prepare(&raw mut (*scratch).0);
            self.yes.prepare(&raw mut (*scratch).1);
            self.no.prepare(&raw mut (*scratch).2);
        }
    }

    #[inline(always)]
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut Self::Scratch) -> Self::Run {
        Select {
            // SAFETY: the caller keeps this contract.
            mask: unsafe { self.mask.run(start, count, &raw mut (*scratch).0) },
            // SAFETY: as above.
            yes: unsafe { self.yes.run(start, count, &raw mut (*scratch).1) },
            // SAFETY: as above.
            no: unsafe { self.no.run(start, count, &raw mut (*scratch).2) },
        }
    }
}

impl<M, A, B> Run for Select<M, A, B>
where
    M: Run<Item = bool>,
    A: Run,
    B: Run<Item = A::Item>,
{
    type Item = A::Item;

    #[inline(always)]
    unsafe fn at(self, index: usize) -> A::Item {
        // Both are read, so that the loop has no branch.
        // SAFETY: the caller keeps this contract.
        let (mask, yes, no) =
            unsafe { (self.mask.at(index), self.yes.at(index), self.no.at(index)) };
        if mask { yes } else { no }
    }
}

impl<U: Element, X: Kernel> Kernel for Cast<U, X> {
    type Item = U;
    type Scratch = X::Scratch;
    type Run = Cast<U, X::Run>;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        self.x.is_flat()
    }

    #[inline(always)]
    unsafe fn prepare(&self, scratch: *mut X::Scratch) {
        // SAFETY: the caller keeps this contract.
        unsafe { self.x.prepare(scratch) };
    }

    #[inline(always)]
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut X::Scratch) -> Self::Run {
        Cast {
            target: self.target,
            // SAFETY: the caller keeps this contract.
            x: unsafe { self.x.run(start, count, scratch) },
        }
    }
}

impl<U: Element, X: Run> Run for Cast<U, X> {
    type Item = U;

    #[inline(always)]
    unsafe fn at(self, index: usize) -> U {
        // SAFETY: the caller keeps this contract.
        convert(unsafe { self.x.at(index) })
    }
}
