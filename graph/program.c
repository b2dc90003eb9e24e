/* program.c - lifetimes, aliases, places, entries.
 *
 * (1) Ticks are node indices of the final graph. A value lives from its producer to its last user.
 * (2) Loops: what was made before a loop and is read in it lives to the loop's end; what is
 *     carried over a loop, or assembled piece by piece in it, lives from the loop's begin.
 * (3) With a pipeline, segments run in the order of the actions, not of the nodes: what one segment
 * makes and another reads lives through all of them, in a slot for each microbatch on its way.
 * (4) A view shares its operand's buffer; an op may write into an operand's buffer if it is the
 *     last to read it, and must where it updates state. Inputs and states are never taken over by
 *     anything else. */
#include "graph/program.h"

#include "graph/events.h"
#include "graph/meetings.h"
#include "graph/op.h"
#include "graph/rewrite.h"

#include <string.h>

typedef struct loop {
    int64_t begin, end, count; /* nodes [begin, end) run count times */
} loop;

typedef struct planner {
    tn_program *p;
    const tn_graph *g;
    tn_uses uses;
    loop mb, chunk;
    int32_t *root;        /* by value: the value whose buffer it shares (itself) */
    int64_t *start, *end; /* by root value */
    int32_t *last_user;   /* by root value */
    int32_t *segment;     /* by node, -1: outside of microbatches */
    uint64_t *readers;    /* by root value and word: segments that read it */
    int64_t reader_words;
    tn_place *place; /* strides by value, rest by root */
} planner;

static int32_t find_root(const planner *q, int32_t v)
{
    while (q->root[v] != v) v = q->root[v];
    return v;
}

static bool inside(const loop *l, int64_t node)
{
    return l->count > 1 && node >= l->begin && node < l->end;
}

/* (1), (2) for a value made at node `made` and read at node `user`. */
static void extend(planner *q, int32_t root, int64_t made, int64_t user)
{
    const loop *loops[2] = {&q->mb, &q->chunk};
    int64_t end = user + 1, start = made;
    int32_t from = q->segment[made], to = q->segment[user];
    if (from >= 0 && to >= 0 && from != to) {
        q->readers[root * q->reader_words + to / 64] |= (uint64_t)1 << to % 64;
        start = q->mb.begin;
        end = q->mb.end;
    }
    for (int i = 0; i < 2; i++) {
        if (inside(loops[i], user) && !inside(loops[i], made) && loops[i]->end > end)
            end = loops[i]->end;
        if (inside(loops[i], made) && !inside(loops[i], user) && loops[i]->begin < start)
            start = loops[i]->begin;
    }
    if (end > q->end[root]) {
        q->end[root] = end;
        q->last_user[root] = (int32_t)user;
    }
    if (start < q->start[root]) q->start[root] = start;
}

static void find_loops(planner *q)
{
    const tn_graph *g = q->g;
    tn_program *p = q->p;
    int64_t n = g->n_nodes, i = 0;
    while (i < n && g->nodes[i].scope == TN_SCOPE_HEAD) i++;
    p->microbatch = i;
    p->chunk = p->chunk_end = -1;
    for (; i < n && g->nodes[i].scope != TN_SCOPE_TAIL; i++) {
        if (g->nodes[i].scope != TN_SCOPE_CHUNK) continue;
        if (p->chunk < 0) p->chunk = i;
        p->chunk_end = i + 1;
    }
    p->tail = i;
    if (p->chunk < 0) p->chunk = p->chunk_end = i;
    q->mb = (loop){p->microbatch, p->tail, g->n_microbatches};
    if (p->pipeline && q->mb.count < 2)
        q->mb.count = 2; /* (3): even one goes through all segments */
    q->chunk = (loop){p->chunk, p->chunk_end, g->n_chunks};
}

/* ------------------------------------------------------------ aliases */

static int64_t piece_stride(const planner *q, int32_t piece)
{
    const tn_value *v = &q->p->local[piece];
    return tn_value_elements(v) * tn_dtype_bytes((tn_dtype)v->dtype);
}

