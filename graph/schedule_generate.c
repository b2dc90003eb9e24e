/* schedule_generate.c - the lists of the named schedules.
 *
 * NOTES
 * (1) The one-forward-one-backward family is one generator: some forwards ahead, then forward and
 * backward in turn, then the backwards that are left. Forward k of a rank is chunk (k mod pv)/p,
 * microbatch (k/(pv))p + k mod p; backwards take the chunks the other way round. 1F1B runs p-1-r
 * forwards ahead; Interleaved1F1B 2(p-1-r) + (v-1)p, so that a rank never waits for a backward
 * (Narayanan et al. 2021). (2) InterleavedZeroBubble runs p-1-r + (v-1)p ahead and its weight
 * gradients r microbatches late. With v = 1 that is ZB-H1 (Qi et al. 2023, fig. 2); with any v its
 * peak is pv saved sets. (3) ZBVZeroBubble: stages r and 2p-1-r on rank r (Qi et al. 2024, Pipeline
 * Parallelism with Controllable Memory, ZB-V). (4) The last two are made for f = b = w and many
 * microbatches. Where their fixed lists are not at once as good as any, the weight gradients are
 * placed anew in twelve ways (schedule_fill.c) by the costs given, and the list with the shortest
 * step stays; among those, the shortest span. A greedy choice of forwards and backwards as well
 * (the one published with ZB-V) was worse in 62 and better in 1 of 120 random cases. */
#include "graph/schedule.h"

#include "graph/schedule_fill.h"

#include <stdio.h>
#include <string.h>

typedef struct maker {
    tn_schedule *s;
    int32_t p, v, m, rank;
} maker;

static tn_status put(maker *k, tn_schedule_kind kind, int32_t stage, int32_t microbatch)
{
    return tn_schedule_add(k->s, k->rank, (tn_schedule_action){(uint8_t)kind, stage, microbatch});
}

/* The i-th forward or backward of the rank, NOTES (1). */
static tn_status turn(maker *k, tn_schedule_kind kind, int32_t i)
{
    int32_t round = k->p * k->v, chunk = i % round / k->p;
    if (kind != TN_SCHEDULE_F) chunk = k->v - 1 - chunk;
    return put(k, kind, chunk * k->p + k->rank, i / round * k->p + i % k->p);
}

/* `split`: input and weight gradients apart, the latter `late` turns behind. */
static tn_status in_turns(maker *k, int32_t ahead, bool split, int32_t late)
{
    int32_t n = k->m * k->v, i = 0, n_w = 0;
    if (ahead > n) ahead = n;
    for (; i < ahead; i++) TN_TRY(turn(k, TN_SCHEDULE_F, i));
    for (int32_t j = 0; j < n; j++) {
        if (i < n) TN_TRY(turn(k, TN_SCHEDULE_F, i++));
        TN_TRY(turn(k, split ? TN_SCHEDULE_B : TN_SCHEDULE_BW, j));
        if (split && j >= late) TN_TRY(turn(k, TN_SCHEDULE_W, n_w++));
    }
    while (split && n_w < n) TN_TRY(turn(k, TN_SCHEDULE_W, n_w++));
    return TN_OK;
}

/* GPipe where v = 1. */
static tn_status breadth_first(maker *k)
{
    for (int32_t c = 0; c < k->v; c++)
        for (int32_t i = 0; i < k->m; i++) TN_TRY(put(k, TN_SCHEDULE_F, c * k->p + k->rank, i));
    for (int32_t c = k->v - 1; c >= 0; c--)
        for (int32_t i = 0; i < k->m; i++) TN_TRY(put(k, TN_SCHEDULE_BW, c * k->p + k->rank, i));
    return TN_OK;
}

/* NOTES (3): f[c], b[c], w[c] count what chunk c has run. The pattern needs 2p-1 microbatches to
 * close; those beyond m are made and left out. */
typedef struct vee {
    maker *k;
    int32_t n, stage[2], f[2], b[2], w[2];
} vee;

static tn_status vee_put(vee *y, tn_schedule_kind kind, int c)
{
    int32_t *count = kind == TN_SCHEDULE_F ? y->f : kind == TN_SCHEDULE_B ? y->b : y->w;
    int32_t i = count[c]++;
    return i < y->k->m ? put(y->k, kind, y->stage[c], i) : TN_OK;
}

static tn_status vee_backward(vee *y, int c)
{
    TN_TRY(vee_put(y, TN_SCHEDULE_B, c));
    return vee_put(y, TN_SCHEDULE_W, c);
}

