/* attention.c - cuts attention into items and lays out scratch; what a query sees (attention.h,
 * attention_parts.h). */
#include "kernels/cpu/attention_parts.h"

#include "kernels/cpu/dispatch.h"

#include <assert.h>

TN_ISA_TABLES(tn_attention_fns, tn_attention_fwd_fns);
TN_ISA_TABLES(tn_attention_fns, tn_attention_bwd_fns);
static const tn_attention_fns *const fwd_by_isa[TN_N_ISA] = TN_BY_ISA(tn_attention_fwd_fns);
static const tn_attention_fns *const bwd_by_isa[TN_N_ISA] = TN_BY_ISA(tn_attention_bwd_fns);

enum {
    CHUNK_FLOATS =
        64 << 10, /* packed keys and values: a quarter of a second-level cache of 1 MiB */
    STATE_FLOATS = 128 << 10, /* outputs kept between chunks */
    KEPT_FLOATS = 1 << 20,    /* dq likewise, where its memory is bf16 */
    ITEMS_PER_THREAD = 8,
    SKEW = 320, /* bytes between buffers, so that buffers of 2^n bytes do not begin in the same
                   cache set */
};

static int64_t min64(int64_t x, int64_t y)
{
    return x < y ? x : y;
}
static int64_t max64(int64_t x, int64_t y)
{
    return x > y ? x : y;
}
static int64_t ceil_div(int64_t x, int64_t y)
{
    return (x + y - 1) / y;
}

int64_t tn_attention_slot(const tn_attention *a, int64_t head)
{
    int64_t r = 0;
    while ((r + 1) * a->units / a->head_parts <= head) r++;
    return r;
}

static int64_t cut(const tn_attention *a, int64_t j)
{
    return j * a->s / a->seq_parts;
}

int64_t tn_attention_segments(const tn_attention *a, int64_t first, int64_t n, tn_att_segment *out)
{
    int64_t j = first * a->seq_parts / a->s, count = 0;
    while (cut(a, j + 1) <= first) j++;
    for (int64_t q = first; q < first + n; j++) {
        int64_t end = min64(cut(a, j + 1), first + n);
        if (end <= q) continue;
        out[count++] = (tn_att_segment){q - first, end - first, j, cut(a, j) < first,
                                        cut(a, j + 1) <= first + n};
        q = end;
    }
    return count;
}

static int64_t log2_floor(int64_t x)
{
    int64_t n = 0;
    while (x >>= 1) n++;
    return n;
}

/* Of n blocks: as many as leave every thread enough items to share. */
static int64_t blocks_per_item(const tn_att_plan *p, int64_t n, int n_threads)
{
    int64_t blocks = max64(1, n), least = (int64_t)n_threads * ITEMS_PER_THREAD;
    if (n_threads == 1) return blocks;
    while (blocks > 1 && p->a->b * p->a->g * ceil_div(n, blocks) < least) blocks = (blocks + 1) / 2;
    return blocks;
}

static void plan_fwd(tn_att_plan *p, int n_threads)
{
    p->q_blocks = blocks_per_item(p, p->s_blocks, n_threads);
    p->k_blocks = p->t_blocks;
    p->heads = p->rep;
    p->states = 1;
    if (p->chunk < p->t_blocks) {
        int64_t most = max64(1, STATE_FLOATS / (p->nv * TN_ATT_PANEL));
        p->heads = min64(p->rep, most);
        p->q_blocks = min64(p->q_blocks, most / p->heads);
        p->states = p->q_blocks * p->heads;
    }
    p->q_items = max64(1, ceil_div(p->s_blocks, p->q_blocks));
}

/* One pass over (row, kv head) makes all three gradients with five products per block; where there
 * are too few of those for the threads (or too much dq to keep), dq and dk, dv are made apart,
 * split further, with seven: tn_attention_bwd makes two plans of the one. The bits are the same. */
static bool apart(const tn_att_plan *p, int n_threads)
{
    int64_t n = p->a->b * p->a->g, threads = n_threads;
    return 7 * n < 5 * ceil_div(n, threads) * threads;
}

/* dq is kept where several chunks of keys add to it and its memory would round it in between. */
static void plan_kept(tn_att_plan *p)
{
    int64_t most = max64(1, KEPT_FLOATS / (p->rep * p->nd * TN_ATT_PANEL));
    if (!p->a->bf16 || p->chunk >= p->t_blocks) return;
    p->apart = p->apart || p->q_blocks > most;
    p->q_blocks = min64(p->q_blocks, most);
    p->kept = p->rep * p->q_blocks;
}

