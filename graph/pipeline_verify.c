/* pipeline_verify.c - pass 10 between pipeline ranks: channels match, and nobody waits for ever. */
#include "graph/pipeline.h"

#include <string.h>

static const tn_mail *find_mail(const tn_pipeline *p, int32_t channel, bool arrives)
{
    for (int64_t i = 0; i < p->n_mails; i++)
        if (p->mails[i].channel == channel && p->mails[i].arrives == arrives) return &p->mails[i];
    return NULL;
}

static bool same_value(const tn_graph *a, int32_t x, const tn_graph *b, int32_t y)
{
    const tn_value *u = &a->values[x], *v = &b->values[y];
    bool same =
        u->dtype == v->dtype && u->rank == v->rank && tn_layout_equal(&u->layout, &v->layout);
    for (int d = 0; d < u->rank && same; d++)
        same = u->dim[d].extent == v->dim[d].extent && u->dim[d].units == v->dim[d].units;
    return same;
}

static tn_status verify_mail(const tn_pipeline *const *plans, const tn_graph *const *graphs, int n,
                             int rank, const tn_mail *m)
{
    const char *what = m->arrives ? "receives" : "sends";
    const tn_mail *o =
        m->peer >= 0 && m->peer < n ? find_mail(plans[m->peer], m->channel, !m->arrives) : NULL;
    if (!o || o->peer != rank)
        TN_FAIL(TN_FAILED, "program: pipeline rank %d %s on channel %d, rank %d does not %s it",
                rank, what, m->channel, m->peer, m->arrives ? "send" : "receive");
    int64_t times = graphs[rank]->n_microbatches;
    bool once = graphs[rank]->nodes[m->node].scope != TN_SCOPE_MICROBATCH;
    if (m->flags != o->flags || m->slots != o->slots || m->slot_bytes != o->slot_bytes ||
        m->n_slots != o->n_slots ||
        memcmp(m->slot, o->slot, (size_t)(once ? 1 : times) * sizeof *m->slot) ||
        graphs[rank]->nodes[m->node].scope != graphs[m->peer]->nodes[o->node].scope ||
        !same_value(graphs[rank], m->value, graphs[m->peer], o->value))
        TN_FAIL(TN_FAILED,
                "program: pipeline ranks %d and %d disagree about what channel %d carries or where "
                "it lies",
                rank, m->peer, m->channel);
    return TN_OK;
}

/* One rank's way through a step: mails of the head in node order, actions, mails of the tail. */
typedef struct walker {
    const tn_pipeline *p;
    const tn_graph *g;
    int64_t mail, action; /* next ones */
} walker;

static bool arrived(const bool *sent, const tn_graph *g, const tn_mail *m, int64_t microbatch)
{
    return !m->arrives || sent[m->channel * g->n_microbatches + microbatch];
}

/* An action starts when all that it receives has been sent; its sends are its last. */
static bool take_action(walker *w, bool *sent)
{
    const tn_action *a = &w->p->actions[w->action];
    const tn_segment *s = &w->p->segments[a->segment];
    for (int turn = 0; turn < 2; turn++)
        for (int64_t i = 0; i < w->p->n_mails; i++) {
            const tn_mail *m = &w->p->mails[i];
            if (m->node < s->begin || m->node >= s->end) continue;
            if (!turn && !arrived(sent, w->g, m, a->microbatch)) return false;
            if (turn && !m->arrives) sent[m->channel * w->g->n_microbatches + a->microbatch] = true;
        }
    w->action++;
    return true;
}

/* The next thing that this rank does; false while it waits. Mails stand in node order. */
static bool take(walker *w, bool *sent)
{
    for (; w->mail < w->p->n_mails; w->mail++) {
        const tn_mail *m = &w->p->mails[w->mail];
        tn_scope scope = (tn_scope)w->g->nodes[m->node].scope;
        if (scope == TN_SCOPE_MICROBATCH) continue;
        if (scope == TN_SCOPE_TAIL && w->action < w->p->n_actions) break;
        if (!arrived(sent, w->g, m, 0)) return false;
        if (!m->arrives) sent[m->channel * w->g->n_microbatches] = true;
    }
    return w->action == w->p->n_actions || take_action(w, sent);
}

static bool is_done(const walker *w)
{
    return w->action == w->p->n_actions && w->mail == w->p->n_mails;
}

/* All ranks come to the end, whatever the times: receiving waits, sending does not. */
static tn_status verify_progress(walker *w, int n, bool *sent)
{
    int left = n;
    for (bool moved = true; moved && left;) {
        moved = false;
        left = 0;
        for (int r = 0; r < n; r++) {
            int64_t mail = w[r].mail;
            while (!is_done(&w[r]) && take(&w[r], sent)) moved = true;
            moved |= w[r].mail > mail; /* it may have sent before it waits */
            left += !is_done(&w[r]);
        }
    }
    if (!left) return TN_OK;
    tn_status st = tn_error(TN_FAILED, "program: the pipeline ranks wait for each other");
    for (int r = 0; r < n; r++)
        if (!is_done(&w[r]))
            st = tn_error_note(st, "rank %d stands at action %lld of %lld", r,
                               (long long)w[r].action, (long long)w[r].p->n_actions);
    return st;
}

static tn_status verify_run(const tn_pipeline *const *plans, const tn_graph *const *graphs, int n)
{
    tn_arena arena = {0};
    int64_t channels = 0;
    void *walkers, *sent;
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < plans[r]->n_mails; i++)
            if (plans[r]->mails[i].channel >= channels) channels = plans[r]->mails[i].channel + 1;
    tn_status st = tn_arena_alloc(&arena, (size_t)n * sizeof(walker), &walkers);
    if (!st) st = tn_arena_alloc(&arena, (size_t)(channels * graphs[0]->n_microbatches + 1), &sent);
    if (!st) {
        walker *w = walkers;
        for (int r = 0; r < n; r++) w[r] = (walker){.p = plans[r], .g = graphs[r]};
        st = verify_progress(w, n, sent);
    }
    tn_arena_fini(&arena);
    return st;
}

tn_status tn_pipeline_verify(const tn_pipeline *const *plans, const tn_graph *const *graphs, int n)
{
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < plans[r]->n_mails; i++)
            TN_TRY(verify_mail(plans, graphs, n, r, &plans[r]->mails[i]));
    return verify_run(plans, graphs, n);
}
