//! Sums of `f32` over all ranks on one machine, with `MPI_Allreduce`, `Group::mpi` and
//! `Group::threads`.
//!
//! The arguments of `cargo bench --features mpi --bench collective -- 2 4` are the numbers of
//! ranks. The benchmark starts itself under `mpirun`. The processes of `mpirun` alternate between
//! `MPI_Allreduce` and `Group::mpi`, with the same memory and the same MPI settings. A time is
//! measured on the slowest rank, from a barrier until the array is readable. The table shows
//! medians. For the two variants with MPI, the table also shows the 10 % quantile (*fastest
//! tenth*). Other programs disturb short times least.

use std::ffi::c_int;
use std::process::Command;
use std::time::{Duration, Instant};

use cachescope::collective::{Group, Reduce};
use cachescope::{Array, Device, Result};
use mpi::ffi;

/// The environment variable that marks a process as a rank.
const RANK: &str = "CACHESCOPE_BENCH_RANK";

/// The prefix of a row of results in a rank's output.
const ROW: &str = "row";

fn main() -> Result<()> {
    if std::env::var_os(RANK).is_some() {
        return take_part();
    }
    let sizes: Vec<usize> = std::env::args()
        .filter_map(|own| own.parse().ok())
        .collect();
    let sizes = if sizes.is_empty() { vec![2, 4] } else { sizes };
    for size in sizes {
        let rows = under_mpi(size);
        let threads = on_threads(size)?;
        println!("\n{size} ranks");
        println!(
            "| bytes | MPI_Allreduce | Group::mpi | ratio | fastest tenth | ratio | Group::threads |"
        );
        println!("|---:|---:|---:|---:|---:|---:|---:|");
        for ((bytes, plain, own), threads) in rows.into_iter().zip(threads) {
            let [ratio, ratio_of_fastest] = [own[0] / plain[0], own[1] / plain[1]];
            println!(
                "| {bytes} | {:.1} us | {:.1} us | {ratio:.2} | {:.1}, {:.1} us | {ratio_of_fastest:.2} | {threads:.1} us |",
                plain[0], own[0], plain[1], own[1]
            );
        }
    }
    Ok(())
}

/// Returns the array lengths in bytes, from 1 KiB to 64 MiB.
fn lengths() -> impl Iterator<Item = usize> {
    (0..9).map(|step| 1024 << (2 * step))
}

/// Returns the number of measurements for an array length.
fn iterations(bytes: usize) -> usize {
    ((256 << 20) / bytes).clamp(15, 300)
}

/// Returns the median and the 10 % quantile, in microseconds.
fn quantiles(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort_unstable();
    [times.len() / 2, times.len() / 10].map(|place| times[place].as_secs_f64() * 1e6)
}

/// Starts `size` ranks with `mpirun`. Returns the rows of rank 0: the bytes, and the [`quantiles`]
/// of `MPI_Allreduce` and of `Group::mpi`.
fn under_mpi(size: usize) -> Vec<(usize, [f64; 2], [f64; 2])> {
    let own = std::env::current_exe().expect("the path of this program");
    let settings = [
        (RANK, "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ];
    let mut command = Command::new("mpirun");
    command.args(["-n", &size.to_string()]).arg(own);
    let output = command.envs(settings).output().expect("mpirun runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows = text.lines().filter_map(|line| line.strip_prefix(ROW));
    let rows = rows.map(|row| {
        let mut words = row.split_whitespace();
        let mut next = || words.next().expect("a row has five numbers");
        let bytes = next().parse().expect("a length");
        let mut time = || next().parse().expect("a time");
        (bytes, [time(), time()], [time(), time()])
    });
    rows.collect()
}

/// Runs a rank of MPI. The rank measures `MPI_Allreduce` and `Group::mpi`.
fn take_part() -> Result<()> {
    let group = Group::mpi()?.checks(false);
    let device = Device::current();
    for bytes in lengths() {
        let count = bytes / size_of::<f32>();
        let mut x = Array::<f32>::zeros(count)?;
        let (mut plain, mut own) = (Vec::new(), Vec::new());
        for iteration in 0..iterations(bytes) + 3 {
            let took = [
                slowest(|| sum_plainly(&mut x))?,
                slowest(|| {
                    group.all_reduce_in_place(&mut x, Reduce::Sum)?;
                    device.synchronize()
                })?,
            ];
            // The first three iterations are warm-up, because they reserve memory.
            if iteration >= 3 {
                plain.push(took[0]);
                own.push(took[1]);
            }
        }
        if group.rank() == 0 {
            let [plain, own] = [plain, own].map(quantiles);
            println!(
                "{ROW} {bytes} {} {} {} {}",
                plain[0], plain[1], own[0], own[1]
            );
        }
    }
    group.barrier()
}

/// Returns the time that `work` takes on the slowest rank.
fn slowest(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    // SAFETY: MPI is initialised.
    unsafe { ffi::MPI_Barrier(ffi::RSMPI_COMM_WORLD) };
    let began = Instant::now();
    work()?;
    let own = began.elapsed().as_secs_f64();
    let mut longest = 0.0_f64;
    // SAFETY: `own` and `longest` are local variables of one `f64` each.
    unsafe {
        ffi::MPI_Allreduce(
            (&raw const own).cast(),
            (&raw mut longest).cast(),
            1,
            ffi::RSMPI_DOUBLE,
            ffi::RSMPI_MAX,
            ffi::RSMPI_COMM_WORLD,
        )
    };
    Ok(Duration::from_secs_f64(longest))
}

/// Sums the array in place with a direct call of `MPI_Allreduce`.
fn sum_plainly(x: &mut Array<f32>) -> Result<()> {
    let memory = std::ptr::with_exposed_provenance_mut::<f32>(x.address() as usize);
    // SAFETY: the array is contiguous host memory with `x.len()` elements, and `x` is borrowed
    // exclusively. `in_place` returns the value of `MPI_IN_PLACE` in this MPI's header.
    unsafe {
        ffi::MPI_Allreduce(
            in_place(),
            memory.cast(),
            x.len() as c_int,
            ffi::RSMPI_FLOAT,
            ffi::RSMPI_SUM,
            ffi::RSMPI_COMM_WORLD,
        )
    };
    Ok(())
}

/// Returns `MPI_IN_PLACE`, a macro whose value differs between MPI libraries.
fn in_place() -> *const std::ffi::c_void {
    let is_open_mpi =
        mpi::environment::library_version().is_ok_and(|version| version.contains("Open MPI"));
    let address = if is_open_mpi { 1 } else { usize::MAX };
    std::ptr::without_provenance(address)
}

/// Returns the median times of `Group::threads`, in microseconds.
fn on_threads(size: usize) -> Result<Vec<f64>> {
    let ranks = Group::threads(size, |group| {
        let group = group.checks(false);
        let device = Device::current();
        let mut rows = Vec::new();
        for bytes in lengths() {
            let mut x = Array::<f32>::zeros(bytes / size_of::<f32>())?;
            let mut times = Vec::new();
            for _ in 0..iterations(bytes) {
                group.barrier()?;
                let began = Instant::now();
                group.all_reduce_in_place(&mut x, Reduce::Sum)?;
                device.synchronize()?;
                times.push(began.elapsed());
            }
            rows.push(quantiles(times)[0]);
        }
        Ok(rows)
    })?;
    let slowest = |row: usize| ranks.iter().map(|rows| rows[row]).fold(0.0, f64::max);
    Ok((0..lengths().count()).map(slowest).collect())
}
