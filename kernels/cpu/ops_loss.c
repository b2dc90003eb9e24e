/* ops_loss.c - the kernels of embedding, the loss, counts and exact sums. */
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/exact.h"
#include "kernels/cpu/loss.h"
#include "kernels/kernel.h"

#include <math.h>
#include <string.h>

_Static_assert(sizeof(tn_exact) == TN_EXACT_BYTES, "the graph plans exact sums of this size");

static void embedding(const tn_call *c)
{
    const tn_value *w = tn_call_in(c, 1);
    tn_embedding_args a = {.tokens = tn_value_elements(tn_call_in(c, 0)),
                           .d = w->dim[1].extent,
                           .v_count = w->dim[0].extent,
                           .v_begin = tn_call_in_begin(c, 1)[0],
                           .ids = c->in[0],
                           .table = c->in[1],
                           .y = c->out[0],
                           .table_bf16 = tn_call_in_bf16(c, 1),
                           .y_bf16 = tn_call_out_bf16(c, 0)};
    tn_embedding_forward(c->cpu, &a);
}

static void embedding_bwd(const tn_call *c)
{
    const tn_value *w = tn_call_out(c, 0);
    tn_embedding_grad_args a = {.tokens = tn_value_elements(tn_call_in(c, 0)),
                                .d = w->dim[1].extent,
                                .v_count = w->dim[0].extent,
                                .v_begin = tn_call_out_begin(c, 0)[0],
                                .ids = c->in[0],
                                .dy = c->in[1],
                                .run = *c->order,
                                .bf16 = tn_call_in_bf16(c, 1)};
    int levels = a.run.depth_in > a.run.depth_out ? a.run.depth_in : a.run.depth_out;
    for (int i = 0; i < levels; i++) a.stack[i] = (float *)((char *)c->out[0] + i * c->level_bytes);
    tn_embedding_backward(c->cpu, &a);
}

static size_t embedding_scratch(const tn_call *c)
{
    return tn_embedding_scratch(tn_value_elements(tn_call_in(c, 0)),
                                tn_call_out(c, 0)->dim[0].extent);
}

static void parts(const tn_call *c)
{
    const tn_value *z = tn_call_in(c, 0), *out = tn_call_out(c, 0);
    int last = z->rank - 1;
    tn_loss_parts_args a = {.rows = tn_call_rows(z, 1),
                            .vocab = c->g->values[tn_node_in(c->g, c->n, 0)].dim[last].extent,
                            .v_begin = tn_call_in_begin(c, 0)[last],
                            .v_count = z->dim[last].extent,
                            .parts = c->g->grid.tp,
                            .part_begin = tn_call_out_begin(c, 0)[last],
                            .part_count = out->dim[last].extent,
                            .logits = c->in[0],
                            .labels = c->in[1],
                            .stats = c->out[0]};
    tn_loss_parts(c->cpu, &a);
}

static void merge(const tn_call *c)
{
    const tn_value *s = tn_call_in(c, 0);
    tn_loss_merge_args a = {.rows = tn_call_rows(s, 2),
                            .parts = s->dim[s->rank - 2].extent,
                            .stats = c->in[0],
                            .labels = c->in[1],
                            .nll = c->out[0],
                            .lse = c->out[1]};
    tn_loss_merge(c->cpu, &a);
}

static void loss_bwd(const tn_call *c)
{
    const tn_value *z = tn_call_in(c, 0);
    tn_loss_grad_args a = {.rows = tn_call_rows(z, 1),
                           .v_begin = tn_call_in_begin(c, 0)[z->rank - 1],
                           .v_count = z->dim[z->rank - 1].extent,
                           .logits = c->in[0],
                           .labels = c->in[1],
                           .lse = c->in[2],
                           .coefficient = c->in[3],
                           .grad = c->out[0]};
    tn_loss_backward(c->cpu, &a);
}

static void loss_sum(const tn_call *c)
{
    if (c->iteration == 0) memset(c->out[0], 0, sizeof(tn_exact));
    tn_exact_add(c->cpu, c->out[0], c->in[0], tn_value_elements(tn_call_in(c, 0)));
}

static size_t exact_scratch(const tn_call *c)
{
    return tn_exact_scratch(tn_pool_threads(c->cpu->pool));
}

static void count_labels(const tn_call *c)
{
    const int32_t *labels = c->in[0];
    int32_t n = 0;
    for (int64_t i = 0; i < tn_value_elements(tn_call_in(c, 0)); i++) n += labels[i] != -100;
    *(int32_t *)c->out[0] = n;
}

static void inv_count(const tn_call *c)
{
    int32_t n = *(const int32_t *)c->in[0];
    *(float *)c->out[0] = n ? 1.0f / (float)n : 0.0f;
}

/* A gradient counts on the ranks that hold different parts of it, and once where they hold the
 * same. */
static bool counts_here(const tn_call *c)
{
    const tn_layout *l = &tn_call_in(c, 0)->layout;
    for (int a = 0; a < TN_N_AXES; a++)
        if (l->type[a] != TN_TYPE_S && c->p->at[a] != 0) return false;
    return true;
}

/* The second operand, if there is one, is the output's own memory. */
static void norm_sum(const tn_call *c)
{
    if (c->n->n_in == 1) memset(c->out[0], 0, sizeof(tn_exact));
    if (counts_here(c))
        tn_exact_add_squares(c->cpu, c->out[0], c->in[0], tn_value_elements(tn_call_in(c, 0)));
}

static void exact_add(const tn_call *c)
{
    tn_exact sum;
    memcpy(&sum, c->in[0], sizeof sum);
    tn_exact_merge(&sum, c->in[1]);
    memcpy(c->out[0], &sum, sizeof sum);
}

static void clip(const tn_call *c)
{
    double norm = sqrt(tn_exact_get_squares(c->in[0])), max = tn_node_attr_num(c->n, "max_norm");
    double coefficient = max > 0 ? max / (norm + 1e-6) : 1.0;
    *(float *)c->out[0] = coefficient < 1.0 ? (float)coefficient : 1.0f;
    *(float *)c->out[1] = (float)norm;
}

const tn_kernel tn_cpu_kernel_embedding = {.run = embedding};
const tn_kernel tn_cpu_kernel_embedding_bwd = {.run = embedding_bwd, .scratch = embedding_scratch};
const tn_kernel tn_cpu_kernel_loss_parts = {.run = parts};
const tn_kernel tn_cpu_kernel_loss_merge = {.run = merge};
const tn_kernel tn_cpu_kernel_loss_bwd = {.run = loss_bwd};
const tn_kernel tn_cpu_kernel_loss_sum = {.run = loss_sum, .scratch = exact_scratch};
const tn_kernel tn_cpu_kernel_count_labels = {.run = count_labels};
const tn_kernel tn_cpu_kernel_inv_count = {.run = inv_count};
const tn_kernel tn_cpu_kernel_norm_sum = {.run = norm_sum, .scratch = exact_scratch};
const tn_kernel tn_cpu_kernel_exact_add = {.run = exact_add};
const tn_kernel tn_cpu_kernel_clip = {.run = clip};
