//! The random program of one thread.

mod control;
mod script;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;

use cachescope::scope::{self, ScopeHandle};
use cachescope::{
    Buffer, Device, DeviceConfig, Error, ErrorKind, Policy, Stream, cache_scope, uncached,
};
use under_test::device_with;

use crate::stress::bindings::{Bindings, FOREIGN};
use crate::stress::owned::{Owned, fail};
use crate::stress::random::Random;
use crate::stress::round::{Round, lock};

/// The payload of a program's intended panics.
pub(crate) struct OnPurpose;

const POLICIES: [Policy; 4] = [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan];

/// Cache names that all threads use. `at_site` uses some of them as literals.
const NAMES: [&str; 6] = ["recycle", "release", "bump", "plan", "any", ""];

/// The maximum number of arrays that a thread keeps at a time.
const KEPT: usize = 24;

/// The maximum nesting of scopes.
const DEPTH: usize = 5;

thread_local! {
    /// A value that is dropped when the thread's locals are destroyed, before or after the stack of
    /// scopes.
    static LAST: RefCell<Last> = const { RefCell::new(Last(Vec::new(), Vec::new(), None)) };
}

thread_local! {
    /// The bindings of this thread's program, until the program ends. Pressure callbacks read the
    /// bindings of the thread whose request lacks memory.
    static BINDINGS: RefCell<Option<Bindings>> = const { RefCell::new(None) };
}

struct Last(Vec<Owned>, Vec<Buffer>, Option<(Device, usize, Bindings)>);

impl Drop for Last {
    fn drop(&mut self) {
        let Some((device, index, bindings)) = self.2.take() else {
            return;
        };
        let scope = device.scope("last").enter();
        let bound = scope::current().is_some();
        let inside = bound.then(|| bindings.cache(Some(index), "last"));
        match Buffer::new(&device, 3000) {
            Ok(_) if bound => bindings.served(index),
            Ok(_) => {}
            Err(error) => expect_refusal(&error),
        }
        drop(inside);
        drop(scope);
        self.0.clear();
    }
}

/// Checks that a request was refused because of a lack of memory.
fn expect_refusal(error: &Error) {
    let kinds = [ErrorKind::OutOfMemory, ErrorKind::InvalidShape];
    if !kinds.contains(&error.kind()) {
        fail(format!("not for want of memory: {error}"));
    }
}

/// Returns the value, or `None` if there was not enough memory for it.
fn room_for<T>(result: cachescope::Result<T>) -> Option<T> {
    result.map_err(|error| expect_refusal(&error)).ok()
}

/// A value that invalidates caches and allocates in a scope on drop, even while a panic unwinds.
struct Invalidates<'a> {
    device: &'a Device,
    index: usize,
    name: &'static str,
    bindings: Bindings,
}

impl Drop for Invalidates<'_> {
    fn drop(&mut self) {
        self.device.invalidate_cache(self.name);
        cache_scope!("in drop", device = self.device, {
            let _inside = self.bindings.cache(Some(self.index), "in drop");
            drop(room_for(Owned::new(100, &self.bindings)));
            self.device.invalidate_cache("in drop");
            drop(room_for(Owned::new(100, &self.bindings)));
        });
    }
}

struct Worker {
    round: Arc<Round>,
    slot: usize,
    random: Random,
    bindings: Bindings,
    kept: Vec<Owned>,
    buffers: Vec<Buffer>,
}

/// Runs the program of `seed` to its end, or until the round is over.
pub(crate) fn run(round: Arc<Round>, slot: usize, seed: u64) {
    let mut random = Random::new(seed);
    if random.once_in(2) {
        LAST.with_borrow_mut(|last| last.0.clear()); // `LAST` is registered first.
    }
    let bindings = Bindings::new(Arc::clone(&round.counts));
    BINDINGS.set(Some(bindings.clone()));
    let device = random.below(2);
    let _current = round.devices[device].enter();
    let _inside = bindings.current(device);
    let steps = 20 + random.below(400);
    let mut worker = Worker {
        round: Arc::clone(&round),
        slot,
        random,
        bindings,
        kept: Vec::new(),
        buffers: Vec::new(),
    };
    for _ in 0..steps {
        if round.is_over() {
            break;
        }
        let caught = catch_unwind(AssertUnwindSafe(|| worker.step(0)));
        if let Err(panic) = caught
            && !panic.is::<OnPurpose>()
        {
            std::panic::resume_unwind(panic);
        }
    }
    BINDINGS.set(None);
    worker.end();
}

impl Worker {
    fn step(&mut self, depth: usize) {
        match self.random.below(40) {
            0..=11 if depth < DEPTH => self.nest(depth),
            0..=19 => self.allocate(),
            20..=21 => self.compute(),
            22 => self.across_streams(),
            23..=25 => self.drop_one(),
            26..=27 => self.send(),
            28..=29 => self.receive(),
            30..=31 => self.change_caches(),
            32 => self.change_memory(),
            33 => self.look(),
            34..=36 => self.repeat(depth),
            37 => self.at_site(Self::hit, depth),
            38 => self.on_another_device(depth),
            _ if depth > 0 && self.random.once_in(3) => panic_any(OnPurpose),
            _ => self.with_callback(depth),
        }
        while self.kept.len() > KEPT {
            self.drop_one();
        }
    }

