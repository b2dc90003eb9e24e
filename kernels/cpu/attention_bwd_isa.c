/* attention_bwd_isa.c - the backward pass of one item; see attention.h for the order of the sums,
 * attention_parts.h for the form.
 *
 * For each head of the item, each block of queries ascending runs against each block of the chunk's
 * keys ascending: p and dp are made again from q, k, v, d_o, then dv += p^T d_o, dk += ds^T q and
 * dq += ds k. dk and dv of a head
 * (`sums`, `leaf` where a position part crosses a block of queries) and dq stay in the cache. */
#include "kernels/cpu/attention_parts.h"

#include "kernels/cpu/attention_tile.h"

typedef struct work {
    const tn_att_plan *p;
    const tn_attention *a;
    tn_att_mem m;
    tn_att_place at;
    tn_att_chunk chunk;
    tn_att_fetch fetch;
    int64_t n_segments;
    float *dq;                                    /* of the queries and head at hand */
    float less[TN_ATT_BLOCK], dots[TN_ATT_BLOCK]; /* per query: -lse / ln 2; D */
} work;

/* Panels of one block: p = 2^(t - lse / ln 2). */
TN_VI void weight_tile(const int m, const bool masked, const work *w, const float *k,
                       const float *qt, float *p, tn_v less, const tn_att_sight *sight,
                       const tn_att_keys *keys, int64_t key)
{
    tn_v c[TN_TILE], scale = tn_v_set(w->p->c);
    tn_chain_dots(m, w->a->d, k, qt, c);
    TN_UNROLL for (int i = 0; i < m; i++)
    {
        c[i] = tn_v_fma(c[i], scale, less);
        if (masked) c[i] = tn_att_hide(sight, keys, key + i, c[i]);
        tn_v_store(p + 16 * i, tn_v_exp2(c[i]));
    }
}

/* ds = (p (dp - D)) scale */
TN_VI void slope_tile(const int m, const work *w, const float *v, const float *dot, const float *p,
                      float *ds, tn_v sum)
{
    tn_v c[TN_TILE], scale = tn_v_set(w->a->scale);
    tn_chain_dots(m, w->a->dv, v, dot, c);
    TN_UNROLL for (int i = 0; i < m; i++) tn_v_store(
        ds + 16 * i, tn_v_mul(tn_v_mul(tn_v_load(p + 16 * i), tn_v_sub(c[i], sum)), scale));
}

TN_PHASE void weights(work *w, int64_t block, const tn_att_pair *pair)
{
    const float *k = w->m.k + block * w->p->nd * TN_ATT_PANEL;
    const tn_att_keys *keys = w->m.keys + block;
    for (int64_t s = 0; s < TN_ATT_STRIPS; s++) {
        const float *qt = w->m.qt + s * w->p->nd * 256;
        const tn_att_sight sight = tn_att_sight_of(w->m.queries, s);
        const tn_v less = tn_v_load(w->less + 16 * s);
        float *p = w->m.p + s * TN_ATT_PANEL;
        int64_t key = pair->strip_lo[s], end = key, rows;
        for (; key < pair->strip_hi[s]; key += rows) {
            if (key == end) {
                end += 16;
                tn_att_fetch_step(&w->fetch);
            }
            rows = tn_tile_rows(end - key);
            uint32_t groups = 1u << (key / 8) | 1u << ((key + rows - 1) / 8);
            bool masked = (pair->masked[s] & groups) != 0;
            const float *ki = k + 16 * key;
            float *pi = p + 16 * key;
            if (rows == TN_TILE && !masked)
                weight_tile(TN_TILE, false, w, ki, qt, pi, less, &sight, keys, key);
            else if (rows == TN_TILE)
                weight_tile(TN_TILE, true, w, ki, qt, pi, less, &sight, keys, key);
            else if (!masked) weight_tile(4, false, w, ki, qt, pi, less, &sight, keys, key);
            else weight_tile(4, true, w, ki, qt, pi, less, &sight, keys, key);
        }
    }
}

