//! The stable codes of errors: a row for each class of mistakes.
//!
//! [`ErrorKind`] has few variants, because programs match on them. `docs/errors.md` describes one
//! cause and one remedy for each code, so codes are finer than kinds.

use super::ErrorKind;

/// Declares the codes, each with its kind and its text.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident = $text:literal;)+) => {
        /// A class of errors, finer than [`ErrorKind`], with a stable code.
        ///
        /// `docs/errors.md` has a heading for each code. A code keeps its meaning in all versions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ $name,)+
        }

        impl ErrorCode {
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$(Self::$name),+];

            pub(super) const fn kind(self) -> ErrorKind {
                match self {
                    $(Self::$name => ErrorKind::$kind,)+
                }
            }

            /// Returns the code as messages show it.
            pub(super) const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

codes! {
    /// An exhausted device, or an exhausted limit.
    DeviceMemory: OutOfMemory = "CS0101";
    /// A workspace for which the host has no memory.
    Workspace: OutOfMemory = "CS0102";
    /// A shape that an operation does not accept.
    Shape: InvalidShape = "CS0200";
    /// More than eight axes.
    Rank: InvalidShape = "CS0201";
    /// A size beyond the address space.
    Size: InvalidShape = "CS0202";
    /// A number of elements that does not match the shape.
    Count: InvalidShape = "CS0203";
    /// Operands whose shapes do not fit each other.
    Shapes: ShapeMismatch = "CS0300";
    /// Shapes that do not broadcast.
    Broadcast: ShapeMismatch = "CS0301";
    /// Matrices that do not multiply.
    Product: ShapeMismatch = "CS0302";
    /// Axes that the subscripts of an `einsum` do not describe.
    Labels: ShapeMismatch = "CS0303";
    /// A kernel whose channels or axes do not fit the input.
    Channels: ShapeMismatch = "CS0304";
    /// A weight or bias whose length differs from the normalized axis.
    Normalized: ShapeMismatch = "CS0305";
    /// Operands on different devices.
    Devices: DeviceMismatch = "CS0401";
    /// An argument outside of its range.
    Argument: InvalidArgument = "CS0500";
    /// An axis that the array does not have.
    Axis: InvalidArgument = "CS0501";
    /// An index or a bound outside of its axis.
    Index: InvalidArgument = "CS0502";
    /// A text that is not a valid name, size or device.
    Setting: InvalidArgument = "CS0503";
    /// A matrix without a result: singular, not positive definite, not finite, or not converging.
    Matrix: InvalidArgument = "CS0504";
    /// A loss that depends on no parameter.
    Unreached: InvalidArgument = "CS0505";
    /// A GPU that does not exist.
    NoDevice: InvalidArgument = "CS0506";
    /// Subscripts of an `einsum` that cannot be read.
    Subscripts: InvalidArgument = "CS0507";
    /// A window or kernel that is longer than its axis.
    Window: InvalidArgument = "CS0508";
    /// Matrices that are not square.
    Square: InvalidArgument = "CS0509";
    /// A budget that is too small for the values that must be saved.
    Budget: InvalidArgument = "CS0510";
    /// A call that the device or the build does not support.
    Support: Unsupported = "CS0600";
    /// A feature of the crate that is off.
    Feature: Unsupported = "CS0601";
    /// An operation without a gradient on a tracked array.
    Gradient: Unsupported = "CS0602";
    /// Work that a graph cannot capture.
    Capture: Unsupported = "CS0603";
    /// A call of the driver or a library that failed.
    Call: Driver = "CS0700";
    /// A driver or library that is missing or too old.
    Library: Driver = "CS0701";
    /// A file that cannot be opened, read or written.
    File: Io = "CS0800";
    /// A file whose content is damaged or of another format.
    Content: Io = "CS0801";
    /// A message that the receiving rank cannot use.
    Exchange: Communication = "CS0900";
    /// A rank that ended, failed or dropped the group.
    Gone: Communication = "CS0901";
    /// A rank that did not call in time.
    Late: Communication = "CS0902";
    /// Ranks that wait for each other in different calls.
    Deadlock: Communication = "CS0903";
    /// A thread that was not started, or ended early.
    Thread: Thread = "CS1000";
    /// A function that panicked.
    Panic: Panic = "CS1100";
}

impl From<ErrorKind> for ErrorCode {
    /// Returns the general class of a kind.
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::OutOfMemory => Self::Workspace,
            ErrorKind::InvalidShape => Self::Shape,
            ErrorKind::ShapeMismatch => Self::Shapes,
            ErrorKind::DeviceMismatch => Self::Devices,
            ErrorKind::InvalidArgument => Self::Argument,
            ErrorKind::Unsupported => Self::Support,
            ErrorKind::Driver => Self::Call,
            ErrorKind::Io => Self::File,
            ErrorKind::Communication => Self::Exchange,
            ErrorKind::Thread => Self::Thread,
            ErrorKind::Panic => Self::Panic,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::ErrorCode;

    #[test]
    fn codes_are_unique_and_in_order() {
        let texts: Vec<_> = ErrorCode::ALL.iter().map(|code| code.text()).collect();
        let sorted: BTreeSet<_> = texts.iter().copied().collect();
        assert_eq!(texts, sorted.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn the_general_code_of_a_kind_is_of_that_kind() {
        for code in ErrorCode::ALL {
            let general = ErrorCode::from(code.kind());
            assert_eq!(general.kind(), code.kind());
            assert_eq!(general.text()[..4], code.text()[..4], "{code:?}");
        }
    }

    /// Compares the codes with the headings of `docs/errors.md`. The published package does not
    /// contain this page, so the test compares nothing there.
    #[test]
    fn each_code_has_a_heading_in_the_page_of_errors() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
        let Ok(page) = std::fs::read_to_string(page) else {
            return;
        };
        let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
        let codes: Vec<_> = headings.filter_map(|line| line.split(':').next()).collect();
        let expected: Vec<_> = ErrorCode::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(codes, expected);
    }
}
