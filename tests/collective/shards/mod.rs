//! Sharded states compared with whole states, bit by bit, over random parameters and buckets.

mod limits;
mod narrow;

use std::fmt::Display;

use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::optim::{Adam, AdamW, OptimizerState, Sgd, Stateful};
use cachescope::grad::{MapArrays, Parameters};
use cachescope::{Array, Float, Generator, Result};
use half::f16;
use proptest::prelude::*;

/// Parameters of several types, some of which may be absent or empty.
#[derive(Debug, Parameters)]
struct Block {
    wide: Array<f64>,
    narrow: Option<Array<f32>>,
    half: Vec<Array<f16>>,
}

/// The shapes of the parameters of a `Block`.
#[derive(Clone, Debug)]
struct Shapes {
    wide: Vec<usize>,
    narrow: Option<Vec<usize>>,
    half: Vec<Vec<usize>>,
}

fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1 => Just(0), 9 => 1..6_usize], 0..3)
}

fn blocks() -> impl Strategy<Value = Vec<Shapes>> {
    let narrow = prop::option::of(shape());
    let half = prop::collection::vec(shape(), 0..3);
    let block =
        (shape(), narrow, half).prop_map(|(wide, narrow, half)| Shapes { wide, narrow, half });
    prop::collection::vec(block, 1..4)
}

fn random(shapes: &[Shapes], seed: u64) -> Result<Vec<Block>> {
    let mut generator = Generator::new(seed);
    let mut drawn = |shape: &[usize]| Array::<f64>::rand_with(&mut generator, shape);
    let block = |own: &Shapes| -> Result<Block> {
        let narrow = own.narrow.as_ref().map(|shape| drawn(shape));
        let half = own.half.iter().map(|shape| drawn(shape)?.cast().eval());
        Ok(Block {
            narrow: narrow
                .transpose()?
                .map(|own| own.cast().eval())
                .transpose()?,
            half: half.collect::<Result<_>>()?,
            wide: drawn(&own.wide)?,
        })
    };
    shapes.iter().map(block).collect()
}

/// A visitor that computes the weighted sum of the squares of all elements.
struct Squares {
    weight: f64,
    sum: Array<f64>,
}

impl MapArrays for Squares {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.weight *= 0.75;
        let own = (array.cast::<f64>().square() * self.weight).sum()?;
        self.sum = (&self.sum + own).eval()?;
        Ok(array.clone())
    }
}

fn loss<P: Parameters>(parameters: &P, weight: f64) -> Result<Array<f64>> {
    let sum = Array::zeros([])?;
    let mut squares = Squares { weight, sum };
    parameters.map_arrays(&mut squares)?;
    Ok(squares.sum)
}

/// A visitor that collects the names, shapes and bits of all arrays.
#[derive(Default)]
struct Listed {
    place: Vec<String>,
    arrays: Vec<(String, Vec<usize>, Vec<u64>)>,
}

impl MapArrays for Listed {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let bits = array
            .to_vec()?
            .into_iter()
            .map(|own| own.to_f64().to_bits());
        let name = self.place.join(".");
        self.arrays
            .push((name, array.shape().to_vec(), bits.collect()));
        Ok(array.clone())
    }

    fn enter(&mut self, name: &dyn Display) {
        self.place.push(name.to_string());
    }

    fn leave(&mut self) {
        self.place.pop();
    }
}

#[track_caller]
fn assert_same<P: Parameters>(found: &P, expected: &P) {
    let listed = |own: &P| {
        let mut listed = Listed::default();
        own.map_arrays(&mut listed).unwrap();
        listed.arrays
    };
    assert_eq!(listed(found), listed(expected));
}

/// An action before a training step.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    /// Changes the bucket sizes.
    Buckets(usize, usize),
    /// Accumulates the gradients of a further micro-batch.
    Accumulate,
    /// Accumulates the gradients of a further micro-batch, with other bucket sizes.
    AccumulateInBuckets(usize, usize),
    /// Moves the state to a new sharded optimizer.
    Move,
    /// Reads the state, and sets it on the same optimizer.
    Again,
    /// Moves the state to a new sharded optimizer, through an unsharded optimizer.
    Whole,
}

