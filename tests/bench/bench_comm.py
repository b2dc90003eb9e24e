#!/usr/bin/env python3
"""bench_comm.py [TITAN] [--quick] - what ranks cost, against what they must cost; all that is compared runs turn and turn about.

1. titan's all_reduce of 2 ranks beside MPI_Allreduce. Each turn is a fresh pair of processes that repeats the operation for a
   second and gives its median; the ratio is that of the medians over the turns. Without mpicc and mpirun (Debian: libopenmpi-dev,
   openmpi-bin; ./configure.py --install-deps=bench) only titan's column is printed.
2. tokens/s of 2 data-parallel ranks x 1 thread against 1 rank x 2 threads, tests/bench/tiny.lua.
3. tokens/s of canonical against fast sums, 1 rank x 2 threads.
4. the step that `titan plan` predicts against the measured one, six layouts on this machine's cores.

Nothing fails on a time: each must and goal is marked ok or MISSED. Numbers count on a quiet machine; the load is printed."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
TITAN = os.path.abspath(arguments[0] if arguments else "build/release/titan")
QUICK = "--quick" in sys.argv
BENCH = os.path.join(os.path.dirname(TITAN), "bench", "bench_comm")
TINY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny.lua")
SIZES = ((4 << 10, None), (64 << 10, None), (1 << 20, 1.8), (8 << 20, None), (64 << 20, 3.0))
TURNS, SECONDS = (2, 0.3) if QUICK else (5, 1.0)
PAIRS, STEPS = (2, 4) if QUICK else (7, 8)
RANKS_MUST, CANONICAL_MUST, CANONICAL_GOAL = 0.95, 8.0, 5.0
LAYOUTS = [
    (1, []), (2, []), (2, ["parallelism.tp=2"]), (2, ["parallelism.pp=2", "parallelism.pipeline_parallel_microbatch_size=2"]),
    (4, ["parallelism.tp=2"]), (4, ["parallelism.dp_replicate=2", "parallelism.dp_shard=2"]),
]

MPI = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static double times[20000];
static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
int main(int argc, char **argv)
{
    int rank, n = atoi(argv[1]) / 4, done = 0, more = 1;
    double seconds = atof(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *x, *y;
    if (posix_memalign((void **)&x, 4096, (size_t)n * 4) || posix_memalign((void **)&y, 4096, (size_t)n * 4)) return 1;
    for (int i = 0; i < n; i++) x[i] = (float)(i % 1000) + (float)rank;
    for (int i = 0; i < 3; i++) MPI_Allreduce(x, y, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    while (more && done < 20000) {
        for (int i = 0; i < 4; i++) {
            double t = MPI_Wtime();
            MPI_Allreduce(x, y, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            times[done++] = MPI_Wtime() - t;
        }
        int mine = MPI_Wtime() - begun < seconds;
        MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    for (int i = 0; i < n; i++) if (y[i] != 2.0f * (float)(i % 1000) + 1.0f) return 2;
    qsort(times, (size_t)done, sizeof *times, by_size);
    if (rank == 0) printf("%.3f us\n", times[done / 2] * 1e6);
    MPI_Finalize();
    return 0;
}
"""