TN_PHASE void slopes(work *w, int64_t block, const tn_att_pair *pair)
{
    const float *v = w->m.v + block * w->p->nv * TN_ATT_PANEL;
    for (int64_t s = 0; s < TN_ATT_STRIPS; s++) {
        const float *dot = w->m.dot + s * w->p->nv * 256, *p = w->m.p + s * TN_ATT_PANEL;
        const tn_v sum = tn_v_load(w->dots + 16 * s);
        float *ds = w->m.ds + s * TN_ATT_PANEL;
        int64_t key = pair->strip_lo[s], end = key, rows;
        for (; key < pair->strip_hi[s]; key += rows) {
            if (key == end) {
                end += 16;
                tn_att_fetch_step(&w->fetch);
            }
            rows = tn_tile_rows(end - key);
            if (rows == TN_TILE)
                slope_tile(TN_TILE, w, v + 16 * key, dot, p + 16 * key, ds + 16 * key, sum);
            else slope_tile(4, w, v + 16 * key, dot, p + 16 * key, ds + 16 * key, sum);
        }
    }
}

/* One tile of dk (dv): for each position part in the block of queries, its chain of weight x, ended
 * leaves added to `sum`. groups: the query groups that may see the tile's keys. open: leaf holds
 * the beginning of the first part. */
TN_VI void leaf_tile(const int m, const work *w, uint32_t groups, bool open, const float *weight,
                     const float *x, float *sum, float *leaf)
{
    for (const tn_att_segment *g = w->m.segments, *last = g + w->n_segments; g < last; g++) {
        tn_v acc[TN_TILE];
        bool any = open && g->continues;
        if (any) TN_UNROLL for (int i = 0; i < m; i++) acc[i] = tn_v_load(leaf + 16 * i);
        else TN_UNROLL for (int i = 0; i < m; i++) acc[i] = tn_v_zero();
        for (int64_t q = g->begin, next; q < g->end; q = next) {
            int64_t strip = q / 16, begin = q, end;
            next = strip * 16 + 16 < g->end ? strip * 16 + 16 : g->end;
            end = next;
            if (!(groups >> 2 * strip & 1) && begin < strip * 16 + 8) begin = strip * 16 + 8;
            if (!(groups >> 2 * strip & 2) && end > strip * 16 + 8) end = strip * 16 + 8;
            if (begin >= end) continue;
            tn_chain_rows(m, end - begin, weight + strip * TN_ATT_PANEL + begin % 16,
                          x + 16 * begin, acc);
            any = true;
        }
        if (!g->ends) {
            TN_UNROLL for (int i = 0; i < m; i++) tn_v_store(leaf + 16 * i, acc[i]);
        } else if (any) {
            TN_UNROLL for (int i = 0; i < m; i++) tn_v_store(
                sum + 16 * i, tn_v_add(tn_v_load(sum + 16 * i), tn_v_add(acc[i], tn_v_zero())));
        }
    }
}

/* sum, leaf [panels of x][64 keys][16] += weight^T x */
TN_PHASE void leaves(work *w, const tn_att_pair *pair, bool open, const float *weight,
                     const float *x, int64_t n, float *sum, float *leaf)
{
    for (int64_t c = 0; c < n; c++, x += TN_ATT_PANEL, sum += TN_ATT_PANEL, leaf += TN_ATT_PANEL) {
        for (int64_t key = 0, end = 0, rows; key < TN_ATT_BLOCK; key += rows) {
            if (key == end) {
                end += 16;
                tn_att_fetch_step(&w->fetch);
            }
            rows = tn_tile_rows(end - key);
            uint32_t groups = pair->groups[key / 8] | pair->groups[(key + rows - 1) / 8];
            float *sum_i = sum + 16 * key, *leaf_i = leaf + 16 * key;
            if (rows == TN_TILE)
                leaf_tile(TN_TILE, w, groups, open, weight + 16 * key, x, sum_i, leaf_i);
            else leaf_tile(4, w, groups, open, weight + 16 * key, x, sum_i, leaf_i);
        }
    }
}

/* sum += leaf + 0, where a part ends that was left open. */
TN_PHASE void close_leaf(const work *w, float *sum, const float *leaf)
{
    const int64_t n = (w->p->nd + w->p->nv) * TN_ATT_PANEL;
    for (int64_t i = 0; i < n; i += 16)
        tn_v_store(sum + i,
                   tn_v_add(tn_v_load(sum + i), tn_v_add(tn_v_load(leaf + i), tn_v_zero())));
}

TN_VI void dq_tile(const int m, int64_t n, const float *ds, const float *k, float *dq)
{
    tn_v acc[TN_TILE];
    TN_UNROLL for (int i = 0; i < m; i++) acc[i] = tn_v_load(dq + 16 * i);
    tn_chain_cols(m, n, ds, k, acc);
    TN_UNROLL for (int i = 0; i < m; i++) tn_v_store(dq + 16 * i, acc[i]);
}

