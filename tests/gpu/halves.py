"""Half precision and TF32 on a GPU beside PyTorch: attention, and training steps. (BENCHMARKS: W10.)

    python3 tests/gpu/halves.py attention|w10|gpt2|compiled target/gpu/deps/w10 --out target/gpu/out

Rows are in order of their value. Each is stored in halves.json as soon as it is measured, and the tables in halves.md. A
later call measures only the rows that are missing, were measured at another revision of this library, or with another
PyTorch. Attention is checked against double precision before it is timed, and losses against PyTorch's.

The exit status is 1 if a row failed or does not agree, and 3 if rows were not measured, because PyTorch is missing or the
time was over. `--tiny` has a row of each kind, for a try without a GPU."""

import argparse
import importlib.metadata
import json
import os
import select
import subprocess
import sys
import time

from halves_tables import markdown

HERE = os.path.dirname(os.path.abspath(__file__))
# What a row takes at most. PyTorch compiles a network for up to a minute.
ROW_SECONDS, COMPILED_SECONDS = 60, 150
# A row is not begun in the last seconds.
LEAST_SECONDS = 5
# Parts of the largest element by which attention may differ from double precision; twice that for gradients.
TOLERANCES = {"f32": 2e-5, "f16": 2e-3, "bf16": 1e-2}
# Parts of a loss.
LOSS_TOLERANCE = 2e-2
# What is said after an error that the process does not survive.
BROKEN = ("CUDA error", "CUDA_ERROR", "unusable")
# What PyTorch says of a backend that it does not have for a shape or a device.
UNAVAILABLE = ("No viable backend", "No available kernel")

# Settings of the environment under each of which attention is also timed: the sizes of its tiles.
TILES = "CACHESCOPE_ATTENTION_TILES="
VARIANTS = os.environ.get("ATTENTION_VARIANTS", " ".join(TILES + sizes for sizes in (
    "forward:8x64,queries:8x32,keys:8x32", "forward:4x128,queries:4x32,keys:4x32", "forward:4x32,queries:2x64,keys:2x64",
    "forward:8x128,queries:8x64,keys:8x64", "forward:2x64,queries:2x32,keys:2x32"))).split()

LARGE = [("gpt", "gpt2"), ("gpt", "large"), ("cnn", "large"), ("gpt", "small"), ("gpt", "medium"), ("cnn", "medium")]
W10 = [*LARGE, ("cnn", "small")]
GPT2 = [("gpt2", size) for size in ("8", "64", "16")]
COMPILED = [GPT2[0], ("gpt", "gpt2"), GPT2[1], ("gpt", "small"), GPT2[2], ("gpt", "large"), ("cnn", "large")]


def shapes(tiny):
    """The shapes of attention to check, and the shapes to time."""
    if tiny:
        return ["bf16,64,40,causal"], ["bf16,64,64,causal", "f32,32,64,full"]
    masks, widths = ("causal", "full"), (128, 64, 256, 32)
    checks = [f"{numbers},{width},300,{mask}" for numbers in ("bf16", "f32", "f16") for width in widths for mask in masks]
    lengths = [("bf16", length) for length in (1024, 8192, 2048, 4096, 512)] + [("f32", 1024), ("f16", 2048), ("f32", 4096)]
    timed = [f"{numbers},{width},{length},{mask}" for numbers, length in lengths for mask in masks for width in widths]
    return checks, timed


def variant_rows(tiny):
    """The shapes at which the variants of attention's kernels are compared, each checked before it is timed."""
    checks, timed = shapes(tiny)
    is_compared = lambda shape: shape.startswith(("bf16,64,", "bf16,128,")) and shape.endswith(",causal")
    timed = [shape for shape in filter(is_compared, timed) if tiny or ",2048," in shape]
    if VARIANTS:
        yield from (("own", "attention", {"shape": shape}) for shape in timed)
    for variant in VARIANTS:
        for shape in filter(is_compared, checks):
            yield "own", "check", {"shape": shape, "variant": variant}
        yield from (("own", "attention", {"shape": shape, "variant": variant}) for shape in timed)


