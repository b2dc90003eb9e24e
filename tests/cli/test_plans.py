#!/usr/bin/env python3
"""`titan plan` works for every recipe that is shipped, and leaves nothing behind; the large ones on the clusters they are made for:
every rank class, its peak, its bytes by collective and axes, bubble and step; and the questions about one rank, value or move."""
import glob
import json
import os
import resource

from testing import TOP, check, done, listing, run, temporary

MUST_S, GOAL_S, RATIO = 1.0, 0.25, 1.005
AXES = {"dp_replicate": "dp_replicate", "dp_shard": "dp_shard", "cp": "cp", "tp": "tp", "pp": "pp"}
H100 = 989e12

# name of the recipe, ranks, settings, pipeline schedule's bubble (p - 1) / (v m) or None
LARGE = [
    ("405b", 512, ["tp=8", "pp=8", "dp_shard=8"], 7 / 2),
    ("405b", 512, ["tp=8", "pp=8", "dp_shard=8", "training.local_batch_size=16"], 7 / 16),
    ("405b", 512, ["tp=8", "pp=8", "dp_shard=8", "debug.reduce=canonical"], 7 / 2),
    ("405b", 512, ["tp=8", "pp=8", "dp_shard=8", "training.local_batch_size=16", "pipeline_parallel_schedule=Interleaved1F1B"], 7 / 32),
    ("70b", 256, ["tp=8", "dp_shard=32"], None),
    ("70b", 512, ["tp=8", "pp=4", "dp_shard=16", "training.seq_len=8192", "training.global_batch_size=1024"], 3 / 64),
    ("8b", 64, ["dp_replicate=2", "tp=8"], None),
]


