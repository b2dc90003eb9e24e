#!/usr/bin/env python3
"""bench_step.py [TITAN] - the speed of whole training steps, what they need and how fast they begin, against what they must be.

For tests/bench/tiny.lua and tests/bench/110m.lua, in one run: time per step, the share of the machine's FMA peak, the step's GEMMs
alone in the best of OpenBLAS, BLIS and oneDNN (bench_gemm), peak memory beside the plan, time from exec to the first kernel,
canonical sums beside fast ones, and the same step in PyTorch where it can be imported. What is compared by a ratio of steps runs
turn and turn about (A B A B ...) and the median of the ratios counts, so that a machine that others use, too, harms little.
Nothing fails on a time: each must and goal is marked ok or MISSED. Numbers count on a quiet machine; the load is printed.
On a busy one `--clock cpu` compares processor time instead, of one thread (threads that wait for each other burn it, too).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

MIB, GIB = 1 << 20, 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK = ("dim", "n_layers", "n_heads", "n_kv_heads", "ffn_dim", "vocab_size", "tied", "seq", "rows")
MODELS = {  # what torch_step.py builds; that it is the recipe's model is checked by the number of parameters
    "tiny": dict(zip(BLOCK, (256, 6, 8, 4, 768, 2048, False, 512, 8))),
    "110m": dict(zip(BLOCK, (768, 12, 12, 12, 2048, 32000, True, 512, 4))),
}
# Most: a step against its GEMMs, bytes. Least: PyTorch's step against ours; the last is the goal, compiled.
LIMITS = {
    "tiny": {"gemms": 1.45, "rss": 650 * MIB, "eager": 1.35, "compiled": 1.3, "goal": 1.55},
    "110m": {"gemms": 1.20, "rss": int(3.1 * GIB), "eager": 1.3, "compiled": 1.08, "goal": 1.15},
}
FIRST_KERNEL_MS = 20
RSS_OVER_PLAN = 20 * MIB
STEPS = {"tiny": (24, 6), "110m": (8, 3)}  # of the program's run; the second with --quick
PAIRS = {"tiny": (12, 2), "110m": (5, 1)}
judged = []


class Failed(Exception):
    pass


# ------------------------------------------------------------------------------------------------------------- the program


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(text):
    """"12.3 ms", "4.56 s", "1m40s", "1h02m"."""
    found = re.fullmatch(r"([\d.]+) (us|ms|s)", text)
    if found:
        return float(found.group(1)) * UNITS[found.group(2)]
    h, m, s = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text).groups()
    return 3600 * int(h or 0) + 60 * int(m or 0) + int(s or 0)


def train(args, model, steps):
    """One run of the program: its step times, memory, and when it began, seen from here."""
    with tempfile.TemporaryDirectory() as tmp:
        argv = [args.titan, "%s/%s.lua" % (HERE, model), "job.dump_folder=" + tmp, "training.steps=%d" % steps,
                "metrics.log_freq=1"] + args.settings
        text, stamps = [], {}
        start = time.monotonic()
        p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        for line in p.stdout:
            stamps.setdefault(line.split(":")[0], time.monotonic() - start)  # "memory": behind the banner; "step": the first one
            text.append(line)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        if p.returncode:
            raise Failed("%s\n%s" % (" ".join(argv), "".join(text)))
        with open(tmp + "/metrics.jsonl") as f:
            log = [json.loads(line) for line in f]
    when = re.search(r"first kernel (.*?), training (.*?), first step done (.*?) after exec", "".join(text))
    kernel, training, _ = (seconds(t) for t in when.groups())
    tokens = MODELS[model]["seq"] * MODELS[model]["rows"]
    late = stamps["memory"] - training  # the program cannot know when exec was called as well as we do
    return {"ms": [1e3 * tokens / row["tokens_per_s"] for row in log], "rss": usage.ru_maxrss * 1024,
            "kernel_ms": 1e3 * (kernel + late), "training_ms": 1e3 * stamps["memory"], "step_ms": 1e3 * stamps["step"]}


def plan(args, model):
    argv = [args.titan, "plan", "--json", "%s/%s.lua" % (HERE, model)] + args.settings
    return json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)


def gemms(args, model):
    """FMA peak in GF/s; milliseconds of the step's GEMMs by library, with "each" (the best for each shape) and "ours"."""
    argv = [args.bench + "/bench_gemm", "--only", model, "--rounds", "2" if args.quick else "5"]
    argv += ["--threads", str(args.threads)] if args.threads else []
    argv += ["--clock", "cpu"] if args.clock == "cpu" else []
    out = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True).stdout
    peak = max(float(x) for x in re.findall(r"([\d.]+) GF/s \(", out))
    line = re.search(r"GEMMs of a step of %s:(.*)" % model, out).group(1)
    ms = {name: float(x) for name, x in re.findall(r"(\w+) ([\d.]+) ms", line)}
    return peak, ms


