/* reshard_search.c - from both ends at once (Dijkstra 1959, Nicholson 1966): the cheaper of the two
 * fronts goes on until what they have passed together is worth the best way that joins them.
 * Backward moves are the forward ones, looked for from where they lead to. */
#include "graph/reshard_search.h"

#include <string.h>

enum { FORWARD, BACKWARD };
enum { DONE = -1, PARKED = -2 }; /* places in the queue of what is not in it */

/* ------------------------------------------------------------ placements */

uint64_t tn_reshard_search_place(uint64_t s, int a, int what, int order)
{
    return (s & ~((uint64_t)63 << (6 * a))) | (uint64_t)(what | order << 3) << (6 * a);
}

void tn_reshard_search_open(const tn_reshard_search *q, uint64_t s, tn_reshard_view *w)
{
    memset(w->n, 0, sizeof w->n);
    for (int a = 0; a < q->n; a++) {
        int d = (w->what[a] = tn_reshard_search_what(s, a)) - TN_RESHARD_SHARD;
        if (d < 0) continue;
        w->list[d][s >> (6 * a + 3) & 7] = (int8_t)a;
        w->n[d]++;
    }
}

/* The extents that matter: the largest block of any rank. */
int64_t tn_reshard_search_local(tn_reshard_search *q, const tn_reshard_view *w)
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

static uint64_t append(const tn_reshard_view *w, uint64_t s, const tn_reshard_move *m)
{
    for (int i = 0; i < m->n; i++)
        s = m->to < 0
                ? tn_reshard_search_place(
                      s, m->axes[i],
                      m->kind == TN_RESHARD_PAD ? TN_RESHARD_PENDING : TN_RESHARD_COPIES, 0)
                : tn_reshard_search_place(s, m->axes[i], TN_RESHARD_SHARD + m->to, w->n[m->to] + i);
    return s;
}

uint64_t tn_reshard_search_apply(const tn_reshard_view *w, uint64_t s, const tn_reshard_move *m)
{
    if (m->kind != TN_RESHARD_PERMUTE) return append(w, s, m);
    int a = m->axes[0], b = m->axes[1];
    uint64_t x = s >> (6 * a) & 63, y = s >> (6 * b) & 63;
    return tn_reshard_search_place(tn_reshard_search_place(s, a, (int)(y & 7), (int)(y >> 3)), b,
                                   (int)(x & 7), (int)(x >> 3));
}

/* ------------------------------------------------------------ cost */

void tn_reshard_search_cost(const tn_reshard_search *q, const tn_reshard_move *m, int64_t before,
                            int64_t after, int64_t *bytes, double *seconds)
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
    const tn_reshard_set *l = &q->link[set];
    int64_t most = before > after ? before : after;
    int times = twice[m->kind];
    *bytes = times ? times * (most - most / l->ranks) : most;
    *seconds += l->start_s + l->hop_s * (double)(times ? times * (l->ranks - 1) : 1) +
                (double)*bytes * l->s_per_byte;
}

/* ------------------------------------------------------------ queues */

static bool before(const tn_reshard_search *q, const tn_reshard_node *a, const tn_reshard_node *b)
{
    if (q->by_bytes && a->bytes != b->bytes) return a->bytes < b->bytes;
    return a->seconds < b->seconds;
}

static void up(const tn_reshard_search *q, tn_reshard_side *s, int32_t i)
{
    int32_t x = s->heap[i];
    for (; i && before(q, &s->nodes[x], &s->nodes[s->heap[(i - 1) / 2]]); i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
        s->nodes[s->heap[i]].heap = i;
    }
    s->heap[i] = x;
    s->nodes[x].heap = i;
}

static int32_t pop(const tn_reshard_search *q, tn_reshard_side *s)
{
    int32_t top = s->heap[0], x = s->heap[--s->n_heap], i = 0;
    for (;;) {
        int32_t c = 2 * i + 1;
        if (c >= s->n_heap) break;
        if (c + 1 < s->n_heap && before(q, &s->nodes[s->heap[c + 1]], &s->nodes[s->heap[c]])) c++;
        if (!before(q, &s->nodes[s->heap[c]], &s->nodes[x])) break;
        s->heap[i] = s->heap[c];
        s->nodes[s->heap[i]].heap = i;
        i = c;
    }
    s->heap[i] = x;
    s->nodes[x].heap = i;
    s->nodes[top].heap = DONE;
    return top;
}

