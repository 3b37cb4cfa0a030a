"""Records every allocation of a training program on the processor, as a memory snapshot of PyTorch's format.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python benches/peers/pytorch/record.py resnet50 gpt --folder runs
    cargo run --release -p cachescope-cli -- replay runs/resnet50.pickle --pool all --model all

No GPU is needed: the tensors live on the host. What is recorded is what PyTorch's own profiler tells of the allocator of the
host, each storage that is allocated or freed with its address, its size, its time and the Python lines that called for it,
from the making of the network on. So sizes and lifetimes are those of the CPU build's operations; those of CUDA take other
workspaces, and the host's allocator reserves nothing that could be recorded: a snapshot made here has no segments.

The profiler's running total is checked after every event, and so is every address. Options: --folder DIR, --steps N,
--threads N, and the names of networks.py's tasks.
"""

import argparse
import gc
import itertools
import pathlib
import pickle
import time

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

import networks

# The innermost lines of Python that an entry keeps.
FRAMES = 6
HERE = pathlib.Path(__file__).parent
TORCH = pathlib.Path(torch.__file__).parent


def train(task, steps):
    """Steps as everybody writes them; gradients are dropped before each."""
    optimizer, loss_of = task()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss_of(step).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    # All that lives to the end is alive while the profiler stops.
    return optimizer


def record(task, steps):
    """The events of the profiler's tree that are allocations of the host, in the order of time."""
    # What is still to be freed of a recording before this one is unknown here.
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as profiler:
        kept = train(task, steps)
    pending = list(profiler.profiler.kineto_results.experimental_event_tree())
    found = []
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.tag == _EventType.Allocation and event.extra_fields.device.type == "cpu":
            found.append(event)
    del kept
    return in_order(found)


def in_order(events):
    """By time, where each running total must follow from the one before."""
    events.sort(key=lambda event: event.start_time_ns)
    # A recording before this one leaves a total.
    total = events[0].extra_fields.total_allocated - events[0].extra_fields.alloc_size
    for event in events:
        total += event.extra_fields.alloc_size
        if total != event.extra_fields.total_allocated:
            raise SystemExit(f"the profiler's total does not follow from its events at {event.start_time_ns} ns")
    return events


def short(path):
    """A file's name without the place where it is installed."""
    path = pathlib.Path(path)
    if not path.is_absolute():
        return path.as_posix()
    for root, name in ((HERE, ""), (TORCH, "torch")):
        if path.is_relative_to(root):
            return (name / path.relative_to(root)).as_posix()
    return path.name


class Lines:
    """The Python lines that events were called from; one list for each place, which pickle then writes once."""

    def __init__(self):
        self.known = {}

    def of(self, event):
        places = []
        while event is not None and len(places) < FRAMES:
            if event.tag in (_EventType.PyCall, _EventType.PyCCall):
                caller = event.extra_fields.caller
                places.append((short(caller.file_name), caller.line_number, caller.function_name))
            event = event.parent
        return self.known.setdefault(tuple(places), [
            {"filename": filename, "line": line, "name": name} for filename, line, name in places
        ])


def entries_of(events):
    """The entries of a snapshot. A free is requested and completed at once, for the host has no streams."""
    lines, live, entries = Lines(), {}, []
    start = events[0].start_time_ns
    for event in events:
        address, size = event.extra_fields.ptr, event.extra_fields.alloc_size
        entry = {
            "addr": address, "size": abs(size), "stream": 0,
            "time_us": (event.start_time_ns - start) // 1000, "frames": lines.of(event),
        }
        if size > 0:
            assert address not in live, "an address that is alive was allocated"
            live[address] = size
            entries.append({"action": "alloc", **entry})
        else:
            assert live.pop(address) == -size, "a free of another size"
            entries.append({"action": "free_requested", **entry})
            entries.append({"action": "free_completed", **entry})
    return entries


def snapshot_of(entries):
    """As `torch.cuda.memory._snapshot` gives it, of one device, with no segment: none was recorded."""
    return {"segments": [], "device_traces": [entries], "external_annotations": [], "allocator_settings": {}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", choices=networks.TASKS, help=", ".join(networks.TASKS))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        torch.manual_seed(1)
        task, steps = networks.TASKS[name]
        begin = time.perf_counter()
        events = record(task, options.steps or steps)
        entries = entries_of(events)
        peak = max(itertools.accumulate(event.extra_fields.alloc_size for event in events))
        path = options.folder / f"{name}.pickle"
        path.write_bytes(pickle.dumps(snapshot_of(entries), 4))
        seconds = time.perf_counter() - begin
        print(f"{name}: {len(events)} events, at most {peak} bytes, {seconds:.0f} s, torch {torch.__version__}")


if __name__ == "__main__":
    main()
