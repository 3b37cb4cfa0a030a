//! The gradients of eigenvalues and singular values. The derivatives of these gradients are also
//! correct for equal values.
//!
//! The gradient V diag(g) Vᵀ does not depend on the choice of the vectors of equal values. The
//! derivative of the gradient along a direction depends on this choice, because the equal values
//! split. [`adapted`] computes these vectors.
//!
//! In the backward pass of the gradient, the direction is known: it is the cotangent. The step of
//! the factorization runs later in this pass, and reads the vectors from a [`ChosenVectors`].
//!
//! [`adapted`]: super::adapted

use std::cell::RefCell;
use std::rc::Rc;

use super::adapted;
use super::gradients::{symmetric, t};
use crate::array::AnyArray;
use crate::error::Result;
use crate::ops::derivatives::{RuledOperation, is_any_tracked};

/// The vectors that a backward pass chose for equal values. The step of the factorization takes
/// them.
#[derive(Clone)]
pub(super) struct ChosenVectors(Rc<RefCell<Option<[AnyArray; 2]>>>);

impl ChosenVectors {
    pub(super) fn none() -> Self {
        Self(Rc::default())
    }

    fn set(&self, vectors: &[AnyArray; 2]) {
        *self.0.borrow_mut() = Some(vectors.clone());
    }

    fn take(&self) -> Option<[AnyArray; 2]> {
        self.0.borrow_mut().take()
    }
}

/// Returns V diag(g) Vᵀ for the gradient g of the eigenvalues w.
#[track_caller]
pub(super) fn of_eigenvalues(
    [w, v]: [&AnyArray; 2],
    g: &AnyArray,
    choice: &ChosenVectors,
) -> Result<AnyArray> {
    let step = RuledOperation::begin("eigh", &[v, g])?;
    let chosen = choice.take().map(|[v, _]| v);
    let own = chosen.as_ref().unwrap_or(v);
    let scaled = (own.lazy() * g.unsqueeze(-2)?.lazy()).eval()?;
    let result = scaled.matmul(&t(own)?)?;
    let w = w.share().untracked();
    Ok(step.finish(result, |saved| {
        let (v, g, choice) = (saved.save(v), saved.save(g), choice.clone());
        move |cotangent: AnyArray| {
            let change = symmetric(&cotangent)?;
            let turned = change.matmul(&v)?.lazy();
            let of_v = (turned * g.unsqueeze(-2)?.lazy() * 2.0).eval()?;
            let along = match is_any_tracked(&[&v])? {
                true => None,
                false => adapted::eigenvectors_along(&change, [&w, &v])?,
            };
            if let Some(along) = &along {
                choice.set(&[along.share(), along.share()]);
            }
            let own = along.as_ref().unwrap_or(&v);
            let of_g = (change.matmul(own)?.lazy() * own.lazy()).sum_axis(-2)?;
            Ok(vec![of_v, of_g])
        }
    }))
}

/// Returns U diag(g) Vᵀ for the gradient g of the singular values s.
#[track_caller]
pub(super) fn of_singular_values(
    [u, s, vt]: [&AnyArray; 3],
    g: &AnyArray,
    choice: &ChosenVectors,
) -> Result<AnyArray> {
    let step = RuledOperation::begin("svd", &[u, g, vt])?;
    let chosen = choice.take();
    let [left, right] = chosen.as_ref().map_or([u, vt], <[_; 2]>::each_ref);
    let scaled = (left.lazy() * g.unsqueeze(-2)?.lazy()).eval()?;
    let result = scaled.matmul(right)?;
    let s = s.share().untracked();
    Ok(step.finish(result, |saved| {
        let [u, g, vt] = [u, g, vt].map(|own| saved.save(own));
        let choice = choice.clone();
        move |change: AnyArray| {
            let of_u = change.matmul(&t(&vt)?)?.lazy() * g.unsqueeze(-2)?.lazy();
            let of_u = of_u.eval()?;
            let of_vt = t(&u)?.matmul(&change)?.lazy() * g.unsqueeze(-1)?.lazy();
            let of_vt = of_vt.eval()?;
            let along = match is_any_tracked(&[&u])? {
                true => None,
                false => adapted::singular_vectors_along(&change, [&u, &s, &vt])?,
            };
            if let Some(along) = &along {
                choice.set(along);
            }
            let [left, right] = along.as_ref().map_or([&u, &vt], <[_; 2]>::each_ref);
            let of_g = (change.matmul(&t(right)?)?.lazy() * left.lazy()).sum_axis(-2)?;
            Ok(vec![of_u, of_g, of_vt])
        }
    }))
}