static int64_t *moving_stride(tn_place *at, const tn_node *n)
{
    return tn_node_attr_text(n, "over")[0] == 'm' ? &at->microbatch_stride : &at->chunk_stride;
}

/* Views: (4). An unchunk's operand moves into the whole; the others move into their operand. */
static void alias_views(planner *q)
{
    const tn_graph *g = q->g;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (!n->n_in || !tn_node_is_view(g, n)) continue;
        int32_t in = tn_node_in(g, n, 0), out = n->out0;
        if (n->op == TN_OP_unchunk) {
            int32_t r = find_root(q, in);
            for (int32_t v = r; v <= in; v++)
                if (find_root(q, v) == r) *moving_stride(&q->place[v], n) += piece_stride(q, in);
            q->root[r] = out;
            continue;
        }
        q->root[out] = find_root(q, in);
        q->place[out] = q->place[in];
        if (n->op != TN_OP_chunk) continue;
        *moving_stride(&q->place[out], n) += piece_stride(q, out);
    }
}

/* Still there behind the last node: not even that one may write over it. */
static void outlive(planner *q, int32_t root, int64_t made)
{
    extend(q, root, made, q->g->n_nodes - 1);
    q->end[root] = q->g->n_nodes + 1;
}

static void lifetimes(planner *q, int n_keep, const int32_t *keep)
{
    const tn_graph *g = q->g;
    for (int64_t v = 0; v < g->n_values; v++) {
        q->start[v] = INT64_MAX;
        q->end[v] = -1;
    }
    for (int64_t v = 0; v < g->n_values; v++) {
        int32_t r = find_root(q, (int32_t)v);
        int64_t made = g->values[v].node;
        extend(q, r, made, made);
        for (int64_t u = q->uses.first[v]; u < q->uses.first[v + 1]; u++)
            extend(q, r, made, q->uses.users[u]);
        if (g->values[v].carried) {
            if (inside(&q->mb, made))
                q->start[r] = q->mb.begin < q->start[r] ? q->mb.begin : q->start[r];
            if (inside(&q->chunk, made))
                q->start[r] = q->chunk.begin < q->start[r] ? q->chunk.begin : q->start[r];
            if (inside(&q->mb, made))
                extend(q, r, made, q->p->tail < g->n_nodes ? q->p->tail : g->n_nodes - 1);
            else if (inside(&q->chunk, made)) extend(q, r, made, q->chunk.end - 1);
        }
        if (g->values[v].rank == 0)
            outlive(q, r, made); /* small, and what is reported is among them */
    }
    for (int i = 0; i < n_keep; i++) outlive(q, find_root(q, keep[i]), g->values[keep[i]].node);
}

static tn_region region_of(const planner *q, int32_t root)
{
    uint16_t op = q->g->nodes[q->g->values[root].node].op;
    return op == TN_OP_state   ? TN_REGION_PROCESS
           : op == TN_OP_input ? TN_REGION_PLAN
           : op == TN_OP_recv  ? TN_REGION_MAIL
                               : TN_REGION_STEP;
}

/* Does another segment than its maker's read it? */
static bool is_saved(const planner *q, int32_t root)
{
    for (int64_t i = 0; i < q->reader_words; i++)
        if (q->readers[root * q->reader_words + i]) return true;
    return false;
}

/* May `out` of a node be written over its operand k? It is the last to read that memory in every
 * iteration, and reads it nowhere else, unless it goes element by element. */
