//! Whole programs: a training step whose every call of the driver fails in turn, and threads on
//! streams of their own that share arrays.

mod sharing;
mod training;

/// The emulator counts for the whole process, so the tests take turns.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
