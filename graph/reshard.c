/* reshard.c - Dijkstra over placements packed into 64 bits: per moving axis 3 bits of what it is, 3
 * bits of its place in its dim. */
#include "graph/reshard.h"

#include <string.h>

enum {
    COPIES = 0,
    PENDING = 1,
    SHARD = 2,
    LISTS = 625 /* ordered lists of up to 4 axes, a digit to base 5 each */
};
_Static_assert(TN_N_AXES == 4, "LISTS holds every ordered list of 4 axes");

typedef struct view { /* a packed placement, opened */
    int what[TN_N_AXES];
    int n[TN_MAX_RANK];
    int8_t list[TN_MAX_RANK][TN_N_AXES];
} view;

typedef struct move {
    uint8_t kind, n;
    uint8_t axes[TN_N_AXES]; /* moving axes */
    int8_t from, to;
} move;

typedef struct node {
    uint64_t state;
    double seconds;
    int64_t bytes, local; /* received so far; the block here */
    int32_t parent;
    int32_t heap; /* place in the queue; -1: done */
    move by;
} node;

typedef struct link { /* of a set of axes */
    int64_t ranks;
    double start_s, hop_s, s_per_byte;
} link;

typedef struct search {
    const tn_mesh *mesh;
    link link[1 << TN_N_AXES];
    const tn_value *v;
    int n; /* moving axes */
    tn_axis axis[TN_N_AXES];
    int64_t size[TN_N_AXES];
    bool pads[TN_N_AXES]; /* becomes P, was not */
    int64_t largest[TN_MAX_RANK][LISTS];
    uint64_t start, goal;
    bool by_bytes, inner_first;
    double limit_s; /* of by_axis, then of the best way yet: nothing above it is worth a look */
    node *nodes;
    int32_t n_nodes, cap_nodes, n_heap, table_mask;
    int32_t *heap, *table;
} search;

/* ------------------------------------------------------------ placements */

static uint64_t place(uint64_t s, int a, int what, int order)
{
    return (s & ~((uint64_t)63 << (6 * a))) | (uint64_t)(what | order << 3) << (6 * a);
}

static int what_of(uint64_t s, int a)
{
    return (int)(s >> (6 * a) & 7);
}

static void open_state(const search *q, uint64_t s, view *w)
{
    memset(w->n, 0, sizeof w->n);
    for (int a = 0; a < q->n; a++) {
        int d = (w->what[a] = what_of(s, a)) - SHARD;
        if (d < 0) continue;
        w->list[d][s >> (6 * a + 3) & 7] = (int8_t)a;
        w->n[d]++;
    }
}

/* The extents that matter: the largest block of any rank. */
static int64_t local_bytes(search *q, const view *w)
{
    int64_t bytes = tn_dtype_bytes((tn_dtype)q->v->dtype);
    for (int d = 0; d < q->v->rank; d++) {
        int key = 0;
        for (int i = 0; i < w->n[d]; i++) key = key * 5 + w->list[d][i] + 1;
        if (!q->largest[d][key]) {
            tn_layout l = {0};
            for (int i = 0; i < w->n[d]; i++) tn_layout_shard(&l, q->axis[w->list[d][i]], d);
            q->largest[d][key] =
                tn_layout_largest(&l, q->mesh, d, q->v->dim[d].extent, q->v->dim[d].units);
        }
        bytes *= q->largest[d][key];
    }
    return bytes;
}

static uint64_t append(const view *w, uint64_t s, const move *m)
{
    for (int i = 0; i < m->n; i++)
        s = m->to < 0 ? place(s, m->axes[i], m->kind == TN_RESHARD_PAD ? PENDING : COPIES, 0)
                      : place(s, m->axes[i], SHARD + m->to, w->n[m->to] + i);
    return s;
}