fn before() -> impl Strategy<Value = Before> {
    let sizes = || (1..200_usize, 1..400_usize);
    prop_oneof![
        Just(Before::Nothing),
        sizes().prop_map(|(first, other)| Before::Buckets(first, other)),
        Just(Before::Accumulate),
        sizes().prop_map(|(first, other)| Before::AccumulateInBuckets(first, other)),
        Just(Before::Move),
        Just(Before::Again),
        Just(Before::Whole),
    ]
}

/// Two training runs, one with sharded states and one with whole states.
struct Both<O> {
    group: Group,
    make: fn() -> O,
    shapes: Vec<Shapes>,
    divided: (Vec<Block>, DataParallel, Sharded<O>),
    whole: (Vec<Block>, DataParallel, O),
}

trait Steps: Stateful + Sized {
    fn move_all<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()>;
}

macro_rules! steps {
    ($($optimizer:ty)*) => {$(
        impl Steps for $optimizer {
            fn move_all<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
                self.step(parameters, gradients)
            }
        }
    )*};
}

steps!(Sgd Adam AdamW);

impl<O: Steps> Both<O> {
    fn new(group: Group, make: fn() -> O, shapes: &[Shapes]) -> Result<Self> {
        let parallel = || DataParallel::new(&group);
        Ok(Self {
            divided: (
                random(shapes, 1)?,
                parallel(),
                Sharded::new(&group, make())?,
            ),
            whole: (random(shapes, 1)?, parallel(), make()),
            group: group.clone(),
            shapes: shapes.to_vec(),
            make,
        })
    }

    fn weight(&self, iteration: usize) -> f64 {
        (1 + self.group.rank() + 2 * iteration) as f64
    }

    fn buckets(&mut self, (first, other): (usize, usize)) {
        self.divided.1 = DataParallel::new(&self.group).bucket_bytes(first, other);
    }

    fn accumulate(&mut self) -> Result<()> {
        let weight = self.weight(7);
        let (own, parallel, _) = &mut self.divided;
        parallel.accumulate(own, |own| loss(own, weight))?;
        let (own, parallel, _) = &mut self.whole;
        parallel.accumulate(own, |own| loss(own, weight))?;
        Ok(())
    }

    fn prepare(&mut self, before: Before) -> Result<()> {
        match before {
            Before::Nothing => {}
            Before::Buckets(first, other) => self.buckets((first, other)),
            Before::Accumulate => self.accumulate()?,
            Before::AccumulateInBuckets(first, other) => {
                self.buckets((first, other));
                self.accumulate()?;
            }
            Before::Move => {
                let state = self.checked_state()?;
                self.divided.2 = Sharded::new(&self.group, (self.make)())?;
                self.divided.2.set_state(&state)?;
                self.checked_state()?;
            }
            Before::Again => {
                let state = self.checked_state()?;
                self.divided.2.set_state(&state)?;
                self.checked_state()?;
            }
            Before::Whole => {
                let state = self.checked_state()?;
                let mut whole = (self.make)();
                whole.set_state(&self.divided.0, &state)?;
                let state = whole.state(&self.divided.0)?;
                self.divided.2 = Sharded::new(&self.group, (self.make)())?;
                self.divided.2.set_state(&state)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, iteration: usize) -> Result<()> {
        let weight = self.weight(iteration);
        let (own, parallel, optimizer) = &mut self.divided;
        let value = parallel.value_and_step(own, optimizer, |own| loss(own, weight))?;
        let (own, parallel, optimizer) = &mut self.whole;
        let (expected, gradients) = parallel.value_and_grad(own, |own| loss(own, weight))?;
        optimizer.move_all(own, &gradients)?;
        assert_eq!(value.item()?, expected.item()?);
        assert_same(&self.divided.0, &self.whole.0);
        Ok(())
    }

    /// Compares the gathered state with the state of the unsharded optimizer.
    fn checked_state(&mut self) -> Result<OptimizerState<Vec<Block>>> {
        // Only the names and shapes of `like` are used.
        let like = random(&self.shapes, 9)?;
        let state = self.divided.2.state(&like)?;
        let expected = self.whole.2.state(&like)?;
        assert_same(&state, &expected);
        Ok(state)
    }
}

fn compare<O: Steps>(
    size: usize,
    make: fn() -> O,
    (shapes, iterations): (&[Shapes], &[Before]),
) -> Result<()> {
    Group::threads(size, |group| {
        let mut both = Both::new(group, make, shapes)?;
        both.step(0)?;
        for (iteration, before) in iterations.iter().enumerate() {
            both.prepare(*before)?;
            both.step(iteration + 1)?;
        }
        both.checked_state().map(drop)
    })
    .map(drop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: crate::regressions(), ..ProptestConfig::default() })]