static void plan_bwd(tn_att_plan *p, int n_threads)
{
    const tn_attention *a = p->a;
    p->want_dq = p->want_dkv = true;
    p->q_blocks = max64(1, p->s_blocks);
    p->k_blocks = p->t_blocks;
    p->q_items = 1;
    p->sums = p->rep == 1 ? 1 : min64(p->rep, log2_floor(a->head_parts) + 2);
    for (int64_t q = TN_ATT_BLOCK; q < a->s; q += TN_ATT_BLOCK)
        p->leaves = p->leaves || cut(a, ceil_div(q * a->seq_parts, a->s)) != q;
    p->apart = apart(p, n_threads);
    if (p->apart) p->q_blocks = blocks_per_item(p, p->s_blocks, n_threads);
    plan_kept(p);
    if (p->apart) p->k_blocks = blocks_per_item(p, p->t_blocks, n_threads);
}

static tn_att_plan plan(int n_threads, const tn_attention *a, bool backward)
{
    assert(a->h % a->g == 0 && a->seq_parts > 0 && (a->head_parts & (a->head_parts - 1)) == 0);
    tn_att_plan p = {
        .a = a, .backward = backward, .c = (float)((double)a->scale * 1.4426950408889634)};
    p.rep = a->h / a->g;
    p.nd = ceil_div(a->d, 16);
    p.nv = ceil_div(a->dv, 16);
    p.s_blocks = ceil_div(a->s, TN_ATT_BLOCK);
    p.t_blocks = max64(1, ceil_div(a->t, TN_ATT_BLOCK));
    p.chunk = min64(p.t_blocks, max64(1, CHUNK_FLOATS / ((p.nd + p.nv) * TN_ATT_PANEL)));
    if (backward) plan_bwd(&p, n_threads);
    else plan_fwd(&p, n_threads);
    p.n_items = a->b * a->g * p.q_items;
    return p;
}

tn_att_place tn_attention_place(const tn_att_plan *p, int64_t item)
{
    const int64_t n_kv = p->a->b * p->a->g, outer = item / n_kv;
    const int64_t q = p->q_items - 1 - outer % p->q_items, k = outer / p->q_items;
    return (tn_att_place){.row = item % n_kv / p->a->g,
                          .kv_head = item % p->a->g,
                          .q_first = q * p->q_blocks,
                          .q_last = min64((q + 1) * p->q_blocks, p->s_blocks),
                          .k_first = k * p->k_blocks,
                          .k_last = min64((k + 1) * p->k_blocks, p->t_blocks)};
}

static void *take(char *base, size_t *used, int64_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += ((size_t)bytes + 63) / 64 * 64 + SKEW;
    return at;
}

size_t tn_attention_carve(const tn_att_plan *p, void *base, tn_att_mem *m)
{
    const int64_t f = (int64_t)sizeof(float), panel = TN_ATT_PANEL * f,
                  weights = TN_ATT_BLOCK * TN_ATT_BLOCK * f;
    size_t used = 0;
    m->k = take(base, &used, p->chunk * p->nd * panel);
    m->v = take(base, &used, p->chunk * p->nv * panel);
    m->keys = take(base, &used, p->chunk * (int64_t)sizeof *m->keys);
    m->queries = take(base, &used, (int64_t)sizeof *m->queries);
    m->qt = take(base, &used, p->nd * panel);
    m->p = take(base, &used, weights);
    m->state_bytes = sizeof(tn_att_state) + (size_t)(p->nv * panel);
    if (!p->backward) {
        m->states = take(base, &used, p->states * (int64_t)m->state_bytes);
        return used;
    }
    m->sum_floats = p->chunk * (p->nd + p->nv) * TN_ATT_PANEL;
    m->q = take(base, &used, p->nd * panel);
    m->d_o = take(base, &used, p->nv * panel);
    m->dot = take(base, &used, p->nv * panel);
    m->ds = take(base, &used, weights);
    m->dq = take(base, &used, max64(1, p->kept) * p->nd * panel);
    m->sums = take(base, &used, p->sums * m->sum_floats * f);
    m->leaf = take(base, &used, p->leaves ? m->sum_floats * f : 0);
    m->open = take(base, &used, p->chunk * (int64_t)sizeof *m->open);
    m->segments = take(base, &used, TN_ATT_BLOCK * (int64_t)sizeof *m->segments);
    return used;
}

