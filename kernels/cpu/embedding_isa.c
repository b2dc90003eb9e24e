/* embedding_isa.c - gathers rows, and sums the rows of each id; see embedding.h. */
#include "kernels/cpu/embedding.h"

#include "kernels/cpu/bf16.h"

/* y = x + (+0) */
TN_VI void copy_row(const bool to_bf16, void *y, const bool bf16, const void *x, int64_t n)
{
    int64_t i = 0;
    for (; i + TN_VL <= n; i += TN_VL)
        tn_v_put(y, i, tn_v_add(tn_v_get(x, i, bf16), tn_v_zero()), to_bf16);
    if (i < n) {
        tn_vmask m = tn_v_mask(n - i);
        tn_v_put_mask(y, i, m, tn_v_add(tn_v_get_mask(x, i, m, bf16), tn_v_zero()), to_bf16);
    }
}

/* y = y + x */
TN_VI void add_row(float *y, const bool bf16, const void *x, int64_t n)
{
    int64_t i = 0;
    for (; i + TN_VL <= n; i += TN_VL)
        tn_v_store(y + i, tn_v_add(tn_v_load(y + i), tn_v_get(x, i, bf16)));
    if (i < n) {
        tn_vmask m = tn_v_mask(n - i);
        tn_v_store_mask(y + i, m, tn_v_add(tn_v_load_mask(y + i, m), tn_v_get_mask(x, i, m, bf16)));
    }
}

TN_VI void forward_as(const bool to_bf16, const bool bf16, const tn_embedding_args *a,
                      int64_t begin, int64_t end)
{
    const int64_t d = a->d;
    for (int64_t t = begin; t < end; t++) {
        const int64_t v = a->ids[t] - a->v_begin;
        void *y = tn_v_from(a->y, t * d, to_bf16);
        if (v >= 0 && v < a->v_count) copy_row(to_bf16, y, bf16, tn_v_at(a->table, v * d, bf16), d);
        else memset(y, 0, (size_t)d * (to_bf16 ? 2 : 4));
    }
}

static void forward(const tn_embedding_args *a, int64_t begin, int64_t end)
{
    if (!a->table_bf16) forward_as(false, false, a, begin, end);
    else if (a->y_bf16) forward_as(true, true, a, begin, end);
    else forward_as(false, true, a, begin, end);
}

/* The row of token k: the first of a chain, or one more. */
TN_VI void take_row(const tn_embedding_grad_args *a, bool first, float *x, int64_t k, int64_t c,
                    int64_t n)
{
    const void *dy = tn_v_at(a->dy, k * a->d + c, a->bf16);
    if (a->bf16 && first) copy_row(false, x, true, dy, n);
    else if (a->bf16) add_row(x, true, dy, n);
    else if (first) copy_row(false, x, false, dy, n);
    else add_row(x, false, dy, n);
}

/* The partial sums of one level of one row: sum k waits for what comes right of it, and meets sum k
 * - 1 at meet[k]. meet falls strictly, as the path from the root to a leaf does, so there are no
 * more sums than the program has levels. */
typedef struct sums {
    float x[TN_ORDER_MAX_DEPTH][TN_EMBEDDING_COLS];
    int32_t meet[TN_ORDER_MAX_DEPTH], last; /* the newest item */
    int n;
} sums;

static void pop(sums *s, int64_t n)
{
    s->n--;
    add_row(s->x[s->n - 1], false, s->x[s->n], n);
}

/* Makes room for the next item: first adds what meets before it meets the newest. */
static float *push(sums *s, const int32_t *join, int32_t item, int64_t n)
{
    int32_t meet = 0;
    for (int32_t i = s->last; s->n > 0 && i < item; i++) meet = join[i] > meet ? join[i] : meet;
    while (s->n > 1 && s->meet[s->n - 1] < meet) pop(s, n);
    s->meet[s->n] = meet;
    s->last = item;
    return s->x[s->n++];
}

/* Levels above this size are written past the caches: six times as fast where most rows are
 * cleared, and who reads them next would not find them there anyway. */
static bool streams(const tn_embedding_grad_args *a)
{
    return a->v_count * a->d > (16 << 20) / (int64_t)sizeof(float);
}

/* y = x, or 0 where x is NULL */
static void write_row(float *y, const float *x, int64_t n, bool stream)
{
    int64_t i = 0;
    if (stream) {
        for (; i < n && (uintptr_t)(y + i) % 64; i++) y[i] = x ? x[i] : 0;
        for (; i + TN_VL <= n; i += TN_VL) tn_v_stream(y + i, x ? tn_v_load(x + i) : tn_v_zero());
    }
    if (x) memcpy(y + i, x + i, (size_t)(n - i) * sizeof *y);
    else memset(y + i, 0, (size_t)(n - i) * sizeof *y);
}

/* Columns [c, c + n) of one row of output level l; tokens [*at, end) of the id are left, those of
 * the level are taken. */
static void sum_level(const tn_embedding_plan *p, sums *s, int64_t v, int l, int32_t *at, int64_t c,
                      int64_t n)
{
    const tn_embedding_grad_args *a = p->a;
    const int32_t begin = p->level_begin[l], end = p->level_begin[l + 1], id_end = p->first[v + 1];
    const int32_t memory_end = end < a->run.depth_in ? end : a->run.depth_in;
    float *out = a->stack[l] + v * a->d + c;
    const bool tokens = *at < id_end && p->item[*at] < end;
    if (!tokens && begin == l && memory_end == l + 1) return; /* nothing new */
    s->n = 0;
    for (int32_t i = begin; i < memory_end; i++)
        memcpy(push(s, p->join, i, n), a->stack[i] + v * a->d + c, (size_t)n * sizeof(float));
    while (*at < id_end && p->item[*at] < end) {
        const int32_t item = p->item[*at];
        float *x = push(s, p->join, item, n);
        take_row(a, true, x, p->token[(*at)++], c, n);
        for (; *at < id_end && p->item[*at] == item; (*at)++)
            take_row(a, false, x, p->token[*at], c, n);
    }
    while (s->n > 1) pop(s, n);
    write_row(out, s->n ? s->x[0] : NULL, n, streams(a));
}

/* Rows [v, end) have no token in the run. */
static void rows_without(const tn_embedding_plan *p, sums *s, int64_t v, int64_t end, int64_t c,
                         int64_t n)
{
    const tn_embedding_grad_args *a = p->a;
    for (int l = 0; l < a->run.depth_out; l++) {
        if (p->level_begin[l] < a->run.depth_in) {
            for (int64_t row = v; row < end; row++) {
                int32_t at = p->first[row + 1];
                sum_level(p, s, row, l, &at, c, n);
            }
        } else if (c == 0) {
            write_row(a->stack[l] + v * a->d, NULL, (end - v) * a->d, streams(a));
        }
    }
}

static void backward(const tn_embedding_plan *p, int64_t begin, int64_t end, int64_t c, int64_t n)
{
    sums s;
    for (int64_t v = begin, next; v < end; v = next) {
        next = v + 1;
        if (p->first[v] == p->first[v + 1]) {
            while (next < end && p->first[next] == p->first[next + 1]) next++;
            rows_without(p, &s, v, next, c, n);
            continue;
        }
        int32_t at = p->first[v];
        for (int l = 0; l < p->a->run.depth_out; l++) sum_level(p, &s, v, l, &at, c, n);
    }
    tn_v_stream_end();
}

extern const tn_embedding_fns TN_ISA_NAME(tn_embedding_fns);
const tn_embedding_fns TN_ISA_NAME(tn_embedding_fns) = {forward, backward};
