/* embedding.c - plain adds of whole rows: no instruction set can change a bit, so there is one version.
 *
 * Backward: tokens are sorted by id (counting sort, stable). Each id then evaluates the run's program on its own tokens: leaves
 * without a token of it are absent, an ADD with one absent side passes the other through. Levels that come from or go to memory
 * are dense; adding a +0 level changes nothing, since no sum is ever -0. */
#include "kernels/cpu/embedding.h"

#include <string.h>

enum { COLUMNS = 512, IDS = 64 }; /* of one piece of work */

static void forward_tile(void *arg, int64_t tile, int thread)
{
    const tn_embedding_args *a = arg;
    int64_t begin = tile * IDS, end = begin + IDS < a->tokens ? begin + IDS : a->tokens;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        int64_t v = a->ids[t] - a->v_begin;
        float *y = a->y + t * a->d;
        if (v < 0 || v >= a->v_count) {
            memset(y, 0, (size_t)a->d * sizeof *y);
            continue;
        }
        const float *x = a->table + v * a->d;
        for (int64_t i = 0; i < a->d; i++) y[i] = x[i] + 0.0f;
    }
}

void tn_embedding_forward(const tn_cpu *cpu, const tn_embedding_args *a)
{
    tn_pool_run(cpu->pool, (a->tokens + IDS - 1) / IDS, forward_tile, (void *)(uintptr_t)a);
}

/* ---------------------------------------------------------------------------------------------- backward */

typedef struct job {
    const tn_embedding_grad_args *a;
    const int32_t *first; /* by local id: its tokens are order[first[v] .. first[v + 1]) */
    const int32_t *order;
} job;

typedef struct level {
    float x[COLUMNS];
    bool here;
} level;

static void add_into(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = x[i] + y[i];
}

/* The program of columns [c, c + n) of one id. Token k of a LEAF is counted from the run's first token. */
static void evaluate(const job *j, int64_t v, int64_t c, int64_t n)
{
    const tn_embedding_grad_args *a = j->a;
    level stack[TN_ORDER_MAX_DEPTH + 1];
    int depth = a->run.depth_in;
    int32_t at = j->first[v], end = j->first[v + 1];
    for (int l = 0; l < depth; l++) {
        memcpy(stack[l].x, a->stack[l] + v * a->d + c, (size_t)n * sizeof(float));
        stack[l].here = true;
    }
    bool continues = false;
    for (int64_t i = 0; i < a->run.n; i++) {
        const tn_order_ins *s = &a->run.ins[i];
        if (s->op == TN_ORDER_ADD) {
            level *left = &stack[depth - 2], *right = &stack[depth - 1];
            if (right->here && left->here) add_into(left->x, right->x, n);
            else if (right->here) *left = *right;
            depth--;
            continue;
        }
        level *l = &stack[depth];
        if (!continues) {
            l->here = false;
            depth++;
        } else {
            l = &stack[depth - 1];
        }
        for (; at < end && j->order[at] < s->k1; at++) {
            const float *g = a->dy + (int64_t)j->order[at] * a->d + c;
            if (l->here) add_into(l->x, g, n);
            else
                for (int64_t q = 0; q < n; q++) l->x[q] = 0.0f + g[q];
            l->here = true;
        }
        continues = s->more;
    }
    for (int l = 0; l < depth; l++) {
        float *to = a->stack[l] + v * a->d + c;
        if (stack[l].here) memcpy(to, stack[l].x, (size_t)n * sizeof(float));
        else memset(to, 0, (size_t)n * sizeof(float));
    }
}

/* Nothing of this id in the run, and nothing before it: all levels are zero. */
static void clear(const job *j, int64_t v)
{
    for (int l = 0; l < j->a->run.depth_out; l++) memset(j->a->stack[l] + v * j->a->d, 0, (size_t)j->a->d * sizeof(float));
}

static void backward_tile(void *arg, int64_t tile, int thread)
{
    const job *j = arg;
    int64_t begin = tile * IDS, end = begin + IDS < j->a->v_count ? begin + IDS : j->a->v_count;
    (void)thread;
    for (int64_t v = begin; v < end; v++) {
        if (j->first[v] == j->first[v + 1] && j->a->run.depth_in == 0) {
            clear(j, v);
            continue;
        }
        for (int64_t c = 0; c < j->a->d; c += COLUMNS) evaluate(j, v, c, j->a->d - c < COLUMNS ? j->a->d - c : COLUMNS);
    }
}

size_t tn_embedding_scratch(int64_t tokens, int64_t v_count)
{
    return (size_t)(tokens + v_count + 2) * sizeof(int32_t);
}

void tn_embedding_backward(const tn_cpu *cpu, const tn_embedding_grad_args *a)
{
    int32_t *first = cpu->scratch, *order = first + a->v_count + 2;
    memset(first, 0, (size_t)(a->v_count + 2) * sizeof *first);
    for (int64_t t = 0; t < a->tokens; t++) {
        int64_t v = a->ids[t] - a->v_begin;
        if (v >= 0 && v < a->v_count) first[v + 2]++;
    }
    for (int64_t v = 0; v < a->v_count; v++) first[v + 2] += first[v + 1];
    for (int64_t t = 0; t < a->tokens; t++) {
        int64_t v = a->ids[t] - a->v_begin;
        if (v >= 0 && v < a->v_count) order[first[v + 1]++] = (int32_t)t;
    }
    job j = {a, first, order};
    tn_pool_run(cpu->pool, (a->v_count + IDS - 1) / IDS, backward_tile, &j);
}
