#!/usr/bin/env python3
"""Traces of chosen steps, read by a strict reader written from the rules of the trace-event format: what it accepts, Perfetto and
chrome://tracing draw without dropping a slice. And: they are complete, they sum up to 100.0 %, and they change no bit."""
# variants: asan
import bisect
import decimal
import json
import os
import re

from testing import check, done, run, temporary

RECIPE = "recipes/llama3_debug.lua"
COMMON = ("data.source=random", "training.steps=3", "training.seq_len=32", "metrics.log_freq=1", "model.n_layers=2")
FIELDS = {"M": {"ph", "name", "pid", "tid", "args"}, "X": {"ph", "name", "pid", "tid", "ts", "dur", "cat"},
          "C": {"ph", "name", "pid", "tid", "ts", "args"}, "s": {"ph", "name", "pid", "tid", "ts", "cat", "id"},
          "f": {"ph", "name", "pid", "tid", "ts", "cat", "id", "bp"}}


def once(pairs):
    keys = [k for k, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("a key twice: %s" % keys)
    return dict(pairs)


def read(path):
    """The events of a trace; raises ValueError at the first breach of the format's rules."""
    text = open(path, encoding="utf-8").read()
    top = json.loads(text, parse_float=decimal.Decimal, parse_int=int, object_pairs_hook=once,
                     parse_constant=lambda name: (_ for _ in ()).throw(ValueError("no JSON: " + name)))
    if set(top) - {"displayTimeUnit", "otherData"} != {"traceEvents"} or top["displayTimeUnit"] not in ("ms", "ns"):
        raise ValueError("the frame: %s" % list(top))
    events, named, slices, flows, begun = top["traceEvents"], {}, {}, {}, False
    for e in events:
        ph = e.get("ph")
        if ph not in FIELDS or not FIELDS[ph] <= set(e) or set(e) - FIELDS[ph] - {"args"}:
            raise ValueError("fields: %s" % e)
        if not (isinstance(e["name"], str) and e["name"] and type(e["pid"]) is int and type(e["tid"]) is int):
            raise ValueError("name, pid, tid: %s" % e)
        if ph == "M":
            if begun:
                raise ValueError("metadata behind other events: %s" % e)
            key = (e["pid"], e["tid"], e["name"]) if e["name"].startswith("thread") else (e["pid"], e["name"])
            if key in named or e["name"] not in ("process_name", "process_sort_index", "thread_name", "thread_sort_index"):
                raise ValueError("metadata: %s" % e)
            named[key] = e["args"]["sort_index" if e["name"].endswith("index") else "name"]
            continue
        begun = True
        if (e["pid"], "process_name") not in named or (e["pid"], e["tid"], "thread_name") not in named:
            raise ValueError("a track without a name: %s" % e)
        for key in ("ts", "dur"):
            if key in e and (not isinstance(e[key], decimal.Decimal) or e[key] < 0 or e[key].as_tuple().exponent < -3):
                raise ValueError("%s: microseconds with up to three decimals: %s" % (key, e))
        if ph == "X":
            slices.setdefault((e["pid"], e["tid"]), []).append(e)
        if ph == "C" and not (e["args"] and all(type(v) is int and v >= 0 for v in e["args"].values())):
            raise ValueError("a counter: %s" % e)
        if ph in "sf":
            pair = flows.setdefault((e["cat"], e["name"], e["id"]), {})
            if ph in pair or (ph == "f" and e["bp"] != "e"):
                raise ValueError("a flow: %s" % e)
            pair[ph] = e
    for track, of in slices.items():
        stack = []
        for e in sorted(of, key=lambda x: (x["ts"], -x["dur"])):
            while stack and stack[-1] <= e["ts"]:
                stack.pop()
            if stack and e["ts"] + e["dur"] > stack[-1]:
                raise ValueError("slices of track %s do not nest: %s" % (track, e))
            stack.append(e["ts"] + e["dur"])
    for of in slices.values():
        of.sort(key=lambda x: x["ts"])
    begins = {track: [e["ts"] for e in of] for track, of in slices.items()}

    def touches(e):  # the slice that is open at that moment, or begins there
        track = (e["pid"], e["tid"])
        i = bisect.bisect_right(begins.get(track, []), e["ts"]) - 1
        return i >= 0 and (begins[track][i] == e["ts"] or e["ts"] < begins[track][i] + slices[track][i]["dur"])

    for key, pair in flows.items():
        if set(pair) != {"s", "f"} or pair["s"]["ts"] > pair["f"]["ts"]:
            raise ValueError("a flow without its other end: %s" % pair)
        for e in pair.values():
            if not touches(e):
                raise ValueError("an arrow that touches no slice: %s" % e)
    return events, named


def good(path):
    try:
        return read(path)
    except (ValueError, KeyError, OSError) as e:
        check(False, "%s: %s" % (path, e))
        return [], {}


# The reader itself refuses what is wrong.
M = '{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"r"}},{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"t"}}'
X = '{"ph":"X","name":"a","pid":0,"tid":0,"ts":%s,"dur":%s,"cat":"c"}'
BAD = {"overlap": M + "," + X % ("1.0", "2.0") + "," + X % ("2.0", "2.0"), "metadata last": X % ("1.0", "2.0") + "," + M,
       "nanoseconds": M + "," + X % ("1.0001", "2.0"), "negative": M + "," + X % ("1.0", "-2.0"),
       "half a flow": M + "," + X % ("1.0", "2.0") + ',{"ph":"s","name":"e","pid":0,"tid":0,"ts":1.0,"cat":"c","id":1}'}
with temporary() as folder:
    for name, text in BAD.items():
        path = os.path.join(folder, "bad.json")
        open(path, "w").write('{"displayTimeUnit":"ns","traceEvents":[%s]}' % text)
        try:
            read(path)
            check(False, "the reader takes: " + name)
        except ValueError:
            check(True, name)

LAYOUTS = [("one", 1, ("training.global_batch_size=16", "loss.chunks=2")),
           ("tp", 2, ("parallelism.tp=2",)),
           ("fsdp", 2, ("training.local_batch_size=4", "training.global_batch_size=8")),
           ("pp", 2, ("parallelism.pp=2", "parallelism.pipeline_parallel_microbatch_size=2"))]
with temporary() as folder:
    for name, ranks, layout in LAYOUTS:
        out, plain = os.path.join(folder, name), os.path.join(folder, name + "_plain")
        n = ("-n", str(ranks)) if ranks > 1 else ()
        ran = run(*n, RECIPE, *COMMON, *layout, "job.dump_folder=" + out, "profiling.trace_steps=2,3", "profiling.memory_timeline=true")
        check(ran.returncode == 0 and ran.stdout.count("trace of step") == 2, "%s: exit %d: %s" % (name, ran.returncode, ran.stderr))
        run(*n, RECIPE, *COMMON, *layout, "job.dump_folder=" + plain)
        check("IDENTICAL" in run("diff", out, plain).stdout, name + ": tracing changes no bit")
        check(not os.path.exists(os.path.join(plain, "trace")), "no trace without the key")
        trace = os.path.join(out, "trace")
        check(sorted(os.listdir(trace)) == sorted(["step_%d.json" % s for s in (2, 3)] + ["step_%d.rank_%d.%s" % (s, r, x)
              for s in (2, 3) for r in range(ranks) for x in ("json", "txt")]), "%s: files: %s" % (name, os.listdir(trace)))
        for step in (2, 3):
            merged, names = good(os.path.join(trace, "step_%d.json" % step))
            parts = [good(os.path.join(trace, "step_%d.rank_%d.json" % (step, r)))[0] for r in range(ranks)]
            letters = [e for e in merged if e["ph"] in "sf" and e["cat"] == "letter"]
            check(bool(letters) == (name == "pp") and all(e["pid"] != o["pid"] for e in letters for o in letters if e["id"] == o["id"] and e["ph"] < o["ph"]),
                  "%s: arrows from sends to receives: %d" % (name, len(letters)))
            check(len(merged) - len(letters) == sum(map(len, parts)) and {e["pid"] for e in merged} == set(range(ranks)), name + ": all ranks in one")
            check(names.get((0, 0, "thread_name")) == "compute" and names.get((0, "process_name")) == "rank 0", "names of tracks")
            for events in parts:
                measured = [e for e in events if e["ph"] == "X" and e["tid"] < 50]
                predicted = [e for e in events if e["ph"] == "X" and e["tid"] >= 100]
                check(measured and all({"module", "op", "bytes", "flops", "predicted_us"} <= set(e["args"]) for e in measured), "arguments")
                check(abs(len(measured) - len(predicted)) <= 0.1 * len(measured), "%s: predicted beside measured" % name)
                check(any(e["args"]["module"].startswith("layers.0.") for e in measured) or name == "pp", "module names")
                check(any(e["ph"] == "C" for e in events), "memory counters")
                if ranks > 1:
                    check({e["tid"] for e in measured} > {0}, "%s: a track per stream" % name)
                    check(any(e["ph"] == "s" for e in events) or name == "pp", "%s: arrows between streams" % name)
                # a step without holes: each slice begins where the one before ended, save for what the host does between
                times = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] < 100)
                holes = sum(b[0] - a[1] for a, b in zip(times, times[1:]))
                check(0 <= holes < (times[-1][1] - times[0][0]) / 5, "%s: holes of %s us" % (name, holes))
            for r in range(ranks):
                text = open(os.path.join(trace, "step_%d.rank_%d.txt" % (step, r))).read()
                shares = [decimal.Decimal(x) for x in re.findall(r"([\d.]+) %", text)]
                check(sum(shares[:-1]) == decimal.Decimal("100.0") == shares[-1], "%s: %s" % (name, text))
                check("computation" in text and "waiting" in text and "idle" in text and (ranks == 1 or "exposed" in text), text)
        if name == "one":
            plan = json.loads(run("plan", RECIPE, *COMMON, *layout, "--json").stdout)
            done_flops = sum(e["args"]["flops"] for e in parts[0] if e["ph"] == "X" and e["tid"] < 50)
            check(abs(float(done_flops) / plan["step_flops"] - 1) < 1e-9, "the FLOPs of the slices are the step's: %s of %s" % (
                done_flops, plan["step_flops"]))
            counters = {e["name"]: [] for e in parts[0] if e["ph"] == "C"}
            for e in parts[0]:
                if e["ph"] == "C":
                    counters[e["name"]].append(e)
            sums = {e["ts"]: sum(e["args"].values()) for e in counters["step memory"]}
            owners = counters["step memory by owner"]
            check(len(owners) > 4 and {"layers.0", "layers.1", "output"} <= set(owners[0]["args"]) and
                  all(sum(e["args"].values()) == sums[e["ts"]] for e in owners), "owners: the same bytes by layer")
            peak = max(sums.values())
            check(peak == plan["arena"]["bound"], "the counters reach the plan's peak: %s of %s" % (peak, plan["arena"]["bound"]))
    got = run(RECIPE, *COMMON, "profiling.trace_steps=0", "job.dump_folder=" + os.path.join(folder, "x"))
    check(got.returncode == 2 and "trace_steps" in got.stderr, "step 0: " + got.stderr)
done("trace")