static int32_t *slot(const tn_reshard_search *q, const tn_reshard_side *s, uint64_t state)
{
    uint64_t h = state * 0x9E3779B97F4A7C15u;
    for (int32_t i = (int32_t)(h >> 40) & q->table_mask;; i = (i + 1) & q->table_mask)
        if (!s->table[i] || s->nodes[s->table[i] - 1].state == state) return &s->table[i];
}

/* Does the way through this node, which both sides know, beat the best one? */
static void join(tn_reshard_search *q, int side, int32_t at, int32_t other)
{
    const tn_reshard_node *a = &q->side[side].nodes[at], *b = &q->side[!side].nodes[other];
    int64_t bytes = a->bytes + b->bytes;
    double seconds = a->seconds + b->seconds;
    if (q->meet[0] >= 0 &&
        (q->by_bytes && bytes != q->best_bytes ? bytes > q->best_bytes : seconds >= q->best_s))
        return;
    q->best_bytes = bytes;
    q->best_s = seconds;
    q->meet[side] = at;
    q->meet[!side] = other;
}

/* Nothing better goes on from here: the other side has been here, and the way through is joined; or
 * it has not, and what it has left costs too much. */
static bool leads_nowhere(const tn_reshard_search *q, int side, const tn_reshard_node *x,
                          int32_t other)
{
    const tn_reshard_side *s = &q->side[!side];
    if (other >= 0 && s->nodes[other].heap == DONE) return true;
    if (q->meet[0] < 0 || !s->n_heap) return false;
    const tn_reshard_node *next = &s->nodes[s->heap[0]];
    if (q->by_bytes) return x->bytes + next->bytes > q->best_bytes;
    return x->seconds + next->seconds >= q->best_s;
}

static void enqueue(const tn_reshard_search *q, tn_reshard_side *s, tn_reshard_node *x)
{
    x->heap = s->n_heap;
    s->heap[s->n_heap++] = (int32_t)(x - s->nodes);
    up(q, s, x->heap);
}

/* The node at `from` reaches `state` by m, forwards; or m leads from `state` to it, backwards. */
static void offer(tn_reshard_search *q, int side, int32_t from, uint64_t state,
                  const tn_reshard_move *m)
{
    tn_reshard_side *s = &q->side[side];
    const tn_reshard_node *f = &s->nodes[from];
    int32_t *at = slot(q, s, state);
    if (*at && s->nodes[*at - 1].heap == DONE) return;
    tn_reshard_node *to = *at ? &s->nodes[*at - 1] : &s->nodes[s->n_nodes];
    int64_t bytes;
    double seconds;
    if (!*at) {
        tn_reshard_view there;
        tn_reshard_search_open(q, state, &there);
        to->local = tn_reshard_search_local(q, &there);
    }
    if (side == FORWARD) tn_reshard_search_cost(q, m, f->local, to->local, &bytes, &seconds);
    else tn_reshard_search_cost(q, m, to->local, f->local, &bytes, &seconds);
    bytes += f->bytes;
    seconds += f->seconds;
    if (q->by_bytes ? bytes > q->limit_bytes : seconds > q->limit_s) return;
    if (*at) {
        if (q->by_bytes && bytes != to->bytes ? bytes > to->bytes : seconds >= to->seconds) return;
    } else {
        to->state = state;
        to->heap = PARKED;
        *at = ++s->n_nodes;
    }
    to->bytes = bytes;
    to->seconds = seconds;
    to->parent = from;
    to->by = *m;
    int32_t other = *slot(q, &q->side[!side], state) - 1;
    if (other >= 0) join(q, side, (int32_t)(to - s->nodes), other);
    if (to->heap >= 0) up(q, s, to->heap);
    else if (!leads_nowhere(q, side, to, other)) enqueue(q, s, to);
}

static void offer_move(tn_reshard_search *q, int32_t at, const tn_reshard_view *w,
                       const tn_reshard_move *m)
{
    offer(q, FORWARD, at, tn_reshard_search_apply(w, q->side[FORWARD].nodes[at].state, m), m);
}

/* ------------------------------------------------------------ forward moves */

