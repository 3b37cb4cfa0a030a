#!/usr/bin/env python3
"""A model on paper of data-parallel scaling: buckets, all-reduce and overlap.

    python3 model.py [--slowdown S]

S is the share of the compute rate that is lost while an all-reduce runs; 0 unless asked for.
README.md beside this file has the formulas, the tables and what is left out.

Every number of the input carries one of four marks:
  Q  quoted: read in the source that is named with it
  D  derived: computed from quoted numbers, the way is given
  A  assumed: no source
  N  not re-read: known of the source, but its text was not at hand when this was written
"""
import argparse
import math

MIB = 1 << 20
US = 1e-6
GB = 1e9

# ---------------------------------------------------------------------------------------------
# Sources

SOURCES = """
S1  PyTorch DDP benchmark: github.com/pytorch/pytorch benchmarks/distributed/ddp/README.md
    "resnet50 with batch size 32 ... 1 GPUs -- no ddp: p50: 0.097s"; "8 DGX machines with V100 GPUs";
    "4x 100Gb InfiniBand per machine"
S2  PyTorch DDP defaults: torch/csrc/distributed/c10d/reducer.hpp
    kDefaultFirstBucketBytes = 1024 * 1024, kDefaultBucketBytesCap = 25 * 1024 * 1024
S3  PyTorch DDP paper: arXiv 2006.15704. The abstract was read (huggingface.co/papers/2006.15704): "near-linear
    scalability using 256 GPUs". The body and its figures were not re-read.
S4  Horovod: github.com/horovod/horovod docs/benchmarks.rst, "128 servers with 4 Pascal GPUs each connected
    by RoCE-capable 25 Gbit/s network ... 90% scaling efficiency for both Inception V3 and ResNet-101,
    and 68% scaling efficiency for VGG-16"; docs/tensor-fusion.rst, "Default fusion buffer size is 64 MB"
S5  Horovod: github.com/horovod/horovod/pull/44, table of 16 GPUs, "Baseline single-GPU (batch size=64)
    134.4 | 119.4 | 130.9", "RDMA Horovod (allreduce on GPU with NCCL) 15.0x | 14.6x | 13.7x"
S6  Horovod, an earlier README (github.com/alsrgv/horovod): "32 servers with 4 Pascal GPUs ... 90% ... for
    both Inception V3 and ResNet-101, and 79% ... for VGG-16"
S7  NVIDIA BERT for PyTorch: github.com/NVIDIA/DeepLearningExamples PyTorch/LanguageModeling/BERT/README.md
    (March 2020), "Pre-training NVIDIA DGX-1 With 16G" and "... on multiple NVIDIA DGX-1 With 16G"
S8  NCCL cost model: github.com/NVIDIA/nccl src/graph/tuning.cc at commit 01afd20a (2.8): baseLat, hwLat,
    bandwidth factors of the protocols, caps of the tree
S9  Lower bound of an all-reduce: github.com/NVIDIA/nccl-tests doc/PERFORMANCE.md, "t = (S/B) * (2*(n-1)/n)"
S10 Link rates and measured all-reduces: github.com/stas00/ml-engineering network/README.md
    (NVLink 2: 150, NVLink 4: 450, NVLink 5: 900 GB/s in one direction), network/benchmarks/README.md (tables
    of busbw), and notes in the same repository ("3200Gbps/400GBps per node")
S11 H100 training: github.com/mosaicml/llm-foundry scripts/train/benchmarking/README.md, 1b, 2048 tokens,
    8 GPUs: 45455 tokens/s/GPU, micro batch 14, 1315950592 parameters, MFU 41.82, "Neural Network training has 3
    network operations: forward pass, backward pass, and computation of parameter gradient"
S12 H100 network: github.com/mlcommons/inference_results_v3.1 closed/Dell/systems/XE9680_H100_SXM_80GBx8_TRT.json,
    "8x 400Gb Infiniband"
S13 A100 training: github.com/huggingface/pytorch-image-models/issues/1491, resnet50, "throughput always 2600 img/s"
S14 Parameters: keras.io/api/applications (Inception V3 23.9M); VGG-16 138357544 (gist.github.com/ogyalcin/
    052f2df49b3288e62086aa0e5fd25fcd); ResNet-50 25.56M, ResNet-101 44.55M (blog.csdn.net/tfcy694/article/details/127984916)
"""

