//! Evaluations and assignments of several expressions in one pass.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::array::{AnyArray, AnyElement, Array, Buffer, Layout};
use crate::context::Device;
use crate::device::Use;
use crate::error::Result;
use crate::ops::derivatives;
use crate::ops::derivatives::evaluate_all;
use crate::ops::dispatch::{Hoisted, device_for, device_mismatch, store};
use crate::ops::expression::expr::sealed::Sealed;
use crate::ops::expression::expr::{Expr, IntoExpr, Lazy};
use crate::ops::expression::graph::{ExpressionGraph, MOST_RESULTS};
use crate::ops::expression::node::Leaf;
use crate::ops::expression::tree::{Tree, operands};
use crate::ops::host::{FusedStore, Fusing};
use crate::ops::order::aliasing::{Aliasing, Overwritable, Target};
use crate::ops::order::{HostOrder, TouchedMemory, UpdateTargets};
use crate::ops::write::assign::{
    check_device, check_shape, is_tracked, note_copy_on_write, overwrite_or_replace,
};

/// Evaluates several expressions together. Expressions of one shape are computed in one pass over
/// their operands. Common subexpressions are computed once. Each result has its own allocation. For
/// a tuple of up to eight expressions, returns the tuple of their arrays.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
///
/// let x = Array::from_slice(&[0.0_f32, 1.0], 2)?;
/// let e = x.exp();
/// let (value, slope) = cachescope::eval((&e * 2.0, e.cast::<f64>()))?; // `exp` is computed once
/// assert_eq!(value.to_vec()?, [2.0, 2.0 * 1.0_f32.exp()]);
/// assert_eq!(slope.shape(), [2]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Lazy::eval`] for any expression, and
/// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) if operands of two expressions are on
/// different devices.
#[track_caller]
pub fn eval<S: Several>(expressions: S) -> Result<S::Arrays> {
    expressions.evaluate()
}

/// Sets the elements of several arrays together, in place like [`Array::assign`]. `values` receives
/// each array as an expression, and returns the new values of all arrays. The expressions read the
/// old values, even of arrays that are set earlier. Arrays of one shape are read and written in one
/// pass, in which common subexpressions are computed once. Up to three small arrays on the host may
/// be written one after another instead. This takes less time.
///
/// # Examples
///
/// A step of Adam, which reads and writes each of three arrays once:
///
/// ```
/// use cachescope::Array;
///
/// let g = Array::from_slice(&[1.0_f32, -2.0], 2)?;
/// let (mut w, mut m, mut v) = (Array::zeros(2)?, Array::zeros(2)?, Array::zeros(2)?);
/// cachescope::update((&mut w, &mut m, &mut v), |(w, m, v)| {
///     let m = m * 0.9 + &g * 0.1;
///     let v = v * 0.999 + g.square() * 0.001;
///     (w - 0.1 * &m / (v.sqrt() + 1e-8), m, v)
/// })?;
/// assert_eq!(m.to_vec()?, [0.1, -0.2]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Array::assign`] for any array. If there is an error, no array was written.
#[track_caller]
pub fn update<G: Targets, R: Values<G>>(
    targets: G,
    values: impl FnOnce(G::Expressions) -> R,
) -> Result<()> {
    let values = values(targets.expressions());
    values.store(targets)
}

/// The argument of [`eval`]: a tuple of up to eight expressions and arrays.
pub trait Several: Sized {
    /// The tuple of the results.
    type Arrays;

    #[doc(hidden)]
    #[track_caller]
    fn evaluate(self) -> Result<Self::Arrays>;
}

/// The targets of [`update`]: a tuple of up to eight exclusively borrowed arrays.
pub trait Targets {
    /// The tuple of the arrays as expressions.
    type Expressions;

    #[doc(hidden)]
    fn expressions(&self) -> Self::Expressions;
}

/// The new values of the arrays `G`: a tuple of expressions, arrays and single values.
pub trait Values<G> {
    #[doc(hidden)]
    #[track_caller]
    fn store(self, targets: G) -> Result<()>;
}

/// An argument of [`eval`]: an expression or an array.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither an expression nor an array",
    note = "`cachescope::eval` takes a tuple of expressions and arrays, as in `eval((&a + &b, &a \
            * &b))`"
)]
pub trait One: Sealed {
    /// The type of the elements.
    type Item: AnyElement;

    /// The type of the expression.
    type Expr: Expr<Item = Self::Item>;

    #[doc(hidden)]
    #[track_caller]
    fn lazily(self) -> Lazy<Self::Expr>;
}

