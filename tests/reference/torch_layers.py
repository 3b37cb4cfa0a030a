"""Makes `layers.npz`: the values and gradients of PyTorch's layers, for the layers of `grad::nn`.

    python3 -m venv venv && venv/bin/pip install numpy torch
    venv/bin/python tests/reference/torch_layers.py

For each case, named as in `tests/operations/tests/grad/torch_layers.rs`, the file has `x`, the parameters, the result
`y`, the `weights` of the loss (y * weights).sum(), and the gradients of that loss. PyTorch 2.15 wrote the present file.
"""

import pathlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(7)
out = {}


def rand(*shape):
    """Multiples of 1/8, which take little space in the file."""
    return torch.randn(*shape, generator=generator).mul(4).round().div(8)


def case(name, module, x, run=None):
    parameters = {} if module is None else dict(module.named_parameters())
    for own in parameters.values():
        own.data = rand(*own.shape)
    values = {key: own.detach().clone() for key, own in parameters.items()}
    x = x.clone().requires_grad_(True)
    y = (run or module)(x)
    weights = rand(*y.shape)
    (y * weights).sum().backward()
    values |= {"x": x.detach(), "y": y.detach(), "weights": weights, "x_gradient": x.grad}
    values |= {f"{key}_gradient": own.grad for key, own in parameters.items()}
    out.update({f"{name}.{key}": value.numpy().copy() for key, value in values.items()})


gru = nn.GRU(3, 4, batch_first=True)
case("gru", gru, rand(2, 5, 3), lambda x: gru(x)[0])
lstm = nn.LSTM(3, 4, batch_first=True)
case("lstm", lstm, rand(2, 5, 3), lambda x: torch.cat(lstm(x)[1], 0))
norm = nn.BatchNorm2d(3)
case("batch_norm", norm, rand(4, 3, 2, 3))
out["batch_norm.running_mean"], out["batch_norm.running_var"] = norm.running_mean.numpy(), norm.running_var.numpy()
case("group_norm", nn.GroupNorm(2, 6), rand(2, 6, 2, 3))
transposed = nn.ConvTranspose2d(
    4, 6, [3, 2], stride=[2, 3], padding=[1, 0], output_padding=[1, 2], dilation=[2, 1], groups=2
)
case("conv_transpose", transposed, rand(2, 4, 3, 4))
case("conv_transpose_cut", nn.ConvTranspose2d(2, 3, [1, 2], padding=[1, 2]), rand(1, 2, 4, 5))
for size in ([7, 5], [2, 3], [4, 4]):
    text = "x".join(map(str, size))
    case(f"nearest_{text}", None, rand(1, 2, 4, 4), lambda x: F.interpolate(x, size, mode="nearest"))
    case(f"bilinear_{text}", None, rand(1, 2, 4, 4), lambda x: F.interpolate(x, size, mode="bilinear"))
    case(f"adaptive_avg_{text}", None, rand(1, 2, 8, 6), lambda x: F.adaptive_avg_pool2d(x, size))
distinct = torch.randperm(2 * 6 * 7, generator=generator).double().reshape(1, 2, 6, 7)
case("max_pool", None, distinct, lambda x: F.max_pool2d(x, [3, 2], [2, 2], [1, 1]))
case("adaptive_max", None, distinct, lambda x: F.adaptive_max_pool2d(x, [4, 3]))
case("avg_pool", None, rand(1, 2, 6, 7), lambda x: F.avg_pool2d(x, [3, 2], [2, 2], [1, 1]))
case(
    "avg_pool_inside",
    None,
    rand(1, 2, 6, 7),
    lambda x: F.avg_pool2d(x, [3, 2], [2, 2], [1, 1], count_include_pad=False),
)
np.savez_compressed(pathlib.Path(__file__).parent / "layers.npz", **out)
