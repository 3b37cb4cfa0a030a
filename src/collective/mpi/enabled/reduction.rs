//! Reductions: each member reduces its part of what all give, in the order of the ranks, and gives
//! away the result.
//!
//! Parts are cut into pieces. While one is reduced, the next ones arrive, and the results of those
//! before are on their way.

use super::MpiEngine;
use super::comm::Tag;
use super::lane::{Lane, Load, WINDOW, Way};
use super::opening::{INLINE, given};
use crate::collective::call::{Call, Operation, Reduce};
use crate::collective::engine::{Memory, Work};
use crate::collective::fold::fold;
use crate::device::host_streams::HostFailure;

/// A part of so many bytes goes as one piece, if the ring has room: its pieces would wait for each
/// other for longer than they overlap.
const WHOLE: usize = 2 << 20;

/// The longest and the shortest piece of longer parts, and what pieces of all members that have
/// arrived take together at most, in bytes.
const LONGEST: usize = 1 << 20;
const SHORTEST: usize = 16 << 10;
const RING: usize = 8 << 20;

/// A reduction of this rank's part.
struct Part<'a> {
    call: &'a Call,
    reduce: Reduce,
    own: usize,
    piece: usize,
    /// The part's length, and how much of it is reduced, in bytes.
    bytes: usize,
    folded: usize,
    /// Of each member, what it gives.
    rows: Vec<Row>,
    result: Row,
}

/// Memory of a part, or of its latest pieces, each in the place of the one that is so many bytes
/// before.
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

/// Which lane is which; a member has each at most once.
#[derive(Default)]
struct Roles {
    /// What others give for this rank's part.
    takes: Vec<usize>,
    /// This rank's results.
    passes: Vec<usize>,
    /// Results of others, each with what this rank gave in its place, where that is the same
    /// memory.
    gets: Vec<(usize, Option<usize>)>,
}

impl MpiEngine {
    /// Reduces as the call says.
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
        // A row for each other member, and one for results that stay nowhere.
        let words = size * WINDOW * piece / size_of::<u64>();
        let mut ring = std::mem::take(&mut self.ring);
        if ring.len() < words {
            // Pages that nothing touches take no memory.
            ring = vec![0; words];
        }
        // SAFETY: by this function's contract; the ring stays until nothing is in flight, or for
        // good.
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
            // Here the array stays as it is.
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
        // SAFETY: by this function's contract: rows and result are as long as the part, or rings of
        // that many pieces.
        let (mut lanes, roles) = unsafe { lanes(work, memory, &part) };
        let mut step = |lanes: &mut [Lane]| {
            // SAFETY: as before; the lanes tell what has arrived and what is not read any more.
            unsafe { part.step(lanes, &roles) }
        };
        self.carry(work, &mut lanes, &mut step)
    }
}

/// How long pieces are, which all members agree on.
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

/// Where a member's part begins in what all give, in bytes.
fn offset(work: &Work, member: usize) -> usize {
    let nowhere = Memory {
        is_of_device: false,
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
    };
    given(work, nowhere, member).0.addr()
}

/// The lanes of a reduction: those whose data is not small enough to have come along.
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
        // SAFETY: by this function's contract. Pieces are ready when they are written, and when
        // nothing reads what is in their place.
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
        // SAFETY: as before; it becomes ready with what this rank gave in its place.
        lanes.push(unsafe { Lane::new(peer, (Tag::Reduced, Way::In), load(plain(place), bytes)) });
    }
    (lanes, roles)
}

impl Part<'_> {
    /// Reduces the next piece, if all have given it, and makes ready what can be. Answers whether
    /// it reduced any.
    ///
    /// # Safety
    ///
    /// The lanes are those that [`lanes`] gave with the roles, and so is their memory.
    unsafe fn step(&mut self, lanes: &mut [Lane], roles: &Roles) -> bool {
        let end = (self.folded + self.piece).min(self.bytes);
        let has_come = roles.takes.iter().all(|take| lanes[*take].done() >= end);
        // The result takes the place of the one that is a ring before.
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
            // SAFETY: all rows have arrived up to the end; pieces are whole elements, aligned,
            // because rings and parts are. Nothing uses the target: what was sent from it is gone.
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
