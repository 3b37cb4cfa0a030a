//! Programs whose sizes vary between iterations, over distributions, working sets and policies.

use cachescope::grad::nn::{LayerNorm, Linear};
use cachescope::grad::optim::AdamW;
use cachescope::grad::value_and_grad;
use cachescope::{Array, Buffer, DeviceConfig, Policy, PoolKind, Result, cache_scope};
use under_test::device_with;

use crate::scopes::MIB;
use crate::scopes::drift::Random;

/// A batch of `texts` texts, each of `tokens` tokens.
#[derive(Clone, Copy, Debug)]
struct Batch {
    texts: u64,
    tokens: u64,
}

/// The distribution of a program's batches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lengths {
    /// Uniformly distributed lengths.
    Uniform,
    /// The number of texts also varies. A batch has the length of its longest text.
    Texts,
    /// A few recurring lengths.
    Recurring,
    /// Uniformly distributed lengths, but the first array of each iteration has a constant size.
    Fixed,
    /// Short lengths, except for a single long length in an early iteration.
    Peak,
}

impl Lengths {
    const ALL: [Self; 5] = [
        Self::Uniform,
        Self::Fixed,
        Self::Texts,
        Self::Recurring,
        Self::Peak,
    ];

    fn batch(self, iteration: u64, random: &mut Random) -> Batch {
        let tokens = match self {
            Self::Uniform | Self::Fixed => 1 + random.below(512),
            Self::Texts => (0..4).map(|_| 1 + random.below(512)).max().unwrap_or(1),
            Self::Recurring => 32 * (1 + random.below(16)),
            Self::Peak if iteration == 3 => 512,
            Self::Peak => 64 + random.below(64),
        };
        let texts = match self {
            Self::Texts => 8 + random.below(25),
            _ => 32,
        };
        Batch { texts, tokens }
    }

    const LONGEST: Batch = Batch {
        texts: 32,
        tokens: 512,
    };
}

/// Returns the steps of one iteration. A step is the index of an array, with its bytes for an
/// allocation, or with `None` for a drop.
fn iteration(batch: Batch, scale: f64) -> Vec<(usize, Option<u64>)> {
    let hidden = (batch.texts * batch.tokens) as f64 * scale;
    let square = (batch.texts * batch.tokens * batch.tokens) as f64 * scale / 512.0;
    let bytes = |units: f64| Some(units.max(1.0) as u64);
    let mut steps = Vec::new();
    let mut made = 0;
    let mut make = |steps: &mut Vec<_>, units: f64| {
        steps.push((made, bytes(units)));
        made += 1;
        made - 1
    };
    let mut saved = Vec::new();
    let mut input = make(&mut steps, hidden);
    for layer in 0..6 {
        let wide = make(&mut steps, 4.0 * hidden);
        let scores = make(&mut steps, square);
        let small = make(&mut steps, hidden / 64.0);
        let output = make(&mut steps, hidden);
        steps.push((wide, None));
        if layer % 2 == 0 {
            saved.extend([scores, small]);
        } else {
            steps.extend([(scores, None), (small, None)]);
        }
        steps.push((input, None));
        input = output;
    }
    steps.push((input, None));
    while let Some(last) = saved.pop() {
        let gradient = make(&mut steps, hidden);
        steps.extend([(last, None), (gradient, None)]);
    }
    steps
}

fn working_set(steps: &[(usize, Option<u64>)]) -> u64 {
    let mut sizes = Vec::new();
    let (mut live, mut most) = (0, 0);
    for &(number, bytes) in steps {
        match bytes {
            Some(bytes) => {
                sizes.push(bytes.next_multiple_of(512));
                live += sizes[number];
            }
            None => live -= sizes[number],
        }
        most = most.max(live);
    }
    most
}

