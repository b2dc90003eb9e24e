/* schedule_simulate.c - the one validator: what is wrong with lists, and what they cost.
 *
 * (1) The check looks at each rank's list alone: bounds, ranks, each action once, F before I before
 * W of the same pair, W in order. So behind it a rank can only wait for other stages, and what the
 * lists hold is complete. (2) The run moves each rank on as far as it can come, again and again.
 * Lists fix every order and sends block nobody, so start times do not depend on who moves first,
 * and a standstill is a deadlock. (3) Saved sets and slots follow from a list's order alone. */
#include "graph/schedule.h"

#include "graph/schedule_faults.h"

#include <stdio.h>

static const int64_t MAX_TICKS = INT64_C(1) << 60;

/* ------------------------------------------------------------ (1) */

/* Where the three parts of a (stage, microbatch) stand in its rank's list: position + 1, 0:
 * nowhere. */
typedef struct place {
    int64_t f, b, w;
} place;

typedef struct checker {
    const tn_schedule *s;
    tn_schedule_faults faults;
    place *places;
} checker;

static place *place_of(const checker *c, int32_t stage, int32_t microbatch)
{
    return &c->places[(int64_t)stage * c->s->n_microbatches + microbatch];
}

static bool in_bounds(checker *c, int32_t r, int64_t i, tn_schedule_action a)
{
    const tn_schedule *s = c->s;
    long long at = (long long)i + 1;
    if (a.kind > TN_SCHEDULE_BW)
        tn_schedule_fault(&c->faults, "rank %d, action %lld: kind %d; kinds are F, I, W, B", r, at,
                          a.kind);
    else if (a.stage < 0 || a.stage >= s->n_stages)
        tn_schedule_fault(&c->faults, "rank %d, action %lld: %s; stages are 0 to %d", r, at,
                          tn_schedule_text(a).s, s->n_stages - 1);
    else if (a.microbatch < 0 || a.microbatch >= s->n_microbatches)
        tn_schedule_fault(&c->faults, "rank %d, action %lld: %s; microbatches are 0 to %d", r, at,
                          tn_schedule_text(a).s, s->n_microbatches - 1);
    else if (s->rank_of[a.stage] != r)
        tn_schedule_fault(&c->faults, "rank %d, action %lld: %s; stage %d is on rank %d", r, at,
                          tn_schedule_text(a).s, a.stage, s->rank_of[a.stage]);
    else return true;
    return false;
}

static void take(checker *c, int32_t r, int64_t i, tn_schedule_action a, const char *what,
                 int64_t *spot)
{
    if (*spot)
        tn_schedule_fault(
            &c->faults,
            "rank %d, action %lld: %s; the %s of stage %d, microbatch %d is action %lld already", r,
            (long long)i + 1, tn_schedule_text(a).s, what, a.stage, a.microbatch, (long long)*spot);
    else *spot = i + 1;
}

static void check_list(checker *c, int32_t r)
{
    const tn_schedule_list *l = &c->s->lists[r];
    for (int64_t i = 0; i < l->n; i++) {
        tn_schedule_action a = l->actions[i];
        if (!in_bounds(c, r, i, a)) continue;
        place *p = place_of(c, a.stage, a.microbatch);
        if (a.kind == TN_SCHEDULE_F) take(c, r, i, a, "forward", &p->f);
        if (a.kind == TN_SCHEDULE_B || a.kind == TN_SCHEDULE_BW)
            take(c, r, i, a, "input gradient", &p->b);
        if (a.kind == TN_SCHEDULE_W || (a.kind == TN_SCHEDULE_BW && p->b == i + 1))
            take(c, r, i, a, "weight gradient", &p->w);
    }
}

