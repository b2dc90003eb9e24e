/* bench_comm.c - what ranks of one host pay for each other: starting, meeting, and the sum of two
 * ranks' arrays.
 *
 *     bench_comm                          the whole table
 *     bench_comm reduce BYTES SECONDS     one line: seconds per all_reduce of BYTES on 2 ranks
 * (bench_comm.py sets it beside Open MPI, turn and turn about)
 *
 * The all_reduce is the exchange that a program runs (engine/exchange.h): the value is pending on
 * tp and becomes replicated. Times are medians over repetitions, as rank 0 sees them; every result
 * is checked. */
#include "engine/base/clock.h"
#include "engine/comm.h"
#include "engine/device.h"
#include "engine/exchange.h"
#include "graph/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_REPEATS = 20000 };

static double times[MAX_REPEATS];

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(int n)
{
    qsort(times, (size_t)n, sizeof *times, by_size);
    return times[n / 2];
}

/* ------------------------------------------------------------------------------------ one exchange
 */

/* %x {tp:P} -> %y {tp:R}, f32[n], as it stands in a program. */
typedef struct setup {
    tn_value values[2];
    tn_node nodes[2];
    int32_t operands[1];
    tn_graph g;
    tn_place places[2];
    tn_program p;
} setup;

static void fill(setup *s, int n_ranks, int rank, int64_t n, int64_t offset)
{
    *s = (setup){0};
    for (int i = 0; i < 2; i++) {
        tn_value *v = &s->values[i];
        v->node = i;
        v->dtype = TN_F32;
        v->rank = 1;
        v->dim[0].extent = n;
        for (int a = 0; a < TN_N_AXES; a++) v->layout.type[a] = TN_TYPE_R;
        s->places[i] = (tn_place){.region = (int8_t)i, .offset = offset};
        s->nodes[i] = (tn_node){.op = TN_OP_redistribute, .n_out = 1, .out0 = i, .path = "bench"};
    }
    s->values[0].layout.type[TN_AXIS_TP] = TN_TYPE_P;
    s->nodes[1].n_in = 1;
    s->g = (tn_graph){.n_values = 2,
                      .n_nodes = 2,
                      .values = s->values,
                      .nodes = s->nodes,
                      .operands = s->operands,
                      .mesh = {.pp = 1}};
    for (int a = 0; a < TN_N_AXES; a++) s->g.mesh.size[a] = a == TN_AXIS_TP ? n_ranks : 1;
    s->p = (tn_program){.g = &s->g, .local = s->values, .places = s->places};
    s->p.at[TN_AXIS_TP] = rank;
}

static bool right(const float *y, int64_t n, int n_ranks)
{
    for (int64_t i = 0; i < n; i++)
        if (y[i] != (float)n_ranks * (float)(i % 1000) + (float)(n_ranks * (n_ranks - 1) / 2))
            return false;
    return true;
}

static tn_status reduce(const tn_world *w, tn_comm *c, int64_t bytes, double seconds, double *out)
{
    setup s;
    tn_arena arena = {0};
    const tn_exchange *x;
    tn_device *d;
    void *mine, *sum;
    int64_t n = bytes / 4;
    int done = 0, more = 1;
    tn_device_options o = {.threads = 1, .isa = tn_isa_best()};
    TN_TRY(tn_device_cpu_create(&o, &d));
    TN_TRY(tn_comm_region(c, 0, bytes, &mine));
    TN_TRY(tn_comm_region(c, 1, bytes, &sum));
    for (int64_t i = 0; i < n; i++) ((float *)mine)[i] = (float)(i % 1000) + (float)w->rank;
    fill(&s, w->size, w->rank, n, 0);
    TN_TRY(tn_exchange_build(&s.p,
                             &(tn_entry){1, TN_STREAM_TENSOR, TN_MEETS_BEFORE | TN_MEETS_BEHIND},
                             &(tn_exchange_memory){.comm = c}, &arena, &x));
    for (int i = 0; i < 3; i++) TN_TRY(tn_exchange_run(x, &d->cpu, 0, 0));
    double begun = tn_clock_s();
    while (more && done < MAX_REPEATS) {
        for (int i = 0; i < 4; i++) {
            double t = tn_clock_s();
            TN_TRY(tn_exchange_run(x, &d->cpu, 0, 0));
            times[done++] = tn_clock_s() - t;
        }
        TN_TRY(tn_comm_most(c, "more", tn_clock_s() - begun < seconds, &more));
    }
    if (!right(sum, n, w->size))
        TN_FAIL(TN_FAILED, "bench_comm: the sum of %lld bytes is wrong", (long long)bytes);
    *out = median(done);
    tn_arena_fini(&arena);
    tn_device_destroy(d);
    return TN_OK;
}

