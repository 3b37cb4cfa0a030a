//! The code that each process runs, by case.

use std::time::{Duration, Instant};

use cachescope::collective::{Group, Reduce};
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Result};

use crate::Outcome::{Failure, Success};
use crate::{Part, bodies};

/// The text that a rank prints after it has received the expected error.
pub(crate) const HEARD: &str = "[heard]";

/// The sleep of a hanging rank. It exceeds the time limit of a case.
const FOR_EVER: Duration = Duration::from_secs(1000);

pub(crate) const PARTS: &[Part] = &[
    part("calls", &[2, 3, 4], calls, Success, 0),
    part(
        "calls through the host",
        &[2, 3],
        calls_on_a_device,
        Success,
        0,
    )
    .on_devices("off"),
    part(
        "calls on the device",
        &[2, 3],
        calls_on_a_device,
        Success,
        0,
    )
    .on_devices("on"),
    part("an unknown setting", &[2], refuses_the_setting, Success, 2).on_devices("perhaps"),
    part("alone", &[1], alone, Success, 0),
    part("as on threads", &[2, 4], as_on_threads, Success, 0),
    part("disagreements", &[2, 3], disagreements, Success, 0),
    part("without checks", &[2], without_checks, Success, 2),
    part("without checks", &[3], without_checks, Success, 3),
    part("letters", &[2, 3], letters, Success, 0),
    part("never received", &[2], never_received, Success, 0),
    part("two orders", &[2], || two_orders(true), Success, 2),
    part(
        "two orders, no checks",
        &[2],
        || two_orders(false),
        Success,
        2,
    ),
    part("a circle", &[3], a_circle, Success, 3),
    part("ends early", &[3], || leaves(true, ends), Success, 2),
    part(
        "ends early, no checks",
        &[3],
        || leaves(false, ends),
        Success,
        2,
    ),
    part("fails", &[3], || leaves(true, fails), Failure, 2),
    part("panics", &[3], || leaves(false, panics), Failure, 2),
    part("fails with a reason", &[3], fails_with_a_reason, Failure, 2),
    part(
        "panics with a reason",
        &[3],
        panics_with_a_reason,
        Failure,
        2,
    ),
    part("fails long before", &[3], fails_long_before, Failure, 2),
    part("dies", &[3], dies, Failure, 0),
    part("hangs", &[3], hangs, Failure, 2),
    part("comes late", &[3], comes_late, Success, 3),
    part("drops a group", &[2], drops_a_group, Success, 1),
    #[cfg(feature = "mpi")]
    part("its own MPI", &[2], its_own_mpi, Success, 0),
];

const fn part(
    name: &'static str,
    sizes: &'static [usize],
    rank: fn() -> Result<()>,
    outcome: crate::Outcome,
    heard: usize,
) -> Part {
    Part {
        name,
        sizes,
        rank,
        outcome,
        heard,
        takes_device_memory: None,
    }
}

fn heard() {
    println!("{HEARD}");
}

fn calls() -> Result<()> {
    let group = Group::mpi()?;
    for checks in [true, false] {
        let group = group.clone().checks(checks);
        bodies::numbers_are_reduced(&group)?;
        bodies::means_and_complex_numbers(&group)?;
        bodies::sums_are_in_the_order_of_the_ranks(&group)?;
        bodies::one_rank_gives_and_one_gets(&group)?;
        bodies::parts_are_sent_to_their_ranks(&group)?;
        bodies::arrays_are_sent_and_received_in_order(&group)?;
        bodies::messages_of_groups_are_separate(&group)?;
        bodies::views_are_read_and_written(&group)?;
        bodies::groups_divide(&group)?;
    }
    bodies::calls_are_ordered_like_any_operation(&group)?;
    for other in [Group::mpi()?, Group::from_environment()?] {
        let place = (other.rank(), other.size());
        assert_eq!(place, (group.rank(), group.size()), "another handle");
    }
    group.barrier()
}

