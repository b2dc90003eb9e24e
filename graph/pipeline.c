#include "graph/pipeline.h"

#include "graph/channel.h"
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/program.h"
#include "graph/rewrite.h"
#include "graph/stages.h"

#include <stdlib.h>
#include <string.h>

/* A value that one rank makes and another reads. */
typedef struct transfer {
    int32_t value, next; /* next: of the same value, -1 */
    int32_t from, to;    /* ranks */
    tn_scope scope;      /* HEAD, MICROBATCH, TAIL: when it travels */
    int64_t n_users, cap_users;
    tn_channel_user *users; /* of microbatches */
    tn_mail mail;           /* places; the rest is filled for the rank */
} transfer;

/* A part of a microbatch that an action runs at once. */
typedef struct piece {
    int32_t stage;
    bool has[3]; /* kinds F, B, W */
} piece;

typedef struct cut {
    tn_rewrite r;
    const tn_graph *g; /* whole */
    const tn_schedule *s;
    int32_t rank;
    tn_arena arena; /* of the pass */
    tn_pipeline *plan;
    uint8_t *kind; /* by node of a microbatch */
    transfer *transfers;
    int64_t n_transfers, cap_transfers;
    int32_t *of_value; /* by value: its first transfer, -1 */
    int32_t *own;      /* stages of this rank, ascending */
    int32_t n_own;
    bool *need;      /* by own stage and node: a node of TN_STAGE_ALL that it needs */
    int32_t *copies; /* by own stage and value: what such a node makes there */
    int64_t cap_segments, cap_mails, cap_origin, cap_actions;
    int64_t now; /* node of the whole graph that is being emitted */
} cut;

static bool in_microbatch(const tn_node *n)
{
    return n->scope == TN_SCOPE_MICROBATCH || n->scope == TN_SCOPE_CHUNK;
}

static int32_t rank_of(const cut *c, const tn_node *n)
{
    return n->stage < 0 ? -1 : c->s->rank_of[n->stage];
}

/* ------------------------------------------------------------ kinds */

/* The first user of a gather in a microbatch: what it is for. */
static uint8_t kind_of_user(const cut *c, const tn_uses *uses, int64_t node)
{
    int32_t v = c->g->nodes[node].out0;
    uint8_t kind = c->kind[node];
    bool any = false;
    for (int64_t u = uses->first[v]; u < uses->first[v + 1]; u++) {
        uint8_t k = c->kind[uses->users[u]];
        if (in_microbatch(&c->g->nodes[uses->users[u]]) && (!any || k < kind)) kind = k;
        any = true;
    }
    return kind;
}

/* Loss chunks belong to forward, whatever they hold. Behind the first backward node weight
 * gradients are W and what follows from them, all else is B. A gather belongs to what it is for. */
static tn_status find_kinds(cut *c)
{
    const tn_graph *g = c->g;
    tn_uses uses;
    bool backward = false;
    TN_TRY(tn_uses_build(g, &uses));
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        bool alone = n->scope == TN_SCOPE_MICROBATCH;
        backward |= alone && (n->phase == TN_PHASE_B || n->phase == TN_PHASE_W);
        c->kind[i] = !backward || !alone      ? TN_SCHEDULE_F
                     : n->phase == TN_PHASE_W ? TN_SCHEDULE_W
                                              : TN_SCHEDULE_B;
        for (int k = 0; k < n->n_in && backward && alone; k++) {
            int32_t p = g->values[tn_node_in(g, n, k)].node;
            if (c->kind[p] > c->kind[i] && in_microbatch(&g->nodes[p])) c->kind[i] = c->kind[p];
        }
    }
    for (int64_t i = g->n_nodes - 1; i >= 0; i--)
        if (g->nodes[i].op == TN_OP_unshard && in_microbatch(&g->nodes[i]))
            c->kind[i] = kind_of_user(c, &uses, i);
    tn_uses_fini(&uses);
    return TN_OK;
}

/* ------------------------------------------------------------ what travels */

