/* verify.c - pass 10: replays the program on a map that says, for every byte, whose content lies
 * there.
 *
 * It reads the entries, the places and the graph, and nothing of how they were made (lifetimes,
 * buffers, aliases):
 * (1) Every entry finds in each operand what that operand's producer wrote, whole, at the
 *     operand's own place; a view has the content of what it views. So no live value is
 *     overwritten, and nothing runs before what it reads.
 * (2) Loss chunks run as often as they do. Microbatches run twice, the second time for all the
 *     others: what moves with them is then all further pieces. Only inputs do; should anything
 *     else, they run as often as they do, too.
 * (3) A carried sum finds its own content when it is continued. The pieces of a whole are one
 *     content.
 * (4) Inputs are never written; states, and sums that grow in place, only by the op that must
 *     write over that very operand.
 * (5) An output may lie over an operand only where the op says so or goes element by element
 *     (`cheap`), at one address.
 * (6) Every node that does work has one entry, in the loop of its scope; what exchanges nothing
 *     and casts nothing has none.
 * (7) Scalars (loss, label count, norm) are still there behind the program: they are reported.
 * (8) What is exchanged lies at one address on all ranks of the mesh, piece by piece.
 * (9) What two streams touch is ordered by streams and events (graph/events.h), and what ranks
 * exchange in one meeting does not meet in memory (graph/meetings.h).
 *
 * (9) With a pipeline the actions run in their order, for as many microbatches as any value has
 * slots and one more; what is saved has one content for each slot, and is read for the microbatch
 * that made it. What is received is written when it is received: that its slot is free when it is
 * sent follows from the schedule (pipeline.h).
 *
 * The map is a tree over the borders of all places, where a node that is one content says so:
 * log n per access. */
#include "graph/program.h"

#include "graph/events.h"
#include "graph/meetings.h"
#include "graph/names.h"
#include "graph/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = 0, MIXED = -1 };

typedef struct content { /* number 0 is nobody's */
    int32_t value;
    int32_t microbatch, chunk; /* the iteration that made it */
} content;

typedef struct span {
    int64_t begin, end; /* bytes; the regions lie one behind the other */
} span;

typedef struct replay {
    const tn_program *p;
    const tn_graph *g;
    tn_arena arena;
    int64_t base[TN_N_REGIONS + 1];
    int64_t *border; /* ascending; leaf i of the map is [border[i], border[i + 1]) */
    int64_t n_borders, cap_borders, n_leaves; /* the last a power of two */
    int32_t *owner;  /* of node k of the map: its content, or MIXED; children 2k and 2k + 1 */
    int32_t *now;    /* by value and slot: its content */
    int64_t *now_at; /* by value: where its slots are in `now` */
    bool *has_entry; /* by node */
    content *made;
    int64_t n_made, cap_made;
    int32_t microbatch, chunk; /* of this iteration */
    int32_t n_microbatches;    /* (2) that run */
    int32_t node;              /* that runs; -1: behind the program */
} replay;

/* ------------------------------------------------------------ places */

static const char *const region_names[TN_N_REGIONS] = {"process", "plan", "step", "mail"};

static int64_t value_bytes(const replay *s, int32_t v)
{
    const tn_value *x = &s->p->local[v];
    int64_t bytes = tn_value_elements(x) * tn_dtype_bytes((tn_dtype)x->dtype);
    return x->carried && x->levels > 1 ? (x->levels - 1) * s->p->places[v].level_bytes + bytes
                                       : bytes;
}

/* (2) Where v lies in this iteration; `bytes` of it. */
static span span_of(const replay *s, int32_t v, int64_t bytes)
{
    const tn_place *at = &s->p->places[v];
    int64_t begin = s->base[at->region] + tn_program_offset(s->p, at, s->microbatch, s->chunk);
    int64_t others = s->microbatch ? s->g->n_microbatches - s->n_microbatches : 0;
    return (span){begin, begin + others * at->microbatch_stride + bytes};
}

