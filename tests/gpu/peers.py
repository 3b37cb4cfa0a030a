"""Those whom the benchmark compares with. Each answers, for a task, a dictionary of contestants:
name -> (run, extra, result), where `run(n)` does it n times and answers the seconds and the pieces of work,
`extra()` are figures beside the time, and `result()` is what the other's results are held to, or None."""

import gzip
import time

import numpy

LEARNING_RATE = 0.1
MOMENTUM = 0.9
CLASSES = 10


def elements(xp, which, count):
    """The numbers that the program makes for its `which`-th operand."""
    hashed = xp.arange(count, dtype=xp.uint32) * xp.uint32(2_654_435_761)
    hashed += xp.uint32(which * 1_013_904_223 % 2**32)
    return (hashed >> xp.uint32(8)).astype(xp.float32) * xp.float32(2**-22) - xp.float32(1)


def read_digits(path):
    with gzip.open(path) as file:
        table = numpy.loadtxt(file, delimiter=",", dtype=numpy.int64)
    return (table[:, :64] / 16).astype(numpy.float32), table[:, 64].copy()


def timed(once, synchronize):
    """Many times `once`, and one wait for the device."""

    def run(times):
        start = time.perf_counter()
        for _ in range(times):
            once()
        synchronize()
        return time.perf_counter() - start, times

    return run


class ArrayPeer:
    """A library with NumPy's interface."""

    name = "NumPy"
    notes = []

    def __init__(self, xp=numpy):
        self.xp, self.version, self.operands = xp, f"NumPy {numpy.__version__}", (0, None)

    def synchronize(self):
        pass

    def to_host(self, array):
        return numpy.asarray(array)

    def give_back(self):
        pass

    def pairs(self, size):
        return {}

    def churn(self, size, facts):
        return {}

    def random(self, program):
        return {}

    def summary(self, result, samples=64):
        flat = result.reshape(-1)
        count = flat.shape[0]
        samples = min(samples, count)
        positions = self.xp.asarray([n * count // samples for n in range(samples)])
        sample = self.to_host(flat[positions]).tolist()
        return {"count": count, "sample": sample, "mean": float(flat.mean(dtype=self.xp.float64))}

    def softmax(self, a):
        exponentials = self.xp.exp(a - a.max(axis=1, keepdims=True))
        exponentials /= exponentials.sum(axis=1, keepdims=True)
        return exponentials

    def fused(self, a, b, c, d):
        return self.xp.sin(a * b + c) * 2 - d

    def matrices(self, size):
        """The operands of so many elements; those of one size are kept."""
        if self.operands[0] != size:
            self.operands = (0, None)
            side = int(round(size**0.5))
            a, b, c, d = (elements(self.xp, which, size).reshape(side, side) for which in range(4))
            row = elements(self.xp, 2, side)
            self.operands = (size, (a, b, c, d, row, row.reshape(side, 1), self.xp.zeros_like(a)))
        return self.operands[1]

    def operation(self, name, size):
        a, b, c, d, row, column, out = self.matrices(size)
        xp = self.xp

        def assign():
            xp.copyto(out, a)
            return out

        once = {
            "assign": assign,
            "a+b": lambda: a + b,
            "a+b.T": lambda: a + b.T,
            "a+row": lambda: a + row,
            "a+column": lambda: a + column,
            "fused": lambda: self.fused(a, b, c, d),
            "exp": lambda: xp.exp(a),
            "tanh": lambda: xp.tanh(a),
            "softmax": lambda: self.softmax(a),
            "sum": lambda: a.sum(),
            "sum_axis0": lambda: a.sum(axis=0),
            "sum_axis1": lambda: a.sum(axis=1),
            "matmul": lambda: a @ b,
        }[name]
        return {self.name: (timed(once, self.synchronize), dict, lambda: self.summary(once()))}

    def random_numbers(self, count):
        return self.xp.random.random(count).astype(self.xp.float32)

    def chain(self, count):
        def once():
            return self.xp.sin(self.random_numbers(count))

        return {self.name: (timed(once, self.synchronize), dict, lambda: {"mean": float(once().mean())})}

    def digits(self, facts, path):
        step = ArrayStep(self.xp, facts, path)

        def result():
            for _ in range(facts["steps"]):
                step.once()
            return {"total_loss": float(step.total_loss)}

        return {self.name: (timed(step.once, self.synchronize), dict, result)}


class ArrayStep:
    """The training step of examples/train_digits, written out by hand as there."""

    def __init__(self, xp, facts, path):
        images, labels = read_digits(path)
        units = facts["hidden_units"]
        self.xp, self.next = xp, 0
        self.images, self.labels = xp.asarray(images), xp.asarray(labels)
        self.batches = [xp.asarray(numpy.array(batch)) for batch in facts["batches"]]
        shapes = [("hidden", (64, units)), ("output", (units, CLASSES))]
        weights = [numpy.array(facts[name], numpy.float32).reshape(shape) for name, shape in shapes]
        (self.w1, self.w2) = map(xp.asarray, weights)
        self.b1, self.b2 = xp.zeros(units, xp.float32), xp.zeros(CLASSES, xp.float32)
        self.velocities = [xp.zeros_like(value) for value in (self.w1, self.b1, self.w2, self.b2)]
        self.classes, self.total_loss = xp.arange(CLASSES), xp.zeros((), xp.float32)

    def once(self):
        xp = self.xp
        batch = self.batches[self.next % len(self.batches)]
        self.next += 1
        images, labels = self.images[batch], self.labels[batch]
        hidden = xp.maximum(images @ self.w1 + self.b1, 0)
        scores = hidden @ self.w2 + self.b2
        shifted = scores - scores.max(axis=1, keepdims=True)
        log_probabilities = shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))
        is_label = labels[:, None] == self.classes
        self.total_loss += xp.where(is_label, -log_probabilities, xp.float32(0)).sum()
        d_scores = (xp.exp(log_probabilities) - is_label) / xp.float32(len(batch))
        d_hidden = xp.where(hidden > 0, d_scores @ self.w2.T, xp.float32(0))
        gradients = [images.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_scores, d_scores.sum(axis=0)]
        values = (self.w1, self.b1, self.w2, self.b2)
        for value, velocity, gradient in zip(values, self.velocities, gradients):
            velocity *= xp.float32(MOMENTUM)
            velocity += gradient
            value -= xp.float32(LEARNING_RATE) * velocity


