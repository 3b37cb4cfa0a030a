//! Random programs, whose gradients have equal bits with and without a budget.

use super::*;

/// A linear congruential generator for the choices of a random program.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 33) % limit as u64) as usize
    }
}

/// Computes a loss by forty operations on values of `[12, 12]`. `seed` chooses the operations.
fn random_program(x: &Array<f32>, seed: u64) -> Result<Array<f32>> {
    let mut choices = Choices(seed);
    let constant = Array::<f32>::rand([12, 12])?;
    let indices = Array::<i64>::randint(0, 12, [12])?;
    let mut values = vec![x.clone(), constant, (x * 0.5).eval()?];
    for _ in 0..40 {
        let one = values[choices.below(values.len())].clone();
        let other = values[choices.below(values.len())].clone();
        let next = match choices.below(18) {
            0 => one.sin().eval()?,
            1 => one.tanh().eval()?,
            2 => (&one + &other).eval()?,
            3 => (one * other * 0.5).eval()?,
            4 => (one.matmul(&other)? * 0.1).eval()?,
            5 => one.softmax(choices.below(2) as isize)?,
            6 => (&other - one.mean_axis(1)?.unsqueeze(1)?).eval()?,
            7 => one.t()?.lazy().eval()?,
            8 => concat(&[&one, &other], 0)?.slice(cachescope::ndarray::s![3..15, ..])?,
            9 => (one * Array::<f32>::dropout_mask(0.5, [12, 12])?).eval()?,
            10 => one.layer_norm(&other.select_row(0)?, &other.select_row(1)?, 1e-5)?,
            11 => (one.cumsum(0)? * 0.1).eval()?,
            12 => one.take(&indices, 0)?,
            13 => {
                let heads = [&one, &other, &one].map(|own| own.reshape([2, 6, 12]));
                let [q, k, v] = heads;
                attention(&q?, &k?, &v?, true)?.reshape([12, 12])?
            }
            14 => {
                let images = one.reshape([1, 1, 12, 12])?;
                let pooled = images.max_pool2d([3, 3], [1, 1])?.reshape([10, 10])?;
                pooled.pad(&[(1, 1), (1, 1)], 0.0)?
            }
            15 => {
                let mut written = one;
                written.update(|own| own + &other)?;
                written
            }
            16 => {
                let mut written = one;
                written
                    .slice_mut(cachescope::ndarray::s![2..5, ..])?
                    .assign(0.5)?;
                written
            }
            _ => checkpoint(&one, |own| own.cos().eval()?.exp().eval()?.tanh().eval())?,
        };
        match choices.below(3) {
            // The program drops its handle on the replaced value.
            0 => {
                let place = choices.below(values.len());
                values[place] = next;
            }
            _ => values.push(next),
        }
    }
    let last = values.iter().skip(values.len() / 2);
    let last = last.map(|own| own.tanh().mean());
    let mut sum = Array::<f32>::zeros([])?;
    for own in last {
        sum = (sum + own?).eval()?;
    }
    (sum + x.mean()?).eval()
}

/// The selection of rows of a matrix.
trait SelectRow {
    fn select_row(&self, row: isize) -> Result<Array<f32>>;
}

impl SelectRow for Array<f32> {
    fn select_row(&self, row: isize) -> Result<Array<f32>> {
        self.slice(cachescope::ndarray::s![row, ..])
    }
}

#[test]
fn random_programs_have_the_same_gradients_with_a_budget() -> Result<()> {
    let mut recomputed = 0;
    for seed in 0..50 {
        manual_seed(seed);
        let x = Array::<f32>::rand([12, 12])?;
        let run = |budget_bytes: Option<u64>| {
            manual_seed(seed + 1000);
            let budget = budget_bytes.map(activation_budget);
            let done = value_and_grad(&x, |x| random_program(x, seed));
            done.map(|(value, gradient)| {
                let numbers = (value.to_vec(), gradient.to_vec());
                (format!("{numbers:?}"), budget.map(|budget| budget.report()))
            })
        };
        let (expected, _) = run(None)?;
        let all = run(Some(u64::MAX))?;
        assert_eq!(all.0, expected, "{seed}");
        let least = match run(Some(0)) {
            Ok(_) => 0,
            Err(error) => least_bytes(error),
        };
        let half = all.1.expect("there was a budget").saved_bytes / 2;
        for budget in [least, half.max(least)] {
            let (some, report) = run(Some(budget))?;
            let report = report.expect("there was a budget");
            assert_eq!(some, expected, "{seed} with {budget}");
            assert!(
                report.saved_bytes <= budget,
                "{seed} with {budget}: {report}"
            );
            recomputed += report.recomputed_operations;
        }
    }
    assert!(recomputed > 1000, "{recomputed}");
    Ok(())
}