static uint64_t apply(const view *w, uint64_t s, const move *m)
{
    if (m->kind != TN_RESHARD_PERMUTE) return append(w, s, m);
    int a = m->axes[0], b = m->axes[1];
    uint64_t x = s >> (6 * a) & 63, y = s >> (6 * b) & 63;
    return place(place(s, a, (int)(y & 7), (int)(y >> 3)), b, (int)(x & 7), (int)(x >> 3));
}

/* ------------------------------------------------------------ cost */

static void cost(const search *q, const move *m, int64_t before, int64_t after, int64_t *bytes,
                 double *seconds)
{
    static const int twice[TN_RESHARD_KINDS] = {[TN_RESHARD_ALL_GATHER] = 1,
                                                [TN_RESHARD_ALL_TO_ALL] = 1,
                                                [TN_RESHARD_REDUCE_SCATTER] = 1,
                                                [TN_RESHARD_ALL_REDUCE] = 2};
    *bytes = 0;
    *seconds = 1e-8; /* fewer steps are better */
    if (m->kind == TN_RESHARD_SLICE || m->kind == TN_RESHARD_PAD) return;
    unsigned set = 0;
    for (int i = 0; i < m->n; i++) set |= 1u << m->axes[i];
    const link *l = &q->link[set];
    int64_t most = before > after ? before : after;
    int times = twice[m->kind];
    *bytes = times ? times * (most - most / l->ranks) : most;
    *seconds += l->start_s + l->hop_s * (double)(times ? times * (l->ranks - 1) : 1) +
                (double)*bytes * l->s_per_byte;
}

/* The slowest of a set's axes in each respect. */
static void set_links(search *q, const tn_reshard_links *links)
{
    q->link[0] = (link){.ranks = 1};
    for (unsigned set = 1; set < 1u << q->n; set++) {
        int a = 31 - __builtin_clz(set);
        const tn_reshard_link *x = &links->axis[q->axis[a]];
        link *l = &q->link[set];
        *l = q->link[set ^ 1u << a];
        l->ranks *= q->size[a];
        if (x->start_s > l->start_s) l->start_s = x->start_s;
        if (x->hop_s > l->hop_s) l->hop_s = x->hop_s;
        if (1 / x->bytes_per_s > l->s_per_byte) l->s_per_byte = 1 / x->bytes_per_s;
    }
}

/* ------------------------------------------------------------ queue */

static bool before(const search *q, const node *a, const node *b)
{
    if (q->by_bytes && a->bytes != b->bytes) return a->bytes < b->bytes;
    return a->seconds < b->seconds;
}

static void up(search *q, int32_t i)
{
    int32_t x = q->heap[i];
    for (; i && before(q, &q->nodes[x], &q->nodes[q->heap[(i - 1) / 2]]); i = (i - 1) / 2) {
        q->heap[i] = q->heap[(i - 1) / 2];
        q->nodes[q->heap[i]].heap = i;
    }
    q->heap[i] = x;
    q->nodes[x].heap = i;
}

static int32_t pop(search *q)
{
    int32_t top = q->heap[0], x = q->heap[--q->n_heap], i = 0;
    for (;;) {
        int32_t c = 2 * i + 1;
        if (c >= q->n_heap) break;
        if (c + 1 < q->n_heap && before(q, &q->nodes[q->heap[c + 1]], &q->nodes[q->heap[c]])) c++;
        if (!before(q, &q->nodes[q->heap[c]], &q->nodes[x])) break;
        q->heap[i] = q->heap[c];
        q->nodes[q->heap[i]].heap = i;
        i = c;
    }
    q->heap[i] = x;
    q->nodes[x].heap = i;
    q->nodes[top].heap = -1;
    return top;
}

static int32_t *slot(search *q, uint64_t state)
{
    uint64_t h = state * 0x9E3779B97F4A7C15u;
    for (int32_t i = (int32_t)(h >> 40) & q->table_mask;; i = (i + 1) & q->table_mask)
        if (!q->table[i] || q->nodes[q->table[i] - 1].state == state) return &q->table[i];
}

