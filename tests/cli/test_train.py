#!/usr/bin/env python3
"""Training runs: what they leave behind, how they stop, what they refuse, and that nothing is written when they do."""
# variants: asan
import json
import os
import signal
import struct
import subprocess
import time

from testing import TITAN, TOP, check, done, listing, run, skip, temporary

SMALL = ["model.n_layers=2", "model.dim=32", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=48", "training.seq_len=32",
         "training.local_batch_size=4", "lr_scheduler.warmup_steps=1", "metrics.log_freq=1"]
RECIPE = os.path.join(TOP, "recipes", "llama3_debug.lua")


def train(folder, *settings, **more):
    return run(RECIPE, *SMALL, *settings, cwd=folder, **more)


def refused(name, text, *settings):
    """One line on standard error, exit 2, nothing written."""
    with temporary() as folder:
        open(os.path.join(folder, "empty.txt"), "w").close()
        open(os.path.join(folder, "short.txt"), "w").write("a few words\n")
        open(os.path.join(folder, "text.txt"), "w").write("some words of a line\n" * 400)
        open(os.path.join(folder, "junk.safetensors"), "wb").write(b"\x10\0\0\0\0\0\0\0not json at all.")
        before = listing(folder)
        got = train(folder, *settings)
        check(got.returncode == 2, "%s: exit %d: %s%s" % (name, got.returncode, got.stdout[-300:], got.stderr))
        lines = got.stderr.splitlines()
        check(lines and lines[0].startswith("titan: error: ") and text in lines[0], "%s: says %r" % (name, got.stderr))
        check(listing(folder) == before, "%s: wrote %s" % (name, set(listing(folder)) - set(before)))


def floats(path):
    blob = open(path, "rb").read()
    n = struct.unpack("<Q", blob[:8])[0]
    return json.loads(blob[8:8 + n]), blob[8 + n:]


