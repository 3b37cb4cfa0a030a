"""The networks that record.py trains: each is built, and then takes steps on random inputs of the usual shapes.

Everything is of torch.nn alone. A task is a function that returns the parameters' optimizer and a function of a step's
number, which computes the loss.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if same else short

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet50(batch=16, side=224):
    """ResNet-50 on images, SGD with momentum."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(depth):
            layers.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    def loss(_step):
        images, labels = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
        return F.cross_entropy(model(images), labels)

    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), loss


class Layer(nn.Module):
    """A layer of a transformer, normalized before each half."""

    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def attend(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        if self.is_causal:
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        mixed = self.drop(scores.softmax(-1)) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.drop(self.attend(self.first(x)))
        return x + self.drop(self.narrow(F.gelu(self.wide(self.second(x)))))


class Language(nn.Module):
    """Words in, a score for each word of the vocabulary out."""

    def __init__(self, vocabulary, longest, width, heads, depth, is_causal):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.layers = nn.Sequential(*(Layer(width, heads, is_causal) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, words):
        return self.head(self.layers(self.words(words) + self.places(torch.arange(words.shape[1]))))


def gpt(batch=4, length=512, vocabulary=16384):
    """A small GPT: 8 layers of 512, AdamW."""
    model = Language(vocabulary, length, 512, 8, 8, is_causal=True)

    def loss(_step):
        words = torch.randint(vocabulary, (batch, length + 1))
        return F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

    return torch.optim.AdamW(model.parameters(), lr=3e-4), loss


def encoder(batch=16, vocabulary=8192):
    """A text encoder of 6 layers of 384, AdamW, the longest sentence of the batch another in each step."""
    lengths = (96, 233, 171, 310, 64, 275, 142, 201)
    model = Language(vocabulary, 512, 384, 6, 6, is_causal=False)

    def loss(step):
        words = torch.randint(vocabulary, (batch, lengths[step % len(lengths)]))
        return F.cross_entropy(model(words).flatten(0, 1), words.flatten())

    return torch.optim.AdamW(model.parameters(), lr=3e-4), loss


class Patches(nn.Module):
    def __init__(self, side, patch, width, heads, depth):
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads, False) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 1000)

    def forward(self, images):
        x = self.cut(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


def vit(batch=16, side=224):
    """ViT-S/16 on images, AdamW."""
    model = Patches(side, 16, 384, 6, 12)

    def loss(_step):
        images, labels = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
        return F.cross_entropy(model(images), labels)

    return torch.optim.AdamW(model.parameters(), lr=3e-4), loss


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        widths = [width << level for level in range(depth)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(double(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(reversed(self.up), reversed(self.join)):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.out(x)


def unet(batch=4, side=192):
    """A U-Net of five levels that removes noise from images, AdamW."""
    model = UNet(32, 5)

    def loss(_step):
        images = torch.randn(batch, 3, side, side)
        noise = torch.randn_like(images)
        return F.mse_loss(model(images + noise), noise)

    return torch.optim.AdamW(model.parameters(), lr=3e-4), loss


class Recurrent(nn.Module):
    def __init__(self, vocabulary, width, depth):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, words):
        states = [None] * len(self.cells)
        outputs = []
        for x in self.words(words).unbind(1):
            for level, cell in enumerate(self.cells):
                states[level] = cell(x, states[level])
                x = states[level][0]
            outputs.append(x)
        return self.head(torch.stack(outputs, 1))


def lstm(batch=64, vocabulary=8192):
    """Two LSTM cells of 512 unrolled over sentences, whose length is another in each step, SGD with clipped gradients."""
    lengths = (48, 91, 67, 113)
    model = Recurrent(vocabulary, 512, 2)

    def loss(step):
        words = torch.randint(vocabulary, (batch, lengths[step % len(lengths)] + 1))
        return F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), loss


def tiny(batch=32):
    """Three dense layers, AdamW: a recording for tests."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    def loss(_step):
        return F.cross_entropy(model(torch.randn(batch, 64)), torch.randint(10, (batch,)))

    return torch.optim.AdamW(model.parameters(), lr=1e-3), loss


# The task and its steps.
TASKS = {
    "resnet50": (resnet50, 3),
    "gpt": (gpt, 3),
    "encoder": (encoder, 6),
    "vit": (vit, 3),
    "unet": (unet, 3),
    "lstm": (lstm, 4),
    "tiny": (tiny, 2),
}