static tn_status rank_reduce(const tn_world *w, tn_comm *c, char **argv)
{
    double t = 0;
    long long bytes = atoll(argv[2]);
    TN_TRY(reduce(w, c, bytes, atof(argv[3]), &t));
    if (w->rank == 0)
        printf("all_reduce of %d ranks: %10lld bytes %12.2f us %8.2f GB/s\n", w->size, bytes,
               t * 1e6, (double)bytes / t / 1e9);
    return TN_OK;
}

/* ------------------------------------------------------------------------------------- other ranks
 */

static tn_status rank_meet(const tn_world *w, tn_comm *c)
{
    int n = 0, more = 1;
    double begun = tn_clock_s();
    while (more && n + 100 < MAX_REPEATS) {
        double t = tn_clock_s();
        for (int i = 0; i < 100; i++) TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "meet", 0));
        times[n++] = (tn_clock_s() - t) / 100;
        TN_TRY(tn_comm_most(c, "more", tn_clock_s() - begun < 0.5, &more));
    }
    double middle = median(n);
    if (w->rank == 0)
        printf("meeting of %d ranks: %12.2f us (least %.2f)\n", w->size, middle * 1e6,
               times[0] * 1e6);
    return TN_OK;
}

static tn_status rank_start(const tn_world *w, double launched_s)
{
    if (w->rank == 0)
        printf("first meeting of %d ranks: %8.2f ms after the launch\n", w->size,
               (tn_clock_s() - launched_s) * 1e3);
    return TN_OK;
}

static tn_status act(const tn_world *w, char **argv)
{
    tn_comm *c;
    TN_TRY(tn_comm_open(w, 30, &c));
    tn_status st = !strcmp(argv[1], "start")  ? rank_start(w, atof(argv[2]))
                   : !strcmp(argv[1], "meet") ? rank_meet(w, c)
                                              : rank_reduce(w, c, argv);
    if (st) tn_comm_abort(c, tn_error_text());
    tn_comm_close(c);
    return st;
}

/* --------------------------------------------------------------------------------------- the table
 */

static tn_status launch(int ranks, const char *what, const char *a, const char *b)
{
    char *argv[] = {"bench_comm", (char *)(uintptr_t)what, (char *)(uintptr_t)a,
                    (char *)(uintptr_t)b, NULL};
    tn_world_launch_options o = {.ranks = ranks, .argv = argv};
    int number;
    fflush(stdout);
    return tn_world_launch(&o, &number);
}

static tn_status table(void)
{
    char now[32], bytes[32];
    for (int i = 0; i < 5; i++) {
        snprintf(now, sizeof now, "%.9f", tn_clock_s());
        TN_TRY(launch(4, "start", now, "0"));
    }
    for (int n = 2; n <= 4; n *= 2) TN_TRY(launch(n, "meet", "0", "0"));
    for (int64_t n = 4096; n <= 64 << 20; n *= 4) {
        snprintf(bytes, sizeof bytes, "%lld", (long long)n);
        TN_TRY(launch(2, "reduce", bytes, "0.7"));
    }
    return TN_OK;
}

int main(int argc, char **argv)
{
    tn_world w;
    tn_status st = tn_world_find(&w);
    if (!st && w.size > 1)
        st = argc == 4 ? act(&w, argv) : tn_error(TN_BAD_INPUT, "bench_comm: a rank without work");
    else if (!st) st = argc == 4 ? launch(2, argv[1], argv[2], argv[3]) : table();
    if (st) fprintf(stderr, "%s\n", tn_error_text());
    return (int)st;
}