def layer_rows(tiny):
    """Layer norms and linear layers, as type, rows and width."""
    sizes = [(64, 64)] if tiny else [(16384, 768), (16384, 2048), (4096, 8192), (1024, 768)]
    for numbers in ("bf16",) if tiny else ("bf16", "f32"):
        for kind in ("layer_norm", "linear"):
            for rows, width in sizes:
                for who in ("own", "torch"):
                    yield who, "layer", {"layer": f"{kind},{numbers},{rows},{width}"}


def attention_rows(tiny):
    checks, timed = shapes(tiny)
    for shape in checks:
        yield "own", "check", {"shape": shape}
    yield from variant_rows(tiny)
    yield from layer_rows(tiny)
    for shape in timed:
        yield "own", "attention", {"shape": shape}
        for backend in ("default",) if shape.startswith("f32") else ("flash", "cudnn"):
            yield "torch", "attention", {"shape": shape, "backend": backend}


def trained(who, case, numbers, **more):
    return who, "train", {"network": case[0], "size": case[1], "numbers": numbers, **more}


def w10_rows(tiny):
    for case in [("gpt", "tiny"), ("cnn", "tiny")] if tiny else W10:
        yield from half_rows(case)
    for case in [("gpt", "tiny")] if tiny else W10:
        yield trained("own", case, "tf32", memory="recycle")
        yield trained("torch", case, "tf32", backend="default", compiled="")
        yield trained("own", case, "tf32", memory="graph")
    for case in [("gpt", "tiny")] if tiny else W10:
        yield trained("own", case, "bf16", memory="plan")


def half_rows(case):
    yield trained("own", case, "bf16", memory="recycle")
    for backend in ("default",) if case[0] == "cnn" else ("flash", "cudnn"):
        yield trained("torch", case, "bf16", backend=backend, compiled="")
    yield trained("own", case, "bf16", memory="graph")


def gpt2_rows(tiny):
    cases = [("gpt2", "tiny")] if tiny else GPT2
    for case in cases:
        yield from half_rows(case)
    for case in cases:
        yield trained("own", case, "bf16", memory="plan")


def compiled_rows(tiny):
    for case in [("gpt", "tiny")] if tiny else COMPILED:
        yield trained("torch", case, "bf16", backend="default", compiled="default")
    if not tiny:
        yield trained("torch", ("gpt", "small"), "bf16", backend="default", compiled="reduce-overhead")


PARTS = {"attention": attention_rows, "w10": w10_rows, "gpt2": gpt2_rows, "compiled": compiled_rows}


def key_of(who, kind, request):
    return " ".join([who, kind, *(str(value) for value in request.values() if value)])


class Failed(Exception):
    """A row that could not be measured."""


class Server:
    """A program that answers each line with a line of JSON."""

    def __init__(self, command, environment, log):
        self.command, self.environment, self.log = command, environment, log
        self.process = None

    def ask(self, line, seconds):
        if self.process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
            self.process, self.rest = subprocess.Popen(self.command, env=self.environment, **pipes), b""
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))
            piece = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not piece:
                raise Failed(self.end() if ready else f"stopped after {seconds:.0f} s: {self.end()}")
            self.rest += piece
        answer, self.rest = self.rest.split(b"\n", 1)
        try:
            return answered(answer)
        except Failed as error:
            if any(text in str(error) for text in BROKEN):
                self.end()
            raise

    def end(self):
        """Ends the program, and says how it ended."""
        process, self.process = self.process, None
        if process is None:
            return "it did not run"
        process.stdin.close()
        try:
            status = process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return f"the program ended with status {status}"


def answered(line):
    found = json.loads(line)
    if "error" in found:
        raise Failed(found["error"])
    return found


