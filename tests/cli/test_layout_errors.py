#!/usr/bin/env python3
"""Layouts that cannot work: every reason at once, each with its key, its value and the nearest legal ones; exit 2, nothing written.

Each row is run as `titan plan --world N` and, where N ranks may be started here, as `titan -n N`: the same lines from both."""
import os
import re

from testing import TOP, check, done, listing, run, temporary

DP, TP, GLOBAL = "parallelism.data_parallel_shard_degree", "parallelism.tensor_parallel_degree", "training.global_batch_size"
CP, EP, PP = "parallelism.context_parallel_degree", "parallelism.expert_parallel_degree", "parallelism.pipeline_parallel_degree"
SCHEDULE = "pipeline_parallel_schedule"
SCHED = "parallelism." + SCHEDULE
BASE = ["data.source=random", "training.steps=1", "training.seq_len=64", "training.local_batch_size=1", "device.threads=1"]
MHA = ["model.dim=64", "model.n_heads=4", "model.n_kv_heads=4", "model.ffn_dim=136", "model.n_layers=2", "model.vocab_size=257"]
GQA = ["model.dim=96", "model.n_heads=6", "model.n_kv_heads=2", "model.ffn_dim=136", "model.n_layers=5", "model.vocab_size=257"]
WIDE = ["model.dim=256", "model.n_heads=16", "model.n_kv_heads=8", "model.ffn_dim=136", "model.n_layers=2", "model.vocab_size=257"]


def fill(degrees, product, world, mend):
    pp, replicate, shard, cp, tp = degrees
    return "%s: pp %d x dp_replicate %d x dp_shard %d x cp %d x tp %d is %d, the run has %d rank%s; %s" % (
        DP, pp, replicate, shard, cp, tp, product, world, "" if world == 1 else "s", mend)


def heads(tp, n, near):
    return "%s: %d ranks cannot split %d query heads; the nearest is %s" % (TP, tp, n, near)


def kv(tp, n, near):
    return "%s: %d neither divides the %d key/value heads nor is a multiple of them; the nearest is %s" % (TP, tp, n, near)


def tp_bits(tp, near, grid=8):
    return "%s: %d keeps no bits under debug.reduce_grid.tp = %d; %s, or debug.reduce = \"fast\"" % (TP, tp, grid, near)


def dp_bits(dp, near, grid=8):
    return "%s: %d data-parallel ranks keep no bits under debug.reduce_grid.rows = %d; %s of them (and tp or pp for the other ranks), or debug.reduce = \"fast\"" % (DP, dp, grid, near)


def positions(tp, near, grid=8):
    return "%s: %d cuts a position part of debug.reduce_grid.seq = %d; %s, or enable_sequence_parallel = false" % (TP, tp, grid, near)


def rows(rows, local, dp, near):
    return "%s: %d is not a multiple of training.local_batch_size %d x data-parallel ranks %d; the nearest is %s" % (GLOBAL, rows, local, dp, near)


def chunks(n, local, near):
    return "loss.chunks: %d pieces do not tile %d rows of 64 positions in whole parts of the reduce grid; the nearest is %s" % (n, local, near)


def groups(n, shard, near):
    return ("parallelism.fsdp_reshard_after_forward: groups of %d ranks do not divide data_parallel_shard_degree %d; the nearest is %s" %
            (n, shard, near))


def stages(n, layers, near):
    return ("%s: %d stages (by the schedule) for %d layers, of which those before count as 1 and those behind as 1: some would hold "
            "nothing; nearest: %s = %d" % (PP, n, layers, PP, near))


def per_rank(name, needs, n, each, layers, degree):
    key = "parallelism.pipeline_parallel_layers_per_stage"
    return "%s: %s needs %s per rank, %d stages (by layers_per_stage) on 2 ranks make %d; nearest: %s = %d, or %s = %d, or no %s" % (
        SCHED, name, needs, n, each, key, layers, PP, degree, key)


def rounds(name, n, degree, near):
    return ("%s: %s needs microbatches (here %d: training.local_batch_size / parallelism.pipeline_parallel_microbatch_size) in multiples "
            "of pipeline_parallel_degree = %d; nearest: %s" % (SCHED, name, n, degree, near))


