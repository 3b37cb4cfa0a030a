//! Whole programs: a training step whose every call of the driver fails in turn, and threads on streams of
//! their own that share arrays.

#[path = "../../../../examples/train_digits/model.rs"]
#[expect(dead_code, reason = "the example uses all of it")]
mod model;
mod sharing;
mod training;

/// What the example's model takes, without the files of the example.
mod dataset {
    use cachescope::Array;

    #[derive(Debug)]
    pub(crate) struct Dataset {
        pub(crate) images: Array<f32>,
        pub(crate) labels: Array<i64>,
    }
}

mod digits {
    pub(crate) const PIXELS: usize = 64;
    pub(crate) const CLASSES: usize = 10;
}

cuda_emulator::on_cuda!();

/// The emulator counts for the whole process, so the tests take turns.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
