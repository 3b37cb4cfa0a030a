"""The cases of one file, and the elements of all their arrays."""

import json
import zlib

import numpy as np

from .values import BITS, NAMES, TYPES, Operand


class Book:
    def __init__(self, name):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.cases = []
        self.pools = {name: [] for name in TYPES}
        self.lengths = dict.fromkeys(TYPES, 0)
        self.places = {}

    def case(self, op, inputs, outputs, args=(), ulps=0, slack=0.0, zeros=True):
        """Adds a case: `op` of `inputs` with the plain numbers `args` gives `outputs`.

        An element may be off by `ulps` units in the last place or by `slack`. The signs of zeros
        count where `zeros` is set.
        """
        if not isinstance(outputs, (list, tuple)):
            outputs = [outputs]
        case = {"op": op, "in": [self.place(x) for x in inputs], "out": [self.place(Operand(x)) for x in outputs]}
        if len(args):
            case["args"] = [encode(x) for x in args]
        if ulps:
            case["ulps"] = ulps
        if slack:
            case["slack"] = float(slack)
        if not zeros:
            case["zeros"] = False
        self.cases.append(case)

    def place(self, operand):
        """Where the base of an array stands, and how its view is made."""
        base = np.ascontiguousarray(operand.base)
        name = NAMES[base.dtype]
        elements = base.reshape(-1)
        if name in BITS:
            elements = elements.view(np.uint16)
        key = name, elements.tobytes()
        if key not in self.places:
            self.places[key] = self.lengths[name]
            self.pools[name].append(elements)
            self.lengths[name] += len(elements)
        place = [name, self.places[key], list(operand.base.shape)]
        return place + [operand.steps] if operand.steps else place

    def save(self, path):
        text = [f"NumPy {np.__version__}"] + [json.dumps(case, separators=(",", ":")) for case in self.cases]
        arrays = {"cases": np.frombuffer("\n".join(text).encode(), np.uint8)}
        for name, parts in self.pools.items():
            if parts:
                arrays[name] = np.concatenate(parts)
        np.savez_compressed(path, **arrays)
        print(f"{path.name}: {len(self.cases)} cases, {path.stat().st_size} bytes")


def encode(number):
    """A number for JSON, which knows neither infinities nor NaN."""
    if isinstance(number, (int, np.integer)):
        return int(number)
    return float(number) if np.isfinite(number) else str(float(number))
