/* attention_isa.c - the forward pass of one item; see attention.h for the order of the sums,
 * attention_parts.h for the form. */
#include "kernels/cpu/attention_parts.h"

#include "kernels/cpu/attention_tile.h"

typedef struct work {
    const tn_att_plan *p;
    const tn_attention *a;
    tn_att_mem m;
    tn_att_place at;
    int64_t head, n_heads; /* of this pass over the keys */
    tn_att_chunk chunk;
    tn_att_fetch fetch;
} work;

static tn_att_state *state_at(const work *w, int64_t i)
{
    return (tn_att_state *)(void *)(w->m.states + (size_t)i * w->m.state_bytes);
}

/* Under every score, above what masks: a query that has seen nothing keeps it. */
static const float lowest = -1e30f;

static void state_init(tn_att_state *s, int64_t nv)
{
    for (int i = 0; i < TN_ATT_BLOCK; i++) s->m[i] = lowest, s->l[i] = 0;
    memset(s->o, 0, (size_t)nv * TN_ATT_PANEL * sizeof(float));
}

/* t of m keys and one strip, to p; the maximum with `top`. */
TN_VI tn_v score_tile(const int m, const bool masked, const work *w, const float *k,
                      const float *qt, float *p, const tn_att_sight *sight, const tn_att_keys *keys,
                      int64_t key, tn_v top)
{
    tn_v c[TN_TILE], scale = tn_v_set(w->p->c);
    tn_chain_dots(m, w->a->d, k, qt, c);
    TN_UNROLL for (int i = 0; i < m; i++)
    {
        c[i] = tn_v_mul(c[i], scale);
        if (masked) c[i] = tn_att_hide(sight, keys, key + i, c[i]);
        top = tn_v_max(top, c[i]);
        tn_v_store(p + 16 * i, c[i]);
    }
    return top;
}

TN_PHASE tn_v score_strip(work *w, int64_t block, int64_t strip, const tn_att_pair *pair)
{
    const float *k = w->m.k + block * w->p->nd * TN_ATT_PANEL,
                *qt = w->m.qt + strip * w->p->nd * 256;
    float *p = w->m.p + strip * TN_ATT_PANEL;
    const tn_att_keys *keys = w->m.keys + block;
    const tn_att_sight sight = tn_att_sight_of(w->m.queries, strip);
    tn_v top = tn_v_set(-__builtin_inff());
    for (int64_t key = pair->strip_lo[strip], end = key; key < pair->strip_hi[strip];) {
        if (key == end) {
            end += 16;
            tn_att_fetch_step(&w->fetch);
        }
        int rows = tn_tile_rows(end - key);
        uint32_t groups = 1u << (key / 8) | 1u << ((key + rows - 1) / 8);
        bool masked = (pair->masked[strip] & groups) != 0;
        const float *ki = k + 16 * key;
        float *pi = p + 16 * key;
        if (rows == TN_TILE && !masked)
            top = score_tile(TN_TILE, false, w, ki, qt, pi, &sight, keys, key, top);
        else if (rows == TN_TILE)
            top = score_tile(TN_TILE, true, w, ki, qt, pi, &sight, keys, key, top);
        else if (!masked) top = score_tile(4, false, w, ki, qt, pi, &sight, keys, key, top);
        else top = score_tile(4, true, w, ki, qt, pi, &sight, keys, key, top);
        key += rows;
    }
    return top;
}

/* t to p for the keys [lo, hi) of a strip; updates m and l; the factor for o to f. */
TN_PHASE void softmax_strip(float *p, int64_t lo, int64_t hi, tn_v top, float *m, float *l,
                            float *f)
{
    tn_v before = tn_v_load(m), now = tn_v_max(before, top), lanes[16];
    for (int64_t i = 0; i < 16; i++) {
        tn_v sum = tn_v_zero();
        for (int64_t key = lo + i; key < hi; key += 16) {
            tn_v x = tn_v_exp2(tn_v_sub(tn_v_load(p + 16 * key), now));
            tn_v_store(p + 16 * key, x);
            sum = tn_v_add(sum, x);
        }
        lanes[i] = sum;
    }
    tn_v factor = tn_v_exp2(tn_v_sub(before, now));
    tn_v_store(m, now);
    tn_v_store(f, factor);
    tn_v_store(l, tn_v_fma(tn_v_load(l), factor, tn_v_sum_rows(lanes)));
}

