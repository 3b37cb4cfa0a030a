//! The recorded events and their fields.

use cachescope::record::{EventKind, RecordOptions};
use cachescope::{Array, Buffer, Device, DeviceConfig, Policy, cache_scope, uncached};

use super::{count, device, of_kind, record};

#[test]
fn requests_of_a_scope_are_hits_and_misses_with_their_lines() {
    let device = device();
    let recording = record(&device);
    let mut line = 0;
    for _ in 0..3 {
        cache_scope!("step", device = &device, {
            line = line!() + 1;
            let a = Buffer::new(&device, 1000).unwrap();
            drop(a);
        });
    }
    let events = recording.events();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    let entry = |request| [EventKind::Enter, request, EventKind::Free, EventKind::Exit];
    let mut first = entry(EventKind::Miss).to_vec();
    first.insert(1, EventKind::Reserve);
    let expected = [
        first,
        entry(EventKind::Hit).into(),
        entry(EventKind::Hit).into(),
    ]
    .concat();
    assert_eq!(kinds, expected);
    for event in &events {
        let is_reserve = event.kind == EventKind::Reserve;
        assert_eq!(event.scope.as_deref(), (!is_reserve).then_some("step"));
        if [EventKind::Hit, EventKind::Miss, EventKind::Free].contains(&event.kind) {
            assert_eq!((event.bytes, event.block_bytes), (1000, 1024));
            let call_site = event.call_site.as_ref().unwrap();
            assert_eq!(call_site.line, line);
            assert!(call_site.file.ends_with("events.rs"));
        }
    }
    let times: Vec<_> = events.iter().map(|event| event.time).collect();
    assert!(times.is_sorted());
    let addresses: Vec<_> = of_kind(&recording, EventKind::Free)
        .iter()
        .map(|event| event.address)
        .collect();
    assert_eq!(addresses, [addresses[0]; 3]);
}

#[test]
fn what_belongs_to_no_cache_has_no_scope() {
    let device = device();
    let recording = record(&device);
    let outside = Buffer::new(&device, 600).unwrap();
    let inside = cache_scope!("step", device = &device, {
        uncached!({ Buffer::new(&device, 700).unwrap() })
    });
    let uncached = of_kind(&recording, EventKind::Uncached);
    assert_eq!(uncached.len(), 2);
    assert!(uncached.iter().all(|event| event.scope.is_none()));
    assert_eq!(uncached[0].address, outside.address());
    assert_eq!(uncached[1].address, inside.address());
    drop((outside, inside));
    let frees = of_kind(&recording, EventKind::Free);
    assert_eq!(
        frees.iter().map(|free| free.bytes).collect::<Vec<_>>(),
        [600, 700]
    );
    assert!(
        frees
            .iter()
            .all(|free| free.scope.is_none() && free.call_site.is_some())
    );
}

#[test]
fn every_request_and_every_free_is_recorded_under_each_policy() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let device = device();
        let kept = cache_scope!("step", policy = policy, device = &device, {
            Buffer::new(&device, 100).unwrap()
        });
        let recording = record(&device);
        for _ in 0..5 {
            cache_scope!("step", device = &device, {
                let buffers: Vec<_> = (1..=20)
                    .map(|number| Buffer::new(&device, number * 700).unwrap())
                    .collect();
                drop(buffers);
                let _last = Buffer::new(&device, 5000).unwrap();
            });
        }
        drop(kept);
        let requests = count(&recording, EventKind::Hit) + count(&recording, EventKind::Miss);
        assert_eq!(requests, 5 * 21, "{policy}");
        assert_eq!(count(&recording, EventKind::Free), 5 * 21 + 1, "{policy}");
        let stats = device.cache_stats("step").unwrap();
        assert_eq!(
            stats.hits,
            count(&recording, EventKind::Hit) as u64,
            "{policy}"
        );
        assert_eq!(stats.live_bytes, 0);
    }
}

#[test]
fn a_recording_that_begins_inside_of_an_entry_records_it_at_once() {
    let device = device();
    cache_scope!("step", device = &device, {
        let before = Buffer::new(&device, 1000).unwrap();
        let recording = record(&device);
        drop(before);
        let inside = Buffer::new(&device, 1000).unwrap();
        let kinds = recording.events().into_iter().map(|event| event.kind);
        assert!(kinds.eq([EventKind::Free, EventKind::Hit]));
        drop(recording);
        drop(inside);
        assert_eq!(record(&device).events(), []);
    });
}

