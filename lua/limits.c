#include "lua/limits.h"

#include "lua/model.h"
#include "lua/stage_plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where the key was said that a line begins with, "parallelism.x: " or "training.y = 3: "; "" if it
 * begins with none. */
static const char *said_at(const tn_limits *q, const char *line)
{
    char key[96];
    size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyz_.");
    if (n == 0 || n >= sizeof key || !memchr(line, '.', n)) return "";
    snprintf(key, sizeof key, "%.*s", (int)n, line);
    return tn_recipe_is_set(q->r, key) ? tn_recipe_where(q->r, key) : "";
}

static void put_line(tn_limits *q, const char *line, size_t n)
{
    size_t have = strlen(q->text);
    if (have + n + 2 > sizeof q->text) return;
    snprintf(q->text + have, sizeof q->text - have, "%s%.*s", have ? "\n" : "", (int)n, line);
}

void tn_limits_add(tn_limits *q, const char *key, const char *fmt, ...)
{
    char what[512], line[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "%s: %s%s", tn_recipe_where(q->r, key), key, what);
    put_line(q, line, strlen(line));
}

tn_status tn_limits_take(tn_limits *q, tn_status st)
{
    if (st != TN_BAD_INPUT) return st;
    for (const char *p = tn_error_text(); *p;) {
        size_t n = strcspn(p, "\n");
        const char *at = said_at(q, p);
        char text[1024];
        snprintf(text, sizeof text, "%s%s%.*s", at, at[0] ? ": " : "", (int)n, p);
        put_line(q, text, strlen(text));
        p += n + (p[n] == '\n');
    }
    tn_error_clear();
    return TN_OK;
}

tn_status tn_limits_end(const tn_limits *q)
{
    return q->text[0] ? tn_error_give(TN_BAD_INPUT, q->text) : TN_OK;
}

/* ------------------------------------------------------------ nearest values */

typedef struct nearest { /* of a number, among those that a rule allows; 0: none */
    int64_t below, above;
} nearest;

typedef bool (*rule)(const void *user, int64_t n);

static nearest find_nearest(int64_t n, int64_t most, rule legal, const void *user)
{
    nearest x = {0, 0};
    for (int64_t i = n - 1 < most ? n - 1 : most; i >= 1 && !x.below; i--)
        if (legal(user, i)) x.below = i;
    for (int64_t i = n < most ? n + 1 : most + 1; i <= most && !x.above; i++)
        if (legal(user, i)) x.above = i;
    return x;
}

/* "4 or 8", "4"; what stands in place of both when nothing is legal. */
typedef struct words {
    char s[48];
} words;

static words say(nearest x)
{
    words w;
    if (x.below && x.above)
        snprintf(w.s, sizeof w.s, "%lld or %lld", (long long)x.below, (long long)x.above);
    else snprintf(w.s, sizeof w.s, "%lld", (long long)(x.below ? x.below : x.above ? x.above : 1));
    return w;
}

/* ------------------------------------------------------------ this build */

void tn_limits_later(tn_limits *q, tn_mesh *m)
{
    static const char *const keys[] = {"parallelism.context_parallel_degree",
                                       "parallelism.expert_parallel_degree"};
    for (int i = 0; i < TN_COUNT(keys); i++) {
        long long n = (long long)tn_recipe_int(q->r, keys[i]);
        if (n > 1)
            tn_limits_add(q, keys[i], " = %lld: this build cannot do that yet; leave it at 1", n);
    }
    m->size[TN_AXIS_CP] = 1;
}

/* ------------------------------------------------------------ degrees */

typedef struct degree {
    int64_t heads, kv, tp_grid, rows_grid; /* 0: no such rule */
    int64_t seq_grid;
} degree;

static bool power(int64_t n)
{
    return !(n & (n - 1));
}

static bool heads_allow(const degree *d, int64_t tp)
{
    return (!d->heads || tp <= d->heads) && (!d->kv || d->kv % tp == 0 || tp % d->kv == 0);
}

static bool legal_tp(const void *user, int64_t tp)
{
    const degree *d = user;
    return heads_allow(d, tp) && (!d->tp_grid || (power(tp) && tp <= d->tp_grid)) &&
           (!d->seq_grid || tp <= d->seq_grid);
}

