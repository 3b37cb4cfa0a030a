//! Tests of reports with recorded programs, lost events, and random events.
#![allow(missing_docs)]

mod bad_input;
mod by_hand;
mod perfetto;
mod sites;
mod snapshot;
mod stacks;
mod toy;
mod unpickle;
mod viewer;
