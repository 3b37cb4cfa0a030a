//! Entries that repeat one sequence of requests, from which plans are made.

use cachescope::Buffer;

use super::{Worker, room_for};
use crate::stress::owned::Owned;
use crate::stress::random::Random;

impl Worker {
    /// Runs some entries of one sequence, from which plans are made. A few entries differ.
    pub(super) fn repeat(&mut self, depth: usize) {
        let script = self.random.below(4) as u64;
        for _ in 0..1 + self.random.below(4) {
            self.at_site(|worker, depth| worker.script(script, depth), depth);
        }
    }

    fn script(&mut self, number: u64, depth: usize) {
        let mut script = Random::new(number);
        let mut live: Vec<Owned> = Vec::new();
        for _ in 0..4 + script.below(12) {
            let len = 1 + script.below(3000);
            let drops = script.once_in(2);
            if self.random.once_in(60) {
                self.step(depth + 1);
            }
            live.extend(room_for(Owned::new(len, &self.bindings)));
            if drops && !live.is_empty() {
                live.swap_remove(script.below(live.len()));
            }
        }
        live.iter().for_each(Owned::check);
        if self.random.once_in(16) {
            self.kept.extend(live.pop());
        }
    }

    /// Allocates and drops many times. Most requests are hits.
    pub(super) fn hit(&mut self, _depth: usize) {
        let index = self.bindings.current_device();
        let Some(device) = self.round.devices.get(index).cloned() else {
            return;
        };
        let sizes = [64, 5000, 64, 700].map(|bytes| bytes + self.random.below(3) * 1000);
        for iteration in 0..self.random.below(200) {
            let _pair = [iteration, iteration + 1].map(|at| {
                let buffer = room_for(Buffer::new(&device, sizes[at % sizes.len()]))?;
                self.bindings.served(index);
                Some(buffer)
            });
        }
    }
}
