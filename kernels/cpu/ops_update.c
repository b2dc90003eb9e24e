/* ops_update.c - the kernels of the optimizers and of casts, and the table of all kernels of the
 * CPU.
 *
 * lr of a group is its own times the schedule's factor; the parameter and the moments are updated
 * in place. */
#include "kernels/cpu/cast.h"
#include "kernels/cpu/optim.h"
#include "kernels/kernel.h"

static void adamw(const tn_call *c)
{
    const tn_node *n = c->n;
    tn_optim_adam a = {.n = tn_value_elements(tn_call_in(c, 0)),
                       .step = c->step->step,
                       .lr = tn_node_attr_num(n, "lr") * c->step->lr_factor,
                       .beta1 = tn_node_attr_num(n, "beta1"),
                       .beta2 = tn_node_attr_num(n, "beta2"),
                       .eps = tn_node_attr_num(n, "eps"),
                       .weight_decay = tn_node_attr_num(n, "weight_decay"),
                       .decoupled = tn_node_attr_int(n, "decoupled") != 0,
                       .param = c->in[0],
                       .grad = c->in[1],
                       .m = c->in[2],
                       .v = c->in[3],
                       .coefficient = c->in[4]};
    tn_optim_adam_run(c->cpu, &a);
}

static void sgd(const tn_call *c)
{
    const tn_node *n = c->n;
    tn_optim_sgd a = {.n = tn_value_elements(tn_call_in(c, 0)),
                      .step = c->step->step,
                      .lr = tn_node_attr_num(n, "lr") * c->step->lr_factor,
                      .momentum = tn_node_attr_num(n, "momentum"),
                      .weight_decay = tn_node_attr_num(n, "weight_decay"),
                      .param = c->in[0],
                      .grad = c->in[1],
                      .buffer = c->in[2],
                      .coefficient = c->in[3]};
    tn_optim_sgd_run(c->cpu, &a);
}

const tn_kernel tn_cpu_kernel_adamw = {.run = adamw};
const tn_kernel tn_cpu_kernel_sgd = {.run = sgd};

/* Where nothing moves between ranks, what is left of these is a cast. */
static void cast(const tn_call *c)
{
    tn_cast_run(c->cpu, &(tn_cast_args){.n = tn_value_elements(tn_call_out(c, 0)),
                                        .x = c->in[0],
                                        .x_bf16 = tn_call_in_bf16(c, 0),
                                        .y = c->out[0],
                                        .y_bf16 = tn_call_out_bf16(c, 0)});
}

const tn_kernel tn_cpu_kernel_unshard = {.run = cast};
const tn_kernel tn_cpu_kernel_redistribute = {.run = cast};
const tn_kernel tn_cpu_kernel_reduce = {.run = cast};
const tn_kernel tn_cpu_kernel_kv_reduce = {.run = cast};

/* Leaves and views have no work; what moves between ranks belongs to communicators; cross_entropy
 * is expanded before. */
const tn_kernel tn_cpu_kernel_state = {0};
const tn_kernel tn_cpu_kernel_input = {0};
const tn_kernel tn_cpu_kernel_heads = {0};
const tn_kernel tn_cpu_kernel_merge_heads = {0};
const tn_kernel tn_cpu_kernel_chunk = {0};
const tn_kernel tn_cpu_kernel_unchunk = {0};
const tn_kernel tn_cpu_kernel_cross_entropy = {0};
const tn_kernel tn_cpu_kernel_send = {0};
const tn_kernel tn_cpu_kernel_recv = {0};

static const tn_kernel *const table[TN_N_OPS] = {
#define TN_OP(name) &tn_cpu_kernel_##name,
#include "graph/ops.def"
#undef TN_OP
};

const tn_kernel *tn_cpu_kernel(tn_op_id op)
{
    return table[op];
}