/* "3, 4, 7 and 2 more" of the microbatches whose `part` (0 f, 1 b, 2 w) stands nowhere. */
static void check_missing(checker *c, int32_t stage, int part)
{
    static const char *const names[] = {"F (forward)", "I or B (input gradient)",
                                        "W or B (weight gradient)"};
    char text[128] = "";
    int32_t n = 0;
    size_t end = 0;
    for (int32_t m = 0; m < c->s->n_microbatches; m++) {
        const place *p = place_of(c, stage, m);
        if ((part == 0 ? p->f : part == 1 ? p->b : p->w) != 0 || n++ >= 6) continue;
        end += (size_t)snprintf(text + end, sizeof text - end, "%s%d", n == 1 ? "" : ", ", m);
    }
    if (n > 6) snprintf(text + end, sizeof text - end, " and %d more", n - 6);
    if (n)
        tn_schedule_fault(&c->faults, "rank %d: stage %d has no %s of microbatch%s %s",
                          c->s->rank_of[stage], stage, names[part], n == 1 ? "" : "es", text);
}

static void check_orders(checker *c, int32_t stage, bool canonical)
{
    int32_t r = c->s->rank_of[stage], last = -1;
    for (int32_t m = 0; m < c->s->n_microbatches; m++) {
        const place *p = place_of(c, stage, m);
        if (p->f && p->b && p->b < p->f)
            tn_schedule_fault(&c->faults,
                              "rank %d: the input gradient of stage %d, microbatch %d (action "
                              "%lld) comes before its "
                              "forward (action %lld)",
                              r, stage, m, (long long)p->b, (long long)p->f);
        if (p->b && p->w && p->w < p->b)
            tn_schedule_fault(&c->faults,
                              "rank %d: the weight gradient of stage %d, microbatch %d (action "
                              "%lld) comes before "
                              "its "
                              "input gradient (action %lld)",
                              r, stage, m, (long long)p->w, (long long)p->b);
        if (!canonical || !p->w) continue;
        if (last >= 0 && p->w < place_of(c, stage, last)->w)
            tn_schedule_fault(&c->faults,
                              "rank %d: the weight gradient of stage %d, microbatch %d (action "
                              "%lld) comes before "
                              "that "
                              "of microbatch %d (action %lld); canonical sums add in the order of "
                              "rows: put them in "
                              "increasing order, or set debug.reduce = \"fast\"",
                              r, stage, m, (long long)p->w, last,
                              (long long)place_of(c, stage, last)->w);
        last = m;
    }
}

tn_status tn_schedule_check(const tn_schedule *s, bool canonical)
{
    checker c = {.s = s, .faults = {.where = "pipeline schedule"}};
    void *mem = NULL;
    int64_t n = (int64_t)s->n_stages * s->n_microbatches, n_actions = 0;
    for (int32_t i = 0; i < s->n_stages; i++)
        if (s->rank_of[i] < 0 || s->rank_of[i] >= s->n_ranks)
            tn_schedule_fault(&c.faults, "stage %d is on rank %d; ranks are 0 to %d", i,
                              s->rank_of[i], s->n_ranks - 1);
    TN_TRY(tn_schedule_faults_end(&c.faults));
    for (int32_t r = 0; r < s->n_ranks; r++) n_actions += s->lists[r].n;
    if (n > TN_SCHEDULE_MAX_CELLS || n_actions < n)
        TN_FAIL(TN_BAD_INPUT,
                "pipeline schedule: %d stages and %d microbatches need %lld actions or more (at "
                "most %d pairs), "
                "the lists hold %lld",
                s->n_stages, s->n_microbatches, (long long)(2 * n), TN_SCHEDULE_MAX_CELLS,
                (long long)n_actions);
    TN_TRY(tn_alloc((size_t)n * sizeof *c.places, &mem));
    c.places = mem;
    for (int32_t r = 0; r < s->n_ranks; r++) check_list(&c, r);
    for (int32_t i = 0; i < s->n_stages; i++)
        for (int part = 0; part < 3; part++) check_missing(&c, i, part);
    for (int32_t i = 0; i < s->n_stages; i++) check_orders(&c, i, canonical);
    tn_free(mem);
    return tn_schedule_faults_end(&c.faults);
}

/* ------------------------------------------------------------ (2) */

typedef struct runner {
    const tn_schedule *s;
    const tn_schedule_costs *costs;
    int64_t *at;            /* by rank: next action */
    int64_t *f_end, *b_end; /* by stage x microbatch; -1: not yet */
    tn_schedule_use *ranks;
    tn_schedule_event **events;
} runner;

static tn_schedule_time time_of(const tn_schedule_costs *costs, int32_t stage)
{
    return costs && costs->stages ? costs->stages[stage] : (tn_schedule_time){1, 1, 1};
}

