/* The validator: every fault of a list is named, and on lists drawn at random it agrees with a
 * plain search for the order of things, start times and slots among them. */
#include "graph/schedule.h"
#include "tests/test.h"

#include <stdlib.h>

enum { MAX_ACTIONS = 4096 };

static uint64_t state = 7;

static int64_t draw(int64_t least, int64_t most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

static tn_schedule *named(const char *name, int32_t p, int32_t v, int32_t m)
{
    tn_schedule *s = NULL;
    tn_schedule_options o = {name, p, v, m, NULL};
    TN_CHECK_OK(tn_schedule_generate(&o, &s));
    return s;
}

static tn_schedule *any(void)
{
    static const char *const names[] = {
        "1F1B",         "GPipe", "ZBH1", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
        "ZBVZeroBubble"};
    int i = (int)draw(0, 6);
    int32_t p = (int32_t)draw(1, 5), m = (int32_t)draw(1, 6);
    if (i == 3 || i == 5) m = p * (int32_t)draw(1, 2);
    return named(names[i], p, i < 3 ? 1 : 2, m);
}

/* ------------------------------------------------------------ the plain search */

/* Longest paths by relaxing every edge until nothing changes; more rounds than actions: a circle
 * (no time is 0). */
typedef struct plain {
    const tn_schedule *s;
    tn_schedule_action a[MAX_ACTIONS];
    int32_t rank[MAX_ACTIONS];
    int64_t at[MAX_ACTIONS], end[MAX_ACTIONS];
    int n;
    bool circle;
} plain;

static int64_t ticks(const tn_schedule_costs *c, tn_schedule_action a)
{
    tn_schedule_time t = c->stages[a.stage];
    return a.kind == TN_SCHEDULE_F   ? t.f
           : a.kind == TN_SCHEDULE_B ? t.b
           : a.kind == TN_SCHEDULE_W ? t.w
                                     : t.b + t.w;
}

static bool forward(tn_schedule_action a, int32_t stage, int32_t microbatch)
{
    return a.kind == TN_SCHEDULE_F && a.stage == stage && a.microbatch == microbatch;
}

static bool backward(tn_schedule_action a, int32_t stage, int32_t microbatch)
{
    return (a.kind == TN_SCHEDULE_B || a.kind == TN_SCHEDULE_BW) && a.stage == stage &&
           a.microbatch == microbatch;
}

static bool needs(tn_schedule_action a, tn_schedule_action of)
{
    if (a.kind == TN_SCHEDULE_F) return forward(of, a.stage - 1, a.microbatch);
    if (a.kind == TN_SCHEDULE_W) return backward(of, a.stage, a.microbatch);
    return forward(of, a.stage, a.microbatch) || backward(of, a.stage + 1, a.microbatch);
}

static void search(plain *x, const tn_schedule *s, const tn_schedule_costs *c)
{
    bool changed = true;
    x->s = s;
    x->n = 0;
    for (int32_t r = 0; r < s->n_ranks; r++)
        for (int64_t i = 0; i < s->lists[r].n; i++, x->n++) {
            x->a[x->n] = s->lists[r].actions[i];
            x->rank[x->n] = r;
            x->at[x->n] = i;
            x->end[x->n] = ticks(c, x->a[x->n]);
        }
    int rounds = 0;
    for (; changed && rounds <= x->n; rounds++) {
        changed = false;
        for (int i = 0; i < x->n; i++)
            for (int j = 0; j < x->n; j++) {
                bool next = x->rank[i] == x->rank[j] && x->at[i] == x->at[j] + 1;
                if (!next && !needs(x->a[i], x->a[j])) continue;
                int64_t end =
                    x->end[j] + (x->rank[i] == x->rank[j] ? 0 : c->hop) + ticks(c, x->a[i]);
                changed = changed || end > x->end[i];
                if (end > x->end[i]) x->end[i] = end;
            }
    }
    x->circle = rounds > x->n;
}

/* Named schedules: microbatch mod slots. */
static void test_slots(void)
{
    for (int i = 0; i < 60; i++) {
        tn_schedule *s = any();
        tn_schedule_report r = {0};
        if (!s || !TN_CHECK_OK(tn_schedule_simulate(s, NULL, true, &r))) return;
        for (int32_t q = 0; q < s->n_ranks; q++)
            for (int64_t j = 0; j < s->lists[q].n; j++) {
                tn_schedule_action a = s->lists[q].actions[j];
                TN_CHECK(r.events[q][j].slot == a.microbatch % r.slots[a.stage]);
            }
        tn_schedule_report_fini(&r);
        tn_schedule_destroy(s);
    }
}

/* Slots: no two live saved sets of a stage share one, none is beyond the count, and the count is
 * reached. */
static void check_slots(const tn_schedule *s, const tn_schedule_report *r)
{
    for (int32_t q = 0; q < s->n_ranks; q++) {
        int32_t holds[16][64], live = 0, peak = 0, high[16] = {0};
        memset(holds, -1, sizeof holds);
        for (int64_t i = 0; i < s->lists[q].n; i++) {
            tn_schedule_action a = s->lists[q].actions[i];
            int32_t slot = r->events[q][i].slot;
            if (!TN_CHECK(slot >= 0 && slot < r->slots[a.stage])) return;
            if (a.kind == TN_SCHEDULE_F) {
                TN_CHECK(holds[a.stage][slot] == -1);
                holds[a.stage][slot] = a.microbatch;
                if (++live > peak) peak = live;
                if (slot >= high[a.stage]) high[a.stage] = slot + 1;
            }
            TN_CHECK(holds[a.stage][slot] == a.microbatch);
            if (a.kind != TN_SCHEDULE_F && a.kind != TN_SCHEDULE_B)
                holds[a.stage][slot] = -1, live--;
        }
        TN_CHECK(live == 0 && peak == r->ranks[q].peak);
        for (int32_t i = 0; i < s->n_stages; i++)
            if (s->rank_of[i] == q) TN_CHECK(high[i] == r->slots[i]);
    }
}

static void compare(const tn_schedule *s, const tn_schedule_costs *c, plain *x)
{
    tn_schedule_report r = {0};
    search(x, s, c);
    tn_status st = tn_schedule_simulate(s, c, false, &r);
    if (x->circle) {
        TN_CHECK(st == TN_BAD_INPUT &&
                 strstr(tn_error_text(), "pipeline schedule: deadlock: rank "));
        tn_error_clear();
        return;
    }
    if (!TN_CHECK_OK(st)) return;
    int64_t makespan = 0, step = 0;
    for (int i = 0; i < x->n; i++) {
        tn_schedule_event e = r.events[x->rank[i]][x->at[i]];
        TN_CHECK(e.end == x->end[i] && e.end - e.start == ticks(c, x->a[i]));
        if (x->end[i] > makespan) makespan = x->end[i];
    }
    for (int32_t q = 0; q < s->n_ranks; q++) {
        const tn_schedule_use *u = &r.ranks[q];
        int64_t busy = 0;
        for (int i = 0; i < x->n; i++) busy += x->rank[i] == q ? ticks(c, x->a[i]) : 0;
        TN_CHECK(u->busy == busy && u->first == r.events[q][0].start &&
                 u->last == r.events[q][s->lists[q].n - 1].end);
        if (busy > step) step = busy;
    }
    TN_CHECK(r.makespan == makespan && r.ideal == step && r.step_bubble == makespan - step &&
             r.span_bubble >= 0 && r.span_bubble <= r.step_bubble);
    check_slots(s, &r);
    tn_schedule_report_fini(&r);
}

static void swap(tn_schedule_action *a, tn_schedule_action *b)
{
    tn_schedule_action c = *a;
    *a = *b;
    *b = c;
}

/* Neighbours change places wherever the check of one rank allows it: many of these lists run, many
 * stand still. */
static void test_random_lists(void)
{
    plain *x = malloc(sizeof *x);
    tn_schedule_time times[16];
    int n_stuck = 0, n_ran = 0;
    for (int i = 0; i < 150; i++) {
        tn_schedule *s = any();
        tn_schedule_costs c = {times, draw(0, 3)};
        for (int j = 0; j < 16; j++)
            times[j] = (tn_schedule_time){draw(1, 9), draw(1, 9), draw(1, 9)};
        if (!s) break;
        for (int64_t j = draw(0, 40); j > 0; j--) {
            tn_schedule_list *l = &s->lists[draw(0, s->n_ranks - 1)];
            int64_t k = draw(0, l->n - 2);
            swap(&l->actions[k], &l->actions[k + 1]);
            if (tn_schedule_check(s, false)) swap(&l->actions[k], &l->actions[k + 1]);
        }
        tn_error_clear();
        compare(s, &c, x);
        n_stuck += x->circle;
        n_ran += !x->circle;
        tn_schedule_destroy(s);
    }
    TN_CHECK_MSG(n_stuck > 15 && n_ran > 15, "%d lists stand still, %d run", n_stuck, n_ran);
    free(x);
}

/* ------------------------------------------------------------ mutations */

/* Position of the n-th action of the rank that is of one of two kinds; -1. */
static int64_t nth(const tn_schedule_list *l, tn_schedule_kind kind, tn_schedule_kind or, int64_t n)
{
    for (int64_t i = 0; i < l->n; i++)
        if ((l->actions[i].kind == kind || l->actions[i].kind == or) && n-- == 0) return i;
    return -1;
}

static int64_t find(const tn_schedule_list *l, tn_schedule_action a)
{
    for (int64_t i = 0; i < l->n; i++) {
        tn_schedule_action b = l->actions[i];
        bool backward_too = a.kind == TN_SCHEDULE_B && b.kind == TN_SCHEDULE_BW;
        if ((b.kind == a.kind || backward_too) && b.stage == a.stage &&
            b.microbatch == a.microbatch)
            return i;
    }
    return -1;
}

static void expect(const tn_schedule *s, bool canonical, const char *fmt, ...) TN_PRINTF(3, 4);
static void expect(const tn_schedule *s, bool canonical, const char *fmt, ...)
{
    char part[256];
    __builtin_va_list ap;
    __builtin_va_start(ap, fmt);
    vsnprintf(part, sizeof part, fmt, ap);
    __builtin_va_end(ap);
    TN_CHECK_FAILS(tn_schedule_check(s, canonical), TN_BAD_INPUT, part);
    tn_schedule_report r;
    TN_CHECK_FAILS(tn_schedule_simulate(s, NULL, canonical, &r), TN_BAD_INPUT, part);
}

static void cut(tn_schedule_list *l, int64_t at)
{
    memmove(&l->actions[at], &l->actions[at + 1], (size_t)(l->n - at - 1) * sizeof *l->actions);
    l->n--;
}

static void mutate_one(tn_schedule *s, int32_t r, int kind)
{
    static const char *const missing[] = {"F (forward)", "I or B (input gradient)",
                                          "W or B (weight gradient)", "I or B (input gradient)"};
    static const char *const doubled[] = {"forward", "input gradient", "weight gradient",
                                          "input gradient"};
    tn_schedule_list *l = &s->lists[r];
    int64_t at = draw(0, l->n - 1), other = draw(0, s->n_ranks - 1);
    tn_schedule_action a = l->actions[at], b = a;
    if (kind == 0) {
        cut(l, at);
        expect(s, true, "rank %d: stage %d has no %s of microbatch %d", r, a.stage, missing[a.kind],
               a.microbatch);
    } else if (kind == 1) {
        TN_CHECK_OK(tn_schedule_add(s, r, a));
        expect(s, true,
               "rank %d, action %lld: %s; the %s of stage %d, microbatch %d is action %lld already",
               r, (long long)l->n, tn_schedule_text(a).s, doubled[a.kind], a.stage, a.microbatch,
               (long long)at + 1);
    } else if (kind == 2 && other != r) {
        TN_CHECK_OK(tn_schedule_add(s, (int32_t)other, a));
        expect(s, true, "rank %d, action %lld: %s; stage %d is on rank %d", (int)other,
               (long long)s->lists[other].n, tn_schedule_text(a).s, a.stage, r);
    } else if (kind == 3) {
        l->actions[at].microbatch = draw(0, 1) ? s->n_microbatches : -1;
        expect(s, true, "microbatches are 0 to %d", s->n_microbatches - 1);
    } else if (kind == 4) {
        l->actions[at].stage = draw(0, 1) ? s->n_stages : -1;
        expect(s, true, "stages are 0 to %d", s->n_stages - 1);
    } else if (kind == 5) {
        l->actions[at].kind = 9;
        expect(s, true, "rank %d, action %lld: kind 9; kinds are F, I, W, B", r, (long long)at + 1);
    } else if (kind == 6) { /* backward before forward */
        int64_t i = nth(l, TN_SCHEDULE_B, TN_SCHEDULE_BW, draw(0, s->n_microbatches - 1));
        b = l->actions[i];
        int64_t f = find(l, (tn_schedule_action){TN_SCHEDULE_F, b.stage, b.microbatch});
        swap(&l->actions[i], &l->actions[f]);
        expect(s, true,
               "rank %d: the input gradient of stage %d, microbatch %d (action %lld) comes before "
               "its forward (action "
               "%lld)",
               r, b.stage, b.microbatch, (long long)f + 1, (long long)i + 1);
    }
}

static void test_mutations(void)
{
    for (int i = 0; i < 700; i++) {
        tn_schedule *s = any();
        if (!s) return;
        mutate_one(s, (int32_t)draw(0, s->n_ranks - 1), i % 7);
        tn_schedule_destroy(s);
    }
}

/* Weight gradients: before their input gradient, and out of order. */
static void test_weight_gradients(void)
{
    for (int i = 0; i < 60; i++) {
        tn_schedule *s = named("ZBVZeroBubble", 3, 2, 5);
        tn_schedule_list *l = &s->lists[i % 3];
        int64_t w = nth(l, TN_SCHEDULE_W, TN_SCHEDULE_W, draw(0, 9));
        tn_schedule_action a = l->actions[w], later = {TN_SCHEDULE_W, a.stage, (int32_t)draw(0, 4)};
        if (i % 2) {
            int64_t b = find(l, (tn_schedule_action){TN_SCHEDULE_B, a.stage, a.microbatch});
            swap(&l->actions[w], &l->actions[b]);
            expect(s, false,
                   "rank %d: the weight gradient of stage %d, microbatch %d (action %lld) comes "
                   "before its input "
                   "gradient "
                   "(action %lld)",
                   i % 3, a.stage, a.microbatch, (long long)b + 1, (long long)w + 1);
        } else if (later.microbatch != a.microbatch) {
            int64_t x = find(l, later), y = w;
            swap(&l->actions[x], &l->actions[y]);
            expect(s, true, "canonical sums add in the order of rows");
        }
        tn_schedule_destroy(s);
    }
    /* GPipe with its backwards the other way round runs, but only where the order of sums is free.
     */
    tn_schedule *s = named("GPipe", 2, 1, 3);
    for (int32_t r = 0; r < 2; r++) swap(&s->lists[r].actions[3], &s->lists[r].actions[5]);
    tn_schedule_report rep;
    TN_CHECK_OK(tn_schedule_simulate(s, NULL, false, &rep));
    TN_CHECK(rep.step_bubble == 3);
    tn_schedule_report_fini(&rep);
    TN_CHECK_FAILS(tn_schedule_check(s, true), TN_BAD_INPUT,
                   "pipeline schedule: rank 0: the weight gradient of stage 0, microbatch 1 "
                   "(action 5) comes before that of "
                   "microbatch 0 "
                   "(action 6); canonical sums add in the order of rows: put them in increasing "
                   "order, or set debug.reduce = "
                   "\"fast\"");
    tn_schedule_destroy(s);
}

/* ------------------------------------------------------------ words */

static tn_schedule *table(const char *text)
{
    tn_schedule *s = NULL;
    TN_CHECK_OK(tn_schedule_parse("t.csv", text, (int64_t)strlen(text), &s));
    return s;
}

static void test_deadlocks(void)
{
    tn_schedule_report r;
    /* Rank 0 wants the gradient of microbatch 0 before it sends forward 1, rank 1 wants forward 1
     * first. */
    tn_schedule *s = table("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    TN_CHECK_FAILS(tn_schedule_simulate(s, NULL, true, &r), TN_BAD_INPUT,
                   "pipeline schedule: deadlock: rank 0 stands at 0B0 (action 2) and waits for the "
                   "input gradient of stage 1, "
                   "microbatch 0, of rank 1, rank 1 stands at 1F1 (action 2) and waits for the "
                   "forward of stage 0, microbatch "
                   "1, of "
                   "rank 0; one of these must run what is waited for earlier");
    tn_schedule_destroy(s);
    /* A rank that waits for itself. */
    s = table("1F0,0F0,1B0,0B0");
    TN_CHECK_FAILS(tn_schedule_simulate(s, NULL, true, &r), TN_BAD_INPUT,
                   "deadlock: rank 0 stands at 1F0 (action 1) and waits for the forward of stage "
                   "0, microbatch 0, of rank 0");
    tn_schedule_destroy(s);
    /* What only waits for the circle is not blamed. */
    s = named("1F1B", 4, 1, 4);
    for (int i = 0; i < 2; i++) swap(&s->lists[3].actions[i], &s->lists[3].actions[6 + i]);
    TN_CHECK(tn_schedule_simulate(s, NULL, false, &r) == TN_BAD_INPUT);
    TN_CHECK(strstr(tn_error_text(), "rank 3 stands at 3F3 (action 1) and waits for the forward of "
                                     "stage 2, microbatch 3, of rank 2"));
    TN_CHECK(strstr(tn_error_text(), "rank 2 stands at ") &&
             !strstr(tn_error_text(), "rank 1 stands"));
    tn_schedule_destroy(s);
    /* A long circle is cut. */
    s = table("8F0,0F0,8B0,0B0\n9F0,1F0,9B0,1B0\n10F0,2F0,10B0,2B0\n11F0,3F0,11B0,3B0\n12F0,4F0,"
              "12B0,4B0\n13F0,5F0,13B0,5B0\n"
              "14F0,6F0,14B0,6B0\n15F0,7F0,15B0,7B0");
    TN_CHECK_FAILS(tn_schedule_simulate(s, NULL, true, &r), TN_BAD_INPUT,
                   ", and so on over 8 ranks; one of these");
    tn_schedule_destroy(s);
}

static void test_words(void)
{
    tn_schedule *s = named("GPipe", 2, 1, 12);
    tn_schedule_report r;
    tn_schedule_time bad[] = {{1, 1, 1}, {1, -1, 1}}, large[] = {{1, 1, 1}, {1, INT64_MAX / 2, 1}};
    tn_schedule_costs costs = {bad, 0};
    TN_CHECK_FAILS(tn_schedule_simulate(s, &costs, true, &r), TN_BAD_INPUT,
                   "stage 1 takes 1, -1 and 1 ticks; none may be negative");
    costs.stages = large;
    TN_CHECK_FAILS(tn_schedule_simulate(s, &costs, true, &r), TN_BAD_INPUT, "less than 2^60");
    costs = (tn_schedule_costs){NULL, -1};
    TN_CHECK_FAILS(tn_schedule_simulate(s, &costs, true, &r), TN_BAD_INPUT,
                   "the hop may not be negative");
    /* Everything that is wrong at once, the longest as a count. */
    for (int i = 0; i < 12; i++) s->lists[1].actions[i].microbatch = 0;
    TN_CHECK(tn_schedule_check(s, true) == TN_BAD_INPUT);
    TN_CHECK(strstr(tn_error_text(), "\nand 4 more") &&
             strstr(tn_error_text(), "rank 1, action 2: 1F0; the forward"));
    s->lists[1].n = 12;
    for (int i = 0; i < 12; i++) s->lists[1].actions[i].microbatch = i;
    expect(s, true,
           "stage 1 has no I or B (input gradient) of microbatches 0, 1, 2, 3, 4, 5 and 6 more");
    s->lists[0].n = s->lists[1].n = 3;
    expect(s, true,
           "2 stages and 12 microbatches need 48 actions or more (at most 16777216 pairs), the "
           "lists hold 6");
    s->rank_of[1] = 2;
    expect(s, true, "stage 1 is on rank 2; ranks are 0 to 1");
    TN_CHECK_FAILS(tn_schedule_add(s, 2, (tn_schedule_action){0, 1, 1}), TN_BAD_INPUT,
                   "1F1 on rank 2; ranks are 0 to 1");
    tn_schedule_destroy(s);
    s = NULL;
    TN_CHECK_FAILS(tn_schedule_create(2, 5, 1, NULL, &s), TN_BAD_INPUT,
                   "2 ranks cannot share 5 stages evenly; nearest: 4 or 6 stages");
    TN_CHECK_FAILS(tn_schedule_create(4, 3, 1, NULL, &s), TN_BAD_INPUT, "nearest: 4 or 4");
    TN_CHECK_FAILS(tn_schedule_create(1, 1, 0, NULL, &s), TN_BAD_INPUT,
                   "0 microbatches; each must be at least 1");
    TN_CHECK(!s);
    tn_schedule_destroy(NULL);
}

int main(void)
{
    test_random_lists();
    test_slots();
    test_mutations();
    test_weight_gradients();
    test_deadlocks();
    test_words();
    return tn_test_done("schedule_check");
}