class CuPyPeer(ArrayPeer):
    """CuPy, whose allocator is called from Python."""

    name = "CuPy"

    def __init__(self):
        import cupy

        super().__init__(cupy)
        # So that one which does not go with the driver is seen now.
        cupy.zeros(1)
        self.synchronize()
        self.version = f"CuPy {cupy.__version__}"
        self.notes = ["CuPy's allocator is called from Python, whose own time is in its figures."]
        # Lambdas would all have one name in its cache.
        @cupy.fuse()
        def fused(a, b, c, d):
            return cupy.sin(a * b + c) * 2 - d

        self.fused = fused
        try:
            from cupyx.scipy.special import softmax

            self.softmax = lambda a: softmax(a, axis=1)
        except ImportError:
            self.notes.append("This CuPy has no softmax; it is written out in its arrays.")

    def synchronize(self):
        self.xp.cuda.get_current_stream().synchronize()

    def to_host(self, array):
        return self.xp.asnumpy(array)

    def give_back(self):
        self.xp.get_default_memory_pool().free_all_blocks()

    def random_numbers(self, count):
        return self.xp.random.rand(count, dtype=self.xp.float32)

    def pairs(self, size):
        pool = self.xp.cuda.MemoryPool()

        def run(times):
            malloc = pool.malloc
            start = time.perf_counter()
            for _ in range(times):
                # The block goes back as nobody keeps it.
                malloc(size)
            return time.perf_counter() - start, times

        return {self.name: (run, dict, None)}

    def churn(self, size, facts):
        pool, order = self.xp.cuda.MemoryPool(), facts["order"]
        live = [pool.malloc(size) for _ in range(facts["live"])]

        def run(times):
            malloc, left = pool.malloc, times
            start = time.perf_counter()
            while left > 0:
                for slot in order[:left]:
                    live[slot] = None
                    live[slot] = malloc(size)
                left -= len(order)
            return time.perf_counter() - start, times

        return {self.name: (run, dict, None)}

    def random(self, program):
        pool = self.xp.cuda.MemoryPool()
        steps = list(zip(program["slots"], program["sizes"]))
        live = [None] * program["slot_count"]

        def run(times):
            malloc = pool.malloc
            start = time.perf_counter()
            for _ in range(times):
                for slot, size in steps:
                    live[slot] = malloc(size) if size else None
            return time.perf_counter() - start, times * len(steps)

        # It gives nothing back before it is told to, so what it has now is the most that it had.
        def extra():
            return {"peak_reserved_bytes": pool.total_bytes(), "peak_live_bytes": program["peak_live_bytes"]}

        return {self.name: (run, extra, None)}


def torch_peer(device):
    from torch_peer import TorchPeer

    return TorchPeer(device)


PEERS = {
    "numpy": ArrayPeer,
    "cupy": CuPyPeer,
    "torch": lambda: torch_peer("cuda"),
    "torch-cpu": lambda: torch_peer("cpu"),
}
