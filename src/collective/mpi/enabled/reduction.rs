//! Reductions: each member reduces its part of all inputs in rank order, and sends the result to
//! the others.
//!
//! Parts are cut into pieces. While one piece is reduced, the next ones arrive, and the results of
//! earlier ones are sent.

use super::MpiEngine;
use super::comm::Tag;
use super::lane::{Lane, Load, WINDOW, Way};
use super::opening::{INLINE, given};
use crate::collective::call::{Call, Operation, Reduce};
use crate::collective::engine::{Memory, Work};
use crate::collective::fold::fold;
use crate::device::host_streams::HostFailure;

/// A part of at most this many bytes is one piece, if it fits in the ring. Shorter pieces would
/// wait for each other for longer than they overlap.
const WHOLE: usize = 2 << 20;

/// The maximum and minimum length of a piece of longer parts, and the maximum length of the arrived
/// pieces of all members together, in bytes.
const LONGEST: usize = 1 << 20;
const SHORTEST: usize = 16 << 10;
const RING: usize = 8 << 20;

/// The reduction of this rank's part.
struct Part<'a> {
    call: &'a Call,
    reduce: Reduce,
    own: usize,
    piece: usize,
    /// The length of the part, and of its reduced beginning, in bytes.
    bytes: usize,
    folded: usize,
    /// Per member: its input.
    rows: Vec<Row>,
    result: Row,
}

/// Memory of a whole part, or a ring of its latest pieces. Byte `i` of the part is at `i % wrap`.
#[derive(Clone, Copy)]
struct Row {
    memory: *mut u8,
    wrap: usize,
}

impl Row {
    fn at(&self, byte: usize) -> *mut u8 {
        self.memory.wrapping_add(byte % self.wrap)
    }
}

/// Indices of the lanes by role. Each role has at most one lane per member.
#[derive(Default)]
struct Roles {
    /// Lanes that receive the inputs of others for this rank's part.
    takes: Vec<usize>,
    /// Lanes that send this rank's results.
    passes: Vec<usize>,
    /// Lanes that receive the results of others. If a result overwrites an input that this rank
    /// sends, also the lane that sends it.
    gets: Vec<(usize, Option<usize>)>,
}

impl MpiEngine {
    /// Executes a reduction.
    ///
    /// # Safety
    ///
    /// As for [`run`](crate::collective::engine::Engine::run); the members agreed on the call.
    pub(super) unsafe fn reduce(
        &mut self,
        work: &Work,
        memory: Memory,
        reduce: Reduce,
    ) -> Result<(), HostFailure> {
        let size = work.members.size();
        let piece = piece(size, work.call.bytes());
        // One row for each other member, and one for results that this rank does not store.
        let words = size * WINDOW * piece / size_of::<u64>();
        let mut ring = std::mem::take(&mut self.ring);
        if ring.len() < words {
            // Zeroed, so that pages that are never accessed use no physical memory.
            ring = vec![0; words];
        }
        // SAFETY: by this function's contract; the ring lives until nothing is in flight;
        // otherwise, it is leaked.
        let outcome = unsafe { self.reduce_in(work, memory, (reduce, piece), &mut ring) };
        match outcome.as_ref().is_err_and(|failure| failure.keeps_memory) {
            true => std::mem::forget(ring),
            false => self.ring = ring,
        }
        outcome
    }

    /// # Safety
    ///
    /// As for [`reduce`](Self::reduce). The ring has `WINDOW` pieces for each member.
    unsafe fn reduce_in(
        &mut self,
        work: &Work,
        memory: Memory,
        (reduce, piece): (Reduce, usize),
        ring: &mut [u64],
    ) -> Result<(), HostFailure> {
        let (own, size) = (work.members.own, work.members.size());
        let wrap = WINDOW * piece;
        let ring: *mut u8 = ring.as_mut_ptr().cast();
        let row = |member: usize| ring.wrapping_add(member * wrap);
        let (source, bytes) = given(work, memory, own);
        let result = match work.call.operation {
            Operation::ReduceScatter(_) => plain(memory.target),
            // This rank's array must not change.
            Operation::Reduce(_, root) if root != own => Row {
                memory: row(own),
                wrap,
            },
            _ => plain(memory.target.wrapping_add(offset(work, own))),
        };
        let rows = (0..size).map(|member| match member {
            _ if member == own => plain(source.cast_mut()),
            _ if bytes <= INLINE => plain(self.rooms.data(member).cast_mut()),
            _ => Row {
                memory: row(member),
                wrap,
            },
        });
        let mut part = Part {
            call: &work.call,
            reduce,
            own,
            piece,
            bytes,
            folded: 0,
            rows: rows.collect(),
            result,
        };
        // SAFETY: by this function's contract; rows and result are as long as the part, or rings of
        // `WINDOW` pieces.
        let (mut lanes, roles) = unsafe { lanes(work, memory, &part) };
        let mut step = |lanes: &mut [Lane]| {
            // SAFETY: as before; the lanes record which pieces have arrived and which are no longer
            // read.
            unsafe { part.step(lanes, &roles) }
        };
        self.carry(work, &mut lanes, &mut step)
    }
}

