//! Tests with whole programs: training steps with failing driver calls, threads that share arrays,
//! and layers.

mod layers;
mod sharing;
mod training;

/// Returns a lock that serialises the tests, because the emulator's counters are per process.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
