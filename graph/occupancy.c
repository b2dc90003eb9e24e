#include "graph/occupancy.h"

#include "graph/names.h"
#include "graph/op.h"

#include <stdio.h>
#include <stdlib.h>

const char *tn_occupancy_name(tn_occupancy_kind k)
{
    static const char *const names[TN_OCCUPANCY_KINDS] = {"activations", "gradients",
                                                          "weight_gradients", "gathered", "update"};
    return names[k];
}

tn_occupancy_kind tn_occupancy_of(const tn_program *p, const tn_buffer *b)
{
    const tn_graph *g = p->g;
    const tn_value *v = &g->values[b->value];
    const tn_node *n = &g->nodes[v->node];
    if (n->op == TN_OP_unshard) return TN_OCCUPANCY_GATHERED;
    if (n->phase == TN_PHASE_OPT) return TN_OCCUPANCY_UPDATE;
    if (n->phase == TN_PHASE_W || v->carried || n->op == TN_OP_reduce)
        return TN_OCCUPANCY_WEIGHT_GRADIENTS;
    if (n->phase == TN_PHASE_B) return TN_OCCUPANCY_GRADIENTS;
    return n->scope == TN_SCOPE_TAIL ? TN_OCCUPANCY_UPDATE : TN_OCCUPANCY_ACTIVATIONS;
}

/* Differences at the ticks where a buffer begins and ends, summed up on the way. */
tn_status tn_occupancy_build(const tn_program *p, tn_arena *arena, tn_occupancy **out)
{
    void *mem;
    int64_t n = p->g->n_nodes;
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_occupancy), &mem));
    tn_occupancy *at = mem;
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *b = &p->buffers[i];
        if (b->region != TN_REGION_STEP || b->start >= b->end) continue;
        tn_occupancy_kind k = tn_occupancy_of(p, b);
        at[b->start].bytes[k] += b->bytes;
        at[b->end < n ? b->end : n].bytes[k] -= b->bytes;
    }
    for (int64_t t = 1; t <= n; t++)
        for (int k = 0; k < TN_OCCUPANCY_KINDS; k++) at[t].bytes[k] += at[t - 1].bytes[k];
    *out = at;
    return TN_OK;
}

/* ------------------------------------------------------------ by layer */

typedef struct owner {
    const char *name;
    int64_t bytes; /* of all its buffers */
    int64_t number, shown_as;
} owner;

static int by_bytes(const void *pa, const void *pb)
{
    const owner *a = *(const owner *const *)pa, *b = *(const owner *const *)pb;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static bool counts(const tn_buffer *b)
{
    return b->region == TN_REGION_STEP && b->start < b->end;
}

/* owner_of: by buffer, into owners. */
static tn_status find_owners(const tn_program *p, tn_arena *arena, tn_names *known, owner *owners,
                             int64_t *owner_of, int64_t *n_out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *b = &p->buffers[i];
        const char *path = p->g->nodes[p->g->values[b->value].node].path;
        char key[TN_MAX_PATH + 1];
        if (!counts(b)) continue;
        snprintf(key, sizeof key, "%.*s", (int)tn_names_layer(path), path);
        if (!key[0]) snprintf(key, sizeof key, "step");
        if (!tn_names_find(known, key, &owner_of[i])) {
            owner_of[i] = n;
            owners[n].number = n;
            TN_TRY(tn_arena_text(arena, key, &owners[n].name));
            TN_TRY(tn_names_put(known, owners[n].name, n));
            n++;
        }
        owners[owner_of[i]].bytes += b->bytes;
    }
    *n_out = n;
    return TN_OK;
}

static void choose_shown(owner *owners, owner **order, int64_t n, tn_occupancy_owners *out)
{
    for (int64_t i = 0; i < n; i++) order[i] = &owners[i];
    qsort(order, (size_t)n, sizeof *order, by_bytes);
    for (int64_t i = 0; i < n; i++) {
        bool rest = n > TN_OCCUPANCY_OWNERS && i >= TN_OCCUPANCY_OWNERS - 1;
        order[i]->shown_as = rest ? TN_OCCUPANCY_OWNERS - 1 : i;
        out->name[order[i]->shown_as] = rest ? "others" : order[i]->name;
    }
    out->n = (int)(n < TN_OCCUPANCY_OWNERS ? n : TN_OCCUPANCY_OWNERS);
}

static tn_status fill_owners(const tn_program *p, tn_arena *arena, tn_names *known,
                             tn_occupancy_owners *out)
{
    void *mem;
    size_t n = (size_t)p->n_buffers + 1;
    int64_t n_nodes = p->g->n_nodes, n_owners;
    TN_TRY(tn_arena_alloc(arena, n * sizeof(owner), &mem));
    owner *owners = mem;
    TN_TRY(tn_arena_alloc(arena, n * sizeof(owner *), &mem));
    owner **order = mem;
    TN_TRY(tn_arena_alloc(arena, n * sizeof(int64_t), &mem));
    int64_t *owner_of = mem;
    TN_TRY(find_owners(p, arena, known, owners, owner_of, &n_owners));
    choose_shown(owners, order, n_owners, out);
    TN_TRY(tn_arena_alloc(arena, (size_t)(n_nodes + 1) * sizeof *out->bytes, &mem));
    out->bytes = mem;
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *b = &p->buffers[i];
        if (!counts(b)) continue;
        int64_t k = owners[owner_of[i]].shown_as;
        out->bytes[b->start][k] += b->bytes;
        out->bytes[b->end < n_nodes ? b->end : n_nodes][k] -= b->bytes;
    }
    for (int64_t t = 1; t <= n_nodes; t++)
        for (int k = 0; k < out->n; k++) out->bytes[t][k] += out->bytes[t - 1][k];
    return TN_OK;
}

tn_status tn_occupancy_owners_build(const tn_program *p, tn_arena *arena, tn_occupancy_owners *out)
{
    tn_names known = {0};
    *out = (tn_occupancy_owners){0};
    tn_status st = fill_owners(p, arena, &known, out);
    tn_names_fini(&known);
    return st;
}