static tn_status add_user(transfer *t, int32_t stage, uint8_t kind)
{
    for (int64_t i = 0; i < t->n_users; i++)
        if (t->users[i].stage == stage && t->users[i].kind == kind) return TN_OK;
    TN_TRY(tn_grow((void **)&t->users, &t->cap_users, t->n_users + 1, sizeof *t->users));
    t->users[t->n_users++] = (tn_channel_user){stage, kind};
    return TN_OK;
}

static tn_status travel(cut *c, int32_t value, int32_t to, int64_t user)
{
    const tn_node *p = &c->g->nodes[c->g->values[value].node], *n = &c->g->nodes[user];
    int32_t *at = &c->of_value[value], from = rank_of(c, p);
    if (from == to) return TN_OK;
    while (*at >= 0 && c->transfers[*at].to != to) at = &c->transfers[*at].next;
    int64_t number = *at;
    if (number < 0) {
        *at = (int32_t)c->n_transfers; /* before the array moves: it may lie in it */
        TN_TRY(tn_grow((void **)&c->transfers, &c->cap_transfers, c->n_transfers + 1,
                       sizeof(transfer)));
        number = c->n_transfers++;
        c->transfers[number] =
            (transfer){.value = value,
                       .next = -1,
                       .from = from,
                       .to = to,
                       .scope = p->scope == TN_SCOPE_HEAD              ? TN_SCOPE_HEAD
                                : in_microbatch(p) && in_microbatch(n) ? TN_SCOPE_MICROBATCH
                                                                       : TN_SCOPE_TAIL};
    }
    transfer *t = &c->transfers[number];
    if (t->scope != TN_SCOPE_MICROBATCH) return TN_OK;
    if (!in_microbatch(n))
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: reads a value of another pipeline stage both in and behind the "
                "microbatches; use it on its own stage",
                n->path, tn_op_name((tn_op_id)n->op));
    return add_user(t, n->stage, c->kind[user]);
}

/* Who reads a view reads what it shows, which must lie there as long. */
static tn_status find_transfers(cut *c)
{
    const tn_graph *g = c->g;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i], *p;
        for (int k = 0; k < n->n_in; k++)
            for (int32_t v = tn_node_in(g, n, k);; v = tn_node_in(g, p, 0)) {
                p = &g->nodes[g->values[v].node];
                if (p->stage >= 0 && n->stage >= 0) TN_TRY(travel(c, v, rank_of(c, n), i));
                else
                    for (int32_t r = 0; p->stage >= 0 && r < c->s->n_ranks; r++)
                        TN_TRY(travel(c, v, r, i));
                if (!p->n_in || !tn_node_is_view(g, p) || rank_of(c, p) != rank_of(c, n)) break;
            }
    }
    return TN_OK;
}

/* Slots of those of microbatches; places in the mail of the receivers. */
static tn_status place_mail(cut *c)
{
    tn_channel *channels;
    void *mem;
    int64_t n = 0, at;
    TN_TRY(tn_arena_alloc(&c->arena, (size_t)(c->n_transfers + 1) * sizeof(tn_channel), &mem));
    channels = mem;
    for (int64_t i = 0; i < c->n_transfers; i++) {
        const transfer *t = &c->transfers[i];
        const tn_node *p = &c->g->nodes[c->g->values[t->value].node];
        if (t->scope == TN_SCOPE_MICROBATCH)
            channels[n++] = (tn_channel){.from = t->from,
                                         .to = t->to,
                                         .maker = {p->stage, c->kind[p - c->g->nodes]},
                                         .n_users = t->n_users,
                                         .users = t->users};
    }
    TN_TRY(tn_channel_size(c->s, channels, n, &c->plan->arena));
    TN_TRY(tn_arena_alloc(&c->plan->arena, sizeof(int32_t), &mem));
    const int32_t *once = mem;
    n = 0;
    for (int64_t i = 0; i < c->n_transfers; i++) {
        transfer *t = &c->transfers[i];
        tn_mail *m = &t->mail;
        int64_t *bytes = &c->plan->mail_bytes[t->to];
        *m = (tn_mail){.channel = (int32_t)i, .n_slots = 1, .slot = once};
        m->slot_bytes = tn_program_value_bytes(c->g, &c->g->values[t->value]);
        if (t->scope == TN_SCOPE_MICROBATCH) {
            m->n_slots = channels[n].n_slots;
            m->slot = channels[n++].slot;
        }
        at = *bytes;
        m->flags = at;
        m->slots = at + (int64_t)m->n_slots * TN_MAIL_FLAG_BYTES;
        *bytes = m->slots + m->n_slots * m->slot_bytes;
    }
    return TN_OK;
}

