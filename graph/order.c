/* order.c - writes the order of every sum as a postfix program (rules: DESIGN.md 7, contract:
 * order.h).
 *
 * Both kinds of sum are a balanced tree over power-of-two slots (parts of a parameter dim, lanes of
 * rows), written left, right, ADD; an empty slot writes nothing and its sibling passes through.
 * They differ in what a slot holds: one chain that runs through the sources, or a left fold over
 * the leaves of the lane's rows.
 */
#include "graph/order.h"

#include "engine/base/plant.h"

#include <assert.h>

enum {
    MAX_PARTS = 512
}; /* log2 + 1 levels of the tree and one for the leaf that a fold adds: within TN_ORDER_MAX_DEPTH
    */

static bool is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static tn_status check_parts(const char *where, int n)
{
    if (is_power_of_two(n) && n <= MAX_PARTS) return TN_OK;
    int legal = 1;
    while (legal * 2 <= n && legal < MAX_PARTS) legal *= 2;
    TN_FAIL(TN_BAD_INPUT, "debug.reduce_grid.%s: %d is not a power of two from 1 to %d; use %d",
            where, n, (int)MAX_PARTS, legal);
}

static tn_status new_program(tn_arena *arena, int64_t capacity, tn_order_ins **out)
{
    void *mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)capacity * sizeof **out, &mem));
    *out = mem;
    return TN_OK;
}

/* ---- sums over a parameter dim: (3), (4) ---- */

typedef struct param_writer {
    const tn_order_node *node;
    tn_order_ins *ins;
    int64_t n;
} param_writer;

static int64_t param_cut(const tn_order_node *t, int src, int64_t part)
{
    int64_t cut = tn_order_cut(t->extent[src], t->units ? t->units[src] : 0, part, t->parts);
    bool inside = t->ranks > 1 && part % (t->parts / t->ranks) && cut < t->extent[src] - 1;
    return cut + (inside && tn_plant_is(TN_PLANT_LEAF_CUT));
}

static bool write_chain(param_writer *w, int part)
{
    const tn_order_node *t = w->node;
    int first = t->rank * (t->parts / t->ranks);
    tn_order_ins *last = NULL;
    for (int s = 0; s < t->n_src; s++) {
        int64_t base = param_cut(t, s, first);
        int64_t k0 = param_cut(t, s, part) - base, k1 = param_cut(t, s, part + 1) - base;
        if (k0 == k1) continue;
        if (last) last->more = 1;
        last = &w->ins[w->n++];
        *last = (tn_order_ins){TN_ORDER_LEAF, 0, (int16_t)s, k0, k1};
    }
    return last != NULL;
}

static bool write_parts(param_writer *w, int begin, int end)
{
    if (end - begin == 1) return write_chain(w, begin);
    int middle = begin + (end - begin) / 2;
    bool left = write_parts(w, begin, middle);
    bool right = write_parts(w, middle, end);
    if (left && right) w->ins[w->n++] = (tn_order_ins){.op = TN_ORDER_ADD};
    return left || right;
}

tn_status tn_order_param_node(tn_arena *arena, const tn_order_node *node, tn_order_run *out)
{
    param_writer w = {.node = node};
    assert(node->n_src >= 1 && node->n_src <= INT16_MAX);
    TN_TRY(check_parts("tp", node->parts));
    if (!is_power_of_two(node->ranks) || node->ranks > node->parts)
        TN_FAIL(TN_BAD_INPUT,
                "parallelism.tp: degree %d keeps no bits under debug.reduce_grid.tp = %d; use a "
                "power of two up to %d",
                node->ranks, node->parts, node->parts);
    assert(node->rank >= 0 && node->rank < node->ranks);
    int own = node->parts / node->ranks;
    TN_TRY(new_program(arena, (int64_t)own * (node->n_src + 1), &w.ins));
    if (!write_parts(&w, node->rank * own, (node->rank + 1) * own))
        w.ins[w.n++] = (tn_order_ins){.op = TN_ORDER_LEAF};
    *out = (tn_order_run){w.ins, w.n, 0, 1};
    return TN_OK;
}

tn_status tn_order_param(tn_arena *arena, int parts, int n_src, const int64_t *extent,
                         const int64_t *units, tn_order_run *out)
{
    tn_order_node whole = {
        .parts = parts, .n_src = n_src, .extent = extent, .units = units, .ranks = 1, .rank = 0};
    return tn_order_param_node(arena, &whole, out);
}

/* ---- sums over tokens: (5) ---- */

/* The program of the step, with k as token index of the step. ADDs follow the leaf that completes
 * their right side, so what leaf i brings is ins[begin[i]] .. ins[begin[i + 1]], and depth[i]
 * levels lie on the stack before it. */
