/* blocks.h - a tensor in the blocks of all ranks of a mesh, and the steps of a redistribution plan
 * done on them: each rank gets what the step's kind allows it to get from the ranks of its group,
 * and nothing else.
 */
#ifndef TN_TESTS_BLOCKS_H
#define TN_TESTS_BLOCKS_H
#include "graph/reshard.h"
#include "tests/test.h"

static uint64_t random_state = 88172645463325252u;
TN_UNUSED static int draw(int n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)((random_state >> 32) % (uint64_t)n);
}

static const tn_reshard_links even_links = {
    .axis = {{6e-6, 1e-6, 1e9}, {6e-6, 1e-6, 1e9}, {6e-6, 1e-6, 1e9}, {6e-6, 1e-6, 1e9}}};

TN_UNUSED static tn_value value_of(int rank, const int64_t *extent, tn_layout l)
{
    tn_value v = {.dtype = TN_F32, .rank = (uint8_t)rank, .layout = l, .levels = 1};
    for (int d = 0; d < rank; d++) v.dim[d].extent = extent[d];
    return v;
}

TN_UNUSED static bool copies(tn_type t)
{
    return t == TN_TYPE_R || t == TN_TYPE_I;
}

enum { MAX_RANKS = 36, MAX_ELEMENTS = 1024 };

typedef struct block {
    int64_t begin[3], count[3];
    int x[MAX_ELEMENTS]; /* at its global index; only the block's own are good */
    bool has[MAX_ELEMENTS];
} block;

typedef struct world {
    const tn_mesh *mesh;
    const tn_value *v;
    int ranks;
    int64_t n;
    block now[MAX_RANKS], next[MAX_RANKS];
} world;

TN_UNUSED static bool inside(const world *w, const block *b, int64_t i)
{
    for (int d = w->v->rank - 1; d >= 0; d--) {
        int64_t e = w->v->dim[d].extent, at = i % e;
        if (at < b->begin[d] || at >= b->begin[d] + b->count[d]) return false;
        i /= e;
    }
    return true;
}

TN_UNUSED static void set_block(const world *w, const tn_layout *l, int rank, block *b)
{
    int at[TN_N_AXES];
    tn_mesh_coordinates(w->mesh, rank, at);
    for (int d = 0; d < w->v->rank; d++)
        b->count[d] = tn_layout_local(l, w->mesh, at, d, w->v->dim[d].extent, w->v->dim[d].units,
                                      &b->begin[d]);
    for (int64_t i = 0; i < w->n; i++) b->has[i] = inside(w, b, i);
}

/* Pending parts are any numbers that add up: over the ranks that differ on P axes, all but the last
 * are random. */
TN_UNUSED static void fill(world *w, const int *global)
{
    static int sum[MAX_RANKS][MAX_ELEMENTS]; /* by the rank whose P coordinates are 0 */
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < w->ranks; r++) {
        int at[TN_N_AXES], zero[TN_N_AXES], same[TN_N_AXES];
        bool last = true, pending = false;
        tn_mesh_coordinates(w->mesh, r, at);
        for (int a = 0; a < TN_N_AXES; a++) {
            bool p = w->v->layout.type[a] == TN_TYPE_P, c = copies((tn_type)w->v->layout.type[a]);
            zero[a] = p || c ? 0 : at[a];
            same[a] = c ? 0 : at[a];
            last &= !p || at[a] == w->mesh->size[a] - 1;
            pending |= p;
        }
        int z = tn_mesh_rank(w->mesh, zero), first = tn_mesh_rank(w->mesh, same);
        set_block(w, &w->v->layout, r, &w->now[r]);
        for (int64_t i = 0; i < w->n; i++) {
            if (first != r) w->now[r].x[i] = w->now[first].x[i];
            else if (!pending) w->now[r].x[i] = global[i];
            else sum[z][i] += w->now[r].x[i] = last ? global[i] - sum[z][i] : draw(1000) - 500;
        }
    }
}

/* Ranks that differ from r at most on the step's axes. */
TN_UNUSED static int members(const world *w, const tn_reshard_step *s, int r, int *out)
{
    int n = 0, at[TN_N_AXES], other[TN_N_AXES];
    tn_mesh_coordinates(w->mesh, r, at);
    for (int m = 0; m < w->ranks; m++) {
        bool member = true;
        tn_mesh_coordinates(w->mesh, m, other);
        for (int a = 0; a < TN_N_AXES; a++) {
            bool in = false;
            for (int i = 0; i < s->n_axes; i++) in |= s->axes[i] == a;
            member &= in || at[a] == other[a];
        }
        if (member) out[n++] = m;
    }
    return n;
}

/* What the step's kind allows a rank to do, and nothing else. False: it cannot give what the plan
 * promises. */
TN_UNUSED static bool do_step(world *w, const tn_reshard_step *s, int64_t *received)
{
    bool right = true;
    *received = 0;
    for (int r = 0; r < w->ranks; r++) {
        int group[MAX_RANKS], n = members(w, s, r, group), from = -1, at[TN_N_AXES];
        block *b = &w->next[r];
        int64_t got = 0;
        tn_mesh_coordinates(w->mesh, r, at);
        set_block(w, &s->after, r, b);
        bool sums = s->kind == TN_RESHARD_ALL_REDUCE || s->kind == TN_RESHARD_REDUCE_SCATTER;
        for (int64_t i = 0; i < w->n; i++) {
            int holders = 0;
            b->x[i] = 0;
            if (!b->has[i]) continue;
            if (s->kind == TN_RESHARD_PAD) {
                if (w->now[r].has[i] && (s->from >= 0 || at[s->axes[0]] == 0))
                    b->x[i] = w->now[r].x[i];
                continue;
            }
            for (int k = 0; k < n; k++) {
                int m = group[k];
                if (!w->now[m].has[i] || (s->kind == TN_RESHARD_SLICE && m != r) ||
                    (s->kind == TN_RESHARD_PERMUTE && from >= 0 && m != from))
                    continue;
                if (s->kind == TN_RESHARD_PERMUTE) from = m;
                b->x[i] = sums ? b->x[i] + w->now[m].x[i] : w->now[m].x[i];
                holders++;
                got += m != r && (sums || holders == 1) && s->kind != TN_RESHARD_ALL_REDUCE;
            }
            right &= holders == (sums ? n : holders > 1 ? holders : 1);
        }
        if (s->kind == TN_RESHARD_REDUCE_SCATTER) got = got / (n - 1) * (n - 1);
        if (got * 4 > *received) *received = got * 4;
    }
    memcpy(w->now, w->next, sizeof w->now);
    return right;
}

TN_UNUSED static bool all_as(world *w, const tn_layout *l, const int *global)
{
    for (int r = 0; r < w->ranks; r++) {
        block want;
        set_block(w, l, r, &want);
        for (int64_t i = 0; i < w->n; i++) {
            if (want.has[i] != w->now[r].has[i]) return false;
            if (!want.has[i]) continue;
            int at[TN_N_AXES], other[TN_N_AXES], sum = 0;
            tn_mesh_coordinates(w->mesh, r, at);
            for (int m = 0; m < w->ranks; m++) {
                bool adds = true;
                tn_mesh_coordinates(w->mesh, m, other);
                for (int a = 0; a < TN_N_AXES; a++)
                    adds &= l->type[a] == TN_TYPE_P || at[a] == other[a];
                if (adds) sum += w->now[m].x[i];
            }
            if (sum != global[i]) return false;
        }
    }
    return true;
}

#endif
