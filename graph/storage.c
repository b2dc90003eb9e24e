/* storage.c - pass 5: what is at rest and how it comes and goes.
 *
 * A parameter is traced as computation wants it; here it becomes an fp32 master (state) and UNSHARD
 * (gather and cast to the compute dtype), once for forward and once for backward, in front of the
 * first node that needs it, so that a cast copy lives only as long as its block; or once for the
 * whole step (TN_UNSHARD_ONCE), in front of its microbatches; or backward gathers pieces that fewer
 * ranks kept (unshard_ranks). The gradient (`reduce`) feeds the
 * exact norm, the clip coefficient and the update in place. */
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/rewrite.h"
#include "graph/stages.h"

#include <stdio.h>
#include <string.h>

typedef struct store {
    tn_rewrite r;
    const tn_pass_options *o;
    int32_t *unsharded[2]; /* by old value of a parameter: its compute view in forward, in backward;
                              -1 */
    int32_t *kept;   /* by old value: this rank's piece of it between forward and backward, -1 */
    bool *again;     /* by old value: backward reads it */
    int32_t *grad;   /* by old value: complete reduced gradient (new value), -1 */
    int32_t *params; /* old values of the parameters, in order */
    int64_t n_params, at; /* at: whose gradient came last; they come in the same order */
} store;

static bool is_param(const tn_graph *g, int32_t value)
{
    const tn_node *n = &g->nodes[g->values[value].node];
    return n->op == TN_OP_state && !strcmp(tn_node_attr_text(n, "kind"), "param");
}

/* At rest a parameter, its moments and its gradient are split once more, by elements of dim 0, over
 * the ranks that share a copy. */
static tn_layout at_rest(const tn_layout *l)
{
    tn_layout rest = *l;
    if (rest.type[TN_AXIS_DP_SHARD] == TN_TYPE_R) tn_layout_shard(&rest, TN_AXIS_DP_SHARD, 0);
    if (rest.type[TN_AXIS_CP] == TN_TYPE_R) tn_layout_shard(&rest, TN_AXIS_CP, 0);
    return rest;
}

/* HEAD part: masters keep their place; their first map entry is the master itself. */
static tn_status master(store *s, int64_t i)
{
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    tn_node_desc d;
    tn_rewrite_describe(&s->r, i, in, attrs, &d);
    tn_value like = *d.like;
    like.dtype = TN_F32;
    like.layout = at_rest(&like.layout);
    d.like = &like;
    d.layout = &like.layout;
    return tn_rewrite_add(&s->r, i, &d);
}

/* Of one microbatch the step is the microbatch: a copy that serves both directions is made in front
 * of its first reader, where it can be prefetched. */
static tn_scope unshard_scope(const store *s)
{
    return s->o->unshard == TN_UNSHARD_ONCE && s->r.old->n_microbatches > 1 ? TN_SCOPE_HEAD
                                                                            : TN_SCOPE_MICROBATCH;
}

static bool in_backward(const tn_node *n)
{
    return n->phase != TN_PHASE_F && n->scope != TN_SCOPE_CHUNK;
}

/* A slice of what was gathered: nothing moves. */
static tn_status keep_piece(store *s, int32_t old_value, int32_t whole)
{
    const tn_node n = s->r.g->nodes[s->r.g->values[whole].node];
    tn_layout piece = s->r.g->values[whole].layout;
    int n_ranks = s->o->unshard_ranks, shard = s->r.g->mesh.size[TN_AXIS_DP_SHARD];
    s->kept[old_value] = -1;
    if (n_ranks < 2 || n_ranks >= shard || !s->again[old_value] ||
        piece.type[TN_AXIS_DP_SHARD] != TN_TYPE_R)
        return TN_OK;
    tn_layout_shard(&piece, TN_AXIS_DP_SHARD, 0);
    piece.among[TN_AXIS_DP_SHARD] = (uint8_t)n_ranks;
    tn_node_desc d = {.op = TN_OP_redistribute,
                      .n_in = 1,
                      .in = &whole,
                      .path = n.path,
                      .phase = TN_PHASE_COMM,
                      .scope = (tn_scope)n.scope,
                      .stage = n.stage,
                      .layout = &piece};
    return tn_graph_add(s->r.g, &d, &s->kept[old_value]);
}

