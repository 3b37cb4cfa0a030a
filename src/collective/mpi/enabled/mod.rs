//! Ranks that are processes, over the MPI library that the program was built with.
//!
//! Architecture invariant: one thread of a process at a time, which has the engine, makes calls of
//! MPI from the beginning of the world to its end, and none of them waits. A wait is a loop that
//! lets MPI go on, hears of ranks that are gone, and has a deadline.

mod circle;
mod comm;
mod cuda;
mod ending;
mod lane;
mod letters;
mod movement;
mod opening;
mod peers;
mod reduction;
mod world;

use std::time::Duration;

use super::super::call::Operation;
use super::super::engine::{Asker, Engine, Members, Memory, Work, failed, told};
use crate::device::host_streams::HostFailure;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use comm::Comm;
use ending::Ending;
use lane::Lane;
use letters::Letters;
use opening::{INLINE, Rooms};
use peers::{Awaited, News, Peers, Waiting};

pub(super) use world::world;

/// A rank of MPI's world.
#[derive(Debug)]
struct MpiEngine {
    comm: Comm,
    peers: Peers,
    letters: Letters,
    /// What members tell each other as they come.
    rooms: Rooms,
    /// What others give for a reduction, kept from one to the next.
    ring: Vec<u64>,
    /// Why it takes part in nothing any more.
    broken: Option<Error>,
    ending: Arc<Ending>,
    /// Whether the library takes memory of CUDA devices.
    knows_cuda: bool,
}

impl MpiEngine {
    fn new(comm: Comm, ending: Arc<Ending>, knows_cuda: bool) -> Self {
        Self {
            peers: Peers::new(comm.size()),
            comm,
            letters: Letters::default(),
            rooms: Rooms::default(),
            ring: Vec::new(),
            broken: None,
            ending,
            knows_cuda,
        }
    }

    /// All members do their part, once they agree.
    ///
    /// # Safety
    ///
    /// As for [`run`](Engine::run).
    unsafe fn together(
        &mut self,
        work: &Work,
        memory: Memory,
        asker: &mut dyn Asker,
    ) -> Result<(), HostFailure> {
        // SAFETY: by this function's contract.
        match unsafe { self.open(work, memory) } {
            Ok(Ok(())) => asker.tell(Ok(())),
            Ok(Err(disagreement)) => return failed(asker, disagreement),
            Err(error) => {
                self.fail(&error);
                return failed(asker, error);
            }
        };
        // SAFETY: by this function's contract; all members have come with this call.
        let outcome = unsafe {
            match work.call.operation {
                Operation::AllReduce(reduce)
                | Operation::Reduce(reduce, _)
                | Operation::ReduceScatter(reduce) => self.reduce(work, memory, reduce),
                Operation::Broadcast(root) => self.broadcast(work, memory, root),
                _ => self.exchange(work, memory),
            }
        };
        outcome.inspect_err(|failure| self.fail(&failure.error))
    }

    /// Carries all lanes. After each turn, `step` makes more of them ready, and answers whether it
    /// did anything.
    ///
    /// # Errors
    ///
    /// Where MPI may not be through with the memory of a lane, the failure keeps it.
    fn carry(
        &mut self,
        work: &Work,
        lanes: &mut [Lane],
        step: &mut dyn FnMut(&mut [Lane]) -> bool,
    ) -> Result<(), HostFailure> {
        let outcome = self.carry_lanes(work, lanes, step);
        outcome.map_err(|error| {
            let taken_back = lanes.iter_mut().map(Lane::take_back);
            HostFailure {
                error,
                keeps_memory: taken_back.filter(|is_certain| !is_certain).count() > 0,
            }
        })
    }

    fn carry_lanes(
        &mut self,
        work: &Work,
        lanes: &mut [Lane],
        step: &mut dyn FnMut(&mut [Lane]) -> bool,
    ) -> Result<()> {
        let mut waiting = Waiting::new(work, Awaited::Data);
        loop {
            let has_stepped = step(lanes);
            let has_turned = Lane::turn(lanes, &self.comm)?;
            if has_stepped || has_turned {
                waiting.moved();
                continue;
            }
            let late = || lanes.iter().filter(|lane| !lane.is_done());
            if late().next().is_none() {
                return Ok(());
            }
            let missing = || {
                let mut ranks: Vec<usize> = late().map(|lane| lane.peer).collect();
                ranks.sort_unstable();
                ranks.dedup();
                ranks
            };
            self.peers.pause(&self.comm, &mut waiting, missing)?;
        }
    }
}

impl Engine for MpiEngine {
    unsafe fn run(
        &mut self,
        work: &Work,
        memory: Memory,
        asker: &mut dyn Asker,
    ) -> Result<(), HostFailure> {
        if let Some(error) = &self.broken {
            return failed(asker, error.clone());
        }
        if self.ending.is_over() {
            return failed(asker, is_over(work.call.operation.name()));
        }
        // SAFETY: by this function's contract.
        let outcome = unsafe {
            match work.call.operation {
                Operation::Send(to) => self.send(work, memory, to),
                Operation::Receive(from) => match self.receive(work, memory, from) {
                    Ok(received) => received,
                    Err(failure) => {
                        self.fail(&failure.error);
                        return fail_receiving(asker, failure);
                    }
                },
                _ => return self.together(work, memory, asker),
            }
        };
        told(asker, outcome)
    }

    /// What goes from rank to rank as it is, and not along with the heads, which the host reads.
    fn takes_device_memory(&self, work: &Work) -> bool {
        let bytes = match work.call.operation {
            Operation::Broadcast(_) | Operation::AllGather => work.call.bytes(),
            Operation::AllToAll => work.call.bytes() / work.members.size(),
            _ => 0,
        };
        self.knows_cuda && bytes > INLINE
    }

    fn fail(&mut self, error: &Error) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(error.clone());
        let news = News::Broke(error.to_string());
        // Who cannot be told hears nothing of this rank any more, and gives up in time.
        let _ = self.peers.tell(&self.comm, 0..self.comm.size(), &news);
    }

    fn end(&mut self, members: &Members) {
        self.letters.forget(members.group);
        self.peers.drop_group(members);
        if self.ending.is_over() {
            return;
        }
        let ranks = members.ranks.iter().copied();
        // Who cannot be told gives up in time.
        let _ = self
            .peers
            .tell(&self.comm, ranks, &News::Dropped(members.group));
    }

    fn go_on(&mut self) -> Option<Duration> {
        /// A receiver waits for so long between two pieces.
        const PAUSE: Duration = Duration::from_micros(50);
        if self.letters.are_all_out() || self.ending.is_over() {
            return None;
        }
        // An error shows again at the end.
        let _ = self.letters.reap();
        Some(PAUSE)
    }

    fn close(&mut self) {
        let end = self.take_leave();
        self.ending.tell(end);
    }
}

impl Drop for MpiEngine {
    fn drop(&mut self) {
        // A panic came before `close`.
        self.ending.tell(Err(is_over("the end")));
        self.peers.abandon();
        self.letters.abandon();
    }
}

/// Whoever asked hears it, unless the memory is not its own any more: then who waits for that.
fn fail_receiving(asker: &mut dyn Asker, failure: HostFailure) -> Result<(), HostFailure> {
    match failure.keeps_memory {
        true => Err(failure),
        false => failed(asker, failure.error),
    }
}

#[cold]
fn is_over(operation: &str) -> Error {
    let text = format!("{operation}: MPI has been finalised");
    Error::new(ErrorKind::Communication, text)
}
