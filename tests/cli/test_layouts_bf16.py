#!/usr/bin/env python3
"""bf16 on the CPU: one recipe gives the same losses, gradient norms and final weights, to the bit, for every instruction set,
number of threads, microbatch split, recompute mode and layout; it learns, and its losses stay near those of float32.

test_layouts_bf16.py TITAN [--long] [--seed N]
"""
import json
import os
import random
import re
import sys

from testing import check, done, long_form, run, skip, temporary

SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 20261130
rng = random.Random(SEED)
BF16 = "training.mixed_precision_param=bfloat16"
MODELS = {  # the last two share key/value heads between ranks
    "mha": ["model.dim=64", "model.n_heads=4", "model.n_kv_heads=4", "model.ffn_dim=136", "model.n_layers=2", "model.vocab_size=257"],
    "gqa": ["model.dim=96", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=200", "model.n_layers=2", "model.vocab_size=257"],
    "mqa": ["model.dim=64", "model.n_heads=4", "model.n_kv_heads=1", "model.ffn_dim=172", "model.n_layers=2", "model.vocab_size=200"],
}
BASE = ["data.source=random", "training.steps=4", "training.seq_len=64", "training.global_batch_size=8", "metrics.log_freq=1",
        "lr_scheduler.warmup_steps=1", "optimizer.lr=0.01", BF16]
ALONE = [
    ["device.threads=1"],
    ["device.threads=2"],
    ["device.isa=avx2"],
    ["device.isa=portable"],
    ["training.local_batch_size=1"],
    ["training.local_batch_size=2", "device.threads=1", "loss.chunks=8"],
    ["activation_checkpoint.mode=full"],
    ["training.local_batch_size=4", "activation_checkpoint.mode=full", "device.isa=portable"],
]
# (pp, dp_replicate, dp_shard, tp): every pair of axes together, and each alone
MESHES = [(1, 1, 2, 1), (1, 2, 1, 1), (1, 1, 1, 2), (1, 1, 1, 4), (1, 1, 2, 2), (1, 2, 1, 2), (1, 2, 2, 1), (1, 1, 4, 1), (1, 4, 1, 1),
          (1, 2, 2, 2), (1, 1, 2, 4), (1, 1, 4, 2), (2, 1, 1, 1), (2, 1, 2, 1), (2, 1, 1, 2), (2, 1, 2, 2)]


def usable(words):
    for word in words:
        if word.startswith("device.isa=") and "does not run" in run("plan", "recipes/llama3_debug.lua", "data.source=random", word).stderr:
            return False
    return True


def train(ranks, model, words, folder):
    if not any(w.startswith("training.local_batch_size") for w in words):
        words = words + ["training.local_batch_size=8"]
    got = run("-n", ranks, "recipes/llama3_debug.lua", *BASE, *MODELS[model], *words, "job.dump_folder=" + folder, timeout=300)
    return check(got.returncode == 0 and "done: 4 steps" in got.stdout, "%s -n %d %s: exit %d: %s" % (
        model, ranks, " ".join(words), got.returncode, got.stderr))


def same(model, one, other, name):
    got = run("diff", one, other)
    check(got.returncode == 0 and got.stdout.startswith("IDENTICAL"), "%s %s: %s" % (model, name, got.stdout))


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [json.loads(line)["loss"] for line in f if '"loss"' in line]


with temporary() as folder:
    print("layouts in bf16: seed %d" % SEED)
    one = {model: os.path.join(folder, model) for model in MODELS}
    other = os.path.join(folder, "other")
    for model in MODELS:
        train(1, model, [], one[model])
    for words in ALONE:
        if not usable(words):
            skip(" ".join(words), "this machine does not run it")
        elif train(1, "gqa", words, other):
            same("gqa", one["gqa"], other, " ".join(words))
    drawn = MESHES * (3 if long_form else 1)
    for i, (pp, replicate, shard, tp) in enumerate(drawn):
        model = sorted(MODELS)[i % 3]
        rows = rng.choice([r for r in (1, 2, 4) if r * replicate * shard <= 8])
        words = ["parallelism.pp=%d" % pp, "parallelism.dp_replicate=%d" % replicate, "parallelism.dp_shard=%d" % shard, "parallelism.tp=%d" % tp,
                 "parallelism.enable_sequence_parallel=" + rng.choice(["true", "false"] if tp > 1 else ["true"]),
                 "training.local_batch_size=%d" % rows, "activation_checkpoint.mode=" + rng.choice(["none", "full"]), "device.threads=1"]
        if train(pp * replicate * shard * tp, model, words, other):
            same(model, one[model], other, " ".join(words))

    # fast mode: other bits, the same run; odd widths fall back to the ordered kernels
    for words in (["parallelism.tp=1"], ["parallelism.tp=2"], ["parallelism.tp=1", "model.dim=72", "model.ffn_dim=135"]):
        near = os.path.join(folder, "near")
        if train(1, "mha", words[1:], near) and train(2, "mha", words + ["debug.reduce=fast", "training.local_batch_size=2"], other):
            a, b = losses(near), losses(other)
            check(len(a) == len(b) and all(abs(x - y) < 0.01 * x for x, y in zip(a, b)), "fast %s: %s and %s" % (words, a, b))

    # another precision is another run
    train(1, "mha", ["training.mixed_precision_param=float32"], other)
    got = run("diff", one["mha"], other)
    check(got.returncode == 1 and "DIFFERENT" in got.stdout, "float32 gives the bits of bfloat16: %s" % got.stdout)

    # it learns, as float32 does
    curve = {}
    text = os.path.join(folder, "text.txt")
    with open(text, "w") as f:
        for k in range(3000):
            f.write("the number after %d is %d, and %d more make %d\n" % (k, k + 1, k % 7, k + k % 7))
    for name in ("float32", "bfloat16"):
        out = os.path.join(folder, name)
        got = run("recipes/llama3_debug.lua", "data.path=" + text, "data.validation=0.02", "validation.enable=true", "validation.freq=20",
                  "validation.steps=2", "training.steps=40", "training.seq_len=64", "training.local_batch_size=4", "model.n_layers=2",
                  "model.dim=128", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=320", "metrics.log_freq=1", "optimizer.lr=0.003",
                  "lr_scheduler.warmup_steps=5", "training.mixed_precision_param=" + name, "job.dump_folder=" + out)
        if check(got.returncode == 0, "%s: exit %d: %s" % (name, got.returncode, got.stderr)):
            curve[name] = losses(out)
            curve["validation of " + name] = [float(x) for x in re.findall(r"^validate step:.*? loss:\s*([0-9.]+)", got.stdout, re.M)]
    if len(curve) == 4:
        a, b = curve["float32"], curve["bfloat16"]
        check(len(a) == len(b) == 40, "%d and %d losses" % (len(a), len(b)))
        far = max(abs(x - y) / x for x, y in zip(a, b))
        check(far < 0.03, "bfloat16 is %.1f %% away from float32" % (100 * far))
        check(b[-1] < 0.6 * b[0], "the loss falls from %.3f to %.3f only" % (b[0], b[-1]))
        v, w = curve["validation of float32"], curve["validation of bfloat16"]
        check(len(v) == len(w) >= 1 and all(abs(x - y) < 0.03 * x for x, y in zip(v, w)), "validation: %s and %s" % (v, w))
done("layouts in bf16")
