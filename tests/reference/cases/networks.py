"""Sums of products by subscripts, and what neural networks are made of: PyTorch's formulas, in NumPy."""

import numpy as np

from .values import FLOATS, SOME_NUMBERS, TYPES, is_float, moderate, narrow, partial, place, shape, specials, wide

EPSILON = {"f32": 1.2e-7, "f64": 2.3e-16, "f16": 1e-3, "bf16": 8e-3}


@np.errstate(all="ignore")
def write(book):
    for name in SOME_NUMBERS:
        for subscripts, dims in products(book, 2 if name in ("f32", "i32") else 1):
            einsum(book, name, subscripts, dims)
        for left, right in krons(book):
            kron(book, name, left, right)
    for name in FLOATS:
        for _ in range(8):
            cross_entropy(book, name)
            norms(book, name)
            for causal in (0, 1):
                attention(book, name, causal)
        edges(book, name)


def array(book, name, dims, make=moderate):
    return place(book.rng, lambda count: make(book.rng, name, count), dims)


def slack(name, magnitude, steps):
    """Sums of so many terms, of this magnitude in all; f16 and bf16 are summed in f32 and rounded a few times."""
    steps = steps if name in ("f32", "f64") else 4
    return EPSILON[name] * steps * float(np.max(magnitude, initial=0))


PRODUCTS = [
    # Views, diagonals and sums of one operand.
    "ij->ji", "ij->", "ij", "ji", "ii", "ii->i", "iij->ji", "ijk->kj", "iii", "i->", "->", "...->...", "i...->...",
    "...ij->...ji", "...ii->...i", "...ii->i...",
    # Products of matrices.
    "ij,jk->ik", "ij,jk", "ij,jk->ki", "ji,kj->ik", "ij,ij->ij", "ij,ij->", "ij,ij->i", "ij,ij->j", "ij,ji->", "i,j->ij",
    "i,j->ji", "i,i->", "i,i->i", "ij,j->i", "i,ij->j", "ij,i->ij", ",i->i", "i,->i",
    "bij,bjk->bik", "bij,jk->bik", "ij,bjk->bik", "bij,bjk->kbi", "ijb,jkb->ikb", "bihd,bjhd->bhij", "bhij,bjhd->bihd",
    "abcd,cdef->abef", "abcd,dcef->feba", "ijk,ilm,njm->nlk", "ij,kl->", "ij,kl->ik", "ii,jj->ij", "ii,ij->j", "iij,jk->ik",
    "...ij,...jk->...ik", "...ij,jk", "...,...->...", "i...,i...->...", "...i,i...->...", "a...b,b->...a",
    # Chains and more operands.
    "ij,jk,kl->il", "ij,jk,kl,lm->im", "i,ij,j->", "i,i,i->", "i,i,i->i", "ij,ij,ij->ij", "ij,ik,il->i", "bi,ij,bj->b",
    "ai,bi,ci->abc", "ij,jk,kl,lm,mn->in", "ab,bc,cd,de,ef,fa->", "a,b,c,d->abcd", "ij,i,j->ij", "...i,i,i...->...",
    "a,ab,bc,cd,de,ef,fg,g->", " i j , j k -> i k ", "Ab,bA->bA", "Ba,aB", "bA,Ac",
]


def products(book, times):
    """Subscripts and lengths that fit; some letters are 0 or 1 long, and some operands broadcast from 1."""
    for subscripts in PRODUCTS:
        for _ in range(times):
            yield subscripts, fitting(book.rng, subscripts)
    # So many terms that a sum is taken in parts.
    yield "ij,jk->ik", [[3, 300], [300, 2]]
    yield "bi,bi->b", [[3, 300], [3, 300]]
    yield "ij,ij->", [[30, 70], [30, 70]]