static int32_t *now_of(const replay *s, int32_t v)
{
    const tn_place *at = &s->p->places[v];
    return &s->now[s->now_at[v] +
                   (!at->saved ? 0 : s->p->saved[at->saved - 1].slot[s->microbatch])];
}

static bool overlap(span a, span b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* ------------------------------------------------------------ the map */

static void assign(int32_t *owner, int64_t k, span node, span to, int32_t id)
{
    int64_t mid = (node.begin + node.end) / 2;
    if (to.begin <= node.begin && node.end <= to.end) {
        owner[k] = id;
        return;
    }
    if (owner[k] != MIXED) owner[2 * k] = owner[2 * k + 1] = owner[k];
    if (to.begin < mid) assign(owner, 2 * k, (span){node.begin, mid}, to, id);
    if (to.end > mid) assign(owner, 2 * k + 1, (span){mid, node.end}, to, id);
    owner[k] = owner[2 * k] == owner[2 * k + 1] ? owner[2 * k] : MIXED;
}

/* The first leaf of `in` that is not id's, and whose it is; -1: all are. */
static int64_t find_other(const int32_t *owner, int64_t k, span node, span in, int32_t id,
                          int32_t *who)
{
    int64_t mid = (node.begin + node.end) / 2, at = -1;
    if (owner[k] == id) return -1;
    if (owner[k] != MIXED) {
        *who = owner[k];
        return in.begin > node.begin ? in.begin : node.begin;
    }
    if (in.begin < mid) at = find_other(owner, 2 * k, (span){node.begin, mid}, in, id, who);
    if (at < 0 && in.end > mid)
        at = find_other(owner, 2 * k + 1, (span){mid, node.end}, in, id, who);
    return at;
}

static int64_t leaf_of(const replay *s, int64_t byte)
{
    int64_t lo = 0, hi = s->n_borders - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (s->border[mid] <= byte) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}

static span leaves_of(const replay *s, span bytes)
{
    return (span){leaf_of(s, bytes.begin), leaf_of(s, bytes.end - 1) + 1};
}

/* ------------------------------------------------------------ errors */

/* "step+4096" */
static const char *address(const replay *s, int64_t byte, char *out, size_t size)
{
    int r = TN_N_REGIONS - 1;
    while (r > 0 && byte < s->base[r]) r--;
    snprintf(out, size, "%s+%lld", region_names[r], (long long)(byte - s->base[r]));
    return out;
}

/* "WHO in node N of microbatch M, chunk C: what"; names are made only now. */
static tn_status wrong(replay *s, const char *fmt, ...) TN_PRINTF(2, 3);
static tn_status wrong(replay *s, const char *fmt, ...)
{
    char what[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (s->node < 0) TN_FAIL(TN_FAILED, "program: %s", what);
    const tn_node *n = &s->g->nodes[s->node];
    TN_FAIL(TN_FAILED, "program: %s: %s (node %d, microbatch %d, chunk %d): %s",
            n->path[0] ? n->path : "graph", tn_op_name((tn_op_id)n->op), s->node, s->microbatch,
            s->chunk, what);
}

static const char *name_of(replay *s, int32_t v)
{
    const char **names;
    if (v < 0 || tn_names_build(s->g, &s->arena, &names)) return "nothing";
    return names[v];
}

static tn_status clobbered(replay *s, int32_t v, span bytes, int64_t leaf, int32_t who)
{
    char a[48], b[48], c[48];
    const content *own = &s->made[*now_of(s, v)], *other = &s->made[who];
    int64_t first = s->border[leaf] > bytes.begin ? s->border[leaf] : bytes.begin;
    address(s, bytes.begin, a, sizeof a);
    address(s, bytes.end, b, sizeof b);
    address(s, first, c, sizeof c);
    if (who == NOBODY)
        return wrong(s,
                     "%%%s (made by node %d) is read at %s to %s, but nothing was written at %s; "
                     "its place is not its producer's",
                     name_of(s, v), s->g->values[own->value].node, a, b, c);
    return wrong(s,
                 "%%%s (made by node %d in microbatch %d, chunk %d) is read at %s to %s, but %s "
                 "holds %%%s, written by node %d in microbatch "
                 "%d, chunk %d; they may not share memory or must run in another order",
                 name_of(s, v), s->g->values[own->value].node, own->microbatch, own->chunk, a, b, c,
                 name_of(s, other->value), s->g->values[other->value].node, other->microbatch,
                 other->chunk);
}

/* ------------------------------------------------------------ the replay */

/* (1) The value that owns what v shows: itself, or what it is a view of. */
static int32_t shown(const replay *s, int32_t v)
{
    for (;;) {
        const tn_node *n = &s->g->nodes[s->g->values[v].node];
        if (!n->n_in || !tn_node_is_view(s->g, n)) return v;
        v = tn_node_in(s->g, n, 0);
    }
}

/* All of `bytes` is the content that v has now. */
static tn_status expect(replay *s, int32_t v, span bytes)
{
    int32_t who = NOBODY;
    int64_t leaf =
        find_other(s->owner, 1, (span){0, s->n_leaves}, leaves_of(s, bytes), *now_of(s, v), &who);
    return leaf < 0 ? TN_OK : clobbered(s, v, bytes, leaf, who);
}

static tn_status read_value(replay *s, int32_t v)
{
    const tn_place *at = &s->p->places[v];
    const tn_node *n = &s->g->nodes[s->node];
    int32_t source = shown(s, v);
    bool chunk = n->scope == TN_SCOPE_CHUNK, microbatch = chunk || n->scope == TN_SCOPE_MICROBATCH;
    int32_t id = *now_of(s, source);
    const tn_node *maker = &s->g->nodes[s->g->values[source].node];
    bool of_one = (maker->scope == TN_SCOPE_MICROBATCH || maker->scope == TN_SCOPE_CHUNK) &&
                  microbatch && !s->g->values[source].carried &&
                  !s->p->places[source].microbatch_stride;
    if (id == NOBODY || (of_one && s->made[id].microbatch != s->microbatch))
        return wrong(s, "%%%s is read before node %d makes it", name_of(s, v),
                     s->g->values[source].node);
    if ((at->chunk_stride && !chunk && s->g->n_chunks > 1) ||
        (at->microbatch_stride && !microbatch && s->g->n_microbatches > 1))
        return wrong(s, "%%%s is read outside of the loop over whose pieces it moves",
                     name_of(s, v));
    *now_of(s, v) = id;
    const tn_value *x = &s->p->local[v];
    int64_t bytes = tn_value_elements(x) * tn_dtype_bytes((tn_dtype)x->dtype);
    return bytes ? expect(s, v, span_of(s, v, bytes)) : TN_OK;
}

static tn_status new_content(replay *s, int32_t v)
{
    TN_TRY(tn_grow((void **)&s->made, &s->cap_made, s->n_made + 1, sizeof *s->made));
    s->made[s->n_made] = (content){v, s->microbatch, s->chunk};
    *now_of(s, v) = (int32_t)s->n_made++;
    return TN_OK;
}

static void write_span(replay *s, int32_t v, span bytes)
{
    assign(s->owner, 1, (span){0, s->n_leaves}, leaves_of(s, bytes), *now_of(s, v));
}

/* (4) */
static tn_status check_region(replay *s, const tn_node *n, int o)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    int32_t v = n->out0 + o;
    const tn_place *at = &s->p->places[v];
    int must =
        op->reuse_must && o < TN_COUNT(op->reuse) && op->reuse[o] <= n->n_in ? op->reuse[o] : 0;
    if (!must && at->region != (n->op == TN_OP_recv ? TN_REGION_MAIL : TN_REGION_STEP))
        return wrong(s, "%%%s would be written over %s memory; it belongs to states and inputs",
                     name_of(s, v), region_names[at->region]);
    if (!must) return TN_OK;
    int32_t in = tn_node_in(s->g, n, must - 1);
    const tn_place *from = &s->p->places[in];
    if (from->region == at->region && from->offset == at->offset &&
        value_bytes(s, in) == value_bytes(s, v))
        return TN_OK;
    return wrong(s, "%%%s must be written over %%%s, but lies elsewhere", name_of(s, v),
                 name_of(s, in));
}

/* (5) */
static tn_status check_overlaps(replay *s, const tn_node *n, int o)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    int32_t v = n->out0 + o;
    span out = span_of(s, v, value_bytes(s, v));
    int8_t reuse = o < TN_COUNT(op->reuse) ? op->reuse[o] : 0;
    for (int i = 0; i < n->n_in; i++) {
        int32_t in = tn_node_in(s->g, n, i);
        span from = span_of(s, in, value_bytes(s, in));
        bool same = from.begin == out.begin && from.end == out.end && (reuse == i + 1 || op->cheap);
        if (!overlap(out, from) || same) continue;
        return wrong(s, "%%%s is written over operand %d, %%%s, while that is read", name_of(s, v),
                     i, name_of(s, in));
    }
    for (int k = 0; k < o; k++)
        if (overlap(out, span_of(s, n->out0 + k, value_bytes(s, n->out0 + k))))
            return wrong(s, "outputs %%%s and %%%s share memory", name_of(s, n->out0 + k),
                         name_of(s, v));
    return TN_OK;
}