static void offer(search *q, int32_t from, const view *w, const move *m)
{
    const node *f = &q->nodes[from];
    uint64_t state = apply(w, f->state, m);
    int32_t *at = slot(q, state);
    if (*at && q->nodes[*at - 1].heap < 0) return;
    int64_t bytes, local;
    double seconds;
    if (*at) local = q->nodes[*at - 1].local;
    else {
        view there;
        open_state(q, state, &there);
        local = local_bytes(q, &there);
    }
    cost(q, m, f->local, local, &bytes, &seconds);
    bytes += f->bytes;
    seconds += f->seconds;
    if (!q->by_bytes && seconds > q->limit_s) return;
    if (!q->by_bytes && state == q->goal) q->limit_s = seconds;
    node *to;
    if (*at) {
        to = &q->nodes[*at - 1];
        if (q->by_bytes && bytes != to->bytes ? bytes > to->bytes : seconds >= to->seconds) return;
    } else {
        to = &q->nodes[q->n_nodes];
        to->state = state;
        to->local = local;
        to->heap = q->n_heap;
        q->heap[q->n_heap++] = q->n_nodes++;
        *at = q->n_nodes;
    }
    to->bytes = bytes;
    to->seconds = seconds;
    to->parent = from;
    to->by = *m;
    up(q, to->heap);
}

/* ------------------------------------------------------------ moves */

static void offer_shards(search *q, int32_t at, const view *w)
{
    for (int d = 0; d < q->v->rank; d++)
        for (int k = 1; k <= w->n[d]; k++) {
            move m = {.kind = TN_RESHARD_ALL_GATHER, .n = (uint8_t)k, .from = (int8_t)d, .to = -1};
            for (int i = 0; i < k; i++) m.axes[i] = (uint8_t)w->list[d][w->n[d] - k + i];
            offer(q, at, w, &m);
            m.kind = TN_RESHARD_ALL_TO_ALL;
            for (int to = 0; to < q->v->rank; to++) {
                m.to = (int8_t)to;
                if (to != d) offer(q, at, w, &m);
            }
            if (k > 1 || !q->pads[m.axes[0]]) continue;
            m = (move){
                .kind = TN_RESHARD_PAD, .n = 1, .axes = {m.axes[0]}, .from = (int8_t)d, .to = -1};
            offer(q, at, w, &m);
        }
}

/* No axis that stays pending lies inside of one that is reduced now. */
static bool from_inside(const search *q, const view *w, unsigned reduced)
{
    for (int a = q->n - 1; q->inner_first && a >= 0; a--)
        if (w->what[a] == PENDING && !q->pads[a] && !(reduced >> a & 1))
            return !(reduced & ((1u << a) - 1));
    return true;
}

/* Reductions over every ordered choice of pending axes that begins with those of m. */
static void offer_sums(search *q, int32_t at, const view *w, const move *m, unsigned used)
{
    for (int a = 0; a < q->n; a++) {
        if (w->what[a] != PENDING || q->pads[a] || used >> a & 1) continue;
        move more = *m;
        more.axes[more.n++] = (uint8_t)a;
        more.kind = TN_RESHARD_ALL_REDUCE;
        more.to = -1;
        bool right = from_inside(q, w, used | 1u << a);
        if (right && used < 1u << a) offer(q, at, w, &more); /* each set once */
        more.kind = TN_RESHARD_REDUCE_SCATTER;
        for (int d = 0; right && d < q->v->rank; d++) {
            more.to = (int8_t)d;
            offer(q, at, w, &more);
        }
        offer_sums(q, at, w, &more, used | 1u << a);
    }
}

static void offer_copies(search *q, int32_t at, const view *w)
{
    for (int a = 0; a < q->n; a++) {
        if (w->what[a] != COPIES) continue;
        move m = {.kind = TN_RESHARD_SLICE, .n = 1, .axes = {(uint8_t)a}, .from = -1};
        for (int d = 0; d < q->v->rank; d++) {
            m.to = (int8_t)d;
            offer(q, at, w, &m);
        }
        m.kind = TN_RESHARD_PAD;
        m.to = -1;
        if (q->pads[a]) offer(q, at, w, &m);
    }
}

