/* ops_rows.c - the kernels of rmsnorm and its gradients and of the pointwise ops, fused and single.
 */
#include "graph/fuse.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/kernel.h"

#include <string.h>

static void norm(const tn_call *c)
{
    const tn_value *x = tn_call_in(c, 0);
    tn_norm_forward_args a = {.rows = tn_call_rows(x, 1),
                              .d = x->dim[x->rank - 1].extent,
                              .eps = (float)tn_node_attr_num(c->n, "eps"),
                              .x = c->in[0],
                              .w = c->in[1],
                              .y = c->out[0],
                              .r = c->out[1],
                              .bf16 = tn_call_out_bf16(c, 0)};
    tn_norm_forward(c->cpu, &a);
}

static void norm_bwd(const tn_call *c)
{
    const tn_value *x = tn_call_in(c, 1);
    tn_norm_backward_args a = {.rows = tn_call_rows(x, 1),
                               .d = x->dim[x->rank - 1].extent,
                               .dy = c->in[0],
                               .x = c->in[1],
                               .r = c->in[2],
                               .w = c->in[3],
                               .more = c->n->n_in > 4 ? c->in[4] : NULL,
                               .dx = c->out[0],
                               .bf16 = tn_call_out_bf16(c, 0)};
    tn_norm_backward(c->cpu, &a);
}

static void norm_bwd_w(const tn_call *c)
{
    const tn_value *x = tn_call_in(c, 1);
    tn_norm_gain_args a = {.d = x->dim[x->rank - 1].extent,
                           .dy = c->in[0],
                           .x = c->in[1],
                           .r = c->in[2],
                           .run = *c->order,
                           .bf16 = tn_call_in_bf16(c, 1)};
    int levels = a.run.depth_in > a.run.depth_out ? a.run.depth_in : a.run.depth_out;
    for (int i = 0; i < levels; i++) a.stack[i] = (float *)((char *)c->out[0] + i * c->level_bytes);
    tn_norm_gain(c->cpu, &a);
}

/* One leaf at a time: row b, position part j of the grid that lies in this rank's positions. */
static void norm_leaves(const tn_call *c)
{
    const tn_value *x = tn_call_in(c, 1), *out = tn_call_out(c, 0);
    int64_t seq = c->g->values[tn_node_in(c->g, c->n, 1)].dim[1].extent,
            s0 = tn_call_in_begin(c, 1)[1], j0 = tn_call_out_begin(c, 0)[1];
    int64_t s = x->dim[1].extent, d = x->dim[2].extent, parts = out->dim[1].extent,
            grid = c->g->grid.seq, each = tn_dtype_bytes((tn_dtype)x->dtype);
    for (int64_t b = 0; b < x->dim[0].extent; b++)
        for (int64_t j = 0; j < parts; j++) {
            tn_order_ins leaf = {.op = TN_ORDER_LEAF,
                                 .k0 = tn_order_cut(seq, 0, j0 + j, grid) - s0,
                                 .k1 = tn_order_cut(seq, 0, j0 + j + 1, grid) - s0};
            tn_norm_gain_args a = {.d = d,
                                   .dy = (const char *)c->in[0] + b * s * d * each,
                                   .x = (const char *)c->in[1] + b * s * d * each,
                                   .r = (const float *)c->in[2] + b * s,
                                   .run = {&leaf, 1, 0, 1},
                                   .bf16 = tn_call_in_bf16(c, 1)};
            a.stack[0] = (float *)c->out[0] + (b * parts + j) * d;
            tn_norm_gain(c->cpu, &a);
        }
}