static tn_status write_value(replay *s, const tn_node *n, int o)
{
    int32_t v = n->out0 + o, before = *now_of(s, v);
    int64_t size = value_bytes(s, v);
    span bytes = span_of(s, v, size);
    if (!size) return new_content(s, v);
    TN_TRY(check_region(s, n, o));
    TN_TRY(check_overlaps(s, n, o));
    if (s->g->values[v].carried && before != NOBODY) return expect(s, v, bytes); /* (3) */
    const tn_place *at = &s->p->places[v];
    bool piece =
        before != NOBODY && (at->microbatch_stride ||
                             (at->chunk_stride && s->made[before].microbatch == s->microbatch));
    if (!piece) TN_TRY(new_content(s, v)); /* (3) */
    write_span(s, v, bytes);
    return TN_OK;
}

static tn_status run_range(void *user, int64_t begin, int64_t end, int64_t microbatch,
                           int64_t chunk)
{
    replay *s = user;
    s->microbatch = (int32_t)microbatch;
    s->chunk = (int32_t)chunk;
    for (int64_t i = begin; i < end; i++) {
        s->node = s->p->entries[i].node;
        const tn_node *n = &s->g->nodes[s->node];
        for (int k = 0; k < n->n_in; k++) TN_TRY(read_value(s, tn_node_in(s->g, n, k)));
        for (int o = 0; o < n->n_out; o++) TN_TRY(write_value(s, n, o));
    }
    return TN_OK;
}

