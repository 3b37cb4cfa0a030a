//! Reports of recorded programs, of lost events, and of event soup.
#![allow(missing_docs)]

mod snapshot;
mod toy;
mod unpickle;
mod viewer;
