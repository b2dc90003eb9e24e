/* recompute.c - pass 6: a block keeps what enters it, and under `op` what its products, its
 * attention and its reductions made; in front of its backward its other forward nodes are cloned,
 * as far as the backward needs them. Clones are the same nodes, so they give the same bits.
 * Parameters that the clones read are unsharded again in front of them, once for them and for the
 * backward: no compute copy lives from forward to backward.
 *
 * A block is an element of an nn.list: the module path up to its first numeric component
 * ("layers.3"). */
#include "graph/recompute.h"

#include "graph/names.h"
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

#include <stdio.h>
#include <stdlib.h>
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

tn_text_short tn_recompute_text(tn_recompute mode, int64_t every)
{
    static const char *const names[] = {"none", "full", "selective (op)"};
    static const char *const ends[] = {"th", "st", "nd", "rd"};
    tn_text_short t;
    int64_t last = every % 100 / 10 == 1 || every % 10 > 3 ? 0 : every % 10;
    if (mode != TN_RECOMPUTE_LAYERS) snprintf(t.s, sizeof t.s, "%s", names[mode]);
    else if (every == 1) snprintf(t.s, sizeof t.s, "selective (every layer)");
    else snprintf(t.s, sizeof t.s, "selective (every %lld%s layer)", (long long)every, ends[last]);
    return t;
}

typedef struct again {
    tn_rewrite r;
    const tn_pass_options *o;
    int32_t *clone; /* old value -> its recomputed twin, -1 */
    int32_t *fresh; /* old value of a parameter -> its compute view that was made for clones, -1 */
    int32_t *piece; /* old value of a parameter -> what is kept of it for backward, -1 */
    bool *need;     /* by old node: the backward of its block reads it */
    int32_t *block; /* by old node: number of its block, -1 */
    int64_t *begin, *end; /* by block: its forward nodes lie in old nodes [begin, end) */
} again;

static bool is_forward(const tn_node *n)
{
    return n->phase == TN_PHASE_F && n->scope == TN_SCOPE_MICROBATCH;
}

/* Made by the storage pass behind an UNSHARD: what is left of it for backward. */
static bool keeps_piece(const tn_node *n)
{
    return n->op == TN_OP_redistribute && n->phase == TN_PHASE_COMM;
}

/* The state that an UNSHARD shows, if it was gathered from a piece, too. */
static int32_t param_of(const tn_graph *g, int32_t v)
{
    for (;;) {
        const tn_node *n = &g->nodes[g->values[v].node];
        if (n->op != TN_OP_unshard && !keeps_piece(n)) return v;
        v = tn_node_in(g, n, 0);
    }
}

/* What a run of a microbatch's UNSHARD nodes at i is for: the node behind it. */
static int64_t behind_unshards(const tn_graph *g, int64_t i)
{
    while (i + 1 < g->n_nodes && g->nodes[i].scope == TN_SCOPE_MICROBATCH &&
           (g->nodes[i].op == TN_OP_unshard || keeps_piece(&g->nodes[i])))
        i++;
    return i;
}

static bool is_backward(const tn_node *n)
{
    return (n->phase == TN_PHASE_B || n->phase == TN_PHASE_W) && n->scope == TN_SCOPE_MICROBATCH;
}

/* TorchTitan's count: with k = 2 layers 1, 3, ... */
static bool recomputes(const tn_pass_options *o, const char *path, size_t block)
{
    if (o->recompute != TN_RECOMPUTE_LAYERS) return true;
    size_t number = block;
    while (number && path[number - 1] != '.') number--;
    return (strtoll(path + number, NULL, 10) + 1) % o->recompute_every == 0;
}

/* What `op` saves: results that are dear to compute, and what came from other ranks as a sum. */
static bool keeps(const again *s, const tn_node *n)
{
    const tn_graph *g = s->r.old;
    if (n->op == TN_OP_unshard && (s->o->unshard == TN_UNSHARD_ONCE || s->o->unshard_ranks == 1))
        return true;
    if (s->o->recompute != TN_RECOMPUTE_OP) return false;
    if (n->op == TN_OP_linear || n->op == TN_OP_linear_add || n->op == TN_OP_attention) return true;
    if (n->op != TN_OP_redistribute) return false;
    const tn_layout *from = &g->values[tn_node_in(g, n, 0)].layout;
    for (int a = 0; a < TN_N_AXES; a++)
        if (from->type[a] == TN_TYPE_P) return true;
    return false;
}

/* Numbers the blocks and finds where their forward lies. */
static tn_status find_blocks(again *s, tn_arena *arena)
{
    const tn_graph *g = s->r.old;
    tn_names numbers = {0};
    tn_status st = TN_OK;
    for (int64_t i = 0; i < g->n_nodes && !st; i++) {
        const tn_node *n = &g->nodes[i];
        size_t length = tn_recompute_block(n->path);
        int64_t number = numbers.n;
        const char *name;
        void *mem;
        s->block[i] = -1;
        if (!length || !recomputes(s->o, n->path, length)) continue;
        if (i && g->nodes[i - 1].path == n->path) {
            number = s->block[i - 1];
        } else {
            if ((st = tn_arena_alloc(arena, length + 1, &mem))) break;
            name = memcpy(mem, n->path, length);
            if (!tn_names_find(&numbers, name, &number)) st = tn_names_put(&numbers, name, number);
        }
        s->block[i] = (int32_t)number;
        if (!is_forward(&g->nodes[behind_unshards(g, i)])) continue;
        if (!s->end[number]) s->begin[number] = i;
        s->end[number] = i + 1;
    }
    tn_names_fini(&numbers);
    return st;
}

