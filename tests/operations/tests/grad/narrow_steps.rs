//! Optimizers of parameters in half precision, compared with the same optimizers in `f32`.

use cachescope::grad::optim::{Adam, AdamW, Groups, Lion, Muon, Sgd, Stateful};
use cachescope::grad::value_and_step;
use cachescope::half::{bf16, f16};
use cachescope::{Array, Float, Result};

const SHAPE: [usize; 2] = [2, 3];

/// Runs a test for each optimizer, with each combination of its options.
macro_rules! for_each_optimizer {
    ($test:ident) => {{
        $test("Sgd", || Sgd::new(1e-3))?;
        $test("Sgd, slow", || Sgd::new(1e-9))?;
        $test("Sgd, momentum", || Sgd::new(1e-3).momentum(0.9))?;
        $test("Sgd, slow, momentum", || Sgd::new(1e-9).momentum(0.999))?;
        $test("Adam", || Adam::new(1e-3))?;
        $test("Adam, slow betas", || Adam::new(1e-3).betas(0.999, 0.9999))?;
        $test("Adam, capturable", || Adam::new(1e-3).capturable())?;
        $test("AdamW", || AdamW::new(1e-3).weight_decay(0.1))?;
        $test("AdamW, capturable", || {
            AdamW::new(1e-3).weight_decay(0.1).capturable()
        })?;
        $test("Lion", || Lion::new(1e-3))?;
        $test("Lion, decay", || {
            Lion::new(1e-3).betas(0.95, 0.999).weight_decay(0.3)
        })?;
        $test("Muon", || Muon::new(1e-3))?;
        $test("Muon, decay", || {
            Muon::new(1e-3).momentum(0.999).weight_decay(0.1)
        })?;
        $test("Groups", || groups(AdamW::new(1e-3), AdamW::new(1e-2)))?;
        $test("Groups, momentum", || {
            let sgd = |rate| Sgd::new(rate).momentum(0.9);
            groups(sgd(1e-3), sgd(1e-9))
        })?;
        Ok(())
    }};
}

/// Returns an optimizer whose second group contains all parameters.
fn groups<O: Stateful>(first: O, second: O) -> Groups<O> {
    let like = Array::<f32>::zeros(SHAPE).unwrap();
    let groups = Groups::new(&like, first).unwrap();
    groups.with(second, |_| true).unwrap()
}

fn numbers<T: Float>(x: &Array<T>) -> Result<Vec<f64>> {
    x.cast::<f64>().eval()?.to_vec()
}

/// Returns the distance from 1 to the next larger number, and the smallest positive number.
fn spacing<T: Float>() -> (f64, f64) {
    match T::MANTISSA_DIGITS {
        11 => (2.0_f64.powi(-10), 2.0_f64.powi(-24)),
        _ => (2.0_f64.powi(-7), 2.0_f64.powi(-133)),
    }
}

/// Parameters in a narrow type and in `f32`, each with its optimizer.
struct Pair<T: Float, O> {
    name: String,
    own: (Array<T>, O),
    wide: (Array<f32>, O),
}

impl<T: Float<Computed = f32>, O: Stateful> Pair<T, O> {
    fn new(name: &str, make: impl Fn() -> O) -> Result<Self> {
        let start = [0.0_f32, 1.0, -0.5, 0.0, 0.01, -3.0];
        let wide = Array::from_slice(&start, SHAPE)?;
        let own = wide.cast::<T>().eval()?;
        Ok(Self {
            name: format!("{name}, {}", std::any::type_name::<T>()),
            own: (own, make()),
            wide: (wide, make()),
        })
    }

    /// Moves both parameters along a gradient, from the value of the narrow parameter.
    fn step(&mut self, gradient: &[f32]) -> Result<()> {
        let gradient = Array::from_slice(gradient, SHAPE)?.cast::<T>().eval()?;
        let wide_gradient = gradient.cast::<f32>().eval()?;
        self.wide.0 = self.own.0.cast::<f32>().eval()?;
        self.own.1.step(&mut self.own.0, &gradient)?;
        self.wide.1.step(&mut self.wide.0, &wide_gradient)
    }

    /// Compares the parameters after rounding, and the states.
    fn check(&mut self, when: &str) -> Result<()> {
        let (epsilon, least) = spacing::<T>();
        let rounded = self.wide.0.cast::<T>().eval()?;
        let pairs = numbers(&self.own.0)?.into_iter().zip(numbers(&rounded)?);
        for (own, wide) in pairs {
            let near = (own - wide).abs() <= epsilon * wide.abs() + least;
            assert!(near, "{}, {when}: {own}, in f32 {wide}", self.name);
        }
        for which in 0..self.own.1.states() {
            if !self.own.1.keeps(which, &SHAPE) {
                continue;
            }
            let own = self.own.1.state_of(which, 0, &self.own.0)?.to_vec()?;
            let wide = self.wide.1.state_of(which, 0, &self.wide.0)?.to_vec()?;
            for (own, wide) in own.into_iter().zip(wide) {
                let near = (own - wide).abs() <= 1e-6 * wide.abs();
                assert!(near, "{}, {when}: state {own}, in f32 {wide}", self.name);
            }
        }
        Ok(())
    }
}

fn signs(scale: f32) -> [f32; 6] {
    [1.0, -1.0, 0.5, 0.25, -0.75, 0.0].map(|sign| sign * scale)
}