TN_PHASE void dq_block(work *w, int64_t block, const tn_att_pair *pair)
{
    const float *k = w->m.k + block * w->p->nd * TN_ATT_PANEL;
    float *dq = w->dq;
    for (int64_t c = 0; c < w->p->nd; c++, k += TN_ATT_PANEL, dq += TN_ATT_PANEL) {
        for (int64_t q = 0, end = 0, rows; q < TN_ATT_BLOCK; q += rows) {
            if (q == end) {
                end += 16;
                tn_att_fetch_step(&w->fetch);
            }
            rows = tn_tile_rows(end - q);
            int64_t lo, hi;
            tn_att_pair_keys(pair, q, rows, &lo, &hi);
            if (lo >= hi) continue;
            const float *ds = w->m.ds + q / 16 * TN_ATT_PANEL + 16 * lo + q % 16;
            if (rows == TN_TILE) dq_tile(TN_TILE, hi - lo, ds, k + 16 * lo, dq + 16 * q);
            else dq_tile(4, hi - lo, ds, k + 16 * lo, dq + 16 * q);
        }
    }
}

/* One block of queries, prepared, against one block of keys. */
static void block_pair(work *w, int64_t block, float *sums)
{
    const tn_att_mem *m = &w->m;
    tn_att_pair pair;
    if (!tn_att_pair_find(m->queries, m->keys + block, &pair)) return;
    tn_att_chunk_want(w->p, m, &w->chunk, block, &w->fetch);
    weights(w, block, &pair);
    slopes(w, block, &pair);
    if (w->p->want_dkv) {
        const int64_t nd = w->p->nd, nv = w->p->nv, at = block * (nd + nv) * TN_ATT_PANEL;
        const tn_att_segment *first = m->segments, *last = first + w->n_segments - 1;
        float *sum = sums + at, *leaf = m->leaf + at;
        if (m->open[block] >= 0 && m->open[block] != first->part) {
            close_leaf(w, sum, leaf);
            m->open[block] = -1;
        }
        bool open = m->open[block] >= 0;
        leaves(w, &pair, open, m->ds, m->q, nd, sum, leaf);
        leaves(w, &pair, open, m->p, m->d_o, nv, sum + nd * TN_ATT_PANEL, leaf + nd * TN_ATT_PANEL);
        m->open[block] = last->ends ? -1 : last->part;
    }
    if (w->p->want_dq) dq_block(w, block, &pair);
}

TN_VI void dot_products(const bool bf16, work *w, int64_t at)
{
    const tn_attention *a = w->a;
    const int64_t n = w->m.queries->n;
    for (int64_t q = 0; q < n; q += 16) {
        tn_v lanes[16];
        for (int64_t i = 0; i < 16; i++) {
            lanes[i] = tn_v_zero();
            const void *o = tn_v_at(a->o, (at + (q + i) * a->h) * a->dv, bf16);
            const float *d_o = w->m.d_o + 16 * (q + i);
            for (int64_t c = 0; c < a->dv && q + i < n; c += 16, d_o += TN_ATT_PANEL)
                lanes[i] = tn_v_fma(tn_v_load(d_o), tn_v_get_mask(o, c, tn_v_mask(a->dv - c), bf16),
                                    lanes[i]);
        }
        tn_v_transpose(lanes);
        tn_v_store(w->dots + q, tn_v_sum_rows(lanes));
    }
}

/* D = sum over dv of d_o o, and -lse / ln 2, of the block's queries. */
TN_PHASE void query_scalars(work *w, int64_t at)
{
    const tn_attention *a = w->a;
    const int64_t n = w->m.queries->n;
    for (int64_t q = 0; q < TN_ATT_BLOCK; q++) {
        float lse = q < n ? a->lse[at + q * a->h] : 0;
        w->less[q] = lse == -__builtin_inff() ? 0 : -(lse * 1.44269504088896341f);
    }
    if (a->bf16) dot_products(true, w, at);
    else dot_products(false, w, at);
}