static bool legal_dp(const void *user, int64_t dp)
{
    const degree *d = user;
    return power(dp) && dp <= d->rows_grid;
}

static void check_tp(tn_limits *q, const degree *d, int64_t tp)
{
    static const char key[] = "parallelism.tensor_parallel_degree";
    words near = say(find_nearest(tp, d->heads ? d->heads : 4 * tp, legal_tp, d));
    if (d->heads && tp > d->heads)
        tn_limits_add(q, key, ": %lld ranks cannot split %lld query heads; the nearest is %s",
                      (long long)tp, (long long)d->heads, near.s);
    if (d->kv && d->kv % tp && tp % d->kv)
        tn_limits_add(q, key,
                      ": %lld neither divides the %lld key/value heads nor is a multiple of them; "
                      "the nearest is %s",
                      (long long)tp, (long long)d->kv, near.s);
    if (d->tp_grid && (!power(tp) || tp > d->tp_grid))
        tn_limits_add(q, key,
                      ": %lld keeps no bits under debug.reduce_grid.tp = %lld; %s, or "
                      "debug.reduce = \"fast\"",
                      (long long)tp, (long long)d->tp_grid, near.s);
    if (d->seq_grid && tp > d->seq_grid)
        tn_limits_add(q, key,
                      ": %lld cuts a position part of debug.reduce_grid.seq = %lld; %s, or "
                      "enable_sequence_parallel = false",
                      (long long)tp, (long long)d->seq_grid, near.s);
}

static tn_status read_degree(const tn_limits *q, degree *out)
{
    degree d = {0};
    TN_TRY(tn_model_int(q->r, "n_heads", &d.heads));
    TN_TRY(tn_model_int(q->r, "n_kv_heads", &d.kv));
    if (!strcmp(tn_recipe_text(q->r, "debug.reduce"), "canonical")) {
        d.tp_grid = tn_recipe_int_at(q->r, "debug.reduce_grid", 0);
        d.rows_grid = tn_recipe_int_at(q->r, "debug.reduce_grid", 2);
        if (tn_recipe_bool(q->r, "parallelism.enable_sequence_parallel"))
            d.seq_grid = tn_recipe_int_at(q->r, "debug.reduce_grid", 1);
    }
    *out = d;
    return TN_OK;
}

tn_status tn_limits_degrees(tn_limits *q, const tn_mesh *m)
{
    degree d;
    int64_t tp = m->size[TN_AXIS_TP],
            dp = (int64_t)m->size[TN_AXIS_DP_REPLICATE] * m->size[TN_AXIS_DP_SHARD];
    TN_TRY(read_degree(q, &d));
    if (tp > 1) check_tp(q, &d, tp);
    if (d.rows_grid && !legal_dp(&d, dp))
        tn_limits_add(q, "parallelism.data_parallel_shard_degree",
                      ": %lld data-parallel ranks keep no bits under debug.reduce_grid.rows = "
                      "%lld; %s of them (and tp or pp for the other ranks), or debug.reduce = "
                      "\"fast\"",
                      (long long)dp, (long long)d.rows_grid,
                      say(find_nearest(dp, d.rows_grid, legal_dp, &d)).s);
    return TN_OK;
}

/* ------------------------------------------------------------ the world */

typedef struct room { /* of tp in a world */
    degree d;
    int64_t room; /* ranks that the other degrees leave to it */
} room;

static bool fits(const void *user, int64_t n)
{
    const room *x = user;
    return x->room % n == 0 && legal_tp(&x->d, n);
}

static tn_status add_tp(const tn_limits *q, const tn_mesh *m, int64_t world, char *out, size_t size)
{
    int64_t tp = m->size[TN_AXIS_TP], rest = (int64_t)m->pp * m->size[TN_AXIS_DP_REPLICATE];
    room x = {.room = world % rest ? 0 : world / rest};
    if (tp == 1 || !x.room || x.room % tp == 0) return TN_OK;
    TN_TRY(read_degree(q, &x.d));
    nearest n = find_nearest(tp, x.room, fits, &x);
    if (n.below || n.above)
        snprintf(out, size, ", or parallelism.tensor_parallel_degree = %s", say(n).s);
    return TN_OK;
}

