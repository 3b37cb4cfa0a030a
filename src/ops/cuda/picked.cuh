// An axis that is indexed by what stands in an array.

struct Picked {
    /// Elements along the axis, and the step from one to the next.
    u64 length;
    u64 step;
    /// What is added to negative indices: the length, or nothing where they are out of range.
    u64 backwards;
    /// What an index that the axis has not is reported as, and where.
    u64 operation;
    unsigned long long* report;
};

/// Reports an index that is out of range, unless there is a report.
CS_FN void reported(u64 index, const Picked& axis) {
    if (atomicCAS(axis.report, 0ull, (unsigned long long)axis.operation) == 0) {
        axis.report[1] = (unsigned long long)index;
        axis.report[2] = (unsigned long long)axis.length;
    }
}

/// `index` from the axis's beginning; the length and a report where the axis has no such index.
CS_FN u64 counted(i64 index, const Picked& axis) {
    const u64 counted = (u64)index + (index < 0 ? axis.backwards : 0);
    if (counted < axis.length) {
        return counted;
    }
    reported((u64)index, axis);
    return axis.length;
}