/* Packs a block of queries of one head; dq as far as it is known. */
static void load_queries(work *w, int64_t head, int64_t block, bool begins)
{
    const tn_attention *a = w->a;
    const tn_att_mem *m = &w->m;
    const int64_t at = (w->at.row * a->s + block * TN_ATT_BLOCK) * a->h + head, n = m->queries->n;
    tn_att_pack(a->bf16, tn_v_at(a->q, at * a->d, a->bf16), a->h * a->d, n, a->d, m->q);
    tn_att_turn(false, m->q, 16, TN_ATT_PANEL, n, a->d, m->qt);
    tn_att_pack(a->bf16, tn_v_at(w->p->d_o, at * a->dv, a->bf16), a->h * a->dv, n, a->dv, m->d_o);
    tn_att_turn(false, m->d_o, 16, TN_ATT_PANEL, n, a->dv, m->dot);
    query_scalars(w, at);
    if (!w->p->want_dq) return;
    w->dq = m->dq;
    if (w->p->kept)
        w->dq += ((head - w->at.kv_head * w->p->rep) * w->p->q_blocks + block - w->at.q_first) *
                 w->p->nd * TN_ATT_PANEL;
    if (begins) memset(w->dq, 0, (size_t)w->p->nd * TN_ATT_PANEL * sizeof(float));
    else if (!w->p->kept)
        tn_att_pack(false, (const float *)w->p->dq + at * a->d, a->h * a->d, n, a->d, w->dq);
}

/* To be fetched while these queries are worked on: what they will write, what comes next; with the
 * last head a part of dk and dv. */
static void fetch_queries(work *w, int64_t head, int64_t block)
{
    const tn_attention *a = w->a;
    const bool half = a->bf16, dkv_half = half && !a->dkv_fp32;
    int64_t first = block * TN_ATT_BLOCK, at = (w->at.row * a->s + first) * a->h + head,
            n = a->s - first;
    w->fetch = (tn_att_fetch){0};
    if (w->p->want_dq && !w->p->kept)
        tn_att_fetch_add(&w->fetch, half, tn_v_at(w->p->dq, at * a->d, half), a->h * a->d, n, a->d);
    if (head + 1 == (w->at.kv_head + 1) * w->p->rep && w->p->want_dkv) {
        const int64_t key = (block - w->at.q_first) * TN_ATT_BLOCK, left = w->chunk.rows - key,
                      dk = w->chunk.k + key * a->g * a->d, dv = w->chunk.v + key * a->g * a->dv;
        tn_att_fetch_add(&w->fetch, dkv_half, tn_v_at(w->p->dk, dk, dkv_half), a->g * a->d, left,
                         a->d);
        tn_att_fetch_add(&w->fetch, dkv_half, tn_v_at(w->p->d_v, dv, dkv_half), a->g * a->dv, left,
                         a->dv);
    }
    first += TN_ATT_BLOCK;
    if (++block == w->at.q_last) {
        first = w->at.q_first * TN_ATT_BLOCK;
        if (++head == (w->at.kv_head + 1) * w->p->rep) return;
    }
    at = (w->at.row * a->s + first) * a->h + head, n = a->s - first;
    tn_att_fetch_add(&w->fetch, half, tn_v_at(a->q, at * a->d, half), a->h * a->d, n, a->d);
    tn_att_fetch_add(&w->fetch, half, tn_v_at(w->p->d_o, at * a->dv, half), a->h * a->dv, n, a->dv);
    tn_att_fetch_add(&w->fetch, half, tn_v_at(a->o, at * a->dv, half), a->h * a->dv, n, a->dv);
    tn_att_fetch_add(&w->fetch, false, a->lse + at, a->h, n, 1);
}

/* Which chunks of keys a call is about. */
typedef struct turn {
    bool begins, ends; /* the item's first, its last */
} turn;

/* The item's queries of a head against the chunk of keys. */
static void head_chunk(work *w, int64_t head, turn at_keys, float *sums)
{
    const tn_attention *a = w->a;
    const tn_att_mem *m = &w->m;
    const int64_t n = w->chunk.n, size = (w->p->nd + w->p->nv) * TN_ATT_PANEL;
    const bool stores = w->p->want_dq && (at_keys.ends || !w->p->kept);
    for (int64_t i = 0; w->p->want_dkv && i < n; i++) m->open[i] = -1;
    if (w->p->want_dkv) memset(sums, 0, (size_t)(n * size) * sizeof *sums);
    for (int64_t qb = w->at.q_first; qb < w->at.q_last; qb++) {
        int64_t first = qb * TN_ATT_BLOCK;
        tn_attention_queries(a, w->at.row, first, m->queries);
        bool any = tn_att_pair_any(m->queries, m->keys, n);
        bool needed = (at_keys.begins && w->p->want_dq) || (at_keys.ends && w->p->kept);
        if (!any && !needed) continue;
        load_queries(w, head, qb, at_keys.begins);
        fetch_queries(w, head, qb);
        w->n_segments = tn_attention_segments(a, first, m->queries->n, m->segments);
        for (int64_t block = 0; any && block < n; block++) block_pair(w, block, sums);
        int64_t at = (w->at.row * a->s + first) * a->h + head;
        if (stores)
            tn_att_unpack(a->bf16, w->dq, m->queries->n, a->d,
                          tn_v_from(w->p->dq, at * a->d, a->bf16), a->h * a->d);
    }
    for (int64_t i = 0; w->p->want_dkv && i < n; i++)
        if (m->open[i] >= 0) close_leaf(w, sums + i * size, m->leaf + i * size);
}