def fitting(rng, subscripts):
    inputs = subscripts.replace(" ", "").split("->")[0].split(",")
    lengths = {}
    for letter in "".join(inputs).replace(".", ""):
        lengths.setdefault(letter, int(rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 5] if rng.random() < 0.2 else [2, 3, 4])))
    others = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(0, 3)))]
    dims = []
    for term in inputs:
        before, _, after = term.partition("...")
        own = [lengths[letter] for letter in before]
        if "..." in term:
            own += partial(rng, others) if term != inputs[0] else others
            own += [lengths[letter] for letter in after]
        dims.append([1 if rng.random() < 0.03 and len(set(term)) == len(term) else length for length in own])
    return dims


def einsum(book, name, subscripts, dims):
    low, high = (-4.0, 4.0) if len(dims) < 3 else (-2.0, 2.0)
    operands = [array(book, name, d, lambda r, n, c: moderate(r, n, c, low, high)) for d in dims]
    values = [operand.value for operand in operands]
    if not is_float(TYPES[name]):
        # They wrap.
        book.case(f"einsum {subscripts}", operands, np.einsum(subscripts, *values))
        return
    value = np.einsum(subscripts, *map(wide, values))
    magnitude = np.einsum(subscripts, *(np.abs(wide(x)) for x in values))
    steps = max(max(d, default=1) for d in dims) + 2 * len(dims)
    book.case(
        f"einsum {subscripts}", operands, narrow(value, TYPES[name]), ulps=2 * len(dims) - 1,
        slack=slack(name, magnitude, steps) * (len(dims) > 1 or steps > 1), zeros=False,
    )


def krons(book):
    yield from (([2, 2], [2, 3]), ([3], [2, 2]), ([2, 2], [3]), ([], [2]), ([], []), ([0, 2], [3, 2]), ([1, 4], [4, 1]))
    yield from (([2, 1, 2, 2, 2], [2, 3, 1, 2, 2]), ([2, 2, 2, 2, 2], [2, 2, 1, 2, 3]), ([2, 1, 2, 1, 2, 3], [1, 2, 2, 2, 2, 1]))
    for _ in range(3):
        yield shape(book.rng, 0, 3), shape(book.rng, 0, 3)


def kron(book, name, left, right):
    a, b = array(book, name, left), array(book, name, right)
    if not is_float(TYPES[name]):
        book.case("kron", [a, b], np.kron(a.value, b.value))
        return
    book.case("kron", [a, b], narrow(np.kron(wide(a.value), wide(b.value)), TYPES[name]), ulps=1)


def log_sum_exp(x):
    most = x.max(axis=-1, keepdims=True)
    most = np.where(np.isfinite(most), most, 0)
    return np.log(np.exp(x - most).sum(axis=-1)) + most[..., 0]


def cross_entropy(book, name, rows=None, columns=None, make=moderate):
    rng = book.rng
    rows = int(rng.integers(1, 30)) if rows is None else rows
    columns = int(rng.integers(1, 40)) if columns is None else columns
    x = array(book, name, [rows, columns], make)
    classes = place(rng, lambda count: rng.integers(0, columns, count), [rows])
    logits = wide(x.value)
    losses = log_sum_exp(logits) - logits[np.arange(rows), classes.value]
    # The sum of exponentials is rounded in the type that it is computed in, whose logarithm may be near 0.
    off = 4 * EPSILON["f64" if name == "f64" else "f32"]
    if name == "f64":
        # What is subtracted from it is as large as the logits.
        off *= 1 + magnitude(np.abs(logits))
    book.case("cross_entropy", [x, classes], narrow(losses.mean(), TYPES[name]), ulps=2, slack=off, zeros=False)


