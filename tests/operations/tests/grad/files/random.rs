//! Random structures, with the state of an optimizer.

use cachescope::Generator;
use cachescope::grad::optim::{Adam, AdamW, Muon, OptimizerState, Sgd, Stateful};
use cachescope::grad::value_and_step;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Parameters)]
struct Part {
    wide: Array<f64>,
    narrow: Option<Array<f32>>,
    both: Vec<(Array<f64>, Box<Array<f32>>)>,
    half: [Array<f16>; 2],
}

#[derive(Clone, Debug)]
struct Shapes {
    wide: Vec<usize>,
    narrow: Option<Vec<usize>>,
    both: Vec<Vec<usize>>,
    half: Vec<usize>,
}

fn shapes() -> impl Strategy<Value = Vec<Shapes>> {
    let shape = || prop::collection::vec(prop_oneof![1 => Just(0), 9 => 1..5_usize], 0..4);
    let both = prop::collection::vec(shape(), 0..3);
    let part = (shape(), prop::option::of(shape()), both, shape());
    let part = part.prop_map(|(wide, narrow, both, half)| Shapes {
        wide,
        narrow,
        both,
        half,
    });
    prop::collection::vec(part, 1..3)
}

fn random(shapes: &[Shapes], seed: u64) -> Result<Vec<Part>> {
    let mut generator = Generator::new(seed);
    let mut drawn = |shape: &[usize]| Array::<f64>::rand_with(&mut generator, shape);
    let mut part = |own: &Shapes| -> Result<Part> {
        let narrow = own.narrow.as_ref().map(|shape| drawn(shape)).transpose()?;
        let mut both = Vec::new();
        for shape in &own.both {
            both.push((drawn(shape)?, Box::new(drawn(shape)?.cast().eval()?)));
        }
        Ok(Part {
            wide: drawn(&own.wide)?,
            narrow: narrow.map(|own| own.cast().eval()).transpose()?,
            both,
            half: [
                drawn(&own.half)?.cast().eval()?,
                drawn(&own.half)?.cast().eval()?,
            ],
        })
    };
    shapes.iter().map(&mut part).collect()
}

struct Squares(Array<f64>);

impl MapArrays for Squares {
    fn map<T: cachescope::Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let own = array.cast::<f64>().square().sum()?;
        self.0 = (&self.0 + own).eval()?;
        Ok(array.clone())
    }
}

fn steps<O: Stateful>(parts: &mut Vec<Part>, optimizer: &mut O) -> Result<()> {
    for _ in 0..2 {
        value_and_step(parts, optimizer, |parts| {
            let mut squares = Squares(Array::zeros([])?);
            parts.map_arrays(&mut squares)?;
            Ok(squares.0)
        })?;
    }
    Ok(())
}

/// Saves a training run halfway. Compares the second half of this run with the second half of the
/// loaded run.
fn survives<O: Stateful>(
    shapes: &[Shapes],
    make: fn() -> O,
    (scratch, ending): (&Scratch, &str),
) -> Result<()> {
    let (mut own, mut optimizer) = (random(shapes, 1)?, make());
    steps(&mut own, &mut optimizer)?;
    let path = scratch.path(&format!("training.{ending}"));
    let saved = (own, optimizer.state(&random(shapes, 2)?)?);
    files::save(&saved, &path)?;
    let mut own = saved.0;

    let like = OptimizerState {
        steps: Array::full([], 7.0)?,
        arrays: (0..make().states())
            .map(|seed| random(shapes, seed as u64))
            .collect::<Result<_>>()?,
    };
    let (mut loaded, state) = files::load(&(random(shapes, 3)?, like), &path)?;
    let mut other = make();
    other.set_state(&loaded, &state)?;
    assert_eq!(listed(&loaded)?.values, listed(&own)?.values);
    assert_eq!(
        listed(&other.state(&own)?)?.values,
        listed(&optimizer.state(&own)?)?.values
    );

    steps(&mut own, &mut optimizer)?;
    steps(&mut loaded, &mut other)?;
    assert_eq!(listed(&loaded)?.values, listed(&own)?.values);
    assert_eq!(
        listed(&other.state(&own)?)?.values,
        listed(&optimizer.state(&own)?)?.values
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn trainings_survive_files(shapes in shapes(), format in 0..ENDINGS.len(), optimizer in 0..5) {
        let ending = ENDINGS[format];
        let scratch = Scratch::new("random");
        let given = (&scratch, ending);
        let survived = match optimizer {
            0 => survives(&shapes, || Sgd::new(0.1), given),
            1 => survives(&shapes, || Sgd::new(0.1).momentum(0.9), given),
            2 => survives(&shapes, || Adam::new(0.1), given),
            3 => survives(&shapes, || AdamW::new(0.1), given),
            _ => survives(&shapes, || Muon::new(0.1), given),
        };
        survived.unwrap();
    }
}