    fn steps(&mut self, depth: usize) {
        for _ in 0..self.random.below(8) {
            self.step(depth + 1);
        }
    }

    fn device(&mut self) -> (usize, Device) {
        let index = self.random.below(2);
        (index, self.round.devices[index].clone())
    }

    /// Returns a common name, or a name that only this thread uses.
    fn name(&mut self) -> String {
        match self.random.below(8) {
            0 => format!("slot {}", self.slot),
            1 => format!("{} of slot {}", self.random.below(50), self.slot),
            _ => (*self.random.one_of(&NAMES)).to_owned(),
        }
    }

    /// Enters a scope, `uncached!`, a stream or a device for some steps.
    fn nest(&mut self, depth: usize) {
        match self.random.below(12) {
            0..=3 => self.at_site(Self::steps, depth),
            4..=5 => {
                let (name, policy) = (self.name(), *self.random.one_of(&POLICIES));
                let (index, device) = self.device();
                cache_scope!(&name, device = &device, policy = policy, {
                    let _inside = self.bindings.cache(Some(index), &name);
                    self.steps(depth);
                });
            }
            6 => {
                let name = self.name();
                cache_scope!(&name, {
                    let _inside = self.bindings.cache(None, &name);
                    self.steps(depth);
                });
            }
            7 => self.out_of_order(depth),
            8 => uncached!({
                let _inside = self.bindings.uncached();
                self.steps(depth);
            }),
            9..=10 => self.on_stream(depth),
            _ => {
                let (index, device) = self.device();
                let _current = device.enter();
                let _inside = self.bindings.current(index);
                self.steps(depth);
            }
        }
    }

    /// Enters a scope by a literal name on the current device.
    fn at_site(&mut self, body: impl Fn(&mut Self, usize), depth: usize) {
        macro_rules! enter {
            ($name:literal $(, $option:ident = $value:expr)*) => {
                cache_scope!($name $(, $option = $value)*, {
                    let _inside = self.bindings.cache(None, $name);
                    body(self, depth);
                })
            };
        }
        match self.random.below(6) {
            0 => enter!("recycle"),
            1 => enter!("release", policy = Policy::Release),
            2 => enter!("bump", policy = Policy::Bump),
            3 => enter!("plan", policy = Policy::Plan),
            4 => enter!("any", max_bytes = 1 << 20),
            _ => enter!(""),
        }
    }

    /// Enters scopes by handles. The guards drop in any order, or are passed to `mem::forget`.
    fn out_of_order(&mut self, depth: usize) {
        let mut guards: Vec<_> = (0..1 + self.random.below(3))
            .map(|_| {
                let (index, device) = self.device();
                let name = self.name();
                let handle: ScopeHandle = device.scope(&name);
                (handle.enter(), self.bindings.cache(Some(index), &name))
            })
            .collect();
        self.steps(depth);
        while !guards.is_empty() {
            let (guard, inside) = guards.swap_remove(self.random.below(guards.len()));
            if self.random.once_in(40) {
                std::mem::forget(guard);
                inside.forget();
            } else {
                drop(guard);
                drop(inside);
            }
            if self.random.once_in(2) {
                self.allocate();
            }
        }
    }

    fn on_stream(&mut self, depth: usize) {
        let (index, device) = self.device();
        let own = self.random.once_in(8).then(|| device.new_stream().unwrap());
        let streams = &self.round.streams[index];
        let stream: Stream = match own {
            Some(stream) => stream,
            None if streams.is_empty() => device.default_stream(),
            None => self.random.one_of(streams).clone(),
        };
        let _stream = stream.enter();
        let _inside = self.bindings.current(index);
        self.steps(depth);
        if self.random.once_in(8) {
            stream
                .synchronize()
                .unwrap_or_else(|error| fail(error.to_string()));
        }
    }

    fn len(&mut self) -> usize {
        match self.random.below(64) {
            0 => 0,
            1 if self.random.once_in(8) => 1 << 50,
            2 => 1 + self.random.below(1 << 18),
            3..=6 => 1 + self.random.below(1 << 15),
            7..=30 => 1 + self.random.below(1 << 12),
            _ => 1 + self.random.below(64),
        }
    }

    fn allocate(&mut self) {
        let len = self.len();
        if self.random.once_in(8) {
            let (index, device) = self.device();
            if let Some(buffer) = room_for(Buffer::new(&device, len)) {
                if len > 0 {
                    self.bindings.served(index);
                }
                self.buffers.push(buffer);
                if self.buffers.len() > 8 {
                    self.buffers.remove(0);
                }
            }
        } else if let Some(owned) = room_for(Owned::new(len, &self.bindings)) {
            self.kept.push(owned);
        }
    }

