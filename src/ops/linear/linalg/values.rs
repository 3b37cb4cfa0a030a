//! The gradients of eigenvalues and singular values, with derivatives that are right for equal
//! values, too.
//!
//! The gradient V diag(g) Vᵀ does not depend on the basis of equal values. Its derivative along a
//! direction does, because the values split, in the basis that [`adapted`] finds.
//!
//! The backward pass of the gradient knows the direction, which is the cotangent. The step of the
//! factorization runs later in that pass. It reads the basis from a [`ChosenVectors`].
//!
//! [`adapted`]: super::adapted

use std::cell::RefCell;
use std::rc::Rc;

use super::adapted;
use super::gradients::{symmetric, t};
use crate::array::{AnyArray, Array};
use crate::error::Result;
use crate::ops::derivatives::{RuledOperation, constant, is_tracked};
use crate::ops::descriptors::Factorized;

/// The vectors that a backward pass chose for equal values, until the step of the factorization
/// uses them.
#[derive(Clone)]
pub(super) struct ChosenVectors<T: Factorized>(Rc<RefCell<Option<[Array<T>; 2]>>>);

impl<T: Factorized> ChosenVectors<T> {
    pub(super) fn none() -> Self {
        Self(Rc::default())
    }

    fn set(&self, vectors: &[Array<T>; 2]) {
        *self.0.borrow_mut() = Some(vectors.clone());
    }

    fn take(&self) -> Option<[Array<T>; 2]> {
        self.0.borrow_mut().take()
    }
}

/// Returns V diag(g) Vᵀ for the gradient g of the eigenvalues w.
#[track_caller]
pub(super) fn of_eigenvalues<T: Factorized>(
    [w, v]: [&Array<T>; 2],
    g: &Array<T>,
    choice: &ChosenVectors<T>,
) -> Result<Array<T>> {
    let step = RuledOperation::begin_typed("eigh", &[v, g])?;
    let chosen = choice.take().map(|[v, _]| v);
    let own = chosen.as_ref().unwrap_or(v);
    let result = (own * g.unsqueeze(-2)?).eval_unfused()?.matmul(&t(own)?)?;
    let w = constant(w);
    Ok(step.finish_typed(result, |saved| {
        let (v, g, choice) = (saved.save_typed(v), saved.save_typed(g), choice.clone());
        move |cotangent: AnyArray| {
            let change = symmetric(&cotangent.into_array())?;
            let of_v = (change.matmul(&v)? * g.unsqueeze(-2)? * T::from_f64(2.0)).eval_unfused()?;
            let along = match is_tracked(&v)? {
                true => None,
                false => adapted::eigenvectors_along(&change, [&w, &v])?,
            };
            if let Some(along) = &along {
                choice.set(&[along.clone(), along.clone()]);
            }
            let own = along.as_ref().unwrap_or(&v);
            let of_g = (change.matmul(own)? * own).sum_axis(-2)?;
            Ok(vec![AnyArray::of(&of_v), AnyArray::of(&of_g)])
        }
    }))
}

/// Returns U diag(g) Vᵀ for the gradient g of the singular values s.
#[track_caller]
pub(super) fn of_singular_values<T: Factorized>(
    [u, s, vt]: [&Array<T>; 3],
    g: &Array<T>,
    choice: &ChosenVectors<T>,
) -> Result<Array<T>> {
    let step = RuledOperation::begin_typed("svd", &[u, g, vt])?;
    let chosen = choice.take();
    let [left, right] = chosen.as_ref().map_or([u, vt], <[_; 2]>::each_ref);
    let result = (left * g.unsqueeze(-2)?).eval_unfused()?.matmul(right)?;
    let s = constant(s);
    Ok(step.finish_typed(result, |saved| {
        let [u, g, vt] = [u, g, vt].map(|own| saved.save_typed(own));
        let choice = choice.clone();
        move |cotangent: AnyArray| {
            let change: Array<T> = cotangent.into_array();
            let of_u = (change.matmul(&t(&vt)?)? * g.unsqueeze(-2)?).eval_unfused()?;
            let of_vt = (t(&u)?.matmul(&change)? * g.unsqueeze(-1)?).eval_unfused()?;
            let along = match is_tracked(&u)? {
                true => None,
                false => adapted::singular_vectors_along(&change, [&u, &s, &vt])?,
            };
            if let Some(along) = &along {
                choice.set(along);
            }
            let [left, right] = along.as_ref().map_or([&u, &vt], <[_; 2]>::each_ref);
            let of_g = (change.matmul(&t(right)?)? * left).sum_axis(-2)?;
            Ok([of_u, of_g, of_vt].map(|own| AnyArray::of(&own)).into())
        }
    }))
}