# ---------------------------------------------------------------------------------------------
# Networks: a list of (parameters, multiply-adds) for each tensor, in the order of the forward pass. D: computed
# from the layers; the sums are checked against S14 in `check`.


def conv(out, c_out, c_in, k, side, bias=False, norm=True):
    out.append((c_out * c_in * k * k, c_out * c_in * k * k * side * side))
    if norm:
        out.append((c_out, 0))
        out.append((c_out, 0))
    if bias:
        out.append((c_out, 0))


def dense(out, n_out, n_in):
    out.append((n_out * n_in, n_out * n_in))
    out.append((n_out, 0))


def vgg16():
    out, c_in, side = [], 3, 224
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            conv(out, width, c_in, 3, side, bias=True, norm=False)
            c_in = width
        side //= 2
    dense(out, 4096, 512 * 7 * 7)
    dense(out, 4096, 4096)
    dense(out, 1000, 4096)
    return out


def resnet(blocks):
    out = []
    conv(out, 64, 3, 7, 112)
    c_in, side = 64, 56
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            if stage and block == 0:
                side //= 2
            conv(out, width, c_in, 1, side)
            conv(out, width, width, 3, side)
            conv(out, 4 * width, width, 1, side)
            if block == 0:
                conv(out, 4 * width, c_in, 1, side)
            c_in = 4 * width
    dense(out, 1000, 2048)
    return out


def uniform(params, tensors):
    """A: the gradients become ready evenly over the backward pass, in `tensors` equal tensors."""
    return [(params / tensors, 1.0)] * tensors


def transformer(layers, width, vocabulary, positions):
    """Embeddings, then `layers` equal layers of 12 width^2 weights. The matrix of the vocabulary is shared
    with the output, so that its gradient is the last to become ready."""
    out = [(vocabulary * width, 0.0), (positions * width, 0.0)]
    for _ in range(layers):
        for k in (3, 1, 4, 4):
            out.append((k * width * width, k * width * width))
            out.append((width * (4 if k == 4 else k), 0.0))
    return out


# ---------------------------------------------------------------------------------------------
# All-reduce. Latencies in microseconds and factors: Q, S8, in the order LL, LL128, Simple.