def median_us(argv):
    """The number in front of "us"; processes that fail end the bench."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    got = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, env=env, timeout=120)
    words = got.stdout.split()
    if got.returncode or "us" not in words:
        sys.exit("bench_comm.py: %s: %s%s" % (argv[0], got.stdout, got.stderr))
    return float(words[words.index("us") - 1])


def all_reduce():
    with tempfile.TemporaryDirectory(prefix="titan-bench-") as folder:
        mpi = os.path.join(folder, "allreduce")
        has_mpi = bool(shutil.which("mpicc") and shutil.which("mpirun"))
        if has_mpi:
            with open(mpi + ".c", "w") as f:
                f.write(MPI)
            subprocess.run(["mpicc", "-O2", "-o", mpi, mpi + ".c"], check=True)
            print(subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, universal_newlines=True).stdout.splitlines()[0])
        print("all_reduce, 2 ranks x 1 thread, medians of %d turns\n%12s %12s %12s %8s %8s" % (TURNS, "bytes", "titan us", "MPI us", "ratio", "must"))
        for size, must in SIZES:
            ours, theirs = [], []
            for _ in range(TURNS):
                ours.append(median_us([BENCH, "reduce", str(size), str(SECONDS)]))
                if has_mpi:
                    theirs.append(median_us(["mpirun", "-n", "2", "--oversubscribe", mpi, str(size), str(SECONDS)]))
            a, b = statistics.median(ours), statistics.median(theirs) if theirs else None
            print("%12d %12.1f %12s %8s %8s" % (size, a, "%.1f" % b if b else "-", "%.2f" % (b / a) if b else "-",
                                              "" if not must or not b else ("%.1f ok" if b / a >= must else "%.1f MISSED") % must), flush=True)


def tokens_per_s(ranks, words):
    """The median step of a short run, its first two left out."""
    with tempfile.TemporaryDirectory(prefix="titan-bench-") as folder:
        argv = [TITAN] + (["-n", str(ranks)] if ranks > 1 else []) + [TINY, "training.steps=%d" % STEPS, "job.dump_folder=" + folder] + words
        got = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        if got.returncode:
            sys.exit("bench_comm.py: %s: %s" % (" ".join(argv), got.stderr))
        with open(os.path.join(folder, "metrics.jsonl")) as f:
            steps = [json.loads(line)["tokens_per_s"] for line in f]
        return statistics.median(steps[2:])


def rows_of(ranks, words):
    """Eight rows a step, whatever the layout: the same work everywhere."""
    shared = [int(w.split("=")[1]) for w in words if w.split("=")[0] in ("parallelism.tp", "parallelism.pp")]
    dp = ranks // (shared[0] if shared else 1)
    return ["training.local_batch_size=%d" % (8 // dp)]


def verdict(value, must, more_is_better):
    return "ok" if (value >= must) == more_is_better or value == must else "MISSED"


def paired(one, other):
    """Median of the ratios one / other, turn and turn about."""
    ratios = []
    for _ in range(PAIRS):
        a = tokens_per_s(*one)
        ratios.append(a / tokens_per_s(*other))
    return statistics.median(ratios), min(ratios), max(ratios)


def ranks_against_threads():
    ratio, low, high = paired((2, ["device.threads=1", "training.local_batch_size=4"]), (1, ["device.threads=2"]))
    print("2 ranks x 1 thread against 1 rank x 2 threads: %.3f of the tokens/s (%.3f to %.3f), must %.2f %s" % (
        ratio, low, high, RANKS_MUST, verdict(ratio, RANKS_MUST, True)), flush=True)


def canonical_against_fast():
    ratio, low, high = paired((1, ["device.threads=2", "debug.reduce=canonical"]), (1, ["device.threads=2", "debug.reduce=fast"]))
    cost, words = 100 * (1 - ratio), "canonical sums cost %.1f %% of the tokens/s (%.1f to %.1f), must %.0f %s, goal %.0f %s"
    print(words % (cost, 100 * (1 - high), 100 * (1 - low), CANONICAL_MUST, verdict(cost, CANONICAL_MUST, False), CANONICAL_GOAL,
                   verdict(cost, CANONICAL_GOAL, False)), flush=True)


def predicted_against_measured():
    print("%-70s %10s %10s %7s" % ("step of tests/bench/tiny.lua, 8 x 512 tokens", "predicted", "measured", "error"))
    for ranks, words in LAYOUTS:
        words = words + rows_of(ranks, words)
        out = subprocess.run([TITAN, "plan", TINY, "--json", "--world", str(ranks)] + words, stdout=subprocess.PIPE, check=True).stdout
        guess = json.loads(out)["step_s"]
        took = 8 * 512 / statistics.median(tokens_per_s(ranks, words) for _ in range(1 if QUICK else 3))
        print("%-70s %7.0f ms %7.0f ms %+6.1f%%" % ("%d rank%s %s" % (ranks, "s" * (ranks > 1), " ".join(words)), 1e3 * guess, 1e3 * took,
                                                  100 * (guess / took - 1)), flush=True)


def main():
    print("load %.2f %.2f %.2f, %d cores" % (*os.getloadavg(), os.cpu_count()))
    all_reduce()
    ranks_against_threads()
    canonical_against_fast()
    predicted_against_measured()
    print("load %.2f %.2f %.2f" % os.getloadavg())
    return 0


if __name__ == "__main__":
    sys.exit(main())