static void offer_shards(tn_reshard_search *q, int32_t at, const tn_reshard_view *w)
{
    for (int d = 0; d < q->v->rank; d++)
        for (int k = 1; k <= w->n[d]; k++) {
            tn_reshard_move m = {
                .kind = TN_RESHARD_ALL_GATHER, .n = (uint8_t)k, .from = (int8_t)d, .to = -1};
            for (int i = 0; i < k; i++) m.axes[i] = (uint8_t)w->list[d][w->n[d] - k + i];
            offer_move(q, at, w, &m);
            m.kind = TN_RESHARD_ALL_TO_ALL;
            for (int to = 0; to < q->v->rank; to++) {
                m.to = (int8_t)to;
                if (to != d) offer_move(q, at, w, &m);
            }
            if (k > 1 || !q->pads[m.axes[0]]) continue;
            m = (tn_reshard_move){
                .kind = TN_RESHARD_PAD, .n = 1, .axes = {m.axes[0]}, .from = (int8_t)d, .to = -1};
            offer_move(q, at, w, &m);
        }
}

/* No axis that stays pending lies inside of one that is reduced now. */
static bool from_inside(const tn_reshard_search *q, const tn_reshard_view *w, unsigned reduced)
{
    for (int a = q->n - 1; q->inner_first && a >= 0; a--)
        if (w->what[a] == TN_RESHARD_PENDING && !q->pads[a] && !(reduced >> a & 1))
            return !(reduced & ((1u << a) - 1));
    return true;
}

/* Reductions over every ordered choice of pending axes that begins with those of m. */
static void offer_sums(tn_reshard_search *q, int32_t at, const tn_reshard_view *w,
                       const tn_reshard_move *m, unsigned used)
{
    for (int a = 0; a < q->n; a++) {
        if (w->what[a] != TN_RESHARD_PENDING || q->pads[a] || used >> a & 1) continue;
        tn_reshard_move more = *m;
        more.axes[more.n++] = (uint8_t)a;
        more.kind = TN_RESHARD_ALL_REDUCE;
        more.to = -1;
        bool right = from_inside(q, w, used | 1u << a);
        if (right && used < 1u << a) offer_move(q, at, w, &more); /* each set once */
        more.kind = TN_RESHARD_REDUCE_SCATTER;
        for (int d = 0; right && d < q->v->rank; d++) {
            more.to = (int8_t)d;
            offer_move(q, at, w, &more);
        }
        offer_sums(q, at, w, &more, used | 1u << a);
    }
}

static void offer_copies(tn_reshard_search *q, int32_t at, const tn_reshard_view *w)
{
    for (int a = 0; a < q->n; a++) {
        if (w->what[a] != TN_RESHARD_COPIES) continue;
        tn_reshard_move m = {.kind = TN_RESHARD_SLICE, .n = 1, .axes = {(uint8_t)a}, .from = -1};
        for (int d = 0; d < q->v->rank; d++) {
            m.to = (int8_t)d;
            offer_move(q, at, w, &m);
        }
        m.kind = TN_RESHARD_PAD;
        m.to = -1;
        if (q->pads[a]) offer_move(q, at, w, &m);
    }
}

/* Every rank has the same share of dim d, in units too: the order of its axes only says who has
 * which. */
static bool even(const tn_reshard_search *q, const tn_reshard_view *w, int d)
{
    int64_t n = 1, units = q->v->dim[d].units;
    for (int i = 0; i < w->n[d]; i++) n *= q->size[w->list[d][i]];
    return q->v->dim[d].extent % n == 0 && units % n == 0 && units <= q->v->dim[d].extent;
}

/* Heads are cut by tp only: another axis in its place would cut elsewhere. */
static bool trades(const tn_reshard_search *q, const tn_reshard_view *w, int a, int b)
{
    int x = w->what[a], y = w->what[b];
    if (q->size[a] != q->size[b] || x == TN_RESHARD_PENDING || y == TN_RESHARD_PENDING ||
        (x == TN_RESHARD_COPIES && y == TN_RESHARD_COPIES))
        return false;
    if (q->axis[a] != TN_AXIS_TP && q->axis[b] != TN_AXIS_TP) return true;
    return (x == TN_RESHARD_COPIES || !q->v->dim[x - TN_RESHARD_SHARD].units ||
            even(q, w, x - TN_RESHARD_SHARD)) &&
           (y == TN_RESHARD_COPIES || !q->v->dim[y - TN_RESHARD_SHARD].units ||
            even(q, w, y - TN_RESHARD_SHARD));
}