class Session:
    def __init__(self, options):
        self.options, self.problems, self.missing = options, [], []
        self.deadline, self.gpu = time.monotonic() + options.seconds, gpu()
        self.path = os.path.join(options.out, "halves.json")
        # Rows that failed are repeated last.
        self.stored = {"facts": {}, "rows": {}, "failed": {}}
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.stored |= json.load(file)
        self.rows, self.failed = self.stored["rows"], self.stored["failed"]
        self.log = open(os.path.join(options.out, "halves.log"), "a")
        own = dict(os.environ, **({"LD_LIBRARY_PATH": options.libraries} if options.libraries else {}))
        sizes = ["--tokens", "128", "--features", "128", "--round-ms", "1"] if options.tiny else []
        device = ["--device", options.device] if options.device else []
        self.sizes = {"tokens": 128, "features": 128, "round_ms": 1} if options.tiny else {
            "tokens": 16384, "features": 2048, "round_ms": 20}
        self.seconds = 0 if options.tiny else 1
        self.device, self.own_environment = device, own
        command = [options.program, "attention", *sizes, *device]
        of_variant = {variant: dict([variant.split("=", 1)]) for variant in VARIANTS}
        environments = {None: own, **{name: own | more for name, more in of_variant.items()}}
        self.attention = {name: Server(command, environment, self.log) for name, environment in environments.items()}
        environment = dict(os.environ, DEVICE=options.torch)
        self.torch = Server([sys.executable, os.path.join(HERE, "torch_halves.py")], environment, self.log)
        try:
            self.torch_version = importlib.metadata.version("torch") if options.torch != "none" else None
        except importlib.metadata.PackageNotFoundError:
            self.torch_version = None

    def left(self):
        return self.deadline - time.monotonic()

    def lacks(self, who, key):
        row = self.rows.get(key)
        if row is None:
            return True
        if who == "own":
            return row["revision"] != self.options.revision
        return self.torch_version is not None and row["torch"] != self.torch_version

    def can_add(self, who, kind, request):
        key = key_of(who, kind, request)
        return self.lacks(who, key) and not self.has_failed(key) and not self.needs_torch(who, kind)

    def needs_torch(self, who, kind):
        return self.torch_version is None and (who == "torch" or kind == "check")

    def has_failed(self, key):
        return self.failed.get(key, {}).get("revision") == self.options.revision

    def run(self, rows):
        rows = [(key_of(*row), *row) for row in rows]
        for key, who, kind, request in sorted(rows, key=lambda row: self.has_failed(row[0])):
            if not self.lacks(who, key):
                continue
            if self.needs_torch(who, kind):
                self.missing.append((key, "no PyTorch"))
                continue
            if self.left() < LEAST_SECONDS:
                self.missing.append((key, "the time was over"))
                continue
            try:
                row = self.measured(who, kind, request)
            except Failed as error:
                self.fail(key, str(error))
                continue
            self.failed.pop(key, None)
            row["revision"], row["torch"] = self.options.revision, self.torch_version
            self.rows[key] = {"who": who, "kind": kind, **request, **row}
            print(f"ok       {key}: {said(row)}", flush=True)
            self.agree(key)
            self.save()
        for server in (*self.attention.values(), self.torch):
            server.end()

    def fail(self, key, error):
        late, unavailable = self.left() < LEAST_SECONDS, any(text in error for text in UNAVAILABLE)
        print(f"{'NOT RUN ' if late or unavailable else 'FAILED  '} {key}: {error}", flush=True)
        if unavailable:
            error = "PyTorch has no such backend here"
        (self.missing if late or unavailable else self.problems).append((key, error))
        if not late:
            self.failed[key] = {"revision": self.options.revision, "error": error}
            self.save()

    def measured(self, who, kind, request):
        seconds = min(self.left(), COMPILED_SECONDS if request.get("compiled") else ROW_SECONDS)
        attention = self.attention[request.get("variant")]
        if kind == "check":
            ours = attention.ask(f"check {request['shape']}", seconds)
            return differences(ours, self.ask_torch(kind, request, seconds), request["shape"])
        if who == "torch":
            return self.ask_torch(kind, request, seconds)
        if kind == "attention":
            return attention.ask(f"time {request['shape']}", seconds)
        if kind == "layer":
            return attention.ask(f"layer {request['layer']}", seconds)
        return self.own_training(request, seconds)

    def ask_torch(self, kind, request, seconds):
        if self.torch.process is None:
            try:
                asked = self.torch.ask(json.dumps({"kind": "facts"}), seconds)
            except Failed:
                # It would fail at each of its rows.
                self.torch_version = None
                raise
            self.stored["facts"].update(asked)
        more = {"seconds": self.seconds} if kind == "train" else self.sizes
        return self.torch.ask(json.dumps({"kind": kind, **request, **more}), seconds)

    def own_training(self, request, seconds):
        command = [self.options.program, "train", request["network"], request["size"], *self.device]
        command += ["--seconds", str(self.seconds)]
        command += ["--numbers", request["numbers"], "--memory", request["memory"]]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            ended = subprocess.run(command, env=self.own_environment, text=True, timeout=seconds, **pipes)
        except subprocess.TimeoutExpired:
            raise Failed(f"stopped after {seconds:.0f} s") from None
        self.log.write(ended.stderr)
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise Failed(f"status {ended.returncode}: {last}")
        return answered(ended.stdout)

    def agree(self, key):
        """Compares a row's losses with the losses of PyTorch's first row of the case and type."""
        row = self.rows[key]
        if row["kind"] == "check" and not row["agrees"]:
            self.problem(key, f"differs from double precision: {row['differences']}")
        if row["kind"] != "train":
            return
        of = ("network", "size", "numbers")
        others = (own for own in self.rows.values() if own["kind"] == "train" and own["who"] != row["who"])
        other = next((own for own in others if all(own[name] == row[name] for name in of)), None)
        if other and any(not abs(a - b) <= LOSS_TOLERANCE * abs(b) for a, b in zip(row["losses"], other["losses"])):
            self.problem(key, f"losses {row['losses']} are not {other['losses']}")

    def problem(self, key, text):
        print(f"FAILED   {key}: {text}", flush=True)
        self.problems.append((key, text))

    def save(self):
        facts = self.stored["facts"]
        facts["revision"], facts["date"] = self.options.revision, time.strftime("%Y-%m-%d", time.gmtime())
        facts["gpu"] = self.gpu or facts.get("gpu", "no GPU")
        write(self.path, json.dumps(self.stored, indent=1))
        # Not those of another revision, which wait for their repetition.
        rows = [row for row in self.rows.values() if row["who"] == "torch" or row["revision"] == self.options.revision]
        write(os.path.join(self.options.out, "halves.md"), markdown(facts, rows))


