/* schedule_fill.c - weight gradients put where they cost least: the ranks run side by side, and the
 * one that can act first acts.
 *
 * (1) All ranks advance in the order of time, so what a rank waits for is either known or lies
 * behind everything known: then the gap is long and any W fits. (2) A W that is run in a gap too
 * short for it delays the rank's next action, and what waits for that; one that is not run must be
 * run later, at the end or under the cap. Which is better depends on the costs: the caller tries
 *     both. */
#include "graph/schedule_fill.h"

static const int64_t NEVER = INT64_MAX / 4;

typedef struct move {
    bool possible, w; /* w: the oldest waiting W; else the next of the list */
    int64_t start;
} move;

typedef struct rank {
    int64_t at;         /* in its list */
    int64_t now, idle;  /* ticks; idle: between its actions so far */
    int64_t live;       /* saved sets */
    int64_t n_due, n_w; /* W of the list passed, W run */
    int64_t head, tail; /* W that could run: waiting[head, tail) */
    tn_schedule_action *waiting;
    move next;
    bool stale; /* next must be found anew: the rank acted, or what it may wait for came */
} rank;

typedef struct filler {
    const tn_schedule *in;
    const tn_schedule_costs *costs;
    const tn_schedule_filling *how;
    tn_schedule *out;
    rank *ranks;
    int64_t most_idle;      /* of any rank */
    int64_t *f_end, *b_end; /* by stage x microbatch; NEVER */
    tn_arena arena;
} filler;

static tn_schedule_time time_of(const filler *x, int32_t stage)
{
    return x->costs && x->costs->stages ? x->costs->stages[stage] : (tn_schedule_time){1, 1, 1};
}

static int64_t come(const filler *x, const int64_t *ends, int32_t stage, int32_t microbatch,
                    int32_t to)
{
    int64_t end = ends[(int64_t)stage * x->in->n_microbatches + microbatch];
    return end == NEVER || x->in->rank_of[stage] == to || !x->costs ? end : end + x->costs->hop;
}

static int64_t ready(const filler *x, int32_t r, tn_schedule_action a)
{
    int64_t t = 0, u = 0;
    if (a.kind == TN_SCHEDULE_F)
        return a.stage ? come(x, x->f_end, a.stage - 1, a.microbatch, r) : 0;
    t = come(x, x->f_end, a.stage, a.microbatch, r);
    if (a.stage < x->in->n_stages - 1) u = come(x, x->b_end, a.stage + 1, a.microbatch, r);
    return t > u ? t : u;
}

static bool worth_it(const filler *x, const rank *k, int64_t until)
{
    int64_t w = time_of(x, k->waiting[k->head].stage).w, gap = until - k->now;
    if (until == NEVER || gap >= w) return true;
    if (x->how->quarters >= 0) return 4 * gap >= w * x->how->quarters;
    return k->idle + gap > x->most_idle;
}

static move next_move(const filler *x, int32_t r)
{
    rank *k = &x->ranks[r];
    const tn_schedule_list *l = &x->in->lists[r];
    bool some = k->head < k->tail;
    while (k->at < l->n && l->actions[k->at].kind == TN_SCHEDULE_W &&
           (!x->how->due || k->n_w > k->n_due)) {
        k->at++;
        k->n_due++;
    }
    if (k->at == l->n || l->actions[k->at].kind == TN_SCHEDULE_W) return (move){some, true, k->now};
    tn_schedule_action a = l->actions[k->at];
    int64_t until = ready(x, r, a);
    if (a.kind == TN_SCHEDULE_F && k->live >= x->how->cap) return (move){some, true, k->now};
    if (until <= k->now) return (move){true, false, k->now};
    if (some && worth_it(x, k, until)) return (move){true, true, k->now};
    return (move){until != NEVER, false, until};
}

static void outdate(filler *x, int32_t stage)
{
    if (stage >= 0 && stage < x->in->n_stages) x->ranks[x->in->rank_of[stage]].stale = true;
}