/* Every rank has the same share of dim d, in units too: the order of its axes only says who has
 * which. */
static bool even(const search *q, const view *w, int d)
{
    int64_t n = 1, units = q->v->dim[d].units;
    for (int i = 0; i < w->n[d]; i++) n *= q->size[w->list[d][i]];
    return q->v->dim[d].extent % n == 0 && units % n == 0 && units <= q->v->dim[d].extent;
}

/* Heads are cut by tp only: another axis in its place would cut elsewhere. */
static bool trades(const search *q, const view *w, int a, int b)
{
    int x = w->what[a], y = w->what[b];
    if (q->size[a] != q->size[b] || x == PENDING || y == PENDING || (x == COPIES && y == COPIES))
        return false;
    if (q->axis[a] != TN_AXIS_TP && q->axis[b] != TN_AXIS_TP) return true;
    return (x == COPIES || !q->v->dim[x - SHARD].units || even(q, w, x - SHARD)) &&
           (y == COPIES || !q->v->dim[y - SHARD].units || even(q, w, y - SHARD));
}

static void offer_permutes(search *q, int32_t at, const view *w)
{
    for (int a = 0; a < q->n; a++)
        for (int b = a + 1; b < q->n; b++) {
            move m = {.kind = TN_RESHARD_PERMUTE,
                      .n = 2,
                      .axes = {(uint8_t)a, (uint8_t)b},
                      .from = -1,
                      .to = -1};
            if (trades(q, w, a, b)) offer(q, at, w, &m);
        }
    for (int d = 0; d < q->v->rank; d++)
        for (int i = 0; i + 1 < w->n[d]; i++) {
            uint8_t a = (uint8_t)w->list[d][i], b = (uint8_t)w->list[d][i + 1];
            move m = {.kind = TN_RESHARD_PERMUTE,
                      .n = 2,
                      .axes = {a, b},
                      .from = (int8_t)d,
                      .to = (int8_t)d};
            if (q->size[a] != q->size[b] && even(q, w, d)) offer(q, at, w, &m);
        }
}

/* Index of the goal's node, or -1. */
static int32_t shortest(search *q, bool by_bytes)
{
    q->by_bytes = by_bytes;
    memset(q->table, 0, ((size_t)q->table_mask + 1) * sizeof *q->table);
    view w;
    open_state(q, q->start, &w);
    q->nodes[0] = (node){.state = q->start, .parent = -1, .local = local_bytes(q, &w)};
    q->heap[0] = 0;
    q->n_nodes = q->n_heap = 1;
    *slot(q, q->start) = 1;
    while (q->n_heap) {
        int32_t at = pop(q);
        if (q->nodes[at].state == q->goal) return at;
        open_state(q, q->nodes[at].state, &w);
        offer_shards(q, at, &w);
        offer_copies(q, at, &w);
        offer_sums(q, at, &w, &(move){.from = -1}, 0);
        offer_permutes(q, at, &w);
    }
    return -1;
}

/* ------------------------------------------------------------ one axis after the other */

