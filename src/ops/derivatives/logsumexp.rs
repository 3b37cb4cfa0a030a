//! The gradient of `logsumexp` for a tracked backward pass.

use super::Gradients;
use super::evaluation::{Derivation, evaluate};
use super::forward::{Derived, Forward};
use super::reduction::{GRADIENT, RESULT, TrackedReduction, given, sum_number, sum_of};
use super::values::JointValue;
use crate::array::{AnyArray, AxisSet};
use crate::context::Device;
use crate::error::Result;
use crate::ops::expression::graph::NodeKind;
use crate::ops::expression::template::{GraphTemplate, Placeholder};
use cachescope_kernels::reduce::ReductionRule as Rule;

/// The softmax of the elements, as an array.
const SOFTMAX: Placeholder = sum_number(1);

/// The nodes of the elements `x`, of their shares exp(`x` − result), and of the softmax.
struct SoftmaxNodes {
    elements: u32,
    share: u32,
    softmax: u32,
}

/// Passes the gradient of a logsumexp along `axes` back to the operands of `forward`. `upstream` is
/// the gradient of `result`. `upstream` and `result` are broadcast over the reduced axes.
///
/// The softmax of the elements is a separate step of the tape. So [`Rule::Softmax`] computes the
/// derivatives of the gradient. The two subtractions of this rule are accurate, even if one element
/// is far above all other elements.
#[track_caller]
pub(super) fn pass_back_by_softmax(
    (mut derivation, forward): (Derivation<AnyArray>, &Forward),
    (device, axes): (&Device, AxisSet),
    (upstream, result): (Option<AnyArray>, Option<AnyArray>),
    gradients: &mut Gradients,
) -> Result<()> {
    let (joint, derived, nodes) = derive(forward)?;
    (derivation.joint, derivation.derived) = (joint, derived);
    let shape = derivation.shape;
    let saved_value = |own: Placeholder| given(own, &upstream, &result, &[]);
    let elements = derivation.graph(&saved_value, &[nodes.elements])?;
    let wide = elements.first().dtype;
    let step = TrackedReduction::begin(&elements, ("softmax", Some(Rule::Softmax), wide), axes)?;
    let shares = derivation.graph(&saved_value, &[nodes.share])?;
    let sum = sum_of(&shares, &shape, axes)?;
    let sum = [AnyArray {
        layout: sum.layout.broadcast_to(&shape)?,
        ..sum
    }];
    let saved_value = |own: Placeholder| given(own, &upstream, &result, &sum);
    let softmax = derivation.graph(&saved_value, &[nodes.softmax])?;
    let buffer = evaluate(&softmax, device, &shape)?;
    let softmax = AnyArray::of_shape(step.finish(buffer, &shape), &shape, wide);
    let saved_value = |own: Placeholder| match own {
        SOFTMAX => Some(&softmax),
        own => given(own, &upstream, &result, &[]),
    };
    derivation.pass_back((device, None), &saved_value, gradients)
}

/// Returns the nodes of the gradients, as functions of the softmax, and the nodes of the softmax.
#[track_caller]
fn derive(forward: &Forward) -> Result<(GraphTemplate, Vec<Derived>, SoftmaxNodes)> {
    let result = forward.results[0];
    let mut nodes = None;
    let (joint, derived) = forward.derive(|joint| {
        let dtype = joint.borrow().nodes[result].dtype;
        let wide = dtype.computed_in();
        let saved = |placeholder, dtype| {
            let mut joint = joint.borrow_mut();
            let node = joint.push(NodeKind::Array(placeholder), dtype);
            joint.widened(node)
        };
        let [g, r] = [GRADIENT, RESULT].map(|own| saved(own, dtype));
        let [sum, softmax] = [sum_number(0), SOFTMAX].map(|own| saved(own, wide));
        let x = joint.borrow_mut().widened(result as u32);
        let [x, g, r, sum, softmax] =
            [x, g, r, sum, softmax].map(|node| JointValue::new(joint, node));
        let share = (x - r).exp();
        // If all elements of a lane are −∞, their shares are NaN.
        let counts = x.not_equal(f64::NEG_INFINITY);
        nodes = Some(SoftmaxNodes {
            elements: x.node,
            share: share.node,
            softmax: (share / sum).only_where(counts).node,
        });
        let gradient = (g * softmax).only_where(counts);
        Ok(std::iter::once((result, gradient.node)).collect())
    })?;
    Ok((
        joint,
        derived,
        nodes.expect("the closure has set the nodes"),
    ))
}
