//! Groups on devices with more than 64 streams. Ranks wait only for the work that they need.

use std::sync::{Barrier, Mutex};
use std::time::Duration;

use cachescope::collective::{Group, Reduce};
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Result, Stream};

/// The timeout that ends a deadlock.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a host device whose streams run work as late as the stream order allows.
fn delaying() -> Device {
    let config = DeviceConfig {
        delay_streams: true,
        ..DeviceConfig::default()
    };
    Device::host_with(config).unwrap()
}

/// Repeatedly replaces each rank's array by the mean over all ranks.
fn average_over_and_over(group: &Group, device: &Device) -> Result<()> {
    let _current = device.enter();
    let size = group.size() as f32;
    let mut x = Array::full(1000, group.rank() as f32)?;
    for _ in 0..10 {
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        x.update(|x| x / size)?;
    }
    assert_eq!(x.to_vec()?, [(size - 1.0) / 2.0; 1000]);
    Ok(())
}

#[test]
fn sixty_six_ranks_alternate_exchanges_and_computation() -> Result<()> {
    for device in [Device::host_with(DeviceConfig::default())?, delaying()] {
        Group::threads(66, |group| {
            average_over_and_over(&group.timeout(TIMEOUT), &device)
        })?;
    }
    Ok(())
}

#[test]
fn two_ranks_exchange_beside_sixty_two_streams() -> Result<()> {
    for device in [Device::host_with(DeviceConfig::default())?, delaying()] {
        let streams: Vec<Stream> = (0..62)
            .map(|_| device.new_stream())
            .collect::<Result<_>>()?;
        Group::threads(2, |group| {
            average_over_and_over(&group.timeout(TIMEOUT), &device)
        })?;
        drop(streams);
    }
    Ok(())
}