BASE = {"tree": (4.4, 4.4, 0.0), "ring": (3.6, 10.0, 8.4)}
STEP = {
    "nvlink": {"tree": (0.52, 1.2, 28.0), "ring": (0.47, 1.9, 3.4)},
    "pcie": {"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7)},
    "net": {"tree": (5.0, 8.5, 50.0), "ring": (2.7, 4.0, 9.6)},
}
PLATEAU = 1.9  # Q, S8: latency of a long ring over several nodes, Simple


class Machine:
    """Nodes of `per_node` devices. `inside` and `node_net` are GB/s in one direction: of one device within the
    node, and of all network ports of a node together."""

    def __init__(self, name, per_node, link, inside, node_net, ll128, tree, tree_cap=(None, None), scale=1.0):
        self.name, self.per_node, self.link = name, per_node, link
        self.inside, self.node_net = inside, node_net
        self.ll128, self.tree, self.tree_cap = ll128, tree, tree_cap
        self.scale = scale  # of the network's latency, for the table of sensitivity

    def shape(self, n):
        nodes = max(1, math.ceil(n / self.per_node))
        return nodes, n / nodes

    def bus(self, nodes):
        return self.inside if nodes == 1 else min(self.inside, self.node_net)

    def protocols(self):
        return (0, 1, 2) if self.ll128 else (0, 2)

    def ring(self, size, n):
        """2 (n - 1) steps of size / n bytes; 2 (nodes - 1) of the steps wait for the network."""
        nodes, _ = self.shape(n)
        best = math.inf
        for p in self.protocols():
            bus = self.bus(nodes) * (0.25, 0.92, 1.0)[p]
            inside = STEP[self.link]["ring"][p] * (1.8 if nodes > 1 and p == 0 else 1.0)
            net = 2 * (nodes - 1)
            latency = BASE["ring"][p] + (2 * (n - 1) - net) * inside + net * STEP["net"]["ring"][p] * self.scale
            if p == 2 and nodes > 1 and size >= n / 16 * 65536:
                latency *= PLATEAU
            best = min(best, latency * US + 2 * (n - 1) / n * size / (bus * GB))
        return best

    def binary_tree(self, size, n):
        """Up and down: a chain within the node, a binary tree between the nodes; half the bus in each direction."""
        nodes, local = self.shape(n)
        best = math.inf
        for p in self.protocols():
            bus = 0.9 * self.bus(nodes)
            cap = self.tree_cap[0 if nodes > 2 else 1]
            if cap:
                bus = min(bus, cap)
            bus *= (1 / 3.8, 7 / 9 if nodes == 1 else 0.915, 1.0)[p]
            inside = STEP[self.link]["tree"][p] * (1.8 if nodes > 1 and p == 0 else 1.0)
            depth = math.floor(math.log2(nodes))
            latency = BASE["tree"][p] + 2 * ((local - 1) * inside + depth * STEP["net"]["tree"][p] * self.scale)
            best = min(best, latency * US + 2 * size / (bus * GB))
        return best

    def hierarchical(self, size, n):
        """Reduce-scatter within the node, an all-reduce of size / local bytes between nodes on each device's
        share of the network, all-gather within the node; one after the other. Protocol Simple."""
        nodes, local = self.shape(n)
        step = STEP[self.link]["ring"][2]
        inside = 2 * (local - 1) * step * US + 2 * (local - 1) / local * size / (self.inside * GB)
        if nodes == 1:
            return BASE["ring"][2] * US + inside
        net = 2 * (nodes - 1) * STEP["net"]["ring"][2] * self.scale * US
        net += 2 * (nodes - 1) / nodes * (size / local) / (self.node_net / local * GB)
        return 3 * BASE["ring"][2] * US + inside + net

    def all_reduce(self, size, n):
        """What NCCL takes: the cheaper one of ring and tree."""
        if n == 1:
            return 0.0
        ring = self.ring(size, n)
        return min(ring, self.binary_tree(size, n)) if self.tree else ring


# V100 in a DGX-1: NVLink 2, 150 GB/s (Q, S10); 4 x 100 Gbit/s (Q, S1); caps of the tree 80 and 110 GB/s (Q, S8).
V100 = Machine("DGX-1 V100", 8, "nvlink", 150.0, 50.0, True, True, (80.0, 110.0))
# The same with one 100 Gbit/s port for the node: the shared cluster of the DDP paper (N, S3).
V100_ONE = Machine("V100, one port", 8, "nvlink", 150.0, 12.5, True, True, (80.0, 110.0))
# Horovod's: 4 Pascal GPUs and one port of 25 Gbit/s (Q, S4); within the node PCIe 3 at 12 GB/s (A: the link is not
# published). NCCL had neither the tree nor LL128 in 2017 (N: they came with 2.4).
PASCAL = Machine("4 Pascal, 25 Gbit/s", 4, "pcie", 12.0, 3.125, False, False)
# H100: NVLink 4, 450 GB/s (Q, S10: "900 GB/s" counts both directions); 8 x 400 Gbit/s (Q, S12). The caps of the
# tree in S8 are of Volta and Ampere; none on Hopper (A). LL128 on (A).
H100 = Machine("H100", 8, "nvlink", 450.0, 400.0, True, True)
# B200: NVLink 5 and 400 GB/s (Q, S10).
B200 = Machine("B200", 8, "nvlink", 900.0, 400.0, True, True)

# ---------------------------------------------------------------------------------------------
# A step


class Work:
    """t1 seconds for a step of one device, of which 1/3 forward and 2/3 backward (A, after S11's three
    operations; the optimizer counts as backward). `grad` bytes for each parameter."""

    def __init__(self, name, layers, t1, grad=4):
        self.name, self.t1 = name, t1
        self.forward, self.backward = t1 / 3, 2 * t1 / 3
        total = sum(f for _, f in layers)
        done, self.tensors = 0.0, []  # (bytes, time of the backward pass at which the gradient is ready)
        for params, flops in reversed(layers):
            done += flops
            self.tensors.append((params * grad, done / total * self.backward))
        self.size = sum(b for b, _ in self.tensors)


def buckets(work, first, later):
    """As DDP does (S2): tensors in the order of readiness; a bucket is closed when it has its size, and tensors
    are not split. None: all in one."""
    out, size, limit = [], 0.0, first
    for b, ready in work.tensors:
        size += b
        if limit is not None and size >= limit:
            out.append((size, ready))
            size, limit = 0.0, later
    if size:
        out.append((size, work.tensors[-1][1]))
    return out


def when(need, busy, slowdown):
    """The time at which `need` seconds of compute are done, with the rate 1 - slowdown in the intervals `busy`."""
    now = 0.0
    for start, end in busy:
        if start > now:
            if need <= start - now:
                return now + need
            need -= start - now
            now = start
        span = end - now
        if need <= span * (1 - slowdown):
            return now + need / (1 - slowdown)
        need -= span * (1 - slowdown)
        now = end
    return now + need


def step(work, machine, n, first=MIB, later=25 * MIB, slowdown=0.0):
    """A bucket starts when it is full and the one before is done."""
    busy, free = [], 0.0
    for size, ready in buckets(work, first, later):
        start = max(free, when(ready, busy, slowdown))
        free = start + machine.all_reduce(size, n)
        busy.append((start, free))
    return work.forward + max(free, when(work.backward, busy, slowdown))


def fused(work, machine, n, slowdown=0.0, limit=64e6, cycle=5e-3):
    """Horovod: at each cycle what is ready goes, up to the threshold (Q, S4); a cycle of 5 ms (N: the default then)."""
    busy, free, i = [], 0.0, 0
    while i < len(work.tensors):
        start = max(free, when(work.tensors[i][1], busy, slowdown))
        start = math.ceil(start / cycle - 1e-9) * cycle
        size = 0.0
        while i < len(work.tensors) and when(work.tensors[i][1], busy, slowdown) <= start:
            if size and size + work.tensors[i][0] > limit:
                break
            size += work.tensors[i][0]
            i += 1
        free = start + machine.all_reduce(size, n)
        busy.append((start, free))
    return work.forward + max(free, when(work.backward, busy, slowdown))


# ---------------------------------------------------------------------------------------------
# Tables


def table(title, head, rows):
    cells = [[str(c) for c in r] for r in [head] + rows]
    width = [max(len(r[i]) for r in cells) for i in range(len(head))]
    print("\n" + title + "\n")
    for k, r in enumerate(cells):
        print("| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, width))) + " |")
        if k == 0:
            print("|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(width)) + "|")


def pc(x):
    return f"{100 * x:.1f}"


def check():
    for layers, params in ((vgg16(), 138357544), (resnet((3, 4, 6, 3)), 25.56e6), (resnet((3, 4, 23, 3)), 44.55e6)):
        total = sum(p for p, _ in layers)
        assert abs(total - params) < 6e3, (total, params)


def main():
    parser = argparse.ArgumentParser(description="A model on paper of data-parallel scaling")
    parser.add_argument("--slowdown", type=float, default=0.0, help="share of the compute rate lost during an all-reduce")
    s = parser.parse_args().slowdown
    if not 0 <= s < 1:
        parser.error("--slowdown is at least 0 and below 1")
    check()
    print(f"Compute slowdown during an all-reduce: {s:g}. Efficiencies in %, t1 / tn.")
    print("Q quoted, D derived from quoted numbers, A assumed, N not re-read. S1 to S14: the sources at the end.")

    def cell(model, published, mark):
        return f"{pc(model)} / {100 * published:.1f} {mark} / {100 * (model - published):+.1f}"

    # 1. The all-reduce alone. Q, S10: busbw in GB/s; D: the times.
    payloads = (1, 4, 32, 64, 1024)
    rows = []
    for machine, n, name, measured in (
        (H100, 8, "8 H200, 1 node", (74.57, 145.14, 301.25, 368.86, 465.91)),
        (B200, 32, "32 B200, 4 nodes", (12.47, 31.63, 142.90, 197.77, 365.99)),
    ):
        row = [name]
        for mib, bus in zip(payloads, measured):
            t = machine.all_reduce(mib * MIB, n) / US
            m = 2 * (n - 1) / n * mib * MIB / (bus * GB) / US
            row.append(f"{t:.0f} / {m:.0f} / {t / m:.2f}")
        rows.append(row)
    table("Table 1. All-reduce alone: model / measured (D, S10), microseconds / ratio",
          ["MiB"] + [str(p) for p in payloads], rows)

    # 2. PyTorch on DGX-1. Q, S1: seconds, p50; with bucket_cap_mb=1 p75. One device with DDP: 0.100 and 0.171.
    resnet50, resnet101 = resnet((3, 4, 6, 3)), resnet((3, 4, 23, 3))
    rn50, rn101 = Work("ResNet-50", resnet50, 0.097), Work("ResNet-101", resnet101, 0.162)
    counts = (1, 2, 8, 16, 32, 128)
    rows = []
    for work, mib, times in ((rn50, 25, {1: 0.100, 2: 0.103, 8: 0.104, 16: 0.104}),
                             (rn50, 1, {1: 0.101, 2: 0.104, 8: 0.107, 16: 0.108}),
                             (rn101, 25, {1: 0.171, 2: 0.176, 8: 0.179, 16: 0.179})):
        rows.append([f"{work.name}, {mib} MiB"] + [
            cell(work.t1 / step(work, V100, n, MIB, mib * MIB, s), work.t1 / times[n], "D") if n in times else ""
            for n in counts])
    # Q, S7: FP16, 16 sequences of 128, 125.44/s on one device; weak scaling 7.32 of 8, and, from one node of 8, 3.53
    # of 4 and 13.89 of 16. Gradients in FP16 (A). Whether it overlaps is not published (N): both ways.
    bert = transformer(24, 1024, 30522, 512)
    bert16 = Work("BERT-large FP16", bert, 16 / 125.44, grad=2)
    published = {8: (1, 7.32 / 8), 32: (8, 3.53 / 4), 128: (8, 13.89 / 16)}
    for name, first, later in (("BERT FP16, 25 MiB", MIB, 25 * MIB), ("BERT FP16, one bucket", None, None)):
        row = [name]
        for n in counts:
            if n in published:
                base, p = published[n]
                e = step(bert16, V100, base, first, later, s) / step(bert16, V100, n, first, later, s)
                row.append(cell(e, p, "D"))
            else:
                row.append("")
        rows.append(row)
    table("Table 2. PyTorch, DGX-1 V100, 4 x 100 Gbit/s for 8 devices: model / published (S1; BERT S7, 32 and 128 to 8) / difference",
          ["devices"] + [str(n) for n in counts], rows)

    # 3. The DDP paper's range. BERT-large in FP32: 8 sequences of 128 at 33.36/s (Q, S7). The paper's batch is N, so
    # that t1 is a stand-in. Published at 256 devices: an iteration takes "100% more time", so 50 % (N).
    bert32 = Work("BERT-large", bert, 8 / 33.36)
    counts = (8, 16, 32, 64, 128, 256)
    rows = []
    for work in (rn50, bert32):
        for name, first, later in (("25 MiB", MIB, 25 * MIB), ("one bucket", None, None)):
            row = [f"{work.name}, {name}"]
            for n in counts:
                e = work.t1 / step(work, V100_ONE, n, first, later, s)
                row.append(cell(e, 0.5, "N") if n == 256 and later else pc(e))
            rows.append(row)
    table("Table 3. The DDP paper's range, V100, one 100 Gbit/s port for 8 devices (N, S3; t1 D, S1 and S7); at 256 / published / difference",
          ["devices"] + [str(n) for n in counts], rows)

    # 4. Horovod. Q, S5: images/s of one device, batch 64; 16 devices: S5; 128: S6; 512: S4. Inception V3 has 96
    # tensors of one size (A).
    rows = []
    for name, layers, rate, published in (
        ("Inception V3", uniform(23.9e6, 96), 134.4, (2022.6 / 134.4 / 16, 0.90, 0.90)),
        ("ResNet-101", resnet101, 119.4, (1746.2 / 119.4 / 16, 0.90, 0.90)),
        ("VGG-16", vgg16(), 130.9, (1787.4 / 130.9 / 16, 0.79, 0.68)),
    ):
        work = Work(name, layers, 64 / rate)
        rows.append([name] + [cell(work.t1 / fused(work, PASCAL, n, s), p, mark)
                              for n, p, mark in zip((16, 128, 512), published, "DQQ")]
                    + [pc(work.t1 / step(work, PASCAL, 512, slowdown=s))])
    table("Table 4. Horovod, 25 Gbit/s for 4 Pascal GPUs, fusion of 64 MB: model / published (S5, S6, S4) / difference",
          ["devices", "16", "128", "512", "512, DDP's buckets"], rows)

    # 5. Predictions. Step times of one H100:
    #   ResNet-50: 64 images at 2600/s (Q, S13, of an A100; A for an H100, as a lower bound of the rate).
    #   BERT-large: 16 x 512 tokens, 6 flops for each parameter and token, at 414 Tflop/s (D, S11: the GPT's rate).
    #   GPT 1.3B: 14 x 2048 tokens at 45455 tokens/s (D, S11: measured on 8 devices); 24 layers of 2048 (A).
    # Gradients of 4 bytes (A).
    bert_params = sum(p for p, _ in bert)
    works = (Work("ResNet-50", resnet50, 64 / 2600),
             Work("BERT-large", bert, 6 * bert_params * 8192 / 414e12),
             Work("GPT 1.3B", transformer(24, 2048, 50368, 2048), 14 * 2048 / 45455))
    rows = []
    for work in works:
        for n, gbit, scale in ((8, 400, 1), (512, 400, 1), (512, 400, 4), (512, 100, 1)):
            m = Machine("", 8, "nvlink", H100.inside, gbit, True, True, scale=scale)  # 8 ports of gbit / 8 GB/s
            rows.append([f"{work.name}, {work.size / MIB:.0f} MiB, {1e3 * work.t1:.1f} ms", n,
                         "none" if n == 8 else f"{gbit}" + (", 4 x latency" if scale > 1 else "")]
                        + [pc(work.t1 / step(work, m, n, MIB, k * MIB, s)) for k in (1, 4, 25, 100)]
                        + [pc(work.t1 / step(work, m, n, None, None, s))])
    table("Table 5. Prediction: H100, NVLink 4 within 8, between nodes a port for each device (network, gradients, t1; port in Gbit/s)",
          ["network", "devices", "port", "1 MiB", "4 MiB", "25 MiB", "100 MiB", "one bucket"], rows)

    payloads = (1, 4, 25, 100, 1024)
    rows = [[name] + [f"{1e3 * f(k * MIB, 512):.2f}" for k in payloads]
            for name, f in (("ring", H100.ring), ("tree", H100.binary_tree), ("hierarchical", H100.hierarchical),
                            ("bound without latency (S9)", lambda b, n: 2 * (n - 1) / n * b / (H100.node_net * GB)))]
    table("Table 6. All-reduce over 512 H100s, 400 Gbit/s for each, by algorithm, milliseconds",
          ["MiB"] + [str(k) for k in payloads], rows)
    print("\nSources" + SOURCES.rstrip())


if __name__ == "__main__":
    main()