# ------------------------------------------------------------------------------------------------- turn and turn about


class Paced:
    """A program that takes a step when told to (paced.c, torch_step.py)."""

    def __init__(self, argv, clock):
        self.argv, self.column = argv, ("wall", "cpu").index(clock)
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        words = self.answer().split(None, 2)
        self.parameters, self.about = int(words[1]), words[2].strip() if len(words) > 2 else ""

    def answer(self):
        line = self.p.stdout.readline()
        if not line:
            raise Failed("%s ended with status %s" % (" ".join(self.argv), self.p.wait()))
        return line

    def step(self):
        time.sleep(0.05)  # the other's threads shall sleep
        self.p.stdin.write("\n")
        return float(self.answer().split()[self.column])

    def close(self):
        """Bytes at its peak."""
        self.p.stdin.close()
        _, status, usage = os.wait4(self.p.pid, 0)
        self.p.returncode = os.waitstatus_to_exitcode(status)
        self.p.stdout.close()
        return usage.ru_maxrss * 1024


def pairs(a_argv, b_argv, clock, n, warm_up):
    """Median of b's time over a's, their median times, and b as it ended."""
    a, b = Paced(a_argv, clock), None
    try:
        b = Paced(b_argv, clock)
        if a.parameters != b.parameters:
            raise Failed("%d parameters here, %d there: not the same model" % (a.parameters, b.parameters))
        for p in [a, b] * warm_up:
            p.step()
        times = [(a.step(), b.step()) for _ in range(n)]
    finally:
        a.close()
        b_rss = b.close() if b else 0
    ratio = statistics.median(y / x for x, y in times)
    return {"ratio": ratio, "a": statistics.median(x for x, _ in times), "b": statistics.median(y for _, y in times),
            "rss": b_rss, "about": b.about, "n": n}


def ours(args, model, *more):
    return [args.bench + "/paced", "%s/%s.lua" % (HERE, model), "training.steps=1000000"] + args.settings + list(more)


def alone(args, model, n):
    """Times of n + 1 steps."""
    p = Paced(ours(args, model), args.clock)
    try:
        return [p.step() for _ in range(n + 1)]
    finally:
        p.close()


def theirs(args, model, *more):
    argv = [args.python, HERE + "/torch_step.py", "--model", json.dumps(MODELS[model])] + list(more)
    argv += ["--threads", str(args.threads)] if args.threads else []
    return argv + (["--tries", "0"] if args.quick else [])


# ------------------------------------------------------------------------------------------------------------- the table


def show(what, value, note=""):
    print("  %-34s %12s  %s" % (what, value, note), flush=True)


def judge(model, what, text, ok, limit, note="", goal=False):
    verdict = "ok" if ok else "MISSED"
    judged.append((model, what, text, limit, verdict, goal))
    show(what, text, "%s %s: %s%s" % ("goal" if goal else "must", limit, verdict, "; " + note if note else ""))


def mib(n):
    return "%.1f MiB" % (n / MIB)