static tn_status unshard(store *s, int32_t old_value, const tn_node *user, int32_t *out)
{
    int backward =
        in_backward(user) && s->o->unshard == TN_UNSHARD_ALWAYS && s->o->unshard_ranks != 1;
    int32_t *known = &s->unsharded[backward][old_value], from = s->r.map[old_value];
    const tn_graph *g = s->r.g;
    if (backward && s->kept[old_value] >= 0 &&
        g->nodes[g->values[s->kept[old_value]].node].stage == user->stage)
        from = s->kept[old_value];
    if (*known < 0 || g->nodes[g->values[*known].node].stage != user->stage) {
        const tn_value *v = &s->r.old->values[old_value];
        tn_named_attr attr = {"dtype", {.kind = 's', .u.s = tn_dtype_name((tn_dtype)v->dtype)}};
        tn_node_desc d = {.op = TN_OP_unshard,
                          .n_in = 1,
                          .in = &from,
                          .n_attrs = 1,
                          .attrs = &attr,
                          .path = s->r.old->nodes[v->node].path,
                          .phase = TN_PHASE_COMM,
                          .scope = unshard_scope(s),
                          .stage = user->stage,
                          .layout = &v->layout};
        TN_TRY(tn_graph_add(s->r.g, &d, known));
        if (!backward) TN_TRY(keep_piece(s, old_value, *known));
    }
    *out = *known;
    return TN_OK;
}

/* The views that a loss chunk needs are made before the chunk begins. */
static tn_status unshard_ahead(store *s, int64_t i)
{
    const tn_graph *old = s->r.old;
    int32_t unused;
    for (int64_t k = i; k < old->n_nodes && old->nodes[k].scope == TN_SCOPE_CHUNK; k++)
        for (int j = 0; j < old->nodes[k].n_in; j++)
            if (is_param(old, tn_node_in(old, &old->nodes[k], j)))
                TN_TRY(unshard(s, tn_node_in(old, &old->nodes[k], j), &old->nodes[k], &unused));
    return TN_OK;
}

/* All that the microbatches read, at the end of the head. */
static tn_status unshard_all(store *s, int64_t i)
{
    const tn_graph *old = s->r.old;
    int32_t unused;
    for (; i < old->n_nodes && old->nodes[i].scope != TN_SCOPE_TAIL; i++)
        for (int j = 0; j < old->nodes[i].n_in; j++)
            if (is_param(old, tn_node_in(old, &old->nodes[i], j)))
                TN_TRY(unshard(s, tn_node_in(old, &old->nodes[i], j), &old->nodes[i], &unused));
    return TN_OK;
}

static tn_status compute_node(store *s, int64_t i)
{
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    tn_node_desc d;
    const tn_graph *old = s->r.old;
    const tn_node *n = &old->nodes[i];
    if (n->scope == TN_SCOPE_CHUNK && (i == 0 || old->nodes[i - 1].scope != TN_SCOPE_CHUNK))
        TN_TRY(unshard_ahead(s, i));
    int32_t unsharded[TN_MAX_OPERANDS];
    for (int k = 0; k < n->n_in; k++) {
        int32_t v = tn_node_in(old, n, k);
        unsharded[k] = -1;
        if (is_param(old, v) && n->scope != TN_SCOPE_TAIL) TN_TRY(unshard(s, v, n, &unsharded[k]));
    }
    tn_rewrite_describe(&s->r, i, in, attrs, &d);
    for (int k = 0; k < n->n_in; k++)
        if (unsharded[k] >= 0) in[k] = unsharded[k];
    tn_layout rest = at_rest(d.layout);
    if (n->op == TN_OP_reduce) d.layout = &rest;
    return tn_rewrite_add(&s->r, i, &d);
}

/* ------------------------------------------------------------ the update */

static tn_status add_tail(store *s, const tn_node *like, tn_op_id op, int n_in, const int32_t *in,
                          int n_attrs, const tn_named_attr *attrs, const tn_layout *layout,
                          int32_t *out)
{
    tn_node_desc d = {.op = op,
                      .n_in = n_in,
                      .in = in,
                      .n_attrs = n_attrs,
                      .attrs = attrs,
                      .path = like ? like->path : "",
                      .phase = TN_PHASE_OPT,
                      .scope = TN_SCOPE_TAIL,
                      .stage = like ? like->stage : 0,
                      .layout = layout};
    return tn_graph_add(s->r.g, &d, out);
}