static bool may_take(const planner *q, int64_t node, int k, int32_t out)
{
    const tn_graph *g = q->g;
    const tn_node *n = &g->nodes[node];
    int32_t in = tn_node_in(g, n, k), r = find_root(q, in);
    const tn_value *a = &g->values[r], *b = &g->values[out];
    const loop *loops[2] = {&q->mb, &q->chunk};
    for (int i = 0; i < 2; i++)
        if (inside(loops[i], node) && !inside(loops[i], q->start[r]))
            return false; /* read again in the next iteration */
    for (int i = 0; i < n->n_in; i++)
        if (i != k && !tn_op_get((tn_op_id)n->op)->cheap && find_root(q, tn_node_in(g, n, i)) == r)
            return false;
    return region_of(q, r) == TN_REGION_STEP && !a->carried && !b->carried && q->root[out] == out &&
           !is_saved(q, r) && !is_saved(q, out) && q->end[r] == node + 1 &&
           g->values[in].dtype == b->dtype &&
           tn_program_value_bytes(g, a) == tn_program_value_bytes(g, b) &&
           !q->place[in].chunk_stride && !q->place[in].microbatch_stride &&
           !q->place[out].chunk_stride && !q->place[out].microbatch_stride;
}

static void alias_in_place(planner *q)
{
    const tn_graph *g = q->g;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        const tn_op *op = tn_op_get((tn_op_id)n->op);
        for (int o = 0; o < n->n_out && o < TN_COUNT(op->reuse); o++) {
            int32_t out = n->out0 + o;
            if (!op->reuse[o] || op->reuse[o] > n->n_in) continue;
            int32_t in = tn_node_in(g, n, op->reuse[o] - 1), r = find_root(q, in);
            if (!op->reuse_must && !may_take(q, i, op->reuse[o] - 1, out)) continue;
            q->root[out] = r;
            if (q->end[out] > q->end[r]) {
                q->end[r] = q->end[out];
                q->last_user[r] = q->last_user[out];
            }
        }
    }
}

/* ------------------------------------------------------------ what is saved */

/* Where the action of a segment and a microbatch stands in the list. */
static tn_status find_actions(const planner *q, tn_arena *arena, int64_t **out)
{
    const tn_program *p = q->p;
    void *mem;
    TN_TRY(tn_arena_alloc(
        arena, (size_t)(p->n_segments * q->g->n_microbatches + 1) * sizeof(int64_t), &mem));
    *out = mem;
    for (int64_t i = 0; i < p->n_actions; i++)
        (*out)[p->actions[i].segment * q->g->n_microbatches + p->actions[i].microbatch] = i;
    return TN_OK;
}

/* A slot is free again behind the last reader of its microbatch; the lowest free one is taken. */
static tn_status give_slots(const planner *q, const int64_t *action, tn_saved *s)
{
    int64_t n = q->g->n_microbatches;
    tn_arena arena = {0};
    void *mem;
    TN_TRY(tn_arena_alloc(&q->p->arena, (size_t)n * sizeof(int32_t), &mem));
    int32_t *slot = mem;
    tn_status st = tn_arena_alloc(&arena, (size_t)n * sizeof(int64_t), &mem);
    int64_t *free_at = mem;
    for (int64_t i = 0; i < q->p->n_actions && !st; i++) {
        const tn_action *a = &q->p->actions[i];
        if (a->segment != s->from) continue;
        int64_t last = i;
        int32_t k = 0;
        for (int32_t t = 0; t < s->n_to; t++) {
            int64_t at = action[s->to[t] * n + a->microbatch];
            if (at > last) last = at;
        }
        while (k < s->n_slots && free_at[k] >= i) k++;
        if (k == s->n_slots) s->n_slots++;
        free_at[k] = last;
        slot[a->microbatch] = k;
    }
    s->slot = slot;
    tn_arena_fini(&arena);
    return st;
}

static bool reads(const planner *q, int32_t root, int64_t segment)
{
    return q->readers[root * q->reader_words + segment / 64] >> segment % 64 & 1;
}

static bool same_saved(const planner *q, const tn_saved *s, int32_t root)
{
    int32_t k = 0;
    if (s->from != q->segment[q->g->values[root].node]) return false;
    for (int32_t i = 0; i < q->p->n_segments; i++) {
        bool in = k < s->n_to && s->to[k] == i;
        if (in != reads(q, root, i)) return false;
        k += in;
    }
    return true;
}

