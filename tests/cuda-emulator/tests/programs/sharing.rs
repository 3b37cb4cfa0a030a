//! Tests with threads on separate streams that exchange arrays.

use std::sync::{Mutex, PoisonError};

use cachescope::{Array, Device, DeviceConfig, Policy, Result, cache_scope};

use crate::programs::turn;

/// The total number of operations of all threads.
const OPERATIONS: usize = 10_000;
const THREADS: usize = 2;
const PLACES: usize = 8;
const LENGTH: usize = 200;

#[derive(Clone, Debug)]
struct Known {
    array: Array<i32>,
    values: Vec<i32>,
}

/// A pseudo-random generator (Steele, Lea and Flood 2014: SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

fn together(left: &[i32], right: &[i32], function: impl Fn(i32, i32) -> i32) -> Vec<i32> {
    left.iter()
        .zip(right)
        .map(|(&a, &b)| function(a, b))
        .collect()
}

/// Computes an operation on the device and on the host. Returns the two results.
fn compute(operation: usize, left: Known, right: &Known) -> Result<Known> {
    let (array, values) = match operation {
        0 => (
            (&left.array + &right.array).eval()?,
            together(&left.values, &right.values, i32::wrapping_add),
        ),
        1 => ((&left.array * &right.array.flip(0)? + 1).eval()?, {
            let reversed: Vec<i32> = right.values.iter().rev().copied().collect();
            together(&left.values, &reversed, |a, b| {
                a.wrapping_mul(b).wrapping_add(1)
            })
        }),
        2 => {
            // If the array is not shared, the update is in place. Otherwise, the array is copied
            // first.
            let mut array = left.array;
            array.update(|x| x - &right.array)?;
            (
                array,
                together(&left.values, &right.values, i32::wrapping_sub),
            )
        }
        3 => (
            left.array.maximum(&right.array).eval()?,
            together(&left.values, &right.values, i32::max),
        ),
        _ => {
            let mut array = left.array;
            array.fill(operation as i32)?;
            (array, vec![operation as i32; LENGTH])
        }
    };
    Ok(Known { array, values })
}

fn work(device: &Device, places: &[Mutex<Known>], seed: u64) -> Result<()> {
    let stream = device.new_stream()?;
    let _inside = stream.enter();
    let mut random = Random(seed);
    let locked = |place: usize| places[place].lock().unwrap_or_else(PoisonError::into_inner);
    let mut done = 0;
    while done < OPERATIONS / THREADS {
        cache_scope!("work", policy = Policy::Recycle, {
            for _ in 0..50 {
                let (from, with, to) = (
                    random.below(PLACES),
                    random.below(PLACES),
                    random.below(PLACES),
                );
                let left = locked(from).clone();
                let right = locked(with).clone();
                let known = compute(random.below(6), left, &right)?;
                if random.below(100) == 0 {
                    assert_eq!(known.array.to_vec()?, known.values);
                }
                let before = std::mem::replace(&mut *locked(to), known);
                drop(before);
                done += 1;
            }
        });
    }
    Ok(())
}

#[test]
fn threads_that_share_arrays_compute_what_the_host_does() -> Result<()> {
    let _turn = turn();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let places: Vec<_> = (0..PLACES as i32)
        .map(|number| {
            let values: Vec<i32> = (0..LENGTH as i32).map(|i| i * 31 + number).collect();
            let array = Array::from_slice(&values, LENGTH)?;
            Ok(Mutex::new(Known { array, values }))
        })
        .collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64)
            .map(|seed| {
                scope.spawn({
                    let (device, places) = (&device, &places);
                    move || work(device, places, seed)
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    for place in places {
        let known = place.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(known.array.to_vec()?, known.values);
    }
    Ok(())
}
