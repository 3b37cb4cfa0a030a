use super::*;
use crate::error::ErrorKind;

/// An executor without stealable work.
struct NothingToSteal;

impl StealWork for NothingToSteal {
    fn steal(&self, _: &dyn Fn() -> bool) -> bool {
        false
    }
}

fn nothing_to_steal() -> Weak<dyn StealWork> {
    Weak::<NothingToSteal>::new()
}

fn open(host_streams: &HostStreams) -> Arc<HostStream> {
    host_streams
        .open(nothing_to_steal(), || Ok(StreamId(7)))
        .unwrap()
}

fn failure(text: &str, keeps_memory: bool) -> HostFailure {
    let error = Error::new(ErrorKind::Driver, text);
    HostFailure {
        error,
        keeps_memory,
    }
}

#[test]
fn an_event_is_done_when_all_before_it_is() {
    let host_streams = HostStreams::default();
    assert!(host_streams.of(StreamId(7)).is_none());
    let host_stream = open(&host_streams);
    let none = host_stream.event();
    host_stream.begin();
    let first = host_stream.event();
    host_stream.begin();
    assert!(host_stream.is_done(&none) && !host_stream.is_done(&first));
    host_stream.finish(Ok(()));
    assert!(host_stream.is_done(&first) && !host_stream.is_done(&host_stream.event()));
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| host_stream.synchronize());
        host_stream.finish(Ok(()));
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_wait_returns_the_failure_before_it() {
    let host_stream = open(&HostStreams::default());
    host_stream.begin();
    let before = host_stream.event();
    host_stream.finish(Ok(()));
    host_stream.begin();
    host_stream.begin();
    host_stream.finish(Err(failure("first", false)));
    host_stream.finish(Err(failure("second", true)));
    host_stream.wait_for(&before).unwrap();
    host_stream.settle(&host_stream.event());
    assert!(!host_stream.is_reported());
    let error = host_stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("first") && host_stream.is_reported());
    // Only the work that cannot be stopped keeps its memory.
    let of_first = Event {
        stream: StreamId(7),
        position: 2,
    };
    assert!(host_stream.is_done(&before) && host_stream.is_done(&of_first));
    assert!(!host_stream.is_done(&host_stream.event()));
}

#[test]
fn to_its_own_thread_it_is_a_stream_of_the_device() {
    let host_streams = HostStreams::default();
    let host_stream = open(&host_streams);
    assert!(host_streams.of(StreamId(7)).is_some());
    let serving = host_stream.serve();
    assert!(host_streams.of(StreamId(7)).is_none());
    let elsewhere = std::thread::scope(|threads| {
        let other = threads.spawn(|| host_streams.of(StreamId(7)).is_some());
        other.join().unwrap()
    });
    assert!(elsewhere);
    drop(serving);
    assert!(host_streams.of(StreamId(7)).is_some(), "its work is over");
}

#[test]
fn a_waiting_thread_steals_work_that_no_thread_executes() {
    /// An executor whose work only waiting threads execute.
    struct ForWaiters {
        host_stream: Mutex<Weak<HostStream>>,
        pieces: AtomicU64,
    }

    impl StealWork for ForWaiters {
        fn steal(&self, is_over: &dyn Fn() -> bool) -> bool {
            assert!(!is_over());
            let host_stream = self.host_stream.lock().upgrade().unwrap();
            self.pieces.fetch_sub(1, Ordering::Relaxed);
            host_stream.finish(Ok(()));
            true
        }
    }

    let for_waiters = Arc::new(ForWaiters {
        host_stream: Mutex::new(Weak::new()),
        pieces: AtomicU64::new(3),
    });
    let executor = Arc::downgrade(&for_waiters) as Weak<dyn StealWork>;
    let host_streams = HostStreams::default();
    let host_stream = host_streams.open(executor, || Ok(StreamId(7))).unwrap();
    *for_waiters.host_stream.lock() = Arc::downgrade(&host_stream);
    host_stream.begin();
    host_stream.begin();
    let second = host_stream.event();
    host_stream.begin();
    host_stream.wait_for(&second).unwrap();
    assert_eq!(
        for_waiters.pieces.load(Ordering::Relaxed),
        1,
        "two were awaited"
    );
    host_stream.synchronize().unwrap();
    assert_eq!(for_waiters.pieces.load(Ordering::Relaxed), 0);
}

#[test]
fn a_stream_is_opened_again_once_its_work_is_done() {
    let host_streams = HostStreams::default();
    let first = open(&host_streams);
    first.begin();
    first.leave();
    let second = host_streams
        .open(nothing_to_steal(), || Ok(StreamId(8)))
        .unwrap();
    assert_eq!(second.id(), StreamId(8), "the first has work to do");
    first.finish(Ok(()));
    assert_eq!(open(&host_streams).id(), StreamId(7));
}

#[test]
fn a_failure_stays_with_the_work_of_its_owner() {
    let host_streams = HostStreams::default();
    let host_stream = open(&host_streams);
    host_stream.begin();
    let good = host_stream.event();
    host_stream.finish(Ok(()));
    let mut failed = Vec::new();
    for owner in 0..100 {
        let first = host_stream.next_event();
        host_stream.begin();
        host_stream.begin();
        let last = host_stream.event();
        host_stream.finish(Err(failure(&format!("of {owner}"), owner % 2 == 0)));
        host_stream.finish(Err(failure("later", false)));
        failed.push((first, last));
        host_stream.wait_for(&host_stream.event()).unwrap_err();
        host_stream.leave();
        assert_eq!(
            open(&host_streams).id(),
            host_stream.id(),
            "a failed stream is reused"
        );
        assert!(!host_stream.is_reported());
        host_stream.begin();
        let event = host_stream.event();
        host_stream.finish(Ok(()));
        assert!(host_stream.is_done(&event));
        host_stream.wait_for(&event).unwrap();
        host_stream.check_predecessors(&event).unwrap();
    }
    host_stream.wait_for(&good).unwrap();
    for (owner, (first, last)) in failed.iter().enumerate() {
        for event in [first, last] {
            let text = host_stream.wait_for(event).unwrap_err().to_string();
            assert!(text.contains(&format!("of {owner}")), "{text}");
            host_stream.check_predecessors(event).unwrap_err();
            assert_eq!(
                host_stream.is_done(event),
                owner % 2 == 1,
                "memory that is kept"
            );
        }
    }
}