static tn_status check_costs(const tn_schedule *s, const tn_schedule_costs *costs)
{
    int64_t most = 0, hop = costs ? costs->hop : 0;
    for (int32_t i = 0; i < s->n_stages; i++) {
        tn_schedule_time t = time_of(costs, i);
        if (t.f < 0 || t.b < 0 || t.w < 0)
            TN_FAIL(
                TN_BAD_INPUT,
                "pipeline schedule: stage %d takes %lld, %lld and %lld ticks; none may be negative",
                i, (long long)t.f, (long long)t.b, (long long)t.w);
        int64_t each[] = {t.f, t.b, t.w, hop, hop};
        for (int j = 0; j < TN_COUNT(each); j++)
            if (each[j] < 0 || each[j] > MAX_TICKS / s->n_microbatches ||
                (most += each[j] * s->n_microbatches) > MAX_TICKS)
                TN_FAIL(TN_BAD_INPUT,
                        "pipeline schedule: times and the hop of %lld ticks; the hop may not be "
                        "negative, and all "
                        "must add up to less than 2^60",
                        (long long)hop);
    }
    return TN_OK;
}

static tn_schedule_action part(uint8_t kind, int32_t stage, int32_t microbatch)
{
    return (tn_schedule_action){kind, stage, microbatch};
}

/* What an action needs: at most one of another stage (first) and one of its own. */
static int needs_of(const runner *x, tn_schedule_action a, tn_schedule_action *out)
{
    int n = 0;
    if (a.kind == TN_SCHEDULE_F) {
        if (a.stage > 0) out[n++] = part(TN_SCHEDULE_F, a.stage - 1, a.microbatch);
        return n;
    }
    if (a.kind == TN_SCHEDULE_W) {
        out[n++] = part(TN_SCHEDULE_B, a.stage, a.microbatch);
        return n;
    }
    if (a.stage < x->s->n_stages - 1) out[n++] = part(TN_SCHEDULE_B, a.stage + 1, a.microbatch);
    out[n++] = part(TN_SCHEDULE_F, a.stage, a.microbatch);
    return n;
}

/* -1: not yet. */
static int64_t end_of(const runner *x, tn_schedule_action a)
{
    const int64_t *ends = a.kind == TN_SCHEDULE_F ? x->f_end : x->b_end;
    return ends[(int64_t)a.stage * x->s->n_microbatches + a.microbatch];
}

/* -1: waits, and for what. */
static int64_t start_of(const runner *x, int32_t r, tn_schedule_action a, tn_schedule_action *wait)
{
    tn_schedule_action needs[2];
    int64_t start = x->ranks[r].last;
    int n = needs_of(x, a, needs);
    for (int i = 0; i < n; i++) {
        int64_t end = end_of(x, needs[i]);
        *wait = needs[i];
        if (end < 0) return -1;
        if (x->costs && x->s->rank_of[needs[i].stage] != r) end += x->costs->hop;
        if (end > start) start = end;
    }
    return start;
}

/* Whether any rank moved. */
static bool move_on(runner *x)
{
    bool moved = false;
    for (int32_t r = 0; r < x->s->n_ranks; r++) {
        const tn_schedule_list *l = &x->s->lists[r];
        tn_schedule_use *u = &x->ranks[r];
        tn_schedule_action wait;
        for (; x->at[r] < l->n; x->at[r]++, moved = true) {
            tn_schedule_action a = l->actions[x->at[r]];
            tn_schedule_time t = time_of(x->costs, a.stage);
            int64_t start = start_of(x, r, a, &wait),
                    cell = (int64_t)a.stage * x->s->n_microbatches + a.microbatch;
            int64_t ticks = a.kind == TN_SCHEDULE_F   ? t.f
                            : a.kind == TN_SCHEDULE_B ? t.b
                            : a.kind == TN_SCHEDULE_W ? t.w
                                                      : t.b + t.w;
            if (start < 0) break;
            if (x->at[r] == 0) u->first = start;
            u->last = start + ticks;
            u->busy += ticks;
            if (a.kind == TN_SCHEDULE_F) x->f_end[cell] = u->last;
            if (a.kind == TN_SCHEDULE_B || a.kind == TN_SCHEDULE_BW) x->b_end[cell] = u->last;
            x->events[r][x->at[r]] = (tn_schedule_event){start, u->last, -1};
        }
    }
    return moved;
}