macro_rules! one {
    ($([$($of:tt)+] $one:ty: $item:ty, $expr:ty;)+) => {
        $(
            impl<$($of)+> Sealed for $one {}

            impl<$($of)+> One for $one {
                type Item = $item;
                type Expr = $expr;

                fn lazily(self) -> Lazy<$expr> {
                    IntoExpr::<$item>::into_lazy(self)
                }
            }
        )+
    };
}

one! {
    [E: Expr] Lazy<E>: E::Item, E;
    [E: Expr] &Lazy<E>: E::Item, E;
    [T: AnyElement] Array<T>: T, Leaf<T>;
    [T: AnyElement] &Array<T>: T, Leaf<T>;
}

macro_rules! tuples {
    ($($name:ident $value:ident $index:tt),+) => {
        impl<$($name: One),+> Several for ($($name,)+) {
            type Arrays = ($(Array<$name::Item>,)+);

            #[track_caller]
            fn evaluate(self) -> Result<Self::Arrays> {
                let lazy = ($(self.$index.lazily(),)+);
                let mut results = evaluate_trees(&[$(&lazy.$index.expr),+])?;
                Ok(($(taken(&mut results[$index]),)+))
            }
        }

        impl<$($name: AnyElement),+> Targets for ($(&mut Array<$name>,)+) {
            type Expressions = ($(Lazy<Leaf<$name>>,)+);

            fn expressions(&self) -> Self::Expressions {
                ($(self.$index.lazy(),)+)
            }
        }

        impl<'a, $($name: AnyElement,)+ $($value: IntoExpr<$name>),+> Values<($(&'a mut Array<$name>,)+)> for ($($value,)+) {
            #[track_caller]
            fn store(self, targets: ($(&'a mut Array<$name>,)+)) -> Result<()> {
                let lazy = ($(self.$index.into_lazy(),)+);
                let places = [$(Target::new(targets.$index.erased_mut())),+];
                if store_in_turn(&places, &[$(&lazy.$index.expr),+])? {
                    return Ok(());
                }
                let trees: &[&dyn Tree] = &[$(&lazy.$index.expr),+];
                let fresh = assign_all(&places, trees)?;
                let mut fresh = fresh.into_iter();
                $(
                    replace(targets.$index.erased_mut(), fresh.next().flatten(), trees);
                )+
                Ok(())
            }
        }
    };
}

tuples!(A RA 0);
tuples!(A RA 0, B RB 1);
tuples!(A RA 0, B RB 1, C RC 2);
tuples!(A RA 0, B RB 1, C RC 2, D RD 3);
tuples!(A RA 0, B RB 1, C RC 2, D RD 3, E RE 4);
tuples!(A RA 0, B RB 1, C RC 2, D RD 3, E RE 4, F RF 5);
tuples!(A RA 0, B RB 1, C RC 2, D RD 3, E RE 4, F RF 5, G RG 6);
tuples!(A RA 0, B RB 1, C RC 2, D RD 3, E RE 4, F RF 5, G RG 6, H RH 7);

const _: () = assert!(MOST_RESULTS == 8, "the longest tuple has eight expressions");

/// The computed elements of a result or a target, until they are taken.
type Fresh = Option<(Buffer, Layout)>;

/// A list with an entry for each result or target.
type All<T> = SmallVec<[T; 4]>;

/// Replaces the memory of `array` by `fresh`, if `fresh` has computed elements. The expressions
/// `held` do not count as sharing.
#[track_caller]
fn replace(array: &mut AnyArray, fresh: Fresh, held: &[&dyn Tree]) {
    if let Some((buffer, layout)) = fresh {
        note_copy_on_write(array, &buffer, held);
        *array = AnyArray::new(buffer, layout, array.dtype);
    }
}

fn taken<T: AnyElement>(fresh: &mut Fresh) -> Array<T> {
    let (buffer, layout) = fresh.take().expect("each result is taken once");
    Array::from_parts(buffer, layout)
}

/// Returns the groups of indices with equal keys, in the order of the first index of each group.
fn groups<K: PartialEq>(keys: impl Iterator<Item = K>) -> All<All<usize>> {
    let mut groups: All<(K, All<usize>)> = SmallVec::new();
    for (number, key) in keys.enumerate() {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, members)) => members.push(number),
            None => groups.push((key, All::from_elem(number, 1))),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// Returns the elements of each of `trees`. All trees of one shape are computed in one pass.
