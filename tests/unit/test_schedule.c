/* Named schedules: closed forms to the tick, the published table, lists that are refused for what
 * they need. */
#include "graph/schedule.h"
#include "tests/test.h"

static uint64_t state = 1;

static int64_t draw(int64_t least, int64_t most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

/* A schedule under the same times for each stage. */
typedef struct trial {
    int32_t p, v, m;
    int64_t f, b, w, hop;
    int64_t ideal, step, span; /* out: ticks */
    int32_t peak;
} trial;

static bool run(const char *name, trial *t, tn_schedule_report *keep)
{
    tn_schedule_time times[64];
    tn_schedule_costs costs = {times, t->hop};
    tn_schedule_options o = {name, t->p, t->v, t->m, &costs};
    tn_schedule *s = NULL;
    tn_schedule_report r = {0};
    for (int i = 0; i < t->p * t->v; i++) times[i] = (tn_schedule_time){t->f, t->b, t->w};
    bool ok = TN_CHECK_OK(tn_schedule_generate(&o, &s)) &&
              TN_CHECK_OK(tn_schedule_simulate(s, &costs, true, &r));
    tn_schedule_destroy(s);
    if (!ok) return false;
    t->ideal = r.ideal;
    t->step = r.step_bubble;
    t->span = r.span_bubble;
    t->peak = r.peak;
    TN_CHECK(r.ideal == t->m * t->v * (t->f + t->b + t->w) &&
             r.makespan == r.ideal + r.step_bubble);
    if (keep) *keep = r;
    else tn_schedule_report_fini(&r);
    return true;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void same(const char *name, const trial *t, int64_t step, int64_t peak)
{
    TN_CHECK_MSG(
        t->step == step && t->peak == peak,
        "%s, p %d, v %d, m %d, f %lld, b %lld, w %lld: bubble %lld, peak %d; expected %lld, %lld",
        name, t->p, t->v, t->m, (long long)t->f, (long long)t->b, (long long)t->w,
        (long long)t->step, t->peak, (long long)step, (long long)peak);
}

/* Any f, b, w (zero, too), any microbatches; of 1F1B the peak of every rank. */
static void closed_whole(trial t)
{
    tn_schedule_report r = {0};
    int64_t p = t.p, each = t.f + t.b + t.w;
    t.v = 1;
    if (run("GPipe", &t, NULL)) same("GPipe", &t, (p - 1) * each, t.m);
    if (run("1F1B", &t, &r)) same("1F1B", &t, (p - 1) * each, least(t.m, p));
    for (int32_t i = 0; r.ranks && i < t.p; i++)
        TN_CHECK(r.ranks[i].peak == least(t.m, p - i) && r.slots[i] == r.ranks[i].peak);
    tn_schedule_report_fini(&r);
}

static void closed_chunks(trial t)
{
    tn_schedule_report r = {0};
    int64_t p = t.p, v = t.v, each = t.f + t.b + t.w;
    if (t.m >= p && run("LoopedBFS", &t, NULL)) same("LoopedBFS", &t, (p - 1) * each, t.m * v);
    t.m = (t.m / t.p + 1) * t.p;
    if (!run("Interleaved1F1B", &t, &r)) return;
    same("Interleaved1F1B", &t, (p - 1) * each, least(2 * (p - 1) + (v - 1) * p + 1, t.m * v));
    for (int32_t i = 0; i < t.p; i++)
        TN_CHECK(r.ranks[i].peak == least(2 * (p - 1 - i) + (v - 1) * p + 1, t.m * v));
    tn_schedule_report_fini(&r);
}

static void closed_zero_bubble(trial t)
{
    int64_t p = t.p, form = (p - 1) * most(most(t.f, t.b), t.f + t.b - t.w);
    trial h = t;
    h.v = 1;
    h.m = t.p + t.m - 1;
    if (run("ZBH1", &h, NULL)) same("ZBH1", &h, form, p);
    if (t.w <= t.f && t.w <= t.b)
        TN_CHECK(form == (p - 1) * (t.f + t.b - t.w)); /* the usual formula */
    t.m = t.p * (int32_t)draw(1, 4);
    if (run("InterleavedZeroBubble", &t, NULL)) same("InterleavedZeroBubble", &t, form, p * t.v);
}

static void closed_vee(trial t)
{
    t.v = 2;
    t.b = t.w = t.f;
    t.m += 2 * t.p - 1;
    if (run("ZBVZeroBubble", &t, NULL)) {
        same("ZBVZeroBubble", &t, (t.p - 1) * t.f, 2 * t.p);
        TN_CHECK(t.span == 0);
    }
}

static void test_closed_forms(void)
{
    for (int i = 0; i < 400; i++) {
        trial t = {.p = (int32_t)draw(1, 9),
                   .m = (int32_t)draw(1, 24),
                   .v = (int32_t)draw(2, 4),
                   .f = draw(0, 30),
                   .b = draw(0, 30),
                   .w = draw(0, 30)};
        closed_whole(t);
        closed_chunks(t);
        closed_zero_bubble(t);
        closed_vee(t);
    }
}

/* Published: p = 8, m = 32, STEP and SPAN bubble in percent of the ideal. A rank's stages are 240
 * ticks in v chunks. */
static void test_table(void)
{
    static const struct {
        const char *name;
        int32_t v;
        double f, b, w, hop, step, span;
    } rows[] = {
        {"GPipe", 1, 1, 1, 1, 0, 21.9, 21.9},
        {"1F1B", 1, 1, 1, 1, 0, 21.9, 21.9},
        {"GPipe", 1, 1, 1.25, .85, 0, 21.9, 21.9},
        {"1F1B", 1, 1, 1.25, .85, 0, 21.9, 21.9},
        {"1F1B", 1, 1, 1, 1, .1, 29.0, 29.0},
        {"Interleaved1F1B", 2, 1, 1, 1, 0, 10.9, 10.9},
        {"Interleaved1F1B", 4, 1, 1, 1, 0, 5.5, 5.5},
        {"Interleaved1F1B", 2, 1, 1.25, .85, 0, 10.9, 10.9},
        {"Interleaved1F1B", 4, 1, 1.25, .85, 0, 5.5, 5.5},
        {"Interleaved1F1B", 2, 1, 1, 1, .1, 14.1, 14.1},
        {"Interleaved1F1B", 4, 1, 1, 1, .1, 11.9, 11.9},
        {"ZBH1", 1, 1, 1, 1, 0, 7.3, 7.3},
        {"ZBH1", 1, 1, 1.25, .85, 0, 9.9, 9.9},
        {"ZBVZeroBubble", 2, 1, 1, 1, 0, 3.65, 0.0},
        {"ZBVZeroBubble", 2, 1, 1.25, .85, 0, 4.4, 2.4},
    };
    for (int i = 0; i < TN_COUNT(rows); i++) {
        trial t = {.p = 8, .m = 32, .v = rows[i].v};
        double unit = 240.0 / rows[i].v;
        t.f = (int64_t)(rows[i].f * unit);
        t.b = (int64_t)(rows[i].b * unit);
        t.w = (int64_t)(rows[i].w * unit);
        t.hop = (int64_t)(rows[i].hop * 240 + .5);
        if (!run(rows[i].name, &t, NULL)) continue;
        double step = 100.0 * (double)t.step / (double)t.ideal,
               span = 100.0 * (double)t.span / (double)t.ideal;
        TN_CHECK_MSG(step > rows[i].step - .051 && step < rows[i].step + .051 &&
                         span > rows[i].span - .051 && span < rows[i].span + .051,
                     "row %d, %s: %.3f / %.3f, expected %.2f / %.2f", i, rows[i].name, step, span,
                     rows[i].step, rows[i].span);
    }
    /* With hops the table's greedy lists have 12.6 and 7.3; lists filled for the hop are shorter.
     */
    trial h = {.p = 8, .m = 32, .v = 1, .f = 20, .b = 20, .w = 20, .hop = 2},
          z = {.p = 8, .m = 32, .v = 2, .f = 10, .b = 10, .w = 10, .hop = 2};
    if (run("ZBH1", &h, NULL))
        TN_CHECK_MSG(h.step * 1000 <= h.ideal * 103, "ZBH1 with hops: %lld", (long long)h.step);
    if (run("ZBVZeroBubble", &z, NULL))
        TN_CHECK_MSG(z.step * 1000 <= z.ideal * 61, "ZBV with hops: %lld", (long long)z.step);
}

/* Few microbatches and odd times: never worse than what a simpler schedule takes, and never above
 * its memory. */
static void test_zero_bubble_never_loses(void)
{
    for (int i = 0; i < 300; i++) {
        trial z = {.p = (int32_t)draw(1, 7),
                   .m = (int32_t)draw(1, 16),
                   .f = draw(1, 20),
                   .b = draw(1, 20),
                   .w = draw(1, 20),
                   .hop = draw(0, 3),
                   .v = 1},
              plain = z;
        if (run("ZBH1", &z, NULL) && run("1F1B", &plain, NULL))
            TN_CHECK_MSG(z.step <= plain.step && z.peak <= z.p, "ZBH1 %lld, 1F1B %lld, peak %d",
                         (long long)z.step, (long long)plain.step, z.peak);
        z.v = 2;
        if (run("ZBVZeroBubble", &z, NULL))
            TN_CHECK(z.peak <= 2 * z.p && z.step >= (z.p - 1) * z.f);
    }
}

static void test_refused(void)
{
    static const struct {
        const char *name;
        int32_t p, v, m;
        const char *part;
    } rows[] = {
        {"1F1b", 4, 1, 8,
         "no schedule '1F1b'; did you mean '1F1B'?; there are 1F1B, GPipe, Interleaved1F1B"},
        {"PipelineScheduleSingle", 4, 1, 8, "no schedule 'PipelineScheduleSingle'"},
        {"1F1B", 4, 2, 8, "1F1B needs exactly 1 stage per rank, here are 2; nearest: 1"},
        {"GPipe", 4, 3, 8, "GPipe needs exactly 1 stage per rank, here are 3; nearest: 1"},
        {"ZBH1", 4, 2, 8, "ZBH1 needs exactly 1 stage per rank"},
        {"Interleaved1F1B", 4, 1, 8,
         "Interleaved1F1B needs at least 2 stages per rank, here are 1; nearest: 2"},
        {"LoopedBFS", 4, 1, 8, "LoopedBFS needs at least 2 stages per rank"},
        {"ZBVZeroBubble", 4, 3, 8,
         "ZBVZeroBubble needs exactly 2 stages per rank, here are 3; nearest: 2"},
        {"ZBVZeroBubble", 4, 1, 8, "nearest: 2"},
        {"Interleaved1F1B", 4, 2, 6, "multiples of pipeline_parallel_degree = 4; nearest: 4 or 8"},
        {"Interleaved1F1B", 4, 2, 3, "multiples of pipeline_parallel_degree = 4; nearest: 4"},
        {"InterleavedZeroBubble", 4, 2, 9, "nearest: 8 or 12"},
        {"1F1B", 0, 1, 8, "0 ranks x 1 stages per rank x 8 microbatches"},
        {"1F1B", 4, 1, 0, "0 microbatches"},
        {"GPipe", 65536, 1, 65536, "at most 16777216"},
    };
    tn_schedule *s = NULL;
    for (int i = 0; i < TN_COUNT(rows); i++) {
        tn_schedule_options o = {rows[i].name, rows[i].p, rows[i].v, rows[i].m, NULL};
        TN_CHECK_FAILS(tn_schedule_generate(&o, &s), TN_BAD_INPUT, rows[i].part);
    }
    TN_CHECK(!s);
    tn_schedule_options fine = {"InterleavedZeroBubble", 4, 1, 7, NULL};
    TN_CHECK_OK(tn_schedule_generate(&fine, &s));
    tn_schedule_destroy(s);
}

static void test_types(void)
{
    const tn_schedule_type *type = NULL;
    int n = 0;
    for (; (type = tn_schedule_type_at(n)) != NULL; n++) {
        const tn_schedule_type *same_type = NULL;
        TN_CHECK_OK(tn_schedule_type_of(type->name, &same_type));
        TN_CHECK(same_type == type && type->default_stages >= type->min_stages);
        for (int32_t p = 1; p <= 4; p++) { /* what the generator makes is what the type says */
            tn_schedule *s = NULL;
            tn_schedule_options o = {type->name, p, type->default_stages, 2 * p, NULL};
            if (!TN_CHECK_OK(tn_schedule_generate(&o, &s))) continue;
            bool split = false;
            for (int64_t i = 0; i < s->lists[0].n; i++)
                split = split || s->lists[0].actions[i].kind == TN_SCHEDULE_W;
            TN_CHECK(split == type->splits && s->n_stages == p * type->default_stages);
            for (int32_t i = 0; i < s->n_stages; i++)
                TN_CHECK(s->rank_of[i] == (type->v_style ? tn_schedule_v_rank(p, i) : i % p));
            tn_schedule_destroy(s);
        }
    }
    TN_CHECK(n == 7 && !tn_schedule_type_at(-1));
    TN_CHECK(tn_schedule_v_rank(4, 3) == 3 && tn_schedule_v_rank(4, 4) == 3 &&
             tn_schedule_v_rank(4, 7) == 0);
}

static tn_status all_of_it(void *name)
{
    static const tn_schedule_time times[] = {{3, 4, 2}, {5, 4, 3}, {3, 6, 2},
                                             {3, 4, 2}, {3, 4, 2}, {9, 9, 9}};
    tn_schedule_costs costs = {times, 1};
    tn_schedule_options o = {name, 3, 2, 3, &costs};
    tn_schedule *s = NULL;
    tn_schedule_report r;
    TN_TRY(tn_schedule_generate(&o, &s));
    tn_status st = tn_schedule_simulate(s, &costs, true, &r);
    if (st == TN_OK) tn_schedule_report_fini(&r);
    tn_schedule_destroy(s);
    return st;
}

int main(void)
{
    test_closed_forms();
    test_table();
    test_zero_bubble_never_loses();
    test_refused();
    test_types();
    TN_CHECK(tn_test_each_alloc(all_of_it, (void *)"ZBVZeroBubble") > 20);
    TN_CHECK(tn_test_each_alloc(all_of_it, (void *)"Interleaved1F1B") > 5);
    return tn_test_done("schedule");
}
