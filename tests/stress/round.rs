//! A round: two devices, the threads that use the devices concurrently, and the checks at the end
//! of the round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cachescope::{Device, DeviceConfig, FaultPlan, PoolKind, Stream, scope};
use under_test::device_with;

use crate::stress::bindings::Counts;
use crate::stress::owned::{Owned, fail, take_failures};
use crate::stress::program;
use crate::stress::random::Random;

/// The time limit for the threads to end. After this time, the round counts as deadlocked.
const PATIENCE: Duration = Duration::from_secs(120);

/// Locks by polling, because ThreadSanitizer does not recognise the order that a wait inside the
/// standard library establishes.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::WouldBlock) => thread::yield_now(),
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
        }
    }
}

/// The state that the threads of a round share.
pub(crate) struct Round {
    pub(crate) devices: [Device; 2],
    pub(crate) streams: [Vec<Stream>; 2],
    /// The limits at the beginning of the round. Threads change the limits later.
    pub(crate) limits: [Option<u64>; 2],
    /// True if threads remove caches. The counts of removed caches cannot be compared.
    pub(crate) removes: bool,
    pub(crate) counts: Arc<[Counts; 3]>,
    /// The channels by which threads send arrays to each other: one for each concurrent thread.
    pub(crate) boxes: Vec<(Sender<Owned>, Mutex<Receiver<Owned>>)>,
    /// The arrays that pressure callbacks drop.
    pub(crate) spare: [Mutex<Vec<Owned>>; 2],
    stop: AtomicBool,
}

impl Round {
    fn new(random: &mut Random, threads: usize) -> Arc<Self> {
        let configs = [config(random), config(random)];
        let limits = [configs[0].memory_limit, configs[1].memory_limit];
        let devices = configs.map(|config| device_with(config).unwrap());
        let streams = [0, 1].map(|device: usize| {
            let count = random.below(3);
            let new = |_| devices[device].new_stream().unwrap();
            (0..count).map(new).collect()
        });
        let boxes = (0..threads).map(|_| {
            let (sender, receiver) = mpsc::channel();
            (sender, Mutex::new(receiver))
        });
        Arc::new(Self {
            devices,
            streams,
            limits,
            removes: random.once_in(2),
            counts: Arc::default(),
            boxes: boxes.collect(),
            spare: Default::default(),
            stop: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn config(random: &mut Random) -> DeviceConfig {
    const MIB: u64 = 1 << 20;
    let pools = [
        PoolKind::BestFit,
        PoolKind::BestFit,
        PoolKind::Binned,
        PoolKind::Direct,
    ];
    let limits = [None, Some(6 * MIB), Some(24 * MIB)];
    let fault = random.once_in(4).then(|| FaultPlan::Random {
        probability: 0.05,
        seed: random.next(),
    });
    DeviceConfig {
        pool: *random.one_of(&pools),
        expandable_segments: random.once_in(2),
        memory_limit: *random.one_of(&limits),
        delay_streams: random.once_in(2),
        fill_recycled: random.once_in(4).then_some(0xEE),
        fault,
        ..Default::default()
    }
}

/// Runs random programs on `threads` threads for the time `length`, and checks that no memory
/// remains. A thread that ends is replaced by a new thread.
pub(crate) fn run(seed: u64, threads: usize, length: Duration) {
    let mut random = Random::new(seed);
    let round = Round::new(&mut random, threads);
    let begin = |slot: usize, seed: u64| {
        let round = Arc::clone(&round);
        let name = format!("slot {slot}");
        thread::Builder::new()
            .name(name)
            .spawn(move || program::run(round, slot, seed))
            .unwrap()
    };
    let mut running: Vec<JoinHandle<()>> = (0..threads)
        .map(|slot| begin(slot, random.next()))
        .collect();
    let end = Instant::now() + length;
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
        for (slot, thread) in running.iter_mut().enumerate() {
            if thread.is_finished() {
                join(std::mem::replace(thread, begin(slot, random.next())));
            }
        }
    }
    round.stop.store(true, Ordering::Relaxed);
    while !running.iter().all(JoinHandle::is_finished) {
        if Instant::now() > end + PATIENCE {
            eprintln!("{}: the threads do not end", crate::stress::named(seed));
            std::process::abort();
        }
        thread::sleep(Duration::from_millis(2));
    }
    running.into_iter().for_each(join);
    finish(round, random.once_in(4));
    let failures = take_failures();
    assert!(
        failures.is_empty(),
        "{}:\n{}",
        crate::stress::named(seed),
        failures.join("\n")
    );
}

fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        fail(format!("a thread panicked: {text:?}"));
    }
}

/// Compares the counts with the statistics, and checks that all memory is released. If `outlive`,
/// checks arrays that outlive their device instead of the memory.
fn finish(round: Arc<Round>, outlive: bool) {
    let Some(round) = Arc::into_inner(round) else {
        return fail("a thread that has ended keeps the round".into());
    };
    let Round {
        devices,
        streams,
        boxes,
        spare,
        counts,
        removes,
        ..
    } = round;
    let mut kept: Vec<Owned> = Vec::new();
    for (sender, receiver) in boxes {
        drop(sender);
        kept.extend(receiver.into_inner().unwrap());
    }
    kept.extend(
        spare
            .into_iter()
            .flat_map(|spare| spare.into_inner().unwrap()),
    );
    kept.iter().for_each(Owned::check);
    if !removes {
        for (device, counts) in devices.iter().zip(&*counts) {
            check_sums(device, counts);
        }
    }
    if outlive {
        drop((devices, streams));
        kept.iter().for_each(Owned::check);
        return;
    }
    drop(kept);
    drop(streams);
    for device in devices {
        check_empty(&device);
    }
}

fn check_sums(device: &Device, counts: &Counts) {
    let _current = device.enter();
    let (mut entries, mut requests) = (0, 0);
    for cache in scope::report().caches {
        entries += cache.stats.entries;
        requests += cache.stats.hits + cache.stats.misses;
    }
    let expected = (
        counts.entries.load(Ordering::Relaxed),
        counts.requests.load(Ordering::Relaxed),
    );
    if (entries, requests) != expected {
        fail(format!(
            "{entries} entries and {requests} requests counted, {expected:?} made"
        ));
    }
}

fn check_empty(device: &Device) {
    device.set_memory_limit(None);
    // Refused allocations have already returned their errors, so no error may be pending.
    if let Err(error) = device.synchronize() {
        fail(format!("left behind: {error}"));
    }
    device.invalidate_all_caches();
    {
        let _current = device.enter();
        for cache in scope::report().caches {
            let stats = cache.stats;
            let left = (
                stats.live_blocks,
                stats.live_bytes,
                stats.cached_blocks,
                stats.cached_bytes,
                stats.pending_bytes,
                stats.escaped_blocks,
            );
            if left != (0, 0, 0, 0, 0, 0) {
                fail(format!("{:?} has something left: {stats:?}", cache.name));
            }
        }
    }
    device.trim(0);
    let stats = device.memory_stats();
    let left = [
        stats.live_blocks,
        stats.live_bytes,
        stats.cached_bytes,
        stats.allocated_bytes,
        stats.pending_bytes,
        stats.reserved_bytes,
        stats.segments,
    ];
    if left != [0; 7] || stats.reserves != stats.releases {
        fail(format!("something is left on the device: {stats:?}"));
    }
}