static void say_wait(const runner *x, int32_t r, tn_text *t)
{
    tn_schedule_action a = x->s->lists[r].actions[x->at[r]], wait = a;
    if (start_of(x, r, a, &wait) >= 0) return;
    int32_t of = x->s->rank_of[wait.stage];
    tn_text_add(t,
                "rank %d stands at %s (action %lld) and waits for the %s of stage %d, microbatch "
                "%d, of rank %d",
                r, tn_schedule_text(a).s, (long long)x->at[r] + 1,
                wait.kind == TN_SCHEDULE_F ? "forward" : "input gradient", wait.stage,
                wait.microbatch, of);
}

static int32_t waits_for(const runner *x, int32_t r)
{
    tn_schedule_action wait = {0};
    if (start_of(x, r, x->s->lists[r].actions[x->at[r]], &wait) >= 0) return -1;
    return x->s->rank_of[wait.stage];
}

/* Every rank that is not through waits for one that is not through either, so from any of them one
 * walks into a circle. */
static tn_status deadlock(const runner *x)
{
    enum { MOST = 6 };
    tn_text t = {0};
    int32_t r = 0, n_circle = 1, n_said = 0, p = x->s->n_ranks;
    while (x->at[r] == x->s->lists[r].n) r++;
    for (int32_t i = 0; i < p; i++) r = waits_for(x, r);
    for (int32_t q = waits_for(x, r); q != r; q = waits_for(x, q)) n_circle++;
    for (int32_t q = r; n_said < n_circle && n_said < MOST; q = waits_for(x, q), n_said++) {
        if (n_said) tn_text_add(&t, ", ");
        say_wait(x, q, &t);
    }
    if (n_circle > MOST) tn_text_add(&t, ", and so on over %d ranks", n_circle);
    tn_status st = tn_text_end(&t);
    if (st == TN_OK)
        st = tn_error(
            TN_BAD_INPUT,
            "pipeline schedule: deadlock: %s; one of these must run what is waited for earlier",
            tn_text_str(&t));
    tn_text_fini(&t);
    return st;
}

/* ------------------------------------------------------------ (3) */

/* slots: saved sets of a stage live at once; the rank's peak: of all its stages. */
static void count_live(const runner *x, int32_t r, int32_t *live, int32_t *slots)
{
    const tn_schedule_list *l = &x->s->lists[r];
    int32_t now = 0;
    for (int64_t i = 0; i < l->n; i++) {
        tn_schedule_action a = l->actions[i];
        if (a.kind == TN_SCHEDULE_F) {
            if (++live[a.stage] > slots[a.stage]) slots[a.stage] = live[a.stage];
            if (++now > x->ranks[r].peak) x->ranks[r].peak = now;
        } else if (a.kind != TN_SCHEDULE_B) {
            live[a.stage]--;
            now--;
        }
    }
}

/* The free slots of a stage, first in, first out: where saved sets end in the order they began, as
 * canonical mode has it, slot = microbatch mod slots. */
typedef struct ring {
    int32_t *free, n;
    int64_t opened, closed;
} ring;

static void give_slots(const runner *x, int32_t r, ring *rings, int32_t *slot_of)
{
    const tn_schedule_list *l = &x->s->lists[r];
    for (int64_t i = 0; i < l->n; i++) {
        tn_schedule_action a = l->actions[i];
        int32_t *slot = &slot_of[(int64_t)a.stage * x->s->n_microbatches + a.microbatch];
        ring *k = &rings[a.stage];
        if (a.kind == TN_SCHEDULE_F) *slot = k->free[k->opened++ % k->n];
        x->events[r][i].slot = *slot;
        if (a.kind == TN_SCHEDULE_W || a.kind == TN_SCHEDULE_BW)
            k->free[k->closed++ % k->n] = *slot;
    }
}