#[test]
fn half_precision_steps_like_f32() -> Result<()> {
    fn test<O: Stateful>(name: &str, make: fn() -> O) -> Result<()> {
        of::<f16, O>(name, make)?;
        of::<bf16, O>(name, make)
    }
    fn of<T: Float<Computed = f32>, O: Stateful>(name: &str, make: fn() -> O) -> Result<()> {
        for scale in [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 1.0, 100.0, 1e3, 3e4] {
            let mut pair = Pair::<T, O>::new(name, make)?;
            for number in 0..4 {
                pair.step(&signs(scale))?;
                pair.check(&format!("gradient {scale}, step {number}"))?;
            }
        }
        Ok(())
    }
    for_each_optimizer!(test)
}

#[test]
fn spikes_are_forgotten_like_in_f32() -> Result<()> {
    fn test<O: Stateful>(name: &str, make: fn() -> O) -> Result<()> {
        of::<f16, O>(name, make)?;
        of::<bf16, O>(name, make)
    }
    fn of<T: Float<Computed = f32>, O: Stateful>(name: &str, make: fn() -> O) -> Result<()> {
        // The emulated device compiles each kernel once, so the further steps take little time.
        let mut pair = Pair::<T, O>::new(name, make)?;
        for number in 0..1000 {
            let scale = if number == 3 { 1000.0 } else { 1.0 };
            pair.step(&signs(scale))?;
            if number < 6 || number % 100 == 99 {
                pair.check(&format!("step {number}"))?;
            }
        }
        Ok(())
    }
    for_each_optimizer!(test)
}

/// If each step exceeds the distance of neighbouring numbers, the sum of the steps has an error
/// below 5 %.
#[test]
fn steps_have_their_length() -> Result<()> {
    fn of<T: Float<Computed = f32>>(gradient: f32, steps: usize) -> Result<()> {
        let mut x = Array::<T>::zeros(4)?;
        let gradient = Array::<f32>::full(4, gradient)?.cast::<T>().eval()?;
        let mut optimizer = Adam::new(1e-3);
        for _ in 0..steps {
            optimizer.step(&mut x, &gradient)?;
        }
        let expected = -1e-3 * steps as f64;
        for own in numbers(&x)? {
            let error = (own / expected - 1.0).abs();
            assert!(error < 0.05, "{own}, {expected} after {steps} steps");
        }
        Ok(())
    }
    for gradient in [1e-5, 1e-3, 1.0, 1e3, 3e4] {
        of::<f16>(gradient, 1)?;
        of::<f16>(gradient, 100)?;
        of::<bf16>(gradient, 1)?;
    }
    Ok(())
}

#[test]
fn wide_gradients_are_not_rounded() -> Result<()> {
    fn test<O: Stateful>(name: &str, make: fn() -> O) -> Result<()> {
        for scale in [1e-10_f32, 1e-3, 1e6] {
            let mut pair = Pair::<f16, O>::new(name, make)?;
            for number in 0..3 {
                let gradient = Array::from_slice(&signs(scale), SHAPE)?;
                pair.wide.0 = pair.own.0.cast::<f32>().eval()?;
                pair.own.1.begin();
                pair.own.1.step_wide(0, &mut pair.own.0, &gradient)?;
                pair.wide.1.step(&mut pair.wide.0, &gradient)?;
                pair.check(&format!("gradient {scale}, step {number}"))?;
            }
        }
        Ok(())
    }
    for_each_optimizer!(test)
}

#[test]
fn muon_moves_by_one_length_at_every_scale() -> Result<()> {
    fn moved<T: Float>(scale: f64) -> Result<Vec<f64>> {
        let gradient = Array::<f64>::from_slice(&[1.0, -2.0, 0.5, 3.0, 0.25, -1.0], SHAPE)?;
        let gradient = (gradient * scale).cast::<T>().eval()?;
        let mut x = Array::<T>::zeros(SHAPE)?;
        Muon::new(0.1).step(&mut x, &gradient)?;
        numbers(&x)
    }
    let expected = moved::<f64>(1.0)?;
    let near = |moved: Vec<f64>, bound: f64| {
        for (own, expected) in moved.iter().zip(&expected) {
            assert!((own - expected).abs() < bound, "{own} and {expected}");
        }
    };
    for scale in [1e-30, 1e-25, 1e-10, 1e10, 1e25, 1e37] {
        near(moved::<f32>(scale)?, 1e-3);
        near(moved::<bf16>(scale)?, 1e-2);
    }
    for scale in [1e-200, 1e-25, 1e25, 1e200] {
        near(moved::<f64>(scale)?, 1e-9);
    }
    near(moved::<f16>(1e4)?, 1e-2);
    let mut x = Array::<f16>::ones(SHAPE)?;
    Muon::new(0.1).step(&mut x, &Array::zeros(SHAPE)?)?;
    assert_eq!(numbers(&x)?, [1.0; 6]);
    Ok(())
}

#[test]
fn backward_passes_step_in_f32() -> Result<()> {
    let mut x = Array::<bf16>::zeros(4)?;
    let mut optimizer = Adam::new(1e-3);
    for _ in 0..3 {
        value_and_step(&mut x, &mut optimizer, |x| (x * bf16::from_f32(1e-5)).sum())?;
    }
    let square = optimizer.state_of(1, 0, &x)?.to_vec()?[0];
    let gradient = f32::from(bf16::from_f32(1e-5));
    let expected = gradient * gradient * (1.0 - 0.999_f32.powi(3));
    assert!((square / expected - 1.0).abs() < 1e-3, "{square}");
    Ok(())
}
