//! Benchmark W16: a server with a memory limit. Threads repeatedly enter a shared scope. Each entry
//! makes three requests of mixed sizes. The limit is a percentage of the sum of the threads' peaks
//! of live bytes. So at 100 %, no request may be refused, regardless of the scheduling.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench server [-- SCOPES [THREADS]]`
//!
//! With `CACHESCOPE_DEVICE=cuda:0` and the feature `cuda`, the benchmark runs on a GPU. `cargo run
//! -p cuda-emulator -- PROGRAM` runs it on the emulated GPU. On a GPU, each thread has a stream,
//! and a dropped block is pending on this stream.
//!
//! The rows *one lock* use the device's pool without a scope. Without a scope, each request and
//! each drop acquires the pool's lock. The allocators of other libraries have no limit.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use cachescope::{Array, Buffer, Device, DeviceConfig, Result, Stream};
use cachescope_peers::peers::{Glibc, Jemalloc, Mimalloc, Pair, Raw};

/// The number of requests per scope entry.
const REQUESTS: u32 = 3;
/// The maximum size of a request in bytes.
const LONGEST: u64 = 4 << 20;
/// The page size in bytes. A request touches one byte of each page.
const PAGE_BYTES: usize = 4096;

/// A memory block whose drop frees it.
trait Block {
    /// Touches all pages of the block, which has at least `bytes` bytes.
    fn touch(&self, bytes: u64);
}

/// Writes one byte of each page of host memory.
///
/// # Safety
///
/// The `bytes` bytes at `address` must be writable.
unsafe fn touch_pages(address: *mut u8, bytes: u64) {
    for offset in (0..bytes as usize).step_by(PAGE_BYTES) {
        // SAFETY: by contract, the `bytes` bytes are writable, and `offset` is below
        // `bytes`.
        unsafe { address.add(offset).write_volatile(1) }
    }
}

impl Block for Buffer {
    fn touch(&self, bytes: u64) {
        // SAFETY: the block is live host memory with at least `bytes` bytes.
        unsafe { touch_pages(self.address() as *mut u8, bytes) }
    }
}

/// A stream fills a CUDA array with zeros, so `touch` does nothing on the host.
impl Block for Array<u8> {
    fn touch(&self, _bytes: u64) {}
}

/// A live block of another allocator; `None` after the drop.
struct Malloced<P: Pair<Block = Raw<P>> + Default>(Option<Raw<P>>);

impl<P: Pair<Block = Raw<P>> + Default> Block for Malloced<P> {
    fn touch(&self, bytes: u64) {
        let block = self.0.as_ref().expect("until it drops");
        // SAFETY: the block is live, and has at least `bytes` bytes.
        unsafe { touch_pages(block.address(), bytes) }
    }
}

impl<P: Pair<Block = Raw<P>> + Default> Drop for Malloced<P> {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            P::default().free(block);
        }
    }
}

#[derive(Default)]
struct Figures {
    requests: u64,
    refused: u64,
    /// The part of `refused` in which the live bytes and the request fit the limit.
    with_room: u64,
    longest: Duration,
    /// The sum of the threads' peaks of live bytes.
    peak_bytes: u64,
    time: Duration,
}

/// Runs `threads` threads. Each thread calls `enter` with its index `rounds` times. `enter` enters
/// a scope.
fn run<B: Block>(
    threads: u32,
    rounds: u32,
    enter: impl Fn(u32, &mut dyn FnMut()) + Sync,
    request: impl Fn(u64) -> Result<B> + Sync,
) -> Figures {
    let barrier = Barrier::new(threads as usize + 1);
    let work = |thread: u32| {
        let mut own = Figures::default();
        let mut random = u64::from(thread) + 1;
        barrier.wait();
        for _ in 0..rounds {
            enter(thread, &mut || {
                let mut before: Option<(B, u64)> = None;
                for _ in 0..REQUESTS {
                    // The generator is Knuth's (MMIX). Squaring the fraction makes small requests
                    // more frequent, as in real programs.
                    random = random
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let share = (random >> 33) as f64 / (1u64 << 31) as f64;
                    let bytes = 1 + (share * share * LONGEST as f64) as u64;
                    let live_bytes = before.as_ref().map_or(0, |(_, bytes)| *bytes);
                    own.peak_bytes = own.peak_bytes.max(live_bytes + bytes);
                    let begun = Instant::now();
                    let served = request(bytes);
                    own.longest = own.longest.max(begun.elapsed());
                    own.requests += 1;
                    match served {
                        Ok(block) => {
                            block.touch(bytes);
                            before = Some((block, bytes));
                        }
                        Err(error) => {
                            let report = error.out_of_memory_report().expect("out of memory");
                            let taken = report.live_bytes + report.rounding_bytes + bytes;
                            own.refused += 1;
                            own.with_room += u64::from(taken <= report.limit_bytes.unwrap_or(0));
                        }
                    }
                }
                drop(before);
            });
        }
        own
    };
    let mut sum = Figures::default();
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        barrier.wait();
        let begun = Instant::now();
        for thread in running {
            let own = thread.join().expect("a thread panicked");
            sum.requests += own.requests;
            sum.refused += own.refused;
            sum.with_room += own.with_room;
            sum.longest = sum.longest.max(own.longest);
            sum.peak_bytes += own.peak_bytes;
        }
        sum.time = begun.elapsed();
    });
    sum
}

