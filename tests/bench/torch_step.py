#!/usr/bin/env python3
"""torch_step.py - the same training step in PyTorch, at the pace of its input (see paced.c, whose protocol it speaks).

    torch_step.py --model '{"dim": 256, ...}' [--compile] [--threads N]

The model is what the recipes of this folder describe: Llama with RMSNorm, grouped-query attention with rotary embedding, SwiGLU;
fp32; scaled_dot_product_attention, clip_grad_norm_, AdamW, cross entropy; new random tokens every step. Where PyTorch offers
several ways (optimizer fused or by foreach; grouped heads or repeated ones) the faster one is taken, found by trying both.
"""
import argparse
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, m, grouped):
        super().__init__()
        self.heads, self.kv, self.d, self.grouped = m["n_heads"], m["n_kv_heads"], m["dim"] // m["n_heads"], grouped
        self.wq = nn.Linear(m["dim"], self.heads * self.d, bias=False)
        self.wk = nn.Linear(m["dim"], self.kv * self.d, bias=False)
        self.wv = nn.Linear(m["dim"], self.kv * self.d, bias=False)
        self.wo = nn.Linear(self.heads * self.d, m["dim"], bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, -1, self.d) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.transpose(1, 2) for t in (rotate(q, cos, sin), rotate(k, cos, sin), v))
        if self.kv != self.heads and not self.grouped:
            k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped and self.kv != self.heads)
        return self.wo(y.transpose(1, 2).reshape(b, s, -1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, m, grouped):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(m["dim"], eps=1e-5), nn.RMSNorm(m["dim"], eps=1e-5)
        self.attention = Attention(m, grouped)
        self.w1, self.w3 = nn.Linear(m["dim"], m["ffn_dim"], bias=False), nn.Linear(m["dim"], m["ffn_dim"], bias=False)
        self.w2 = nn.Linear(m["ffn_dim"], m["dim"], bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, m, grouped):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab_size"], m["dim"])
        self.layers = nn.ModuleList(Block(m, grouped) for _ in range(m["n_layers"]))
        self.norm = nn.RMSNorm(m["dim"], eps=1e-5)
        self.output = nn.Linear(m["dim"], m["vocab_size"], bias=False)
        nn.init.normal_(self.output.weight, std=m["dim"] ** -0.5)
        if m["tied"]:
            self.output.weight = self.embedding.weight
        d = m["dim"] // m["n_heads"]
        angle = torch.outer(torch.arange(m["seq"]).float(), 500000.0 ** (-torch.arange(0, d, 2).float() / d))[:, None, :]
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), labels.flatten(0, 1))


class Run:
    """A model and its optimizer; one call is one step."""

    def __init__(self, m, compiled, grouped, fused):
        torch.manual_seed(0)
        self.m, self.model = m, Llama(m, grouped)
        self.loss = torch.compile(self.model) if compiled else self.model
        self.optimizer(fused)

    def optimizer(self, fused):
        self.adamw = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused,
                                       foreach=not fused)

    def step(self):
        start, cpu = time.perf_counter(), time.process_time()
        rows = torch.randint(0, self.m["vocab_size"], (self.m["rows"], self.m["seq"] + 1))
        loss = self.loss(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        value = loss.item()
        return 1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - cpu), value


def least(run, n=3):
    run.step()
    return min(run.step()[0] for _ in range(n))


def fastest(m, compiled, tries):
    """The quicker way of attention (eager decides; compiling twice would take minutes) and of AdamW."""
    ways = [False] if m["n_kv_heads"] == m["n_heads"] else [False, True]
    grouped = min(ways, key=lambda way: least(Run(m, False, way, True), tries)) if len(ways) > 1 else False
    run = Run(m, compiled, grouped, True)
    times = {}
    for fused in (True, False):
        run.optimizer(fused)
        times[fused] = least(run, tries)
    if times[True] < times[False]:
        run.optimizer(True)
    return run, "%s heads, %s AdamW" % ("grouped" if grouped else "repeated", "fused" if times[True] < times[False] else "foreach")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", type=json.loads, required=True)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--tries", type=int, default=3, help="steps timed for each way of doing it; 0: fused and repeated, untried")
    args = p.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.tries:
        run, how = fastest(args.model, args.compile, args.tries)
    else:
        run, how = Run(args.model, args.compile, False, True), "repeated heads, fused AdamW"
    n = sum(w.numel() for w in run.model.parameters())
    print("ready %d PyTorch %s, %d threads, %s" % (n, torch.__version__, torch.get_num_threads(), how), flush=True)
    for _ in sys.stdin:
        print("%.4f %.4f %.6f" % run.step(), flush=True)


if __name__ == "__main__":
    main()