/* ------------------------------------------------------------ nodes of every stage */

static bool *needs(const cut *c, int32_t own, int64_t node)
{
    return &c->need[(int64_t)own * c->g->n_nodes + node];
}

static void find_needs(cut *c)
{
    const tn_graph *g = c->g;
    for (int64_t i = g->n_nodes - 1; i >= 0; i--) {
        const tn_node *n = &g->nodes[i];
        for (int32_t s = 0; s < c->n_own; s++) {
            bool wanted = n->stage == c->own[s] || (n->stage < 0 && *needs(c, s, i)) ||
                          (n->stage < 0 && !in_microbatch(n) && n->op != TN_OP_state);
            for (int k = 0; wanted && k < n->n_in; k++) {
                int32_t p = g->values[tn_node_in(g, n, k)].node;
                if (g->nodes[p].stage < 0) *needs(c, s, p) = true;
            }
        }
    }
}

static bool needed_by_any(const cut *c, int64_t node)
{
    const tn_node *n = &c->g->nodes[node];
    bool any = n->op != TN_OP_state && !in_microbatch(n);
    for (int32_t s = 0; s < c->n_own; s++) any |= *needs(c, s, node);
    return any;
}

/* ------------------------------------------------------------ emitting */

static tn_status note_origin(cut *c)
{
    tn_pipeline *p = c->plan;
    int64_t n = c->r.g->n_nodes;
    TN_TRY(tn_grow((void **)&p->origin, &c->cap_origin, n, sizeof(int64_t)));
    p->origin[n - 1] = c->now;
    return TN_OK;
}

/* The node as it is. own: which stage of this rank it is for; -1: outside of microbatches. */
static tn_status emit_node(cut *c, int64_t i, int32_t own)
{
    const tn_graph *g = c->g;
    const tn_node *n = &g->nodes[i];
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    tn_node_desc d;
    c->now = i;
    tn_rewrite_describe(&c->r, i, in, attrs, &d);
    for (int k = 0; k < n->n_in && own >= 0; k++) {
        int32_t v = tn_node_in(g, n, k);
        const tn_node *p = &g->nodes[g->values[v].node];
        if (p->stage < 0 && in_microbatch(p)) in[k] = c->copies[own * g->n_values + v];
    }
    TN_TRY(tn_rewrite_add(&c->r, i, &d));
    for (int k = 0; k < n->n_out && own >= 0; k++)
        c->copies[own * g->n_values + n->out0 + k] = c->r.map[n->out0 + k];
    return note_origin(c);
}

static tn_status add_mail(cut *c, const transfer *t, int32_t value, bool arrives)
{
    tn_pipeline *p = c->plan;
    TN_TRY(tn_grow((void **)&p->mails, &c->cap_mails, p->n_mails + 1, sizeof(tn_mail)));
    tn_mail *m = &p->mails[p->n_mails++];
    *m = t->mail;
    m->node = (int32_t)(c->r.g->n_nodes - 1);
    m->value = value;
    m->peer = arrives ? t->from : t->to;
    m->arrives = arrives;
    return note_origin(c);
}

static tn_named_attr number(const char *name, int64_t i)
{
    return (tn_named_attr){name, {.kind = 'i', .u.i = i}};
}

static tn_status emit_send(cut *c, const transfer *t)
{
    const tn_node *p = &c->g->nodes[c->g->values[t->value].node];
    tn_named_attr attrs[2] = {number("channel", t->mail.channel), number("to", t->to)};
    tn_node_desc d = {.op = TN_OP_send,
                      .n_in = 1,
                      .in = &c->r.map[t->value],
                      .n_attrs = 2,
                      .attrs = attrs,
                      .path = p->path,
                      .phase = TN_PHASE_COMM,
                      .scope = t->scope,
                      .stage = p->stage};
    c->now = p - c->g->nodes;
    TN_TRY(tn_graph_add(c->r.g, &d, NULL));
    return add_mail(c, t, c->r.map[t->value], false);
}

