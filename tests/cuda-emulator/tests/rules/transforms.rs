//! Tests of cuFFT plans, which transform strided rows in stream order.

use std::f64::consts::TAU;
use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::cufft::sys::{self as cufft, cufftResult as Status, cufftType as Type};
use cudarc::driver::sys;

use crate::rules::device::{Code, Device, ok};

#[track_caller]
fn done(status: Status) {
    assert_eq!(status, Status::CUFFT_SUCCESS);
}

/// The layout of an array: the stride of its elements, and the distance between rows, in elements.
type Places = [i64; 2];

/// A plan without automatic allocation, with the size of its work area.
#[derive(Clone, Copy)]
struct Plan {
    handle: i32,
    work_bytes: usize,
}

impl Plan {
    /// Creates a plan, and waits for its tables.
    fn new(
        kind: Type,
        lengths: &[i64],
        from: Places,
        to: Places,
        count: i64,
    ) -> Result<Self, Status> {
        let plan = Self::without_wait(kind, lengths, from, to, count)?;
        // SAFETY: the null handle is the legacy default stream.
        ok(unsafe { sys::cuStreamSynchronize(null_mut()) });
        Ok(plan)
    }

    fn without_wait(
        kind: Type,
        lengths: &[i64],
        from: Places,
        to: Places,
        count: i64,
    ) -> Result<Self, Status> {
        let mut handle = 0;
        // SAFETY: `handle` is writable, and the emulator checks handles.
        unsafe {
            done(cufft::cufftCreate(&raw mut handle));
            done(cufft::cufftSetAutoAllocation(handle, 0));
        }
        let half = |is_half: bool| -> Vec<i64> {
            let mut lengths = lengths.to_vec();
            if let Some(last) = lengths.last_mut().filter(|_| is_half) {
                *last = *last / 2 + 1;
            }
            lengths
        };
        let mut n = lengths.to_vec();
        let mut from_rows = half(matches!(kind, Type::CUFFT_C2R | Type::CUFFT_Z2D));
        let mut to_rows = half(matches!(kind, Type::CUFFT_R2C | Type::CUFFT_D2Z));
        let mut work_bytes = 0;
        // SAFETY: all arrays have `lengths.len()` elements, which is the rank.
        let made = unsafe {
            cufft::cufftMakePlanMany64(
                handle,
                lengths.len() as i32,
                n.as_mut_ptr(),
                from_rows.as_mut_ptr(),
                from[0],
                from[1],
                to_rows.as_mut_ptr(),
                to[0],
                to[1],
                kind,
                count,
                &raw mut work_bytes,
            )
        };
        match made {
            Status::CUFFT_SUCCESS => Ok(Self { handle, work_bytes }),
            status => Err(status),
        }
    }

    /// Enqueues a double-precision transform, with a new work area.
    fn run(
        self,
        device: &Device,
        stream: sys::CUstream,
        kind: Type,
        [from, to]: [u64; 2],
        direction: i32,
    ) -> Status {
        // SAFETY: the emulator checks handles and addresses.
        unsafe {
            done(cufft::cufftSetStream(self.handle, stream.cast()));
            if self.work_bytes > 0 {
                let area = device.memory(self.work_bytes);
                done(cufft::cufftSetWorkArea(self.handle, area as *mut c_void));
            }
            match kind {
                Type::CUFFT_Z2Z => cufft::cufftExecZ2Z(self.handle, from as _, to as _, direction),
                Type::CUFFT_D2Z => cufft::cufftExecD2Z(self.handle, from as _, to as _),
                Type::CUFFT_Z2D => cufft::cufftExecZ2D(self.handle, from as _, to as _),
                _ => unreachable!("of doubles"),
            }
        }
    }

    fn destroy(self) {
        // SAFETY: the handle is the handle of a plan.
        done(unsafe { cufft::cufftDestroy(self.handle) });
    }
}

/// Creates a plan for rows of `length` elements, and destroys it.
pub(super) fn make_plan(length: i64) -> Result<(), Status> {
    Plan::new(Type::CUFFT_Z2Z, &[length], [1, length], [1, length], 1).map(Plan::destroy)
}

fn upload(device: &Device, numbers: &[f64], stream: sys::CUstream) -> u64 {
    let address = device.memory(size_of_val(numbers));
    let bytes = size_of_val(numbers);
    // SAFETY: `numbers` and the memory at `address` have `bytes` bytes each.
    ok(unsafe { sys::cuMemcpyHtoDAsync_v2(address, numbers.as_ptr().cast(), bytes, stream) });
    address
}

