/* bench_ops.c - where the time of a training step goes: every entry of the program timed, summed by
 * kind of work and by op.
 *
 *     bench_ops [RECIPE] [--steps N] [--by op|path] [section.key=value ...]
 *
 * Without a recipe: tests/bench/tiny.lua and tests/bench/110m.lua. Times are per step, each entry's
 * own over the steps after two of warm-up: `ms` sums the medians, `least` the minima, `cpu` the
 * medians of processor time over all threads divided by their number (what the entries would take
 * if the machine were ours alone and the tiles of equal length). GF/s and GiB/s are work and the
 * bytes of whole operands (an embedding touches less) by `cpu`. --by path: a line for each place in
 * the model, layers taken together.
 */
#include "engine/base/clock.h"
#include "graph/cost.h"
#include "graph/op.h"
#include "lua/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 2, MAX_STEPS = 64, MAX_ROWS = 256, MAX_OVERRIDES = 64 };

static const char *const kinds[] = {
    "GEMM forward", "GEMM dx",   "GEMM dW", "attention",  "attention bwd", "norm", "rope",
    "pointwise",    "embedding", "loss",    "exact norm", "optimizer",     "move", "batch"};
enum {
    GEMM_Y,
    GEMM_DX,
    GEMM_DW,
    ATT,
    ATT_BWD,
    NORM,
    ROPE,
    POINT,
    EMBED,
    LOSS,
    EXACT,
    OPTIM,
    MOVE,
    BATCH
};

static const struct {
    uint8_t op, kind;
} kind_of_op[] = {
    {TN_OP_linear, GEMM_Y},
    {TN_OP_linear_add, GEMM_Y},
    {TN_OP_linear_bwd_x, GEMM_DX},
    {TN_OP_linear_bwd_w, GEMM_DW},
    {TN_OP_attention, ATT},
    {TN_OP_attention_bwd, ATT_BWD},
    {TN_OP_rmsnorm, NORM},
    {TN_OP_rmsnorm_bwd, NORM},
    {TN_OP_rmsnorm_bwd_w, NORM},
    {TN_OP_rope, ROPE},
    {TN_OP_add, POINT},
    {TN_OP_mul, POINT},
    {TN_OP_scale, POINT},
    {TN_OP_unary, POINT},
    {TN_OP_unary_bwd, POINT},
    {TN_OP_fused, POINT},
    {TN_OP_embedding, EMBED},
    {TN_OP_embedding_bwd, EMBED},
    {TN_OP_cross_entropy, LOSS},
    {TN_OP_loss_parts, LOSS},
    {TN_OP_loss_merge, LOSS},
    {TN_OP_loss_bwd, LOSS},
    {TN_OP_loss_sum, LOSS},
    {TN_OP_count_labels, LOSS},
    {TN_OP_inv_count, LOSS},
    {TN_OP_norm_sum, EXACT},
    {TN_OP_clip, EXACT},
    {TN_OP_adamw, OPTIM},
    {TN_OP_sgd, OPTIM},
};

/* One run of an entry within a step; the same in every step. */
typedef struct event {
    const tn_node *n; /* NULL: the batch */
    double wall[MAX_STEPS], cpu[MAX_STEPS];
} event;

typedef struct bench {
    tn_session s;
    event *events;
    int64_t n_events, at;
    int step;         /* that is being measured; below 0 while warming up */
    double wall, cpu; /* when the last entry ended */
} bench;

typedef struct row {
    const char *kind;
    char what[160];
    double ms, least, cpu, flops, bytes;
    int64_t runs;
} row;

typedef struct table {
    row rows[MAX_ROWS];
    int n;
} table;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- measuring ---- */

static void took(bench *b, const tn_node *n)
{
    double wall = tn_clock_s(), cpu = cpu_s();
    event *e = &b->events[b->at++];
    e->n = n;
    if (b->step >= 0) {
        e->wall[b->step] = wall - b->wall;
        e->cpu[b->step] = cpu - b->cpu;
    }
    b->wall = tn_clock_s();
    b->cpu = cpu_s();
}

static bool behind_entry(void *user, const tn_call *c)
{
    took(user, c->n);
    return false;
}

