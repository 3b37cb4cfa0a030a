//! Whole programs: a training step in which every driver call fails in turn, threads on separate
//! streams that share arrays, and layers.

mod layers;
mod sharing;
mod training;

/// Returns a lock that one test at a time holds, because the emulator counts for the whole process.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
