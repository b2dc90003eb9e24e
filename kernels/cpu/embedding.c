/* embedding.c - plans the gradient: tokens sorted by id, when the parts of the sum come together,
 * pieces of equal work. */
#include "kernels/cpu/embedding.h"

#include "kernels/cpu/dispatch.h"

#include <assert.h>
#include <string.h>

TN_ISA_TABLES(tn_embedding_fns, tn_embedding_fns);
static const tn_embedding_fns *const by_isa[TN_N_ISA] = TN_BY_ISA(tn_embedding_fns);

typedef struct forward_job {
    const tn_embedding_fns *fns;
    const tn_embedding_args *args;
    int64_t items;
} forward_job;

static void forward_tile(void *arg, int64_t tile, int thread)
{
    const forward_job *j = arg;
    (void)thread;
    j->fns->forward(j->args, tile * j->items, tn_tile_end(j->args->tokens, j->items, tile));
}

void tn_embedding_forward(const tn_cpu *cpu, const tn_embedding_args *a)
{
    forward_job j = {by_isa[cpu->isa], a, tn_tile_items(cpu, a->tokens, 8 * a->d)};
    tn_pool_run(cpu->pool, tn_tile_count(a->tokens, j.items), forward_tile, &j);
}

/* ---- backward ---- */

enum { MAX_PIECES = 64 };

typedef struct backward_job {
    const tn_embedding_fns *fns;
    tn_embedding_plan plan;
    int64_t columns; /* of a tile */
    int pieces;
    int64_t begin[MAX_PIECES + 2]; /* the local ids of a piece */
} backward_job;

size_t tn_embedding_scratch(int64_t tokens, int64_t v_count)
{
    return (size_t)(v_count + 2 + 3 * tokens + TN_ORDER_MAX_DEPTH) * sizeof(int32_t);
}

static bool find_id(const tn_embedding_grad_args *a, int64_t token, int64_t *v_out)
{
    *v_out = a->ids[token] - a->v_begin;
    return *v_out >= 0 && *v_out < a->v_count;
}

/* Stable counting sort of the tokens by id; first[v + 1] moves from the begin of v to its end while
 * they are placed. */
static void sort_tokens(const tn_embedding_grad_args *a, int32_t *first, int32_t *token,
                        int32_t *item)
{
    int64_t v;
    memset(first, 0, (size_t)(a->v_count + 2) * sizeof *first);
    for (int64_t i = 0; i < a->run.n; i++)
        for (int64_t k = a->run.ins[i].k0;
             a->run.ins[i].op == TN_ORDER_LEAF && k < a->run.ins[i].k1; k++)
            if (find_id(a, k, &v)) first[v + 2]++;
    for (v = 0; v < a->v_count; v++) first[v + 2] += first[v + 1];
    int32_t now = a->run.depth_in;
    bool tokens = false;
    for (int64_t i = 0; i < a->run.n; i++) {
        const tn_order_ins *s = a->run.ins + i;
        if (s->op != TN_ORDER_LEAF) continue;
        assert(s->k1 <= a->tokens);
        for (int64_t k = s->k0; k < s->k1; k++) {
            if (!find_id(a, k, &v)) continue;
            token[first[v + 1]] = (int32_t)k;
            item[first[v + 1]++] = now;
        }
        tokens = tokens || s->k1 > s->k0;
        if (s->more) continue;
        now += tokens;
        tokens = false;
    }
}

/* Walks the program once; a stack entry is the range of items that it sums (empty: a leaf without
 * tokens). */
static void find_joins(const tn_order_run *run, int32_t *join, int32_t *level_begin)
{
    int32_t end[TN_ORDER_MAX_DEPTH + 1], begin[TN_ORDER_MAX_DEPTH + 1], items = run->depth_in;
    int depth = run->depth_in;
    bool open = false;
    for (int l = 0; l < depth; l++) {
        begin[l] = l;
        end[l] = l + 1;
        join[l] = INT32_MAX;
    }
    for (int64_t i = 0; i < run->n; i++) {
        const tn_order_ins *s = run->ins + i;
        if (s->op == TN_ORDER_ADD) {
            depth--;
            const bool both = begin[depth - 1] < end[depth - 1] && begin[depth] < end[depth];
            if (both) join[end[depth - 1] - 1] = (int32_t)i + 1;
            end[depth - 1] = end[depth];
            continue;
        }
        if (!open) begin[depth] = end[depth] = items;
        if (s->k1 > s->k0 && end[depth] == begin[depth]) {
            join[items++] = INT32_MAX;
            end[depth] = items;
        }
        open = s->more;
        if (!open) depth++;
    }
    assert(depth == run->depth_out);
    for (int l = 0; l < depth; l++) level_begin[l] = begin[l];
    level_begin[depth] = items;
}

/* Pieces of about equal work: a row that is cleared counts as much as a token that is added. */
static void cut_pieces(backward_job *j)
{
    const int32_t *first = j->plan.first;
    const int64_t v_count = j->plan.a->v_count, least = TN_TILE_MIN_BYTES / (4 * j->columns) + 1;
    int64_t work = 0, share = (v_count + first[v_count]) / MAX_PIECES + 1;
    if (share < least) share = least;
    for (int64_t v = 0; v < v_count; v++) {
        work += 1 + first[v + 1] - first[v];
        if (work < share) continue;
        j->begin[++j->pieces] = v + 1;
        work = 0;
    }
    if (work) j->begin[++j->pieces] = v_count;
}

static void backward_tile(void *arg, int64_t tile, int thread)
{
    const backward_job *j = arg;
    const int64_t piece = tile % j->pieces, c = tile / j->pieces * j->columns,
                  rest = j->plan.a->d - c;
    (void)thread;
    j->fns->backward(&j->plan, j->begin[piece], j->begin[piece + 1], c,
                     rest < j->columns ? rest : j->columns);
}

void tn_embedding_backward(const tn_cpu *cpu, const tn_embedding_grad_args *a)
{
    int32_t *first = cpu->scratch, *token = first + a->v_count + 2, *item = token + a->tokens,
            *join = item + a->tokens;
    backward_job j = {.fns = by_isa[cpu->isa],
                      .plan = {.a = a, .first = first, .token = token, .item = item, .join = join},
                      .columns = a->d < TN_EMBEDDING_COLS ? a->d : TN_EMBEDDING_COLS};
    assert(cpu->scratch_bytes >= tn_embedding_scratch(a->tokens, a->v_count));
    sort_tokens(a, first, token, item);
    find_joins(&a->run, join, j.plan.level_begin);
    cut_pieces(&j);
    tn_pool_run(cpu->pool, j.pieces * ((a->d + j.columns - 1) / j.columns), backward_tile, &j);
}