/* What trades places can trade back: the same moves from both ends. */
static void offer_permutes(tn_reshard_search *q, int side, int32_t at, const tn_reshard_view *w)
{
    for (int a = 0; a < q->n; a++)
        for (int b = a + 1; b < q->n; b++) {
            tn_reshard_move m = {.kind = TN_RESHARD_PERMUTE,
                                 .n = 2,
                                 .axes = {(uint8_t)a, (uint8_t)b},
                                 .from = -1,
                                 .to = -1};
            if (trades(q, w, a, b))
                offer(q, side, at, tn_reshard_search_apply(w, q->side[side].nodes[at].state, &m),
                      &m);
        }
    for (int d = 0; d < q->v->rank; d++)
        for (int i = 0; i + 1 < w->n[d]; i++) {
            uint8_t a = (uint8_t)w->list[d][i], b = (uint8_t)w->list[d][i + 1];
            tn_reshard_move m = {.kind = TN_RESHARD_PERMUTE,
                                 .n = 2,
                                 .axes = {a, b},
                                 .from = (int8_t)d,
                                 .to = (int8_t)d};
            if (q->size[a] != q->size[b] && even(q, w, d))
                offer(q, side, at, tn_reshard_search_apply(w, q->side[side].nodes[at].state, &m),
                      &m);
        }
}

/* ------------------------------------------------------------ backward moves */

/* The state before axes that are innermost of dim `m->to` came there, all to what `what` says. */
static void offer_from(tn_reshard_search *q, int32_t at, const tn_reshard_view *w,
                       const tn_reshard_move *m, int what)
{
    uint64_t s = q->side[BACKWARD].nodes[at].state;
    for (int i = 0; i < m->n; i++)
        s = tn_reshard_search_place(
            s, m->axes[i], what, what >= TN_RESHARD_SHARD ? w->n[what - TN_RESHARD_SHARD] + i : 0);
    offer(q, BACKWARD, at, s, m);
}

/* Where shards came from: slices, all_to_alls, reduce_scatters. */
static void before_shards(tn_reshard_search *q, int32_t at, const tn_reshard_view *w)
{
    for (int d = 0; d < q->v->rank; d++) {
        bool sums = true;
        unsigned set = 0;
        for (int k = 1; k <= w->n[d]; k++) {
            tn_reshard_move m = {.kind = TN_RESHARD_SLICE, .n = (uint8_t)k, .to = (int8_t)d};
            for (int i = 0; i < k; i++) m.axes[i] = (uint8_t)w->list[d][w->n[d] - k + i];
            set |= 1u << m.axes[0];
            sums &= q->sums[m.axes[0]];
            m.from = -1;
            if (k == 1) offer_from(q, at, w, &m, TN_RESHARD_COPIES);
            m.kind = TN_RESHARD_REDUCE_SCATTER;
            if (sums && from_inside(q, w, set)) offer_from(q, at, w, &m, TN_RESHARD_PENDING);
            m.kind = TN_RESHARD_ALL_TO_ALL;
            for (int from = 0; from < q->v->rank; from++) {
                m.from = (int8_t)from;
                if (from != d) offer_from(q, at, w, &m, TN_RESHARD_SHARD + from);
            }
        }
    }
}

/* What was padded: copies, or the innermost axis of a dim. */
static void before_pads(tn_reshard_search *q, int32_t at, const tn_reshard_view *w)
{
    for (int a = 0; a < q->n; a++) {
        tn_reshard_move m = {
            .kind = TN_RESHARD_PAD, .n = 1, .axes = {(uint8_t)a}, .from = -1, .to = -1};
        if (!q->pads[a] || w->what[a] != TN_RESHARD_PENDING) continue;
        offer_from(q, at, w, &m, TN_RESHARD_COPIES);
        for (int d = 0; d < q->v->rank; d++) {
            m.from = (int8_t)d;
            offer_from(q, at, w, &m, TN_RESHARD_SHARD + d);
        }
    }
}

/* What became copies: gathers of every ordered choice of copies, from every dim, that begins with
 * the axes of m; sums of every set of them. */
