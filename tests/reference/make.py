"""Makes the reference cases: what NumPy gives for every operation of the contract.

    python3 -m venv venv && venv/bin/pip install numpy ml_dtypes
    venv/bin/python tests/reference/make.py

It writes `elementwise.npz`, `reductions.npz`, `linear.npz`, `shapes.npz`, `windows.npz`, `networks.npz`,
`selection.npz`, `decompositions.npz`, `complex.npz` and `transforms.npz` beside itself. The cases are the same ones
whenever it runs: each file has a random stream of its own. The bits of NaN, the last digits of factorizations, and an
element of `bf16` at half of a rounding step depend on the versions of NumPy and LAPACK, and on the processor. A new
case moves the later ones of its file, so add it at the end of a module's `write`, or in a module of its own.
Each holds the elements of all arrays, by type, one array after another (`f16` and `bf16` as their bits), and `cases`:
text, one line of JSON for each case, which says where its arrays stand among the elements. The first line names the
version of NumPy.

NumPy is the judge, but for what the contract says otherwise; those places are marked "Contract:".
Functions of floats are computed in a wider type and rounded once.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True

from cases import (
    complex, decompositions, elementwise, linear, networks, reductions, selection, shapes, transforms, windows,
)
from cases.book import Book

folder = pathlib.Path(__file__).parent
MODULES = (
    elementwise, reductions, linear, shapes, windows, networks, selection, decompositions, complex, transforms,
)
for module in MODULES:
    name = module.__name__.split(".")[-1]
    book = Book(name)
    module.write(book)
    book.save(folder / f"{name}.npz")
