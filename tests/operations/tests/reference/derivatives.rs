//! The gradient of every differentiable function in every type, compared with exact derivatives of
//! `derivatives.py`.

use cachescope::grad::{Parameters, jvp, value_and_grad};
use cachescope::{AnyElement, Array, Float, Result};
use half::{bf16, f16};

/// A line of the table, with the gradients of the weighted sum of a function's results.
struct Line<'a> {
    name: &'a str,
    arguments: Vec<f64>,
    weights: Vec<f64>,
    gradients: Vec<f64>,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        let mut parts = line.split(';');
        let name = parts.next().unwrap();
        let mut numbers = || -> Vec<f64> {
            let part = parts.next().unwrap();
            part.split(' ')
                .map(|number| number.parse().unwrap())
                .collect()
        };
        Self {
            name,
            arguments: numbers(),
            weights: numbers(),
            gradients: numbers(),
        }
    }
}

/// An element type, with the unit in the last place of 1, and the smallest and largest normal
/// number.
trait Narrow: Float + AnyElement<Total = Self, Average = Self> {
    const NAME: &'static str;
    const ULP: f64;
    const LEAST: f64;
    const MOST: f64;
}

macro_rules! narrow {
    ($($type:ident $ulp:literal;)+) => {
        $(impl Narrow for $type {
            const NAME: &'static str = stringify!($type);
            const ULP: f64 = 1.0 / (1_u64 << $ulp) as f64;
            const LEAST: f64 = $type::MIN_POSITIVE as f64;
            const MOST: f64 = $type::MAX as f64;
        })+
    };
}

narrow! { f32 23; f64 52; }

impl Narrow for f16 {
    const NAME: &'static str = "f16";
    const ULP: f64 = 1.0 / 1024.0;
    const LEAST: f64 = 1.0 / 16384.0;
    const MOST: f64 = 65504.0;
}

impl Narrow for bf16 {
    const NAME: &'static str = "bf16";
    const ULP: f64 = 1.0 / 128.0;
    const LEAST: f64 = f32::MIN_POSITIVE as f64;
    const MOST: f64 = 3.389_531_389_251_535_5e38;
}

/// Returns the gradient of a loss.
fn grad<P: Parameters, T: Float>(
    parameters: &P,
    loss: impl FnOnce(&P) -> Result<Array<T>>,
) -> Result<P> {
    Ok(value_and_grad(parameters, loss)?.1)
}

/// Applies an elementwise function of one argument, by its name.
fn of_one<T: Narrow>(name: &str, x: &Array<T>) -> Result<Array<T>> {
    macro_rules! by_name {
        ($($function:ident)+) => {
            match name {
                $(stringify!($function) => x.$function().eval(),)+
                other => panic!("no function {other}"),
            }
        };
    }
    by_name!(
        recip square sqrt rsqrt cbrt exp exp2 exp_m1 ln log1p log2 log10 sin cos tan asin acos atan
        sinh cosh tanh asinh acosh atanh erf sigmoid gelu silu
    )
}

/// Returns the gradients of an elementwise function's arguments. Each gradient is an array with an
/// element for each reference line.
fn elementwise<T: Narrow>(name: &str, arguments: &[Array<T>]) -> Result<Vec<Array<T>>> {
    match arguments {
        [x] => Ok(vec![grad(x, |x| of_one(name, x)?.sum())?]),
        [x, y] => {
            let parameters = (x.clone(), y.clone());
            let (x, y) = grad(&parameters, |(x, y)| {
                match name {
                    "atan2" => x.atan2(y).eval()?,
                    "powf" => x.powf(y).eval()?,
                    "over" => (x / y).eval()?,
                    other => panic!("no function {other}"),
                }
                .sum()
            })?;
            Ok(vec![x, y])
        }
        _ => panic!("{name}: no such number of arguments"),
    }
}

/// Returns the gradient of a function of a row.
fn of_row<T: Narrow>(name: &str, row: &Array<T>, weights: &Array<T>) -> Result<Array<T>> {
    let class = weights.argmax()?;
    grad(row, |x| match name {
        "softmax" => (x.softmax(0)? * weights).sum(),
        "log_softmax" => (x.log_softmax(0)? * weights).sum(),
        "cross_entropy" => x.unsqueeze(0)?.cross_entropy(&class.reshape([1])?),
        "logsumexp" => x.logsumexp(),
        "norm" => x.norm(),
        "var" => x.var(),
        "std" => x.std(),
        "prod" => x.prod(),
        other => panic!("no function {other}"),
    })
}

/// Returns the maximum error of the gradient of an argument, in units in the last place. Narrow
/// types are computed in `f32` and rounded once.
fn bound<T: Narrow>(line: &Line<'_>, place: usize) -> f64 {
    let scale = |units: f64| if T::ULP > 1e-6 { 0.6 } else { units };
    let largest = line
        .arguments
        .iter()
        .fold(0.0, |most: f64, x| most.max(x.abs()));
    scale(match line.name {
        // The bound is twice the error of the tangent.
        "tan" => 10.0,
        // Near the minimum of the function, the slope is a small difference of larger terms.
        "gelu" | "silu" if (-2.0..0.0).contains(&line.arguments[0]) => {
            8.0 / line.gradients[0].abs().min(1.0)
        }
        // The argument of each exponential has an error of half a unit.
        "softmax" | "log_softmax" | "cross_entropy" | "logsumexp" => {
            let terms = line.weights.iter().filter(|weight| **weight != 0.0);
            let largest_term = terms
                .clone()
                .fold(0.0, |most: f64, term| most.max(term.abs()));
            // Several terms of a sum may cancel each other.
            let apart = match terms.count() {
                0 | 1 => 1.0,
                _ => (largest_term / line.gradients[place].abs()).max(1.0),
            };
            (24.0 + largest.min(800.0)) * apart
        }
        _ => 8.0,
    })
}

