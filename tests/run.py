#!/usr/bin/env python3
"""run.py SUITE - runs tests side by side, shows what fails, and ends with one line `N passed, N failed`.

A test is any command whose output holds a line `NAME: N passed, N failed[, N skipped]`: the C programs of tests/unit, the
scripts tests/cli/test_*.py (given the path of titan; `# variants: asan hostile` in a script asks for these too,
`# only: plant` for nothing else; --long in the suite `test`), the fuzz targets replaying tests/fuzz/corpus, and tests/lint.py. A test that ends otherwise, or checks
nothing, has failed.

suites: check   lint, and everything fast in the release variant
        bench   the programs tests/bench/bench_*.c, then the scripts bench_*.py (given titan), one after the other
        test    the same under asan+ubsan, in the hostile build, threads under tsan, fuzzing, long forms of the scripts
"""
import collections
import concurrent.futures
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

SUMMARY = re.compile(r"^(\S.*): (\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
SKIP = re.compile(r"^skip: (.*): (.*?)$", re.M)
WORKERS = 2
FUZZ_S = 20
Task = collections.namedtuple("Task", "name argv limit_s")
Result = collections.namedtuple("Result", "task passed failed skipped skips output seconds")

ENVIRONMENT = {
    "PYTHONDONTWRITEBYTECODE": "1",
    # No detect_stack_use_after_return: gcc aligns its stand-in frames to 32 bytes while AVX-512 code wants 64: it crashes.
    "ASAN_OPTIONS": "strict_string_checks=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def stem(path):
    return os.path.splitext(os.path.basename(path))[0]


def programs(variant, only=None):
    """The C tests of one variant."""
    tasks = []
    for src in sorted(glob.glob("tests/unit/test_*.c")):
        if only is None or stem(src) in only:
            tasks.append(Task("%s %s" % (variant, stem(src)[5:]), ["build/%s/tests/%s" % (variant, stem(src))],
                              300 if variant == "release" else 900))
    for src in sorted(glob.glob("tests/fuzz/fuzz_*.c")) if only is None else []:
        corpus = "tests/fuzz/corpus/" + stem(src)[5:]
        tasks.append(Task("%s replay %s" % (variant, stem(src)[5:]),
                          ["build/%s/tests/%s" % (variant, stem(src)), corpus], 300))
    return tasks


def scripts(variant, extra):
    """The Python tests that want this variant's titan."""
    tasks = []
    for path in sorted(glob.glob("tests/cli/test_*.py")):
        with open(path) as f:
            asked = re.search(r"^# (variants|only):(.*)$", f.read(), re.M)
        everywhere = not asked or asked.group(1) == "variants"
        if (variant == "release" and everywhere) or (asked and variant in asked.group(2).split()):
            argv = [sys.executable, path, os.path.abspath("build/%s/titan" % variant)] + extra
            tasks.append(Task("%s %s" % (variant, stem(path)[5:]), argv, 1200))
    return tasks


def fuzzers():
    tasks = []
    for src in sorted(glob.glob("tests/fuzz/fuzz_*.c")):
        name = stem(src)[5:]
        found, corpus = "build/fuzz/found/" + name, "tests/fuzz/corpus/" + name
        os.makedirs(found, exist_ok=True)
        words = ["-dict=tests/fuzz/%s.dict" % name] if os.path.exists("tests/fuzz/%s.dict" % name) else []
        tasks.append(Task("fuzz " + name, [
            "build/fuzz/tests/" + stem(src), "-max_total_time=%d" % FUZZ_S, "-max_len=16384", "-timeout=10",
            "-rss_limit_mb=2048", "-print_final_stats=1", "-artifact_prefix=build/fuzz/found/%s-" % name] + words +
            [found, corpus], FUZZ_S + 120))
    return tasks


def plan(suite, machine):
    """The tests of a suite, and what this machine makes us leave out."""
    tasks = [Task("lint", [sys.executable, "tests/lint.py"], 120)]
    tasks += programs("release") + scripts("release", ["--long"] if suite == "test" else [])
    left_out = []
    if suite == "check":
        return tasks, left_out
    for variant, needs in (("asan", "asan, ubsan"), ("hostile", "asan, ubsan")):
        if machine[needs]:
            tasks += programs(variant) + scripts(variant, [])
        else:
            left_out.append(("variant " + variant, "the compiler does not link -fsanitize=address,undefined"))
    tasks += scripts("plant", [])
    if machine["tsan"]:
        tasks += programs("tsan", machine["tsan_tests"])
    else:
        left_out.append(("variant tsan", "the compiler does not link -fsanitize=thread"))
    if machine["libFuzzer"]:
        tasks += fuzzers()
    else:
        left_out.append(("fuzzing", "no clang with libFuzzer (./configure.py --install-deps=test)"))
    return tasks, left_out


def how_it_ended(code):
    if code >= 0:
        return "exit status %d" % code
    try:
        return "killed by " + signal.Signals(-code).name
    except ValueError:
        return "killed by signal %d" % -code


def judge_fuzzer(code, output):
    """libFuzzer has its own words: done, or a crash with a file to keep."""
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    if code == 0 and runs and int(runs.group(1)) > 0:
        return 1, 0, "%s inputs" % runs.group(1)
    return 0, 1, how_it_ended(code)


def run(task):
    start = time.monotonic()
    env = dict(os.environ, **ENVIRONMENT)
    try:
        done = subprocess.run(task.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              timeout=task.limit_s, env=env)
        code, output = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        code, output = -9, (e.stdout or b"").decode(errors="replace") + "\nstopped after %d s" % task.limit_s
    except OSError as e:
        code, output = 127, str(e)
    seconds = time.monotonic() - start
    if task.name.startswith("fuzz "):
        passed, failed, note = judge_fuzzer(code, output)
        return Result(task, passed, failed, 0, [], output + note, seconds)
    found = SUMMARY.findall(output)
    passed, failed, skipped = (int(n or 0) for n in found[-1][1:]) if found else (0, 0, 0)
    if failed == 0 and (code != 0 or not found):
        failed, output = 1, output + "\n" + how_it_ended(code) + ("" if found else ", no summary line")
    if passed + failed + skipped == 0:
        failed, output = 1, output + "\nnothing was checked"
    return Result(task, passed, failed, skipped, SKIP.findall(output), output, seconds)


def show(r):
    counts = "%d passed, %d failed" % (r.passed, r.failed) + (", %d skipped" % r.skipped if r.skipped else "")
    print("%-28s %s  (%.1f s)" % (r.task.name, counts, r.seconds), flush=True)
    if r.failed:
        print("    $ " + " ".join(r.task.argv))
        print("".join("    %s\n" % line for line in r.output.strip().splitlines()[-60:]), flush=True)


def bench():
    """Nothing is judged here: a bench prints its table and is believed by who reads it."""
    c_programs = [["build/release/bench/" + stem(p)] for p in sorted(glob.glob("tests/bench/bench_*.c"))]
    py_scripts = [[sys.executable, p, "build/release/titan"] for p in sorted(glob.glob("tests/bench/bench_*.py"))]
    worst = 0
    for argv in c_programs + py_scripts:
        print("\n$ " + " ".join(argv), flush=True)
        worst = max(worst, abs(subprocess.run(argv, stdin=subprocess.DEVNULL).returncode))
    return 1 if worst else 0


def main(argv):
    if len(argv) != 2 or argv[1] not in ("check", "test", "bench"):
        sys.exit(__doc__)
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if argv[1] == "bench":
        return bench()
    with open("build/config.json") as f:
        state = json.load(f)
    machine = dict(state["found"], tsan_tests=state["tsan_tests"])
    tasks, left_out = plan(argv[1], machine)
    with concurrent.futures.ThreadPoolExecutor(max_workers=WORKERS) as pool:
        results = []
        for future in concurrent.futures.as_completed([pool.submit(run, t) for t in tasks]):
            results.append(future.result())
            show(results[-1])
    reasons = collections.Counter()
    for what, why in left_out + [s for r in results for s in r.skips]:
        reasons["%s: %s" % (what, why)] += 1
    for reason in sorted(reasons):
        print("skipped: %s%s" % (reason, " (%d times)" % reasons[reason] if reasons[reason] > 1 else ""))
    for r in sorted(results):
        if r.failed:
            print("failed: " + r.task.name)
    passed, failed = sum(r.passed for r in results), sum(r.failed for r in results)
    skipped = sum(r.skipped for r in results) + len(left_out)
    line = "%d passed, %d failed" % (passed, failed) + (", %d skipped" % skipped if skipped else "")
    with open("build/summary.txt", "w") as f:
        f.write(line + "\n")
    print(line)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