static void bound(const int32_t *x, int32_t *least, int32_t *most)
{
    int32_t lowest = INT32_MAX, highest = INT32_MIN;
    for (int g = 0; g < TN_ATT_GROUPS; g++, x += TN_ATT_GROUP) {
        int32_t lo = x[0], hi = x[0];
        for (int i = 1; i < TN_ATT_GROUP; i++) {
            lo = x[i] < lo ? x[i] : lo;
            hi = x[i] > hi ? x[i] : hi;
        }
        least[g] = lo, most[g] = hi;
        lowest = lo < lowest ? lo : lowest;
        highest = hi > highest ? hi : highest;
    }
    least[TN_ATT_GROUPS] = lowest, most[TN_ATT_GROUPS] = highest;
}

void tn_attention_keys(const tn_attention *a, int64_t row, int64_t first, tn_att_keys *out)
{
    for (int64_t i = 0; i < TN_ATT_BLOCK; i++) {
        bool real = first + i < a->t;
        int64_t at = row * a->t + min64(first + i, a->t - 1);
        out->pos[i] = real ? a->k_pos[at] : INT32_MAX;
        out->doc[i] = a->t ? a->k_doc[at] : 0;
    }
    bound(out->pos, out->pos_min, out->pos_max);
    bound(out->doc, out->doc_min, out->doc_max);
}

void tn_attention_queries(const tn_attention *a, int64_t row, int64_t first, tn_att_queries *out)
{
    out->n = min64(TN_ATT_BLOCK, a->s - first);
    for (int64_t i = 0; i < TN_ATT_BLOCK; i++) {
        int64_t at = row * a->s + min64(first + i, a->s - 1), pos = a->q_pos[at];
        out->hi[i] = a->causal ? (int32_t)pos : INT32_MAX - 1;
        out->lo[i] = a->window ? (int32_t)max64(pos - a->window, INT32_MIN) : INT32_MIN;
        out->doc[i] = a->q_doc[at];
    }
    bound(out->lo, out->lo_min, out->lo_max);
    bound(out->hi, out->hi_min, out->hi_max);
    bound(out->doc, out->doc_min, out->doc_max);
}

typedef struct job {
    const tn_attention_fns *fns;
    const tn_att_plan *plan;
    char *scratch;
    size_t thread_bytes;
} job;

static void run_item(void *arg, int64_t item, int thread)
{
    const job *j = arg;
    j->fns->item(j->plan, item, j->scratch + (size_t)thread * j->thread_bytes);
}

static void run(const tn_cpu *cpu, const tn_attention_fns *fns, const tn_att_plan *p)
{
    tn_att_mem mem;
    job j = {fns, p, cpu->scratch, (tn_attention_carve(p, NULL, &mem) + 63) / 64 * 64};
    assert((size_t)tn_pool_threads(cpu->pool) * j.thread_bytes <= cpu->scratch_bytes);
    tn_pool_run(cpu->pool, p->n_items, run_item, &j);
}

size_t tn_attention_scratch(int n_threads, const tn_attention *a, bool backward)
{
    tn_att_mem mem;
    tn_att_plan p = plan(n_threads, a, backward);
    return (tn_attention_carve(&p, NULL, &mem) + 63) / 64 * 64 * (size_t)n_threads;
}

void tn_attention_fwd(const tn_cpu *cpu, const tn_attention *a)
{
    tn_att_plan p = plan(tn_pool_threads(cpu->pool), a, false);
    run(cpu, fwd_by_isa[cpu->isa], &p);
}

void tn_attention_bwd(const tn_cpu *cpu, const tn_attention *a, const void *d_o, void *dq, void *dk,
                      void *d_v)
{
    int n_threads = tn_pool_threads(cpu->pool);
    tn_att_plan p = plan(n_threads, a, true);
    p.d_o = d_o, p.dq = dq, p.dk = dk, p.d_v = d_v;
    if (!p.apart) {
        run(cpu, bwd_by_isa[cpu->isa], &p);
        return;
    }
    tn_att_plan one = p, two = p;
    one.want_dkv = false;
    one.k_blocks = p.t_blocks;
    one.q_items = max64(1, ceil_div(p.s_blocks, p.q_blocks));
    one.n_items = a->b * a->g * one.q_items;
    run(cpu, bwd_by_isa[cpu->isa], &one);
    two.want_dq = false;
    two.kept = 0;
    two.q_blocks = max64(1, p.s_blocks);
    two.n_items = a->b * a->g * ceil_div(p.t_blocks, p.k_blocks);
    run(cpu, bwd_by_isa[cpu->isa], &two);
}