/// Returns the error of a gradient in units in the last place. If the exact gradient is subnormal,
/// every subnormal number counts as exact. If the exact gradient is beyond the largest number,
/// infinity counts as exact.
fn error<T: Narrow>(found: T, exact: f64) -> f64 {
    let found = found.to_f64();
    if found == exact || (found.is_infinite() && exact.abs() >= T::MOST && found * exact > 0.0) {
        return 0.0;
    }
    if exact.abs() < T::LEAST && found.abs() <= T::LEAST {
        return 0.0;
    }
    let error = (found - exact).abs() / (exact.abs() * T::ULP);
    if error.is_nan() { f64::INFINITY } else { error }
}

fn number<T: Narrow>(x: f64) -> T {
    <T as AnyElement>::from_f64(x)
}

/// Returns whether the type represents the arguments.
fn fits<T: Narrow>(line: &Line<'_>) -> bool {
    let normal = |x: &f64| *x == 0.0 || x.abs() >= T::LEAST;
    let own = |x: &f64| number::<T>(*x).to_f64() == *x && normal(x);
    line.arguments.iter().all(own) && line.weights.iter().all(own)
}

fn check<T: Narrow>(line: &Line<'_>, found: &[T], faults: &mut Vec<String>) {
    for (place, (&found, &exact)) in found.iter().zip(&line.gradients).enumerate() {
        let error = error(found, exact);
        if error > bound::<T>(line, place) {
            faults.push(format!(
                "{} {:?} · {:?} in {}: the gradient of {place} is {:e}, not {exact:e} ({error:.1} units)",
                line.name,
                line.arguments,
                line.weights,
                <T as Narrow>::NAME,
                found.to_f64(),
            ));
        }
    }
}

/// Checks all lines of an elementwise function at once.
fn check_all<T: Narrow>(lines: &[&Line<'_>], faults: &mut Vec<String>) -> Result<()> {
    let count = lines[0].arguments.len();
    let arguments = (0..count).map(|place| {
        let numbers = lines.iter().map(|line| number::<T>(line.arguments[place]));
        Array::from_slice(&numbers.collect::<Vec<_>>(), lines.len())
    });
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let gradients = elementwise(lines[0].name, &arguments)?;
    let gradients = gradients
        .iter()
        .map(Array::to_vec)
        .collect::<Result<Vec<_>>>()?;
    for (at, line) in lines.iter().enumerate() {
        let found: Vec<T> = gradients.iter().map(|gradient| gradient[at]).collect();
        check(line, &found, faults);
    }
    if let [x] = &arguments[..] {
        let ones = Array::full(x.len(), number::<T>(1.0))?;
        let (_, tangents) = jvp(x, &ones, |x| of_one(lines[0].name, x))?;
        for (line, tangent) in lines.iter().zip(tangents.to_vec()?) {
            check(line, &[tangent], faults);
        }
    }
    Ok(())
}

fn check_type<T: Narrow>(lines: &[Line<'_>], faults: &mut Vec<String>) -> Result<()> {
    let lines: Vec<&Line<'_>> = lines.iter().filter(|line| fits::<T>(line)).collect();
    for lines in lines.chunk_by(|one, other| one.name == other.name) {
        let is_elementwise = lines[0].name != "softmax" && lines[0].weights == [1.0];
        let is_reduction = ["logsumexp", "norm", "var", "std", "prod"].contains(&lines[0].name);
        if is_elementwise && !is_reduction {
            check_all::<T>(lines, faults)?;
            continue;
        }
        for line in lines {
            let array = |numbers: &[f64]| {
                let numbers: Vec<T> = numbers.iter().map(|&own| number(own)).collect();
                Array::from_slice(&numbers, numbers.len())
            };
            let (row, weights) = (array(&line.arguments)?, array(&line.weights)?);
            check(line, &of_row(line.name, &row, &weights)?.to_vec()?, faults);
        }
    }
    Ok(())
}

#[test]
fn gradients_are_exact_at_all_sizes() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../reference/derivatives.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Line<'_>> = text.lines().map(Line::of).collect();
    let mut faults = Vec::new();
    check_type::<f64>(&lines, &mut faults)?;
    check_type::<f32>(&lines, &mut faults)?;
    check_type::<f16>(&lines, &mut faults)?;
    check_type::<bf16>(&lines, &mut faults)?;
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    Ok(())
}

/// Padding never counts as the largest element of a window, even if all elements of the window are
/// −∞.
#[test]
fn padding_gets_no_gradient() -> Result<()> {
    use cachescope::grad::nn::{PoolOptions, max_pool2d};
    for (size, padding) in [
        ([3, 3], [1, 1]),
        ([2, 2], [1, 1]),
        ([5, 5], [2, 2]),
        ([3, 1], [1, 0]),
    ] {
        for stride in [[1, 1], [2, 2], [5, 5]] {
            for lowest in [f32::NEG_INFINITY, 1.0] {
                let options = PoolOptions {
                    padding,
                    stride,
                    ..PoolOptions::of(size)
                };
                let x = Array::full([1, 2, 7, 6], lowest)?;
                let count = max_pool2d(&x, options)?.len() as f32;
                let of_all = grad(&x, |x| max_pool2d(x, options)?.sum())?;
                let sum = of_all.sum()?.item()?;
                assert!(
                    (sum - count).abs() < 1e-3 * count,
                    "{options:?}: {sum}, not {count}"
                );
            }
        }
    }
    Ok(())
}
