//! Checkpoints of parameters and optimizer states. Any number of ranks can load the files.

use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::optim::{Adam, OptimizerState, Stateful};
use cachescope::grad::{files, value_and_grad};
use cachescope::{ErrorKind, Result};

use crate::collective::training::{Network, are_close, whole};

#[test]
fn a_checkpoint_of_some_ranks_loads_under_others() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("cachescope-ranks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (weights, state) = (folder.join("weights.npz"), folder.join("state.npz"));
    // Three ranks train four steps. Rank 0 saves the state after the second step.
    let expected = Group::threads(3, |group| {
        let mut network = Network::new(4)?;
        let mut parallel = DataParallel::new(&group).bucket_bytes(200, 400);
        let mut optimizer = Sharded::new(&group, Adam::new(0.01))?;
        let error = optimizer.state(&network).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let x = whole(&[8, 5], 1)?;
        for iteration in 0..4 {
            parallel.value_and_step(&mut network, &mut optimizer, |network| network.loss(&x))?;
            if iteration == 1 {
                let own = optimizer.state(&network)?;
                if group.rank() == 0 {
                    files::save(&network, &weights)?;
                    files::save(&own, &state)?;
                }
            }
        }
        network.values()
    })?;
    let like =
        |network: &Network| -> Result<OptimizerState<Network>> { Adam::new(0.01).state(network) };
    // Every rank has the same batch, so the mean does not depend on the number of ranks.
    for size in [1, 2, 4] {
        let found = Group::threads(size, |group| {
            let mut network = files::load(&Network::new(0)?, &weights)?;
            let mut parallel = DataParallel::new(&group).bucket_bytes(100, 1000);
            let mut optimizer = Sharded::new(&group, Adam::new(0.01))?;
            optimizer.set_state(&files::load(&like(&network)?, &state)?)?;
            let x = whole(&[8, 5], 1)?;
            for _ in 0..2 {
                parallel
                    .value_and_step(&mut network, &mut optimizer, |network| network.loss(&x))?;
            }
            network.values()
        })?;
        for found in found {
            assert!(are_close(&found, &expected[0]), "{size} ranks");
        }
    }
    // An unsharded optimizer also loads the state.
    let mut network = files::load(&Network::new(0)?, &weights)?;
    let mut optimizer = Adam::new(0.01);
    let loaded = files::load(&like(&network)?, &state)?;
    optimizer.set_state(&network, &loaded)?;
    let x = whole(&[8, 5], 1)?;
    for _ in 0..2 {
        let (_, gradients) = value_and_grad(&network, |network| network.loss(&x))?;
        optimizer.step(&mut network, &gradients)?;
    }
    assert!(are_close(&network.values()?, &expected[0]));
    std::fs::remove_dir_all(folder).unwrap();
    Ok(())
}