#[test]
fn drops_on_other_threads_are_recorded_once_with_their_thread() {
    let device = device();
    let recording = record(&device);
    let scope = device.scope("step");
    let buffers: Vec<_> = {
        let _guard = scope.enter();
        (0..10)
            .map(|_| Buffer::new(&device, 512).unwrap())
            .collect()
    };
    std::thread::spawn(move || drop(buffers)).join().unwrap();
    {
        let _guard = scope.enter(); // An entry takes back the dropped blocks.
    }
    device.invalidate_cache("step");
    let requests = recording
        .events()
        .into_iter()
        .filter(|event| event.kind.is_allocation());
    let own = requests.map(|event| event.thread).next().unwrap();
    let frees = of_kind(&recording, EventKind::Free);
    assert_eq!(frees.len(), 10);
    assert!(
        frees
            .iter()
            .all(|free| free.thread != own && free.scope.as_deref() == Some("step"))
    );
}

#[test]
fn threads_write_side_by_side() {
    let device = device();
    let recording = record(&device);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..500 {
                    cache_scope!("step", device = &device, {
                        Buffer::new(&device, 4096).unwrap();
                    });
                }
            });
        }
    });
    let events = recording.events();
    let requests = events.iter().filter(|event| event.kind.is_allocation());
    let frees = events.iter().filter(|event| event.kind.is_free());
    assert_eq!((requests.count(), frees.count()), (2000, 2000));
    assert_eq!(count(&recording, EventKind::Enter), 2000);
}

#[test]
fn recordings_of_several_threads_have_their_own_events() {
    let device = device();
    std::thread::scope(|threads| {
        for number in 0..4 {
            let device = &device;
            threads.spawn(move || {
                let name = format!("scope {number}");
                for _ in 0..300 {
                    let recording = record(device);
                    cache_scope!(&name, device = device, {
                        Buffer::new(device, 512).unwrap();
                    });
                    let mut events = recording.events();
                    events.retain(|event| event.scope.as_deref() == Some(name.as_str()));
                    assert_eq!(events.len(), 4, "{events:?}");
                }
            });
        }
    });
}

#[test]
fn a_scope_that_another_thread_is_inside_of_is_recorded_whole_or_not_at_all() {
    let device = device();
    let scope = device.scope("worker");
    let (to_worker, orders) = std::sync::mpsc::channel::<()>();
    let (told, from_worker) = std::sync::mpsc::channel::<()>();
    let next = move || {
        told.send(()).unwrap();
        orders.recv().unwrap();
    };
    let worker = std::thread::spawn(move || {
        let device = scope.device().clone();
        {
            let _entered = scope.enter();
            let kept = Buffer::new(&device, 1 << 20).unwrap();
            next();
            // This entry began before the recording, so its events are not recorded.
            Buffer::new(&device, 2 << 20).unwrap();
            Buffer::new(&device, 2 << 20).unwrap();
            drop(kept);
        }
        let _entered = scope.enter();
        Buffer::new(&device, 2 << 20).unwrap();
        next();
    });
    from_worker.recv().unwrap();
    let recording = record(&device);
    to_worker.send(()).unwrap();
    from_worker.recv().unwrap();
    let events = recording.events().into_iter();
    let of_blocks = events.filter(|event| event.kind.is_allocation() || event.kind.is_free());
    let kinds: Vec<_> = of_blocks.map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Hit, EventKind::Free]);
    to_worker.send(()).unwrap();
    worker.join().unwrap();
}

#[test]
fn a_ring_that_there_is_no_memory_for_is_shorter() {
    let device = device();
    let recording = device
        .record(RecordOptions {
            max_bytes: u64::MAX,
            ..RecordOptions::default()
        })
        .unwrap();
    for _ in 0..100 {
        Buffer::new(&device, 1).unwrap();
    }
    assert_eq!(count(&recording, EventKind::Uncached), 100);
    assert_eq!(recording.profile().lost_events, 0);
    drop(recording);
    let recording = record(&device);
    Buffer::new(&device, 1).unwrap();
    assert_eq!(count(&recording, EventKind::Uncached), 1);
}