static void add_idle(filler *x, rank *k, int64_t ticks)
{
    k->idle += ticks;
    if (k->idle <= x->most_idle) return;
    x->most_idle = k->idle;
    for (int32_t r = 0; x->how->quarters < 0 && r < x->in->n_ranks; r++) x->ranks[r].stale = true;
}

static tn_status act(filler *x, int32_t r, move m)
{
    rank *k = &x->ranks[r];
    tn_schedule_action a = m.w ? k->waiting[k->head++] : x->in->lists[r].actions[k->at++];
    tn_schedule_time t = time_of(x, a.stage);
    int64_t cell = (int64_t)a.stage * x->in->n_microbatches + a.microbatch;
    if (x->out->lists[r].n) add_idle(x, k, m.start - k->now);
    k->stale = true;
    if (a.kind == TN_SCHEDULE_F) {
        outdate(x, a.stage + 1);
        k->now = x->f_end[cell] = m.start + t.f;
        k->live++;
    } else if (a.kind == TN_SCHEDULE_B) {
        outdate(x, a.stage - 1);
        k->now = x->b_end[cell] = m.start + t.b;
        k->waiting[k->tail++] = (tn_schedule_action){TN_SCHEDULE_W, a.stage, a.microbatch};
    } else {
        k->now = m.start + t.w;
        k->live--;
        k->n_w++;
    }
    return tn_schedule_add(x->out, r, a);
}

static tn_status begin(filler *x)
{
    const tn_schedule *s = x->in;
    int64_t n = (int64_t)s->n_stages * s->n_microbatches;
    void *mem = NULL;
    TN_TRY(tn_schedule_create(s->n_ranks, s->n_stages, s->n_microbatches, s->rank_of, &x->out));
    TN_TRY(tn_arena_alloc(&x->arena, (size_t)s->n_ranks * sizeof *x->ranks, &mem));
    x->ranks = mem;
    TN_TRY(tn_arena_alloc(&x->arena, 2 * (size_t)n * sizeof *x->f_end, &mem));
    x->f_end = mem;
    x->b_end = x->f_end + n;
    for (int64_t i = 0; i < 2 * n; i++) x->f_end[i] = NEVER;
    for (int32_t r = 0; r < s->n_ranks; r++) {
        TN_TRY(
            tn_arena_alloc(&x->arena, (size_t)s->lists[r].n * sizeof *x->ranks[r].waiting, &mem));
        x->ranks[r].waiting = mem;
        x->ranks[r].stale = true;
    }
    return TN_OK;
}

/* *done: all of it was run. */
static tn_status fill(filler *x, bool *done)
{
    for (;;) {
        move best = {0};
        int32_t who = -1;
        for (int32_t r = 0; r < x->in->n_ranks; r++) {
            if (x->ranks[r].stale) x->ranks[r].next = next_move(x, r);
            x->ranks[r].stale = false;
            move m = x->ranks[r].next;
            if (!m.possible) continue;
            if (who < 0 || m.start < best.start || (m.start == best.start && best.w && !m.w)) {
                best = m;
                who = r;
            }
        }
        if (who < 0) break;
        TN_TRY(act(x, who, best));
    }
    *done = true;
    for (int32_t r = 0; r < x->in->n_ranks; r++)
        if (x->ranks[r].at < x->in->lists[r].n || x->ranks[r].head < x->ranks[r].tail)
            *done = false;
    return TN_OK;
}

tn_status tn_schedule_fill(const tn_schedule *s, const tn_schedule_costs *costs,
                           const tn_schedule_filling *how, tn_schedule **out)
{
    filler x = {.in = s, .costs = costs, .how = how};
    bool done = false;
    tn_status st = begin(&x);
    if (st == TN_OK) st = fill(&x, &done);
    tn_arena_fini(&x.arena);
    if (st == TN_OK && done) {
        *out = x.out;
        return TN_OK;
    }
    tn_schedule_destroy(x.out);
    if (st == TN_OK) *out = NULL;
    return st;
}
