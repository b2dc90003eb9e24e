#include "engine/train.h"

#include "engine/base/clock.h"
#include "kernels/cpu/exact.h"
#include "kernels/cpu/finite.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* The value made by the only node of its op, NULL if the program has none. */
static void *result(const tn_exec *e, tn_op_id op, int out)
{
    const tn_graph *g = tn_exec_program(e)->g;
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == op) return tn_exec_value(e, g->nodes[i].out0 + out);
    return NULL;
}

/* Complete on every rank: what `inv_count` reads. */
int64_t tn_train_valid_tokens(const tn_exec *e)
{
    const tn_graph *g = tn_exec_program(e)->g;
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TN_OP_inv_count)
            return *(const int32_t *)tn_exec_value(e, tn_node_in(g, &g->nodes[i], 0));
    return 0;
}

/* The exact sum behind its reduction over the ranks, which the lower pass put behind the
 * microbatches. */
double tn_train_loss(const tn_exec *e)
{
    const tn_graph *g = tn_exec_program(e)->g;
    int64_t n = tn_train_valid_tokens(e);
    for (int64_t i = g->n_nodes - 1; i >= 0 && n; i--) {
        const tn_node *q = &g->nodes[i];
        if (q->op == TN_OP_redistribute && q->scope == TN_SCOPE_TAIL && !strcmp(q->path, "loss"))
            return tn_exact_get(tn_exec_value(e, q->out0)) / (double)n;
    }
    return 0;
}

float tn_train_grad_norm(const tn_exec *e)
{
    const float *norm = result(e, TN_OP_clip, 1);
    return norm ? *norm : 0.0f;
}

tn_status tn_train_load(tn_exec *e, const tn_data *data, tn_data_split split, int64_t step)
{
    const tn_program *p = tn_exec_program(e);
    const tn_value *v;
    tn_data_batch b = {.ids_bs = tn_exec_named(e, "tokens", &v),
                       .labels_bs = tn_exec_named(e, "labels", NULL),
                       .positions_bs = tn_exec_named(e, "positions", NULL),
                       .documents_bs = tn_exec_named(e, "documents", NULL)};
    int64_t id = v - p->g->values; /* this rank's rows of the step */
    return tn_data_rows(data, split, step, p->begin[id][0], p->local[id].dim[0].extent, &b);
}

/* ------------------------------------------------------------ not a number */

typedef struct search {
    int output; /* of the node that was found */
} search;

static bool first_bad(void *user, const tn_call *c)
{
    search *s = user;
    for (int i = 0; i < c->n->n_out; i++) {
        const tn_value *v = tn_call_out(c, i);
        const int64_t n = tn_value_elements(v);
        if (v->carried && c->order && c->order->depth_out != 1) continue;
        bool bad = v->dtype == TN_F32    ? tn_finite_first(c->out[i], n) >= 0
                   : v->dtype == TN_BF16 ? tn_finite_first_bf16(c->out[i], n) >= 0
                                         : false;
        if (!bad) continue;
        s->output = i;
        return true;
    }
    return false;
}

/* What a rank has found; the worse of two is nearer to the cause. */
typedef struct finding {
    int badness;       /* INT_MAX: a state; the earlier the node, the more; 0: nothing */
    const char *state; /* or NULL */
    int32_t node;      /* or -1 */
    int output;        /* of the node */
} finding;

/* The parameters are those from before the step, so it can be run again and looked at entry by
 * entry. */
static tn_status look(const tn_train_options *o, const tn_step *step, finding *f)
{
    search s = {0};
    const tn_program *p = tn_exec_program(o->train);
    *f = (finding){.node = -1};
    for (int64_t i = 0; i < p->g->n_nodes && !f->state; i++) {
        const tn_node *n = &p->g->nodes[i];
        if (n->op == TN_OP_state && tn_finite_first(tn_exec_value(o->train, n->out0),
                                                    tn_value_elements(&p->local[n->out0])) >= 0)
            f->state = tn_node_attr_text(n, "name");
    }
    if (!f->state || o->comm)
        TN_TRY(tn_exec_search(o->train, TN_EXEC_BEFORE_UPDATE, step, first_bad, &s,
                              &f->node)); /* all ranks or none */
    f->output = s.output;
    f->badness = f->state ? INT_MAX : f->node >= 0 ? INT_MAX - 1 - f->node : 0;
    return TN_OK;
}

