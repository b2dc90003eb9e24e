/* ops_linear.c - the kernels of linear, linear_add, linear_bwd_x and linear_bwd_w: one GEMM each.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/kernel.h"

static int64_t last(const tn_value *v)
{
    return v->dim[v->rank - 1].extent;
}

/* y_i [t, f_i] = x [t, d] W_i [f_i, d]^T (+ add) */
static void forward(const tn_call *c, bool add, tn_gemm *g)
{
    const tn_value *x = tn_call_in(c, 0);
    int64_t d = last(x), tokens = tn_call_rows(x, 1);
    *g = (tn_gemm){.n_out = c->n->n_out, .n_src = 1, .order = c->order};
    for (int i = 0; i < g->n_out; i++) {
        int64_t f = last(tn_call_out(c, i));
        g->src[i] = (tn_gemm_src){.a = c->in[0],
                                  .a_m = d,
                                  .a_k = 1,
                                  .b = c->in[1 + i],
                                  .b_k = 1,
                                  .b_n = d,
                                  .a_bf16 = tn_call_in_bf16(c, 0),
                                  .b_bf16 = tn_call_in_bf16(c, 1 + i)};
        g->out[i] = (tn_gemm_out){.c = c->out[i],
                                  .ldc = f,
                                  .m = tokens,
                                  .n = f,
                                  .add = add ? c->in[2] : NULL,
                                  .ldadd = f,
                                  .c_bf16 = tn_call_out_bf16(c, i)};
    }
}

/* dx [t, d] = sum over i of dy_i [t, f_i] W_i [f_i, d] */
static void backward_x(const tn_call *c, tn_gemm *g)
{
    int n = c->n->n_in / 2;
    int64_t d = last(tn_call_out(c, 0)), tokens = tn_call_rows(tn_call_out(c, 0), 1);
    *g = (tn_gemm){.n_out = 1, .n_src = n, .order = c->order};
    g->out[0] = (tn_gemm_out){
        .c = c->out[0], .ldc = d, .m = tokens, .n = d, .c_bf16 = tn_call_out_bf16(c, 0)};
    for (int i = 0; i < n; i++)
        g->src[i] = (tn_gemm_src){.a = c->in[i],
                                  .a_m = last(tn_call_in(c, i)),
                                  .a_k = 1,
                                  .b = c->in[n + i],
                                  .b_k = d,
                                  .b_n = 1,
                                  .a_bf16 = tn_call_in_bf16(c, i),
                                  .b_bf16 = tn_call_in_bf16(c, n + i)};
}

/* dW [f, d] = sum over tokens of dy [t, f] x [t, d], levels of the cut sum in the accumulator */
static void backward_w(const tn_call *c, tn_gemm *g)
{
    int64_t f = last(tn_call_in(c, 0)), d = last(tn_call_in(c, 1));
    *g = (tn_gemm){.n_out = 1, .n_src = 1, .order = c->order};
    g->src[0] = (tn_gemm_src){.a = c->in[0],
                              .a_m = 1,
                              .a_k = f,
                              .b = c->in[1],
                              .b_k = d,
                              .b_n = 1,
                              .a_bf16 = tn_call_in_bf16(c, 0),
                              .b_bf16 = tn_call_in_bf16(c, 1)};
    g->out[0] = (tn_gemm_out){.ldc = d, .m = f, .n = d};
    int levels =
        c->order->depth_in > c->order->depth_out ? c->order->depth_in : c->order->depth_out;
    for (int i = 0; i < levels; i++)
        g->out[0].stack[i] = (float *)((char *)c->out[0] + i * c->level_bytes);
}

static void build(const tn_call *c, tn_gemm *g)
{
    switch ((tn_op_id)c->n->op) {
    case TN_OP_linear:
        forward(c, false, g);
        break;
    case TN_OP_linear_add:
        forward(c, true, g);
        break;
    case TN_OP_linear_bwd_x:
        backward_x(c, g);
        break;
    default:
        backward_w(c, g);
        break;
    }
}

/* Fast mode: bf16 by bf16 two k at a time, one chain over all of a source. */
typedef struct fast {
    tn_order_ins ins[TN_GEMM_MAX + 1];
    tn_order_run run;
} fast;

static void use_pairs(const tn_call *c, tn_gemm *g, fast *f)
{
    int64_t k[TN_GEMM_MAX] = {0};
    if (c->g->canonical || !tn_isa_pairs(c->cpu->isa)) return;
    if (c->order->depth_in > 1 || c->order->depth_out != 1) return;
    for (int i = 0; i < (g->n_out > g->n_src ? g->n_out : g->n_src); i++)
        if (!g->src[i].a_bf16 || !g->src[i].b_bf16) return;
    for (int64_t i = 0; i < c->order->n; i++) {
        const tn_order_ins *s = &c->order->ins[i];
        if (s->op == TN_ORDER_LEAF) k[s->src] += s->k1 - s->k0;
    }
    for (int i = 0; i < g->n_src; i++) {
        if (k[i] % 2 || k[i] == 0) return;
        f->ins[i] = (tn_order_ins){
            .op = TN_ORDER_LEAF, .more = i + 1 < g->n_src, .src = (int16_t)i, .k1 = k[i] / 2};
    }
    f->ins[g->n_src] = (tn_order_ins){.op = TN_ORDER_ADD};
    f->run = (tn_order_run){f->ins, g->n_src + c->order->depth_in, c->order->depth_in, 1};
    g->order = &f->run;
    g->pairs = true;
}

static void run(const tn_call *c)
{
    tn_gemm g;
    fast f;
    build(c, &g);
    use_pairs(c, &g, &f);
    tn_gemm_run(c->cpu, &g);
}

static size_t scratch(const tn_call *c)
{
    tn_gemm g;
    fast f;
    build(c, &g);
    use_pairs(c, &g, &f);
    return tn_gemm_scratch(tn_pool_threads(c->cpu->pool), &g);
}

const tn_kernel tn_cpu_kernel_linear = {.run = run, .scratch = scratch};
const tn_kernel tn_cpu_kernel_linear_add = {.run = run, .scratch = scratch};
const tn_kernel tn_cpu_kernel_linear_bwd_x = {.run = run, .scratch = scratch};
const tn_kernel tn_cpu_kernel_linear_bwd_w = {.run = run, .scratch = scratch};
