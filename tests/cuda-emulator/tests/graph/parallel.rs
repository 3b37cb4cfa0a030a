//! Tests of launches, while other threads use the arrays of the graph.
//!
//! If a launch and another operation use one array, there are two valid outcomes. Any other outcome
//! means that one of them did not wait for the other. The emulator reveals such an error, because a
//! stream runs its work only when something waits for it. `CACHESCOPE_GRAPH_ROUNDS` sets the number
//! of rounds.

use std::cell::Cell;
use std::hint;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use cachescope::graph::{Graph, capture};
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Result, Stream};
use cuda_emulator::Control;

use super::slabs::Lent;

const LENGTH: usize = 1000;

fn rounds() -> u64 {
    let wanted = std::env::var("CACHESCOPE_GRAPH_ROUNDS").ok();
    wanted.map_or(3000, |rounds| rounds.parse().expect("a number of rounds"))
}

/// A thread that executes its function once per round, concurrently with the caller.
struct Beside<'a> {
    begun: &'a AtomicU64,
    done: &'a AtomicU64,
}

impl Beside<'_> {
    /// Runs `own` concurrently with the other thread's function.
    fn together<T>(&self, own: impl FnOnce() -> T) -> T {
        let round = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let own = own();
        let mut iterations = 0;
        while self.done.load(Ordering::Acquire) < round {
            wait(&mut iterations);
        }
        own
    }
}

/// Waits briefly. The first waits only spin, so that the two threads start at about the same time.
fn wait(iterations: &mut u32) {
    *iterations += 1;
    if *iterations < 2000 {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

/// A guard that ends the wait of [`Beside::together`] if the other thread panics.
struct Failing<'a>(&'a AtomicU64);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(u64::MAX, Ordering::Release);
        }
    }
}