static void need_operands(again *s, int64_t node, int32_t block)
{
    const tn_graph *g = s->r.old;
    for (int k = 0; k < g->nodes[node].n_in; k++) {
        int32_t p = g->values[tn_node_in(g, &g->nodes[node], k)].node;
        bool own = s->block[p] == block && p >= s->begin[block] && p < s->end[block];
        if (own && !keeps(s, &g->nodes[p])) s->need[p] = true;
    }
}

/* Marks the forward nodes of the block of backward node `first` that any backward node reads, and
 * what those need. */
static void mark(again *s, int64_t first)
{
    const tn_graph *g = s->r.old;
    int32_t block = s->block[first];
    for (int64_t i = first; i < g->n_nodes; i++) {
        if (!is_backward(&g->nodes[i])) continue;
        if (s->block[i] != block) break;
        need_operands(s, i, block);
    }
    for (int64_t i = s->end[block] - 1; i >= s->begin[block]; i--)
        if (s->need[i] && s->block[i] == block) need_operands(s, i, block);
}

static tn_status clone_block(again *s, int64_t first)
{
    const tn_graph *g = s->r.old;
    int32_t block = s->block[first];
    mark(s, first);
    for (int64_t i = s->begin[block]; i < s->end[block]; i++) {
        int32_t in[TN_MAX_OPERANDS], out;
        tn_named_attr attrs[16];
        tn_node_desc d;
        if (!s->need[i] || s->block[i] != block) continue;
        tn_rewrite_describe(&s->r, i, in, attrs, &d);
        for (int k = 0; k < d.n_in; k++) {
            int32_t c = s->clone[tn_node_in(g, &g->nodes[i], k)];
            if (c >= 0) in[k] = c;
        }
        int32_t param = d.op == TN_OP_unshard ? param_of(g, tn_node_in(g, &g->nodes[i], 0)) : -1;
        if (param < 0) d.phase = TN_PHASE_B;
        else if (s->piece[param] >= 0) in[0] = s->r.map[s->piece[param]];
        TN_TRY(tn_graph_add(s->r.g, &d, &out));
        if (param >= 0) s->fresh[param] = out;
        tn_node *n = &s->r.g->nodes[s->r.g->n_nodes - 1];
        n->order = g->nodes[i].order;
        n->parts = g->nodes[i].parts;
        for (int k = 0; k < g->nodes[i].n_out; k++) s->clone[g->nodes[i].out0 + k] = out + k;
    }
    return TN_OK;
}

/* A node of a block's backward, reading clones where there are some. */
static tn_status emit_backward(again *s, int64_t i)
{
    const tn_graph *g = s->r.old;
    const tn_node *n = &g->nodes[i];
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    tn_node_desc d;
    tn_rewrite_describe(&s->r, i, in, attrs, &d);
    for (int k = 0; k < d.n_in; k++) {
        int32_t v = tn_node_in(g, n, k), c = s->clone[v];
        if (c >= 0 && s->block[i] == s->block[g->values[v].node]) in[k] = c;
    }
    return tn_rewrite_add(&s->r, i, &d);
}

static tn_status run(again *s)
{
    const tn_graph *g = s->r.old;
    int32_t current = -1;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        int64_t user = behind_unshards(g, i);
        if (!is_backward(&g->nodes[user]) || s->block[user] < 0) {
            TN_TRY(tn_rewrite_copy(&s->r, i));
            continue;
        }
        if (s->block[user] != current) {
            TN_TRY(clone_block(s, user));
            current = s->block[user];
        }
        int32_t fresh = user > i ? s->fresh[param_of(g, tn_node_in(g, n, 0))] : -1;
        if (fresh >= 0 && s->block[i] == current) s->r.map[n->out0] = fresh;
        else TN_TRY(user > i ? tn_rewrite_copy(&s->r, i) : emit_backward(s, i));
    }
    return TN_OK;
}

static tn_status reserve(again *s, tn_arena *arena)
{
    const tn_graph *g = s->r.old;
    size_t n_nodes = (size_t)g->n_nodes + 1;
    void *mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)(3 * g->n_values + 1) * sizeof(int32_t), &mem));
    s->clone = mem;
    s->fresh = s->clone + g->n_values;
    s->piece = s->fresh + g->n_values;
    for (int64_t v = 0; v < 3 * g->n_values; v++) s->clone[v] = -1;
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (keeps_piece(&g->nodes[i]) && g->nodes[i].scope == TN_SCOPE_MICROBATCH)
            s->piece[param_of(g, g->nodes[i].out0)] = g->nodes[i].out0;
    TN_TRY(tn_arena_alloc(arena, n_nodes, &mem));
    s->need = mem;
    TN_TRY(tn_arena_alloc(arena, n_nodes * sizeof(int32_t), &mem));
    s->block = mem;
    TN_TRY(tn_arena_alloc(arena, 2 * n_nodes * sizeof(int64_t), &mem));
    s->begin = mem;
    s->end = s->begin + n_nodes;
    return find_blocks(s, arena);
}

tn_status tn_pass_recompute(const tn_graph *in, const tn_pass_options *o, tn_graph **out)
{
    again s = {.o = o};
    tn_arena arena = {0};
    tn_status st;
    TN_TRY(tn_rewrite_begin(in, &s.r));
    if (o->recompute != TN_RECOMPUTE_NONE) {
        st = reserve(&s, &arena);
        if (!st) st = run(&s);
    } else {
        st = TN_OK;
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