TN_VI void output_tile(const int m, int64_t n, const float *p, const float *v, const float *f,
                       float *o)
{
    tn_v acc[TN_TILE];
    TN_UNROLL for (int i = 0; i < m; i++) acc[i] = tn_v_mul(tn_v_load(o + 16 * i), tn_v_set(f[i]));
    tn_chain_cols(m, n, p, v, acc);
    TN_UNROLL for (int i = 0; i < m; i++) tn_v_store(o + 16 * i, acc[i]);
}

/* o = o f + p v for all queries that see a key of the block. */
TN_PHASE void output_block(work *w, int64_t block, const tn_att_pair *pair, const float *f,
                           float *o)
{
    const float *v = w->m.v + block * w->p->nv * TN_ATT_PANEL;
    for (int64_t c = 0; c < w->p->nv; c++, v += TN_ATT_PANEL, o += TN_ATT_PANEL) {
        for (int64_t q = 0, end = 0, rows; q < TN_ATT_BLOCK; q += rows) {
            if (q == end) {
                end += 16;
                tn_att_fetch_step(&w->fetch);
            }
            rows = tn_tile_rows(end - q);
            int64_t lo, hi;
            tn_att_pair_keys(pair, q, rows, &lo, &hi);
            if (lo >= hi) continue;
            const float *p = w->m.p + q / 16 * TN_ATT_PANEL + 16 * lo + q % 16;
            if (rows == TN_TILE) output_tile(TN_TILE, hi - lo, p, v + 16 * lo, f + q, o + 16 * q);
            else output_tile(4, hi - lo, p, v + 16 * lo, f + q, o + 16 * q);
        }
    }
}

static void attend(work *w, int64_t block, tn_att_state *s)
{
    tn_att_pair pair;
    float f[TN_ATT_BLOCK];
    if (!tn_att_pair_find(w->m.queries, w->m.keys + block, &pair)) return;
    tn_att_chunk_want(w->p, &w->m, &w->chunk, block, &w->fetch);
    for (int64_t strip = 0; strip < TN_ATT_STRIPS; strip++) {
        if (pair.strip_lo[strip] >= pair.strip_hi[strip]) continue;
        tn_v top = score_strip(w, block, strip, &pair);
        softmax_strip(w->m.p + strip * TN_ATT_PANEL, pair.strip_lo[strip], pair.strip_hi[strip],
                      top, s->m + 16 * strip, s->l + 16 * strip, f + 16 * strip);
    }
    output_block(w, block, &pair, f, s->o);
}

/* o (1 / l) + 0 and lse, to the outputs. */
TN_PHASE void finish(const work *w, int64_t head, int64_t first, tn_att_state *s)
{
    const tn_attention *a = w->a;
    const int64_t n = w->m.queries->n, at = (w->at.row * a->s + first) * a->h + head;
    float lse[TN_ATT_BLOCK], inverse[TN_ATT_BLOCK];
    for (int64_t q = 0; q < TN_ATT_BLOCK; q += 16) {
        tn_v l = tn_v_load(s->l + q), zero = tn_v_zero();
        tn_vmask none = tn_v_eq(l, zero);
        tn_v log_sum = tn_v_fma(tn_v_load(s->m + q), tn_v_set(0.69314718055994531f), tn_v_log(l));
        tn_v_store(lse + q, tn_v_select(none, tn_v_set(-__builtin_inff()), log_sum));
        tn_v_store(inverse + q, tn_v_select(none, zero, tn_v_div(tn_v_set(1.0f), l)));
    }
    for (int64_t q = 0; q < n; q++) a->lse[at + q * a->h] = lse[q];
    for (int64_t c = 0; c < w->p->nv; c++) {
        for (int64_t q = 0; q < n; q++) {
            tn_v o = tn_v_load(s->o + c * TN_ATT_PANEL + 16 * q);
            o = tn_v_add(tn_v_mul(o, tn_v_set(inverse[q])), tn_v_zero());
            void *row = tn_v_from(a->o, (at + q * a->h) * a->dv, a->bf16);
            if (a->bf16) tn_att_store(true, row, 16 * c, a->dv, o);
            else tn_att_store(false, row, 16 * c, a->dv, o);
        }
    }
}

