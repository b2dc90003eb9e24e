/* overlap.c - pass 8: exchanges leave the place where they were traced, so that they may run beside
 * computation (DESIGN.md 6; backward list scheduling after XLA's latency hiding scheduler).
 *
 * (1) The order of computation never changes, so no bit does.
 * (2) What needs more memory behind the exchange than before it (UNSHARD, gathers) goes as late as
 * it can and still be complete when its first reader starts, by the cost model, each stream one
 *     exchange at a time. The UNSHARDs that one block reads in one direction go together, and never
 *     further ahead than the block before.
 * (3) What needs less (reductions) goes as early as its operand allows. Parameter gradients of a
 * block go together when the last of them is complete; with several microbatches that is behind
 * them. (4) Nothing moves to a later place, into or out of a loop, or from one stage to another. */
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/program.h"
#include "graph/recompute.h"
#include "graph/rewrite.h"

#include <string.h>

typedef enum way { STAYS, LATE, EARLY } way;

typedef struct mover {
    tn_rewrite r;
    const tn_graph *g; /* old */
    const tn_cost_machine *m;
    tn_uses uses;
    tn_arena arena;
    int64_t begin, chunk, chunk_end, tail; /* nodes */
    uint8_t *way;                          /* by node */
    int64_t *slot;     /* by node: it is emitted in front of that node; its own number: it stays */
    int64_t *earliest; /* by exchange: the first legal slot */
    int32_t *segment;  /* by node: of compute nodes and of what stands between them */
    double *start;     /* by node: when it could start if nothing were waited for */
    int64_t *segments; /* their first nodes. A segment is one block in one direction; what lies
                          outside of blocks is one between them, and so are the loss chunks */
    int32_t n_segments;
} mover;

static bool in_chunk(const mover *q, int64_t i)
{
    return i >= q->chunk && i < q->chunk_end;
}

/* Of a step with one microbatch a gradient is complete inside of it. */
static bool leaves_tail(const mover *q, const tn_node *n)
{
    return n->op == TN_OP_reduce && n->scope == TN_SCOPE_TAIL && q->g->n_microbatches == 1;
}

static bool may_move(const mover *q, const tn_node *n)
{
    if (n->scope == TN_SCOPE_HEAD || !n->n_in || !tn_node_is_exchange(q->g, n)) return false;
    return n->scope != TN_SCOPE_TAIL || leaves_tail(q, n);
}

static double value_bytes(const tn_graph *g, int32_t v)
{
    const tn_value *x = &g->values[v];
    double n = (double)tn_dtype_bytes((tn_dtype)x->dtype);
    for (int d = 0; d < x->rank; d++)
        n *= (double)tn_layout_largest(&x->layout, &g->mesh, d, x->dim[d].extent, x->dim[d].units);
    return n;
}

/* (2) or (3) */
static way way_of(const mover *q, int64_t i)
{
    const tn_node *n = &q->g->nodes[i];
    if (!may_move(q, n)) return STAYS;
    bool grows = value_bytes(q->g, n->out0) > value_bytes(q->g, tn_node_in(q->g, n, 0));
    return grows ? LATE : EARLY;
}

/* ------------------------------------------------------------ time and segments */

static bool same_segment(const tn_node *a, const tn_node *b)
{
    size_t n = tn_recompute_block(a->path);
    return a->stage == b->stage && n == tn_recompute_block(b->path) &&
           !strncmp(a->path, b->path, n) && (a->phase == TN_PHASE_F) == (b->phase == TN_PHASE_F);
}

/* The loss chunks are one segment: nothing that belongs to the microbatch runs among them. */
static tn_status measure(mover *q)
{
    const tn_graph *g = q->g;
    const tn_node *last = NULL;
    double now = 0, chunk_s = 0;
    void *mem;
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)(g->n_nodes + 2) * sizeof(int64_t), &mem));
    q->segments = mem;
    for (int64_t i = q->begin; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        bool chunk = in_chunk(q, i), works = n->n_in && !tn_node_is_view(g, n);
        if (i == q->chunk_end) now += chunk_s * (double)(g->n_chunks - 1);
        q->start[i] = now;
        if (works && !tn_node_is_exchange(g, n)) {
            double cost = tn_cost_seconds(g, n, q->m);
            bool was = last && in_chunk(q, q->segments[q->n_segments - 1]);
            bool joins = n->op == TN_OP_unshard ||
                         (last && chunk == was && (chunk || same_segment(last, n)));
            if (!joins) {
                q->segments[q->n_segments++] = i;
                last = n;
            }
            now += cost;
            if (chunk) chunk_s += cost;
        }
        q->segment[i] = q->n_segments; /* 1 + of this node or of the last one before it */
    }
    return TN_OK;
}

