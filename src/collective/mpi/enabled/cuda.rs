//! CUDA-awareness of the MPI library, as reported by a function that Open MPI and MPICH both have.

#[cfg(all(unix, feature = "cuda"))]
pub(super) fn knows_cuda() -> bool {
    use std::ffi::c_int;

    use libloading::os::unix::Library;

    let program = Library::this();
    // SAFETY: Open MPI and MPICH define a function of this name with this type. The function may be
    // called once MPI is initialised.
    unsafe {
        let query = program.get::<unsafe extern "C" fn() -> c_int>(b"MPIX_Query_cuda_support\0");
        query.is_ok_and(|query| query() == 1)
    }
}

#[cfg(not(all(unix, feature = "cuda")))]
pub(super) fn knows_cuda() -> bool {
    false
}