fn download(device: &Device, address: u64, count: usize, stream: sys::CUstream) -> Vec<f64> {
    let words = device.words(address, 2 * count, stream);
    let join = |pair: &[u32]| f64::from_bits(u64::from(pair[0]) | u64::from(pair[1]) << 32);
    words.chunks(2).map(join).collect()
}

/// Returns irregular numbers.
fn numbers(count: usize) -> Vec<f64> {
    (0..count)
        .map(|at| ((at * at * 7 + at * 3) % 23) as f64 - 11.0)
        .collect()
}

/// Computes the transform by its definition. A complex number is an array of two reals.
fn sums(row: &[[f64; 2]], sign: f64) -> Vec<[f64; 2]> {
    let n = row.len();
    let term = |k: usize, at: usize| {
        let angle = sign * TAU * (k * at % n) as f64 / n as f64;
        let ([re, im], (sin, cos)) = (row[at], angle.sin_cos());
        [re * cos - im * sin, re * sin + im * cos]
    };
    let sum = |k: usize| {
        (0..n)
            .map(|at| term(k, at))
            .fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d])
    };
    (0..n).map(sum).collect()
}

#[track_caller]
fn assert_close(got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() < 1e-8, "{got} instead of {wanted}");
    }
}

#[test]
fn complex_rows_at_any_places_are_transformed() {
    let device = Device::new();
    let stream = device.stream();
    for n in [1_usize, 2, 6, 16, 30, 53, 106] {
        for (from, to) in [([1, 0], [1, 0]), ([3, 1], [1, 0]), ([2, 0], [3, 1])] {
            // A distance of 0 means that the rows are contiguous.
            let places = |[stride, distance]: Places| {
                let all = stride * n as i64;
                [stride, if distance == 0 { all } else { distance }]
            };
            let (from, to, count) = (places(from), places(to), 3);
            let given = numbers(2 * 9 * n);
            let place = |[stride, distance]: Places, number: usize, at: usize| {
                (number as i64 * distance + at as i64 * stride) as usize
            };
            for direction in [-1, 1] {
                let plan = Plan::new(Type::CUFFT_Z2Z, &[n as i64], from, to, count as i64).unwrap();
                let (source, target) = (
                    upload(&device, &given, stream),
                    upload(&device, &given, stream),
                );
                done(plan.run(
                    &device,
                    stream,
                    Type::CUFFT_Z2Z,
                    [source, target],
                    direction,
                ));
                let mut wanted = given.clone();
                for number in 0..count {
                    let row: Vec<[f64; 2]> = (0..n)
                        .map(|at| place(from, number, at))
                        .map(|place| [given[2 * place], given[2 * place + 1]])
                        .collect();
                    for (k, sum) in sums(&row, f64::from(direction)).into_iter().enumerate() {
                        let place = place(to, number, k);
                        wanted[2 * place..2 * place + 2].copy_from_slice(&sum);
                    }
                }
                assert_close(&download(&device, target, given.len(), stream), &wanted);
                plan.destroy();
            }
        }
    }
}

#[test]
fn matrices_are_transformed_along_both_axes() {
    let device = Device::new();
    let stream = device.stream();
    let (rows, columns) = (3_usize, 4_usize);
    let given = numbers(2 * rows * columns);
    let plan = Plan::new(Type::CUFFT_Z2Z, &[3, 4], [1, 12], [1, 12], 1).unwrap();
    let matrix = upload(&device, &given, stream);
    done(plan.run(&device, stream, Type::CUFFT_Z2Z, [matrix; 2], -1));
    let pairs: Vec<[f64; 2]> = given.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    let along: Vec<Vec<[f64; 2]>> = pairs.chunks(columns).map(|row| sums(row, -1.0)).collect();
    let mut wanted = vec![0.0; given.len()];
    for column in 0..columns {
        let one: Vec<[f64; 2]> = along.iter().map(|row| row[column]).collect();
        for (row, sum) in sums(&one, -1.0).into_iter().enumerate() {
            let place = 2 * (row * columns + column);
            wanted[place..place + 2].copy_from_slice(&sum);
        }
    }
    assert_close(&download(&device, matrix, given.len(), stream), &wanted);
}