static tn_status add_saved(planner *q, const int64_t *action, int32_t root, int32_t *out)
{
    tn_program *p = q->p;
    void *mem;
    for (*out = 0; *out < p->n_saved; ++*out)
        if (same_saved(q, &p->saved[*out], root)) return TN_OK;
    tn_saved *s = &p->saved[p->n_saved++];
    *s = (tn_saved){.from = q->segment[q->g->values[root].node]};
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(p->n_segments + 1) * sizeof(int32_t), &mem));
    s->to = mem;
    for (int32_t i = 0; i < p->n_segments; i++)
        if (reads(q, root, i)) s->to[s->n_to++] = i;
    return give_slots(q, action, s);
}

static void place_mails(planner *q)
{
    tn_program *p = q->p;
    for (int64_t i = 0; i < p->pipeline->n_mails; i++) {
        const tn_mail *m = &p->pipeline->mails[i];
        if (!m->arrives) continue;
        tn_place *at = &q->place[m->value];
        at->offset = m->slots;
        at->slot_bytes = m->slot_bytes;
        if (m->n_slots == 1) continue;
        p->saved[p->n_saved++] = (tn_saved){.from = -1, .n_slots = m->n_slots, .slot = m->slot};
        at->saved = (int32_t)p->n_saved;
    }
}

static tn_status save(planner *q)
{
    tn_program *p = q->p;
    tn_arena arena = {0};
    int64_t *action;
    void *mem;
    if (!p->pipeline) return TN_OK;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(q->g->n_values + 1) * sizeof(tn_saved), &mem));
    p->saved = mem;
    place_mails(q);
    tn_status st = find_actions(q, &arena, &action);
    for (int32_t v = 0; v < q->g->n_values && !st; v++) {
        if (q->root[v] != v || region_of(q, v) != TN_REGION_STEP || !is_saved(q, v)) continue;
        st = add_saved(q, action, v, &q->place[v].saved);
        q->place[v].saved++;
        q->place[v].slot_bytes = tn_program_value_bytes(q->g, &q->g->values[v]);
    }
    tn_arena_fini(&arena);
    return st;
}

/* ------------------------------------------------------------ places */

static int64_t slots_of(const planner *q, int32_t root)
{
    int32_t saved = q->place[root].saved;
    return saved ? q->p->saved[saved - 1].n_slots : 1;
}

static tn_status make_buffers(planner *q)
{
    const tn_graph *g = q->g;
    tn_program *p = q->p;
    void *mem;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(g->n_values + 1) * sizeof(tn_buffer), &mem));
    p->buffers = mem;
    for (int64_t v = 0; v < g->n_values; v++) {
        if (find_root(q, (int32_t)v) != v) continue;
        const tn_value *x = &g->values[v];
        tn_buffer *b = &p->buffers[p->n_buffers];
        *b = (tn_buffer){.region = (int8_t)region_of(q, (int32_t)v),
                         .value = (int32_t)v,
                         .last_user = q->last_user[v],
                         .start = q->start[v],
                         .end = q->end[v],
                         .bytes = tn_program_value_bytes(g, x) * (x->levels > 1 ? x->levels : 1) *
                                  slots_of(q, (int32_t)v)};
        q->place[v].buffer = (int32_t)p->n_buffers++;
        q->place[v].level_bytes = tn_program_value_bytes(g, x);
        if (b->region == TN_REGION_STEP) continue;
        b->start = 0;
        b->end = g->n_nodes;
        b->offset = b->region == TN_REGION_MAIL ? q->place[v].offset : p->region_bytes[b->region];
        p->region_bytes[b->region] += b->bytes;
    }
    if (p->pipeline) p->region_bytes[TN_REGION_MAIL] = p->pipeline->mail_bytes[p->pipeline->rank];
    return TN_OK;
}