/// Runs `rounds`. In each round, another thread runs `other`.
fn beside<T>(other: impl Fn() + Sync, rounds: impl FnOnce(&Beside<'_>) -> T) -> T {
    let (begun, done, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _failing = Failing(&done);
            let (mut round, mut iterations) = (0, 0);
            while !is_over.load(Ordering::Acquire) {
                if begun.load(Ordering::Acquire) > round {
                    round += 1;
                    other();
                    done.store(round, Ordering::Release);
                    iterations = 0;
                }
                wait(&mut iterations);
            }
        });
        // The guard ends the other thread at each exit, including a panic. Without the guard, the
        // thread scope would wait forever.
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

/// An array x, with a graph on its own stream that replaces x by 3 x + 1.
struct Shared {
    x: Mutex<Array<i32>>,
    /// The array from which the graph computes x in its slab, or `None` if the graph updates x in
    /// place.
    y: Option<Array<i32>>,
    graph: Graph,
    own: Stream,
    other: Stream,
}

impl Shared {
    fn new(device: &Device, planned: bool) -> Result<Self> {
        let other = device.new_stream()?;
        if planned {
            let Lent { graph, x, y, own } = Lent::new(device)?;
            graph.launch()?;
            return Ok(Self {
                x: Mutex::new(x),
                y: Some(y),
                graph,
                own,
                other,
            });
        }
        let own = device.new_stream()?;
        let mut x = Array::ones(LENGTH)?;
        let inside = own.enter();
        let graph = capture(device, || x.update(|x| x * 3 + 1))?;
        drop(inside);
        Ok(Self {
            x: Mutex::new(x),
            y: None,
            graph,
            own,
            other,
        })
    }

    /// Sets the input of the next launch.
    fn prepare(&mut self, x: i32) -> Result<()> {
        let _inside = self.own.enter();
        self.y.as_mut().map_or(Ok(()), |y| y.fill(x))
    }

    /// Runs `work` on the other stream, as the other thread does.
    fn elsewhere(&self, device: &Device, work: impl FnOnce(&mut Array<i32>) -> Result<()>) {
        let (_device, _stream) = (device.enter(), self.other.enter());
        work(&mut self.x.lock().unwrap()).unwrap();
    }

    fn found(&self) -> Result<Vec<i32>> {
        self.x.lock().unwrap().to_vec()
    }
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
        let shared = RwLock::new(Shared::new(&device, planned)?);
        let write = || {
            let shared = shared.read().unwrap();
            shared.elsewhere(&device, |x| x.update(|x| x + 5));
        };
        beside(write, |beside| -> Result<()> {
            let mut before = 1;
            for round in 0..rounds() {
                shared.write().unwrap().prepare(before)?;
                let shared = shared.read().unwrap();
                beside.together(|| shared.graph.launch())?;
                let found = shared.found()?;
                let launched = tripled(before);
                let launched_last = if planned {
                    launched
                } else {
                    tripled(before + 5)
                };
                assert!(
                    found == [launched_last; LENGTH] || found == [launched + 5; LENGTH],
                    "round {round}, planned: {planned}: {} of {before}",
                    found[0]
                );
                before = found[0] % 1000;
                shared.x.lock().unwrap().fill(before)?;
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
        let shared = RwLock::new(Shared::new(&device, planned)?);
        let seen = Mutex::new(None);
        let read = || {
            let shared = shared.read().unwrap();
            shared.elsewhere(&device, |x| {
                *seen.lock().unwrap() = Some((&*x + 0).eval()?);
                Ok(())
            });
        };
        beside(read, |beside| -> Result<()> {
            let mut before = 1;
            for round in 0..rounds() {
                shared.write().unwrap().prepare(before)?;
                beside.together(|| shared.read().unwrap().graph.launch())?;
                // The next launch is ordered after the read. This launch must complete before the
                // result of the read is checked.
                let after = tripled(before);
                shared.write().unwrap().prepare(after)?;
                shared.read().unwrap().graph.launch()?;
                shared.read().unwrap().own.synchronize()?;
                let found = seen.lock().unwrap().take().expect("read").to_vec()?;
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

/// Pending launches and writes complete before the next user of the memory starts.
#[test]
fn what_was_used_beside_launches_is_given_on_in_order() -> Result<()> {
    for planned in [false, true] {
        let device = device();
        let _guard = device.enter();
        for round in 0..rounds().div_ceil(100) {
            let shared = Shared::new(&device, planned)?;
            let write = || shared.elsewhere(&device, |x| x.update(|x| x + 5));
            beside(write, |beside| beside.together(|| shared.graph.launch()))?;
            drop(shared);
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

/// Another thread's work on the capturing stream is executed or refused, but never recorded.
#[test]
fn work_beside_a_capture_is_done_or_refused() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let (x, done) = (Mutex::new(Array::<i32>::zeros(LENGTH)?), AtomicU64::new(0));
    let add = || {
        let _device = device.enter();
        for _ in 0..4 {
            match x.lock().unwrap().update(|x| x + 1) {
                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
            }
        }
    };
    beside(add, |beside| -> Result<()> {
        for _ in 0..rounds() {
            beside.together(|| capture(&device, || Ok(())))?;
        }
        Ok(())
    })?;
    let done = done.into_inner() as i32;
    assert_eq!(x.into_inner().unwrap().to_vec()?, [done; LENGTH]);
    Ok(())
}

/// While a capture waits for its stream, other streams still wait for pending work of this stream.
#[test]
fn work_beside_the_begin_of_a_capture_waits_for_pending_work() -> Result<()> {
    let Some(control) = Control::of_process() else {
        return Ok(());
    };
    let device = device();
    let (go, next) = mpsc::channel();
    let (tell, done) = mpsc::channel();
    let theirs = device.clone();
    let beside = thread::spawn(move || {
        let _device = theirs.enter();
        let stream = theirs.new_stream()?;
        let (mut x, mut y) = (Array::<i32>::zeros(LENGTH)?, Array::zeros(LENGTH)?);
        tell.send(()).expect("it is awaited");
        next.recv().expect("the capture begins");
        x.fill(7)?;
        tell.send(()).expect("it is awaited");
        next.recv().expect("the capture waits for the fill");
        let waits = Rc::new(Cell::new(false));
        let noted = Rc::clone(&waits);
        let control = Control::of_process().expect("it was found before");
        control.before_named("cuStreamWaitEvent", 1, move || noted.set(true));
        {
            let _stream = stream.enter();
            y.assign(&x)?;
        }
        tell.send(()).expect("it is awaited");
        assert!(waits.get(), "the other stream does not wait for the fill");
        y.to_vec()
    });
    done.recv().expect("the other thread begins");
    let taken = Rc::new(Cell::new(0));
    let steps = Rc::clone(&taken);
    let step = move || {
        let _ = go.send(());
        let is_done = done.recv_timeout(Duration::from_secs(10)).is_ok();
        steps.set(steps.get() + u32::from(is_done));
    };
    // `capture` waits for the device, which has two streams. Then it waits for the first stream
    // again.
    control.before_named("cuStreamSynchronize", 2, move || {
        step();
        let control = Control::of_process().expect("it was found before");
        control.before_named("cuStreamSynchronize", 1, step);
    });
    capture(&device, || Ok(()))?;
    assert_eq!(taken.get(), 2, "both steps were taken before the capture");
    assert_eq!(beside.join().unwrap()?, [7; LENGTH]);
    Ok(())
}

#[test]
fn two_threads_launch_one_graph() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let shared = Shared::new(&device, false)?;
    let launch = || shared.graph.launch().unwrap();
    beside(launch, |beside| -> Result<()> {
        let mut before = 0;
        for _ in 0..rounds() {
            shared.elsewhere(&device, |x| x.fill(before));
            beside.together(|| shared.graph.launch())?;
            let found = shared.found()?;
            assert_eq!(found, [tripled(tripled(before)); LENGTH]);
            before = found[0] % 1000;
        }
        Ok(())
    })
}