    #[test]
    fn divided_states_belong_to_their_parameters(
        size in 1..5_usize,
        shapes in blocks(),
        iterations in prop::collection::vec(before(), 1..6),
        optimizer in 0..3,
    ) {
        let given = (&shapes[..], &iterations[..]);
        let compared = match optimizer {
            0 => compare(size, || Sgd::new(0.125).momentum(0.75), given),
            1 => compare(size, || Adam::new(0.01), given),
            _ => compare(size, || AdamW::new(0.01).weight_decay(0.2), given),
        };
        compared.unwrap();
    }

    /// A training run is saved to a file after half of its steps. Another number of ranks continues
    /// it.
    #[cfg(feature = "npy")]
    #[test]
    fn divided_states_survive_a_file_of_other_ranks(
        sizes in (1..5_usize, 1..5_usize),
        shapes in blocks(),
        bytes in (1..300_usize, 1..300_usize),
        seed: u64,
    ) {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("cachescope-shards-{}-{seed}.npz", std::process::id()));
        let (shapes, path) = (&shapes, &path);
        let halves = |size: usize, bytes: usize, is_second: bool| {
            Group::threads(size, move |group| {
                let mut own = random(shapes, 3)?;
                let mut parallel = DataParallel::new(&group).bucket_bytes(bytes, 2 * bytes);
                let mut optimizer = Sharded::new(&group, Adam::new(0.01))?;
                if is_second {
                    let like = OptimizerState {
                        steps: Array::zeros([])?,
                        arrays: vec![random(shapes, 5)?, random(shapes, 6)?],
                    };
                    let like = (random(shapes, 4)?, like);
                    let (parameters, state) = cachescope::grad::files::load(&like, path)?;
                    own = parameters;
                    optimizer.set_state(&state)?;
                }
                for _ in 0..2 {
                    parallel.value_and_step(&mut own, &mut optimizer, |own| loss(own, 1.0))?;
                }
                let state = optimizer.state(&own)?;
                let both = (own, state);
                group.barrier()?;
                if group.rank() == 0 {
                    cachescope::grad::files::save(&both, path)?;
                }
                Ok(())
            })
        };
        halves(sizes.0, bytes.0, false).unwrap();
        halves(sizes.1, bytes.1, true).unwrap();
        // The expected values are from a training run on one rank, without a file. Three ranks
        // round the mean of equal gradients, so their results are not compared.
        let mut expected = random(shapes, 3).unwrap();
        let mut optimizer = Adam::new(0.01);
        for _ in 0..4 {
            let (_, gradients) = cachescope::grad::value_and_grad(&expected, |own| loss(own, 1.0)).unwrap();
            optimizer.step(&mut expected, &gradients).unwrap();
        }
        let state = optimizer.state(&expected).unwrap();
        let expected = (expected, state);
        let found = cachescope::grad::files::load(&expected, path).unwrap();
        std::fs::remove_file(path).unwrap();
        if sizes.0 != 3 && sizes.1 != 3 {
            assert_same(&found, &expected);
        }
        prop_assert_eq!(found.1.steps.item().unwrap(), 4.0);
    }
}
