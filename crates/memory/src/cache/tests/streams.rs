//! Random programs on a device that delays its work. Without a wait, a block would be reused before
//! streams have read it. A delayed check verifies the bytes that a stream reads.

use proptest::prelude::*;

use super::*;
use crate::device::Backend;

const STREAMS: u16 = 4;

#[derive(Clone, Debug)]
enum StreamStep {
    Enter(usize, Policy),
    Leave,
    Allocate(u64, StreamId),
    Write(usize, StreamId),
    Read(usize, StreamId),
    Drop(usize),
    DropElsewhere(usize),
    Invalidate(usize),
    Remove(usize),
    Trim,
    Synchronize(StreamId),
    LookUp,
}

fn steps() -> impl Strategy<Value = Vec<StreamStep>> {
    let stream = || (0..STREAMS).prop_map(StreamId);
    let policy =
        prop::sample::select(&[Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan][..]);
    let step = prop_oneof![
        4 => (0..NAMES.len(), policy).prop_map(|(name, policy)| StreamStep::Enter(name, policy)),
        4 => Just(StreamStep::Leave),
        10 => (1u64..50_000, stream()).prop_map(|(bytes, stream)| StreamStep::Allocate(bytes, stream)),
        5 => (any::<usize>(), stream()).prop_map(|(index, stream)| StreamStep::Write(index, stream)),
        8 => (any::<usize>(), stream()).prop_map(|(index, stream)| StreamStep::Read(index, stream)),
        8 => any::<usize>().prop_map(StreamStep::Drop),
        2 => any::<usize>().prop_map(StreamStep::DropElsewhere),
        1 => (0..NAMES.len()).prop_map(StreamStep::Invalidate),
        1 => (0..NAMES.len()).prop_map(StreamStep::Remove),
        1 => Just(StreamStep::Trim),
        1 => stream().prop_map(StreamStep::Synchronize),
        1 => Just(StreamStep::LookUp),
    ];
    prop::collection::vec(step, 1..150)
}

/// The live handles, each with the last byte written to its block.
#[derive(Default)]
struct Live(Vec<(BlockHandle, u8)>);

impl Live {
    fn at(&mut self, index: usize) -> Option<&mut (BlockHandle, u8)> {
        let index = index.checked_rem(self.0.len())?;
        self.0.get_mut(index)
    }

    fn remove(&mut self, index: usize) -> Option<BlockHandle> {
        let index = index.checked_rem(self.0.len())?;
        Some(self.0.swap_remove(index).0)
    }
}

fn step(caches: &CachesRef, step: &StreamStep, live: &mut Live, value: u8) -> Result<()> {
    let streams = caches.memory.streams();
    match *step {
        StreamStep::Allocate(bytes, stream) => {
            let handle = match caches.allocate_on(bytes, stream) {
                Ok(handle) => handle,
                Err(error) if error.is_out_of_memory() => return Ok(()),
                Err(error) => return Err(error),
            };
            assert_eq!(handle.block.stream, stream);
            shard::write_on(streams, &handle, stream, value)?;
            live.0.push((handle, value));
        }
        StreamStep::Write(index, stream) => {
            if let Some((handle, holds)) = live.at(index) {
                shard::write_on(streams, handle, stream, value)?;
                *holds = value;
            }
        }
        StreamStep::Read(index, stream) => {
            if let Some((handle, holds)) = live.at(index) {
                shard::expect_on(streams, handle, stream, *holds)?;
            }
        }
        StreamStep::Drop(index) => drop(live.remove(index)),
        StreamStep::DropElsewhere(index) => {
            let handle = live.remove(index);
            std::thread::spawn(move || drop(handle)).join().unwrap();
        }
        StreamStep::Invalidate(name) => drop(caches.invalidate(NAMES[name])),
        StreamStep::Remove(name) => drop(caches.remove(NAMES[name])),
        StreamStep::Trim => drop(caches.trim(0)),
        StreamStep::Synchronize(stream) => streams.backend.synchronize(stream)?,
        StreamStep::LookUp => drop(caches.memory_stats()),
        StreamStep::Enter(..) | StreamStep::Leave => {}
    }
    Ok(())
}

fn run(pool: PoolKind, limit_bytes: Option<u64>, steps: &[StreamStep]) -> Result<()> {
    let backend = Arc::new(HostBackend::delaying());
    for _ in 1..STREAMS {
        backend.new_stream()?;
    }
    let config = MemoryConfig {
        pool,
        limit_bytes,
        ..MemoryConfig::default()
    };
    let memory = DeviceMemory::new(backend, &config)?;
    let caches = Caches::over(memory, CachesConfig::default());
    // The program runs repeatedly, like in a loop, so that its entries are planned.
    for _ in 0..3 {
        run_once(&caches, steps)?;
    }
    caches.synchronize()?;
    caches.check();
    assert_eq!(caches.memory_stats().pending_bytes, 0);
    caches.invalidate_all();
    caches.trim(0);
    let stats = caches.memory_stats();
    assert_eq!((stats.live_blocks, stats.reserved_bytes), (0, 0));
    Ok(())
}

fn run_once(caches: &CachesRef, steps: &[StreamStep]) -> Result<()> {
    let mut live = Live::default();
    let mut entered = Vec::new();
    for (number, next) in steps.iter().enumerate() {
        match next {
            StreamStep::Enter(name, policy) if entered.len() < 6 => {
                entered.push(enter(caches, NAMES[*name], Some(*policy)));
            }
            StreamStep::Leave => drop(entered.pop()),
            other => step(caches, other, &mut live, number as u8)?,
        }
        caches.check();
    }
    while let Some(guard) = entered.pop() {
        drop(guard);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn streams_read_what_was_written_for_them(
        pool in pools(),
        limit in prop_oneof![Just(None), (100_000u64..3_000_000).prop_map(Some)],
        steps in steps(),
    ) {
        run(pool, limit, &steps).unwrap();
    }
}

#[test]
fn a_device_ends_with_its_pending_blocks() -> Result<()> {
    let backend = Arc::new(HostBackend::delaying());
    let other = backend.new_stream()?;
    let memory = DeviceMemory::new(
        Arc::clone(&backend) as Arc<dyn Backend>,
        &MemoryConfig::default(),
    )?;
    let caches = Caches::over(memory, CachesConfig::default());
    let handle = caches.allocate_on(1 << 20, StreamId::default())?;
    shard::write_on(caches.memory.streams(), &handle, StreamId::default(), 1)?;
    shard::expect_on(caches.memory.streams(), &handle, other, 1)?;
    drop(handle);
    assert!(caches.memory_stats().pending_bytes > 0);
    let weak = caches.this.clone();
    drop(caches);
    assert!(weak.upgrade().is_none());
    assert!(backend.holds_nothing());
    Ok(())
}