/* The move of axis a straight to its place, if it can go there now. */
static bool direct(const search *q, uint64_t s, const view *w, int a, move *m)
{
    int from = w->what[a] - SHARD, to = what_of(q->goal, a) - SHARD,
        want = (int)(q->goal >> (6 * a + 3) & 7);
    *m = (move){.n = 1,
                .axes = {(uint8_t)a},
                .from = (int8_t)(from < 0 ? -1 : from),
                .to = (int8_t)(to < 0 ? -1 : to)};
    if ((s >> (6 * a) & 63) == (q->goal >> (6 * a) & 63)) return false;
    if (from >= 0 && w->list[from][w->n[from] - 1] != a) return false;
    if (to >= 0) {
        if (to == from || w->n[to] != want) return false;
        for (int i = 0; i < want; i++) {
            int b = w->list[to][i];
            if ((s >> (6 * b) & 63) != (q->goal >> (6 * b) & 63)) return false;
        }
    }
    if (what_of(q->goal, a) == PENDING) m->kind = TN_RESHARD_PAD;
    else if (w->what[a] == PENDING)
        m->kind = to < 0 ? TN_RESHARD_ALL_REDUCE : TN_RESHARD_REDUCE_SCATTER;
    else if (w->what[a] == COPIES) m->kind = TN_RESHARD_SLICE;
    else m->kind = to < 0 ? TN_RESHARD_ALL_GATHER : TN_RESHARD_ALL_TO_ALL;
    return true;
}

/* When no axis can go straight: the innermost one of a dim that is out of place becomes copies. */
static bool aside(const search *q, uint64_t s, const view *w, move *m)
{
    for (int a = q->n - 1; a >= 0; a--) {
        int from = w->what[a] - SHARD;
        *m = (move){.n = 1, .axes = {(uint8_t)a}, .from = (int8_t)(from < 0 ? -1 : from), .to = -1};
        m->kind = from < 0 ? TN_RESHARD_ALL_REDUCE : TN_RESHARD_ALL_GATHER;
        if (w->what[a] == PENDING && !q->pads[a]) return true;
        if (from < 0 || w->list[from][w->n[from] - 1] != a) continue;
        for (int i = 0; i < w->n[from]; i++) {
            int b = w->list[from][i];
            if ((s >> (6 * b) & 63) != (q->goal >> (6 * b) & 63)) return true;
        }
    }
    return false;
}

static tn_status by_axis(search *q, tn_reshard *out)
{
    uint64_t s = q->start;
    q->limit_s = 0;
    while (s != q->goal) {
        view w, v;
        move m;
        int a = q->n - 1;
        open_state(q, s, &w);
        while (a >= 0 && !direct(q, s, &w, a, &m)) a--;
        if (a < 0 && !aside(q, s, &w, &m))
            TN_FAIL(TN_FAILED, "reshard: stuck after %d steps", out->by_axis_steps);
        if (++out->by_axis_steps > 8 * TN_N_AXES)
            TN_FAIL(TN_FAILED, "reshard: no end after %d steps", out->by_axis_steps);
        s = apply(&w, s, &m);
        open_state(q, s, &v);
        int64_t bytes;
        double seconds;
        cost(q, &m, local_bytes(q, &w), local_bytes(q, &v), &bytes, &seconds);
        out->by_axis_bytes += bytes;
        q->limit_s += seconds;
    }
    out->by_axis_s = q->limit_s;
    q->limit_s *= 1 + 1e-9;
    return TN_OK;
}

/* ------------------------------------------------------------ the plan */

static tn_status open_search(search *q, const tn_layout *to)
{
    const tn_layout *from = &q->v->layout;
    for (int a = 0; a < TN_N_AXES; a++) {
        tn_type x = (tn_type)from->type[a], y = (tn_type)to->type[a];
        if ((x == TN_TYPE_S && from->dim[a] >= q->v->rank) ||
            (y == TN_TYPE_S && to->dim[a] >= q->v->rank))
            TN_FAIL(TN_BAD_INPUT,
                    "reshard: axis %s: S(%d) of a value with %d dims; the last dim is S(%d)",
                    tn_axis_name((tn_axis)a), y == TN_TYPE_S ? to->dim[a] : from->dim[a],
                    q->v->rank, q->v->rank - 1);
        if (q->mesh->size[a] == 1) continue;
        if ((x == TN_TYPE_V) != (y == TN_TYPE_V))
            TN_FAIL(TN_BAD_INPUT,
                    "reshard: axis %s: no way from %c to %c; V has no global meaning, give the "
                    "value a type in its local_map",
                    tn_axis_name((tn_axis)a), tn_type_letter(x), tn_type_letter(y));
        if (x == TN_TYPE_V || (x == TN_TYPE_P && y == TN_TYPE_P)) continue;
        q->pads[q->n] = y == TN_TYPE_P;
        q->size[q->n] = q->mesh->size[a];
        q->axis[q->n++] = (tn_axis)a;
    }
    return TN_OK;
}

