//! Launches beside other threads that use the same arrays.
//!
//! What a launch and an operation do to one array has one of two outcomes. A third one means that either did
//! not see the other, which the emulator shows, because a stream that nobody waits for does nothing.
//! `CACHESCOPE_GRAPH_ROUNDS` says how many rounds there are.

use std::hint;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cachescope::graph::{Graph, capture};
use cachescope::{Array, Device, DeviceConfig, Result, Stream};

use super::slabs::escaped;

const LENGTH: usize = 1000;

fn rounds() -> u64 {
    let wanted = std::env::var("CACHESCOPE_GRAPH_ROUNDS").ok();
    wanted.map_or(3000, |rounds| rounds.parse().expect("a number of rounds"))
}

/// Another thread that does something once in each round, at the same time as the caller.
struct Beside<'a> {
    begun: &'a AtomicU64,
    done: &'a AtomicU64,
}

impl Beside<'_> {
    /// Does `own` beside what the other thread does.
    fn together<T>(&self, own: impl FnOnce() -> T) -> T {
        let round = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let own = own();
        while self.done.load(Ordering::Acquire) < round {
            hint::spin_loop();
        }
        own
    }
}

/// Runs `rounds`, while another thread does `other` in each.
fn beside<T>(other: impl Fn() + Sync, rounds: impl FnOnce(&Beside<'_>) -> T) -> T {
    let (begun, done, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !is_over.load(Ordering::Acquire) {
                if begun.load(Ordering::Acquire) > round {
                    round += 1;
                    other();
                    done.store(round, Ordering::Release);
                }
                hint::spin_loop();
            }
        });
        // Ended on every way out, lest the scope waits for ever.
        struct Ending<'a>(&'a AtomicBool);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _ending = Ending(&is_over);
        rounds(&Beside {
            begun: &begun,
            done: &done,
        })
    })
}

/// An array, a graph on a stream of its own that makes x of it 3 x + 1, and another stream.
fn setup(device: &Device, planned: bool) -> Result<(Mutex<Array<i32>>, Graph, Stream, Stream)> {
    let mut x = if planned {
        escaped()?
    } else {
        Array::zeros(LENGTH)?
    };
    let (own, other) = (device.new_stream()?, device.new_stream()?);
    let graph = {
        let _inside = own.enter();
        capture(device, || x.update(|x| x * 3 + 1))?
    };
    Ok((Mutex::new(x), graph, own, other))
}

fn tripled(x: i32) -> i32 {
    x.wrapping_mul(3).wrapping_add(1)
}

fn device() -> Device {
    Device::cuda_with(0, DeviceConfig::default()).unwrap()
}

#[test]
fn a_launch_and_a_write_see_each_other() -> Result<()> {
    for planned in [false, true] {
        let device = device();
        let _guard = device.enter();
        let (x, graph, _own, other) = setup(&device, planned)?;
        let write = || {
            let (_device, _stream) = (device.enter(), other.enter());
            x.lock().unwrap().update(|x| x + 5).unwrap();
        };
        beside(write, |beside| -> Result<()> {
            let mut before = 0;
            for round in 0..rounds() {
                beside.together(|| graph.launch())?;
                let found = x.lock().unwrap().to_vec()?;
                let [launched_last, written_last] =
                    [tripled(before + 5), tripled(before).wrapping_add(5)];
                assert!(
                    found == [launched_last; LENGTH] || found == [written_last; LENGTH],
                    "round {round}, planned: {planned}: {} of {before}",
                    found[0]
                );
                before = found[0] % 1000;
                x.lock().unwrap().fill(before)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_launch_and_a_read_see_each_other() -> Result<()> {
    for planned in [false, true] {
        let device = device();
        let _guard = device.enter();
        let (x, graph, own, other) = setup(&device, planned)?;
        let seen = Mutex::new(None);
        let read = || {
            let (_device, _stream) = (device.enter(), other.enter());
            let copy = (&*x.lock().unwrap() + 0).eval().unwrap();
            *seen.lock().unwrap() = Some(copy);
        };
        beside(read, |beside| -> Result<()> {
            let mut before = 0;
            for round in 0..rounds() {
                beside.together(|| graph.launch())?;
                // The next launch comes after the read, and is done before anybody looks what was read.
                graph.launch()?;
                own.synchronize()?;
                let found = seen.lock().unwrap().take().expect("read").to_vec()?;
                let after = tripled(before);
                assert!(
                    found == [before; LENGTH] || found == [after; LENGTH],
                    "round {round}, planned: {planned}: {} of {before}",
                    found[0]
                );
                before = tripled(after);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Nothing that the last launches or writes had yet to do reaches who gets the memory next.
#[test]
fn what_was_used_beside_launches_is_given_on_in_order() -> Result<()> {
    for planned in [false, true] {
        let device = device();
        let _guard = device.enter();
        for round in 0..rounds().div_ceil(100) {
            let (x, graph, _own, other) = setup(&device, planned)?;
            let write = || {
                let (_device, _stream) = (device.enter(), other.enter());
                x.lock().unwrap().update(|x| x + 5).unwrap();
            };
            beside(write, |beside| beside.together(|| graph.launch()))?;
            drop((graph, x));
            device.invalidate_all_caches();
            let news = (0..8).map(|value| Array::full(LENGTH, value));
            let news = news.collect::<Result<Vec<_>>>()?;
            news.iter().try_for_each(|new| new.to_vec().map(drop))?;
            device.synchronize()?;
            for (value, new) in (0..).zip(&news) {
                assert_eq!(new.to_vec()?, [value; LENGTH], "round {round}");
            }
        }
    }
    Ok(())
}

#[test]
fn two_threads_launch_one_graph() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let (x, graph, _own, other) = setup(&device, false)?;
    let launch = || graph.launch().unwrap();
    beside(launch, |beside| -> Result<()> {
        let mut before = 0;
        for _ in 0..rounds() {
            {
                let _inside = other.enter();
                x.lock().unwrap().fill(before)?;
            }
            beside.together(|| graph.launch())?;
            let found = x.lock().unwrap().to_vec()?;
            assert_eq!(found, [tripled(tripled(before)); LENGTH]);
            before = found[0] % 1000;
        }
        Ok(())
    })
}