struct tn_order_tokens {
    tn_order_grid grid;
    int64_t n_rows, seq, n_leaves, n_ins;
    tn_order_ins *ins;
    int64_t *begin;
    int *depth;
};

typedef struct token_writer {
    tn_order_tokens *t;
    int64_t n;
    int depth;
} token_writer;

static void write_add(token_writer *w)
{
    w->t->ins[w->n++] = (tn_order_ins){.op = TN_ORDER_ADD};
    w->depth--;
}

static int64_t leaf_token(const tn_order_tokens *t, int64_t leaf)
{
    int64_t row = leaf / t->grid.seq, part = leaf % t->grid.seq;
    return row * t->seq + tn_order_cut(t->seq, 0, part, t->grid.seq);
}

static bool write_lane(token_writer *w, int lane)
{
    tn_order_tokens *t = w->t;
    int64_t row0 = tn_order_cut(t->n_rows, 0, lane, t->grid.rows),
            row1 = tn_order_cut(t->n_rows, 0, lane + 1, t->grid.rows);
    bool any = false;
    for (int64_t leaf = row0 * t->grid.seq; leaf < row1 * t->grid.seq; leaf++) {
        int64_t k0 = leaf_token(t, leaf), k1 = leaf_token(t, leaf + 1);
        t->begin[leaf] = w->n;
        t->depth[leaf] = w->depth;
        if (k0 == k1) continue;
        t->ins[w->n++] = (tn_order_ins){TN_ORDER_LEAF, 0, 0, k0, k1};
        w->depth++;
        if (any) write_add(w);
        any = true;
    }
    return any;
}

static bool write_lanes(token_writer *w, int begin, int end)
{
    if (end - begin == 1) return write_lane(w, begin);
    int middle = begin + (end - begin) / 2;
    bool left = write_lanes(w, begin, middle);
    bool right = write_lanes(w, middle, end);
    if (left && right) write_add(w);
    return left || right;
}

tn_status tn_order_tokens_build(tn_arena *arena, tn_order_grid grid, int64_t n_rows, int64_t seq,
                                const tn_order_tokens **out)
{
    void *mem;
    assert(n_rows >= 0 && seq >= 0);
    TN_TRY(check_parts("seq", grid.seq));
    TN_TRY(check_parts("rows", grid.rows));
    int64_t n_leaves = n_rows * grid.seq;
    TN_TRY(tn_arena_alloc(arena, sizeof(tn_order_tokens), &mem));
    tn_order_tokens *t = mem;
    *t = (tn_order_tokens){.grid = grid, .n_rows = n_rows, .seq = seq, .n_leaves = n_leaves};
    TN_TRY(new_program(arena, 2 * n_leaves + 1, &t->ins));
    TN_TRY(tn_arena_alloc(arena, (size_t)(n_leaves + 1) * sizeof *t->begin, &mem));
    t->begin = mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)(n_leaves + 1) * sizeof *t->depth, &mem));
    t->depth = mem;

    token_writer w = {.t = t};
    if (!write_lanes(&w, 0, grid.rows)) {
        /* nothing to sum: the empty leaf belongs to the last leaf, if there is one */
        t->ins[w.n++] = (tn_order_ins){.op = TN_ORDER_LEAF, .k0 = n_rows * seq, .k1 = n_rows * seq};
        w.depth = 1;
    }
    t->n_ins = t->begin[n_leaves] = w.n;
    t->depth[n_leaves] = w.depth;
    assert(w.depth == 1);
    *out = t;
    return TN_OK;
}

int64_t tn_order_tokens_leaves(const tn_order_tokens *t)
{
    return t->n_leaves;
}

tn_status tn_order_tokens_run(const tn_order_tokens *t, tn_arena *arena, int64_t first,
                              int64_t last, tn_order_run *out)
{
    assert(first >= 0 && first <= last && last <= t->n_leaves);
    int64_t begin = first == 0 ? 0 : t->begin[first],
            end = last == t->n_leaves ? t->n_ins : t->begin[last];
    int64_t base = leaf_token(t, first);
    tn_order_ins *ins;
    TN_TRY(new_program(arena, end - begin, &ins));
    for (int64_t i = begin; i < end; i++) {
        tn_order_ins *to = &ins[i - begin];
        *to = t->ins[i];
        if (to->op != TN_ORDER_LEAF) continue;
        to->k0 -= base;
        to->k1 -= base;
    }
    *out = (tn_order_run){ins, end - begin, first == 0 ? 0 : t->depth[first], t->depth[last]};
    return TN_OK;
}

int tn_order_tokens_depth(const tn_order_tokens *t, int64_t step)
{
    int depth = 1;
    assert(step >= 1);
    for (int64_t leaf = step; leaf < t->n_leaves; leaf += step)
        if (t->depth[leaf] > depth) depth = t->depth[leaf];
    return depth;
}
