#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Training steps of a GPT-2 in plain PyTorch on random tokens, timed: what bench/compare
holds Weft against.

    bench/torch_gpt2.py --batch 4 --seq 64 --threads 1 --steps 6 [--dtype bf16] [--json FILE]

The model is nanoGPT's: pre-layer-norm, learned positions, tied embedding with the
vocabulary padded to 128, attention by two matrix products and a softmax (PyTorch 1.13 has
no other on CPUs), GELU in its tanh form, AdamW. Nothing in here is tuned; what can be
tuned from outside (allocator, instruction sets) is bench/compare's matter.

bf16 is torch.autocast: products and attention in bf16, everything else in fp32.
"""
import argparse
import json
import math
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

WARM_UP = 2  # the first step touches memory, the second that of the optimizer


class Block(nn.Module):
    def __init__(self, C, H, T):
        super().__init__()
        self.H = H
        self.ln1 = nn.LayerNorm(C)
        self.qkv = nn.Linear(C, 3 * C)
        self.attproj = nn.Linear(C, C)
        self.ln2 = nn.LayerNorm(C)
        self.fc = nn.Linear(C, 4 * C)
        self.fcproj = nn.Linear(4 * C, C)
        self.register_buffer("future", torch.ones(T, T).triu(1).bool().view(1, 1, T, T),
                             persistent=False)

    def attention(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.H, C // self.H).transpose(1, 2)
                   for part in self.qkv(x).split(C, dim=2))
        scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(C // self.H))
        scores = scores.masked_fill(self.future[:, :, :T, :T], -math.inf)
        y = functional.softmax(scores, dim=-1) @ v
        return self.attproj(y.transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.fcproj(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, L, H, C, T, V):
        super().__init__()
        padded = (V + 127) // 128 * 128
        self.wte = nn.Embedding(padded, C)
        self.wpe = nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, H, T) for _ in range(L))
        self.lnf = nn.LayerNorm(C)
        for name, p in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * L))
            elif p.dim() == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.lnf(x), self.wte.weight)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def train(args):
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    model = GPT2(args.L, args.H, args.C, args.T, args.V)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95))
    step_s, cpu_s, losses = [], [], []
    for _ in range(WARM_UP + args.steps):
        tokens = torch.randint(args.V, (args.batch, args.seq))
        targets = torch.randint(args.V, (args.batch, args.seq))
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        step_s.append(time.perf_counter() - start_s)
        cpu_s.append(time.process_time() - start_cpu_s)
    return step_s[WARM_UP:], cpu_s[WARM_UP:], losses


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("L", 12), ("H", 12), ("C", 768), ("T", 1024), ("V", 50257)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--json")
    args = p.parse_args()
    step_s, cpu_s, losses = train(args)
    figures = {"torch": torch.__version__, "dtype": args.dtype, "threads": args.threads,
               "step_s": step_s, "cpu_s": cpu_s, "first_loss": losses[0],
               "last_loss": losses[-1],
               "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    tokens = args.batch * args.seq
    print(f"PyTorch {torch.__version__} {args.dtype}: {statistics.median(step_s):.4g} s a "
          f"step, {tokens / statistics.median(step_s):.1f} tokens/s, loss {losses[0]:.4f} "
          f"to {losses[-1]:.4f}, {figures['peak_bytes'] / 1e6:.0f} MB")
    if args.json:
        with open(args.json, "w", encoding="ascii") as f:
            json.dump(figures, f, indent=1)


if __name__ == "__main__":
    main()
