//! Tests with training steps of tens of thousands of buffers.

use super::{Numbers, area, buffer, check, lowest_free, sorted_down};
use crate::plan::{BufferInterval, pack_quickly};

/// Returns the buffers of a training step of `layers` layers. Weights live throughout the step.
/// Activations live from the forward to the backward pass of their layer. Gradients live until the
/// end, and temporaries for one or a few operations.
fn training_step(layers: u64, operations: u64, seed: u64) -> Vec<BufferInterval> {
    let mut numbers = Numbers(seed);
    let end = 2 * layers * operations + layers;
    let mut buffers = Vec::new();
    for layer in 0..layers {
        buffers.push(buffer(0, end, 512 * (1 + numbers.below(60_000))));
        for operation in 0..operations {
            let at = layer * operations + operation;
            let back = 2 * layers * operations - at;
            let size = match numbers.below(4) {
                0 => 1 + numbers.below(5_000),
                1 => 4 << 20,
                _ => (1 << 16) * (1 + numbers.below(200)),
            };
            match numbers.below(3) {
                0 => buffers.push(buffer(at, at + 1 + numbers.below(6), size)),
                _ => buffers.push(buffer(at, back, size)),
            }
            buffers.push(buffer(back - 1, back + 1 + numbers.below(4), size));
            if numbers.below(8) == 0 {
                buffers.push(buffer(back, end, 512 * (1 + numbers.below(9_000))));
            }
        }
    }
    buffers
}

#[test]
fn large_graphs_are_packed_tightly() {
    for (layers, operations) in [(48, 200), (6, 1_600), (200, 50)] {
        let buffers = training_step(layers, operations, layers);
        assert!(buffers.len() > 20_000);
        let plan = pack_quickly(&buffers);
        check(&buffers, &plan);
        let slack = plan.slab_bytes - plan.max_load_bytes;
        assert!(slack * 1000 <= plan.max_load_bytes * 7, "{plan:?}");
    }
}

#[test]
fn graphs_are_packed_no_looser_than_by_greed() {
    for seed in 0..6 {
        let buffers = training_step(12, 40, seed);
        let plan = pack_quickly(&buffers);
        check(&buffers, &plan);
        let by_size = lowest_free(&buffers, &sorted_down(&buffers, |b| b.size_bytes));
        let by_area = lowest_free(&buffers, &sorted_down(&buffers, area));
        let least = by_size.min(by_area);
        assert!(plan.slab_bytes < least || plan.slab_bytes == plan.max_load_bytes);
    }
}