static tn_status moment(store *s, const tn_node *param, const tn_value *v, const char *suffix,
                        int32_t *out)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", tn_node_attr_text(param, "name"), suffix);
    tn_named_attr attrs[2] = {{"name", {.kind = 's', .u.s = name}},
                              {"kind", {.kind = 's', .u.s = "moment"}}};
    tn_value like = *v;
    like.dtype = TN_F32;
    like.layout = at_rest(&v->layout);
    tn_node_desc d = {.op = TN_OP_state,
                      .n_attrs = 2,
                      .attrs = attrs,
                      .path = param->path,
                      .scope = TN_SCOPE_HEAD,
                      .stage = param->stage,
                      .layout = &like.layout,
                      .like = &like};
    return tn_graph_add(s->r.g, &d, out);
}

static tn_named_attr num(const char *name, double x)
{
    return (tn_named_attr){name, {.kind = 'f', .u.f = x}};
}

static tn_status update(store *s, int32_t old_value, int32_t m, int32_t v, int32_t coef)
{
    const tn_node *p = &s->r.old->nodes[s->r.old->values[old_value].node];
    const tn_pass_options *o = s->o;
    int group = o->group_of(o->user, tn_node_attr_text(p, "name"));
    const tn_optimizer_group *q = &o->groups[group];
    tn_named_attr id = {"group", {.kind = 'i', .u.i = group}};
    int32_t w = s->r.map[old_value], g = s->grad[old_value];
    if (o->optimizer == TN_OPTIMIZER_SGD) {
        int32_t in[4] = {w, g, m, coef};
        tn_named_attr attrs[] = {id, num("lr", q->lr), num("momentum", q->momentum),
                                 num("weight_decay", q->weight_decay)};
        return add_tail(s, p, TN_OP_sgd, 4, in, TN_COUNT(attrs), attrs, NULL, NULL);
    }
    int32_t in[5] = {w, g, m, v, coef};
    tn_named_attr attrs[] = {
        id,
        num("lr", q->lr),
        num("beta1", q->beta1),
        num("beta2", q->beta2),
        num("eps", q->eps),
        num("weight_decay", q->weight_decay),
        {"decoupled", {.kind = 'i', .u.i = o->optimizer == TN_OPTIMIZER_ADAMW}}};
    return add_tail(s, p, TN_OP_adamw, 5, in, TN_COUNT(attrs), attrs, NULL, NULL);
}

/* The exact sum over the gradients of one stage, complete on its ranks; -1: it has no parameters.
 */
static tn_status norm_of_stage(store *s, int stage, int32_t *out)
{
    const tn_graph *old = s->r.old;
    int32_t norm[2] = {-1, -1};
    tn_node like = {.path = "", .stage = (int16_t)stage};
    tn_layout whole = tn_layout_all(TN_TYPE_R);
    for (int64_t k = 0; k < s->n_params; k++) {
        int32_t v = s->params[k];
        const tn_node *p = &old->nodes[old->values[v].node];
        if (p->stage != stage) continue;
        norm[0] = s->grad[v];
        TN_TRY(add_tail(s, p, TN_OP_norm_sum, norm[1] < 0 ? 1 : 2, norm, 0, NULL, NULL, &norm[1]));
    }
    *out = norm[1];
    if (*out < 0) return TN_OK;
    return add_tail(s, &like, TN_OP_redistribute, 1, out, 0, NULL, &whole, out);
}

/* norm_sum over every gradient, its reduction, clip; then the update of every parameter. */
static tn_status finish(store *s, const int32_t *moments)
{
    const tn_graph *old = s->r.old;
    int32_t coef, sum[2] = {-1, -1};
    int last_stage = 0;
    for (int64_t i = 0; i < old->n_nodes; i++)
        if (old->nodes[i].stage > last_stage) last_stage = old->nodes[i].stage;
    tn_node everywhere = {.path = "", .stage = (int16_t)(last_stage ? TN_STAGE_ALL : 0)};
    tn_named_attr max_norm = num("max_norm", s->o->max_norm);
    for (int stage = 0; stage <= last_stage; stage++) {
        TN_TRY(norm_of_stage(s, stage, &sum[1]));
        if (sum[1] < 0) continue;
        if (sum[0] < 0) sum[0] = sum[1];
        else TN_TRY(add_tail(s, &everywhere, TN_OP_exact_add, 2, sum, 0, NULL, NULL, &sum[0]));
    }
    if (sum[0] < 0) TN_FAIL(TN_BAD_INPUT, "model: it has no parameters; nothing to train");
    TN_TRY(add_tail(s, &everywhere, TN_OP_clip, 1, sum, 1, &max_norm, NULL, &coef));
    for (int64_t k = 0; k < s->n_params; k++)
        TN_TRY(update(s, s->params[k], moments[2 * k], moments[2 * k + 1], coef));
    return TN_OK;
}