/* The first node that reads it, through views; n_nodes if none does. */
static int64_t first_reader(const mover *q, int64_t i)
{
    const tn_graph *g = q->g;
    const tn_node *n = &g->nodes[i];
    int64_t first = g->n_nodes;
    for (int o = 0; o < n->n_out; o++)
        for (int64_t u = q->uses.first[n->out0 + o]; u < q->uses.first[n->out0 + o + 1]; u++) {
            int64_t user = q->uses.users[u];
            if (n->op == TN_OP_unshard && tn_node_is_exchange(g, &g->nodes[user]))
                continue; /* what is kept of it follows it */
            if (tn_node_is_view(g, &g->nodes[user])) user = first_reader(q, user);
            if (user < first) first = user;
        }
    return first;
}

/* ------------------------------------------------------------ slots */

/* Behind its operands, wherever they may go. */
static void find_earliest(mover *q)
{
    const tn_graph *g = q->g;
    for (int64_t i = q->begin; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        int64_t first = in_chunk(q, i) ? q->chunk + 1 : q->begin;
        q->earliest[i] = i;
        if (!q->way[i]) continue;
        for (int k = 0; k < n->n_in; k++) {
            int64_t p = g->values[tn_node_in(g, n, k)].node;
            int64_t behind = p < q->begin ? first : q->way[p] ? q->earliest[p] : p + 1;
            if (in_chunk(q, behind) && !in_chunk(q, i) && behind > q->chunk) behind = q->chunk_end;
            if (behind > first) first = behind;
        }
        q->earliest[i] = first < i ? first : i;
    }
}

/* The last compute node in whose front an exchange that must start at `at` can be emitted. */
static int64_t node_at(const mover *q, int64_t low, int64_t high, double at)
{
    int64_t best = low;
    for (int64_t i = low; i < high && q->start[i] <= at; i++)
        if (!tn_node_is_exchange(q->g, &q->g->nodes[i])) best = i;
    return best;
}

/* Exchanges that go to one slot. */
typedef struct bucket {
    int32_t target;    /* segment whose nodes read it */
    int64_t low, high; /* slots */
    double deadline, cost;
    tn_stream stream;
} bucket;

/* (2) How far ahead: the first node of the segment before the reader's. */
static int64_t ahead(const mover *q, int32_t target)
{
    return target >= 2 ? q->segments[target - 2] : q->begin;
}

static int64_t place_late(const mover *q, const bucket *b, double *free_at)
{
    double at = b->deadline < *free_at ? b->deadline : *free_at;
    at -= b->cost;
    *free_at = at;
    int64_t slot = b->low < b->high ? node_at(q, b->low, b->high, at) : b->high;
    bool inside = in_chunk(q, slot) && slot > q->chunk && !in_chunk(q, b->high);
    return inside ? q->chunk : slot;
}

/* When the reader needs it; what the loss chunks read is there when they begin. */
static double deadline(const mover *q, int64_t i, int64_t reader)
{
    if (reader >= q->g->n_nodes) return 1e30;
    return q->start[in_chunk(q, reader) && !in_chunk(q, i) ? q->chunk : reader];
}

/* Backward over the readers: UNSHARDs of one segment are one bucket, other gathers go alone. */
static void place_gathers(mover *q, int64_t *reader)
{
    const tn_graph *g = q->g;
    double free_at[TN_N_STREAMS];
    for (int s = 0; s < TN_N_STREAMS; s++) free_at[s] = 1e30;
    for (int64_t i = g->n_nodes - 1; i >= q->begin; i--) {
        const tn_node *n = &g->nodes[i];
        if (q->way[i] != LATE || q->slot[i] >= 0) continue;
        int64_t first = i;
        bool unshard = n->op == TN_OP_unshard;
        bucket b = {.target = reader[i] < g->n_nodes ? q->segment[reader[i]] : q->n_segments,
                    .low = q->earliest[i],
                    .high = i,
                    .deadline = deadline(q, i, reader[i]),
                    .stream = tn_program_stream(g, n)};
        for (int64_t k = i; k >= q->begin && (unshard || k == i); k--) {
            const tn_node *m = &g->nodes[k];
            if (m->op != n->op || q->way[k] != LATE || m->stage != n->stage ||
                m->scope != n->scope ||
                (k != i && (reader[k] >= g->n_nodes || q->segment[reader[k]] != b.target)))
                continue;
            if (q->earliest[k] > b.low) b.low = q->earliest[k];
            if (deadline(q, k, reader[k]) < b.deadline) b.deadline = deadline(q, k, reader[k]);
            b.cost += tn_cost_seconds(g, m, q->m);
            first = b.high = k;
            q->slot[k] = g->n_nodes; /* of this bucket */
        }
        if (unshard && ahead(q, b.target) > b.low) b.low = ahead(q, b.target);
        int64_t slot = place_late(q, &b, &free_at[b.stream]);
        for (int64_t k = first; k <= i; k++)
            if (q->slot[k] == g->n_nodes) q->slot[k] = slot < k ? slot : k;
    }
}

/* (3) */
static void place_reductions(mover *q)
{
    const tn_graph *g = q->g;
    for (int64_t i = q->begin; i < g->n_nodes; i++) {
        if (q->way[i] != EARLY) continue;
        q->slot[i] = q->earliest[i];
        if (g->nodes[i].op != TN_OP_reduce) continue;
        int32_t own = q->segment[q->earliest[i] - 1];
        for (int64_t k = q->begin; k < g->n_nodes; k++) /* to the last of its segment */
            if (g->nodes[k].op == TN_OP_reduce && q->way[k] == EARLY &&
                q->segment[q->earliest[k] - 1] == own && q->earliest[k] > q->slot[i])
                q->slot[i] = q->earliest[k];
    }
}