def seconds(f):
    """Processor time of what f starts: others use this machine, too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = f()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_shipped():
    recipes = sorted(glob.glob(os.path.join(TOP, "recipes", "*.lua")))
    check(recipes, "no recipes/*.lua")
    for recipe in recipes:
        name = os.path.basename(recipe)
        with temporary() as folder:
            got = run("plan", recipe, cwd=folder)
            check(got.returncode == 0 and got.stdout.strip(),
                  "plan %s: exit %d: %s" % (name, got.returncode, got.stderr.strip()))
            again = run("plan", recipe, "--json", cwd=folder)
            try:
                check(isinstance(json.loads(again.stdout), dict), "plan %s --json is no object" % name)
            except ValueError as e:
                check(False, "plan %s --json: exit %d: %s %s" % (name, again.returncode, e, again.stderr.strip()))
            check(listing(folder) == [os.path.join(folder, "")], "plan %s wrote files" % name)


def check_class(name, c, plan, dim):
    ratio = c["arena"]["peak"] / c["arena"]["bound"]
    check(ratio <= RATIO, "%s: class of rank %d: arena %.4f of its bound" % (name, c["first_rank"], ratio))
    check(c["memory"] > c["arena"]["peak"] > 0, "%s: memory %d" % (name, c["memory"]))
    check(c["compute_s"] > 0 and abs(c["busy_s"]) > 0, "%s: times %r" % (name, c))
    mesh, sent = plan["mesh"], c["collective_bytes"]
    axes = {axis for kind in sent.values() for key in kind for axis in key.split(",")}
    axes = axes - {"dp"} | ({"dp_replicate", "dp_shard"} if "dp" in axes else set())
    want = {a for a in AXES if mesh[a] > 1}
    check(axes == want, "%s: bytes over %s, ranks over %s" % (name, sorted(axes), sorted(want)))
    check(all(n > 0 for kind in sent.values() for n in kind.values()), "%s: %r" % (name, sent))
    if mesh["pp"] > 1: # forward and backward of every microbatch, in bf16, sequence parallel; and the exact scalars of the step
        edges = (0 in c["stages"]) + (max(s for x in plan["classes"] for s in x["stages"]) in c["stages"])
        each = plan["rows"] // mesh["dp_shard"] * plan["seq"] * dim // mesh["tp"] * 2
        extra = sent["send_recv"]["pp"] - (2 * len(c["stages"]) - edges) * plan["microbatches"] * each
        check(0 <= extra < 8192, "%s: rank %d gets %d bytes from other stages, %d more than by hand" % (
            name, c["first_rank"], sent["send_recv"]["pp"], extra))


def test_large():
    for size, world, words, bubble in LARGE:
        words = [w if "." in w.split("=")[0] else "parallelism." + w for w in words]
        name = "%s on %d, %s" % (size, world, " ".join(words))
        argv = ["plan", "recipes/llama3_%s.lua" % size, "--world", world] + words
        got, took = seconds(lambda: run(*argv, "--json"))
        if not check(got.returncode == 0, "%s: %s" % (name, got.stderr)):
            continue
        plan = json.loads(got.stdout)
        print("%s: %.2f s (must %.2f, goal %.2f), peak %.1f GiB, bubble %.1f %%, step %.2f s" % (
            name, took, MUST_S, GOAL_S, plan["memory"]["total"] / 2**30, 100 * plan["bubble"], plan["step_s"]))
        check(took <= MUST_S, "%s: %.2f s" % (name, took))
        mesh = plan["mesh"]
        check(plan["ranks"] == world == mesh["pp"] * mesh["dp_replicate"] * mesh["dp_shard"] * mesh["cp"] * mesh["tp"], "%s: %r" % (name, mesh))
        check(len(plan["classes"]) == mesh["pp"] and sum(c["ranks"] for c in plan["classes"]) == world, "%s: classes" % name)
        check(plan["memory"]["total"] == max(c["memory"] for c in plan["classes"]), "%s: not the largest class" % name)
        for c in plan["classes"]:
            check_class(name, c, plan, {"405b": 16384, "70b": 8192, "8b": 4096}[size])
        # the step lies between all computation spread evenly at the chip's peak, and ten times that
        least = plan["step_flops"] / world / H100
        check(least < plan["step_s"] < 12 * least, "%s: step %.3f s, at least %.3f s" % (name, plan["step_s"], least))
        if bubble is None:
            check(plan["bubble"] == 0, "%s: bubble %.4f without a pipeline" % (name, plan["bubble"]))
        else: # stages differ a little, and hops take time
            check(0.85 * bubble < plan["bubble"] < 1.15 * bubble, "%s: bubble %.4f, closed form %.4f" % (name, plan["bubble"], bubble))
            layers = sum(c["layers"] for c in plan["classes"])
            check(layers == {"405b": 126, "70b": 80}[size], "%s: %d layers" % (name, layers))
            stages = sorted(s for c in plan["classes"] for s in c["stages"])
            check(stages == list(range(len(stages))), "%s: stages %r" % (name, stages))
        text = run(*argv)
        check(text.returncode == 0 and "bubble %.1f %%" % (100 * plan["bubble"]) in text.stdout, "%s: the text" % name)


def test_schedules():
    """Every schedule on 2, 4 and 8 pipeline ranks: sends and receives are matched, nobody waits for ever."""
    for name in ("1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "ZBH1", "InterleavedZeroBubble", "ZBVZeroBubble"):
        for pp in (2, 4, 8):
            for tied in ("false", "true"):
                got = run("plan", "recipes/llama3_debug.lua", "--json", "--world", pp, "model.n_layers=14", "model.tied=" + tied,
                          "training.local_batch_size=8", "parallelism.pp=%d" % pp, "parallelism.pipeline_parallel_schedule=" + name)
                if check(got.returncode == 0, "%s on %d, tied %s: %s" % (name, pp, tied, got.stderr)):
                    plan = json.loads(got.stdout)
                    check(sum(c["layers"] for c in plan["classes"]) == 14 and 0 < plan["bubble"] < 1, "%s on %d: %r" % (name, pp, plan["bubble"]))


def test_traffic():
    """Bytes by hand: llama3_debug on dp_shard 2, one step of one microbatch in fp32."""
    elements = 5246208
    plan = json.loads(run("plan", "recipes/llama3_debug.lua", "--world", 2, "--json", "parallelism.fsdp_reshard_after_forward=never").stdout)
    sent = plan["collective_bytes"]
    check(sent["all_gather"] == {"dp_shard": elements // 2 * 4}, "gathers %r" % sent)
    check(sent["reduce_scatter"] == {"dp_shard": elements // 2 * 4}, "reductions %r" % sent)
    again = json.loads(run("plan", "recipes/llama3_debug.lua", "--world", 2, "--json", "parallelism.fsdp_reshard_after_forward=always").stdout)
    embedding = 2048 * 256  # looked up in forward only, and the head is gathered once for forward and backward of its chunks
    check(again["collective_bytes"]["all_gather"] == {"dp_shard": (2 * elements - 2 * embedding - 256 * 0) // 2 * 4} or
          again["collective_bytes"]["all_gather"]["dp_shard"] > sent["all_gather"]["dp_shard"], "gathers %r" % again["collective_bytes"])
    tp = json.loads(run("plan", "recipes/llama3_debug.lua", "--world", 4, "--json", "parallelism.tp=4",
                        "parallelism.enable_sequence_parallel=false").stdout)
    rows, seq, dim, layers = tp["rows"], tp["seq"], 256, 6
    whole = rows * seq * dim * 4
    moved = sum(sum(kind.values()) for kind in tp["collective_bytes"].values())
    # embedding, two sums per layer forward and two backward, the head backward: reduced in shards and gathered, 2 (n - 1)/n each
    want = (1 + 4 * layers + 1) * 2 * whole * 3 // 4
    check(0.97 * want < moved < 1.05 * want, "tensor parallel: %d bytes, by hand %d" % (moved, want))
    one = json.loads(run("plan", "recipes/llama3_debug.lua", "--json").stdout)
    check(one["collective_bytes"] == {} and one["bubble"] == 0, "one rank moves %r" % one["collective_bytes"])


def test_questions():
    base = ["plan", "recipes/llama3_debug.lua", "--world", 8, "parallelism.tp=2", "parallelism.pp=2"]
    asked = [
        (["--rank", 5], ["rank 5      pp 1 dp_replicate 0 dp_shard 0 cp 0 tp 1, node 0", "  pp           1 5", "  dp_shard     5 7", "  tp           4 5"]),
        (["--tensor", "layers.0.attention.wq.weight"], ["  rank 0 has [0, 64) x [0, 256): 64 x 256, 64.0 KiB", "  * [0, 64)              | 0"]),
        (["--tensor", "layers.0.attention.wq"], ["layers.0.attention.wq.weight   param"]),
        (["--tensor", "norm.weight"], ["  rank 4 has [0, 128): 128, 512 B", "    [128, 256)           | 6 7"]),
        (["--tensor", "layers.4.feed_forward", "--rank", 6], ["  dim 1      256, 2 parts of up to 128: tp 2"]),
        (["--tensor", "layers.0.attention.wq.weight", "--to", "param(R)"], ["    | all_gather tp,dp_shard of dim 0: receives 192 KiB"]),
        (["--from", "ACT(P)", "--to", "SEQ", "--shape", "8,256,512"], ["    | reduce_scatter tp to dim 1: receives 1.00 MiB",
                                                                     "  otherwise   one axis after the other: 1 step"]),
    ]
    for words, lines in asked:
        got = run(*base, *words)
        text = got.stdout.split("\n")
        check(got.returncode == 0 and all(any(t.startswith(line) for t in text) for line in lines), "%s: %s%s" % (words, got.stdout, got.stderr))
        check(max(len(t) for t in text) <= 80, "%s: wider than 80 columns" % words)
    wrong = [
        (["--rank", 8], "rank 8: the layout has 8 ranks; 0 to 7"),
        (["--tensor", "norm.weight", "--rank", 0], "lives on ranks 4 to 7"),
        (["--tensor", "layers.0.atention.wq.weight"], "did you mean 'layers.0.attention.wq.weight'?"),
        (["--from", "ACT(P)"], "add --to LAYOUT"),
        (["--to", "SEQ"], "add --tensor NAME, or --from LAYOUT and --shape"),
        (["--to", "SEQ", "--from", "ACT(P)", "--shape", "8,x"], "must be up to 6 extents"),
        (["--to", "SEQ", "--from", "ACT(P)", "--shape", "4294967296,4294967296,16"], "must be up to 6 extents"),
        (["--to", "SEQ", "--from", "ACT(Q)", "--shape", "8,8,8"], "--from"),
        (["--shape", "8,8"], "--shape: of what moves"),
        (["--rank", 1, "--json"], "--json: prints the whole plan"),
    ]
    for words, text in wrong:
        got = run(*base, *words)
        check(got.returncode == 2 and text in got.stderr.split("\n")[0] and not got.stdout, "%s: exit %d: %s" % (words, got.returncode, got.stderr))
    warned = run("plan", "recipes/llama3_debug.lua", "--world", 8, "parallelism.tp=8", "job.ranks_per_node=4")
    check("warning: tp 8 crosses nodes (job.ranks_per_node = 4); tp 4 stays inside" in warned.stdout, "no warning: " + warned.stdout[:2000])
    said = json.loads(run("plan", "recipes/llama3_debug.lua", "--world", 8, "parallelism.tp=8", "job.ranks_per_node=4", "--json").stdout)
    check(said["warnings"] == ["tp 8 crosses nodes (job.ranks_per_node = 4); tp 4 stays inside"], "warnings %r" % said["warnings"])


test_shipped()
test_large()
test_schedules()
test_traffic()
test_questions()
done("plans")
