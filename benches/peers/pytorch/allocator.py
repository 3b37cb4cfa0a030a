"""Holds the models of `cachescope replay` to PyTorch's own allocator, which needs no GPU for it (allocator.cpp).

    python3 -m venv venv && venv/bin/pip install torch numpy 'nvidia-cuda-crt<14'
    cargo build --release -p cachescope-cli
    venv/bin/python benches/peers/pytorch/allocator.py target/release/cachescope runs/*.pickle --random 50

Each snapshot, and so many random programs, are run by both, without a limit and below limits around what is live at the
peak; the most that was reserved and the failures must be the same. torch must be a build for CUDA; a C++ compiler is found as
c++. Exits with 1 where anything differs.
"""

import argparse
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

import torch

MODELS = {"pytorch": "expandable_segments:False", "pytorch-expandable": "expandable_segments:True"}
HERE = pathlib.Path(__file__).parent
# Of what is live at the peak.
LIMITS = (0.7, 0.9, 1.0, 1.01, 1.02, 1.05, 1.1, 1.2)


def build(folder):
    """Compiles the program against the libraries that torch came with."""
    own = pathlib.Path(torch.__file__).parent
    toolkit = own.parent / "nvidia" / f"cu{torch.version.cuda.split('.')[0]}"
    program = folder / "allocator"
    libraries = [own / "lib", toolkit / "lib"]
    subprocess.run([
        "c++", "-std=c++20", "-O1", "-w", f"-I{own / 'include'}", f"-I{toolkit / 'include'}", HERE / "allocator.cpp",
        "-o", program, "-rdynamic", *(f"-L{path}" for path in libraries), "-lc10_cuda", "-lc10",
        *(f"-Wl,-rpath,{path}" for path in libraries), "-Wl,--allow-shlib-undefined",
    ], check=True)
    return program


def events_of(snapshot):
    """The events of the first device of a snapshot: slots, and sizes of allocations."""
    slots, count = {}, 0
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            slots[entry["addr"]] = count
            yield "a", count, entry["size"]
            count += 1
        elif entry["action"] == "free_completed":
            yield "f", slots.pop(entry["addr"]), 0


def random_events(seed):
    """Sizes of all the classes there are, and lifetimes from short to endless."""
    numbers = random.Random(seed)
    live, count = [], 0
    most = numbers.choice((10, 60, 300))
    sizes = [2 ** numbers.uniform(8, 26) for _ in range(numbers.choice((5, 40, 1000)))]
    for _ in range(3000):
        if numbers.randrange(most) >= len(live):
            size = numbers.choice(sizes) * numbers.choice((1, 1, 1, 0.5, numbers.random()))
            yield "a", count, max(1, int(size))
            live.append(count)
            count += 1
        else:
            yield "f", live.pop(numbers.randrange(len(live))), 0


def log_of(events):
    """As a log of RMM."""
    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    for action, slot, size in events:
        lines.append(f"1,0,{'allocate' if action == 'a' else 'free'},{slot + 1:#x},{size},0")
    return "\n".join(lines) + "\n"


def modelled(cachescope, trace, limit):
    """What the models say: the figures by name, and what is live at the peak."""
    command = [cachescope, "replay", trace, "--model", "all", "--json"]
    command += ["--memory-limit", str(limit)] if limit else []
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    figures = {row["name"]: (row["peak_reserved_bytes"], row["failures"]) for row in report["models"]}
    return figures, report["models"][0]["peak_live_bytes"]


def allocated(program, text, limit, config):
    """What PyTorch's allocator says."""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": config}
    command = [program, *([str(limit)] if limit else [])]
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True, env=environment)
    return tuple(int(number) for number in done.stdout.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cachescope", type=pathlib.Path)
    parser.add_argument("snapshots", nargs="*", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=0, metavar="N")
    options = parser.parse_args()
    programs = [(path.stem, list(events_of(pickle.loads(path.read_bytes())))) for path in options.snapshots]
    programs += [(f"random {seed}", list(random_events(seed))) for seed in range(options.random)]
    runs = differences = failures = 0
    with tempfile.TemporaryDirectory() as folder:
        program, trace = build(pathlib.Path(folder)), pathlib.Path(folder) / "log.csv"
        for name, events in programs:
            trace.write_text(log_of(events))
            text = "".join(f"{action} {slot} {size}\n" for action, slot, size in events)
            _, live = modelled(options.cachescope, trace, None)
            for limit in (None, *(int(live * share) for share in LIMITS)):
                figures, _ = modelled(options.cachescope, trace, limit)
                for model, config in MODELS.items():
                    own = allocated(program, text, limit, config)
                    runs, failures = runs + 1, failures + own[1]
                    if own != figures[model]:
                        differences += 1
                        print(f"{name}, limit {limit}, {model}: PyTorch {own}, the model {figures[model]}")
    print(f"torch {torch.__version__}: {runs} runs, {failures} failures below limits, {differences} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