/* Size-1 and resting axes are no part of a list. */
static uint64_t pack(const search *q, const tn_layout *l)
{
    uint64_t s = 0;
    for (int a = 0; a < q->n; a++) {
        tn_axis x = q->axis[a];
        int order = 0;
        if (l->type[x] != TN_TYPE_S) {
            s = place(s, a, l->type[x] == TN_TYPE_P ? PENDING : COPIES, 0);
            continue;
        }
        for (int b = 0; b < q->n; b++)
            order += l->type[q->axis[b]] == TN_TYPE_S && l->dim[q->axis[b]] == l->dim[x] &&
                     l->order[q->axis[b]] < l->order[x];
        s = place(s, a, SHARD + l->dim[x], order);
    }
    return s;
}

static tn_layout unpack(const search *q, uint64_t s, const tn_layout *to)
{
    view w;
    tn_layout l = tn_layout_all(TN_TYPE_R);
    open_state(q, s, &w);
    for (int d = 0; d < q->v->rank; d++)
        for (int i = 0; i < w.n[d]; i++) tn_layout_shard(&l, q->axis[w.list[d][i]], d);
    for (int a = 0, k = 0; a < TN_N_AXES; a++) {
        bool moves = k < q->n && q->axis[k] == (tn_axis)a;
        if (moves && w.what[k] >= SHARD) {
        } else if (moves && w.what[k] == PENDING) {
            l.type[a] = TN_TYPE_P;
        } else if (to->type[a] == TN_TYPE_S) {
            if (!moves) tn_layout_shard(&l, (tn_axis)a, to->dim[a]);
            else if (q->v->layout.type[a] == TN_TYPE_I) l.type[a] = TN_TYPE_I;
        } else if (!moves || to->type[a] != TN_TYPE_P) {
            l.type[a] = to->type[a];
        }
        k += moves;
    }
    return l;
}

/* Placements there can be: k of n axes in ordered lists of `rank` dims, the others copies or P. */
static int32_t count_states(const search *q)
{
    int32_t n = 0;
    for (unsigned set = 0; set < 1u << q->n; set++) {
        int32_t ways = 1;
        for (int a = 0, k = 0; a < q->n; a++) {
            if (set >> a & 1) ways *= q->v->rank + k++;
            else if (what_of(q->start, a) == PENDING || q->pads[a]) ways *= 2;
        }
        n += ways;
    }
    return n;
}

static tn_status get_tables(search *q, tn_arena *scratch)
{
    void *mem;
    q->cap_nodes = count_states(q);
    q->table_mask = 1;
    while (q->table_mask < 2 * q->cap_nodes) q->table_mask = 2 * q->table_mask + 1;
    TN_TRY(tn_arena_alloc(scratch, (size_t)q->cap_nodes * sizeof *q->nodes, &mem));
    q->nodes = mem;
    TN_TRY(tn_arena_alloc(scratch, (size_t)q->cap_nodes * sizeof *q->heap, &mem));
    q->heap = mem;
    TN_TRY(tn_arena_alloc(scratch, ((size_t)q->table_mask + 1) * sizeof *q->table, &mem));
    q->table = mem;
    return TN_OK;
}

