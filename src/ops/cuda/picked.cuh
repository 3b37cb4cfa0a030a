// An axis that is indexed by the elements of an array.

struct Picked {
    /// The number of elements along the axis, and the stride of the axis.
    u64 length;
    u64 step;
    /// The offset of negative indices: the length, or 0 if negative indices are out of range.
    u64 backwards;
    /// The operation that a report names, and the address of the report.
    u64 operation;
    unsigned long long* report;
};

/// Reports an index that is out of range, unless there already is a report.
CS_FN void reported(u64 index, const Picked& axis) {
    if (atomicCAS(axis.report, 0ull, (unsigned long long)axis.operation) == 0) {
        axis.report[1] = (unsigned long long)index;
        axis.report[2] = (unsigned long long)axis.length;
    }
}

/// Returns `index` counted from the start of the axis. If the index is out of range, reports it and
/// returns the length.
CS_FN u64 counted(i64 index, const Picked& axis) {
    const u64 counted = (u64)index + (index < 0 ? axis.backwards : 0);
    if (counted < axis.length) {
        return counted;
    }
    reported((u64)index, axis);
    return axis.length;
}
