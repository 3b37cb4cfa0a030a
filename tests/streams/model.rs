//! Random programs on several streams, compared with the results of the program in order.

use cachescope::scope::ScopeGuard;
use cachescope::{
    Array, Device, DeviceConfig, DeviceGuard, Policy, PoolKind, Result, Stream, StreamGuard,
};
use proptest::prelude::*;
use under_test::device_with;

const STREAMS: usize = 4;
const NAMES: [&str; 3] = ["a", "b", "c"];
const LENGTHS: [usize; 3] = [40, 300, 5000];

#[derive(Clone, Debug)]
enum Step {
    Make { length: usize, value: i32 },
    Upload { length: usize, value: i32 },
    Add { left: usize, right: usize },
    Sum { of: usize },
    Fill { target: usize, value: i32 },
    Update { target: usize, other: usize },
    Copy { of: usize },
    Drop { of: usize },
    DropElsewhere { of: usize },
    Read { of: usize },
    EnterStream(usize),
    EnterScope(usize),
    Leave,
    LeaveOutOfOrder(usize),
    Synchronize(usize),
    Invalidate(usize),
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<usize>;
    let step = prop_oneof![
        3 => (0..LENGTHS.len(), any::<i32>()).prop_map(|(length, value)| Step::Make { length, value }),
        3 => (0..LENGTHS.len(), any::<i32>()).prop_map(|(length, value)| Step::Upload { length, value }),
        8 => (at(), at()).prop_map(|(left, right)| Step::Add { left, right }),
        2 => at().prop_map(|of| Step::Sum { of }),
        3 => (at(), any::<i32>()).prop_map(|(target, value)| Step::Fill { target, value }),
        6 => (at(), at()).prop_map(|(target, other)| Step::Update { target, other }),
        1 => at().prop_map(|of| Step::Copy { of }),
        6 => at().prop_map(|of| Step::Drop { of }),
        1 => at().prop_map(|of| Step::DropElsewhere { of }),
        1 => at().prop_map(|of| Step::Read { of }),
        8 => (0..STREAMS).prop_map(Step::EnterStream),
        3 => (0..3usize).prop_map(Step::EnterScope),
        5 => Just(Step::Leave),
        1 => at().prop_map(Step::LeaveOutOfOrder),
        1 => (0..STREAMS).prop_map(Step::Synchronize),
        1 => (0..3usize).prop_map(Step::Invalidate),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..120)
}

enum Guard {
    #[expect(dead_code, reason = "held for its drop")]
    Stream(StreamGuard),
    #[expect(dead_code, reason = "held for its drop")]
    Scope(ScopeGuard),
}

/// Arrays with their expected contents.
#[derive(Default)]
struct Model {
    live: Vec<(Array<i32>, Vec<i32>)>,
}

impl Model {
    fn add(&mut self, array: Array<i32>, expected: Vec<i32>) {
        assert_eq!(array.len(), expected.len());
        self.live.push((array, expected));
    }

    fn index(&self, of: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| of % self.live.len())
    }

    fn take(&mut self, of: usize) -> Option<Array<i32>> {
        self.index(of).map(|index| self.live.swap_remove(index).0)
    }

    fn read(&self, of: usize) -> Result<()> {
        if let Some(index) = self.index(of) {
            let (array, expected) = &self.live[index];
            assert!(array.to_vec()? == *expected, "{array} is not {expected:?}");
        }
        Ok(())
    }

    /// Returns two operands of equal length.
    fn pair(&self, left: usize, right: usize) -> Option<(usize, usize)> {
        let left = self.index(left)?;
        let len = self.live[left].0.len();
        let alike: Vec<usize> = (0..self.live.len())
            .filter(|&index| self.live[index].0.len() == len)
            .collect();
        Some((left, alike[right % alike.len()]))
    }

    fn compute(&mut self, step: &Step) -> Result<()> {
        match *step {
            Step::Make { length, value } => {
                let len = LENGTHS[length];
                self.add(Array::full(len, value)?, vec![value; len]);
            }
            Step::Upload { length, value } => {
                let len = LENGTHS[length] as i32;
                let values: Vec<i32> = (0..len).map(|index| value.wrapping_add(index)).collect();
                self.add(Array::from_slice(&values, values.len())?, values);
            }
            Step::Add { left, right } => {
                if let Some((left, right)) = self.pair(left, right) {
                    let ((a, x), (b, y)) = (&self.live[left], &self.live[right]);
                    let sums = x.iter().zip(y).map(|(x, y)| x.wrapping_add(*y)).collect();
                    self.add((a + b).eval()?, sums);
                }
            }
            Step::Sum { of } => {
                if let Some(index) = self.index(of) {
                    let (array, expected) = &self.live[index];
                    let sum: i64 = expected.iter().copied().map(i64::from).sum();
                    let sum_of = array.sum()?.lazy().cast::<i32>().eval()?.reshape(1)?;
                    self.add(sum_of, vec![sum as i32]);
                }
            }
            Step::Fill { target, value } => {
                if let Some(index) = self.index(target) {
                    let (array, expected) = &mut self.live[index];
                    array.fill(value)?;
                    expected.fill(value);
                }
            }
            Step::Update { target, other } => {
                if let Some((target, other)) = self.pair(target, other) {
                    let (by, values) = self.live[other].clone();
                    let (array, expected) = &mut self.live[target];
                    array.update(|array| array * 3 + &by)?;
                    for (x, y) in expected.iter_mut().zip(values) {
                        *x = x.wrapping_mul(3).wrapping_add(y);
                    }
                }
            }
            Step::Copy { of } => {
                if let Some(index) = self.index(of) {
                    let copy = self.live[index].clone();
                    self.live.push(copy);
                }
            }
            Step::Drop { of } => drop(self.take(of)),
            Step::DropElsewhere { of } => {
                let array = self.take(of);
                std::thread::spawn(move || drop(array)).join().unwrap();
            }
            Step::Read { of } => self.read(of)?,
            _ => {}
        }
        Ok(())
    }
}