/* (2), (9) */
static tn_status run_all(replay *s)
{
    const tn_program *p = s->p;
    int32_t most = p->pipeline ? tn_program_microbatches_walked(p) : s->n_microbatches;
    return tn_program_walk(p, most, s->g->n_chunks, run_range, s);
}

/* (7) */
static tn_status check_results(replay *s)
{
    s->node = -1;
    s->microbatch = s->chunk = 0;
    for (int32_t v = 0; v < s->g->n_values; v++) {
        const tn_node *n = &s->g->nodes[s->g->values[v].node];
        if (s->g->values[v].rank || !n->n_in || tn_op_get((tn_op_id)n->op)->reuse_must ||
            shown(s, v) != v)
            continue;
        TN_TRY(expect(s, v, span_of(s, v, value_bytes(s, v))));
    }
    return TN_OK;
}

/* ------------------------------------------------------------ before it */

/* (8) */
static tn_status check_exchange(replay *s, const tn_node *n)
{
    int32_t v = tn_node_in(s->g, n, 0);
    const tn_value *x = &s->g->values[v];
    if (!s->p->places[v].chunk_stride && !s->p->places[v].microbatch_stride) return TN_OK;
    for (int d = 0; d < x->rank; d++)
        if (s->p->local[v].dim[d].extent !=
            tn_layout_largest(&x->layout, &s->g->mesh, d, x->dim[d].extent, x->dim[d].units))
            return wrong(s,
                         "%%%s moves with its loop and its shards differ in size; other ranks "
                         "would read it at another stride",
                         name_of(s, v));
    return TN_OK;
}