/// Returns the length of a piece, which is equal on all members.
fn piece(size: usize, bytes: usize) -> usize {
    let longest = if bytes <= size * WHOLE {
        WHOLE
    } else {
        LONGEST
    };
    let share = (RING / (size * WINDOW)).max(1);
    (1 << share.ilog2()).clamp(SHORTEST, longest)
}

fn plain(memory: *mut u8) -> Row {
    Row {
        memory,
        wrap: usize::MAX,
    }
}

/// Returns the offset of a member's part in the inputs, in bytes.
fn offset(work: &Work, member: usize) -> usize {
    let nowhere = Memory {
        is_of_device: false,
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
    };
    given(work, nowhere, member).0.addr()
}

/// Creates the lanes of a reduction. Data that was sent with the headers needs none.
///
/// # Safety
///
/// As for [`reduce`](MpiEngine::reduce); the part's rows and result are as long as it is, or rings.
unsafe fn lanes(work: &Work, memory: Memory, part: &Part<'_>) -> (Vec<Lane>, Roles) {
    let (own, size) = (work.members.own, work.members.size());
    let in_place = memory.source == memory.target.cast_const();
    let root = match work.call.operation {
        Operation::Reduce(_, root) => Some(root),
        _ => None,
    };
    let has_results = !matches!(work.call.operation, Operation::ReduceScatter(_));
    let load = |row: Row, bytes: usize| Load {
        memory: row.memory,
        wrap: row.wrap,
        bytes,
        piece: part.piece,
    };
    let (mut lanes, mut roles) = (Vec::with_capacity(4 * size), Roles::default());
    for step in 1..size {
        let (from, to) = ((own + size - step) % size, (own + step) % size);
        let (from_peer, to_peer) = (work.members.ranks[from], work.members.ranks[to]);
        // SAFETY: by this function's contract. A piece becomes ready when its data is written, or
        // when nothing reads the memory that it overwrites.
        unsafe {
            if part.bytes > INLINE {
                roles.takes.push(lanes.len());
                let load = load(part.rows[from], part.bytes);
                lanes.push(Lane::new(from_peer, (Tag::Given, Way::In), load));
            }
            let (source, bytes) = given(work, memory, to);
            if bytes > INLINE {
                let load = load(plain(source.cast_mut()), bytes);
                lanes.push(Lane::new(to_peer, (Tag::Given, Way::Out), load).all_ready());
            }
            if has_results && root.is_none_or(|root| root == to) && part.bytes > 0 {
                roles.passes.push(lanes.len());
                let load = load(part.result, part.bytes);
                lanes.push(Lane::new(to_peer, (Tag::Reduced, Way::Out), load));
            }
        }
    }
    for from in (0..size).filter(|from| *from != own && has_results) {
        let bytes = given(work, memory, from).1;
        if bytes == 0 || root.is_some_and(|root| root != own) {
            continue;
        }
        let peer = work.members.ranks[from];
        let gives = |lane: &Lane| lane.peer == peer && lane.gives();
        roles.gets.push((
            lanes.len(),
            lanes.iter().position(gives).filter(|_| in_place),
        ));
        let place = memory.target.wrapping_add(offset(work, from));
        // SAFETY: as before; a piece becomes ready when the input that it overwrites has been sent.
        lanes.push(unsafe { Lane::new(peer, (Tag::Reduced, Way::In), load(plain(place), bytes)) });
    }
    (lanes, roles)
}

impl Part<'_> {
    /// Reduces the next piece if it has arrived from all members, and marks pieces as ready.
    /// Returns true if it reduced one.
    ///
    /// # Safety
    ///
    /// The lanes and the roles are those that [`lanes`] returned, and their memory is still valid.
    unsafe fn step(&mut self, lanes: &mut [Lane], roles: &Roles) -> bool {
        let end = (self.folded + self.piece).min(self.bytes);
        let has_come = roles.takes.iter().all(|take| lanes[*take].done() >= end);
        // In a ring, the result overwrites the one that was `wrap` bytes before.
        let has_gone = self.result.wrap == usize::MAX
            || roles
                .passes
                .iter()
                .all(|pass| lanes[*pass].done() + self.result.wrap >= end);
        let folds = self.folded < end && has_come && has_gone;
        if folds {
            let width = self.call.dtype.size_bytes();
            let rows: Vec<*const u8> = self
                .rows
                .iter()
                .map(|row| row.at(self.folded).cast_const())
                .collect();
            let (target, count) = (self.result.at(self.folded), (end - self.folded) / width);
            // SAFETY: all rows have arrived up to the end; pieces are whole, aligned elements,
            // because rings and parts are. Nothing uses the target: the results that it held have
            // been sent.
            unsafe { fold((self.reduce, self.call.dtype), &rows, &[target], count) };
            self.folded = end;
        }
        let room = self.rows.iter().enumerate();
        let room = room.filter(|(member, _)| *member != self.own);
        let room = room.map(|(_, row)| row.wrap).min().unwrap_or(usize::MAX);
        for take in &roles.takes {
            let lane = &mut lanes[*take];
            lane.ready = self.folded.saturating_add(room).min(lane.bytes());
        }
        for pass in &roles.passes {
            lanes[*pass].ready = self.folded;
        }
        for (get, gave) in &roles.gets {
            lanes[*get].ready = match gave {
                Some(gave) => lanes[*gave].done(),
                None => lanes[*get].bytes(),
            };
        }
        folds
    }
}
