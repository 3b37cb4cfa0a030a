"""This library on a GPU beside CuPy, PyTorch and the driver itself. (BENCHMARKS: W7.)

    python3 tests/gpu/w7.py target/gpu/deps/w7 --digits examples/data/digits.csv.gz --out target/gpu/out

Results are checked before anything is timed. Then each contestant does one batch a round, in turn; this
library does its own in a program that waits for orders meanwhile. Figures are medians over the rounds, and
ratios are taken round by round. Writes w7.md and w7.json. The exit status is 1 if a result was wrong or a
task failed, whatever the figures, and 3 if a peer is missing.

PyTorch's allocator is called from C++, CuPy's from Python, which the tables say. Without CuPy or PyTorch
their columns are empty. `--peers numpy,torch-cpu` and a program on the host try the script without a GPU, and
`--self-check` its arithmetic.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import traceback

try:
    from peers import PEERS
except ImportError as missing:
    print(f"Without NumPy: {missing}.")
    sys.exit(3)
from tables import markdown, self_check

ROUNDS = 7
# Long enough that waiting for the device at the end is little of it.
BATCH_SECONDS = 20e-3


class Refused(Exception):
    """The program answered that it could not do what it was told."""


def with_nans(facts):
    """JSON has no NaN, and the program writes null; None could not be compared."""
    nan = float("nan")
    for key, value in facts.items():
        if isinstance(value, list):
            facts[key] = [nan if item is None else item for item in value]
    return {key: nan if value is None else value for key, value in facts.items()}


class Server:
    """This library's program, which does what it is told and answers how long it took."""

    def __init__(self, command, libraries):
        self.command = command
        self.environment = dict(os.environ, **({"LD_LIBRARY_PATH": libraries} if libraries else {}))
        self.start()

    def start(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(self.command, env=self.environment, text=True, **pipes)

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            self.start()
            raise Refused(f"the program ended with status {status} at: {' '.join(map(str, words))}")
        answer = json.loads(line, object_hook=with_nans)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer


class Late(Exception):
    """What is left to do would take longer than there is time."""


class Contestant:
    """A way to do a task: `run(n)` does it n times, and answers the seconds and the pieces of work."""

    def __init__(self, name, run, extra=dict):
        self.name, self.run, self.extra = name, run, extra
        self.times, self.nanos = 1, []

    def calibrate(self, rounds, left_seconds):
        """Finds how often makes a batch. `Late` where that and the rounds would take longer than is left: the first run
        is not cheaper than the others, so it tells before a large task begins."""
        began = time.monotonic()
        first, _ = self.run(1)
        self.expect(rounds * max(first, BATCH_SECONDS), left_seconds - (time.monotonic() - began))
        while (seconds := self.run(self.times)[0]) < BATCH_SECONDS:
            self.times *= 2
        self.expect(rounds * seconds, left_seconds - (time.monotonic() - began))

    def expect(self, seconds, left_seconds):
        if seconds > left_seconds:
            raise Late(f"its rounds take {seconds:.1f} s, and {max(left_seconds, 0):.1f} s are left")

    def round(self):
        seconds, pieces = self.run(self.times)
        self.nanos.append(seconds * 1e9 / pieces)


def own(server, name, size):
    """This library's contestant, or the driver's, which is timed in the same program."""
    last = {}

    def run(times):
        answer = server.ask("time", name, size, times)
        last.update(answer["extra"])
        return answer["nanos"] * 1e-9, answer["pieces"]

    return Contestant(name, run, lambda: last)


class Session:
    """What is compared, and what came of it."""

    def __init__(self, server, options):
        self.server, self.peers, self.options = server, [], options
        self.tasks, self.device = server.ask("tasks"), server.ask("device")
        self.rows, self.problems, self.notes, self.versions = [], [], [], []
        self.lacks_a_peer = False
        self.deadline = time.monotonic() + options.seconds

    def invite(self, name):
        try:
            peer = PEERS[name]()
            self.peers.append(peer)
            self.versions.append(peer.version)
            self.notes += peer.notes
        except ImportError as error:
            self.lacks_a_peer = True
            self.notes.append(f"Without {name}: {error}.")
            print(self.notes[-1], flush=True)
        except Exception as error:
            self.problem(f"{name} cannot be used: {type(error).__name__}: {error}")

    def sizes(self, name):
        return sorted(task["size"] for task in self.tasks if task["name"] == name)

    def problem(self, text):
        print(f"PROBLEM: {text}", flush=True)
        self.problems.append(text)

    def race(self, section, task, size, names, make_peer, check=None, are_alike=False):
        """One row: the program's tasks `names`, the first of which the others are held to, and the peers'; where
        those of the program `are_alike`, they are checked too."""
        label = f"{task} {size}" if size else task
        if time.monotonic() > self.deadline:
            self.problem(f"{label}: not timed, the time was over")
            return
        facts, racing = {}, []
        for name in names:
            try:
                facts[name] = self.server.ask("check", name, size)
                racing.append(own(self.server, name, size))
                if are_alike and names[0] in facts:
                    self.agree(label, name, check(facts[names[0]], facts[name]))
            except Refused as error:
                self.problem(f"{label}: {name}: {error}")
        for peer in self.peers:
            try:
                for name, (run, extra, result) in make_peer(peer, facts).items():
                    if check is not None and result is not None and names[0] in facts:
                        self.agree(label, name, check(facts[names[0]], result()))
                    racing.append(Contestant(name, run, extra))
            except Exception as error:
                self.problem(f"{label}: {peer.name}: {type(error).__name__}: {error}")
                if self.options.verbose:
                    traceback.print_exc()
        rounds = self.options.rounds
        calibrate = lambda contestant: contestant.calibrate(rounds, self.deadline - time.monotonic())
        racing = [contestant for contestant in racing if self.survives(label, contestant, calibrate)]
        for _ in range(rounds):
            racing = [contestant for contestant in racing if self.survives(label, contestant, Contestant.round)]
        if racing and racing[0].name == names[0]:
            self.keep(section, task, size, racing)
        for peer in list(self.peers):
            try:
                peer.give_back()
            except Exception as error:
                self.problem(f"{peer.name} is left out from here on: {type(error).__name__}: {error}")
                self.peers.remove(peer)
        try:
            self.server.ask("drop")
        except Refused as error:
            self.problem(f"{label}: {error}")

    def agree(self, label, name, why):
        if why:
            self.problem(f"{label}: {name} does not agree: {why}")

    def survives(self, label, contestant, what):
        try:
            what(contestant)
            return True
        except Late as late:
            self.problem(f"{label}: {contestant.name} is skipped: {late}")
            return False
        except Exception as error:
            self.problem(f"{label}: {contestant.name}: {type(error).__name__}: {error}")
            return False

    def keep(self, section, task, size, racing):
        first = racing[0].nanos
        row = {"section": section, "task": task, "size": size, "contestants": {}}
        for contestant in racing:
            row["contestants"][contestant.name] = {
                "nanos": statistics.median(contestant.nanos),
                "ratio": statistics.median(t / o for t, o in zip(contestant.nanos, first)),
                "rounds": contestant.nanos,
                "extra": dict(contestant.extra()),
            }
        self.rows.append(row)
        told = ", ".join(f"{name} {of['nanos']:.0f} ns ({of['ratio']:.2f} x)" for name, of in row["contestants"].items())
        print(f"{section} {task} {size}: {told}", flush=True)


def same_values(ours, theirs):
    """Why two results differ, or nothing: some of their elements, and the means of all."""
    if ours["count"] != theirs["count"]:
        return f"{ours['count']} elements, and {theirs['count']}"
    pairs = list(zip(ours["sample"], theirs["sample"])) + [(ours["mean"], theirs["mean"])]
    scale = max(abs(their) for _, their in pairs)
    for our, their in pairs:
        # So that a NaN is no agreement.
        if not abs(our - their) <= 1e-4 * scale:
            return f"{our} is not {their}"
    return None


def same_number(key, tolerance):
    def check(ours, theirs):
        # A NaN is close to nothing.
        close = abs(ours[key] - theirs[key]) <= tolerance * abs(theirs[key])
        return None if close else f"{key} {ours[key]} is not {theirs[key]}"

    return check


def the_hit(session):
    for size in session.sizes("hit"):
        names = [name for name in ("hit", "pool", "driver") if size in session.sizes(name)]
        session.race("W4", "hit", size, names, lambda peer, _: peer.pairs(size))
    for size in session.sizes("churn"):
        session.race("W4", "churn", size, ["churn"], lambda peer, facts: peer.churn(size, facts["churn"]))
    session.race("W4", "scope", 0, ["scope"], lambda peer, _: {})


def random_allocations(session):
    for size in session.sizes("random"):
        names = [name for name in ("random", "driver-random") if size in session.sizes(name)]
        session.race("W1", "random", size, names, lambda peer, facts: peer.random(facts["random"]))


def the_chain(session):
    for size in session.sizes("chain-pool"):
        names = sorted({task["name"] for task in session.tasks if task["name"].startswith("chain-")})
        names.sort(key=lambda name: name != "chain-pool")
        check = same_number("mean", 1e-2)
        session.race("W5", "chain", size, names, lambda peer, _: peer.chain(size), check, True)


def the_digits(session):
    # A loss is the sum of thousands of terms, in single precision, after steps that build on each other.
    check = same_number("total_loss", 2e-3)
    for size in session.sizes("digits-pool"):
        named = [task for task in session.tasks if task["name"].startswith("digits-") and task["size"] == size]
        names = sorted((task["name"] for task in named), key=lambda name: name != "digits-pool")

        def make_peer(peer, facts):
            # What others begin with is told where they can be compared.
            begins = facts[names[0]]
            return peer.digits(begins, session.options.digits) if "hidden" in begins else {}

        session.race("W5", "digits", size, names, make_peer, check, True)


def the_operations(session, sizes):
    named = [task["name"] for task in session.tasks if task["section"] == "W6" and task["name"] != "copy"]
    for size in sizes:
        for name in dict.fromkeys(named):
            if size in session.sizes(name):
                names = [name, "copy"] if size in session.sizes("copy") else [name]
                session.race("W6", name, size, names, lambda peer, _: peer.operation(name, size), same_values)


def described(session):
    facts = dict(session.device)
    version = facts.get("driver", 0)
    facts["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}" if version else "none"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.split()
        facts["driver"] += f", {told[0]}" if told else ""
    except (OSError, subprocess.TimeoutExpired):
        pass
    facts["peers"], facts["notes"] = session.versions, session.notes
    facts["revision"] = session.options.revision
    facts["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    facts["rounds"] = session.options.rounds
    return facts


def save(session):
    facts, folder = described(session), session.options.out
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "w7.json"), "w") as file:
        json.dump({"facts": facts, "rows": session.rows, "problems": session.problems}, file, indent=1)
    text = markdown(facts, session.rows, session.problems)
    with open(os.path.join(folder, "w7.md"), "w") as file:
        file.write(text)
    return text


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="the benchmark's binary")
    parser.add_argument("--digits", help="examples/data/digits.csv.gz")
    parser.add_argument("--out", default=".", help="the folder for w7.md and w7.json")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=450, help="start no task after this long")
    parser.add_argument("--most-elements", type=int, default=1 << 26, help="leave larger arrays out")
    parser.add_argument("--device", help="what the program runs on: cuda:0, or host to try the script")
    parser.add_argument("--peers", default="cupy,torch", help="cupy, torch, numpy, torch-cpu")
    parser.add_argument("--only", default="", help="sections to time: W4, W5, W6, W1")
    parser.add_argument("--libraries", help="LD_LIBRARY_PATH of the program; that of this script is its peers'")
    parser.add_argument("--revision", default="unknown")
    parser.add_argument("--verbose", action="store_true", help="tell where a peer failed")
    parser.add_argument("--self-check", action="store_true", help="only see that the tables add up")
    options = parser.parse_args()
    if not options.self_check and not (options.program and options.digits):
        parser.error("the program and --digits are wanted")
    return options


