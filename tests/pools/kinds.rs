//! Properties of single pools.

use cachescope::{Buffer, Device, ErrorKind, PoolKind, RecordOptions, Result, cache_scope};
use under_test::device_with;

use crate::pools::{MIB, assert_empty, config, device};

#[test]
fn a_direct_pool_holds_what_is_handed_out_and_no_more() -> Result<()> {
    let device = device(PoolKind::Direct);
    let held = |device: &Device| {
        // A block is released only after the device has completed its work on the block.
        device.synchronize().unwrap();
        let stats = device.memory_stats();
        assert_eq!(stats.reserved_bytes, stats.allocated_bytes);
        (stats.reserved_bytes, stats.segments)
    };
    let first = Buffer::new(&device, 1000)?;
    let second = Buffer::new(&device, 3 * MIB + 1)?;
    assert_eq!(held(&device), (1024 + 3 * MIB as u64 + 512, 2));
    drop(second);
    assert_eq!(held(&device), (1024, 1));
    drop(first);
    assert_eq!(held(&device), (0, 0));
    // For the pool, a block in a cache is in use.
    cache_scope!("loop", device = &device, { Buffer::new(&device, 1000)? });
    assert_eq!(held(&device), (1024, 1));
    device.invalidate_cache("loop");
    assert_empty(&device, PoolKind::Direct);
    Ok(())
}

#[test]
fn a_binned_pool_rounds_to_powers_of_two() -> Result<()> {
    let device = device(PoolKind::Binned);
    for (len, block) in [(1, 512), (513, 1024), (1025, 2048), (3 * MIB, 4 * MIB)] {
        let buffer = Buffer::new(&device, len)?;
        let stats = device.memory_stats();
        assert_eq!(stats.live_bytes, len as u64);
        assert_eq!(stats.allocated_bytes, block as u64, "{len} bytes");
        drop(buffer);
    }
    let segments = device.memory_stats().segments;
    drop(Buffer::new(&device, 4 * MIB)?);
    assert_eq!(device.memory_stats().segments, segments, "kept and reused");
    Ok(())
}

#[test]
fn a_binned_pool_releases_the_memory_of_a_burst() -> Result<()> {
    let device = device(PoolKind::Binned);
    let burst: Result<Vec<_>> = (0..32)
        .map(|iteration| Buffer::new(&device, MIB << (iteration % 3)))
        .collect();
    drop(burst?);
    let of_burst = device.memory_stats().reserved_bytes;
    assert!(of_burst >= 64 * MIB as u64);

    // Two blocks suffice for the iterations below.
    let iterations = (0..100_000).take_while(|_| {
        let pair = [5000, 9000].map(|len| Buffer::new(&device, len).unwrap());
        drop(pair);
        device.memory_stats().reserved_bytes > 8192 + 16_384
    });
    let iterations = iterations.count();
    assert!(iterations > 1000, "kept for a while: {iterations}");
    assert!(iterations < 100_000, "given back at last");
    let stats = device.memory_stats();
    assert_eq!((stats.segments, stats.reserved_bytes), (2, 8192 + 16_384));
    Ok(())
}

#[test]
fn a_log_of_a_direct_pool_names_the_stream_of_each_request() -> Result<()> {
    let file = format!("cachescope-{}-streams.csv", std::process::id());
    let path = std::env::temp_dir().join(file);
    let device = device_with(config(PoolKind::Direct))?;
    let recording = device.record(RecordOptions::default())?;
    let first = Buffer::new(&device, 512)?;
    let stream = device.new_stream()?;
    let guard = stream.enter();
    let second = Buffer::new(&device, 1024)?;
    drop(guard);
    drop((first, second));
    device.synchronize()?;
    recording.write(&path)?;
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let row = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        [fields[2], fields[4], fields[5]].join(" ")
    };
    let mut rows: Vec<_> = text.lines().skip(1).map(row).collect();
    rows.sort();
    let expected = [
        "allocate 1024 0x1",
        "allocate 512 0x0",
        "free 1024 0x1",
        "free 512 0x0",
    ];
    assert_eq!(rows, expected);
    Ok(())
}

#[test]
fn a_stream_ordered_pool_is_the_drivers_own() {
    let error = Device::host_with(config(PoolKind::StreamOrdered)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(
        text.contains("stream-ordered") && text.contains("CUDA"),
        "{text}"
    );
    assert!(
        !text.contains("CACHESCOPE_POOL"),
        "not the environment's doing: {text}"
    );
}

#[test]
fn every_pool_is_parsed_from_its_name() {
    let names = ["best-fit", "binned", "direct", "stream-ordered"];
    let kinds = [
        PoolKind::BestFit,
        PoolKind::Binned,
        PoolKind::Direct,
        PoolKind::StreamOrdered,
    ];
    for (name, kind) in names.into_iter().zip(kinds) {
        assert_eq!(kind.to_string(), name);
        assert_eq!(name.parse::<PoolKind>().unwrap(), kind);
    }
    assert!("Binned".parse::<PoolKind>().is_err());
    assert_eq!(PoolKind::default(), PoolKind::BestFit);
}