def bench_program(args, model, about):
    quick = args.quick
    steps = STEPS[model][quick]
    runs = [train(args, model, 1) for _ in range(1 if quick else 4)]
    run = train(args, model, steps)
    peak, ms = gemms(args, model)
    times = run["ms"] if args.clock == "wall" else alone(args, model, PAIRS[model][quick])
    warm = times[2:] if len(times) > 4 else times[1:]
    median, least = statistics.median(warm), min(warm)
    flops, limit = about["flops_per_token"], LIMITS[model]
    tokens = MODELS[model]["seq"] * MODELS[model]["rows"]
    show("step, median", "%.1f ms" % median, "%d steps, least %.1f ms" % (len(warm), least))
    show("tokens/s", "%.0f" % (1e3 * tokens / median))
    show("FMA peak", "%.1f GF/s" % peak)
    show("of the peak", "%.1f %%" % (100 * flops * tokens / median / 1e6 / peak), "%.1f GFLOP a step; least step: %.1f %%" % (
        flops * tokens / 1e9, 100 * flops * tokens / least / 1e6 / peak))
    libraries = {k: v for k, v in ms.items() if k not in ("each", "ours")}
    if libraries:
        best = min(libraries, key=libraries.get)
        show("the step's GEMMs alone", "%.1f ms" % libraries[best], "%s; the best of each shape %.1f ms, ours %.1f ms" % (
            ", ".join("%s %.1f" % x for x in libraries.items()), ms["each"], ms["ours"]))
        ratio = least / libraries[best]
        judge(model, "step / GEMMs in " + best, "%.3f" % ratio, ratio <= limit["gemms"], "<= %.2f" % limit["gemms"],
              "both the least; median step %.3f" % (median / libraries[best]))
    rss, planned = run["rss"], about["memory"]["total"]
    judge(model, "peak memory over the plan", mib(rss - planned), rss <= planned + RSS_OVER_PLAN, "<= 20 MiB",
          "peak %s, planned %s" % (mib(rss), mib(planned)))
    judge(model, "peak memory", mib(rss), rss <= limit["rss"], "<= %s" % mib(limit["rss"]))
    begun = sorted(r["kernel_ms"] for r in runs + [run])
    middle = statistics.median(begun)
    judge(model, "exec to first kernel", "%.1f ms" % middle, middle <= FIRST_KERNEL_MS, "<= %d ms" % FIRST_KERNEL_MS,
          "median of %d, least %.1f ms; it fills the first parameter" % (len(begun), begun[0]))
    show("exec to first forward kernel", "%.1f ms" % min(r["training_ms"] for r in runs + [run]), "least; parameters drawn, folder written")
    show("exec to end of first step", "%.1f ms" % min(r["step_ms"] for r in runs + [run]), "least")


def bench_pairs(args, model, has_torch):
    n, limit = PAIRS[model][args.quick], LIMITS[model]
    warm_up = 1 if args.quick else 2
    fast = pairs(ours(args, model), ours(args, model, "debug.reduce=fast"), args.clock, n, warm_up)
    show("canonical / fast", "%.3f" % (1 / fast["ratio"]), "%d pairs: canonical %.1f ms, fast %.1f ms" % (n, fast["a"], fast["b"]))
    if not has_torch:
        return
    for mode, more in (("eager", []), ("compiled", ["--compile"])):
        r = pairs(ours(args, model), theirs(args, model, *more), args.clock, n, warm_up)
        judge(model, "PyTorch %s / titan" % mode, "%.3f" % r["ratio"], r["ratio"] >= limit[mode], ">= %.2f" % limit[mode],
              "%d pairs: %.1f ms, %.1f ms, %.1f GiB; %s" % (n, r["b"], r["a"], r["rss"] / GIB, r["about"]))
        if mode == "compiled":
            judge(model, "  the same", "%.3f" % r["ratio"], r["ratio"] >= limit["goal"], ">= %.2f" % limit["goal"], goal=True)


def machine():
    name = "processor unknown"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return "%s, %d cores, load %s" % (name, len(os.sched_getaffinity(0)), " ".join("%.2f" % x for x in os.getloadavg()))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("titan", nargs="?", default="build/release/titan", help="its bench programs lie beside it (default %(default)s)")
    p.add_argument("--quick", action="store_true", help="few steps: to see that it works")
    p.add_argument("--only", choices=sorted(MODELS))
    p.add_argument("--threads", type=int, default=0, help="default: the cores of this process")
    p.add_argument("--python", default=sys.executable, help="an interpreter that may have PyTorch (default: this one)")
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    args = p.parse_args()
    args.threads = 1 if args.clock == "cpu" else args.threads
    args.titan = os.path.abspath(args.titan)
    args.bench = os.path.join(os.path.dirname(args.titan), "bench")
    args.settings = ["device.threads=%d" % args.threads] if args.threads else []
    has_torch = subprocess.run([args.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    for model in [m for m in MODELS if args.only in (None, m)]:
        about = plan(args, model)
        print("\ntests/bench/%s.lua: %d parameters, %d x %d tokens a step; %s%s" % (
            model, about["parameters"], about["rows"], about["seq"], machine(),
            "; processor time of one thread" if args.clock == "cpu" else ""), flush=True)
        bench_program(args, model, about)
        bench_pairs(args, model, has_torch)
    if not has_torch:
        print("\n%s has no PyTorch: no pairs with it; --python PATH names one that has" % args.python)
    missed = [j for j in judged if j[4] != "ok" and not j[5]]
    goals = [j for j in judged if j[5]]
    print("\n%s; %d of %d musts ok, %d of %d goals" % (machine(), sum(not j[5] for j in judged) - len(missed),
                                                       sum(not j[5] for j in judged), sum(j[4] == "ok" for j in goals), len(goals)))
    for model, what, text, limit, _, _ in missed:
        print("MISSED  %s: %s %s, must %s" % (model, what, text, limit))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit("bench_step.py: %s" % e)