def gpu():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip().split("\n")[0]
    except (OSError, subprocess.TimeoutExpired):
        return ""


def write(path, text):
    """Replaces a file as a whole, so that a stop leaves the old or the new one."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def differences(ours, theirs, shape):
    tolerance, found = TOLERANCES[shape.split(",")[0]], {}
    for name, values in theirs.items():
        scale = max(map(abs, values)) * tolerance * (1 if name == "result" else 2)
        worst = max(abs(own - value) / scale for own, value in zip(ours[name], values))
        found[name] = round(worst, 3) if worst == worst else "NaN"
    agrees = all(worst != "NaN" and worst <= 1 for worst in found.values())
    return {"differences": found, "agrees": agrees, "are_equal_bits": ours["are_equal_bits"]}


def said(row):
    names = ("step_ms", "forward_ms", "backward_ms", "peak_bytes", "differences")
    texts = (f"{name} {row[name]:.3f}" if isinstance(row[name], float) else f"{name} {row[name]}" for name in names if name in row)
    return ", ".join(texts)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("program", help="the binary of the benchmark w10")
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=220)
    parser.add_argument("--device", help="what the program runs on: cuda:0, or host to try the script")
    parser.add_argument("--libraries", help="LD_LIBRARY_PATH of the program; that of this script is PyTorch's")
    parser.add_argument("--torch", default="cuda", help="PyTorch's device: cuda, cpu or none")
    parser.add_argument("--revision", default="unknown")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--lacking", action="store_true", help="only print how many rows a call would add")
    return parser.parse_args()


def main():
    options = parse()
    os.makedirs(options.out, exist_ok=True)
    session, rows = Session(options), list(PARTS[options.part](options.tiny))
    if options.lacking:
        print(sum(session.can_add(*row) for row in rows))
        return 0
    before = len(session.rows)
    session.run(rows)
    session.save()
    print(f"ok       {options.part}: {len(session.rows) - before} rows more, {len(session.rows)} in all")
    reasons = {}
    for _, reason in session.missing:
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        print(f"NOT RUN  {options.part}: {count} of {len(rows)} rows: {reason}")
    return 1 if session.problems else 3 if session.missing else 0


if __name__ == "__main__":
    sys.exit(main())
