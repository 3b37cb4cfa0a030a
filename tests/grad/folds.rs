//! Reductions, softmax and matrix products.

use cachescope::{Array, Result};

use crate::differences::{check, numbers};

macro_rules! reductions {
    ($($name:ident $axis:ident $keepdims:ident;)+) => {
        $(
            #[test]
            fn $name() {
                let x = numbers(&[3, 4, 2], 1.0);
                check(&x, |x| (x * 1.3).$name());
                check(&x, |x| x.exp().$name());
                check(&x, |x| (x.sin().$axis(1)? * numbers(&[3, 2], 1.0)).sum());
                check(&x, |x| (x.$axis([0, 2])? * numbers(&[4], 1.0)).sum());
                check(&x, |x| (x.$keepdims(-1)? * x).sum());
            }
        )+
    };
}

reductions! {
    sum sum_axis sum_keepdims;
    mean mean_axis mean_keepdims;
    max max_axis max_keepdims;
    min min_axis min_keepdims;
    logsumexp logsumexp_axis logsumexp_keepdims;
    norm norm_axis norm_keepdims;
    var var_axis var_keepdims;
    std std_axis std_keepdims;
}

#[test]
fn softmax_and_its_logarithm() {
    let (x, weights) = (numbers(&[3, 4], 2.0), numbers(&[3, 4], 1.0));
    for axis in [0, 1] {
        check(&x, |x| (x.softmax(axis)? * &weights).sum());
        check(&x, |x| (x.log_softmax(axis)? * &weights).sum());
        check(&x, |x| ((x * x).softmax(axis)? * x).sum());
    }
}

#[test]
fn products_of_all_ranks() -> Result<()> {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[2, 3], &[3, 4]),
        (&[3], &[3, 4]),
        (&[2, 3], &[3]),
        (&[3], &[3]),
        (&[5, 2, 3], &[3, 4]),
        (&[2, 3], &[5, 3, 4]),
        (&[5, 1, 2, 3], &[2, 3, 4]),
        (&[5, 2, 3], &[3]),
        (&[3], &[5, 3, 2]),
    ];
    for (left, right) in shapes {
        let (a, b) = (numbers(left, 1.0), numbers(right, 0.8));
        let weights = numbers(a.matmul(&b)?.shape(), 0.5);
        check(&a, |a| (a.matmul(&b)? * &weights).sum());
        check(&b, |b| (a.matmul(b)? * &weights).sum());
        let square = |x: &Array<f64>| -> Result<Array<f64>> {
            let y = (x * 2.0).eval()?;
            (y.matmul(&b)? * &weights).square().sum()
        };
        check(&a, square);
    }
    check(&numbers(&[3, 3], 1.0), |x| {
        x.matmul(x)?.matmul(&x.transpose()?)?.sum()
    });
    Ok(())
}