    /// Removes and returns one of the kept arrays, which the caller may drop.
    fn one(&mut self) -> Option<Owned> {
        match self.kept.len() {
            0 => None,
            count => Some(self.kept.swap_remove(self.random.below(count))),
        }
    }

    fn drop_one(&mut self) {
        drop(self.one());
    }

    fn compute(&mut self) {
        let Some(mut owned) = self.one() else { return };
        let bindings = self.bindings.clone();
        let to = usize::from(owned.device == 0);
        let other = &self.round.devices[to];
        let made = match self.random.below(6) {
            0 => room_for(owned.shared(false)),
            1 => room_for(owned.shared(true)),
            2 => room_for(owned.detached()),
            3 => room_for(owned.moved(to, other, &bindings)),
            4 => room_for(owned.next(&bindings)),
            _ => {
                room_for(owned.overwrite(&bindings));
                None
            }
        };
        self.kept.extend(made);
        self.kept.push(owned);
    }

    /// Uses one stream's array on another stream. Then the first stream allocates the array's size
    /// again, while the other stream may still use the block.
    fn across_streams(&mut self) {
        let index = self.bindings.current_device();
        let Some([first, second]) = self
            .round
            .streams
            .get(index)
            .and_then(|all| all.first_chunk())
        else {
            return;
        };
        let len = 1 + self.random.below(2000);
        let on = |stream: &Stream, work: &dyn Fn() -> cachescope::Result<Owned>| {
            let _stream = stream.enter();
            let _inside = self.bindings.current(index);
            room_for(work())
        };
        let Some(source) = on(first, &|| Owned::new(len, &self.bindings)) else {
            return;
        };
        let made = on(second, &|| source.next(&self.bindings));
        source.drop_unread();
        let later = on(first, &|| Owned::new(len, &self.bindings));
        made.iter().chain(&later).for_each(Owned::check);
    }

    /// Sends an array to another thread. This thread may keep a handle on the block.
    fn send(&mut self) {
        let Some(owned) = self.one() else { return };
        let to = self.random.below(self.round.boxes.len());
        if self.random.once_in(3) {
            self.kept.extend(room_for(owned.shared(false)));
        }
        if owned.device != FOREIGN && self.random.once_in(4) {
            let mut spare = lock(&self.round.spare[owned.device]);
            if spare.len() < 8 {
                spare.push(owned);
            }
        } else {
            self.round.boxes[to].0.send(owned).unwrap();
        }
    }

    fn receive(&mut self) {
        for _ in 0..3 {
            let received = lock(&self.round.boxes[self.slot].1).try_recv();
            let Ok(owned) = received else { return };
            if self.random.once_in(2) {
                self.kept.push(owned);
            }
        }
    }

    /// Enters a scope on a new device. The device may drop before its arrays.
    fn on_another_device(&mut self, depth: usize) {
        let config = DeviceConfig {
            delay_streams: self.random.once_in(2),
            memory_limit: self.random.once_in(2).then_some(1 << 20),
            ..Default::default()
        };
        let device = device_with(config).unwrap();
        let name = self.name();
        let policy = *self.random.one_of(&POLICIES);
        cache_scope!(&name, device = &device, policy = policy, {
            let _inside = self.bindings.cache(Some(FOREIGN), &name);
            self.steps(depth);
            self.allocate();
        });
    }

    /// Runs some steps with a pressure callback. The callback drops a spare array, and may panic,
    /// invalidate caches or allocate.
    fn with_callback(&mut self, depth: usize) {
        if depth >= DEPTH {
            return;
        }
        let (index, device) = self.device();
        let (round, what) = (Arc::clone(&self.round), self.random.below(30));
        let _guard = device.on_memory_pressure(move |_| {
            let device = &round.devices[index];
            let bindings = BINDINGS.try_with(|bindings| bindings.borrow().clone());
            let bindings = bindings.ok().flatten();
            match what {
                // The callback may run in a destructor. It must not panic while another panic
                // unwinds, or while a thread's locals are destroyed.
                0 if !std::thread::panicking() && bindings.is_some() => panic_any(OnPurpose),
                1..=5 => drop(bindings.map(|bindings| Invalidates {
                    device,
                    index,
                    name: "any",
                    bindings,
                })),
                6..=10 => drop(uncached!(room_for(Buffer::new(device, 2000)))),
                _ => {}
            }
            let given = lock(&round.spare[index]).pop();
            given.map_or(0, |owned| owned.bytes())
        });
        self.steps(depth);
    }

    /// Ends the thread: its arrays are dropped, sent to other threads, or left to the destructors
    /// of thread-locals.
    fn end(mut self) {
        match self.random.below(3) {
            0 => drop(self),
            1 => {
                while let Some(owned) = self.one() {
                    let to = self.random.below(self.round.boxes.len());
                    self.round.boxes[to].0.send(owned).unwrap();
                }
            }
            _ => {
                let (index, device) = self.device();
                LAST.with_borrow_mut(|last| {
                    last.0 = self.kept;
                    last.1 = self.buffers;
                    last.2 = Some((device, index, self.bindings));
                });
            }
        }
    }
}
