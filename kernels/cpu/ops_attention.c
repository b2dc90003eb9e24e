/* ops_attention.c - the kernels of attention, attention_bwd and rope. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/rope.h"
#include "kernels/kernel.h"

#include <math.h>

#include <string.h>

/* Operands from `q` on: q, k, v; positions and documents from `at` on. */
static void describe(const tn_call *c, int q, int at, tn_attention *a)
{
    const tn_value *vq = tn_call_in(c, q), *vk = tn_call_in(c, q + 1), *vv = tn_call_in(c, q + 2);
    double scale = tn_node_attr_num(c->n, "scale");
    *a = (tn_attention){.b = vq->dim[0].extent,
                        .s = vq->dim[1].extent,
                        .t = vk->dim[1].extent,
                        .h = vq->dim[2].extent,
                        .g = vk->dim[2].extent,
                        .d = vq->dim[3].extent,
                        .dv = vv->dim[3].extent,
                        .q = c->in[q],
                        .k = c->in[q + 1],
                        .v = c->in[q + 2],
                        .q_pos = c->in[at],
                        .q_doc = c->in[at + 1],
                        .k_pos = c->in[at + 2],
                        .k_doc = c->in[at + 3],
                        .causal = tn_node_attr_int(c->n, "causal") != 0,
                        .window = tn_node_attr_int(c->n, "window"),
                        .scale = scale > 0 ? (float)scale
                                           : (float)(1.0 / sqrt((double)vq->dim[3].extent)),
                        .seq_parts = c->g->canonical ? c->g->grid.seq : 1,
                        .head_parts = c->g->canonical ? c->g->grid.tp : 1,
                        .units = c->g->values[tn_node_in(c->g, c->n, q)].dim[2].extent,
                        .first_head = tn_call_in_begin(c, q)[2],
                        .bf16 = tn_call_in_bf16(c, q),
                        .dkv_fp32 = c->n->op == TN_OP_attention_bwd && !tn_call_out_bf16(c, 1)};
}

static void forward(const tn_call *c)
{
    tn_attention a;
    describe(c, 0, 3, &a);
    a.o = c->out[0];
    a.lse = c->out[1];
    tn_attention_fwd(c->cpu, &a);
}

static void backward(const tn_call *c)
{
    tn_attention a;
    describe(c, 1, 6, &a);
    a.o = c->in[4];
    a.lse = c->in[5];
    tn_attention_bwd(c->cpu, &a, c->in[0], c->out[0], c->out[1], c->out[2]);
}

static size_t scratch(const tn_call *c)
{
    tn_attention a;
    bool backwards = c->n->op == TN_OP_attention_bwd;
    describe(c, backwards ? 1 : 0, backwards ? 6 : 3, &a);
    return tn_attention_scratch(tn_pool_threads(c->cpu->pool), &a, backwards);
}

static void rotate(const tn_call *c)
{
    const tn_value *x = tn_call_in(c, 0);
    int64_t width = x->dim[2].extent * x->dim[3].extent;
    tn_rope_args a = {.tokens = tn_call_rows(x, 2),
                      .heads = x->dim[2].extent,
                      .d = x->dim[3].extent,
                      .x_stride = width,
                      .y_stride = width,
                      .x = c->in[0],
                      .positions = c->in[1],
                      .table = c->in[2],
                      .inverse = tn_node_attr_int(c->n, "inverse") != 0,
                      .y = c->out[0],
                      .bf16 = tn_call_out_bf16(c, 0)};
    tn_rope_apply(c->cpu, &a);
}

const tn_kernel tn_cpu_kernel_attention = {.run = forward, .scratch = scratch};
/* Operand 0 is the output's own memory. */
static void cache(const tn_call *c)
{
    const tn_value *kept = tn_call_out(c, 0), *fresh = tn_call_in(c, 1);
    const int32_t *positions = c->in[2];
    int64_t t = kept->dim[1].extent, s = fresh->dim[1].extent;
    size_t bytes =
        (size_t)(kept->dim[2].extent * kept->dim[3].extent * tn_dtype_bytes((tn_dtype)kept->dtype));
    for (int64_t b = 0; b < kept->dim[0].extent; b++)
        for (int64_t i = 0; i < s; i++) {
            int64_t at = positions[b * s + i];
            if (at < 0 || at >= t) continue;
            memcpy((char *)c->out[0] + (size_t)(b * t + at) * bytes,
                   (const char *)c->in[1] + (size_t)(b * s + i) * bytes, bytes);
        }
}

const tn_kernel tn_cpu_kernel_cache = {.run = cache};
const tn_kernel tn_cpu_kernel_attention_bwd = {.run = backward, .scratch = scratch};
const tn_kernel tn_cpu_kernel_rope = {.run = rotate};