/// Makes a failed exchange: each rank passes an array of a different length.
fn fail(size: usize, device: &Device) {
    let failed = Group::threads(size, |group| {
        let _current = device.enter();
        let group = group.checks(false).timeout(TIMEOUT);
        let mut x = Array::<f32>::zeros(3 + group.rank())?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn a_group_succeeds_after_many_that_failed() -> Result<()> {
    for device in [Device::host_with(DeviceConfig::default())?, delaying()] {
        for size in [2; 70].into_iter().chain([8; 12]) {
            fail(size, &device);
        }
        Group::threads(8, |group| {
            average_over_and_over(&group.timeout(TIMEOUT), &device)
        })?;
        device.synchronize()?;
    }
    Ok(())
}

/// An array that a failed exchange did not write returns the error, even after exchanges of another
/// group.
#[test]
fn a_failure_stays_with_the_arrays_that_it_left_unwritten() -> Result<()> {
    let device = delaying();
    let left = Group::threads(2, |group| {
        let _current = device.enter();
        let group = group.checks(false).timeout(TIMEOUT);
        let mut x = Array::<f32>::zeros(3 + group.rank())?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        let heard = x.to_vec().map(drop);
        assert_eq!(heard.unwrap_err().kind(), ErrorKind::ShapeMismatch);
        Ok(x)
    })?;
    let left: Vec<_> = left.into_iter().map(Mutex::new).collect();
    Group::threads(2, |group| {
        let group = group.timeout(TIMEOUT);
        average_over_and_over(&group, &device)?;
        // The ranks now exchange on the streams of the group that failed.
        let mut unwritten = left[group.rank()].lock().unwrap();
        let exchanged = group.all_reduce_in_place(&mut *unwritten, Reduce::Sum);
        assert_eq!(exchanged.unwrap_err().kind(), ErrorKind::ShapeMismatch);
        Ok(())
    })?;
    for x in left.into_iter().map(|x| x.into_inner().unwrap()) {
        let heard = x.to_vec().map(drop);
        assert_eq!(heard.unwrap_err().kind(), ErrorKind::ShapeMismatch);
    }
    Ok(())
}

/// While a rank waits on the stream that wrote an array of an ended group, the array is readable.
#[test]
fn an_array_of_an_ended_group_waits_for_no_later_group() -> Result<()> {
    let device = delaying();
    let sums = Group::threads(2, |group| {
        let _current = device.enter();
        let mut x = Array::full(100, 1.0_f32)?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        Ok(x)
    })?;
    let has_read = Barrier::new(2);
    Group::threads(2, |group| {
        let _current = device.enter();
        let group = group.checks(false).timeout(TIMEOUT);
        if group.rank() == 0 {
            // This call completes only after rank 1's call. The reads of `sums` must not wait for
            // this call.
            let mut x = Array::full(100, 1.0_f32)?;
            group.all_reduce_in_place(&mut x, Reduce::Sum)?;
            for sum in &sums {
                assert_eq!(sum.to_vec()?, [2.0; 100]);
                assert_eq!((sum + 1.0).eval()?.to_vec()?, [3.0; 100]);
            }
            has_read.wait();
            assert_eq!(x.to_vec()?, [2.0; 100]);
        } else {
            has_read.wait();
            group.all_reduce_in_place(&mut Array::full(100, 1.0_f32)?, Reduce::Sum)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A generator of random programs. All ranks generate the same program.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A step of a random program over arrays of whole numbers. Each rank has all arrays.
#[derive(Clone, Copy, Debug)]
enum Step {
    AllReduce {
        array: usize,
    },
    Broadcast {
        array: usize,
        root: usize,
    },
    /// Adds the rank's index, on one of the rank's streams.
    AddRank {
        array: usize,
        stream: usize,
    },
    /// Adds another array, which other streams may read concurrently.
    AddArray {
        array: usize,
        other: usize,
        stream: usize,
    },
    /// Drops the array, and allocates another array on a stream.
    Replace {
        array: usize,
        stream: usize,
    },
    Read {
        array: usize,
    },
}

const ARRAYS: usize = 3;
const LENGTH: usize = 257;
/// The modulus of the sums.
const MODULUS: i64 = 1_000_003;

fn program(random: &mut Random, ranks: usize, streams: usize) -> Vec<Step> {
    let mut step = || {
        let mut below = |bound: usize| random.below(bound as u64) as usize;
        let (array, stream) = (below(ARRAYS), below(streams));
        match below(8) {
            0 | 1 => Step::AllReduce { array },
            2 => Step::Broadcast {
                array,
                root: below(ranks),
            },
            3 | 4 => Step::AddRank { array, stream },
            5 => Step::AddArray {
                array,
                other: (array + 1) % ARRAYS,
                stream,
            },
            6 => Step::Replace { array, stream },
            _ => Step::Read { array },
        }
    };
    (0..25).map(|_| step()).collect()
}

/// Returns the expected integer of each array on each rank.
fn expected(program: &[Step], ranks: usize) -> Vec<[i64; ARRAYS]> {
    let mut all: Vec<[i64; ARRAYS]> = (0..ranks).map(|rank| [rank as i64; ARRAYS]).collect();
    for step in program {
        match *step {
            Step::AllReduce { array } => {
                let sum: i64 = all.iter().map(|own| own[array]).sum();
                all.iter_mut().for_each(|own| own[array] = sum % MODULUS);
            }
            Step::Broadcast { array, root } => {
                let sent = all[root][array];
                all.iter_mut().for_each(|own| own[array] = sent);
            }
            Step::AddRank { array, .. } => {
                for (rank, own) in all.iter_mut().enumerate() {
                    own[array] += rank as i64;
                }
            }
            Step::AddArray { array, other, .. } => {
                for own in &mut all {
                    own[array] = (own[array] + own[other]) % MODULUS;
                }
            }
            Step::Replace { array, .. } => all.iter_mut().for_each(|own| own[array] = 7),
            Step::Read { .. } => {}
        }
    }
    all
}

/// Runs the program as one rank.
fn run(program: &[Step], group: &Group, streams: &[Stream]) -> Result<[i64; ARRAYS]> {
    let rank = group.rank() as i64;
    let made = (0..ARRAYS).map(|_| Array::full(LENGTH, rank));
    let mut arrays: Vec<Array<i64>> = made.collect::<Result<_>>()?;
    for step in program {
        match *step {
            Step::AllReduce { array } => {
                group.all_reduce_in_place(&mut arrays[array], Reduce::Sum)?;
                arrays[array].update(|x| x % MODULUS)?;
            }
            Step::Broadcast { array, root } => {
                group.broadcast_in_place(&mut arrays[array], root)?;
            }
            Step::AddRank { array, stream } => {
                let _stream = streams[stream].enter();
                arrays[array].update(|x| x + rank)?;
            }
            Step::AddArray {
                array,
                other,
                stream,
            } => {
                let _stream = streams[stream].enter();
                let other = arrays[other].clone();
                arrays[array].update(|x| (x + &other) % MODULUS)?;
            }
            Step::Replace { array, stream } => {
                let _stream = streams[stream].enter();
                arrays[array] = Array::full(LENGTH, 7)?;
            }
            Step::Read { array } => {
                let values = arrays[array].to_vec()?;
                assert!(values.iter().all(|value| *value == values[0]));
            }
        }
    }
    let mut values = [0; ARRAYS];
    for (value, array) in values.iter_mut().zip(&arrays) {
        let elements = array.to_vec()?;
        *value = elements[0];
        assert!(elements.iter().all(|element| element == value));
    }
    Ok(values)
}

#[test]
fn random_programs_of_ranks_with_many_streams_compute_what_numbers_do() -> Result<()> {
    // Each pair is the number of ranks and the number of streams per rank. With the host stream of
    // each rank, there are about 60 to 200 streams.
    let sizes = [
        (2, 29),
        (3, 66),
        (8, 20),
        (20, 9),
        (33, 1),
        (66, 1),
        (100, 1),
    ];
    for (seed, (ranks, own)) in (1..).zip(sizes.into_iter().cycle().take(14)) {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let program = program(&mut random, ranks, own);
        let device = if seed % 2 == 0 {
            delaying()
        } else {
            Device::host_with(DeviceConfig::default())?
        };
        let found = Group::threads(ranks, |group| {
            let _current = device.enter();
            let group = group.timeout(TIMEOUT);
            let streams = (0..own).map(|_| device.new_stream());
            let streams: Vec<Stream> = streams.collect::<Result<_>>()?;
            cachescope::cache_scope!("random programs", { run(&program, &group, &streams) })
        })?;
        let expected = expected(&program, ranks);
        assert_eq!(found, expected, "seed {seed}: {program:?}");
    }
    Ok(())
}