static tn_status pack_step(planner *q)
{
    tn_program *p = q->p;
    tn_arena arena = {0};
    void *mem;
    int64_t n = 0;
    tn_status st = tn_arena_alloc(&arena, (size_t)(p->n_buffers + 1) * sizeof(tn_pack_item), &mem);
    tn_pack_item *items = mem;
    if (!st) {
        for (int64_t i = 0; i < p->n_buffers; i++)
            if (p->buffers[i].region == TN_REGION_STEP)
                items[n++] =
                    (tn_pack_item){p->buffers[i].start, p->buffers[i].end, p->buffers[i].bytes, 0};
        st = tn_pack(items, n, &p->pack);
    }
    if (!st) {
        n = 0;
        for (int64_t i = 0; i < p->n_buffers; i++)
            if (p->buffers[i].region == TN_REGION_STEP) p->buffers[i].offset = items[n++].offset;
        p->region_bytes[TN_REGION_STEP] = p->pack.peak;
    }
    tn_arena_fini(&arena);
    return st;
}

static void fill_places(planner *q)
{
    for (int64_t v = 0; v < q->g->n_values; v++) {
        int32_t r = find_root(q, (int32_t)v);
        tn_place *at = &q->place[v];
        const tn_buffer *b = &q->p->buffers[q->place[r].buffer];
        at->buffer = q->place[r].buffer;
        at->region = b->region;
        at->offset = b->offset;
        at->level_bytes = q->place[r].level_bytes;
        at->saved = q->place[r].saved;
        at->slot_bytes = q->place[r].slot_bytes;
    }
    q->p->places = q->place;
}

tn_stream tn_program_stream(const tn_graph *g, const tn_node *n)
{
    if (!tn_node_is_exchange(g, n)) return TN_STREAM_COMPUTE;
    return n->op == TN_OP_unshard  ? TN_STREAM_GATHER
           : n->op == TN_OP_reduce ? TN_STREAM_REDUCE
           : n->op == TN_OP_send   ? TN_STREAM_SEND
           : n->op == TN_OP_recv   ? TN_STREAM_RECV
                                   : TN_STREAM_TENSOR;
}

/* Bounds in nodes become bounds in entries. */
static tn_status make_entries(planner *q)
{
    tn_program *p = q->p;
    const tn_graph *g = q->g;
    void *mem;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(g->n_nodes + 1) * sizeof(tn_entry), &mem));
    p->entries = mem;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(g->n_nodes + 1) * sizeof(int64_t), &mem));
    int64_t *entry = mem;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        entry[i] = p->n_entries;
        if ((n->n_in == 0 && n->op != TN_OP_recv) || tn_node_is_view(g, n)) continue;
        p->entries[p->n_entries++] =
            (tn_entry){.node = (int32_t)i, .stream = (uint8_t)tn_program_stream(g, n)};
    }
    entry[g->n_nodes] = p->n_entries;
    p->microbatch = entry[p->microbatch];
    p->chunk = entry[p->chunk];
    p->chunk_end = entry[p->chunk_end];
    p->tail = entry[p->tail];
    for (int64_t i = 0; i < p->n_segments; i++) {
        p->segments[i].begin = entry[p->segments[i].begin];
        p->segments[i].end = entry[p->segments[i].end];
    }
    return TN_OK;
}

/* Segments and actions; without a pipeline one segment that runs for every microbatch. */
static tn_status make_segments(planner *q)
{
    tn_program *p = q->p;
    const tn_pipeline *pl = p->pipeline;
    int64_t n = q->g->n_nodes + 1;
    void *mem;
    p->n_segments = pl ? pl->n_segments : 1;
    p->n_actions = pl ? pl->n_actions : q->g->n_microbatches;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(p->n_segments + 1) * sizeof(tn_segment), &mem));
    p->segments = mem;
    if (pl) {
        memcpy(p->segments, pl->segments, (size_t)pl->n_segments * sizeof(tn_segment));
        p->actions = pl->actions;
    } else {
        p->segments[0] = (tn_segment){.begin = p->microbatch, .end = p->tail};
        TN_TRY(tn_arena_alloc(&p->arena, (size_t)(p->n_actions + 1) * sizeof(tn_action), &mem));
        tn_action *a = mem;
        for (int32_t m = 0; m < p->n_actions; m++) a[m].microbatch = m;
        p->actions = a;
    }
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)n * sizeof(int32_t), &mem));
    q->segment = mem;
    for (int64_t i = 0; i < n; i++) q->segment[i] = -1;
    for (int32_t s = 0; s < p->n_segments; s++)
        for (int64_t i = p->segments[s].begin; i < p->segments[s].end; i++) q->segment[i] = s;
    q->reader_words = (p->n_segments + 63) / 64;
    TN_TRY(tn_arena_alloc(
        &p->arena, (size_t)((q->g->n_values + 1) * q->reader_words) * sizeof(uint64_t), &mem));
    q->readers = mem;
    return TN_OK;
}

