//! Reports of recorded programs, of lost events, and of event soup.
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
