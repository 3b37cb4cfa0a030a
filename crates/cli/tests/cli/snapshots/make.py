"""Makes the snapshots beside itself: the same recording of two devices, by each protocol of Python's pickle.

    python3 crates/cli/tests/cli/snapshots/make.py

The layout is that of `torch.cuda.memory._dump_snapshot`.
"""

import pathlib
import pickle

MIB = 1 << 20
FRAMES = [{"filename": "train.py", "line": 12, "name": "step"}, {"filename": "model.py", "line": 3, "name": "forward"}]


def entry(action, addr, size, time, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time, "frames": FRAMES}


def block(size, state, requested=None):
    return {"size": size, "requested_size": requested or size, "state": state, "frames": FRAMES}


def segment(device, address, size, blocks):
    return {
        "device": device, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
        "allocated_size": size, "active_size": size, "blocks": blocks, "frames": [],
    }


BASE, HIGH = 0x7F0000000000, 0x7F8000000000
FIRST = [
    entry("segment_alloc", BASE, 20 * MIB, 1),
    entry("alloc", BASE, 6 * MIB, 2),
    entry("alloc", BASE + 6 * MIB, 1000, 3),
    # From before the recording.
    entry("free_requested", HIGH, 2 * MIB, 4),
    entry("free_completed", HIGH, 2 * MIB, 5),
    entry("free_requested", BASE, 6 * MIB, 6, stream=7),
    # The address is of no use before the free is completed.
    entry("alloc", BASE + 8 * MIB, 12 * MIB, 7),
    entry("free_completed", BASE, 6 * MIB, 8, stream=7),
    entry("segment_alloc", BASE + 64 * MIB, 2 * MIB, 9),
    {"action": "oom", "device_free": 5, "addr": 0, "size": 1 << 40, "stream": 0, "time_us": 10, "frames": FRAMES},
    entry("alloc", BASE, 512, 11),
    entry("segment_free", BASE + 64 * MIB, 2 * MIB, 12),
    entry("snapshot", 0, 0, 13),
]
SECOND = [entry("alloc", BASE, 4096, 1), entry("free_requested", BASE, 4096, 2), entry("free_completed", BASE, 4096, 3)]
SNAPSHOT = {
    "segments": [
        segment(0, BASE, 20 * MIB, [
            block(512, "active_allocated"), block(6 * MIB - 512, "inactive"), block(2 * MIB, "active_allocated", 1000),
            block(12 * MIB, "active_allocated"),
        ]),
        segment(0, HIGH, 4 * MIB, [block(2 * MIB, "inactive"), block(2 * MIB, "active_pending_free", 2 * MIB - 7)]),
        segment(2, HIGH, 2 * MIB, [block(2 * MIB, "inactive")]),
    ],
    "device_traces": [FIRST, [], SECOND],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "garbage_collection_threshold": 0.0, "expandable_segments": False},
    "external_annotations": [],
}

folder = pathlib.Path(__file__).parent
for protocol in range(2, 6):
    (folder / f"protocol-{protocol}.pickle").write_bytes(pickle.dumps(SNAPSHOT, protocol))
