//! Tests with random programs that capture and launch graphs on several streams and threads. The
//! results are compared with a model.
//!
//! The model represents memory by cells, one per memory block that arrays share. A graph is a list
//! of changes to cells. A launch repeats these changes, even if the cell has been reassigned to
//! another array.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use cachescope::graph::{Graph, capture};
use cachescope::scope::ScopeGuard;
use cachescope::{
    Array, CacheConfig, Device, DeviceConfig, ErrorKind, Policy, PoolKind, Result, Stream,
    StreamGuard,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

const STREAMS: usize = 3;
const NAMES: [&str; 2] = ["a", "b"];
const LENGTHS: [usize; 2] = [40, 3000];
const POLICIES: [Policy; 4] = [Policy::Plan, Policy::Recycle, Policy::Bump, Policy::Release];

/// An operation on arrays, inside or outside of a capture.
#[derive(Clone, Debug)]
enum Work {
    Make(usize, i32),
    /// Creates an array with the sum of two arrays.
    Add(Index, Index),
    Fill(Index, i32),
    /// Replaces an array by three times the array plus another array.
    Update(Index, Index),
    Clone(Index),
    Drop(Index),
}

#[derive(Clone, Debug)]
enum Step {
    Work(Work),
    /// Runs on another thread. The program continues when that thread has ended.
    Elsewhere(usize, Work),
    /// Captures on a stream, with or without a scope. The first array that the body creates may
    /// escape. As a warm-up, the body may run twice before the capture, with or without the escape.
    Capture {
        stream: usize,
        scope: Option<usize>,
        body: Vec<Work>,
        escapes: bool,
        warm_up: Option<bool>,
    },
    Launch(Index),
    LaunchElsewhere(Index),
    DropGraph(Index),
    Read(Index),
    ReadElsewhere(Index),
    EnterStream(usize),
    EnterScope(usize),
    Leave,
    LeaveOutOfOrder(Index),
    Synchronize(usize),
    Invalidate(usize),
    Remove(usize),
    Configure(usize, Policy),
    Trim,
}

fn work() -> impl Strategy<Value = Work> {
    let at = any::<Index>;
    prop_oneof![
        2 => (0..LENGTHS.len(), any::<i32>()).prop_map(|(length, value)| Work::Make(length, value)),
        6 => (at(), at()).prop_map(|(left, right)| Work::Add(left, right)),
        2 => (at(), any::<i32>()).prop_map(|(of, value)| Work::Fill(of, value)),
        6 => (at(), at()).prop_map(|(of, by)| Work::Update(of, by)),
        1 => at().prop_map(Work::Clone),
        4 => at().prop_map(Work::Drop),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<Index>;
    let capture = (
        0..STREAMS,
        prop::option::weighted(0.8, 0..NAMES.len()),
        prop::collection::vec(work(), 1..6),
        any::<bool>(),
        prop::option::weighted(0.9, any::<bool>()),
    );
    let capture = capture.prop_map(|(stream, scope, body, escapes, warm_up)| Step::Capture {
        stream,
        scope,
        body,
        escapes,
        warm_up,
    });
    let step = prop_oneof![
        24 => work().prop_map(Step::Work),
        4 => (0..STREAMS, work()).prop_map(|(stream, work)| Step::Elsewhere(stream, work)),
        4 => capture,
        10 => at().prop_map(Step::Launch),
        2 => at().prop_map(Step::LaunchElsewhere),
        3 => at().prop_map(Step::DropGraph),
        2 => at().prop_map(Step::Read),
        1 => at().prop_map(Step::ReadElsewhere),
        8 => (0..STREAMS).prop_map(Step::EnterStream),
        2 => (0..NAMES.len()).prop_map(Step::EnterScope),
        6 => Just(Step::Leave),
        1 => at().prop_map(Step::LeaveOutOfOrder),
        1 => (0..STREAMS).prop_map(Step::Synchronize),
        1 => (0..NAMES.len()).prop_map(Step::Invalidate),
        1 => (0..NAMES.len()).prop_map(Step::Remove),
        1 => (0..NAMES.len(), 0..POLICIES.len()).prop_map(|(name, policy)| Step::Configure(name, POLICIES[policy])),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..60)
}

type Cell = usize;

/// The effect of an operation on cells.
#[derive(Clone, Debug)]
enum Change {
    Fill(Cell, i32),
    Add(Cell, Cell, Cell),
    Update(Cell, Cell, Cell),
}

/// A graph with the changes of each launch.
type Captured = (Graph, Arc<[Change]>);

/// The expected state of a program: the live arrays with their cells, and the values of the cells.
/// An undefined value is `None`.
#[derive(Default)]
struct Model {
    live: Vec<(Array<i32>, Cell)>,
    cells: Vec<Option<Vec<i32>>>,
    lengths: Vec<usize>,
    /// During a capture, the changes that a launch will make.
    recorded: Option<Vec<Change>>,
}

impl Model {
    fn new_cell(&mut self, len: usize) -> Cell {
        self.cells.push(None);
        self.lengths.push(len);
        self.cells.len() - 1
    }

    fn at(&self, of: Index) -> Option<usize> {
        (!self.live.is_empty()).then(|| of.index(self.live.len()))
    }

    /// Returns the indices of two operands with equal lengths.
    fn pair(&self, left: Index, right: Index) -> Option<(usize, usize)> {
        let left = self.at(left)?;
        let len = self.live[left].0.len();
        let alike = (0..self.live.len()).filter(|&index| self.live[index].0.len() == len);
        let alike: Vec<usize> = alike.collect();
        Some((left, alike[right.index(alike.len())]))
    }

    /// Returns the cell that a write to an array changes. If another array shares the cell, the
    /// result is a new cell.
    fn written(&mut self, index: usize) -> Cell {
        let cell = self.live[index].1;
        let sharing = self.live.iter().filter(|(_, other)| *other == cell).count();
        if sharing > 1 {
            self.live[index].1 = self.new_cell(self.live[index].0.len());
        }
        self.live[index].1
    }

    fn note(&mut self, change: Change) {
        match &mut self.recorded {
            Some(recorded) => recorded.push(change),
            None => self.apply(&change),
        }
    }

    fn apply(&mut self, change: &Change) {
        let both = |left: Cell, right: Cell, function: fn(i32, i32) -> i32| {
            let values = self.cells[left].as_ref().zip(self.cells[right].as_ref());
            let values = values.map(|(left, right)| left.iter().zip(right));
            values.map(|pairs| pairs.map(|(&left, &right)| function(left, right)).collect())
        };
        let (target, values) = match *change {
            Change::Fill(target, value) => (target, Some(vec![value; self.lengths[target]])),
            Change::Add(target, left, right) => (target, both(left, right, i32::wrapping_add)),
            Change::Update(target, left, right) => {
                let update = |own: i32, by: i32| own.wrapping_mul(3).wrapping_add(by);
                (target, both(left, right, update))
            }
        };
        self.cells[target] = values;
    }

    fn work(&mut self, work: &Work) -> Result<()> {
        match *work {
            Work::Make(length, value) => {
                let len = LENGTHS[length];
                let array = Array::full(len, value)?;
                let cell = self.new_cell(len);
                self.live.push((array, cell));
                self.note(Change::Fill(cell, value));
            }
            Work::Add(left, right) => {
                if let Some((left, right)) = self.pair(left, right) {
                    let sum = (&self.live[left].0 + &self.live[right].0).eval()?;
                    let cell = self.new_cell(sum.len());
                    let (left, right) = (self.live[left].1, self.live[right].1);
                    self.live.push((sum, cell));
                    self.note(Change::Add(cell, left, right));
                }
            }
            Work::Fill(of, value) => {
                if let Some(index) = self.at(of) {
                    self.live[index].0.fill(value)?;
                    let cell = self.written(index);
                    self.note(Change::Fill(cell, value));
                }
            }
            Work::Update(of, by) => {
                if let Some((index, other)) = self.pair(of, by).filter(|(of, by)| of != by) {
                    let [target, by] = self.live.get_disjoint_mut([index, other]).unwrap();
                    target.0.update(|own| own * 3 + &by.0)?;
                    let (own, by) = (target.1, by.1);
                    let cell = self.written(index);
                    self.note(Change::Update(cell, own, by));
                }
            }
            Work::Clone(of) => {
                if let Some(index) = self.at(of) {
                    self.live.push(self.live[index].clone());
                }
            }
            Work::Drop(of) => {
                if let Some(index) = self.at(of) {
                    self.live.swap_remove(index);
                }
            }
        }
        Ok(())
    }

    fn launch(&mut self, graphs: &[Captured], of: Index) -> Result<()> {
        if graphs.is_empty() {
            return Ok(());
        }
        let (graph, changes) = &graphs[of.index(graphs.len())];
        graph.launch()?;
        LAUNCHES.fetch_add(1, Ordering::Relaxed);
        changes.iter().for_each(|change| self.apply(change));
        Ok(())
    }

    fn read_one(&self, of: Index) -> Result<()> {
        self.at(of).map_or(Ok(()), |index| self.read(index))
    }

    fn read(&self, index: usize) -> Result<()> {
        let (array, cell) = &self.live[index];
        if let Some(expected) = &self.cells[*cell] {
            let found = array.to_vec()?;
            assert!(found == *expected, "{array:?} is not {expected:?}");
        }
        Ok(())
    }
}

enum Guard {
    #[expect(dead_code, reason = "held for its drop")]
    Stream(StreamGuard),
    #[expect(dead_code, reason = "held for its drop")]
    Scope(ScopeGuard),
}

struct Program<'a> {
    device: &'a Device,
    streams: Vec<Stream>,
    model: Model,
    graphs: Vec<Captured>,
    guards: Vec<Guard>,
}

/// The number of captures in all programs. The test asserts that some occurred.
static CAPTURES: AtomicU64 = AtomicU64::new(0);
/// The number of launches in all programs.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

impl Program<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Work(work) => self.model.work(work)?,
            Step::Elsewhere(stream, work) => {
                let stream = self.streams[*stream].clone();
                self.elsewhere(|model, _| {
                    let _inside = stream.enter();
                    model.work(work)
                })?;
            }
            Step::Capture { .. } => self.capture(step)?,
            Step::Launch(of) => self.model.launch(&self.graphs, *of)?,
            Step::LaunchElsewhere(of) => {
                self.elsewhere(|model, graphs| model.launch(graphs, *of))?;
            }
            Step::DropGraph(of) if !self.graphs.is_empty() => {
                drop(self.graphs.swap_remove(of.index(self.graphs.len())));
            }
            Step::Read(of) => self.model.read_one(*of)?,
            Step::ReadElsewhere(of) => self.elsewhere(|model, _| model.read_one(*of))?,
            Step::EnterStream(number) => {
                self.guards
                    .push(Guard::Stream(self.streams[*number].enter()));
            }
            Step::EnterScope(name) => {
                let scope = self.device.scope(NAMES[*name]);
                self.guards.push(Guard::Scope(scope.enter()));
            }
            Step::Leave => drop(self.guards.pop()),
            Step::LeaveOutOfOrder(index) if !self.guards.is_empty() => {
                drop(self.guards.remove(index.index(self.guards.len())));
            }
            Step::Synchronize(number) => self.streams[*number].synchronize()?,
            Step::Invalidate(name) => drop(self.device.invalidate_cache(NAMES[*name])),
            Step::Remove(name) => drop(self.device.remove_cache(NAMES[*name])),
            Step::Configure(name, policy) => configure(self.device, NAMES[*name], *policy),
            Step::Trim => drop(self.device.trim(0)),
            Step::DropGraph(_) | Step::LeaveOutOfOrder(_) => {}
        }
        Ok(())
    }

    fn elsewhere(
        &mut self,
        work: impl FnOnce(&mut Model, &[Captured]) -> Result<()> + Send,
    ) -> Result<()> {
        let (device, model, graphs) = (self.device, &mut self.model, &self.graphs);
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let _current = device.enter();
                work(model, graphs)
            });
            other.join().unwrap()
        })
    }

    fn capture(&mut self, step: &Step) -> Result<()> {
        let Step::Capture {
            stream,
            scope,
            body,
            escapes,
            warm_up,
        } = step
        else {
            return Ok(());
        };
        let device = self.device;
        let _inside = self.streams[*stream].enter();
        let once = |model: &mut Model, escapes: bool| {
            let _scope = scope.map(|name| device.scope(NAMES[name]).enter());
            let before = model.live.len();
            body.iter().try_for_each(|work| model.work(work))?;
            let kept = before + usize::from(escapes);
            model.live.truncate(kept.max(before.min(model.live.len())));
            Ok(())
        };
        if let Some(early) = *warm_up {
            once(&mut self.model, early && *escapes)?;
            once(&mut self.model, early && *escapes)?;
        }
        self.model.recorded = Some(Vec::new());
        let captured = capture(device, || once(&mut self.model, *escapes));
        let changes = self.model.recorded.take().unwrap_or_default();
        match captured {
            Ok(graph) => {
                CAPTURES.fetch_add(1, Ordering::Relaxed);
                self.graphs.push((graph, changes.into()));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
        Ok(())
    }
}

fn configure(device: &Device, name: &str, policy: Policy) {
    let config = CacheConfig {
        policy,
        ..Default::default()
    };
    device.configure_cache(name, config);
}

fn run(device: &Device, steps: &[Step], policy: Policy) -> Result<()> {
    let _current = device.enter();
    NAMES
        .iter()
        .for_each(|name| configure(device, name, policy));
    let others = (1..STREAMS).map(|_| device.new_stream());
    let streams = std::iter::once(Ok(device.default_stream())).chain(others);
    let mut program = Program {
        device,
        streams: streams.collect::<Result<_>>()?,
        model: Model::default(),
        graphs: Vec::new(),
        guards: Vec::new(),
    };
    for step in steps {
        program.step(step)?;
    }
    let Program { model, graphs, .. } = program;
    // The arrays are read in a different order than they were created, so that no wait orders them
    // by chance.
    (0..model.live.len())
        .rev()
        .try_for_each(|index| model.read(index))?;
    drop((model, graphs));
    device.synchronize()?;
    device.invalidate_all_caches();
    device.trim(0);
    let stats = device.memory_stats();
    let held = (stats.live_blocks, stats.pending_bytes, stats.reserved_bytes);
    assert_eq!(held, (0, 0, 0), "{stats:?}");
    Ok(())
}

#[test]
fn programs_with_graphs_compute_what_they_would_in_order() {
    let pools = prop_oneof![
        4 => Just(PoolKind::BestFit),
        1 => Just(PoolKind::Binned),
        1 => Just(PoolKind::Direct),
    ];
    let policies = (0..POLICIES.len()).prop_map(|number| POLICIES[number]);
    let fill_recycled = prop::option::weighted(0.3, Just(0xA5));
    let programs = (steps(), pools, policies, fill_recycled, any::<bool>());
    let cases = ProptestConfig::default().cases.max(400);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    });
    let outcome = runner.run(
        &programs,
        |(steps, pool, policy, fill_recycled, expandable)| {
            let config = DeviceConfig {
                pool,
                fill_recycled,
                expandable_segments: expandable,
                ..Default::default()
            };
            run(&Device::cuda_with(0, config).unwrap(), &steps, policy).unwrap();
            Ok(())
        },
    );
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let [captures, launches] = [&CAPTURES, &LAUNCHES].map(|count| count.load(Ordering::Relaxed));
    println!("{captures} captures and {launches} launches in {cases} programs");
    let least = u64::from(cases);
    assert!(
        captures > least / 2 && launches > least,
        "{captures}, {launches}"
    );
}