#[track_caller]
fn evaluate_trees(trees: &[&dyn Tree]) -> Result<All<Fresh>> {
    let graph = ExpressionGraph::of_all(trees)?;
    let device = device_for("eval", &graph)?;
    let mut fresh: All<Fresh> = trees.iter().map(|_| None).collect();
    let results = graph.results();
    let shape_of = |number: usize| *graph.shape_of(results[number]);
    for group in groups((0..trees.len()).map(shape_of)) {
        let wanted: All<usize> = group.iter().map(|&number| results[number]).collect();
        let part = graph.rebuilt(&wanted, &[]);
        let layout = Layout::contiguous(&shape_of(group[0]))?;
        let buffers = evaluate_all(&part, &device, layout.shape())?;
        for (&number, buffer) in group.iter().zip(buffers) {
            fresh[number] = Some((buffer, layout));
        }
    }
    Ok(fresh)
}

/// The maximum number of elements for which a loop for each target is faster than one program for
/// all targets. The elements fit in a part of the first-level cache.
const SMALL: usize = 1 << 12;
/// The maximum number of targets that are written one after another. It is small, because each
/// target computes common subexpressions again.
const FEW: usize = 3;

/// Writes small targets one after another, by the fused loops of their expressions. Each expression
/// must have a fused loop. There must be an order in which no expression reads a target that was
/// already written. Returns whether the targets were written.
#[track_caller]
fn store_in_turn(targets: &[Target<'_>], values: &[&dyn Fusing]) -> Result<bool> {
    let (device, shape) = (targets[0].device(), targets[0].layout().shape());
    let is_small = shape.checked_len().is_ok_and(|len| len <= SMALL);
    let is_host = device.backend().cuda().is_none();
    if !(is_small && is_host && targets.len() <= FEW) || derivatives::is_live() {
        return Ok(false);
    }
    let Some(order) = order_of_writes(targets, values) else {
        return Ok(false);
    };
    let mut trees: All<&dyn Tree> = SmallVec::new();
    values.iter().for_each(|value| trees.push(*value));
    let mut stores: All<FusedStore<'_>> = SmallVec::new();
    for &at in &order {
        let (target, value) = (targets[at], values[at]);
        let mut has_loop = false;
        value.fused(shape, &mut |_| has_loop = true);
        let is_alike = target.device() == device && target.layout().shape() == shape;
        // `trees[1..]` are the other trees.
        trees.swap(0, at);
        let store = FusedStore::new(value, &trees[1..], target);
        trees.swap(0, at);
        match store {
            Some(store) if store.is_dense() && has_loop && is_alike => stores.push(store),
            _ => return Ok(false),
        }
    }
    // All waits precede the writes, because nothing may be written if a wait fails.
    let buffers: All<&Buffer> = targets.iter().map(Target::buffer).collect();
    let updating = UpdateTargets {
        targets: &buffers,
        reading: ReadByAll(values),
    };
    HostOrder::new(device, &updating)?;
    for store in stores {
        assert!(store.run()?, "each store has a loop, as just checked");
    }
    Ok(true)
}

struct ReadByAll<'a>(&'a [&'a dyn Fusing]);

impl TouchedMemory for ReadByAll<'_> {
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use)) {
        for value in self.0 {
            operands(*value, &mut |operand| see(operand.buffer, Use::Read));
        }
    }
}