/* The run of the token order with each LEAF read instead of summed. */
static void fold_leaves(const tn_call *c)
{
    const tn_value *leaves = tn_call_in(c, 0);
    int64_t d = leaves->dim[2].extent, parts = leaves->dim[1].extent, seq = c->g->seq;
    int depth = c->order->depth_in;
    for (int64_t i = 0; i < c->order->n; i++) {
        const tn_order_ins *s = &c->order->ins[i];
        float *top = (float *)((char *)c->out[0] + depth * c->level_bytes);
        if (s->op == TN_ORDER_ADD) {
            float *right = (float *)((char *)c->out[0] + (depth - 1) * c->level_bytes),
                  *left = (float *)((char *)c->out[0] + (depth - 2) * c->level_bytes);
            tn_pointwise_add(c->cpu, d, left, right, left);
            depth--;
            continue;
        }
        int64_t row = s->k0 / seq, j = 0;
        while (j + 1 < parts && tn_order_cut(seq, 0, j + 1, parts) <= s->k0 % seq) j++;
        memcpy(top, (const float *)c->in[0] + (row * parts + j) * d, (size_t)d * sizeof(float));
        depth++;
    }
}

/* ------------------------------------------------------------ pointwise */

static tn_pointwise_op function(const char *f, bool backward)
{
    static const struct {
        const char *name;
        tn_pointwise_op op, bwd;
    } table[] = {{"silu", TN_POINTWISE_SILU, TN_POINTWISE_SILU_BWD},
                 {"gelu", TN_POINTWISE_GELU_ERF, TN_POINTWISE_GELU_ERF_BWD},
                 {"gelu_tanh", TN_POINTWISE_GELU_TANH, TN_POINTWISE_GELU_TANH_BWD},
                 {"relu", TN_POINTWISE_RELU, TN_POINTWISE_RELU_BWD},
                 {"relu2", TN_POINTWISE_RELU2, TN_POINTWISE_RELU2_BWD},
                 {"sigmoid", TN_POINTWISE_SIGMOID, TN_POINTWISE_SIGMOID_BWD},
                 {"tanh", TN_POINTWISE_TANH, TN_POINTWISE_TANH_BWD}};
    for (int i = 0; i < TN_COUNT(table); i++)
        if (!strcmp(table[i].name, f)) return backward ? table[i].bwd : table[i].op;
    return TN_N_POINTWISE; /* refused by tn_pointwise_check */
}

/* The graph's gradients of sigmoid and tanh read x, the kernel's read y: one more instruction. */
static bool reads_y(const tn_fuse_ins *s)
{
    return s->op == TN_OP_unary_bwd && (!strcmp(s->f, "sigmoid") || !strcmp(s->f, "tanh"));
}

static tn_pointwise_ins translate(const tn_fuse_ins *s, const uint8_t *reg, int n_in, uint8_t dst)
{
    tn_pointwise_ins i = {.dst = dst};
    uint8_t arg[2] = {0, 0};
    (void)n_in;
    for (int k = 0; k < s->n_in; k++)
        arg[k] = s->in[k] < 0 ? (uint8_t)(-1 - s->in[k]) : reg[s->in[k]];
    i.a = arg[0];
    i.b = arg[1];
    switch (s->op) {
    case TN_OP_add:
        i.op = TN_POINTWISE_ADD;
        break;
    case TN_OP_mul:
        i.op = TN_POINTWISE_MUL;
        break;
    case TN_OP_scale:
        i.op = TN_POINTWISE_SCALE;
        i.c = (float)s->by;
        break;
    case TN_OP_unary:
        i.op = (uint8_t)function(s->f, false);
        break;
    default:
        i.op = (uint8_t)function(s->f, true);
        break;
    }
    return i;
}