/// Repeats `calls` on the emulated device. The device's memory is host memory, so MPI can access it
/// with any value of `CACHESCOPE_MPI_CUDA`.
fn calls_on_a_device() -> Result<()> {
    assert!(
        Device::current().to_string().starts_with("cuda"),
        "the emulated device is current"
    );
    calls()
}

fn refuses_the_setting() -> Result<()> {
    let error = Group::mpi().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let text = error.to_string();
    assert!(text.contains("CACHESCOPE_MPI_CUDA=perhaps"), "{text}");
    heard();
    Ok(())
}

fn alone() -> Result<()> {
    let group = Group::mpi()?;
    assert_eq!((group.rank(), group.size()), (0, 1));
    bodies::numbers_are_reduced(&group)?;
    bodies::messages_of_groups_are_separate(&group)?;
    bodies::a_world_of_one(&group)
}

/// Checks that processes and threads compute equal bits, including rounding.
fn as_on_threads() -> Result<()> {
    let group = Group::mpi()?;
    let given = |rank: usize, count: usize| {
        let own = |place: usize| ((place * 7919 + rank * 104_729) as f32).sin() * 1e4;
        Array::from_vec((0..count).map(own).collect(), count)
    };
    for count in [1, 100, 4097, 70_001, 1 << 20] {
        for reduce in [Reduce::Sum, Reduce::Mean, Reduce::Max] {
            let own = group.all_reduce(&given(group.rank(), count)?, reduce)?;
            let threads = Group::threads(group.size(), |threads| {
                let x = given(threads.rank(), count)?;
                threads.all_reduce(&x, reduce)?.to_vec()
            })?;
            let bits = |all: Vec<f32>| all.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let expected = bits(threads.into_iter().next().unwrap());
            assert!(bits(own.to_vec()?) == expected, "{reduce} of {count}");
        }
    }
    Ok(())
}

/// Checks that each disagreement is an error on all ranks, and that the group remains usable.
fn disagreements() -> Result<()> {
    let group = Group::mpi()?.checks(true);
    let own = group.rank();
    for count in [3, 100_000] {
        let mut x = Array::full(count + own, 1.0f32)?;
        let error = group.all_reduce_in_place(&mut x, Reduce::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{error}");
        let text = error.to_string();
        for shape in [format!("[{count}]"), format!("[{}]", count + 1)] {
            assert!(text.contains(&shape) || own > 1, "{text}");
        }
        assert!(
            error
                .location()
                .is_some_and(|place| place.file() == file!())
        );
        assert!(x.to_vec()? == vec![1.0; count + own], "nothing was written");
    }
    let outcome = match own {
        0 => group.all_reduce_in_place(&mut Array::<f32>::zeros(3)?, Reduce::Sum),
        _ => group.all_reduce_in_place(&mut Array::<i32>::zeros(3)?, Reduce::Sum),
    };
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("f32") && error.to_string().contains("i32"));
    let x = Array::<f32>::zeros(group.size())?;
    let outcome = match own {
        0 => group.all_gather(&x).map(drop),
        _ => group.reduce_scatter(&x, Reduce::Max).map(drop),
    };
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("all_gather") && text.contains("reduce_scatter (max)"));
    let outcome = group.broadcast_in_place(&mut Array::<f32>::zeros(4)?, own);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
    bodies::groups_divide(&group)
}

/// Checks that a read returns the error of an unchecked call.
fn without_checks() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let group = Group::mpi()?.checks(false);
    let mut sums = Array::full(100_000, 1.0f32)?;
    group.all_reduce_in_place(&mut sums, Reduce::Sum)?;
    assert_eq!(sums.to_vec()?[7], group.size() as f32);
    let mut x = Array::<f32>::zeros(100_000 + group.rank())?;
    group.all_reduce_in_place(&mut x, Reduce::Sum)?;
    let error = x.to_vec().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{error}");
    // Later calls of the group also fail.
    let mut y = Array::<f32>::zeros(3)?;
    let late = group.all_reduce_in_place(&mut y, Reduce::Sum);
    assert!(late.and_then(|()| y.to_vec()).is_err());
    heard();
    Ok(())
}