def check_late():
    """Whether what takes too long is skipped after its first run, and what does not is timed."""
    for seconds, left, runs in [(10.0, 60.0, 1), (0.5, 60.0, 2), (0.5, 0.0, 1)]:
        calls = []
        contestant = Contestant("slow", lambda times: (calls.append(times), (seconds * times, 1))[1])
        late = None
        try:
            contestant.calibrate(ROUNDS, left)
        except Late as why:
            late = why
        if len(calls) != runs or (late is None) != (runs == 2):
            print(f"{seconds} s, {left} s left: {len(calls)} runs, {late}")
            return 1
    return 0


def main():
    options = parse()
    if options.self_check:
        return self_check() or check_late()
    command = [options.program, "--serve", "--digits", options.digits]
    command += ["--most-elements", str(options.most_elements)]
    if options.device:
        command += ["--device", options.device]
    session = Session(Server(command, options.libraries), options)
    for name in filter(None, options.peers.split(",")):
        session.invite(name)
    wanted = [part for part in options.only.split(",") if part]
    text = save(session)
    large, small = [1 << 26, 1 << 22], [1 << 10, 1 << 16]
    # What matters most comes first.
    for section, part in [
        ("W4", the_hit),
        ("W5", the_digits),
        ("W6", lambda session: the_operations(session, large)),
        ("W1", random_allocations),
        ("W6", lambda session: the_operations(session, small)),
        ("W5", the_chain),
    ]:
        if not wanted or section in wanted:
            part(session)
            # Whoever ends this early has what there is so far.
            text = save(session)
    print(text)
    return 1 if session.problems else 3 if session.lacks_a_peer else 0


if __name__ == "__main__":
    sys.exit(main())