static tn_status vee_shaped(maker *k)
{
    int32_t r = k->rank, p = k->p;
    vee y = {.k = k, .n = k->m > 2 * p - 1 ? k->m : 2 * p - 1, .stage = {r, 2 * p - 1 - r}};
    for (int32_t i = 0; i < 2 * (p - r) - 1; i++) TN_TRY(vee_put(&y, TN_SCHEDULE_F, 0));
    for (int32_t i = 0; i < r; i++) {
        TN_TRY(vee_put(&y, TN_SCHEDULE_F, 1));
        TN_TRY(vee_put(&y, TN_SCHEDULE_F, 0));
    }
    for (int32_t i = 0; i < p - r; i++) {
        TN_TRY(vee_put(&y, TN_SCHEDULE_F, 1));
        TN_TRY(vee_backward(&y, 1));
    }
    while (y.f[1] < y.n) {
        if (y.f[0] < y.n) TN_TRY(vee_put(&y, TN_SCHEDULE_F, 0));
        TN_TRY(vee_backward(&y, 0));
        TN_TRY(vee_put(&y, TN_SCHEDULE_F, 1));
        TN_TRY(vee_backward(&y, 1));
    }
    for (int32_t i = 0; i < r; i++) {
        TN_TRY(vee_put(&y, TN_SCHEDULE_B, 0));
        TN_TRY(vee_put(&y, TN_SCHEDULE_B, 1));
    }
    for (int32_t i = 0; i < p - r; i++) TN_TRY(vee_backward(&y, 0));
    while (y.w[1] < y.n) TN_TRY(vee_put(&y, TN_SCHEDULE_W, 1));
    while (y.w[0] < y.n) TN_TRY(vee_put(&y, TN_SCHEDULE_W, 0));
    return TN_OK;
}

/* ------------------------------------------------------------ names */

static int32_t behind(const maker *k)
{
    return k->p - 1 - k->rank;
}

static tn_status one_f_one_b(maker *k)
{
    return in_turns(k, behind(k), false, 0);
}

static tn_status interleaved(maker *k)
{
    return in_turns(k, 2 * behind(k) + (k->v - 1) * k->p, false, 0);
}

static tn_status zero_bubble(maker *k)
{
    return in_turns(k, behind(k) + (k->v - 1) * k->p, true, k->rank);
}

typedef struct row {
    tn_schedule_type type;
    tn_status (*make)(maker *k); /* the list of one rank */
} row;

static const row rows[] = {
    {{"1F1B", false, false, 1, 1, 1, false, false}, one_f_one_b},
    {{"GPipe", false, false, 1, 1, 1, false, true}, breadth_first},
    {{"Interleaved1F1B", false, false, 2, 0, 2, true, false}, interleaved},
    {{"LoopedBFS", false, false, 2, 0, 2, false, true}, breadth_first},
    {{"ZBH1", true, false, 1, 1, 1, false, false}, zero_bubble},
    {{"InterleavedZeroBubble", true, false, 1, 0, 2, true, false}, zero_bubble},
    {{"ZBVZeroBubble", true, true, 2, 2, 2, false, false}, vee_shaped},
};

const tn_schedule_type *tn_schedule_type_at(int i)
{
    return i >= 0 && i < TN_COUNT(rows) ? &rows[i].type : NULL;
}

tn_status tn_schedule_type_of(const char *name, const tn_schedule_type **out)
{
    const char *names[TN_COUNT(rows)];
    tn_text all = {0};
    for (int i = 0; i < TN_COUNT(rows); i++) {
        names[i] = rows[i].type.name;
        if (strcmp(name, names[i]) == 0) {
            *out = &rows[i].type;
            return TN_OK;
        }
    }
    for (int i = 0; i < TN_COUNT(rows); i++) tn_text_add(&all, "%s%s", i ? ", " : "", names[i]);
    tn_status st = tn_text_end(&all);
    if (st == TN_OK)
        st = tn_error(TN_BAD_INPUT,
                      "parallelism.pipeline_parallel_schedule: no schedule '%.60s'%s; there are %s",
                      name, tn_text_hint(name, names, TN_COUNT(names)).s, tn_text_str(&all));
    tn_text_fini(&all);
    return st;
}

/* ------------------------------------------------------------ NOTES (4) */

typedef struct score {
    int64_t makespan, span_bubble;
    int32_t peak;
} score;

static tn_status score_of(const tn_schedule *s, const tn_schedule_costs *costs, score *out)
{
    tn_schedule_report r;
    TN_TRY(tn_schedule_simulate(s, costs, true, &r));
    *out = (score){r.makespan, r.span_bubble, r.peak};
    tn_schedule_report_fini(&r);
    return TN_OK;
}

static bool better(score a, score b)
{
    if (a.makespan != b.makespan) return a.makespan < b.makespan;
    if (a.span_bubble != b.span_bubble) return a.span_bubble < b.span_bubble;
    return a.peak < b.peak;
}

static tn_schedule_time time_of(const tn_schedule_costs *costs, int32_t stage)
{
    return costs && costs->stages ? costs->stages[stage] : (tn_schedule_time){1, 1, 1};
}