def microbatch(n, local, near):
    return "parallelism.pipeline_parallel_microbatch_size: %d does not divide training.local_batch_size %d; the nearest is %s" % (n, local, near)


def later(key, n):
    return "%s = %d: this build cannot do that yet; leave it at 1" % (key, n)


# (ranks, model, settings, all the reasons in order)
LAYOUTS = [
    # degrees that do not fill the world
    (1, MHA, ["tp=2"], [fill((1, 1, 1, 1, 2), 2, 1, "-n 2, or %s = 1" % TP)]),
    (3, MHA, ["tp=2"], [fill((1, 1, 1, 1, 2), 2, 3, "-n 2 or 4, or %s = 1" % TP)]),
    (4, MHA, ["dp_replicate=2", "dp_shard=1"], [fill((1, 2, 1, 1, 1), 2, 4, "-n 2, or %s = 2" % DP)]),
    (2, MHA, ["dp_replicate=4"], [fill((1, 4, 1, 1, 1), 4, 2, "-n 4")]),
    (6, MHA, ["tp=4"], [fill((1, 1, 1, 1, 4), 4, 6, "-n 4 or 8, or %s = 2" % TP)]),
    (6, MHA, ["tp=2", "dp_replicate=2"], [fill((1, 2, 1, 1, 2), 4, 6, "-n 4 or 8, or %s = 1" % TP)]),
    (8, MHA, ["tp=2", "dp_shard=2"], [fill((1, 1, 2, 1, 2), 4, 8, "-n 4, or %s = 4" % DP)]),
    (5, MHA, ["tp=2", "dp_shard=2", "dp_replicate=2"], [fill((1, 2, 2, 1, 2), 8, 5, "-n 8")]),
    # off the grid of sums in canonical mode
    (3, MHA, [], [dp_bits(3, "2 or 4")]),
    (6, MHA, ["dp_replicate=3"], [dp_bits(6, "4 or 8")]),
    (16, MHA, [], [dp_bits(16, "8")]),
    (2, MHA, ["reduce_grid={8,8,1}"], [dp_bits(2, "1", 1)]),
    (2, MHA, ["tp=2", "reduce_grid={1,8,8}"], [tp_bits(2, "1", 1)]),
    (2, MHA, ["tp=2", "reduce_grid={8,1,8}"], [positions(2, "1", 1)]),
    (4, MHA, ["tp=4", "reduce_grid={2,2,8}"], [tp_bits(4, "2", 2), positions(4, "2", 2)]),
    (16, WIDE, ["tp=16"], [tp_bits(16, "8"), positions(16, "8")]),
    (16, WIDE, ["tp=16", "enable_sequence_parallel=false"], [tp_bits(16, "8")]),
    # heads
    (8, MHA, ["tp=8"], [heads(8, 4, "4")]),
    (3, MHA, ["tp=3"], [kv(3, 4, "2 or 4"), tp_bits(3, "2 or 4")]),
    (3, GQA, ["tp=3", "reduce=fast"], [kv(3, 2, "2 or 4")]),
    (5, GQA, ["tp=5", "reduce=fast"], [kv(5, 2, "4 or 6")]),
    (8, GQA, ["tp=8", "reduce=fast"], [heads(8, 6, "6")]),
    (7, GQA, ["tp=7"], [heads(7, 6, "4"), kv(7, 2, "4"), tp_bits(7, "4")]),
    (12, WIDE, ["tp=12", "reduce=fast"], [kv(12, 8, "8 or 16")]),
    (32, WIDE, ["tp=32"], [heads(32, 16, "8"), tp_bits(32, "8"), positions(32, "8")]),
    # rows
    (2, MHA, ["global_batch_size=9", "local_batch_size=3"], [rows(9, 3, 2, "6 or 12")]),
    (2, MHA, ["global_batch_size=12", "local_batch_size=4"], [rows(12, 4, 2, "8 or 16, or training.local_batch_size = 3 or 6")]),
    (4, MHA, ["global_batch_size=2"], [rows(2, 1, 4, "4")]),
    (1, MHA, ["global_batch_size=7", "local_batch_size=8"], [rows(7, 8, 1, "8, or training.local_batch_size = 7")]),
    (4, MHA, ["tp=2", "global_batch_size=6", "local_batch_size=2"], [rows(6, 2, 2, "4 or 8, or training.local_batch_size = 1 or 3")]),
    # what is kept between forward and backward
    (4, MHA, ["fsdp_reshard_after_forward=3"], [groups(3, 4, "2 or 4")]),
    (2, MHA, ["fsdp_reshard_after_forward=16"], [groups(16, 2, "2")]),
    (6, MHA, ["tp=3", "fsdp_reshard_after_forward=4"], [kv(3, 4, "2 or 4"), tp_bits(3, "2 or 4"), groups(4, 2, "2")]),
    # pieces of the loss
    (1, MHA, ["local_batch_size=4", "chunks=3"], [chunks(3, 4, "2 or 4")]),
    (2, MHA, ["local_batch_size=2", "chunks=64"], [chunks(64, 2, "16")]),
    (3, MHA, ["tp=3", "local_batch_size=2", "chunks=6"], [kv(3, 4, "2 or 4"), tp_bits(3, "2 or 4"), chunks(6, 2, "4 or 8")]),
    # pipelines
    (3, MHA, ["pp=2"], [fill((2, 1, 1, 1, 1), 2, 3, "-n 2 or 4")]),
    (8, MHA, ["pp=8"], [stages(8, 4, 4)]),
    (16, GQA, ["pp=16"], [stages(16, 7, 7)]),
    (4, MHA, ["pp=4", "local_batch_size=4", SCHEDULE + "=ZBVZeroBubble"], [stages(8, 4, 2)]),
    (2, MHA, ["pp=2", SCHEDULE + "=DualPipeV"],
     ["%s: no schedule 'DualPipeV'; there are 1F1B, GPipe, Interleaved1F1B, LoopedBFS, ZBH1, InterleavedZeroBubble, ZBVZeroBubble" % SCHED]),
    (2, MHA, ["pp=2", "local_batch_size=4", SCHEDULE + "=Interleaved1F1B", "pipeline_parallel_layers_per_stage=2"],
     [per_rank("Interleaved1F1B", "at least 2 stages", 2, 1, 1, 1)]),
    (2, MHA, ["pp=2", "local_batch_size=4", "pipeline_parallel_layers_per_stage=1"], [per_rank("1F1B", "exactly 1 stage", 4, 2, 2, 4)]),
    (2, MHA, ["pp=2", "local_batch_size=4", SCHEDULE + "=ZBVZeroBubble", "pipeline_parallel_layers_per_stage=2"],
     [per_rank("ZBVZeroBubble", "exactly 2 stages", 2, 1, 1, 1)]),
    (2, MHA, ["pp=2", "local_batch_size=3", SCHEDULE + "=Interleaved1F1B"], [rounds("Interleaved1F1B", 3, 2, "2 or 4")]),
    (4, GQA, ["pp=4", "local_batch_size=2", SCHEDULE + "=Interleaved1F1B"],
     [stages(8, 7, 3)]),
    (2, MHA, ["pp=2", "local_batch_size=4", "pipeline_parallel_microbatch_size=3"], [microbatch(3, 4, "2 or 4")]),
    (2, MHA, ["pp=2", "pipeline_parallel_microbatch_size=2"], [microbatch(2, 1, "1")]),
    (2, MHA, ["pp=2", "pipeline_parallel_first_stage_less_layers=9", "pipeline_parallel_last_stage_less_layers=0"],
     ["parallelism.pipeline_parallel_first_stage_less_layers: 9, but the first of 2 stages has a share of 6; nearest: %s = 1, or "
      "parallelism.pipeline_parallel_first_stage_less_layers = 3, or parallelism.pipeline_parallel_last_stage_less_layers = 6" % PP]),
    (2, MHA, ["pp=2", 'module_fqns_per_model_part={{"tok_embeddings","layers.0"},{"layers.1","norm"}}'],
     ["parallelism.module_fqns_per_model_part: 'output' is in no stage; nothing may be left out"]),
    (2, MHA, ["pp=2", 'module_fqns_per_model_part={{"tok_embeddings","layers.0","layers.1"},{"layers.1","nrm","output"}}'],
     ["parallelism.module_fqns_per_model_part: 'layers.1' is in stage 0 and in stage 1; once is enough",
      "parallelism.module_fqns_per_model_part: stage 1: the model has no module 'nrm'; did you mean 'norm'?",
      "parallelism.module_fqns_per_model_part: 'norm' is in no stage; nothing may be left out"]),
    # schedules as tables
    (2, MHA, ["pp=2", "local_batch_size=4", SCHEDULE + '={{"0F0","0B0"},{"1F0","1B0"}}'],
     ["%s: 1 microbatches, the recipe makes 4 (training.local_batch_size / parallelism.pipeline_parallel_microbatch_size); nearest: "
      "training.local_batch_size = 1 x microbatch size" % SCHED]),
    (2, MHA, ["pp=2", SCHEDULE + '={{"0F0","0X0"},{"1F0","1B0"}}'],
     ["%s: row 1, cell 2: '0X0': behind the stage stands F (forward), B (whole backward), I (input gradient) or W (weight gradient)" % SCHED]),
    (2, MHA, ["pp=2", SCHEDULE + '={{"0B0","0F0"},{"1F0","1B0"}}'],
     ["pipeline schedule: rank 0: the input gradient of stage 0, microbatch 0 (action 1) comes before its forward (action 2)"]),
    (2, MHA, ["pp=2", "local_batch_size=2", SCHEDULE + '={{"0F0","0B0","0F1","0B1"},{"1F1","1B1","1F0","1B0"}}'],
     ["pipeline schedule: rank 1: the weight gradient of stage 1, microbatch 1 (action 2) comes before that of microbatch 0 (action 4); "
      "canonical sums add in the order of rows: put them in increasing order, or set debug.reduce = \"fast\""]),
    (6, MHA, ["pp=2", "tp=3", "cp=2", "local_batch_size=4", "pipeline_parallel_microbatch_size=3", "global_batch_size=6", "chunks=5"],
     [later(CP, 2), kv(3, 4, "2 or 4"), tp_bits(3, "2 or 4"), rows(6, 4, 1, "4 or 8, or training.local_batch_size = 3 or 6"),
      microbatch(3, 4, "2 or 4"), chunks(5, 3, "3 or 6")]),
    # what this build has not got
    (2, MHA, ["cp=2"], [later(CP, 2)]),
    (2, MHA, ["ep=2"], [later(EP, 2)]),
    # several at once
    (2, MHA, ["cp=2", "ep=4", "global_batch_size=3"], [later(CP, 2), later(EP, 4), rows(3, 1, 2, "2 or 4")]),
    (6, MHA, ["tp=8", "dp_replicate=3", "dp_shard=1", "global_batch_size=4"],
     [fill((1, 3, 1, 1, 8), 24, 6, "-n 24, or %s = 2" % TP), heads(8, 4, "4"), dp_bits(3, "2 or 4"), rows(4, 1, 3, "3 or 6")]),
    (3, GQA, ["tp=3", "reduce_grid={2,2,8}", "global_batch_size=5", "local_batch_size=2"],
     [kv(3, 2, "2"), tp_bits(3, "2", 2), positions(3, "2", 2), rows(5, 2, 1, "4 or 6, or training.local_batch_size = 1")]),
]