fn row(name: &str, figures: &Figures, first: Option<f64>) -> f64 {
    let rate = figures.requests as f64 / figures.time.as_secs_f64();
    println!(
        "{name:<28} {:>9.0} {:>6.2} {:>9} {:>9} {:>10.1?}",
        rate,
        rate / first.unwrap_or(rate),
        figures.refused,
        figures.with_room,
        figures.longest
    );
    rate
}

fn main() -> Result<()> {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let rounds: u32 = numbers.next().unwrap_or(40_000);
    println!("requests a second; x: against no limit; refused; refused with room; longest request");
    let only = numbers.next();
    for threads in only.map_or(vec![2, 16, 64], |threads| vec![threads]) {
        let rounds = rounds / threads;
        println!("\n{threads} threads, {rounds} scopes each");
        let free = scoped(&device_with(None)?, threads, rounds)?;
        let peak = free.peak_bytes;
        let first = Some(row("no limit", &free, None));
        for percent in [150, 110, 100] {
            let device = device_with(Some(peak * percent / 100))?;
            row(
                &format!("{percent} % of {} MiB", peak >> 20),
                &scoped(&device, threads, rounds)?,
                first,
            );
        }
        if is_on_cuda() {
            continue;
        }
        let device = device_with(Some(peak * 110 / 100))?;
        let request = |bytes| Buffer::new(&device, bytes as usize);
        let locked = run(threads, rounds, |_, inside| inside(), request);
        row("one lock, 110 %", &locked, first);
        malloced::<Mimalloc>("mimalloc, no limit", threads, rounds, first);
        malloced::<Jemalloc>("jemalloc, no limit", threads, rounds, first);
        malloced::<Glibc>("glibc, no limit", threads, rounds, first);
    }
    Ok(())
}

fn is_on_cuda() -> bool {
    std::env::var("CACHESCOPE_DEVICE").is_ok_and(|name| name.starts_with("cuda"))
}

fn device_with(memory_limit: Option<u64>) -> Result<Device> {
    let config = DeviceConfig {
        memory_limit,
        ..Default::default()
    };
    match is_on_cuda() {
        true => Device::cuda_with(0, config),
        false => Device::host_with(config),
    }
}

/// Runs the threads in scopes of `device`. On CUDA, each thread has a stream, on which its dropped
/// blocks are pending.
fn scoped(device: &Device, threads: u32, rounds: u32) -> Result<Figures> {
    if !is_on_cuda() {
        let enter = |_, inside: &mut dyn FnMut()| {
            let _scope = device.scope("server").enter();
            inside();
        };
        return Ok(run(threads, rounds, enter, |bytes| {
            Buffer::new(device, bytes as usize)
        }));
    }
    let streams = (0..threads).map(|_| device.new_stream());
    let streams: Vec<Stream> = streams.collect::<Result<_>>()?;
    let enter = |thread: u32, inside: &mut dyn FnMut()| {
        let (_device, _stream) = (device.enter(), streams[thread as usize].enter());
        let _scope = device.scope("server").enter();
        inside();
    };
    Ok(run(threads, rounds, enter, |bytes| {
        Array::<u8>::zeros(bytes as usize)
    }))
}

/// Runs the threads with another allocator.
fn malloced<P: Pair<Block = Raw<P>> + Default>(
    name: &str,
    threads: u32,
    rounds: u32,
    first: Option<f64>,
) {
    let request = |bytes| Ok(Malloced::<P>(Some(P::default().allocate(bytes as usize))));
    row(
        name,
        &run(threads, rounds, |_, inside| inside(), request),
        first,
    );
}
