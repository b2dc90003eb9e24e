#!/usr/bin/env python3
"""The same bits: threads, instruction sets, microbatch splits, recompute and loss chunks leave every loss, gradient norm and final
weight of a training run as they are, and every value that parity computes."""
import os

from testing import TOP, check, done, golden, long_form, run, skip, temporary

MODEL = ["model.n_layers=2", "model.vocab_size=257", "model.dim=64", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=136"]
BASE = ["data.source=random", "data.validation=0", "training.steps=4", "training.seq_len=64", "training.global_batch_size=8",
        "metrics.log_freq=1", "lr_scheduler.warmup_steps=1"]
VARIANTS = [
    ["device.threads=1"],
    ["device.threads=3"],
    ["device.isa=avx2"],
    ["device.isa=portable"],
    ["training.local_batch_size=1"],
    ["training.local_batch_size=2", "device.threads=1"],
    ["activation_checkpoint.mode=full"],
    ["training.local_batch_size=4", "activation_checkpoint.mode=full", "device.isa=portable", "loss.chunks=8"],
    ["training.local_batch_size=1", "loss.chunks=4"],
    ["activation_checkpoint.mode=selective"],
    ["training.local_batch_size=2", "activation_checkpoint.mode=selective", "activation_checkpoint.selective_ac_option=2"],
]


def usable(variant):
    for word in variant:
        if word.startswith("device.isa="):
            got = run("plan", "recipes/llama3_debug.lua", "data.source=random", word)
            return "does not run" not in got.stderr
    return True


def train(folder, settings):
    got = run("recipes/llama3_debug.lua", *MODEL, *BASE, *settings, "job.dump_folder=" + folder)
    check(got.returncode == 0 and "done: 4 steps" in got.stdout, "train %s: exit %d: %s" % (settings, got.returncode, got.stderr))


with temporary() as folder:
    for name, more in [("AdamW", []), ("SGD", ["optimizer.name=SGD", "optimizer.momentum=0.9", "training.max_norm=0.1"])]:
        reference = os.path.join(folder, name)
        train(reference, more + ["training.local_batch_size=8"])
        for i, variant in enumerate(VARIANTS if long_form or name == "AdamW" else VARIANTS[3:5]):
            if not usable(variant):
                skip(" ".join(variant), "this machine does not run it")
                continue
            other = os.path.join(folder, "%s-%d" % (name, i))
            train(other, more + (variant if any("local_batch" in w for w in variant) else variant + ["training.local_batch_size=8"]))
            got = run("diff", reference, other)
            check(got.returncode == 0 and got.stdout.startswith("IDENTICAL"), "%s %s: %s" % (name, variant, got.stdout))
    # diff sees what differs
    train(os.path.join(folder, "seed"), ["training.seed=7", "training.local_batch_size=8"])
    got = run("diff", os.path.join(folder, "AdamW"), os.path.join(folder, "seed"))
    check(got.returncode == 1 and "DIFFERENT: step 1: loss" in got.stdout, "diff of two seeds: exit %d: %s" % (got.returncode, got.stdout))

    for case in ["llama/mha", "llama/odd"] + (["llama/gqa", "llama/tied", "llama/packed"] if long_form else []):
        where = golden(case)
        if not where:
            continue
        a, b = os.path.join(folder, "a.safetensors"), os.path.join(folder, "b.safetensors")
        check(run("parity", where, "--out", a).returncode == 0, "parity %s" % case)
        for variant in (["device.isa=portable", "device.threads=1"], ["training.local_batch_size=1", "activation_checkpoint.mode=full"]):
            check(run("parity", where, *variant, "--out", b).returncode == 0, "parity %s %s" % (case, variant))
            check(open(a, "rb").read() == open(b, "rb").read(), "parity %s: %s changes a bit" % (case, variant))
done("bits")