#[test]
fn a_full_ring_keeps_the_newest_and_counts_the_others() {
    let device = device();
    let options = RecordOptions {
        max_bytes: 64 * 48,
        ..RecordOptions::default()
    };
    let recording = device.record(options).unwrap();
    let _kept = Buffer::new(&device, 5000).unwrap();
    for bytes in 1..=1000 {
        Buffer::new(&device, bytes).unwrap();
    }
    let profile = recording.profile();
    // The events are the reservations, one request, and a request and a free for each dropped
    // buffer. The oldest event of a full ring is not read, because its thread may be overwriting
    // it.
    assert_eq!(profile.events.len(), 63);
    let reserves = device.memory_stats().reserves;
    assert_eq!(profile.lost_events, 2001 + reserves - 63);
    assert_eq!(profile.events.last().unwrap().bytes, 1000);
    assert_eq!(profile.complete_from_ns, profile.events[0].time_ns);
    assert_eq!(profile.live_bytes, Some(5000));
    let reserved_bytes = device.memory_stats().reserved_bytes;
    assert_eq!(profile.reserved_bytes, Some(reserved_bytes));
    let mut table = Vec::new();
    cachescope::record::Format::Text
        .write(&profile, &mut table)
        .unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(
        table.contains(" s on, and 4.9 KiB of unknown lines"),
        "{table}"
    );
}

#[test]
fn recordings_overlap_and_end_by_themselves() {
    let device = device();
    let outer = record(&device);
    Buffer::new(&device, 1).unwrap();
    let inner = record(&device);
    Buffer::new(&device, 2).unwrap();
    assert_eq!(count(&inner, EventKind::Uncached), 1);
    drop(inner);
    Buffer::new(&device, 3).unwrap();
    assert_eq!(count(&outer, EventKind::Uncached), 3);
    drop(outer);
    Buffer::new(&device, 4).unwrap();
    assert_eq!(record(&device).events(), []);
}

#[test]
fn a_copy_that_a_write_forces_is_marked() {
    let device = device();
    let _current = device.enter();
    let recording = record(&device);
    let mut a = Array::<f32>::ones([100]).unwrap();
    let shared = a.clone();
    a.assign(&shared + 1.0).unwrap();
    let copies = of_kind(&recording, EventKind::CopyOnWrite);
    assert_eq!(copies.len(), 1);
    assert_eq!((copies[0].address, copies[0].bytes), (a.address(), 400));
}

#[test]
fn reservations_and_releases_are_recorded() {
    let device = device();
    let recording = record(&device);
    let large = Buffer::new(&device, 8 << 20).unwrap();
    let reserved: u64 = of_kind(&recording, EventKind::Reserve)
        .iter()
        .map(|event| event.bytes)
        .sum();
    assert_eq!(reserved, device.memory_stats().reserved_bytes);
    drop(large);
    device.trim(0);
    let released: u64 = of_kind(&recording, EventKind::Release)
        .iter()
        .map(|event| event.bytes)
        .sum();
    assert_eq!(released, reserved);
    assert_eq!(of_kind(&recording, EventKind::Trim)[0].bytes, released);
}

#[test]
fn what_was_reserved_before_is_known() {
    let device = device();
    let _kept = Buffer::new(&device, 5 << 20).unwrap();
    let reserved_bytes = device.memory_stats().reserved_bytes;
    let profile = record(&device).profile();
    let segments: u64 = profile.segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(segments, reserved_bytes);
    assert!(profile.events.is_empty());
}

