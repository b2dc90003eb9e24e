#!/usr/bin/env python3
"""bench_comm.py [TITAN] - titan's all_reduce of 2 ranks beside MPI_Allreduce, turn and turn about in one run.

Each turn is a fresh pair of processes that repeats the operation for a second and gives its median; the ratio is that of the
medians over the turns. Without mpicc (Debian: libopenmpi-dev, openmpi-bin) only titan's column is printed."""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

TITAN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release/titan")
BENCH = os.path.join(os.path.dirname(TITAN), "bench", "bench_comm")
SIZES = ((4 << 10, None), (64 << 10, None), (1 << 20, 1.8), (8 << 20, None), (64 << 20, 3.0))
TURNS, SECONDS = 5, 1.0

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


def main():
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
