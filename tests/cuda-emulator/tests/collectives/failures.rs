//! Tests of the errors of a rank's calls when other ranks fail.

use std::time::{Duration, Instant};

use cachescope::collective::{Group, NcclId, Reduce};
use cachescope::{Array, Device, ErrorKind, Result};

use cuda_emulator::Control;

use crate::collectives::{DEVICES, all_of, alone, on_ranks};

#[test]
fn a_disagreement_is_an_error_on_all_ranks() -> Result<()> {
    let _alone = alone();
    let all = on_ranks(3, Default::default(), |group, _| {
        let group = group.clone().checks(true);
        let mut x = Array::<f32>::ones(3 + usize::from(group.rank() == 1))?;
        let error = group.all_reduce_in_place(&mut x, Reduce::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{error}");
        let error = match group.rank() {
            0 => group.broadcast_in_place(&mut x, 0),
            _ => group.reduce_in_place(&mut x, Reduce::Max, 0),
        };
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
        // After the error, the ranks can make further calls.
        let mut x = Array::<f32>::ones(5)?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        assert_eq!(x.to_vec()?, [3.0; 5]);
        Ok(())
    });
    all_of(all).map(drop)
}

/// Without a timeout, NCCL and the device would wait forever for the missing rank.
#[test]
fn a_missing_rank_is_an_error_in_time() -> Result<()> {
    let _alone = alone();
    let began = Instant::now();
    let all = on_ranks(2, Default::default(), |group, device| {
        let group = group
            .clone()
            .checks(false)
            .timeout(Duration::from_millis(300));
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_secs(2));
            return Ok(());
        }
        let mut x = Array::<f32>::ones(1000)?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        // Each wait returns the error, including the second wait.
        for _ in 0..2 {
            let error = x.to_vec().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Communication, "{error}");
            assert!(error.to_string().contains("within 300ms"), "{error}");
        }
        assert!(device.synchronize().is_err());
        // After the failure, the group is unusable.
        assert!(group.all_reduce_in_place(&mut x, Reduce::Sum).is_err());
        Ok(())
    });
    // When a rank ends, its device waits for all of its pending work.
    assert_eq!(
        all[0].as_ref().unwrap_err().kind(),
        ErrorKind::Communication
    );
    // The failure affects only the group, so the device remains usable.
    let device = Device::cuda_with(0, Default::default())?;
    let _current = device.enter();
    assert_eq!(Array::full(3, 2.0f32)?.to_vec()?, [2.0; 3]);
    assert!(began.elapsed() < Duration::from_secs(30));
    Ok(())
}

#[test]
fn ranks_need_devices_of_their_own() -> Result<()> {
    let _alone = alone();
    let id = NcclId::new()?;
    let errors: Vec<_> = std::thread::scope(|threads| {
        let join = |rank| {
            threads.spawn(move || {
                let _current = Device::cuda_with(0, Default::default())?.enter();
                Group::nccl(rank, 2, id).map(drop)
            })
        };
        let ranks = [join(0), join(1)];
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Driver);
    }
    if let Some(control) = Control::of_process() {
        // The test provoked this misuse.
        control.forgive(1);
    }
    let beyond = Device::cuda(DEVICES).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::InvalidArgument);
    let _host = Device::host().enter();
    let error = Group::nccl(0, 1, id).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = Group::nccl(2, 2, id).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    Ok(())
}

#[test]
fn an_array_elsewhere_is_refused() -> Result<()> {
    let _alone = alone();
    let all = on_ranks(1, Default::default(), |group, _| {
        let _host = Device::host().enter();
        let error = group.all_reduce_in_place(&mut Array::<f32>::ones(3)?, Reduce::Sum);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::DeviceMismatch);
        Ok(())
    });
    all_of(all).map(drop)
}

#[test]
fn a_capture_takes_no_exchange() -> Result<()> {
    let _alone = alone();
    let all = on_ranks(1, Default::default(), |group, device| {
        let mut x = Array::<f32>::ones(3)?;
        let captured =
            cachescope::graph::capture(device, || group.all_reduce_in_place(&mut x, Reduce::Sum));
        assert_eq!(
            captured.map(drop).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        Ok(())
    });
    all_of(all).map(drop)
}