tn_status tn_limits_world(tn_limits *q, const tn_mesh *m, int64_t world, bool fills)
{
    static const char SHARD[] = "parallelism.data_parallel_shard_degree";
    int64_t shard = m->size[TN_AXIS_DP_SHARD], all = (int64_t)m->pp * tn_mesh_ranks(m),
            others = all / shard;
    char mend[160] = "";
    if (all == world) return TN_OK;
    int n = 0;
    if (world > others)
        n = snprintf(mend, sizeof mend, "-n %lld or %lld", (long long)(world / others * others),
                     (long long)(world / others * others + others));
    else n = snprintf(mend, sizeof mend, "-n %lld", (long long)others);
    if (!fills) n = snprintf(mend, sizeof mend, "-n %lld", (long long)all);
    if (!fills && world % others == 0)
        n += snprintf(mend + n, sizeof mend - (size_t)n, ", or %s = %lld", SHARD,
                      (long long)(world / others));
    TN_TRY(add_tp(q, m, world, mend + n, sizeof mend - (size_t)n));
    tn_limits_add(q, SHARD,
                  ": pp %d x dp_replicate %d x dp_shard %lld x cp %d x tp %d is %lld, the run has "
                  "%lld rank%s; %s",
                  m->pp, m->size[TN_AXIS_DP_REPLICATE], (long long)shard, m->size[TN_AXIS_CP],
                  m->size[TN_AXIS_TP], (long long)all, (long long)world, world == 1 ? "" : "s",
                  mend);
    return TN_OK;
}

/* ------------------------------------------------------------ rows */

static bool divides(const void *user, int64_t n)
{
    return *(const int64_t *)user % n == 0;
}

void tn_limits_batch(tn_limits *q, const tn_mesh *m)
{
    static const char GLOBAL[] = "training.global_batch_size";
    int64_t dp = (int64_t)m->size[TN_AXIS_DP_REPLICATE] * m->size[TN_AXIS_DP_SHARD],
            local = tn_recipe_int(q->r, "training.local_batch_size"),
            global = tn_recipe_int(q->r, GLOBAL), unit = local * dp, share = global / dp;
    if (global < 0 || global % unit == 0) return;
    int64_t below = global / unit * unit;
    nearest rows = {below, below + unit};
    char mend[96] = "";
    if (global % dp == 0)
        snprintf(
            mend, sizeof mend, ", or training.local_batch_size = %s",
            say(find_nearest(local, share < 2 * local ? share : 2 * local, divides, &share)).s);
    tn_limits_add(q, GLOBAL,
                  ": %lld is not a multiple of training.local_batch_size %lld x data-parallel "
                  "ranks %lld; the nearest is %s%s",
                  (long long)global, (long long)local, (long long)dp, say(rows).s, mend);
}

static bool groups(const void *user, int64_t n)
{
    int64_t shard = *(const int64_t *)user;
    return shard % n == 0 && (n <= 255 || n == shard);
}

void tn_limits_reshard(tn_limits *q, const tn_mesh *m)
{
    static const char key[] = "parallelism.fsdp_reshard_after_forward";
    int64_t shard = m->size[TN_AXIS_DP_SHARD],
            n = tn_recipe_is_text(q->r, key) ? shard : tn_recipe_int(q->r, key);
    if (n > 0 && groups(&shard, n)) return;
    tn_limits_add(
        q, key,
        ": groups of %lld ranks do not divide data_parallel_shard_degree %lld; the nearest "
        "is %s",
        (long long)n, (long long)shard, say(find_nearest(n, shard, groups, &shard)).s);
}

/* ------------------------------------------------------------ the pipeline */

tn_status tn_limits_pipeline(tn_limits *q, const tn_mesh *m)
{
    static const char SIZE[] = "parallelism.pipeline_parallel_microbatch_size";
    int64_t local = tn_recipe_int(q->r, "training.local_batch_size"),
            rows = tn_recipe_int(q->r, SIZE), layers;
    if (m->pp == 1) return TN_OK;
    if (local % rows)
        tn_limits_add(
            q, SIZE, ": %lld does not divide training.local_batch_size %lld; the nearest is %s",
            (long long)rows, (long long)local, say(find_nearest(rows, local, divides, &local)).s);
    TN_TRY(tn_model_int(q->r, "n_layers", &layers));
    return tn_limits_take(q, tn_stage_plan_check(q->r, m, layers, local % rows ? 0 : local / rows));
}