/* Exchanges of exchanges: never in front of their operand. */
static void settle(mover *q)
{
    const tn_graph *g = q->g;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (i < q->begin || !q->way[i]) {
            q->slot[i] = i;
            continue;
        }
        for (int k = 0; k < n->n_in; k++) {
            int64_t p = g->values[tn_node_in(g, n, k)].node;
            if (p < q->begin || !q->way[p]) continue;
            int64_t least = q->slot[p] == p ? p + 1 : q->slot[p]; /* it stands behind its guests */
            if (least > q->slot[i]) q->slot[i] = least;
        }
    }
}

/* ------------------------------------------------------------ emitting */

static tn_status emit_node(mover *q, int64_t i)
{
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    tn_node_desc d;
    tn_rewrite_describe(&q->r, i, in, attrs, &d);
    if (q->slot[i] <= q->tail && leaves_tail(q, &q->g->nodes[i])) d.scope = TN_SCOPE_MICROBATCH;
    return tn_rewrite_add(&q->r, i, &d);
}

/* UNSHARDs come first in their slot, so that a bucket is one run. */
static bool leads(const mover *q, int64_t i)
{
    const tn_node *n = &q->g->nodes[i];
    return n->op == TN_OP_unshard &&
           q->slot[q->g->values[tn_node_in(q->g, n, 0)].node] != q->slot[i];
}

/* Counted by slot: what moved there in its old order, then the node itself. */
static tn_status emit(mover *q)
{
    const tn_graph *g = q->g;
    void *mem;
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)(2 * g->n_nodes + 2) * sizeof(int64_t), &mem));
    int64_t *first = mem, *moved = first + g->n_nodes + 2;
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (q->slot[i] != i) first[q->slot[i] + 1]++;
    for (int64_t i = 0; i <= g->n_nodes; i++) first[i + 1] += first[i];
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (q->slot[i] != i) moved[first[q->slot[i]]++] = i;
    int64_t k = 0;
    for (int64_t i = 0; i <= g->n_nodes; i++) {
        for (int64_t j = k; j < first[i]; j++)
            if (leads(q, moved[j])) TN_TRY(emit_node(q, moved[j]));
        bool stays = i < g->n_nodes && q->slot[i] == i, with_them = stays && leads(q, i);
        if (with_them) TN_TRY(emit_node(q, i));
        for (; k < first[i]; k++)
            if (!leads(q, moved[k])) TN_TRY(emit_node(q, moved[k]));
        if (stays && !with_them) TN_TRY(emit_node(q, i));
    }
    return TN_OK;
}

static void find_loops(mover *q)
{
    const tn_graph *g = q->g;
    int64_t n = g->n_nodes, i = 0;
    while (i < n && g->nodes[i].scope == TN_SCOPE_HEAD) i++;
    q->begin = i;
    q->chunk = q->chunk_end = -1;
    for (; i < n && g->nodes[i].scope != TN_SCOPE_TAIL; i++) {
        if (g->nodes[i].scope != TN_SCOPE_CHUNK) continue;
        if (q->chunk < 0) q->chunk = i;
        q->chunk_end = i + 1;
    }
    q->tail = i;
}

static tn_status run(mover *q)
{
    const tn_graph *g = q->g;
    size_t n = (size_t)g->n_nodes + 1;
    void *mem;
    TN_TRY(tn_uses_build(g, &q->uses));
    TN_TRY(tn_arena_alloc(&q->arena,
                          n * (3 * sizeof(int64_t) + sizeof(double) + sizeof(int32_t) + 1), &mem));
    q->slot = mem;
    q->earliest = q->slot + n;
    int64_t *reader = q->earliest + n;
    q->start = (double *)(reader + n);
    q->segment = (int32_t *)(q->start + n);
    q->way = (uint8_t *)(q->segment + n);
    find_loops(q);
    TN_TRY(measure(q));
    for (int64_t i = 0; i < g->n_nodes; i++) {
        q->slot[i] = -1;
        q->way[i] = (uint8_t)way_of(q, i);
        reader[i] = q->way[i] ? first_reader(q, i) : -1;
    }
    find_earliest(q);
    place_reductions(q);
    place_gathers(q, reader);
    settle(q);
    return emit(q);
}

tn_status tn_pass_overlap(const tn_graph *in, const tn_pass_options *o, tn_graph **out)
{
    mover q = {.g = in, .m = &o->machine};
    TN_TRY(tn_rewrite_begin(in, &q.r));
    tn_status st = run(&q);
    tn_uses_fini(&q.uses);
    tn_arena_fini(&q.arena);
    if (st) {
        tn_rewrite_drop(&q.r);
        return st;
    }
    *out = tn_rewrite_finish(&q.r);
    return TN_OK;
}