static tn_status emit_recv(cut *c, const transfer *t)
{
    const tn_value *v = &c->g->values[t->value];
    const tn_node *p = &c->g->nodes[v->node];
    tn_named_attr attrs[2] = {number("channel", t->mail.channel), number("from", t->from)};
    tn_node_desc d = {.op = TN_OP_recv,
                      .n_attrs = 2,
                      .attrs = attrs,
                      .path = p->path,
                      .phase = TN_PHASE_COMM,
                      .scope = t->scope,
                      .stage = t->scope == TN_SCOPE_MICROBATCH ? t->users[0].stage : TN_STAGE_ALL,
                      .layout = &v->layout,
                      .like = v};
    c->now = v->node;
    TN_TRY(tn_graph_add(c->r.g, &d, &c->r.map[t->value]));
    return add_mail(c, t, c->r.map[t->value], true);
}

/* What travels outside of microbatches and is made by node i: here, or by another rank. */
static tn_status exchange_once(cut *c, int64_t i, tn_scope scope)
{
    const tn_node *n = &c->g->nodes[i];
    for (int k = 0; k < n->n_out; k++)
        for (int32_t t = c->of_value[n->out0 + k]; t >= 0; t = c->transfers[t].next) {
            const transfer *x = &c->transfers[t];
            if (x->scope != scope) continue;
            if (x->from == c->rank) TN_TRY(emit_send(c, x));
            if (x->to == c->rank) TN_TRY(emit_recv(c, x));
        }
    return TN_OK;
}

static tn_status emit_outside(cut *c, tn_scope scope)
{
    const tn_graph *g = c->g;
    for (int64_t i = 0; i < g->n_nodes && scope == TN_SCOPE_TAIL; i++)
        if (in_microbatch(&g->nodes[i])) TN_TRY(exchange_once(c, i, scope));
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (n->scope != scope) continue;
        if (n->stage < 0 ? needed_by_any(c, i) : rank_of(c, n) == c->rank)
            TN_TRY(emit_node(c, i, -1));
        TN_TRY(exchange_once(c, i, scope));
    }
    return TN_OK;
}

/* ------------------------------------------------------------ segments */

static bool piece_has(const cut *c, const piece *p, int64_t node)
{
    return p->has[c->kind[node]] && in_microbatch(&c->g->nodes[node]);
}

static tn_status emit_piece(cut *c, const piece *p, int32_t own)
{
    const tn_graph *g = c->g;
    tn_pipeline *plan = c->plan;
    TN_TRY(tn_grow((void **)&plan->segments, &c->cap_segments, plan->n_segments + 1,
                   sizeof(tn_segment)));
    tn_segment *s = &plan->segments[plan->n_segments++];
    *s = (tn_segment){.begin = c->r.g->n_nodes, .stage = p->stage};
    for (int64_t t = 0; t < c->n_transfers; t++) {
        const transfer *x = &c->transfers[t];
        if (x->to == c->rank && x->scope == TN_SCOPE_MICROBATCH && x->users[0].stage == p->stage &&
            p->has[x->users[0].kind])
            TN_TRY(emit_recv(c, x));
    }
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (!piece_has(c, p, i)) continue;
        if (n->stage == p->stage || (n->stage < 0 && *needs(c, own, i)))
            TN_TRY(emit_node(c, i, own));
    }
    for (int64_t t = 0; t < c->n_transfers; t++) {
        const transfer *x = &c->transfers[t];
        int32_t maker = g->values[x->value].node;
        if (x->from == c->rank && x->scope == TN_SCOPE_MICROBATCH &&
            g->nodes[maker].stage == p->stage && piece_has(c, p, maker))
            TN_TRY(emit_send(c, x));
    }
    s->end = c->r.g->n_nodes;
    return TN_OK;
}