static tn_status compile(const tn_fuse_prog *f, int n_in, tn_arena *arena, const void **out)
{
    void *mem;
    uint8_t reg[TN_FUSE_MAX_INS];
    TN_TRY(tn_arena_alloc(arena, sizeof(tn_pointwise_program), &mem));
    tn_pointwise_program *p = mem;
    p->n_in = n_in;
    int next = n_in;
    for (int i = 0; i < f->n; i++) {
        tn_fuse_ins s = f->ins[i];
        if (next + 2 > TN_POINTWISE_REGISTERS)
            TN_FAIL(TN_FAILED, "fused: more than %d registers", TN_POINTWISE_REGISTERS);
        if (reads_y(&s)) {
            tn_fuse_ins y = {.op = TN_OP_unary, .n_in = 1, .in = {s.in[1]}};
            memcpy(y.f, s.f, sizeof y.f);
            p->ins[p->n_ins] = translate(&y, reg, n_in, (uint8_t)next);
            p->ins[p->n_ins++].wide = true;
            tn_pointwise_ins bwd = translate(&s, reg, n_in, (uint8_t)(next + 1));
            bwd.b = (uint8_t)next++;
            p->ins[p->n_ins++] = bwd;
        } else {
            p->ins[p->n_ins++] = translate(&s, reg, n_in, (uint8_t)next);
        }
        reg[i] = (uint8_t)next++;
    }
    p->n_out = f->n_out;
    for (int i = 0; i < f->n_out; i++) p->out[i] = reg[f->out[i]];
    *out = p;
    return tn_pointwise_check(p);
}

static tn_status prepare_fused(const tn_graph *g, const tn_node *n, tn_arena *arena,
                               const void **out)
{
    tn_fuse_prog f;
    (void)g;
    const char *text = tn_node_attr_text(n, "prog");
    if (!tn_fuse_parse(text, &f) || f.n_in > n->n_in || f.n_out != n->n_out)
        TN_FAIL(TN_BAD_INPUT, "%s: fused: prog = '%s' does not fit %d operands and %d outputs",
                n->path, text, n->n_in, n->n_out);
    return compile(&f, n->n_in, arena, out);
}

/* A single op is a program of one instruction. */
static tn_status prepare_single(const tn_graph *g, const tn_node *n, tn_arena *arena,
                                const void **out)
{
    tn_fuse_prog f = {.n = 1, .n_in = n->n_in, .n_out = 1};
    (void)g;
    f.ins[0] = (tn_fuse_ins){.op = (tn_op_id)n->op, .n_in = n->n_in, .in = {-1, -2}};
    if (n->op == TN_OP_unary || n->op == TN_OP_unary_bwd)
        strncpy(f.ins[0].f, tn_node_attr_text(n, "f"), sizeof f.ins[0].f - 1);
    if (n->op == TN_OP_scale) f.ins[0].by = tn_node_attr_num(n, "by");
    return compile(&f, n->n_in, arena, out);
}

static void pointwise(const tn_call *c)
{
    const tn_pointwise_program *p = c->prepared;
    tn_pointwise_args a = {.program = p,
                           .n = tn_value_elements(tn_call_out(c, 0)),
                           .d = 1,
                           .bf16 = tn_call_out_bf16(c, 0)};
    for (int i = 0; i < p->n_in; i++) a.in[i] = c->in[i];
    for (int i = 0; i < p->n_out; i++) a.out[i] = c->out[i];
    tn_pointwise_run(c->cpu, &a);
}

const tn_kernel tn_cpu_kernel_rmsnorm = {.run = norm};
const tn_kernel tn_cpu_kernel_rmsnorm_bwd = {.run = norm_bwd};
const tn_kernel tn_cpu_kernel_rmsnorm_bwd_w = {.run = norm_bwd_w};
const tn_kernel tn_cpu_kernel_rmsnorm_leaves = {.run = norm_leaves};
const tn_kernel tn_cpu_kernel_fold_leaves = {.run = fold_leaves};
const tn_kernel tn_cpu_kernel_fused = {.run = pointwise, .prepare = prepare_fused};
const tn_kernel tn_cpu_kernel_add = {.run = pointwise, .prepare = prepare_single};
const tn_kernel tn_cpu_kernel_mul = {.run = pointwise, .prepare = prepare_single};
const tn_kernel tn_cpu_kernel_scale = {.run = pointwise, .prepare = prepare_single};
const tn_kernel tn_cpu_kernel_unary = {.run = pointwise, .prepare = prepare_single};
const tn_kernel tn_cpu_kernel_unary_bwd = {.run = pointwise, .prepare = prepare_single};