static tn_status measure(bench *b, int steps)
{
    const tn_program *p = b->s.train;
    int64_t runs = 1;
    for (int64_t i = 0; i < p->n_entries; i++)
        runs += tn_cost_runs(p->g, &p->g->nodes[p->entries[i].node]);
    b->events = calloc((size_t)runs, sizeof *b->events);
    if (!b->events) TN_FAIL(TN_FAILED, "no memory for %lld events", (long long)runs);
    b->n_events = runs;
    for (int i = -WARM_UP; i < steps; i++) {
        tn_step step = {.step = i + WARM_UP + 1, .lr_factor = 0.01};
        b->step = i;
        b->at = 0;
        b->wall = tn_clock_s();
        b->cpu = cpu_s();
        TN_TRY(tn_train_load(b->s.train_exec, b->s.data, TN_DATA_TRAIN, step.step - 1));
        took(b, NULL);
        int32_t none;
        TN_TRY(tn_exec_search(b->s.train_exec, TN_EXEC_ALL, &step, behind_entry, b, &none));
        if (b->at != runs)
            TN_FAIL(TN_FAILED, "the step ran %lld entries, not %lld", (long long)b->at,
                    (long long)runs);
    }
    return TN_OK;
}

/* ---- summing ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double sorted[MAX_STEPS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static const char *kind_of(const tn_node *n)
{
    if (!n) return kinds[BATCH];
    for (int i = 0; i < TN_COUNT(kind_of_op); i++)
        if (kind_of_op[i].op == n->op) return kinds[kind_of_op[i].kind];
    return kinds[MOVE];
}

static double operand_bytes(const tn_graph *g, const tn_node *n)
{
    double bytes = 0;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const tn_value *v = &g->values[i < n->n_in ? tn_node_in(g, n, i) : n->out0 + i - n->n_in];
        bytes += (double)tn_value_elements(v) * (double)tn_dtype_bytes(v->dtype);
    }
    return bytes;
}

/* "linear_bwd_w", or with the path, numbers as *: "linear_bwd_w layers.*.attention.wo". */
static void name_row(const tn_node *n, bool by_path, char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "%s", n ? tn_op_name((tn_op_id)n->op) : "load");
    if (!n || !by_path) return;
    out[at++] = ' ';
    for (const char *p = n->path; *p && at + 1 < size; p++) {
        bool digit = *p >= '0' && *p <= '9';
        if (digit && out[at - 1] == '*') continue;
        out[at++] = digit && (p == n->path || p[-1] == '.') ? '*' : *p;
    }
    out[at] = 0;
}

static row *find_row(table *t, const char *kind, const char *what)
{
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].kind == kind && !strcmp(t->rows[i].what, what)) return &t->rows[i];
    row *r = &t->rows[t->n < MAX_ROWS - 1 ? t->n++ : t->n - 1];
    r->kind = kind;
    snprintf(r->what, sizeof r->what, "%s", what);
    return r;
}

static void sum_up(const bench *b, int steps, bool by_path, table *t)
{
    const tn_graph *g = b->s.train->g;
    int threads = tn_pool_threads(b->s.device->cpu.pool);
    for (int64_t i = 0; i < b->n_events; i++) {
        const event *e = &b->events[i];
        double least = e->wall[0];
        char what[160];
        for (int k = 1; k < steps; k++) least = e->wall[k] < least ? e->wall[k] : least;
        name_row(e->n, by_path, what, sizeof what);
        row *r = find_row(t, kind_of(e->n), what);
        const tn_op *op = e->n ? tn_op_get((tn_op_id)e->n->op) : NULL;
        r->ms += 1e3 * median(e->wall, steps);
        r->least += 1e3 * least;
        r->cpu += 1e3 * median(e->cpu, steps) / threads;
        r->runs++;
        if (op && op->flops) r->flops += op->flops(g, e->n);
        if (e->n) r->bytes += operand_bytes(g, e->n);
    }
}

/* ---- printing ---- */

static void add(row *sum, const row *r)
{
    sum->ms += r->ms;
    sum->least += r->least;
    sum->cpu += r->cpu;
    sum->flops += r->flops;
    sum->bytes += r->bytes;
    sum->runs += r->runs;
}