static tn_status saved_sets(const runner *x, tn_schedule_report *rep)
{
    int32_t n = x->s->n_stages, *live = NULL, *slots = NULL, *slot_of = NULL;
    ring *rings = NULL;
    void *mem = NULL;
    TN_TRY(tn_arena_alloc(&rep->arena, 2 * (size_t)n * sizeof *slots, &mem));
    rep->slots = slots = mem;
    live = slots + n;
    TN_TRY(tn_arena_alloc(&rep->arena, (size_t)n * sizeof *rings, &mem));
    rings = mem;
    TN_TRY(tn_arena_alloc(&rep->arena, (size_t)n * (size_t)x->s->n_microbatches * sizeof *slot_of,
                          &mem));
    slot_of = mem;
    for (int32_t r = 0; r < x->s->n_ranks; r++) count_live(x, r, live, slots);
    for (int32_t i = 0; i < n; i++) {
        TN_TRY(tn_arena_alloc(&rep->arena, (size_t)slots[i] * sizeof *rings[i].free, &mem));
        rings[i] = (ring){.free = mem, .n = slots[i]};
        for (int32_t j = 0; j < slots[i]; j++) rings[i].free[j] = j;
    }
    for (int32_t r = 0; r < x->s->n_ranks; r++) give_slots(x, r, rings, slot_of);
    return TN_OK;
}

/* ------------------------------------------------------------ all of it */

static tn_status begin(runner *x, tn_schedule_report *rep)
{
    const tn_schedule *s = x->s;
    int64_t n = (int64_t)s->n_stages * s->n_microbatches;
    void *mem = NULL;
    TN_TRY(tn_arena_alloc(&rep->arena, (size_t)s->n_ranks * sizeof *x->ranks, &mem));
    rep->ranks = x->ranks = mem;
    TN_TRY(tn_arena_alloc(&rep->arena, (size_t)s->n_ranks * sizeof *x->at, &mem));
    x->at = mem;
    TN_TRY(tn_arena_alloc(&rep->arena, 2 * (size_t)n * sizeof *x->f_end, &mem));
    x->f_end = mem;
    x->b_end = x->f_end + n;
    for (int64_t i = 0; i < 2 * n; i++) x->f_end[i] = -1;
    TN_TRY(tn_arena_alloc(&rep->arena, (size_t)s->n_ranks * sizeof *x->events, &mem));
    x->events = mem;
    for (int32_t r = 0; r < s->n_ranks; r++) {
        TN_TRY(tn_arena_alloc(&rep->arena, (size_t)s->lists[r].n * sizeof **x->events, &mem));
        x->events[r] = mem;
    }
    rep->events = (const tn_schedule_event *const *)x->events;
    return TN_OK;
}

static tn_status run(runner *x, tn_schedule_report *rep)
{
    int64_t span = 0;
    TN_TRY(begin(x, rep));
    for (bool moved = true; moved;) moved = move_on(x);
    for (int32_t r = 0; r < x->s->n_ranks; r++)
        if (x->at[r] < x->s->lists[r].n) return deadlock(x);
    TN_TRY(saved_sets(x, rep));
    for (int32_t r = 0; r < x->s->n_ranks; r++) {
        const tn_schedule_use *u = &x->ranks[r];
        if (u->last > rep->makespan) rep->makespan = u->last;
        if (u->last - u->first > span) span = u->last - u->first;
        if (u->busy > rep->ideal) rep->ideal = u->busy;
        if (u->peak > rep->peak) rep->peak = u->peak;
    }
    rep->step_bubble = rep->makespan - rep->ideal;
    rep->span_bubble = span - rep->ideal;
    return TN_OK;
}

tn_status tn_schedule_simulate(const tn_schedule *s, const tn_schedule_costs *costs, bool canonical,
                               tn_schedule_report *out)
{
    tn_schedule_report rep = {0};
    runner x = {.s = s, .costs = costs};
    TN_TRY(tn_schedule_check(s, canonical));
    TN_TRY(check_costs(s, costs));
    tn_status st = run(&x, &rep);
    if (st != TN_OK) {
        tn_arena_fini(&rep.arena);
        return st;
    }
    *out = rep;
    return TN_OK;
}

void tn_schedule_report_fini(tn_schedule_report *r)
{
    tn_arena_fini(&r->arena);
    *r = (tn_schedule_report){0};
}
