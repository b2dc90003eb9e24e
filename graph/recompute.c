/* recompute.c - pass 6, `full`: a block keeps only what enters it; in front of its backward its forward nodes are cloned, as
 * far as the backward needs them. Clones are the same nodes, so they give the same bits.
 *
 * A block is an element of an nn.list: the module path up to its first numeric component ("layers.3"). */
#include "graph/recompute.h"

#include "graph/op.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

#include <string.h>

size_t tn_recompute_block(const char *path)
{
    const char *p = path;
    while (*p) {
        size_t n = strcspn(p, ".");
        size_t digits = strspn(p, "0123456789");
        if (n && digits == n) return (size_t)(p - path) + n;
        p += n + (p[n] == '.');
    }
    return 0;
}

static bool same_block(const char *a, const char *b)
{
    size_t n = tn_recompute_block(a);
    return n && n == tn_recompute_block(b) && !strncmp(a, b, n);
}

typedef struct again {
    tn_rewrite r;
    int32_t *clone; /* old value -> its recomputed twin, -1 */
    bool *need;     /* by old node: the backward of its block reads it */
} again;

static bool is_forward(const tn_node *n)
{
    return n->phase == TN_PHASE_F && n->scope == TN_SCOPE_MICROBATCH;
}

static bool is_backward(const tn_node *n)
{
    return (n->phase == TN_PHASE_B || n->phase == TN_PHASE_W) && n->scope == TN_SCOPE_MICROBATCH;
}

/* Marks the forward nodes of the block of backward node `first` that any backward node reads, and what those need. */
static void mark(again *s, int64_t first, int64_t begin, int64_t end)
{
    const tn_graph *g = s->r.old;
    const char *path = g->nodes[first].path;
    for (int64_t i = first; i < g->n_nodes; i++) {
        if (!is_backward(&g->nodes[i])) continue;
        if (!same_block(path, g->nodes[i].path)) break;
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            int32_t p = g->values[tn_node_in(g, &g->nodes[i], k)].node;
            if (is_forward(&g->nodes[p]) && same_block(path, g->nodes[p].path)) s->need[p] = true;
        }
    }
    for (int64_t i = end - 1; i >= begin; i--)
        for (int k = 0; s->need[i] && k < g->nodes[i].n_in; k++) {
            int32_t p = g->values[tn_node_in(g, &g->nodes[i], k)].node;
            if (is_forward(&g->nodes[p]) && same_block(path, g->nodes[p].path)) s->need[p] = true;
        }
}

static tn_status clone_block(again *s, int64_t first)
{
    const tn_graph *g = s->r.old;
    int64_t begin = 0, end = first;
    while (begin < first && !(is_forward(&g->nodes[begin]) && same_block(g->nodes[first].path, g->nodes[begin].path))) begin++;
    mark(s, first, begin, end);
    for (int64_t i = begin; i < end; i++) {
        int32_t in[TN_MAX_OPERANDS], out;
        tn_named_attr attrs[16];
        tn_node_desc d;
        if (!s->need[i] || !same_block(g->nodes[first].path, g->nodes[i].path)) continue;
        tn_rewrite_describe(&s->r, i, in, attrs, &d);
        for (int k = 0; k < d.n_in; k++) {
            int32_t c = s->clone[tn_node_in(g, &g->nodes[i], k)];
            if (c >= 0) in[k] = c;
        }
        d.phase = TN_PHASE_B;
        TN_TRY(tn_graph_add(s->r.g, &d, &out));
        tn_node *n = &s->r.g->nodes[s->r.g->n_nodes - 1];
        n->order = g->nodes[i].order;
        n->parts = g->nodes[i].parts;
        for (int k = 0; k < g->nodes[i].n_out; k++) s->clone[g->nodes[i].out0 + k] = out + k;
    }
    return TN_OK;
}

static tn_status run(again *s)
{
    const tn_graph *g = s->r.old;
    const char *current = "";
    for (int64_t i = 0; i < g->n_nodes; i++) {
        int32_t in[TN_MAX_OPERANDS];
        tn_named_attr attrs[16];
        tn_node_desc d;
        const tn_node *n = &g->nodes[i];
        if (!is_backward(n) || !tn_recompute_block(n->path)) {
            TN_TRY(tn_rewrite_copy(&s->r, i));
            continue;
        }
        if (!same_block(n->path, current)) {
            TN_TRY(clone_block(s, i));
            current = n->path;
        }
        tn_rewrite_describe(&s->r, i, in, attrs, &d);
        for (int k = 0; k < d.n_in; k++) {
            int32_t v = tn_node_in(g, n, k), c = s->clone[v];
            if (c >= 0 && same_block(n->path, g->nodes[g->values[v].node].path)) in[k] = c;
        }
        TN_TRY(tn_rewrite_add(&s->r, i, &d));
    }
    return TN_OK;
}

tn_status tn_pass_recompute(const tn_graph *in, const tn_pass_options *o, tn_graph **out)
{
    again s = {0};
    void *mem;
    tn_arena arena = {0};
    TN_TRY(tn_rewrite_begin(in, &s.r));
    tn_status st = tn_arena_alloc(&arena, (size_t)(in->n_values + 1) * sizeof(int32_t), &mem);
    s.clone = mem;
    if (!st) st = tn_arena_alloc(&arena, (size_t)in->n_nodes + 1, &mem);
    if (!st) {
        s.need = mem;
        for (int64_t v = 0; v < in->n_values; v++) s.clone[v] = -1;
        if (o->recompute == TN_RECOMPUTE_FULL) st = run(&s);
        else
            for (int64_t i = 0; !st && i < in->n_nodes; i++) st = tn_rewrite_copy(&s.r, i);
    }
    tn_arena_fini(&arena);
    if (st) {
        tn_rewrite_drop(&s.r);
        return st;
    }
    *out = tn_rewrite_finish(&s.r);
    return TN_OK;
}
