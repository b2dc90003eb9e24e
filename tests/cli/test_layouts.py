#!/usr/bin/env python3
"""One recipe on many layouts: losses, gradient norms and final weights are those of one rank, to the bit.

Layouts of at most 8 ranks are drawn by a seeded generator so that every pair of settings occurs together, each on two drawn models.
test_layouts.py TITAN [--long] [--seed N] [--count N]
"""
import itertools
import os
import random
import sys

from testing import TOP, check, counts, done, golden, long_form, run, skip, temporary

arguments = sys.argv[2:]


def option(name, default):
    return int(arguments[arguments.index(name) + 1]) if name in arguments else default


SEED = option("--seed", 20261129)
COUNT = option("--count", 60 if long_form else 14)
rng = random.Random(SEED)
print("layouts: seed %d" % SEED)

# the settings of a layout; dp: (dp_replicate, dp_shard)
SETTINGS = {
    "dp": [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (1, 8), (4, 2)],
    "tp": [1, 2, 4],
    "sp": ["true", "false"],
    "microbatch": [1, 2, 4],
    "recompute": ["none", "full", "op", 2],
    "reshard": ["always", "never", 1, 2],
    "chunks": [0, 2, 8],
    "threads": [1, 2],
    "pp": [1, 2, 4],
    "schedule": ["none", "1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "ZBH1", "InterleavedZeroBubble", "ZBVZeroBubble", "table"],
    "rounds": [1, 2],  # forwards of a step, each a run of the schedule; without a pipeline `microbatch` says how many there are
}
SEVERAL = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble")  # two stages per rank
# the shapes of golden/llama, on eight rows; `packed` reads documents, so that ranks have unequal numbers of valid tokens
MODELS = {
    "debug": ["model.n_layers=4"],
    "odd": ["model.dim=64", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=136", "model.n_layers=5", "model.vocab_size=257"],
    "gqa": ["model.dim=96", "model.n_heads=6", "model.n_kv_heads=2", "model.ffn_dim=200", "model.n_layers=3", "model.vocab_size=257"],
    "mqa": ["model.dim=64", "model.n_heads=4", "model.n_kv_heads=1", "model.ffn_dim=172", "model.n_layers=2", "model.vocab_size=200"],
    "tied": ["model.dim=64", "model.n_heads=8", "model.n_kv_heads=4", "model.ffn_dim=172", "model.n_layers=2", "model.tied=true"],
    "packed": ["model.dim=64", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=160", "model.n_layers=2", "model.vocab_size=257",
               "data.source=text", "data.path=" + os.path.join(TOP, "README.md"), "data.document=blank_line", "data.packing=true",
               "data.validation=0.3", "validation.enable=true", "validation.freq=2", "validation.steps=1"],
}
HEADS = ["model.dim=64", "model.n_heads=4", "model.n_kv_heads=4", "model.n_layers=2"]
OPTIMIZERS = {"AdamW": [], "SGD": ["optimizer.name=SGD", "optimizer.momentum=0.9", "training.max_norm=0.05"]}
ROWS = 8
BASE = ["data.source=random", "data.validation=0", "training.steps=5", "training.seq_len=64", "training.global_batch_size=%d" % ROWS, "metrics.log_freq=1",
        "lr_scheduler.warmup_steps=2", "optimizer.lr=0.01"]


def n_ranks(layout):
    return layout["dp"][0] * layout["dp"][1] * layout["tp"] * layout["pp"]


def legal(layout):
    per_rank = ROWS // (layout["dp"][0] * layout["dp"][1])
    if n_ranks(layout) > 8 or layout["microbatch"] > per_rank or (layout["tp"] == 1 and layout["sp"] == "false"):
        return False
    if layout["reshard"] in (1, 2) and layout["dp"][1] % layout["reshard"]:
        return False
    if (layout["pp"] == 1) != (layout["schedule"] == "none") or (layout["pp"] == 1 and layout["rounds"] > 1):
        return False
    if layout["pp"] > 1:
        microbatches, rest = divmod(per_rank, layout["microbatch"] * layout["rounds"])
        if rest or not microbatches or (layout["schedule"] == "table" and layout["pp"] != 2):
            return False
        if layout["schedule"] in SEVERAL and (layout["pp"] == 4 or microbatches % layout["pp"]):
            return False
    return layout["chunks"] <= layout["microbatch"] * 8 and (layout["chunks"] == 0 or layout["chunks"] % layout["microbatch"] == 0 or
                                                             layout["microbatch"] % layout["chunks"] == 0)


def draw(count):
    """Greedy pairwise cover, then random layouts up to the count."""
    names = sorted(SETTINGS)
    every = [l for l in (dict(zip(names, v)) for v in itertools.product(*(SETTINGS[n] for n in names))) if legal(l)]
    pairs = lambda l: {(a, str(l[a]), b, str(l[b])) for a, b in itertools.combinations(names, 2)}
    missing = set().union(*(pairs(l) for l in every))
    chosen = []
    while missing and len(chosen) < count:
        sample = rng.sample(every, min(200, len(every)))
        best = max(sample, key=lambda l: len(pairs(l) & missing))
        if not pairs(best) & missing:
            best = max(every, key=lambda l: len(pairs(l) & missing))
        missing -= pairs(best)
        chosen.append(best)
    while len(chosen) < count:
        chosen.append(rng.choice(every))
    return chosen, len(missing)


def table(microbatches):
    """A schedule of one's own: all forwards, then backward and weight gradients apart, two at a time."""
    rows = []
    for stage in range(2):
        row = ["%dF%d" % (stage, m) for m in range(microbatches)]
        for m in range(0, microbatches, 2):
            pair = range(m, min(m + 2, microbatches))
            row += ["%dI%d" % (stage, k) for k in pair] + ["%dW%d" % (stage, k) for k in pair]
        rows.append("{%s}" % ",".join('"%s"' % a for a in row))
    return "{%s}" % ",".join(rows)


def pipeline(layout):
    if layout["pp"] == 1:
        return ["training.local_batch_size=%d" % layout["microbatch"]]
    local = ROWS // (layout["dp"][0] * layout["dp"][1] * layout["rounds"])
    schedule = table(local // layout["microbatch"]) if layout["schedule"] == "table" else layout["schedule"]
    return ["parallelism.pp=%d" % layout["pp"], "training.local_batch_size=%d" % local,
            "parallelism.pipeline_parallel_microbatch_size=%d" % layout["microbatch"],
            "parallelism.pipeline_parallel_schedule=%s" % schedule]


def settings(layout):
    return pipeline(layout) + ["parallelism.dp_replicate=%d" % layout["dp"][0], "parallelism.dp_shard=%d" % layout["dp"][1], "parallelism.tp=%d" % layout["tp"],
            "parallelism.enable_sequence_parallel=" + layout["sp"],
            "activation_checkpoint.mode=" + (layout["recompute"] if layout["recompute"] in ("none", "full") else "selective"),
            "activation_checkpoint.selective_ac_option=%s" % (layout["recompute"] if layout["recompute"] in ("op", 2) else "op"),
            "parallelism.fsdp_reshard_after_forward=%s" % layout["reshard"], "loss.chunks=%d" % layout["chunks"], "device.threads=%d" % layout["threads"]]


with temporary() as folder:
    chosen, left = draw(COUNT)
    print("layouts: %d drawn, %d pairs of settings left out" % (len(chosen), left))
    for model in MODELS:
        for optimizer in OPTIMIZERS:
            got = run("recipes/llama3_debug.lua", *BASE, *MODELS[model], *OPTIMIZERS[optimizer], "training.local_batch_size=%d" % ROWS,
                      "job.dump_folder=" + os.path.join(folder, model + optimizer))
            check(got.returncode == 0, "one rank, %s, %s: %s" % (model, optimizer, got.stderr))
    for i, layout in enumerate(chosen):
        optimizer = sorted(OPTIMIZERS)[i % 2]
        for model in rng.sample(sorted(MODELS), 2):
            ranks = n_ranks(layout)
            other = os.path.join(folder, "other")
            words = settings(layout)
            got = run("-n", ranks, "recipes/llama3_debug.lua", *BASE, *MODELS[model], *OPTIMIZERS[optimizer], *words, "job.dump_folder=" + other, timeout=300)
            name = "%s %s -n %d %s" % (model, optimizer, ranks, " ".join(words))
            if not check(got.returncode == 0, "%s: exit %d: %s" % (name, got.returncode, got.stderr)):
                continue
            same = run("diff", os.path.join(folder, model + optimizer), other)
            check(same.returncode == 0 and same.stdout.startswith("IDENTICAL"), "%s: %s" % (name, same.stdout))

    # what the draws leave out: as many query heads as one key/value head has elements, and a stage that holds the head without its norm
    for model, layouts in [
            (["model.n_heads=8", "model.n_kv_heads=1", "model.dim=64", "model.n_layers=1"], [(2, ["parallelism.tp=2"])]),
            (["model.n_heads=8", "model.n_kv_heads=2", "model.dim=32", "model.n_layers=1"], [(4, ["parallelism.tp=4"])]),
            (["model.dim=64", "model.n_heads=4", "model.n_kv_heads=2", "model.n_layers=2"],
             [(2, ["parallelism.pp=2", 'parallelism.module_fqns_per_model_part={{"tok_embeddings","layers.0","layers.1","norm"},{"output"}}'])])]:
        one, other = os.path.join(folder, "alone"), os.path.join(folder, "other")
        got = run("recipes/llama3_debug.lua", *BASE, *model, "job.dump_folder=" + one)
        check(got.returncode == 0, "one rank, %s: %s" % (model, got.stderr))
        for ranks, words in layouts:
            got = run("-n", ranks, "recipes/llama3_debug.lua", *BASE, *model, *words, "job.dump_folder=" + other)
            check(got.returncode == 0, "%s %s: %s" % (model, words, got.stderr))
            same = run("diff", one, other)
            check(same.stdout.startswith("IDENTICAL"), "%s %s: %s" % (model, words, same.stdout))

    # golden values on several ranks: the tolerances of one, and the file of one
    for case in ["llama/mha", "llama/odd"] + (["llama/gqa", "llama/tied", "llama/packed", "llama/sgd"] if long_form else []):
        where = golden(case)
        if not where:
            continue
        a, b = os.path.join(folder, "a.safetensors"), os.path.join(folder, "b.safetensors")
        check(run("parity", where, "--out", a).returncode == 0, "parity %s" % case)
        for ranks, words in [(2, ["parallelism.tp=2"]), (4, ["parallelism.tp=4"]), (2, []), (4, ["parallelism.tp=2"]),
                             (2, ["parallelism.pp=2"]), (8, ["parallelism.pp=2", "parallelism.tp=2", "parallelism.dp_replicate=2"])]:
            got = run("parity", where, "-n", ranks, *words, "--out", b)
            if not check(got.returncode == 0, "parity %s -n %d %s: %s%s" % (case, ranks, words, got.stdout, got.stderr)):
                continue
            check(open(a, "rb").read() == open(b, "rb").read(), "parity %s -n %d %s changes a bit" % (case, ranks, words))

    # layouts that cannot work: every reason, the nearest legal value, exit 2, nothing written
    wrong = [
        (3, ["parallelism.tp=2"], "3 ranks"),
        (1, ["parallelism.tp=2"], "the run has 1 rank"),
        (4, ["parallelism.tp=3"], "tp 3"),
        (3, ["parallelism.tp=3", "parallelism.dp_shard=1"], "keeps no bits"),
        (3, [], "3 data-parallel ranks keep no bits"),
        (8, ["parallelism.tp=8"], "cannot split 4 query heads; the nearest is 4"),
        (2, ["training.global_batch_size=9", "training.local_batch_size=3"], "not a multiple"),
        (2, ["debug.reduce_grid={1,8,8}", "parallelism.tp=2"], "debug.reduce_grid.tp = 1"),
        (2, ["debug.reduce_grid={8,1,8}", "parallelism.tp=2"], "debug.reduce_grid.seq = 1"),
        (2, ["debug.reduce_grid={8,8,1}"], "debug.reduce_grid.rows = 1"),
        (4, ["training.local_batch_size=2", "parallelism.fsdp_reshard_after_forward=3"], "groups of 3 ranks do not divide data_parallel_shard_degree 4; the nearest is 2"),
        (2, ["parallelism.cp=2"], "context_parallel_degree"),
        (8, ["parallelism.pp=8"], "pipeline_parallel_degree"),
    ]
    for ranks, words, text in wrong:
        out = os.path.join(folder, "wrong")
        base = [w for w in BASE if not any(w.split("=")[0] == x.split("=")[0] for x in words)]
        got = run("-n", ranks, "recipes/llama3_debug.lua", *base, *HEADS, *words, "job.dump_folder=" + out)
        check(got.returncode == 2 and text in got.stderr and not os.path.exists(out), "-n %d %s: exit %d: %s" % (ranks, words, got.returncode, got.stderr))
done("layouts")