/* The tree over head_parts, restricted to the slots that hold heads of the group: a stack of
 * subtrees, the leftmost first. Two neighbours are joined before a third comes from outside their
 * smallest common subtree. */
typedef struct stack {
    const work *w;
    int64_t n, slot[TN_ATT_BLOCK]; /* the last slot of each subtree */
} stack;

static float *stack_at(const stack *t, int64_t i)
{
    return t->w->m.sums + i * t->w->m.sum_floats;
}

static void stack_join(stack *t)
{
    const int64_t n = t->w->chunk.n * (t->w->p->nd + t->w->p->nv) * TN_ATT_PANEL;
    float *x = stack_at(t, t->n - 2), *y = stack_at(t, t->n - 1);
    for (int64_t i = 0; i < n; i += 16)
        tn_v_store(x + i, tn_v_add(tn_v_load(x + i), tn_v_load(y + i)));
    t->slot[t->n - 2] = t->slot[t->n - 1];
    t->n--;
}

/* Where the sum of a head in `slot` is to be made. */
static float *stack_push(stack *t, int64_t slot)
{
    while (t->n >= 2 && t->slot[t->n - 1] != slot) {
        uint64_t left = (uint64_t)(t->slot[t->n - 2] ^ t->slot[t->n - 1]),
                 right = (uint64_t)(t->slot[t->n - 1] ^ slot);
        if (__builtin_clzll(left) <= __builtin_clzll(right)) break;
        stack_join(t);
    }
    t->slot[t->n] = slot;
    return stack_at(t, t->n++);
}

static void store_dkv(const work *w, int64_t block)
{
    const tn_attention *a = w->a;
    const int64_t nd = w->p->nd, size = (nd + w->p->nv) * TN_ATT_PANEL;
    const bool half = a->bf16 && !a->dkv_fp32;
    for (int64_t i = 0; i < w->chunk.n; i++) {
        int64_t first = (block + i) * TN_ATT_BLOCK, left = a->t - first;
        int64_t rows = left < TN_ATT_BLOCK ? left : TN_ATT_BLOCK;
        int64_t at = (w->at.row * a->t + first) * a->g + w->at.kv_head;
        const float *sum = w->m.sums + i * size;
        tn_att_unpack(half, sum, rows, a->d, tn_v_from(w->p->dk, at * a->d, half), a->g * a->d);
        tn_att_unpack(half, sum + nd * TN_ATT_PANEL, rows, a->dv,
                      tn_v_from(w->p->d_v, at * a->dv, half), a->g * a->dv);
    }
}

static void item(const tn_att_plan *p, int64_t index, void *scratch)
{
    work w = {.p = p, .a = p->a, .at = tn_attention_place(p, index)};
    tn_attention_carve(p, scratch, &w.m);
    for (int64_t k = w.at.k_first; k < w.at.k_last; k += p->chunk) {
        const int64_t n = k + p->chunk < w.at.k_last ? p->chunk : w.at.k_last - k;
        w.chunk = tn_att_chunk_begin(p, &w.m, w.at.row, w.at.kv_head, k, n);
        stack t = {.w = &w};
        for (int64_t head = w.at.kv_head * p->rep, end = head + p->rep; head < end; head++) {
            int64_t slot = tn_attention_slot(p->a, p->a->first_head + head);
            float *sums = p->want_dkv ? stack_push(&t, slot) : NULL;
            head_chunk(&w, head, (turn){k == 0, k + n == p->t_blocks}, sums);
            if (t.n >= 2 && t.slot[t.n - 2] == slot) stack_join(&t);
        }
        while (t.n > 1) stack_join(&t);
        if (p->want_dkv) store_dkv(&w, k);
    }
}

const tn_attention_fns TN_ISA_NAME(tn_attention_bwd_fns) = {item};