/// Returns an order of the targets in which no expression reads a target that was already written.
fn order_of_writes(targets: &[Target<'_>], values: &[&dyn Fusing]) -> Option<All<usize>> {
    let mut left: All<usize> = (0..targets.len()).collect();
    let mut order = All::new();
    while !left.is_empty() {
        let is_read = |at: usize| {
            let mut others = left.iter().filter(|&&other| other != at);
            others.any(|&other| targets[at].is_read_by(values[other]))
        };
        let next = left.iter().position(|&at| !is_read(at))?;
        order.push(left.remove(next));
    }
    Some(order)
}

/// Sets the elements of each target to the elements of its tree. Returns the new memory of each
/// target that was not written in place.
///
/// First, the elements that cannot be written in place are computed into new memory, from old
/// values. Then the other targets are written in place. No other group reads these targets. Last,
/// the computed elements are moved to their targets.
#[track_caller]
fn assign_all(targets: &[Target<'_>], trees: &[&dyn Tree]) -> Result<All<Fresh>> {
    let all = checked(targets, trees)?;
    let device = targets[0].device();
    let mut fresh: All<Fresh> = trees.iter().map(|_| None).collect();
    let groups = groups(targets.iter().map(|target| *target.layout().shape()));
    if derivatives::is_live() && any_tracked(targets, trees)? {
        // Gradients may be computed from the old elements.
        for group in &groups {
            TargetGroup::of(group, targets, trees).compute_aside(&all, device, &mut fresh)?;
        }
        return Ok(fresh);
    }
    let is_alone = groups.len() == 1;
    let (in_place, aside): (All<_>, All<_>) = (groups.into_iter())
        .map(|group| TargetGroup::of(&group, targets, trees))
        .partition(|group| is_alone || group.allows_overwriting());
    for group in &aside {
        group.compute_aside(&all, device, &mut fresh)?;
    }
    // All allocations precede the first write.
    let mut ready: All<_> = All::new();
    for group in &in_place {
        let graph = group.graph(&all);
        match Overwritable::new(&group.targets, &group.read, &group.held) {
            Ok(targets) => {
                let hoisted = Hoisted::of(&graph, device, group.targets[0].layout().shape())?;
                ready.push((graph, hoisted, targets));
            }
            Err(_) => group.compute_aside(&all, device, &mut fresh)?,
        }
    }
    for (graph, hoisted, targets) in ready {
        store(&hoisted.apply(&graph), targets)?;
    }
    for (target, fresh) in targets.iter().zip(&mut fresh) {
        if let Some(computed) = fresh.take() {
            *fresh = overwrite_or_replace(*target, computed, trees)?;
        }
    }
    Ok(fresh)
}

#[track_caller]
fn any_tracked(targets: &[Target<'_>], trees: &[&dyn Tree]) -> Result<bool> {
    for (target, tree) in targets.iter().zip(trees) {
        if is_tracked(target, *tree)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the expression graph of all trees, after checking that each can be assigned to its
/// target.
#[track_caller]
fn checked<'a>(targets: &[Target<'_>], trees: &[&'a dyn Tree]) -> Result<ExpressionGraph<'a>> {
    let graph = ExpressionGraph::of_all(trees)?;
    let first = &targets[0];
    for (number, (target, &result)) in targets.iter().zip(graph.results()).enumerate() {
        check_shape(target.layout().shape(), graph.shape_of(result))?;
        if target.device() != first.device() {
            let name = format!("target {number}");
            let one = ("target 0", first.device(), first.layout().shape());
            let other = (name.as_str(), target.device(), target.layout().shape());
            return Err(device_mismatch("update", one, other));
        }
    }
    check_device("update", first, &graph)?;
    Ok(graph)
}

/// Targets of one shape, which are written in one pass.
struct TargetGroup<'a> {
    numbers: All<usize>,
    targets: All<Target<'a>>,
    /// The trees of this group's targets.
    read: All<&'a dyn Tree>,
    /// The trees of other groups.
    held: All<&'a dyn Tree>,
}

impl<'a> TargetGroup<'a> {
    fn of(numbers: &[usize], targets: &[Target<'a>], trees: &[&'a dyn Tree]) -> Self {
        let is_member = |number: &usize| numbers.contains(number);
        let (members, others): (All<usize>, All<usize>) = (0..trees.len()).partition(is_member);
        Self {
            targets: members.iter().map(|&number| targets[number]).collect(),
            read: members.iter().map(|&number| trees[number]).collect(),
            held: others.iter().map(|&number| trees[number]).collect(),
            numbers: members,
        }
    }

    /// Returns the expression graph of this group's trees, as a part of `all`, the expression graph
    /// of all groups.
    fn graph<'b>(&self, all: &'b ExpressionGraph<'a>) -> Cow<'b, ExpressionGraph<'a>> {
        if self.numbers.len() == all.results().len() {
            return Cow::Borrowed(all);
        }
        let own = self.numbers.iter().map(|&number| all.results()[number]);
        Cow::Owned(all.rebuilt(&own.collect::<All<usize>>(), &[]))
    }

    /// Computes the elements into new memory. `all` is the expression graph of all groups.
    #[track_caller]
    fn compute_aside(
        &self,
        all: &ExpressionGraph<'a>,
        device: &Device,
        fresh: &mut [Fresh],
    ) -> Result<()> {
        let graph = self.graph(all);
        let layout = self.targets[0].layout().dense();
        let buffers = evaluate_all(&graph, device, layout.shape())?;
        for (&number, buffer) in self.numbers.iter().zip(buffers) {
            fresh[number] = Some((buffer, layout));
        }
        Ok(())
    }

    /// Returns whether every target can be overwritten after other groups were computed into new
    /// memory. No other group may read a target: it would read in another order, or read the new
    /// values.
    fn allows_overwriting(&self) -> bool {
        self.targets.iter().all(|target| {
            Aliasing::of(target, &self.read, &self.held).allows_overwriting()
                && !self.held.iter().any(|tree| target.is_read_by(*tree))
        })
    }
}