static bool works(const tn_graph *g, const tn_node *n)
{
    return n->op == TN_OP_recv || (n->n_in && !tn_node_is_view(g, n));
}

/* (6) */
static tn_status check_entries(replay *s)
{
    const tn_program *p = s->p;
    bool sound = 0 <= p->microbatch && p->microbatch <= p->chunk && p->chunk <= p->chunk_end &&
                 p->chunk_end <= p->tail && p->tail <= p->n_entries;
    s->node = -1;
    if (!sound) return wrong(s, "its loops do not nest");
    for (int64_t i = 0; i < p->n_entries; i++) {
        s->node = p->entries[i].node;
        if (s->node < 0 || s->node >= s->g->n_nodes)
            TN_FAIL(TN_FAILED, "program: entry %lld has no node", (long long)i);
        const tn_node *n = &s->g->nodes[s->node];
        tn_scope scope = i < p->microbatch                   ? TN_SCOPE_HEAD
                         : i >= p->tail                      ? TN_SCOPE_TAIL
                         : i >= p->chunk && i < p->chunk_end ? TN_SCOPE_CHUNK
                                                             : TN_SCOPE_MICROBATCH;
        if (n->scope != scope)
            return wrong(s, "entry %lld runs in another loop than its scope says", (long long)i);
        if (!works(s->g, n)) return wrong(s, "it has an entry, but nothing to do");
        if (s->has_entry[s->node]) return wrong(s, "it has two entries");
        s->has_entry[s->node] = true;
        if (tn_node_is_exchange(s->g, n) && n->op != TN_OP_send && n->op != TN_OP_recv)
            TN_TRY(check_exchange(s, n));
    }
    for (int32_t i = 0; i < s->g->n_nodes; i++) {
        const tn_node *n = &s->g->nodes[i];
        s->node = i;
        if (works(s->g, n) && !s->has_entry[i])
            return wrong(s, "it has no entry; its outputs would never be made");
    }
    return TN_OK;
}

/* The place is inside its region; its borders are noted where something is written. */
static tn_status check_place(replay *s, int32_t v)
{
    const tn_place *at = &s->p->places[v];
    bool noted = shown(s, v) == v;
    s->node = s->g->values[v].node;
    if (at->region < 0 || at->region >= TN_N_REGIONS)
        return wrong(s, "%%%s lies in no region", name_of(s, v));
    int64_t n_m = at->microbatch_stride || at->saved ? s->n_microbatches : 1,
            n_c = at->chunk_stride ? s->g->n_chunks : 1;
    if (noted)
        TN_TRY(tn_grow((void **)&s->border, &s->cap_borders, s->n_borders + 2 * n_m * n_c,
                       sizeof *s->border));
    for (int64_t i = 0; i < n_m * n_c; i++) {
        s->microbatch = (int32_t)(i / n_c);
        s->chunk = (int32_t)(i % n_c);
        span x = span_of(s, v, value_bytes(s, v));
        if (x.begin < s->base[at->region] || x.end < x.begin || x.end > s->base[at->region + 1])
            return wrong(s, "%%%s lies at %lld to %lld, outside of the %lld bytes of the %s region",
                         name_of(s, v), (long long)(x.begin - s->base[at->region]),
                         (long long)(x.end - s->base[at->region]),
                         (long long)s->p->region_bytes[at->region], region_names[at->region]);
        if (!noted) continue;
        s->border[s->n_borders++] = x.begin;
        s->border[s->n_borders++] = x.end;
    }
    s->microbatch = s->chunk = 0;
    return TN_OK;
}