/* How the list runs a stage: backward and weight gradients apart; forward always directly followed
 * by its backward, as on the last stage of 1F1B, so that nothing has to be kept. (Any other stage
 * must send before it can receive.) */
static void look_at_list(const cut *c, int32_t stage, bool *backward, bool *apart, bool *joined)
{
    const tn_schedule_list *l = &c->s->lists[c->rank];
    *backward = *apart = false;
    *joined = true;
    for (int64_t i = 0; i < l->n; i++) {
        const tn_schedule_action *a = &l->actions[i], *b = i + 1 < l->n ? a + 1 : NULL;
        if (a->stage != stage) continue;
        *backward |= a->kind != TN_SCHEDULE_F;
        *apart |= a->kind == TN_SCHEDULE_W;
        if (a->kind == TN_SCHEDULE_F)
            *joined &= b && b->kind == TN_SCHEDULE_BW && b->stage == stage &&
                       b->microbatch == a->microbatch;
    }
    *joined &= *backward && stage == c->s->n_stages - 1;
}

typedef struct pieces {
    int32_t n;
    piece *p;
    int32_t *own;
} pieces;

static tn_status cut_pieces(cut *c, pieces *out)
{
    void *mem;
    TN_TRY(tn_arena_alloc(&c->arena, (size_t)(3 * c->n_own) * sizeof(piece), &mem));
    out->p = mem;
    TN_TRY(tn_arena_alloc(&c->arena, (size_t)(3 * c->n_own) * sizeof(int32_t), &mem));
    out->own = mem;
    out->n = 0;
    bool backward, apart, joined;
    for (int32_t s = 0; s < c->n_own; s++) {
        look_at_list(c, c->own[s], &backward, &apart, &joined);
        out->own[out->n] = s;
        out->p[out->n++] = (piece){c->own[s], {true, joined, joined}};
    }
    for (int32_t s = c->n_own - 1; s >= 0; s--) {
        look_at_list(c, c->own[s], &backward, &apart, &joined);
        if (!backward || joined) continue;
        out->own[out->n] = s;
        out->p[out->n++] = (piece){c->own[s], {false, true, !apart}};
        if (!apart) continue;
        out->own[out->n] = s;
        out->p[out->n++] = (piece){c->own[s], {false, false, true}};
    }
    return TN_OK;
}

static int32_t find_piece(const pieces *p, int32_t stage, int kind)
{
    for (int32_t i = 0; i < p->n; i++)
        if (p->p[i].stage == stage && p->p[i].has[kind]) return i;
    return -1;
}

static tn_status add_action(cut *c, int32_t segment, int32_t microbatch)
{
    tn_pipeline *p = c->plan;
    if (p->n_actions && p->actions[p->n_actions - 1].segment == segment &&
        p->actions[p->n_actions - 1].microbatch == microbatch)
        return TN_OK; /* one piece does both */
    TN_TRY(tn_grow((void **)&p->actions, &c->cap_actions, p->n_actions + 1, sizeof(tn_action)));
    p->actions[p->n_actions++] = (tn_action){segment, microbatch};
    return TN_OK;
}

static tn_status list_actions(cut *c, const pieces *p)
{
    const tn_schedule_list *l = &c->s->lists[c->rank];
    for (int64_t i = 0; i < l->n; i++) {
        const tn_schedule_action *a = &l->actions[i];
        bool both = a->kind == TN_SCHEDULE_BW;
        TN_TRY(
            add_action(c, find_piece(p, a->stage, both ? TN_SCHEDULE_B : a->kind), a->microbatch));
        if (both) TN_TRY(add_action(c, find_piece(p, a->stage, TN_SCHEDULE_W), a->microbatch));
    }
    return TN_OK;
}