fn run(device: &Device, steps: &[Step], policy: Policy) -> Result<()> {
    let _current: DeviceGuard = device.enter();
    let streams: Vec<_> = (1..STREAMS)
        .map(|_| device.new_stream())
        .collect::<Result<_>>()?;
    for name in NAMES {
        let config = cachescope::CacheConfig {
            policy,
            ..Default::default()
        };
        device.configure_cache(name, config);
    }
    // The program repeats like a loop, so that entries can be planned.
    for _ in 0..3 {
        run_once(device, steps, &streams)?;
    }
    device.synchronize()?;
    device.invalidate_all_caches();
    device.trim(0);
    let stats = device.memory_stats();
    assert_eq!(
        (stats.live_blocks, stats.pending_bytes, stats.reserved_bytes),
        (0, 0, 0)
    );
    Ok(())
}

/// Runs the program once, and returns after every array is read and dropped.
fn run_once(device: &Device, steps: &[Step], streams: &[Stream]) -> Result<()> {
    let stream = |number: usize| match number {
        0 => device.default_stream(),
        other => streams[other - 1].clone(),
    };
    let mut guards: Vec<Guard> = Vec::new();
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::EnterStream(number) => guards.push(Guard::Stream(stream(*number).enter())),
            Step::EnterScope(number) => {
                guards.push(Guard::Scope(device.scope(NAMES[*number]).enter()));
            }
            Step::Leave => drop(guards.pop()),
            Step::LeaveOutOfOrder(index) if !guards.is_empty() => {
                drop(guards.remove(index % guards.len()));
            }
            Step::Synchronize(number) => stream(*number).synchronize()?,
            Step::Invalidate(number) => drop(device.invalidate_cache(NAMES[*number])),
            Step::Trim => drop(device.trim(0)),
            other => match model.compute(other) {
                Err(error) if error.is_out_of_memory() => {}
                outcome => outcome?,
            },
        }
    }
    // Arrays are read in the reverse order of their creation, so that no wait orders them by
    // chance.
    for index in (0..model.live.len()).rev() {
        model.read(index)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: crate::regressions(), ..ProptestConfig::default() })]

    #[test]
    fn programs_compute_what_they_would_in_order(
        steps in steps(),
        pool in prop_oneof![4 => Just(PoolKind::BestFit), 1 => Just(PoolKind::Binned), 1 => Just(PoolKind::Direct)],
        policy in prop_oneof![Just(Policy::Recycle), Just(Policy::Release), Just(Policy::Bump), Just(Policy::Plan)],
        memory_limit in prop_oneof![Just(None), Just(Some(1 << 18)), Just(Some(4 << 20))],
        delay_streams in prop::bool::weighted(0.9),
        expandable_segments: bool,
    ) {
        let device = device_with(DeviceConfig {
            pool,
            memory_limit,
            fill_recycled: Some(0xA5),
            delay_streams,
            expandable_segments,
            ..Default::default()
        }).unwrap();
        run(&device, &steps, policy).unwrap();
    }
}