/// Runs `iterations` iterations. The longest possible iteration needs `most_bytes`. Returns the hit
/// rate after 100 iterations, the peak of the reserved bytes, and the largest working set.
fn walk(
    policy: Policy,
    lengths: Lengths,
    most_bytes: u64,
    iterations: u64,
) -> Result<(f64, u64, u64)> {
    let device = device_with(DeviceConfig {
        pool: PoolKind::BestFit,
        ..Default::default()
    })?;
    let scale = most_bytes as f64 / working_set(&iteration(Lengths::LONGEST, 1.0)) as f64;
    let fixed_bytes = iteration(Lengths::LONGEST, scale)[0].1;
    let mut random = Random(7);
    let (mut largest, mut early) = (0, None);
    for number in 0..iterations {
        if number == 100 {
            early = device.cache_stats("text");
        }
        let mut steps = iteration(lengths.batch(number, &mut random), scale);
        if lengths == Lengths::Fixed {
            steps[0].1 = fixed_bytes;
        }
        largest = largest.max(working_set(&steps));
        cache_scope!("text", policy = policy, device = &device, {
            let mut arrays: Vec<Option<Buffer>> = Vec::new();
            for (number, bytes) in steps {
                match bytes {
                    Some(bytes) => arrays.push(Some(Buffer::new(&device, bytes as usize)?)),
                    None => arrays[number] = None,
                }
            }
        });
    }
    let (early, late) = (early.unwrap(), device.cache_stats("text").unwrap());
    let (hits, misses) = (late.hits - early.hits, late.misses - early.misses);
    let hit_rate = hits as f64 / (hits + misses) as f64;
    Ok((hit_rate, device.memory_stats().peak_reserved_bytes, largest))
}

/// Checks that less than 1.3 × the largest working set is reserved. Because pages have 2 MiB, small
/// working sets may exceed this ratio. So 17/16 of the working set plus three pages is also
/// allowed.
fn hold(policy: Policy) {
    let walks = [
        (MIB, 2000),
        (4 * MIB, 2000),
        (8 * MIB, 2000),
        (16 * MIB, 10_000),
    ];
    let larger = [
        (32 * MIB, 2000),
        (64 * MIB, 10_000),
        (256 * MIB, 2000),
        (1024 * MIB, 2000),
    ];
    for lengths in Lengths::ALL {
        for (most_bytes, iterations) in walks.into_iter().chain(larger) {
            let walked = walk(policy, lengths, most_bytes as u64, iterations);
            let (hit_rate, reserved, largest) = walked.unwrap();
            let case = format!("{policy}, {lengths:?}, {} MiB", most_bytes / MIB);
            let ratio = reserved as f64 / largest as f64;
            println!("{case}: hit rate {hit_rate:.4}, reserved {ratio:.3} of the working set");
            assert!(hit_rate > 0.95, "{case}: {hit_rate}");
            let few_pages = largest + largest / 16 + 3 * (2 * MIB as u64);
            assert!(ratio < 1.3 || reserved <= few_pages, "{case}: {ratio}");
        }
    }
}

#[test]
fn recycled_blocks_of_any_lengths_stay_near_the_largest_working_set() {
    hold(Policy::Recycle);
}

#[test]
fn planned_entries_of_any_lengths_stay_near_the_largest_working_set() {
    hold(Policy::Plan);
}

#[test]
fn steps_of_every_batch_up_to_the_largest_follow_one_plan() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let _current = device.enter();
    let mut layers = (
        Linear::<f32>::new(24, 48)?,
        LayerNorm::<f32>::new(48)?,
        Linear::<f32>::new(48, 10)?,
    );
    let mut optimizer = AdamW::new(1e-3);
    let mut step = |batch: usize| -> Result<()> {
        cache_scope!("step", policy = Policy::Plan, {
            let x = Array::<f32>::rand([batch, 24])?;
            let classes = Array::<i64>::zeros(batch)?;
            let (_loss, gradients) = value_and_grad(&layers, |(first, norm, last)| {
                let y = norm.forward(&first.forward(&x)?.gelu().eval()?)?;
                last.forward(&y)?.cross_entropy(&classes)
            })?;
            optimizer.step(&mut layers, &gradients)
        })
    };
    for _ in 0..3 {
        step(64)?;
    }
    let before = device.cache_stats("step").expect("it was entered");
    let reserved = device.memory_stats().reserved_bytes;
    for batch in [48, 64, 1, 63, 17, 33, 2, 50] {
        step(batch)?;
    }
    let after = device.cache_stats("step").expect("it was entered");
    assert_eq!(
        (after.divergences, after.misses),
        (before.divergences, before.misses)
    );
    assert_eq!(device.memory_stats().reserved_bytes, reserved);
    Ok(())
}