/* The last TAIL value made from `reduce` nodes of a parameter is its complete gradient. */
static void note_gradient(store *s, int64_t i)
{
    const tn_graph *old = s->r.old;
    const tn_node *n = &old->nodes[i];
    if (n->scope != TN_SCOPE_TAIL) return;
    const char *name = NULL;
    for (const tn_node *q = n; !name;) {
        if (q->op == TN_OP_reduce) name = tn_node_attr_text(q, "param");
        else if (q->op == TN_OP_add) q = &old->nodes[old->values[tn_node_in(old, q, 1)].node];
        else return;
    }
    for (int64_t k = 0; k < s->n_params; k++, s->at = (s->at + 1) % s->n_params) {
        int32_t v = s->params[s->at];
        if (strcmp(tn_node_attr_text(&old->nodes[old->values[v].node], "name"), name)) continue;
        s->grad[v] = s->r.map[n->out0];
        return;
    }
}

static tn_status run(store *s, int32_t *moments)
{
    const tn_graph *old = s->r.old;
    int64_t i = 0, k = 0;
    for (; i < old->n_nodes && old->nodes[i].scope == TN_SCOPE_HEAD; i++) {
        bool param = old->nodes[i].n_out && is_param(old, old->nodes[i].out0);
        if (!param) {
            TN_TRY(tn_rewrite_copy(&s->r, i));
            continue;
        }
        TN_TRY(master(s, i));
        s->params[s->n_params++] = old->nodes[i].out0;
        if (s->o->n_groups == 0) continue; /* forward only: no optimizer */
        const tn_value *v = &old->values[old->nodes[i].out0];
        TN_TRY(moment(s, &old->nodes[i], v, s->o->optimizer == TN_OPTIMIZER_SGD ? "momentum" : "m",
                      &moments[2 * k]));
        if (s->o->optimizer != TN_OPTIMIZER_SGD)
            TN_TRY(moment(s, &old->nodes[i], v, "v", &moments[2 * k + 1]));
        k++;
    }
    for (int64_t u = i; u < old->n_nodes && old->nodes[u].scope != TN_SCOPE_TAIL; u++)
        for (int j = 0; j < old->nodes[u].n_in; j++)
            s->again[tn_node_in(old, &old->nodes[u], j)] |= in_backward(&old->nodes[u]);
    if (unshard_scope(s) == TN_SCOPE_HEAD) TN_TRY(unshard_all(s, i));
    for (; i < old->n_nodes; i++) {
        TN_TRY(compute_node(s, i));
        note_gradient(s, i);
    }
    return s->o->n_groups ? finish(s, moments) : TN_OK;
}

tn_status tn_pass_storage(const tn_graph *in, const tn_pass_options *o, tn_graph **out)
{
    store s = {.o = o};
    tn_arena arena = {0};
    void *mem;
    size_t n = (size_t)in->n_values + 1;
    TN_TRY(tn_rewrite_begin(in, &s.r));
    tn_status st = tn_arena_alloc(&arena, n * (7 * sizeof(int32_t) + 1), &mem);
    if (!st) {
        int32_t *p = mem;
        s.unsharded[0] = p;
        s.unsharded[1] = p + n;
        s.grad = p + 2 * n;
        s.kept = p + 3 * n;
        s.params = p + 4 * n;
        s.again = (bool *)(p + 7 * n);
        for (size_t i = 0; i < 4 * n; i++) p[i] = -1;
        st = run(&s, p + 5 * n);
    }
    tn_arena_fini(&arena);
    if (st) {
        tn_rewrite_drop(&s.r);
        return st;
    }
    *out = tn_rewrite_finish(&s.r);
    return TN_OK;
}