# --- what a run leaves behind
with temporary() as folder:
    text = os.path.join(folder, "text.txt")
    open(text, "w").write("".join("line %d of a text that says little\n" % i for i in range(3000)))
    got = train(folder, "data.path=" + text, "data.validation=0.1", "training.steps=5", "validation.enable=true", "validation.freq=2",
                "validation.steps=2", "job.dump_folder=out")
    check(got.returncode == 0, "train: exit %d: %s" % (got.returncode, got.stderr))
    check("done: 5 steps" in got.stdout, "train says %r" % got.stdout[-200:])
    check("planned peak" in got.stdout and "measured peak" in got.stdout, "no planned and measured peak: %r" % got.stdout[-400:])
    check(got.stdout.count("step: ") - got.stdout.count("validate step: ") == 5, "log lines: %r" % got.stdout)
    rows = [json.loads(line) for line in open(os.path.join(folder, "out", "metrics.jsonl"))]
    steps = [r for r in rows if "loss" in r]
    check([r["step"] for r in steps] == [1, 2, 3, 4, 5], "metrics.jsonl steps")
    keys = {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_s", "tflops", "mfu", "memory", "data_s"}
    check(all(keys <= set(r) for r in steps), "metrics.jsonl keys: %s" % sorted(steps[0]))
    check([r["step"] for r in rows if "validation_loss" in r] == [1, 2, 4, 5], "validation steps")
    check(steps[-1]["loss"] < steps[0]["loss"], "the loss does not fall")
    for name in ("config.lua", "plan.txt", "final/config.json", "final/model.safetensors"):
        check(os.path.isfile(os.path.join(folder, "out", name)), "no %s" % name)
    header, _ = floats(os.path.join(folder, "out", "final", "model.safetensors"))
    check("model.embed_tokens.weight" in header and header["model.layers.1.mlp.down_proj.weight"]["shape"] == [32, 48], "names of final/")
    again = run(os.path.join(folder, "out", "config.lua"), "job.dump_folder=again", cwd=folder)
    check(again.returncode == 0, "config.lua runs again: %s" % again.stderr)
    same = run("diff", os.path.join(folder, "out"), os.path.join(folder, "again"))
    check(same.returncode == 0 and "IDENTICAL" in same.stdout, "config.lua gives the same run: %s" % same.stdout)
    hf = run(RECIPE, "model={hf='%s'}" % os.path.join(folder, "out", "final"), "data.path=" + text, "data.validation=0", "training.steps=1",
             "training.seq_len=32", "training.local_batch_size=4", "job.dump_folder=hf", cwd=folder)
    if hf.returncode == 2 and "model" in hf.stderr.splitlines()[0]:
        open(os.path.join(folder, "hf.lua"), "w").write(
            'return require("titan").recipe { model = { hf = "out/final" }, data = { path = "text.txt" },\n'
            ' training = { steps = 1, seq_len = 32, local_batch_size = 4 }, job = { dump_folder = "hf" }, device = "cpu" }\n')
        hf = run("hf.lua", cwd=folder)
    check(hf.returncode == 0, "final/ is read back as model.hf: %s" % hf.stderr)
    try:
        import torch
        import transformers
        model = transformers.LlamaForCausalLM.from_pretrained(os.path.join(folder, "out", "final"))
        check(sum(p.numel() for p in model.parameters()) > 0, "transformers loads final/")
    except ImportError:
        skip("transformers loads final/", "not importable here")

# --- stopping
with temporary() as folder:
    for number in (signal.SIGINT, signal.SIGTERM):
        p = subprocess.Popen([TITAN, RECIPE] + SMALL + ["data.source=random", "data.validation=0", "training.steps=1000000", "job.dump_folder=out%d" % number],
                             cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        for _ in range(600):
            time.sleep(0.05)
            path = os.path.join(folder, "out%d" % number, "metrics.jsonl")
            if os.path.exists(path) and os.path.getsize(path) > 200:
                break
        p.send_signal(number)
        out, err = p.communicate(timeout=120)
        check(p.returncode == 128 + number, "signal %d: exit %d: %s" % (number, p.returncode, err))
        check("stopped by signal" in out, "signal %d says %r" % (number, out[-200:]))
        check(all(json.loads(line) for line in open(path)), "metrics.jsonl is whole after signal %d" % number)

# --- a loss that is not finite
with temporary() as folder:
    got = train(folder, "data.source=random", "data.validation=0", "training.steps=60", "optimizer.lr=1e18", "training.max_norm=0",
                "optimizer.name=SGD", "job.dump_folder=out")
    check(got.returncode == 1, "NaN: exit %d: %s" % (got.returncode, got.stderr))
    check("step " in got.stderr and ("first bad tensor" in got.stderr or "not finite" in got.stderr), "NaN says %r" % got.stderr)
    check(not os.path.exists(os.path.join(folder, "out", "final")), "a run that failed has no final/")

# --- what cannot work
refused("no such file", "missing.txt", "data.path=missing.txt")
refused("a folder", "data.path", "data.path=.")
refused("an empty file", "empty.txt", "data.path=empty.txt", "data.validation=0")
refused("too little text", "short.txt", "data.path=short.txt", "data.validation=0")
refused("no glob match", "*.nothing", "data.path=*.nothing")
refused("id beyond the vocabulary", "vocab", "data.path=text.txt", "data.validation=0", "model.vocab_size=64")
refused("junk safetensors", "junk.safetensors", "data.source=batches", "data.path=junk.safetensors", "data.validation=0")
refused("nothing held out", "validation", "data.path=text.txt", "data.validation=0", "validation.enable=true")
refused("global batch", "global_batch_size", "data.source=random", "data.validation=0", "training.global_batch_size=7")
refused("loss chunks", "loss.chunks", "data.source=random", "data.validation=0", "loss.chunks=3")
refused("group without match", "optimizer.groups", "data.source=random", "data.validation=0", 'optimizer.groups={{pattern="nothing"}}')
refused("bad pattern", "regular expression", "data.source=random", "data.validation=0", 'optimizer.groups={{pattern="("}}')
refused("too much memory", "memory: the plan needs", "data.source=random", "data.validation=0", "model.dim=32768", "model.ffn_dim=131072", "model.n_layers=48")
refused("kv heads", "heads", "data.source=random", "data.validation=0", "model.n_kv_heads=3")
refused("no such Hugging Face folder", "nowhere", "model.hf=nowhere", "data.source=random", "data.validation=0")
refused("more steps than batches", "steps", "data.path=text.txt", "data.validation=0", "data.epochs=1", "training.steps=100000")
done("train")