/* Extents and offsets of this rank's shards. */
static tn_status localise(planner *q)
{
    const tn_graph *g = q->g;
    void *values, *begin;
    TN_TRY(tn_arena_alloc(&q->p->arena, (size_t)(g->n_values + 1) * sizeof(tn_value), &values));
    TN_TRY(tn_arena_alloc(&q->p->arena, (size_t)(g->n_values + 1) * sizeof(int64_t[TN_MAX_RANK]),
                          &begin));
    q->p->local = values;
    q->p->begin = begin;
    if (g->n_values) memcpy(values, g->values, (size_t)g->n_values * sizeof(tn_value));
    for (int64_t v = 0; v < g->n_values; v++) {
        tn_value *x = &q->p->local[v];
        for (int d = 0; d < x->rank; d++)
            x->dim[d].extent = tn_layout_local(&x->layout, &g->mesh, q->p->at, d, x->dim[d].extent,
                                               x->dim[d].units, &q->p->begin[v][d]);
    }
    return TN_OK;
}

static tn_status plan(planner *q, int n_keep, const int32_t *keep)
{
    tn_program *p = q->p;
    tn_arena *a = &p->arena;
    size_t n = (size_t)q->g->n_values + 1;
    void *mem;
    TN_TRY(tn_uses_build(q->g, &q->uses));
    TN_TRY(localise(q));
    TN_TRY(tn_arena_alloc(a, n * sizeof(tn_place), &mem));
    q->place = mem;
    TN_TRY(tn_arena_alloc(a, n * 2 * sizeof(int64_t), &mem));
    q->start = mem;
    q->end = q->start + n;
    TN_TRY(tn_arena_alloc(a, n * 2 * sizeof(int32_t), &mem));
    q->root = mem;
    q->last_user = q->root + n;
    for (size_t v = 0; v < n; v++) {
        q->root[v] = (int32_t)v;
    }
    find_loops(q);
    TN_TRY(make_segments(q));
    alias_views(q);
    lifetimes(q, n_keep, keep);
    alias_in_place(q);
    TN_TRY(save(q));
    TN_TRY(make_buffers(q));
    TN_TRY(pack_step(q));
    fill_places(q);
    TN_TRY(make_entries(q));
    tn_meetings_join(p);
    return tn_events_build(p);
}

tn_status tn_program_build(tn_graph *g, tn_pipeline *pipeline, int rank, int n_keep,
                           const int32_t *keep, tn_program **out)
{
    void *mem;
    tn_status st = tn_alloc(sizeof(tn_program), &mem);
    if (st) {
        tn_graph_destroy(g);
        tn_pipeline_destroy(pipeline);
        return st;
    }
    planner q = {.p = mem, .g = g};
    q.p->g = g;
    q.p->pipeline = pipeline;
    tn_mesh_coordinates(&g->mesh, rank, q.p->at);
    st = plan(&q, n_keep, keep);
    tn_uses_fini(&q.uses);
    if (st) {
        tn_program_destroy(q.p);
        return st;
    }
    *out = q.p;
    return TN_OK;
}

void tn_program_destroy(tn_program *p)
{
    if (!p) return;
    tn_graph_destroy(p->g);
    tn_pipeline_destroy(p->pipeline);
    tn_arena_fini(&p->arena);
    tn_free(p);
}