#[test]
fn inverse_transforms_restore_real_rows_and_overwrite_spectra() {
    let device = Device::new();
    let stream = device.stream();
    for n in [1_usize, 2, 9, 10, 59] {
        let (width, count) = (n / 2 + 1, 2);
        let (n_places, half_places) = ([1, n as i64], [1, width as i64]);
        let given = numbers(n * count);
        let rows = upload(&device, &given, stream);
        let spectra = upload(&device, &numbers(2 * width * count), stream);
        let plan = Plan::new(
            Type::CUFFT_D2Z,
            &[n as i64],
            n_places,
            half_places,
            count as i64,
        )
        .unwrap();
        done(plan.run(&device, stream, Type::CUFFT_D2Z, [rows, spectra], -1));
        let got = download(&device, spectra, 2 * width * count, stream);
        for (got, row) in got.chunks(2 * width).zip(given.chunks(n)) {
            let row: Vec<[f64; 2]> = row.iter().map(|&value| [value, 0.0]).collect();
            assert_close(got, &sums(&row, -1.0)[..width].concat());
        }
        let plan = Plan::new(
            Type::CUFFT_Z2D,
            &[n as i64],
            half_places,
            n_places,
            count as i64,
        )
        .unwrap();
        done(plan.run(&device, stream, Type::CUFFT_Z2D, [spectra, rows], 1));
        let wanted: Vec<f64> = given.iter().map(|value| value * n as f64).collect();
        assert_close(&download(&device, rows, n * count, stream), &wanted);
        let left = download(&device, spectra, 2 * width * count, stream);
        assert!(left.iter().all(|value| value.is_nan()));
    }
}

#[test]
fn a_plan_serves_several_streams_each_with_its_work_area() {
    let device = Device::new();
    let streams = [device.stream(), device.stream()];
    let plan = Plan::new(Type::CUFFT_Z2Z, &[16], [1, 16], [1, 16], 1).unwrap();
    let given = numbers(32);
    let rows = streams.map(|stream| upload(&device, &given, stream));
    let before = device.control.report().pending;
    for (stream, row) in streams.into_iter().zip(rows) {
        done(plan.run(&device, stream, Type::CUFFT_Z2Z, [row; 2], -1));
    }
    assert_eq!(
        device.control.report().pending,
        before + 2,
        "nothing has run"
    );
    let pairs: Vec<[f64; 2]> = given.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    for (stream, row) in streams.into_iter().zip(rows) {
        assert_close(
            &download(&device, row, 32, stream),
            &sums(&pairs, -1.0).concat(),
        );
    }
    plan.destroy();
}

#[test]
fn pending_work_of_a_destroyed_plan_is_an_error() {
    let device = Device::new();
    let stream = device.stream();
    let plan = Plan::new(Type::CUFFT_Z2Z, &[16], [1, 16], [1, 16], 1).unwrap();
    let row = upload(&device, &numbers(32), stream);
    done(plan.run(&device, stream, Type::CUFFT_Z2Z, [row; 2], -1));
    plan.destroy();
    assert_eq!(device.synchronize(stream), Code::CUDA_ERROR_ILLEGAL_ADDRESS);
    device.control.forgive(1);
}

#[test]
fn a_transform_before_the_tables_are_filled_is_an_error() {
    let device = Device::new();
    let stream = device.stream();
    let plan = Plan::without_wait(Type::CUFFT_Z2Z, &[16], [1, 16], [1, 16], 1).unwrap();
    let row = upload(&device, &numbers(32), stream);
    done(plan.run(&device, stream, Type::CUFFT_Z2Z, [row; 2], -1));
    assert_eq!(device.synchronize(stream), Code::CUDA_ERROR_ILLEGAL_ADDRESS);
    plan.destroy();
    device.control.forgive(1);
}

#[test]
fn the_destruction_of_a_plan_with_a_destroyed_stream_is_misuse() {
    let device = Device::new();
    let before = device.control.complaints();
    for is_reset in [true, false] {
        let stream = device.stream();
        let plan = Plan::new(Type::CUFFT_Z2Z, &[16], [1, 16], [1, 16], 1).unwrap();
        // SAFETY: the handles are from the emulator.
        unsafe {
            done(cufft::cufftSetStream(plan.handle, stream.cast()));
            ok(sys::cuStreamDestroy_v2(stream));
            if is_reset {
                done(cufft::cufftSetStream(plan.handle, null_mut()));
            }
        }
        plan.destroy();
        assert_eq!(device.control.complaints(), before + u64::from(!is_reset));
    }
    device.control.forgive(1);
}