/* What is summed over microbatches starts with the first one and goes on in order. */
static tn_status check_order(const cut *c)
{
    const tn_pipeline *p = c->plan;
    void *mem;
    tn_arena arena = {0};
    tn_status st = tn_arena_alloc(&arena, (size_t)(p->n_segments + 1) * sizeof(int32_t), &mem);
    int32_t *next = mem;
    for (int64_t i = 0; i < p->n_actions && !st; i++) {
        const tn_action *a = &p->actions[i];
        const tn_segment *s = &p->segments[a->segment];
        bool sums = false;
        for (int64_t k = s->begin; k < s->end && !sums; k++)
            for (int o = 0; o < c->r.g->nodes[k].n_out; o++)
                sums |= c->r.g->values[c->r.g->nodes[k].out0 + o].carried;
        if (sums && a->microbatch != next[a->segment])
            st = tn_error(TN_BAD_INPUT,
                          "pipeline schedule: stage %d sums over microbatches and runs %d where %d "
                          "follows; its microbatches must ascend",
                          s->stage, a->microbatch, next[a->segment]);
        next[a->segment]++;
    }
    tn_arena_fini(&arena);
    return st;
}

/* ------------------------------------------------------------ all */

static tn_status reserve(cut *c)
{
    const tn_graph *g = c->g;
    size_t n = (size_t)g->n_nodes + 1, v = (size_t)g->n_values + 1;
    void *mem;
    TN_TRY(tn_arena_alloc(&c->arena, n, &mem));
    c->kind = mem;
    TN_TRY(tn_arena_alloc(&c->arena, v * sizeof(int32_t), &mem));
    c->of_value = mem;
    for (size_t i = 0; i < v; i++) c->of_value[i] = -1;
    TN_TRY(tn_arena_alloc(&c->arena, (size_t)c->s->n_stages * sizeof(int32_t), &mem));
    c->own = mem;
    for (int32_t s = 0; s < c->s->n_stages; s++)
        if (c->s->rank_of[s] == c->rank) c->own[c->n_own++] = s;
    TN_TRY(tn_arena_alloc(&c->arena, n * (size_t)c->n_own, &mem));
    c->need = mem;
    TN_TRY(tn_arena_alloc(&c->arena, v * (size_t)c->n_own * sizeof(int32_t), &mem));
    c->copies = mem;
    TN_TRY(tn_alloc(sizeof(tn_pipeline), &mem));
    c->plan = mem;
    c->plan->n_ranks = c->s->n_ranks;
    c->plan->rank = c->rank;
    TN_TRY(tn_arena_alloc(&c->plan->arena, (size_t)c->s->n_ranks * sizeof(int64_t), &mem));
    c->plan->mail_bytes = mem;
    return TN_OK;
}

static tn_status run(cut *c)
{
    pieces p;
    TN_TRY(reserve(c));
    TN_TRY(find_kinds(c));
    TN_TRY(find_transfers(c));
    TN_TRY(place_mail(c));
    find_needs(c);
    TN_TRY(emit_outside(c, TN_SCOPE_HEAD));
    TN_TRY(cut_pieces(c, &p));
    for (int32_t i = 0; i < p.n; i++) TN_TRY(emit_piece(c, &p.p[i], p.own[i]));
    TN_TRY(list_actions(c, &p));
    TN_TRY(emit_outside(c, TN_SCOPE_TAIL));
    return check_order(c);
}

tn_status tn_pass_pipeline(const tn_graph *in, const tn_schedule *s, int rank, tn_graph **out,
                           tn_pipeline **plan_out)
{
    cut c = {.g = in, .s = s, .rank = rank};
    TN_TRY(tn_rewrite_begin(in, &c.r));
    tn_status st = run(&c);
    for (int64_t i = 0; i < c.n_transfers; i++) tn_free(c.transfers[i].users);
    tn_free(c.transfers);
    tn_arena_fini(&c.arena);
    if (st) {
        tn_pipeline_destroy(c.plan);
        tn_rewrite_drop(&c.r);
        return st;
    }
    *plan_out = c.plan;
    *out = tn_rewrite_finish(&c.r);
    return TN_OK;
}

void tn_pipeline_destroy(tn_pipeline *p)
{
    if (!p) return;
    tn_free(p->segments);
    tn_free(p->actions);
    tn_free(p->mails);
    tn_free(p->origin);
    tn_arena_fini(&p->arena);
    tn_free(p);
}
