//! Tests of transfers to and from the device.

use cachescope::{Array, Device, Element, PoolKind, Stream};

use crate::device::{EmulatorLock, device, numbers};

/// The counts are near the length of a staging buffer, or require several buffers.
const COUNTS: [usize; 9] = [
    1,
    1000,
    (256 << 10) - 1,
    256 << 10,
    (256 << 10) + 1,
    (512 << 10) + 3,
    1 << 20,
    (9 << 18) + 5,
    7,
];

#[test]
fn what_was_uploaded_is_downloaded() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let sent: Vec<_> = (0..)
            .zip(COUNTS)
            .map(|(seed, count)| numbers(seed, count))
            .collect();
        let arrays: Vec<_> = sent
            .iter()
            .map(|sent| Array::from_slice(sent, sent.len()).unwrap())
            .collect();
        for (array, sent) in arrays.iter().zip(&sent) {
            assert_eq!(&array.to_vec().unwrap(), sent);
        }
        let host = arrays[4].to_device(&Device::host()).unwrap();
        assert_eq!(host.to_vec().unwrap(), sent[4]);
        assert_eq!(host.to_device(&device).unwrap().to_vec().unwrap(), sent[4]);
        assert_eq!(arrays[5].to_uncached().unwrap().to_vec().unwrap(), sent[5]);
    }
    lock.end();
}

#[test]
fn operands_on_the_host_and_a_device_are_named() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let there = Array::<f32>::ones([2, 2]).unwrap();
        let here = there.to_device(&Device::host()).unwrap();
        let ends =
            "is on cuda:0, the right operand [2, 2] on host: move one with `.to_device(&device)`";
        let says = |result: cachescope::Result<Array<f32>>, text: &str| {
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        };
        says(
            (&there + &here).eval(),
            &format!("add: the left operand [2, 2] {ends}"),
        );
        says(
            there.matmul(&here),
            &format!("matmul: the left operand [2, 2] {ends}"),
        );
        says(
            cachescope::concat(&[&here, &there], 0),
            "concat: array 0 [2, 2] is on host, array 1 [2, 2] on cuda:0: move one",
        );
    }
    lock.end();
}

#[test]
fn an_upload_waits_for_nothing_and_one_stream_needs_no_event() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let sent = numbers(1, 1000);
        let waits = ["cuStreamSynchronize", "cuEventRecord", "cuEventSynchronize"];
        let before = waits.map(|name| lock.control.calls_of(name));
        let arrays: Vec<_> = (0..50)
            .map(|_| Array::from_slice(&sent, 1000).unwrap())
            .collect();
        drop(arrays);
        assert_eq!(waits.map(|name| lock.control.calls_of(name)), before);
        let array = Array::from_slice(&sent, 1000).unwrap();
        let events = lock.calls_of("cuEventRecord", || {
            assert_eq!(array.to_vec().unwrap(), sent);
        });
        assert_eq!(events, 0);
    }
    lock.end();
}

/// More bytes than the staging buffers hold are enqueued before the device copies any of them.
#[test]
fn staging_memory_is_bounded_and_used_again() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let sent = numbers(3, 4 << 20);
        let array = Array::from_slice(&sent, 4 << 20).unwrap();
        assert_eq!(array.to_vec().unwrap(), sent);
        for seed in 0..100 {
            let sent = numbers(seed, 50_000);
            let array = Array::from_slice(&sent, 50_000).unwrap();
            if seed % 9 == 0 {
                assert_eq!(array.to_vec().unwrap(), sent);
            }
        }
        // One additional allocation is for bad-index reports.
        let pinned = lock.control.report().host_allocations - lock.before.host_allocations;
        assert!(pinned <= 9, "{pinned}");
    }
    lock.end();
}

/// Two streams use one staging buffer. The first stream completes long before the second.
#[test]
fn staging_memory_is_kept_for_every_stream_that_reads_it() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let [first, second] = [device.new_stream().unwrap(), device.new_stream().unwrap()];
        let sent = |stream: &Stream, seed| {
            let _guard = stream.enter();
            Array::from_vec(numbers(seed, 1000), 1000).unwrap()
        };
        let mut arrays = vec![sent(&first, 0)];
        arrays.extend((1..300).map(|seed| sent(&second, seed)));
        first.synchronize().unwrap();
        arrays.extend((300..600).map(|seed| sent(&first, seed)));
        for (seed, array) in arrays.iter().enumerate() {
            assert_eq!(array.to_vec().unwrap(), numbers(seed, 1000), "{seed}");
        }
    }
    lock.end();
}

#[test]
fn transfers_work_without_page_locked_memory() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let sent = numbers(4, 300_000);
        lock.control.fail_named("cuMemHostAlloc", 1, 2);
        let array = Array::from_slice(&sent, 300_000).unwrap();
        lock.control.fail_named("cuMemHostAlloc", 1, 2);
        assert_eq!(array.to_vec().unwrap(), sent);
        lock.control.fail_named("cuMemHostAlloc", 0, 0);
    }
    lock.end();
}

#[test]
fn threads_and_streams_do_not_mix_their_bytes() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let shared: Vec<_> = {
            let _guard = device.enter();
            (0..4)
                .map(|seed| Array::from_vec(numbers(seed, 70_000), 70_000).unwrap())
                .collect()
        };
        std::thread::scope(|scope| {
            for worker in 0..12 {
                let (device, shared) = (&device, &shared);
                scope.spawn(move || {
                    let stream = device.new_stream().unwrap();
                    let _guard = stream.enter();
                    for round in 0..6 {
                        let seed = 100 + worker * 10 + round;
                        let count = 1 + (seed * 7919) % 400_000;
                        let sent = numbers(seed, count);
                        let array = Array::from_slice(&sent, count).unwrap();
                        assert_eq!(array.to_vec().unwrap(), sent);
                        let theirs = &shared[round % 4];
                        assert_eq!(theirs.to_vec().unwrap(), numbers(round % 4, 70_000));
                    }
                });
            }
        });
    }
    lock.end();
}

fn assert_full<T: Element>(value: T) {
    for count in [1, 3, 8191, 8192, 8193, 100_003] {
        let array = Array::full(count, value).unwrap();
        let wrong = array
            .to_vec()
            .unwrap()
            .iter()
            .position(|&element| element != value);
        assert_eq!(wrong, None, "{count} of {value:?}");
    }
}

#[test]
fn arrays_of_one_value_are_filled_on_the_device() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let uploads = lock.calls_of("cuMemcpyHtoDAsync_v2", || {
            assert_full(7u8);
            assert_full(true);
            assert_full(-2i16);
            assert_full(0x0102u16);
            assert_full(1.5f32);
            assert_full(0u32);
            assert_full(-1i64);
            assert_full(0x0000_0001_0000_0001u64);
            assert_full(1.1f64);
            assert_full(i64::MIN);
        });
        assert_eq!(uploads, 0);
    }
    lock.end();
}