SECTION = {"global_batch_size": "training", "local_batch_size": "training", "reduce": "debug", "reduce_grid": "debug", "chunks": "loss"}
STARTED = 4  # more ranks than this are only planned


def settings(words):
    return [SECTION.get(w.split("=")[0], "parallelism") + "." + w for w in words]


def reasons(text):
    """The lines of an error, without who says it and where it was said."""
    lines = [line.strip() for line in text.strip().split("\n")]
    lines[0] = lines[0].replace("titan: error: ", "", 1)
    return [re.sub(r"^(command line|default|\S+\.lua:\d+): ", "", line) for line in lines]


def expect(got, want, name, folder):
    check(got.returncode == 2 and got.stdout == "", "%s: exit %d, %r" % (name, got.returncode, got.stdout[:200]))
    check(reasons(got.stderr) == want, "%s:\n  %s\nexpected\n  %s" % (name, "\n  ".join(reasons(got.stderr)), "\n  ".join(want)))
    check(listing(folder) == [os.path.join(folder, "")], "%s wrote %s" % (name, listing(folder)))


def test_layouts(folder):
    check(len(LAYOUTS) >= 30, "%d layouts" % len(LAYOUTS))
    for ranks, model, words, want in LAYOUTS:
        args = [w for w in BASE if w.split(".")[1].split("=")[0] not in [x.split("=")[0] for x in words]]
        args = [os.path.join(TOP, "recipes", "llama3_debug.lua")] + args + model + settings(words) + ["job.dump_folder=" + os.path.join(folder, "out")]
        name = "%d ranks, %s" % (ranks, " ".join(words))
        expect(run("plan", "--world", ranks, *args, cwd=folder), want, "plan of " + name, folder)
        if ranks <= STARTED:
            expect(run("-n", ranks, *args, cwd=folder), want, name, folder)


