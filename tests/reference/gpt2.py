"""Makes `gpt2/`: a small random GPT-2 as Hugging Face publishes it, and what their code computes with it.

    python3 -m venv venv && venv/bin/pip install numpy safetensors torch transformers
    venv/bin/python tests/reference/gpt2.py

`model.safetensors`, `config.json`, `vocab.json` and `merges.txt` have the published form. `expected.npz` has a batch
`tokens`, its `logits`, its `loss`, some gradients by name, and the tokens that `generate(do_sample=False)` writes after
`prompt`. `texts.json` has texts and their tokens. transformers 5.24, tokenizers 0.23 and PyTorch 2.15 wrote the present
files.
"""

import json
import pathlib

import numpy as np
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel

GRADIENTS = [
    "wte.weight",
    "wpe.weight",
    "h.0.ln_1.weight",
    "h.0.attn.c_attn.weight",
    "h.1.attn.c_proj.weight",
    "h.1.mlp.c_fc.bias",
    "ln_f.bias",
]
TEXTS = [
    "",
    "a",
    "The quick brown fox's cache isn't what they'll've said: 1,234.5 bytes!",
    "  two spaces,\ttabs\t\tand\n\nlines  \n with ends   ",
    "let x = cache_scope!(\"step\", { a + b })?; // 100%",
    "'tis we're' '  's ''ll I'd",
    "Grüße, naïve café \u2013 ½ ③ 数据 данные 🦀🦀 e\u0301",
    "\u00a0\u3000no break\u00a0space \r\n\x00\x7f\u0085",
]

folder = pathlib.Path(__file__).parent / "gpt2"
torch.manual_seed(7)
config = GPT2Config(vocab_size=300, n_positions=16, n_embd=32, n_layer=2, n_head=2)
config.bos_token_id = config.eos_token_id = None
model = GPT2LMHeadModel(config).eval()
for parameter in model.parameters():
    # Larger than the initial values, so that each part changes the logits.
    parameter.data += 0.2 * torch.randn_like(parameter)
model.transformer.save_pretrained(folder)

tokens = torch.randint(0, 300, (2, 16))
result = model(tokens, labels=tokens)
result.loss.backward()
prompt = torch.tensor([[5, 11, 2]])
written = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_length=16, do_sample=False)
named = dict(model.transformer.named_parameters())
out = {"tokens": tokens, "logits": result.logits.detach(), "loss": result.loss.detach()}
out |= {"prompt": prompt[0], "written": written[0, 3:]}
out |= {f"{name}_gradient": named[name].grad for name in GRADIENTS}
np.savez_compressed(folder / "expected.npz", **{name: value.numpy() for name, value in out.items()})

tokenizer = ByteLevelBPETokenizer()
tokenizer.train([str(folder.parents[2] / "examples" / "data" / "loop.txt")], vocab_size=300, show_progress=False)
tokenizer.save_model(str(folder))
texts = [[text, tokenizer.encode(text).ids] for text in TEXTS]
(folder / "texts.json").write_text(json.dumps(texts) + "\n")