#[test]
fn misuse_has_a_status() {
    let device = Device::new();
    let stream = device.stream();
    let kind = Type::CUFFT_Z2Z;
    let refused =
        |lengths: &[i64], from, to, count| Plan::new(kind, lengths, from, to, count).err();
    let value = Some(Status::CUFFT_INVALID_VALUE);
    assert_eq!(
        refused(&[0], [1, 1], [1, 1], 1),
        Some(Status::CUFFT_INVALID_SIZE)
    );
    assert_eq!(
        refused(&[4], [1, 4], [1, 4], 0),
        Some(Status::CUFFT_INVALID_SIZE)
    );
    assert_eq!(refused(&[4], [0, 4], [1, 4], 1), value);
    assert_eq!(
        refused(&[4], [1, 4], [1, 3], 2),
        value,
        "rows that share numbers"
    );
    assert_eq!(
        refused(&[2, 2, 2], [1, 8], [1, 8], 1),
        Some(Status::CUFFT_NOT_SUPPORTED)
    );
    let plan = Plan::new(kind, &[16], [1, 16], [2, 32], 1).unwrap();
    let (row, long) = (device.memory(256), device.memory(512));
    let run = |from, to, direction| plan.run(&device, stream, kind, [from, to], direction);
    assert_eq!(run(row, long, 0), Status::CUFFT_INVALID_VALUE);
    assert_eq!(run(row, 0, 1), Status::CUFFT_INVALID_VALUE);
    assert_eq!(run(row, long + 8, 1), Status::CUFFT_UNALIGNED_DATA);
    assert_eq!(
        run(long, long, 1),
        Status::CUFFT_INVALID_VALUE,
        "places that differ"
    );
    assert_eq!(
        run(row, device.memory(16), 1),
        Status::CUFFT_EXEC_FAILED,
        "too short"
    );
    assert_eq!(
        plan.run(&device, stream, Type::CUFFT_D2Z, [row, long], 1),
        Status::CUFFT_INVALID_TYPE
    );
    // SAFETY: the emulator checks handles and addresses.
    unsafe {
        done(cufft::cufftSetWorkArea(plan.handle, row as *mut c_void));
        let aliased = cufft::cufftExecZ2Z(plan.handle, row as _, long as _, 1);
        assert_eq!(aliased, Status::CUFFT_INVALID_VALUE);
        done(cufft::cufftSetWorkArea(plan.handle, null_mut()));
        let without = cufft::cufftExecZ2Z(plan.handle, row as _, long as _, 1);
        assert_eq!(without, Status::CUFFT_NO_WORKSPACE);
        plan.destroy();
        assert_eq!(cufft::cufftDestroy(plan.handle), Status::CUFFT_INVALID_PLAN);
        let mut handle = 0;
        done(cufft::cufftCreate(&raw mut handle));
        let unmade = cufft::cufftExecZ2Z(handle, row as _, long as _, 1);
        assert_eq!(unmade, Status::CUFFT_INVALID_PLAN);
    }
}

#[test]
fn a_graph_runs_a_plan_as_long_as_that_lives() {
    let device = Device::new();
    let stream = device.stream();
    let plan = Plan::new(Type::CUFFT_Z2Z, &[16], [1, 16], [1, 16], 1).unwrap();
    let given = numbers(32);
    let (from, to) = (upload(&device, &given, stream), device.memory(512));
    ok(device.synchronize(stream));
    let (mut graph, mut executable) = (null_mut(), null_mut());
    let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the handles are from the emulator, and all pointers refer to local variables.
    unsafe {
        ok(sys::cuStreamBeginCapture_v2(stream, relaxed));
        done(plan.run(&device, stream, Type::CUFFT_Z2Z, [from, to], -1));
        ok(sys::cuStreamEndCapture(stream, &raw mut graph));
        ok(sys::cuGraphInstantiateWithFlags(
            &raw mut executable,
            graph,
            0,
        ));
        ok(sys::cuGraphLaunch(executable, stream));
    }
    let pairs: Vec<[f64; 2]> = given.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    assert_close(
        &download(&device, to, 32, stream),
        &sums(&pairs, -1.0).concat(),
    );
    plan.destroy();
    // SAFETY: the handles are from the emulator.
    ok(unsafe { sys::cuGraphLaunch(executable, stream) });
    assert_eq!(device.synchronize(stream), Code::CUDA_ERROR_ILLEGAL_ADDRESS);
    device.control.forgive(1);
}
