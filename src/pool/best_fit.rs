//! Best fit.