#[test]
fn failures_and_invalidations_are_recorded() {
    let config = DeviceConfig {
        memory_limit: Some(4 << 20),
        ..DeviceConfig::default()
    };
    let device = cachescope::Device::host_with(config).unwrap();
    let recording = record(&device);
    cache_scope!("step", device = &device, {
        Buffer::new(&device, 1 << 20).unwrap();
        assert!(
            Buffer::new(&device, 1 << 30)
                .unwrap_err()
                .is_out_of_memory()
        );
    });
    let failed = of_kind(&recording, EventKind::OutOfMemory);
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (failed[0].bytes, failed[0].scope.as_deref()),
        (1 << 30, Some("step"))
    );
    let ladder = [
        EventKind::Retry,
        EventKind::ReleaseIdle,
        EventKind::ReclaimCaches,
        EventKind::WaitPending,
        EventKind::PressureCallbacks,
        EventKind::OutOfMemory,
    ];
    let mut rungs: Vec<_> = (recording.events().iter())
        .filter(|event| ladder.contains(&event.kind) && event.bytes == 1 << 30)
        .map(|event| event.kind)
        .collect();
    let mut seen = Vec::new();
    rungs.retain(|kind| {
        !seen.contains(kind) && {
            seen.push(*kind);
            true
        }
    });
    assert_eq!(rungs, ladder, "each for the first time");
    assert_eq!(count(&recording, EventKind::Retry), 1);
    cache_scope!("step", device = &device, {
        Buffer::new(&device, 1 << 20).unwrap();
    });
    let given = device.invalidate_cache("step");
    let invalidations = of_kind(&recording, EventKind::Invalidate);
    assert_eq!(invalidations[0].bytes, given.bytes);
    assert_eq!(invalidations[0].scope.as_deref(), Some("step"));
}

#[test]
fn stream_waits_and_the_return_of_pending_blocks_are_recorded() {
    let device = Device::host_with(DeviceConfig {
        delay_streams: true,
        ..DeviceConfig::default()
    })
    .unwrap();
    let [writer, reader] = [(); 2].map(|()| device.new_stream().unwrap());
    let recording = record(&device);
    let _device = device.enter();
    cache_scope!("step", device = &device, {
        let written = {
            let _on = writer.enter();
            Array::<f32>::ones([1000]).unwrap()
        };
        let _on = reader.enter();
        let sum = (&written + 1.0).eval().unwrap();
        let address = written.address();
        let waits = of_kind(&recording, EventKind::StreamWait);
        assert_eq!(waits.len(), 1);
        drop(written);
        let pending = of_kind(&recording, EventKind::FreePending);
        assert_eq!(pending.len(), 1);
        assert_eq!(
            (pending[0].address, pending[0].stream),
            (address, waits[0].bytes as u32)
        );
        assert_eq!(count(&recording, EventKind::FreeCompleted), 0);
        device.synchronize().unwrap();
        // The next request detects that the other stream no longer uses the block.
        Buffer::new(&device, 4000).unwrap();
        let completed = of_kind(&recording, EventKind::FreeCompleted);
        assert_eq!(completed.len(), 1);
        assert_eq!(
            (completed[0].address, completed[0].bytes),
            (address, pending[0].block_bytes)
        );
        drop(sum);
    });
}

#[test]
fn a_block_that_other_streams_are_done_with_is_not_pending() {
    let device = Device::host_with(DeviceConfig {
        delay_streams: true,
        ..DeviceConfig::default()
    })
    .unwrap();
    let reader = device.new_stream().unwrap();
    let recording = record(&device);
    let _device = device.enter();
    cache_scope!("step", device = &device, {
        let mut read = Array::<f32>::ones([1000]).unwrap();
        let sum = {
            let _on = reader.enter();
            (&read + 1.0).eval().unwrap()
        };
        // The update waits for the reader.
        read.update(|x| x * 2.0).unwrap();
        let address = read.address();
        drop(read);
        let mut freed = recording.events();
        freed.retain(|event| event.address == address && event.kind.is_free());
        assert_eq!(freed.len(), 1);
        assert_eq!(freed[0].kind, EventKind::Free);
        drop(sum);
    });
}

#[test]
#[cfg(not(feature = "backtraces"))]
fn backtraces_need_their_feature() {
    let options = RecordOptions {
        backtraces: true,
        ..RecordOptions::default()
    };
    let refused = device().record(options).unwrap_err();
    assert_eq!(refused.kind(), cachescope::ErrorKind::Unsupported);
    assert!(
        refused.to_string().contains("feature `backtraces`"),
        "{refused}"
    );
}

#[test]
fn options_without_bytes_are_refused() {
    let refused = device()
        .record(RecordOptions {
            max_bytes: 95,
            ..RecordOptions::default()
        })
        .unwrap_err();
    assert_eq!(refused.kind(), cachescope::ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("max_bytes is 95"), "{refused}");
}