static tn_status write_plan(search *q, int32_t at, const tn_layout *to, tn_reshard *out)
{
    for (int32_t i = at; q->nodes[i].parent >= 0; i = q->nodes[i].parent) out->n_steps++;
    if (out->n_steps > TN_RESHARD_STEPS)
        TN_FAIL(TN_FAILED, "reshard: %d steps; at most %d", out->n_steps, TN_RESHARD_STEPS);
    out->bytes = q->nodes[at].bytes;
    out->seconds = q->nodes[at].seconds;
    out->n_states = q->n_nodes;
    for (int k = out->n_steps - 1; k >= 0; k--) {
        const node *n = &q->nodes[at], *p = &q->nodes[n->parent];
        tn_reshard_step *s = &out->step[k];
        *s = (tn_reshard_step){.kind = n->by.kind,
                               .n_axes = n->by.n,
                               .from = n->by.from,
                               .to = n->by.to,
                               .bytes = n->bytes - p->bytes,
                               .seconds = n->seconds - p->seconds};
        for (int i = 0; i < n->by.n; i++) s->axes[i] = (uint8_t)q->axis[n->by.axes[i]];
        s->after = k == out->n_steps - 1 ? *to : unpack(q, n->state, to);
        if (n->local > out->peak_bytes) out->peak_bytes = n->local;
        at = n->parent;
    }
    if (q->nodes[at].local > out->peak_bytes) out->peak_bytes = q->nodes[at].local;
    return TN_OK;
}

tn_status tn_reshard_plan(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                          const tn_layout *to, tn_arena *scratch, tn_reshard *out)
{
    tn_reshard plan = {0};
    void *mem;
    TN_TRY(tn_arena_alloc(scratch, sizeof(search), &mem));
    search *q = mem;
    q->mesh = mesh;
    q->v = v;
    TN_TRY(open_search(q, to));
    set_links(q, links);
    q->start = pack(q, &v->layout);
    q->goal = pack(q, to);
    TN_TRY(by_axis(q, &plan));
    q->inner_first = links->inner_first;
    if (q->inner_first) q->limit_s = 1e300; /* one axis after the other need not be in that order */
    TN_TRY(get_tables(q, scratch));
    int32_t at = shortest(q, false);
    if (at >= 0 && q->nodes[at].bytes > plan.by_axis_bytes && !q->inner_first)
        at = shortest(q, true);
    if (at < 0) TN_FAIL(TN_FAILED, "reshard: no plan found");
    TN_TRY(write_plan(q, at, to, &plan));
    *out = plan;
    return TN_OK;
}

tn_reshard_links tn_reshard_guess(const tn_mesh *mesh, int ranks_per_node)
{
    tn_reshard_links l = {0};
    int64_t span = 1;
    for (int a = TN_N_AXES - 1; a >= 0; a--) {
        span *= mesh->size[a];
        bool inside = span <= ranks_per_node;
        l.axis[a] = (tn_reshard_link){6.6e-6, inside ? 0.6e-6 : 2.7e-6, inside ? 370e9 : 45e9};
    }
    return l;
}

/* ------------------------------------------------------------ text */

const char *tn_reshard_kind_name(tn_reshard_kind k)
{
    static const char *const names[TN_RESHARD_KINDS] = {
        "slice", "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "permute", "pad"};
    return names[k];
}

void tn_reshard_print(const tn_reshard *r, tn_text *out)
{
    if (!r->n_steps) tn_text_add(out, "nothing moves");
    for (int i = 0; i < r->n_steps; i++) {
        const tn_reshard_step *s = &r->step[i];
        tn_text_add(out, "%s%s ", i ? "; " : "", tn_reshard_kind_name((tn_reshard_kind)s->kind));
        for (int k = 0; k < s->n_axes; k++)
            tn_text_add(out, "%s%s", k ? "," : "", tn_axis_name((tn_axis)s->axes[k]));
        if (s->from >= 0) tn_text_add(out, " of dim %d", s->from);
        if (s->to >= 0 && s->to != s->from) tn_text_add(out, " to dim %d", s->to);
        if (s->bytes)
            tn_text_add(out, ": %s, %s", tn_text_bytes(s->bytes).s, tn_text_seconds(s->seconds).s);
    }
}
