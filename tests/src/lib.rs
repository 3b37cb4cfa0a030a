//! An empty library. The package exists for its tests.