static void before_copies(tn_reshard_search *q, int32_t at, const tn_reshard_view *w,
                          const tn_reshard_move *m, unsigned used)
{
    for (int a = 0; a < q->n; a++) {
        if (w->what[a] != TN_RESHARD_COPIES || used >> a & 1) continue;
        tn_reshard_move more = *m;
        bool sums = true;
        unsigned set = used | 1u << a;
        more.axes[more.n++] = (uint8_t)a;
        more.to = -1;
        more.kind = TN_RESHARD_ALL_GATHER;
        for (int d = 0; d < q->v->rank; d++) {
            more.from = (int8_t)d;
            offer_from(q, at, w, &more, TN_RESHARD_SHARD + d);
        }
        for (int i = 0; i < more.n; i++) sums &= q->sums[more.axes[i]];
        more.kind = TN_RESHARD_ALL_REDUCE;
        more.from = -1;
        if (sums && used < 1u << a && from_inside(q, w, set)) /* each set once */
            offer_from(q, at, w, &more, TN_RESHARD_PENDING);
        before_copies(q, at, w, &more, set);
    }
}

/* ------------------------------------------------------------ the search */

static void begin(tn_reshard_search *q, int side, uint64_t state)
{
    tn_reshard_side *s = &q->side[side];
    tn_reshard_view w;
    memset(s->table, 0, ((size_t)q->table_mask + 1) * sizeof *s->table);
    tn_reshard_search_open(q, state, &w);
    s->nodes[0] =
        (tn_reshard_node){.state = state, .parent = -1, .local = tn_reshard_search_local(q, &w)};
    s->heap[0] = 0;
    s->n_nodes = s->n_heap = 1;
    *slot(q, s, state) = 1;
}

/* All that both fronts have not passed yet costs as much as their nearest nodes together. */
static bool beaten(const tn_reshard_search *q)
{
    const tn_reshard_side *f = &q->side[FORWARD], *b = &q->side[BACKWARD];
    if (!f->n_heap || !b->n_heap) return true;
    const tn_reshard_node *x = &f->nodes[f->heap[0]], *y = &b->nodes[b->heap[0]];
    if (q->meet[0] < 0) return false;
    if (q->by_bytes && x->bytes + y->bytes != q->best_bytes)
        return x->bytes + y->bytes > q->best_bytes;
    return x->seconds + y->seconds >= q->best_s;
}

static void expand(tn_reshard_search *q, int side)
{
    tn_reshard_view w;
    int32_t at = pop(q, &q->side[side]);
    tn_reshard_search_open(q, q->side[side].nodes[at].state, &w);
    if (side == FORWARD) {
        offer_shards(q, at, &w);
        offer_copies(q, at, &w);
        offer_sums(q, at, &w, &(tn_reshard_move){.from = -1}, 0);
    } else {
        before_shards(q, at, &w);
        before_pads(q, at, &w);
        before_copies(q, at, &w, &(tn_reshard_move){0}, 0);
    }
    offer_permutes(q, side, at, &w);
}

/* From the start to where the sides met, then on to the goal. */
static tn_status write_way(const tn_reshard_search *q, tn_reshard_way *out)
{
    const tn_reshard_node *f = q->side[FORWARD].nodes, *b = q->side[BACKWARD].nodes;
    int n = 0, front = 0;
    for (int32_t i = q->meet[FORWARD]; i >= 0; i = f[i].parent) front++;
    for (int32_t i = q->meet[BACKWARD]; i >= 0; i = b[i].parent) n++;
    n += front - 1;
    if (n > TN_RESHARD_STEPS + 1)
        TN_FAIL(TN_FAILED, "reshard: %d steps; at most %d", n - 1, TN_RESHARD_STEPS);
    out->n = n;
    int k = front;
    for (int32_t i = q->meet[FORWARD]; i >= 0; i = f[i].parent) {
        out->at[--k] = &f[i];
        out->by[k] = f[i].by;
    }
    k = front;
    for (int32_t i = q->meet[BACKWARD]; b[i].parent >= 0; i = b[i].parent) {
        out->by[k] = b[i].by;
        out->at[k++] = &b[b[i].parent];
    }
    return TN_OK;
}

tn_status tn_reshard_search_run(tn_reshard_search *q, bool by_bytes, bool *found,
                                tn_reshard_way *out)
{
    q->by_bytes = by_bytes;
    q->meet[0] = q->meet[1] = -1;
    begin(q, FORWARD, q->start);
    begin(q, BACKWARD, q->goal);
    int32_t other = *slot(q, &q->side[FORWARD], q->goal) - 1;
    if (other >= 0) join(q, BACKWARD, 0, other);
    while (!beaten(q)) {
        expand(q, q->side[BACKWARD].n_nodes < q->side[FORWARD].n_nodes ? BACKWARD : FORWARD);
    }
    *found = q->meet[0] >= 0;
    return *found ? write_way(q, out) : TN_OK;
}
