//! Tests of memory that is registered with NCCL. Each segment must be registered once, and
//! deregistered before it is freed. Otherwise, the emulator counts a misuse.

use cachescope::collective::Reduce;
use cachescope::{Array, DeviceConfig, Result, cache_scope};
use cuda_emulator::Control;

use crate::collectives::{all_of, alone, on_ranks};

#[test]
fn a_segment_is_registered_once_and_ends_first() -> Result<()> {
    let _alone = alone();
    let Some(control) = Control::of_process() else {
        return Ok(());
    };
    for (expandable_segments, expected) in [(false, 2), (true, 0)] {
        let count = |name: &str| control.calls_of(name);
        let before = [count("ncclCommRegister"), count("ncclCommDeregister")];
        let config = DeviceConfig {
            expandable_segments,
            ..DeviceConfig::default()
        };
        let all = on_ranks(2, config, |group, device| {
            let group = group.clone().checks(false);
            for _ in 0..5 {
                cache_scope!("step", {
                    let mut x = Array::full(100_000, 1.0f32)?;
                    group.all_reduce_in_place(&mut x, Reduce::Sum)?;
                    assert_eq!(x.to_vec()?[7], 2.0);
                });
            }
            group.barrier()?;
            device.invalidate_all_caches();
            device.trim(0);
            Ok(())
        });
        all_of(all)?;
        assert!(count("ncclCommRegister") - before[0] >= expected);
        assert!(count("ncclCommRegister") - before[0] <= 2 * expected);
        let ended = count("ncclCommDeregister") - before[1];
        assert_eq!(ended, count("ncclCommRegister") - before[0]);
        assert_eq!(control.report().registrations, 0);
        assert_eq!(control.complaints(), 0, "{}", control.last_complaint());
    }
    Ok(())
}