HERE = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}
# (variables of a torchrun-style launcher, words of the command line, what the first line holds)
WORLDS = [
    ({"WORLD_SIZE": "4"}, [], "world: 2 of 4 ranks are on this host; this build joins the ranks of one host"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, [], "RANK must be a number below WORLD_SIZE"),
    ({"LOCAL_RANK": "1"}, [], "LOCAL_RANK and RANK differ though all ranks are on this host"),
    ({"LOCAL_WORLD_SIZE": "3"}, [], "LOCAL_WORLD_SIZE must be at most WORLD_SIZE"),
    ({"MASTER_PORT": "none"}, [], "MASTER_PORT must be a port"),
    ({}, ["-n", "2"], "command line: -n 2: this is already rank 0 of the 2 that the environment's RANK and WORLD_SIZE speak of; leave -n out"),
]
# (words, the whole line): what the schema knows
KEYS = [
    (["parallelism.pipeline_parallel_schedule=1f1b"], "did you mean \"1F1B\"?"),
    (["parallelism.pipeline_parallel_schedule=Interleaved"], "must be one of 1F1B, Interleaved1F1B, GPipe, LoopedBFS"),
    (["parallelism.tp=0"], "parallelism.tp = 0: must be an integer from 1 to 1048576; the nearest is 1"),
    (["parallelism.dp_shard=0"], "the nearest is 1"),
    (["parallelism.tp_degree=2"], "did you mean tensor_parallel_degree?"),
    (["training.global_batch_size=0"], "the nearest is 1"),
    (["parallelism.pp=99999999"], "the nearest is 1048576"),
    (["parallelism.pipeline_parallel_schedule_csv=nowhere.csv", "parallelism.pp=2"], "nowhere.csv"),
    (["-n", "100"], "command line: -n 100: "),
    # numbers near the end of their type: refused, neither cut to 32 bits nor a loop without an end
    (["parallelism.pp=1048576", "parallelism.dp_replicate=1048576", "parallelism.dp_shard=1048576"], "its degrees make more than 1073741824 ranks"),
    (["parallelism.pp=2", "parallelism.pipeline_parallel_microbatch_size=9223372036854775807"], "the nearest is 16777216"),
    (["parallelism.pp=2", "parallelism.pipeline_parallel_layers_per_stage=4294967297"], "the nearest is 65536"),
    (["parallelism.pp=2", "parallelism.pipeline_parallel_first_stage_less_layers=4294967297"], "the nearest is 65536"),
    (["training.seq_len=9223372036854775807"], "the nearest is 1073741824"),
]


def test_worlds(folder):
    recipe = os.path.join(TOP, "recipes", "llama3_debug.lua")
    for variables, words, text in WORLDS:
        got = run(*words, recipe, *BASE, *MHA, cwd=folder, env=dict(os.environ, **dict(HERE, **variables)))
        check(got.returncode == 2 and text in got.stderr.split("\n")[0], "%s %s: exit %d: %s" % (variables, words, got.returncode, got.stderr))
        check(listing(folder) == [os.path.join(folder, "")], "%s wrote %s" % (variables, listing(folder)))
    for words, text in KEYS:
        got = run(*words, recipe, *BASE, *MHA, cwd=folder)
        check(got.returncode == 2 and text in got.stderr, "%s: exit %d: %s" % (words, got.returncode, got.stderr))
        check(listing(folder) == [os.path.join(folder, "")], "%s wrote %s" % (words, listing(folder)))


with temporary() as one, temporary() as two:
    test_layouts(one)
    test_worlds(two)
done("layout_errors")
