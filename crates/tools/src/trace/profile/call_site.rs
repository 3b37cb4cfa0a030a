//! Selects the line of an allocation from its backtrace.

use cachescope_reports::{CallSite, Frame};

/// The file name that this library's snapshots contain for an unknown line.
const UNKNOWN: &str = "<unknown>";

/// The prefixes of functions that record a backtrace or allocate for a caller. These functions are
/// the innermost frames of each allocation of PyTorch.
const ALLOCATORS: [&str; 6] = [
    "torch::unwind::",
    "torch::CapturedTraceback::",
    "torch::cuda::(anonymous namespace)::gather",
    "c10::",
    "at::detail::",
    "at::empty",
];

/// Returns the line of an allocation. `frames` is its backtrace, from the innermost frame outwards.
///
/// The result is the innermost line in a file that matches `own_code`. If no file matches, the
/// result is the innermost line. If no frame has a line, the result is the innermost function that
/// is not in [`ALLOCATORS`]. If the backtrace is a single frame with a file, the result is this
/// file, even without a line number. The file may be the name of a buffer.
pub(super) fn call_site_of(frames: &[Frame], own_code: Option<&str>) -> Option<CallSite> {
    if let [Frame { file, line, .. }] = frames
        && !file.is_empty()
    {
        return (file != UNKNOWN).then(|| call_site(file, *line));
    }
    let has_line = |frame: &&Frame| !frame.file.is_empty() && frame.line > 0;
    let is_own = |frame: &&Frame| own_code.is_some_and(|own| matches(own, &frame.file));
    let mut lines = frames.iter().filter(has_line);
    let own = lines.clone().find(is_own).or_else(|| lines.next());
    own.map(|frame| call_site(&frame.file, frame.line))
        .or_else(|| function_of(frames))
}

fn function_of(frames: &[Frame]) -> Option<CallSite> {
    let allocates = |function: &str| ALLOCATORS.iter().any(|known| function.starts_with(known));
    let mut functions = frames.iter().map(|frame| &*frame.function);
    let function = functions.find(|function| !function.is_empty() && !allocates(function));
    function.map(|function| call_site(function, 0))
}

fn call_site(file: &str, line: u32) -> CallSite {
    CallSite {
        file: file.to_owned(),
        line,
        column: 0,
    }
}

/// Returns whether a substring of `path` matches `pattern`, in which `*` matches any text.
fn matches(pattern: &str, path: &str) -> bool {
    let mut rest = path;
    pattern.split('*').all(|part| {
        let after = rest.split_once(part).map(|(_, after)| after);
        rest = after.unwrap_or_default();
        after.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> Frame {
        Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
        }
    }

    fn chosen(frames: &[Frame], own_code: Option<&str>) -> Option<(String, u32)> {
        call_site_of(frames, own_code).map(|site| (site.file, site.line))
    }

    #[test]
    fn takes_the_first_frame_with_a_file_and_a_line() {
        let frames = [
            frame("torch::unwind::unwind()", "", 0),
            frame("gather_with_cpp", "memory_snapshot.cpp", 0),
            frame("forward", "/site-packages/torch/nn/linear.py", 125),
            frame("forward", "/home/user/train/model.py", 44),
            frame("main", "/home/user/train/train.py", 88),
        ];
        let own = |pattern| chosen(&frames, Some(pattern)).unwrap();
        assert_eq!(
            chosen(&frames, None).unwrap(),
            ("/site-packages/torch/nn/linear.py".into(), 125)
        );
        let model = || ("/home/user/train/model.py".into(), 44);
        assert_eq!(own("/train/"), model());
        assert_eq!(own("user/*/m*.py"), model());
        assert_eq!(own("train.py").1, 88);
        assert_eq!(own("nowhere").1, 125, "no frame is in such a file");
        assert_eq!(own("model*train").1, 125, "parts match in order");
    }

    #[test]
    fn takes_a_function_where_no_frame_has_a_line() {
        let frames = [
            frame("torch::CapturedTraceback::gather(bool)", "", 0),
            frame("c10::cuda::malloc", "", 0),
            frame("at::empty_strided_cuda", "", 0),
            frame("MmBackward0::apply", "", 0),
            frame("start_thread", "", 0),
        ];
        assert_eq!(
            chosen(&frames, None).unwrap(),
            ("MmBackward0::apply".into(), 0)
        );
        assert_eq!(chosen(&frames[..3], None), None);
        assert_eq!(chosen(&[frame("step", UNKNOWN, 0)], None), None);
        assert_eq!(
            chosen(&[frame("<uncached>", "weights", 0)], None).unwrap(),
            ("weights".into(), 0)
        );
        assert_eq!(chosen(&[], None), None);
    }
}