fn letters() -> Result<()> {
    let group = Group::mpi()?;
    let (own, size) = (group.rank(), group.size());
    let (next, before) = ((own + 1) % size, (own + size - 1) % size);
    // A receive into an array of another length fails. The array is unchanged, and the message is
    // lost.
    for count in [3, 1_500_000] {
        group.send(&Array::full(count, 1.0f32)?, next)?;
        group.send(&Array::full(count, 2.0f32)?, next)?;
        let mut x = Array::full(count + 1, 7.0f32)?;
        let error = group.recv(&mut x, before).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        let mut x = Array::<f32>::zeros(count)?;
        group.recv(&mut x, before)?;
        assert!(x.to_vec()? == vec![2.0; count]);
    }
    // Rank 1 receives at once, although rank 0 sleeps after the send.
    if own == 0 {
        group.send(&Array::full(4_000_000, 3.0f32)?, 1)?;
        std::thread::sleep(Duration::from_millis(500));
    }
    if own == 1 {
        std::thread::sleep(Duration::from_millis(100));
        let began = Instant::now();
        let mut x = Array::<f32>::zeros(4_000_000)?;
        group.recv(&mut x, 0)?;
        assert_eq!(x.slice(cachescope::ndarray::s![-1])?.item()?, 3.0);
        assert!(began.elapsed() < Duration::from_millis(300), "it waited");
    }
    Ok(())
}

/// Checks that processes exit although some messages are never received.
fn never_received() -> Result<()> {
    let group = Group::mpi()?;
    if group.rank() == 1 {
        std::thread::sleep(Duration::from_millis(500));
        return Ok(());
    }
    for count in [3, 1_000_000] {
        group.send(&Array::full(count, 1.0f32)?, 1)?;
    }
    Ok(())
}

fn two_orders(checks: bool) -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let group = Group::mpi()?.checks(checks);
    let mut both = [group.split(0, 0)?, group.split(0, 0)?];
    if group.rank() == 1 {
        both.reverse();
    }
    let mut x = Array::full(100_000, 1.0f32)?;
    let outcome = both
        .iter()
        .try_for_each(|group| group.all_reduce_in_place(&mut x, Reduce::Sum));
    let error = outcome.and_then(|()| x.to_vec()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Communication);
    assert!(error.to_string().contains("one order"), "{error}");
    heard();
    Ok(())
}

/// Creates a deadlock of three ranks. No two of these ranks wait for each other.
fn a_circle() -> Result<()> {
    let group = Group::mpi()?;
    let own = group.rank();
    let pairs: Vec<Group> = (0..3)
        .map(|left_out| group.split(usize::from(own == left_out), 0))
        .collect::<Result<_>>()?;
    // Group `i` contains all ranks except rank `i`. Ranks 0, 1 and 2 begin with groups 2, 0 and 1.
    let order = [2, 0, 1][own];
    let outcome = pairs[order].barrier();
    let outcome = outcome.and_then(|()| pairs[(order + 2) % 3].barrier());
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Communication);
    assert!(error.to_string().contains("one order"), "{error}");
    heard();
    Ok(())
}

/// Runs `otherwise` on rank 2, which ends without an error.
fn leaves(checks: bool, otherwise: fn() -> Result<()>) -> Result<()> {
    leaves_for("it has ended", checks, &|_| otherwise())
}

/// Runs `otherwise` on rank 2. Checks that the other ranks' errors name rank 2 and `reason`.
fn leaves_for(reason: &str, checks: bool, otherwise: &dyn Fn(&Group) -> Result<()>) -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let group = Group::mpi()?.checks(checks);
    group.barrier()?;
    if group.rank() == 2 {
        return otherwise(&group);
    }
    let began = Instant::now();
    let mut x = Array::full(100_000, 1.0f32)?;
    let exchanged = group.all_reduce_in_place(&mut x, Reduce::Sum);
    let error = exchanged.and_then(|()| x.to_vec()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Communication);
    // The other remaining rank may be the source of this text.
    let text = error.to_string();
    let expected = format!("rank 2 no longer participates: {reason}");
    assert!(text.contains(&expected), "{text}");
    assert!(began.elapsed() < Duration::from_secs(5));
    heard();
    Ok(())
}