/* Only the ranks nearest to the cause say what they found; the others fail with what these say. */
static tn_status not_finite(const tn_train_options *o, const tn_train_report *r,
                            const tn_step *step)
{
    finding f;
    const tn_graph *g = tn_exec_program(o->train)->g;
    TN_TRY(look(o, step, &f));
    if (o->comm) {
        int worst;
        TN_TRY(tn_comm_most(o->comm, "not finite", f.badness, &worst));
        if (f.badness < worst) TN_TRY(tn_comm_sync(o->comm, TN_COMM_WORLD, "not finite", 0));
    }
    if (f.state)
        TN_FAIL(TN_FAILED,
                "step %lld: loss %g, grad_norm %g: parameter or state '%s' holds a value that is "
                "not finite",
                (long long)r->step, r->loss, (double)r->grad_norm, f.state);
    if (f.node < 0)
        TN_FAIL(TN_FAILED,
                "step %lld: loss %g, grad_norm %g is not finite, every tensor is; the sum of "
                "squares overflowed",
                (long long)r->step, r->loss, (double)r->grad_norm);
    TN_FAIL(TN_FAILED,
            "step %lld: loss %g, grad_norm %g: the first bad tensor is output %d of %s at %s; the "
            "parameters are as they were before the step; a lower lr or max_norm may help",
            (long long)r->step, r->loss, (double)r->grad_norm, f.output,
            tn_op_name((tn_op_id)g->nodes[f.node].op), g->nodes[f.node].path);
}

/* ------------------------------------------------------------ steps */

static tn_status run_part(const tn_train_options *o, tn_exec_part part, const tn_step *s,
                          const tn_train_watch *w)
{
    int32_t node;
    if (!w) return tn_exec_run(o->train, part, s);
    return tn_exec_search(o->train, part, s, w->entry, w->user, &node);
}

static tn_status one_step(const tn_train_options *o, int64_t step, tn_train_report *r)
{
    double begun = tn_clock_s();
    const tn_train_watch *w =
        o->watch && o->watch->begin(o->watch->user, step + 1) ? o->watch : NULL;
    tn_step s = {.step = step + 1, .lr_factor = tn_lr_factor(&o->lr, step)};
    TN_TRY(tn_train_load(o->train, o->data, TN_DATA_TRAIN, step));
    r->data_s = tn_clock_s() - begun;
    if (w) w->mark(w->user, "data");
    TN_TRY(run_part(o, TN_EXEC_BEFORE_UPDATE, &s, w));
    r->step = step + 1;
    r->lr_factor = s.lr_factor;
    r->loss = tn_train_loss(o->train);
    r->grad_norm = tn_train_grad_norm(o->train);
    r->valid_tokens = tn_train_valid_tokens(o->train);
    r->tokens += o->global_batch * o->seq;
    if (!isfinite(r->loss) || !isfinite(r->grad_norm)) return not_finite(o, r, &s);
    if (w) w->mark(w->user, "idle");
    TN_TRY(run_part(o, TN_EXEC_UPDATE, &s, w));
    r->step_s = tn_clock_s() - begun;
    return w ? w->end(w->user, step + 1) : TN_OK;
}

tn_status tn_train_evaluate(tn_exec *e, const tn_data *data, tn_data_split split, int64_t steps,
                            double *loss_out, int64_t *tokens_out)
{
    double sum = 0;
    int64_t tokens = 0, all = tn_data_steps(data, split);
    if (steps < 0 || steps > all) steps = all;
    for (int64_t i = 0; i < steps; i++) {
        TN_TRY(tn_train_load(e, data, split, i));
        TN_TRY(tn_exec_run(e, TN_EXEC_ALL, NULL));
        int64_t n = tn_train_valid_tokens(e);
        sum += tn_train_loss(e) * (double)n;
        tokens += n;
    }
    *loss_out = tokens ? sum / (double)tokens : 0;
    *tokens_out = tokens;
    return TN_OK;
}

static tn_status validate(const tn_train_options *o, int64_t step)
{
    double loss, begun = tn_clock_s();
    int64_t tokens;
    TN_TRY(tn_train_evaluate(o->eval, o->validation, TN_DATA_VALIDATION, o->validate_steps, &loss,
                             &tokens));
    return o->on_validation ? o->on_validation(o->user, step, loss, tokens, tn_clock_s() - begun)
                            : TN_OK;
}

tn_status tn_train_run(const tn_train_options *o)
{
    tn_train_report r = {0};
    for (int64_t step = 0; step < o->steps; step++) {
        TN_TRY(one_step(o, step, &r));
        if (o->on_step) TN_TRY(o->on_step(o->user, &r));
        bool last = step + 1 == o->steps;
        bool due = o->eval && o->validate_every &&
                   (step == 0 || (step + 1) % o->validate_every == 0 || last);
        if (due) TN_TRY(validate(o, step + 1));
        int stop = o->stop ? *o->stop : 0;
        if (o->comm)
            TN_TRY(tn_comm_most(o->comm, "stop", stop,
                                &stop)); /* all ranks stop behind the same step */
        if (!stop || last) continue;
        if (o->stop) *o->stop = stop; /* the signal may have come to another rank */
        return TN_STOPPED;
    }
    return TN_OK;
}
