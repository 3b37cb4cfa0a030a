"""The rows of halves.py as tables of Markdown."""

# Dense products of half precision in TFLOP/s, as NVIDIA states them for the modules.
PEAKS = {"H100": 989, "H200": 989, "A100": 312}
MEGABYTE = 1e6


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def number(value, digits=2):
    return "–" if value is None else f"{value:,.{digits}f}"


def ratio(ours, theirs):
    return f"{ours / theirs:.2f} ×" if ours and theirs else "–"


def rate(row, flops, name):
    """TFLOP/s. A backward pass has 2.5 times the operations of a forward pass."""
    if row is None or not flops:
        return None
    milliseconds = row[f"{name}_ms"]
    return flops * (2.5 if name == "backward" else 1) / milliseconds / 1e9 if milliseconds > 0 else None


def variants(rows):
    """The fastest variant of attention's kernels for each shape and direction."""
    rows = [row for row in rows if row["kind"] == "attention"]
    shapes = {row["shape"] for row in rows if row.get("variant")}
    rows = [row for row in rows if row["who"] == "own" and row["shape"] in shapes]
    name_of = lambda row: (row.get("variant") or "=default").split("=", 1)[1]
    names = list(dict.fromkeys(map(name_of, rows)))
    found = {(row["shape"], name_of(row)): row for row in rows}
    body = []
    for shape in sorted(shapes, key=order):
        for direction in ("forward", "backward"):
            times = {name: found[shape, name][f"{direction}_ms"] for name in names if (shape, name) in found}
            cells = [number(times.get(name), 3) for name in names]
            body.append([f"{shape.replace(',', ', ')}, {direction}", min(times, key=times.get), *cells])
    text = "The time in milliseconds, by the sizes of tiles."
    header = ["type, width, length, mask, direction", "fastest", *names]
    return ["### Variants", "", text, "", *table(header, body)] if body else []


def attention(rows):
    rows = [row for row in rows if not row.get("variant")]
    own = {row["shape"]: row for row in rows if row["kind"] == "attention" and row["who"] == "own"}
    theirs = {(row["shape"], row["backend"]): row for row in rows if row["kind"] == "attention" and row["who"] == "torch"}
    shapes = dict.fromkeys([*own, *(shape for shape, _ in theirs)])
    if not shapes:
        return []
    backends = list(dict.fromkeys(backend for _, backend in theirs))
    header = ["type, width, length, mask", "forward", "backward"]
    header += [f"{backend} {name}" for backend in backends for name in ("forward", "backward")]
    header += [f"both of {backend}" for backend in backends]
    body = []
    for shape in sorted(shapes, key=order):
        row = own.get(shape)
        flops = flops_of(shape, rows)
        cells = [shape.replace(",", ", "), number(rate(row, flops, "forward"), 0), number(rate(row, flops, "backward"), 0)]
        others = [theirs.get((shape, backend)) for backend in backends]
        cells += [number(rate(other, flops, name), 0) for other in others for name in ("forward", "backward")]
        cells += [ratio(both(row), both(other)) for other in others]
        body.append(cells)
    text = "TFLOP/s: a forward pass counts 4 · batch · heads · length² · width, half of it with a causal mask."
    return ["## Attention", "", text, "", *table(header, body)]


def layers(rows):
    rows = {(row["layer"], row["who"]): row for row in rows if row["kind"] == "layer"}
    header = ["layer, type, rows, width", "forward, ms", "backward, ms", "of PyTorch's forward", "of its backward"]
    body = []
    for layer in dict.fromkeys(layer for layer, _ in rows):
        own, theirs = rows.get((layer, "own")), rows.get((layer, "torch"))
        times = [[row and row[f"{direction}_ms"] for row in (own, theirs)] for direction in ("forward", "backward")]
        body.append([layer.replace(",", ", "), *(number(mine, 3) for mine, _ in times), *(ratio(*both) for both in times)])
    return ["### Layers", "", *table(header, body)] if body else []


