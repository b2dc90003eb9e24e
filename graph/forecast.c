#include "graph/forecast.h"

#include "graph/pipeline.h"

/* A rank on its way through its actions. */
typedef struct walker {
    const tn_program *p;
    double now, first, *segment_s; /* first: its first action begins; by segment */
    int64_t next;                  /* action */
    tn_forecast_class *c;
} walker;

typedef struct world {
    int n;
    walker *walkers;
    const tn_cost_machine *m;
    int64_t n_channels, n_microbatches;
    double *arrives; /* by channel and microbatch; below 0: not sent yet */
} world;

static double *arrival(const world *q, int32_t channel, int32_t microbatch)
{
    return &q->arrives[channel * q->n_microbatches + microbatch];
}

/* Nodes in front of the microbatches and behind them: [0, *head), [*tail, n). */
static void outside(const tn_graph *g, int64_t *head, int64_t *tail)
{
    *head = 0;
    while (*head < g->n_nodes && g->nodes[*head].scope == TN_SCOPE_HEAD) ++*head;
    *tail = g->n_nodes;
    while (*tail > *head && g->nodes[*tail - 1].scope == TN_SCOPE_TAIL) --*tail;
}

static void add(tn_forecast_class *c, const tn_cost_step *s, double times)
{
    c->compute_s += times * s->compute_s;
    c->exchange_s += times * s->exchange_s;
}

static tn_status measure(const world *q, walker *w, tn_arena *arena)
{
    const tn_pipeline *plan = w->p->pipeline;
    int64_t head, tail;
    tn_cost_step s;
    void *mem;
    outside(w->p->g, &head, &tail);
    TN_TRY(tn_cost_range(w->p->g, q->m, 0, head, &s));
    add(w->c, &s, 1);
    w->now = w->c->outside_s = s.seconds;
    TN_TRY(tn_cost_range(w->p->g, q->m, tail, w->p->g->n_nodes, &s));
    add(w->c, &s, 1);
    w->c->outside_s += s.seconds;
    TN_TRY(tn_arena_alloc(arena, (size_t)(plan->n_segments + 1) * sizeof(double), &mem));
    w->segment_s = mem;
    for (int64_t i = 0; i < plan->n_segments; i++) {
        int64_t runs = 0;
        TN_TRY(tn_cost_range(w->p->g, q->m, plan->segments[i].begin, plan->segments[i].end, &s));
        for (int64_t a = 0; a < plan->n_actions; a++) runs += plan->actions[a].segment == i;
        add(w->c, &s, (double)runs);
        w->segment_s[i] = s.compute_end_s; /* what is still under way does not hold the next one */
    }
    return TN_OK;
}

static bool within(const tn_segment *s, const tn_mail *m)
{
    return m->node >= s->begin && m->node < s->end;
}

static double travel_s(const world *q, const tn_mail *m)
{
    return q->m->stage.start_s + q->m->stage.hop_s +
           (double)m->slot_bytes / q->m->stage.bytes_per_s;
}

/* The next action, if all that it receives is there. */
static bool step(const world *q, walker *w)
{
    const tn_pipeline *plan = w->p->pipeline;
    if (w->next == plan->n_actions) return false;
    const tn_action *a = &plan->actions[w->next];
    const tn_segment *s = &plan->segments[a->segment];
    double begin = w->now;
    for (int64_t i = 0; i < plan->n_mails; i++) {
        const tn_mail *m = &plan->mails[i];
        if (!m->arrives || !within(s, m)) continue;
        double t = *arrival(q, m->channel, a->microbatch);
        if (t < 0) return false;
        if (t > begin) begin = t;
    }
    double end = begin + w->segment_s[a->segment];
    if (!w->next) w->first = begin;
    for (int64_t i = 0; i < plan->n_mails; i++) {
        const tn_mail *m = &plan->mails[i];
        if (!m->arrives && within(s, m))
            *arrival(q, m->channel, a->microbatch) = end + travel_s(q, m);
    }
    w->c->busy_s += end - begin;
    w->now = end;
    w->next++;
    return true;
}

static tn_status open_world(world *q, tn_program *const *programs, tn_arena *arena,
                            tn_forecast_class *classes)
{
    void *mem;
    q->n_microbatches = programs[0]->g->n_microbatches;
    for (int r = 0; r < q->n; r++)
        for (int64_t i = 0; i < programs[r]->pipeline->n_mails; i++)
            if (programs[r]->pipeline->mails[i].channel >= q->n_channels)
                q->n_channels = programs[r]->pipeline->mails[i].channel + 1;
    size_t n = (size_t)(q->n_channels * q->n_microbatches);
    TN_TRY(tn_arena_alloc(arena, (n + 1) * sizeof(double), &mem));
    q->arrives = mem;
    for (size_t i = 0; i < n; i++) q->arrives[i] = -1;
    TN_TRY(tn_arena_alloc(arena, (size_t)q->n * sizeof(walker), &mem));
    q->walkers = mem;
    for (int r = 0; r < q->n; r++) {
        q->walkers[r] = (walker){.p = programs[r], .c = &classes[r]};
        TN_TRY(measure(q, &q->walkers[r], arena));
    }
    return TN_OK;
}

static tn_status pipeline(tn_program *const *programs, const tn_cost_machine *m, tn_arena *arena,
                          tn_forecast *f)
{
    world q = {.n = f->n, .m = m};
    bool more = true;
    double begin = 1e300, end = 0;
    TN_TRY(open_world(&q, programs, arena, f->classes));
    while (more) {
        more = false;
        for (int r = 0; r < q.n; r++)
            while (step(&q, &q.walkers[r])) more = true;
    }
    for (int r = 0; r < q.n; r++) {
        walker *w = &q.walkers[r];
        if (w->next < w->p->pipeline->n_actions)
            TN_FAIL(TN_FAILED, "forecast: pipeline rank %d waits for ever at action %lld", r,
                    (long long)w->next);
        if (w->first < begin) begin = w->first;
        if (w->now > end) end = w->now;
        if (w->c->busy_s > f->classes[f->slowest].busy_s) f->slowest = r;
    }
    for (int r = 0; r < q.n; r++) {
        tn_forecast_class *c = &f->classes[r];
        c->idle_s = end - begin - c->busy_s;
        if (end - begin + c->outside_s > f->seconds) f->seconds = end - begin + c->outside_s;
    }
    double most = f->classes[f->slowest].busy_s;
    f->bubble = most > 0 ? (end - begin) / most - 1 : 0;
    return TN_OK;
}

tn_status tn_forecast_make(tn_program *const *programs, int n, const tn_cost_machine *m,
                           tn_arena *arena, tn_forecast *out)
{
    tn_forecast f = {.n = n};
    tn_cost_step s;
    void *mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)n * sizeof(tn_forecast_class), &mem));
    f.classes = mem;
    if (programs[0]->pipeline) {
        TN_TRY(pipeline(programs, m, arena, &f));
    } else {
        TN_TRY(tn_cost_walk(programs[0]->g, m, &s));
        f.classes[0] = (tn_forecast_class){
            .compute_s = s.compute_s, .exchange_s = s.exchange_s, .busy_s = s.seconds};
        f.seconds = s.seconds;
    }
    *out = f;
    return TN_OK;
}