fn ends() -> Result<()> {
    Ok(())
}

fn fails() -> Result<()> {
    Array::<f32>::zeros(2)?.reshape(3).map(drop)
}

fn fails_with_a_reason() -> Result<()> {
    leaves_for("it failed: reshape: ", true, &|group| {
        group.run(|_| fails())
    })
}

/// Lets rank 2 fail four seconds before the other ranks' next call.
fn fails_long_before() -> Result<()> {
    let group = Group::mpi()?;
    group.barrier()?;
    if group.rank() == 2 {
        return group.run(|_| fails());
    }
    std::thread::sleep(Duration::from_secs(4));
    let error = group.barrier().unwrap_err().to_string();
    let expected = "rank 2 no longer participates: it failed: reshape: ";
    assert!(error.contains(expected), "{error}");
    heard();
    Ok(())
}

fn panics_with_a_reason() -> Result<()> {
    leaves_for("it panicked", false, &|group| group.run(|_| panics()))
}

fn panics() -> Result<()> {
    panic!("this rank panics");
}

/// Lets rank 2 abort, after which `mpirun` ends the other ranks.
fn dies() -> Result<()> {
    let group = Group::mpi()?;
    group.barrier()?;
    if group.rank() == 2 {
        std::process::abort();
    }
    let _ = group.barrier();
    std::thread::sleep(FOR_EVER);
    Ok(())
}

fn hangs() -> Result<()> {
    let group = Group::mpi()?.timeout(Duration::from_millis(200));
    if group.rank() == 1 {
        std::thread::sleep(FOR_EVER);
    }
    let text = group.barrier().unwrap_err().to_string();
    // The waiting ranks do not time out simultaneously. The rank that times out first reports the
    // cause to the other rank.
    assert!(
        text.contains("rank 1 has not made the matching call within 200ms"),
        "{text}"
    );
    heard();
    Ok(())
}

fn comes_late() -> Result<()> {
    let group = Group::mpi()?.timeout(Duration::from_millis(200));
    if group.rank() == 1 {
        std::thread::sleep(Duration::from_millis(900));
    }
    let text = group.barrier().unwrap_err().to_string();
    match group.rank() {
        1 => assert!(text.contains("no longer participates"), "{text}"),
        _ => assert!(
            text.contains("rank 1 has not made the matching call within 200ms"),
            "{text}"
        ),
    }
    heard();
    Ok(())
}

fn drops_a_group() -> Result<()> {
    let group = Group::mpi()?;
    let part = group.split(0, 0)?;
    part.barrier()?;
    if group.rank() == 0 {
        drop(part);
        std::thread::sleep(Duration::from_millis(700));
        return Ok(());
    }
    let error = part.barrier().unwrap_err().to_string();
    assert!(error.contains("rank 0"), "{error}");
    assert!(error.contains("it has dropped the group"), "{error}");
    heard();
    Ok(())
}

/// Checks a program that initialises and finalises MPI itself. After the program finalises MPI,
/// calls fail.
#[cfg(feature = "mpi")]
fn its_own_mpi() -> Result<()> {
    use mpi::traits::Communicator;

    let threading = mpi::Threading::Multiple;
    let (universe, _) = mpi::initialize_with_threading(threading).expect("it was not initialised");
    let group = Group::mpi()?;
    assert_eq!(group.rank() as i32, universe.world().rank());
    bodies::groups_divide(&group)?;
    group.barrier()?;
    drop(universe);
    let error = group.barrier().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Communication, "{error}");
    Ok(())
}