static int by_byte(const void *pa, const void *pb)
{
    int64_t x = *(const int64_t *)pa, y = *(const int64_t *)pb;
    return x < y ? -1 : x > y;
}

static tn_status take(replay *s, int64_t count, size_t size, void **out)
{
    return tn_arena_alloc(&s->arena, (size_t)(count > 0 ? count : 1) * size, out);
}

static tn_status make_map(replay *s)
{
    void *mem;
    int64_t n = 0;
    for (int32_t v = 0; v < s->g->n_values; v++) TN_TRY(check_place(s, v));
    TN_TRY(tn_grow((void **)&s->border, &s->cap_borders, s->n_borders + 2, sizeof *s->border));
    s->border[s->n_borders++] = 0;
    s->border[s->n_borders++] = s->base[TN_N_REGIONS];
    qsort(s->border, (size_t)s->n_borders, sizeof *s->border, by_byte);
    for (int64_t i = 0; i < s->n_borders; i++)
        if (!n || s->border[n - 1] != s->border[i]) s->border[n++] = s->border[i];
    s->n_borders = n;
    for (s->n_leaves = 1; s->n_leaves < n; s->n_leaves *= 2) {
    }
    TN_TRY(take(s, 2 * s->n_leaves, sizeof *s->owner, &mem));
    s->owner = mem;
    return TN_OK;
}

/* Inputs and states are there before the program begins. */
static tn_status make_inputs(replay *s)
{
    for (int64_t i = 0; i < s->g->n_nodes; i++) {
        const tn_node *n = &s->g->nodes[i];
        for (int32_t v = n->out0; !n->n_in && n->op != TN_OP_recv && v < n->out0 + n->n_out; v++) {
            TN_TRY(new_content(s, v));
            if (value_bytes(s, v)) write_span(s, v, span_of(s, v, value_bytes(s, v)));
        }
    }
    return TN_OK;
}

/* (2) */
static int32_t count_microbatches(const replay *s)
{
    int32_t n = (int32_t)s->g->n_microbatches;
    if (s->p->pipeline) return n;
    for (int32_t v = 0; v < s->g->n_values; v++)
        if (s->p->places[v].microbatch_stride && s->p->places[v].region != TN_REGION_PLAN) return n;
    return n < 2 ? n : 2;
}

static tn_status verify(replay *s)
{
    void *mem;
    s->n_microbatches = count_microbatches(s);
    for (int r = 0; r < TN_N_REGIONS; r++) s->base[r + 1] = s->base[r] + s->p->region_bytes[r];
    int64_t slots = 0;
    TN_TRY(take(s, s->g->n_values, sizeof *s->now_at, &mem));
    s->now_at = mem;
    for (int32_t v = 0; v < s->g->n_values; v++) {
        int32_t saved = s->p->places[v].saved;
        s->now_at[v] = slots;
        slots += saved ? s->p->saved[saved - 1].n_slots : 1;
    }
    TN_TRY(take(s, slots, sizeof *s->now, &mem));
    s->now = mem;
    TN_TRY(take(s, s->g->n_nodes, sizeof *s->has_entry, &mem));
    s->has_entry = mem;
    TN_TRY(tn_grow((void **)&s->made, &s->cap_made, 2 * s->g->n_values + 2, sizeof *s->made));
    s->n_made = 1;
    TN_TRY(check_entries(s));
    TN_TRY(make_map(s));
    TN_TRY(make_inputs(s));
    TN_TRY(run_all(s));
    return check_results(s);
}

tn_status tn_program_verify(const tn_program *p)
{
    replay s = {.p = p, .g = p->g};
    tn_status st = verify(&s);
    tn_free(s.made);
    tn_free(s.border);
    tn_arena_fini(&s.arena);
    if (!st) st = tn_events_check(p);
    return st ? st : tn_meetings_check_joined(p);
}