static const void *query_row(const work *w, int64_t q, int64_t head)
{
    const tn_attention *a = w->a;
    return tn_v_at(a->q, ((w->at.row * a->s + q) * a->h + head) * a->d, a->bf16);
}

/* To be fetched while these queries are worked on: their outputs, and what comes next. */
static void fetch_queries(work *w, int64_t head, int64_t block)
{
    const tn_attention *a = w->a;
    int64_t first = block * TN_ATT_BLOCK, at = (w->at.row * a->s + first) * a->h + head;
    w->fetch = (tn_att_fetch){0};
    tn_att_fetch_add(&w->fetch, a->bf16, tn_v_at(a->o, at * a->dv, a->bf16), a->h * a->dv,
                     a->s - first, a->dv);
    if (++head == w->head + w->n_heads) {
        head = w->head;
        first += TN_ATT_BLOCK;
        if (++block == w->at.q_last)
            return; /* the next item's, guessed and fetched here, made no difference */
    }
    tn_att_fetch_add(&w->fetch, a->bf16, query_row(w, first, head), a->h * a->d, a->s - first,
                     a->d);
}

/* The chunk's keys with all queries of the item. */
static void attend_chunk(work *w, bool begins, bool ends)
{
    const tn_attention *a = w->a;
    const bool only = w->p->states == 1;
    const int64_t n_blocks = w->chunk.n;
    for (int64_t qb = w->at.q_first; qb < w->at.q_last; qb++) {
        const int64_t first = qb * TN_ATT_BLOCK;
        tn_attention_queries(a, w->at.row, first, w->m.queries);
        const int64_t n = w->m.queries->n;
        const bool any = tn_att_pair_any(w->m.queries, w->m.keys, n_blocks);
        for (int64_t i = 0; i < w->n_heads; i++) {
            const int64_t head = w->head + i;
            tn_att_state *s = state_at(w, only ? 0 : (qb - w->at.q_first) * w->n_heads + i);
            if (begins) state_init(s, w->p->nv);
            if (any) {
                tn_att_turn(a->bf16, query_row(w, first, head), a->h * a->d, 16, n, a->d, w->m.qt);
                fetch_queries(w, head, qb);
            }
            for (int64_t block = 0; any && block < n_blocks; block++) attend(w, block, s);
            if (ends) finish(w, head, first, s);
        }
    }
}

static void item(const tn_att_plan *p, int64_t index, void *scratch)
{
    work w = {.p = p, .a = p->a, .at = tn_attention_place(p, index)};
    tn_attention_carve(p, scratch, &w.m);
    for (int64_t i = 0; i < p->rep; i += p->heads) {
        w.head = w.at.kv_head * p->rep + i;
        w.n_heads = i + p->heads < p->rep ? p->heads : p->rep - i;
        for (int64_t k = 0; k < p->t_blocks; k += p->chunk) {
            int64_t n = k + p->chunk < p->t_blocks ? p->chunk : p->t_blocks - k;
            w.chunk = tn_att_chunk_begin(p, &w.m, w.at.row, w.at.kv_head, k, n);
            attend_chunk(&w, k == 0, k + n == p->t_blocks);
        }
    }
}

const tn_attention_fns TN_ISA_NAME(tn_attention_fwd_fns) = {item};
