//! Whole programs: a training step in which every driver call fails in turn, and threads on their
//! own streams that share arrays; and layers.

mod layers;
mod sharing;
mod training;

/// Locks a mutex for one test at a time, because the emulator counts for the whole process.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