/* No list is shorter: a rank works through its stages once the first microbatch has reached it. */
static int64_t least_makespan(const tn_schedule *s, const tn_schedule_costs *costs)
{
    int64_t least = 0;
    for (int32_t r = 0; r < s->n_ranks; r++) {
        int64_t come = 0, work = 0;
        bool reached = false;
        for (int32_t i = 0; i < s->n_stages; i++) {
            tn_schedule_time t = time_of(costs, i);
            reached = reached || s->rank_of[i] == r;
            if (s->rank_of[i] == r) work += (t.f + t.b + t.w) * s->n_microbatches;
            if (!reached) come += t.f + (costs ? costs->hop : 0);
        }
        if (come + work > least) least = come + work;
    }
    return least;
}

static tn_status improve(const tn_schedule_options *o, tn_schedule **s)
{
    score best, now;
    tn_schedule *try = NULL;
    tn_schedule *fixed = *s, *keep = NULL;
    tn_status st = score_of(fixed, o->costs, &best);
    int64_t least = st == TN_OK ? least_makespan(fixed, o->costs) : 0;
    for (int i = 0; st == TN_OK && best.makespan > least && i < 12; i++) {
        tn_schedule_filling how = {.due = i % 2, .quarters = i / 2 - 1, .cap = fixed->n_stages};
        if ((st = tn_schedule_fill(fixed, o->costs, &how, &try)) || !try) continue;
        if ((st = score_of(try, o->costs, &now)) == TN_OK && better(now, best)) {
            best = now;
            tn_schedule_destroy(keep);
            keep = try;
        } else {
            tn_schedule_destroy(try);
        }
    }
    if (st == TN_OK && keep) {
        *s = keep;
        keep = fixed;
    }
    tn_schedule_destroy(keep);
    return st;
}

/* ------------------------------------------------------------ by name */

static tn_status suits(const tn_schedule_options *o, const tn_schedule_type *type)
{
    int32_t p = o->n_ranks, v = o->stages_per_rank, m = o->n_microbatches;
    if (v < type->min_stages || (type->max_stages && v > type->max_stages))
        TN_FAIL(TN_BAD_INPUT,
                "parallelism.pipeline_parallel_schedule: %s needs %s %d stage%s per rank, here are "
                "%d; nearest: %d",
                type->name, type->max_stages ? "exactly" : "at least", type->min_stages,
                type->min_stages == 1 ? "" : "s", v,
                v < type->min_stages ? type->min_stages : type->max_stages);
    if (type->whole_rounds && v > 1 && m % p) {
        char less[32] = "";
        if (m > p) snprintf(less, sizeof less, "%d or ", m / p * p);
        TN_FAIL(TN_BAD_INPUT,
                "parallelism.pipeline_parallel_schedule: %s needs microbatches (here %d: "
                "training.local_batch_size / "
                "parallelism.pipeline_parallel_microbatch_size) in multiples of "
                "pipeline_parallel_degree = %d; "
                "nearest: %s%d",
                type->name, m, p, less, (m / p + 1) * p);
    }
    return TN_OK;
}

tn_status tn_schedule_generate(const tn_schedule_options *o, tn_schedule **out)
{
    const tn_schedule_type *type = NULL;
    tn_status (*make)(maker * k) = NULL;
    int32_t *rank_of = NULL, p = o->n_ranks, v = o->stages_per_rank, m = o->n_microbatches;
    void *mem = NULL;
    TN_TRY(tn_schedule_type_of(o->name, &type));
    if (p < 1 || v < 1 || m < 1 || (int64_t)p * v > TN_SCHEDULE_MAX_CELLS / m)
        TN_FAIL(TN_BAD_INPUT,
                "pipeline schedule: %d ranks x %d stages per rank x %d microbatches; each is at "
                "least 1, all at most %d",
                p, v, m, TN_SCHEDULE_MAX_CELLS);
    TN_TRY(suits(o, type));
    for (int i = 0; i < TN_COUNT(rows); i++)
        if (type == &rows[i].type) make = rows[i].make;
    TN_TRY(tn_alloc((size_t)p * (size_t)v * sizeof *rank_of, &mem));
    rank_of = mem;
    for (int32_t i = 0; i < p * v; i++)
        rank_of[i] = type->v_style ? tn_schedule_v_rank(p, i) : i % p;
    maker k = {.p = p, .v = v, .m = m};
    tn_status st = tn_schedule_create(p, p * v, m, rank_of, &k.s);
    tn_free(rank_of);
    for (; st == TN_OK && k.rank < p; k.rank++) st = make(&k);
    if (st == TN_OK && type->splits) st = improve(o, &k.s);
    if (st != TN_OK) {
        tn_schedule_destroy(k.s);
        return st;
    }
    *out = k.s;
    return TN_OK;
}
