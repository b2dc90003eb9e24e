#!/usr/bin/env python3
"""The graph of every shipped recipe, printed behind a pass, read back and printed again, is the same text; a wrong graph is refused
with file and line; titan plan keeps what it promises about the arena."""
# variants: asan
import glob
import json
import os

from testing import TOP, check, done, long_form, run, temporary

recipes = sorted(glob.glob(os.path.join(TOP, "recipes", "*.lua")) + glob.glob(os.path.join(TOP, "tests", "models", "train_*.lua")) +
                 glob.glob(os.path.join(TOP, "tests", "bench", "*.lua")))
PASSES = ["trace", "differentiate", "lower", "fuse", "storage", "boundary", "recompute", "overlap"]

with temporary() as folder:
    path = os.path.join(folder, "one.graph")
    for recipe in recipes:
        name = os.path.relpath(recipe, TOP)
        large = "70b" in name or "405b" in name
        for step in PASSES if long_form and not large else ["recompute"]:
            got = run("graph", recipe, "--pass", step)
            check(got.returncode == 0 and got.stdout.startswith("graph titan 1\n"), "graph %s --pass %s: %s" % (name, step, got.stderr))
            open(path, "w").write(got.stdout)
            again = run("graph", path)
            check(again.returncode == 0, "%s behind %s is read back: %s" % (name, step, again.stderr))
            check(again.stdout == got.stdout, "%s behind %s: printed again it differs" % (name, step))
        for more in ([], ["activation_checkpoint.mode=none"], ["activation_checkpoint.mode=full"],
                     ["activation_checkpoint.mode=selective"]):
            plan = json.loads(run("plan", recipe, "--json", *more).stdout)
            ratio = plan["arena"]["peak"] / max(1, plan["arena"]["bound"])
            check(ratio <= 1.005, "%s %s: the arena is %.4f of its bound" % (name, more, ratio))

    # dumps: a file per pass
    dumps = os.path.join(folder, "dumps")
    got = run("graph", "recipes/llama3_debug.lua", "--dump-to", dumps, "--dump-pass", "trace|fuse")
    check(got.returncode == 0 and sorted(os.listdir(dumps)) == ["00-trace.graph", "03-fuse.graph"], "dumps: %s" % os.listdir(dumps))

    # what travels, and on which stream
    got = run("graph", "recipes/llama3_debug.lua", "--world", 8, "parallelism.tp=2", "parallelism.pp=2", "--rank", 4)
    for said in ("  # all_gather over tp, 128 KiB, stream tensor\n", "  # reduce_scatter over tp, 128 KiB, stream tensor\n",
                 "stream gather\n", "stream reduce\n", "  # stream send\n", "  # send_recv over pp, 128 KiB, stream recv\n", " s1  #"):
        check(said in got.stdout, "the graph says no %r" % said)

    # what the checker says of a graph that someone edits
    good = run("graph", "recipes/llama3_debug.lua", "--pass", "trace").stdout
    edits = [
        ("graph titan 1", "graph titan 2", "the first line reads"),
        ("= rmsnorm(", "= rmsnrm(", "no op 'rmsnrm'"),
        ("{dp:0 cp:1 tp:R}", "{dp:0 cp:1}", "no placement"),
        ("mesh pp=1", "mesh pp=0", "out of range"),
        (" F microbatch s0", " X microbatch s0", "no phase"),
        ("k=16", "k=17", "not a multiple"),
    ]
    for old, new, text in edits:
        check(old in good, "the text to edit is there: %r" % old)
        open(path, "w").write(good.replace(old, new, 1))
        got = run("graph", path)
        check(got.returncode == 2 and text in got.stderr and ":" in got.stderr.split("titan: error: ")[1],
              "%r for %r: exit %d: %s" % (new, old, got.returncode, got.stderr))
    for name, text, what in [("empty", "", "no graph"), ("binary", "graph titan 1\n\0", "NUL"), ("half", good[:len(good) // 2], "")]:
        open(path, "w").write(text)
        got = run("graph", path)
        check(got.returncode == 2 and what in got.stderr, "%s: exit %d: %s" % (name, got.returncode, got.stderr))

# what llama3_8b saves per token and layer (bf16): issue numbers of the plan
# full: a block's input; op: beside it q, k, v, the attention, both sums and gate and up; every 2nd layer: half of none and of full
for mode, option, most in (("none", "op", 137.0), ("full", "op", 8.0), ("selective", "op", 92.2), ("selective", "2", (137.0 + 8.0) / 2)):
    plan = json.loads(run("plan", "recipes/llama3_8b.lua", "--json", "activation_checkpoint.mode=" + mode,
                          "activation_checkpoint.selective_ac_option=" + option).stdout)
    check(plan["saved_bytes_per_token_layer"] <= most * 1024, "llama3_8b %s: %.2f KiB per token and layer" % (mode, plan["saved_bytes_per_token_layer"] / 1024))
done("graph")