static void print_row(const char *kind, const row *r, const row *all)
{
    printf("%-14s %-44s %6lld %9.2f %9.2f %5.1f%% %9.2f %5.1f%%", kind, r->what, (long long)r->runs,
           r->least, r->ms, 100 * r->ms / all->ms, r->cpu, 100 * r->cpu / all->cpu);
    if (r->flops > 0) printf(" %8.1f", r->flops / r->cpu / 1e6);
    else printf(" %8s", "");
    printf(" %7.1f\n", r->bytes / r->cpu / 1e-3 / (1 << 30));
}

static void print_table(const char *name, const table *t)
{
    row all = {.what = "", .kind = ""};
    for (int i = 0; i < t->n; i++) add(&all, &t->rows[i]);
    printf("\n%-59s %6s %9s %9s %6s %9s %6s %8s %7s\n", name, "runs", "least", "ms", "", "cpu", "",
           "GF/s", "GiB/s");
    for (int k = 0; k < TN_COUNT(kinds); k++) {
        row sum = {.what = ""};
        int n = 0;
        for (int i = 0; i < t->n; i++) {
            if (t->rows[i].kind != kinds[k]) continue;
            add(&sum, &t->rows[i]);
            n++;
        }
        for (int i = 0; i < t->n && n > 1; i++)
            if (t->rows[i].kind == kinds[k]) print_row("", &t->rows[i], &all);
        for (int i = 0; i < t->n && n == 1; i++)
            if (t->rows[i].kind == kinds[k])
                snprintf(sum.what, sizeof sum.what, "%s", t->rows[i].what);
        if (n) print_row(kinds[k], &sum, &all);
    }
    print_row("step", &all, &all);
    fflush(stdout);
}

/* ---- the program ---- */

typedef struct options {
    const char *recipe;
    int steps;
    bool by_path;
    const char *overrides[MAX_OVERRIDES];
    int n_overrides;
} options;

static tn_status bench_recipe(const char *path, const options *o)
{
    bench b = {0};
    tn_recipe *recipe;
    static table t;
    t.n = 0;
    memset(&t, 0, sizeof t);
    TN_TRY(tn_recipe_open(&(tn_recipe_options){.path = path,
                                               .overrides = o->overrides,
                                               .n_overrides = o->n_overrides},
                          &recipe));
    tn_status st = tn_session_plan(recipe, false, 0, &b.s);
    if (!st) st = tn_session_ready(&b.s);
    if (!st) st = measure(&b, o->steps);
    if (!st) {
        char title[128];
        snprintf(title, sizeof title, "%s, %d threads, %s, %d steps", path,
                 tn_pool_threads(b.s.device->cpu.pool), tn_isa_name(b.s.device->cpu.isa), o->steps);
        sum_up(&b, o->steps, o->by_path, &t);
        print_table(title, &t);
    }
    free(b.events);
    tn_session_close(&b.s);
    return st;
}

static bool parse(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--steps")) {
            o->steps = atoi(value);
            i++;
        } else if (!strcmp(argv[i], "--by") && (!strcmp(value, "op") || !strcmp(value, "path"))) {
            o->by_path = !strcmp(value, "path");
            i++;
        } else if (argv[i][0] != '-' && strchr(argv[i], '=') && o->n_overrides < MAX_OVERRIDES) {
            o->overrides[o->n_overrides++] = argv[i];
        } else if (argv[i][0] != '-' && !o->recipe) {
            o->recipe = argv[i];
        } else {
            return false;
        }
    }
    return o->steps >= 1 && o->steps <= MAX_STEPS;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"tests/bench/tiny.lua", "tests/bench/110m.lua"};
    options o = {.steps = 5};
    tn_status st = TN_OK;
    if (!parse(argc, argv, &o)) {
        fprintf(
            stderr,
            "usage: bench_ops [RECIPE] [--steps 1..%d] [--by op|path] [section.key=value ...]\n",
            MAX_STEPS);
        return 2;
    }
    if (o.recipe) st = bench_recipe(o.recipe, &o);
    for (int i = 0; i < TN_COUNT(usual) && !o.recipe && !st; i++) st = bench_recipe(usual[i], &o);
    if (st) fprintf(stderr, "bench_ops: %s\n", tn_error_text());
    return st ? 1 : 0;
}