def order(shape):
    numbers, width, length, mask = shape.split(",")
    return ("bf16", "f16", "f32").index(numbers), mask, int(width), int(length)


def both(row):
    return row["forward_ms"] + row["backward_ms"] if row else None


def flops_of(shape, rows):
    return next((row["flops"] for row in rows if row.get("shape") == shape and "flops" in row), None)


def training(facts, rows):
    rows = [row for row in rows if row["kind"] == "train"]
    cases = dict.fromkeys((row["network"], row["size"], row["numbers"]) for row in rows)
    if not cases:
        return []
    header = ["network, type", "Recycle, ms", "Plan", "as a graph", "PyTorch flash, ms", "cuDNN", "own choice", "compiled"]
    header += ["best of flash", "of cuDNN", "of compiled", "Recycle, MB", "PyTorch eager, MB", "compiled, MB", "MFU"]
    body = []
    for case in cases:
        own = {row["memory"]: row for row in of_case(rows, case, "own")}
        eager = {row["backend"]: row for row in of_case(rows, case, "torch") if not row["compiled"]}
        compiled = [row for row in of_case(rows, case, "torch") if row["compiled"]]
        fastest = min(compiled, key=lambda row: row["step_ms"], default=None)
        best = min((row for row in own.values()), key=lambda row: row["step_ms"], default=None)
        ms = lambda row: row["step_ms"] if row else None
        eager_ms = [ms(eager.get(name)) for name in ("flash", "cudnn", "default")]
        cells = [f"{case[0]} {case[1]}, {case[2]}"]
        cells += [number(ms(own.get(name))) for name in ("recycle", "plan", "graph")]
        cells += [*map(number, eager_ms), number(ms(fastest))]
        cells += [ratio(ms(best), theirs) for theirs in (eager_ms[0] or eager_ms[2], eager_ms[1], ms(fastest))]
        peaks = [row["peak_bytes"] for row in eager.values()]
        cells += [megabytes(own.get("recycle")), number(min(peaks) / MEGABYTE, 0) if peaks else "–", megabytes(fastest)]
        body.append([*cells, utilization(facts, best)])
    text = (
        "PyTorch's bf16 is autocast, and its backend of attention is forced, but for its own choice, "
        f"which is {facts.get('default_backend', 'unknown')}. Compiled steps have the fused AdamW. "
        "MFU counts (6 · parameters + 6 · layers · width · length) a token."
    )
    return ["## Training", "", text, "", *table(header, body)]


def of_case(rows, case, who):
    return [row for row in rows if row["who"] == who and (row["network"], row["size"], row["numbers"]) == case]


def megabytes(row):
    return number(row["peak_bytes"] / MEGABYTE, 0) if row else "–"


def utilization(facts, row):
    """The part of the GPU's rate of half-precision products that a step reaches."""
    peak = next((own for name, own in PEAKS.items() if name in facts.get("gpu", "")), None)
    if not peak or not row or not row.get("flops"):
        return "–"
    return f"{row['flops'] / row['step_ms'] / 1e9 / peak:.0%}"


def checks(rows):
    rows = [row for row in rows if row["kind"] == "check"]
    if not rows:
        return []
    name = lambda row: " ".join(filter(None, (row["shape"], row.get("variant"))))
    wrong = [name(row) for row in rows if not row["agrees"]]
    varying = [name(row) for row in rows if not row["are_equal_bits"]]
    text = f"{len(rows)} shapes were compared with double precision; they disagree at: {', '.join(wrong) or 'none'}. "
    return [text + f"Two runs differ in bits at: {', '.join(varying) or 'none'}.", ""]


def markdown(facts, rows):
    named = ("gpu", "torch", "cuda", "cudnn", "date", "revision")
    head = ", ".join(f"{name} {facts[name]}" for name in named if facts.get(name))
    return "\n".join(["# Half precision", "", head, "", *checks(rows), *attention(rows), *variants(rows), *layers(rows), *training(facts, rows)])