def norms(book, name, dims=None, epsilon=None, make=moderate):
    dims = shape(book.rng, 1, 4) if dims is None else dims
    epsilon = [1e-5, 1e-3, 1.0][int(book.rng.integers(0, 3))] if epsilon is None else epsilon
    epsilon = TYPES[name].type(epsilon)
    x, weight, bias = array(book, name, dims, make), array(book, name, dims[-1:]), array(book, name, dims[-1:])
    value, w, b, e = wide(x.value), wide(weight.value), wide(bias.value), float(epsilon)
    mean = value.mean(axis=-1, keepdims=True)
    variance = ((value - mean) ** 2).mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt(variance + e)
    result = (value - mean) * scale * w + b
    # A mean is rounded, as are the terms.
    off = EPSILON["f64" if name == "f64" else "f32"] * 8 * magnitude((np.abs(value) + np.abs(mean)) * scale * np.abs(w) + np.abs(b))
    book.case("layer_norm", [x, weight, bias], narrow(result, TYPES[name]), [e], ulps=1, slack=off, zeros=False)
    squares = (value**2).mean(axis=-1, keepdims=True)
    result = value / np.sqrt(squares + e) * w
    book.case("rms_norm", [x, weight], narrow(result, TYPES[name]), [e], ulps=6 if name in ("f32", "f64") else 1, zeros=False)


def magnitude(x):
    finite = x[np.isfinite(x)]
    return float(finite.max()) if finite.size else 0.0


def attention(book, name, causal, sizes=None):
    rng = book.rng
    queries, keys, depth, width = rng.integers(1, 8, 4).tolist() if sizes is None else sizes
    heads = [int(x) for x in rng.integers(1, 4, int(rng.integers(0, 3)))]
    make = lambda r, n, c: moderate(r, n, c, -2.0, 2.0)
    q = array(book, name, partial(rng, heads) + [queries, depth], make)
    k = array(book, name, partial(rng, heads) + [keys, depth], make)
    v = array(book, name, partial(rng, heads) + [keys, width], make)
    a, b, c = wide(q.value), wide(k.value), wide(v.value)
    scores = a @ np.swapaxes(b, -1, -2) / np.sqrt(a.dtype.type(depth))
    if causal:
        # As PyTorch: np.tril from the first query and the first key.
        scores = np.where(np.tril(np.ones((queries, keys), bool)), scores, -np.inf)
    most = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - most)
    value = (exponentials / exponentials.sum(axis=-1, keepdims=True)) @ c
    heads = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    value = np.broadcast_to(value, heads + value.shape[-2:])
    off = EPSILON["f64" if name == "f64" else "f32"] * 40 * float(np.abs(c).max(initial=0))
    book.case("attention", [q, k, v], narrow(value, TYPES[name]), [causal], ulps=1, slack=off, zeros=False)


def edges(book, name):
    """Nothing, one, special values, and numbers near the ends of their range."""
    cross_entropy(book, name, 0, 3)
    cross_entropy(book, name, 1, 1)
    cross_entropy(book, name, 2, 300)
    large = lambda r, n, c: moderate(r, n, c, -300.0, 300.0)
    for _ in range(3):
        cross_entropy(book, name, make=large)
        cross_entropy(book, name, make=mixed)
    norms(book, name, [0, 3])
    norms(book, name, [3, 0])
    norms(book, name, [4, 1])
    norms(book, name, [2, 300])
    norms(book, name, [2, 5], 0.0)
    norms(book, name, [4, 8], make=large)
    norms(book, name, [6, 5], make=mixed)
    attention(book, name, 0, (3, 0, 2, 2))
    attention(book, name, 1, (0, 3, 2, 2))
    attention(book, name, 0, (2, 3, 2, 0))
    attention(book, name, 1, (7, 3, 4, 2))
    attention(book, name, 1, (3, 7, 4, 2))
    attention(book, name, 1, (40, 50, 16, 8))


def mixed(rng, name, count):
    """Now and then an infinity or NaN."""
    values = moderate(rng, name, count)
    if count:
        odd = specials(name)
        odd = odd[~np.isfinite(odd.astype(np.float64))]
        chosen = rng.random(count) < 0.06
        values[chosen] = odd[rng.integers(0, len(odd), count)][chosen]
    return values
