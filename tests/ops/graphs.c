/* graphs.c - building the small graphs of the op tests. A graph that cannot be built is a mistake
 * in a row: said, and the end. */
#include "tests/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void give_up(const char *what)
{
    fprintf(stderr, "tests/ops: %s: %s\n", what, tn_error_text());
    exit(1);
}

double tn_ops_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 40) / 8388608.0 - 1.0;
}

tn_ops tn_ops_begin(uint64_t seed, bool through_nodes)
{
    const tn_mesh mesh = {1, {1, 1, 1, 1}};
    const tn_order_grid grid = {8, 8, 8};
    tn_ops t = {.scope = TN_SCOPE_MICROBATCH,
                .through_nodes = through_nodes,
                .random = seed,
                .step = {1, 1.0}};
    if (tn_graph_create(&mesh, grid, true, &t.g)) give_up("graph");
    tn_ops_loops(&t, 1, 1, 1, 1);
    return t;
}

void tn_ops_fini(tn_ops *t)
{
    for (int i = 0; i < t->n_leaves; i++) free(t->content[i]);
    tn_graph_destroy(t->g);
    *t = (tn_ops){0};
}

void tn_ops_loops(tn_ops *t, int64_t rows, int64_t seq, int64_t microbatches, int64_t chunks)
{
    t->g->rows = rows;
    t->g->seq = seq;
    t->g->n_microbatches = microbatches;
    t->g->n_chunks = chunks;
}

/* ---- leaves */

static void read_dims(const char *text, tn_value *v, tn_layout *layout)
{
    *v = (tn_value){.levels = 1};
    *layout = tn_layout_all(TN_TYPE_I);
    while (*text && *text != '{') {
        tn_dim *d = &v->dim[v->rank++];
        char *end;
        d->extent = strtoll(text, &end, 10);
        if (*end == '/') d->units = strtoll(end + 1, &end, 10);
        if (end == text || v->rank > TN_MAX_RANK) give_up(text);
        text = end + strspn(end, ", ");
    }
    if (*text && !tn_layout_parse(text, layout)) give_up(text);
}

static double element(tn_ops *t, const tn_ops_operand *o, int64_t i, int64_t last)
{
    double x = tn_ops_random(&t->random);
    switch (o->fill) {
    case TN_OPS_UNIFORM:
        return (double)(float)(o->a * (x + (x < 0 ? -0.001 : 0.001)) / 1.001);
    case TN_OPS_POSITIVE:
        return (double)(float)(o->a * (0.625 + 0.375 * x));
    case TN_OPS_BELOW:
        return floor(o->a * (x + 1) / 2);
    case TN_OPS_ALONG:
        return o->a + (double)(i % last);
    default:
        return o->given[i % o->n_given];
    }
}

static int32_t leaf(tn_ops *t, tn_ops_operand o, tn_dtype dtype)
{
    tn_value like;
    tn_layout layout;
    char name[16];
    int32_t v;
    read_dims(o.dims, &like, &layout);
    like.dtype = (uint8_t)dtype;
    bool input = dtype == TN_I32 && like.rank == 2;
    snprintf(name, sizeof name, "leaf%d", t->n_leaves);
    tn_named_attr attrs[2] = {{"name", {.kind = 's', .u.s = name}},
                              {"kind", {.kind = 's', .u.s = "param"}}};
    if (dtype == TN_I32 || o.constant) attrs[1].value.u.s = "buffer";
    tn_node_desc d = {.op = input ? TN_OP_input : TN_OP_state,
                      .n_attrs = input ? 1 : 2,
                      .attrs = attrs,
                      .path = "leaf",
                      .layout = &layout,
                      .like = &like};
    if (tn_graph_add(t->g, &d, &v)) give_up(o.dims);
    int64_t n = tn_value_elements(&t->g->values[v]), last = like.dim[like.rank - 1].extent;
    double *x = calloc((size_t)n, sizeof *x);
    if (!x || t->n_leaves == TN_OPS_MAX) give_up("too large");
    for (int64_t i = 0; i < n; i++) x[i] = tn_ops_stored(element(t, &o, i, last), (int)dtype);
    t->content[t->n_leaves] = x;
    t->leaf[t->n_leaves++] = v;
    return v;
}

int32_t tn_ops_i32(tn_ops *t, tn_ops_operand o)
{
    return leaf(t, o, TN_I32);
}

int32_t tn_ops_f32(tn_ops *t, tn_ops_operand o)
{
    int32_t v = leaf(t, o, t->bf16 && !o.wide ? TN_BF16 : TN_F32);
    bool pending = strchr(o.dims, 'P'); /* only its reduction may read it */
    return t->through_nodes && !pending ? TN_OPS_NODE(t, TN_OP_scale, NULL, v) : v;
}

int32_t tn_ops_name_leaf(const tn_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if ((n->op == TN_OP_state || n->op == TN_OP_input) &&
            !strcmp(tn_node_attr_text(n, "name"), name))
            return n->out0;
    }
    return -1;
}

/* ---- nodes */

static int read_attrs(char *text, tn_named_attr *out)
{
    int n = 0;
    for (char *save = NULL, *w = strtok_r(text, " ", &save); w;
         w = strtok_r(NULL, " ", &save), n++) {
        char *value = strchr(w, '='), *end;
        if (!value || n == 16) give_up(w);
        *value++ = 0;
        for (char *c = value; *c; c++)
            if (*c == '~') *c = ' '; /* inside a fused program */
        out[n] = (tn_named_attr){w, {.kind = 'i', .u.i = strtoll(value, &end, 10)}};
        if (!*end) continue;
        out[n].value = (tn_attr){.kind = 'f', .u.f = strtod(value, &end)};
        if (*end) out[n].value = (tn_attr){.kind = 's', .u.s = value};
    }
    return n;
}

static tn_scope scope_of(const tn_ops *t, tn_op_id op)
{
    switch (op) {
    case TN_OP_count_labels:
    case TN_OP_inv_count:
        return TN_SCOPE_HEAD;
    case TN_OP_norm_sum:
    case TN_OP_exact_add:
    case TN_OP_clip:
    case TN_OP_adamw:
    case TN_OP_sgd:
    case TN_OP_reduce:
        return TN_SCOPE_TAIL;
    default:
        return t->scope;
    }
}

int32_t tn_ops_node(tn_ops *t, tn_op_id op, const char *attrs, const char *layout, int n_in,
                    const int32_t *in)
{
    char text[512];
    tn_named_attr named[16];
    tn_layout to;
    int32_t out;
    snprintf(text, sizeof text, "%s", attrs ? attrs : "");
    if (layout && !tn_layout_parse(layout, &to)) give_up(layout);
    tn_node_desc d = {.op = op,
                      .n_in = n_in,
                      .in = in,
                      .n_attrs = read_attrs(text, named),
                      .attrs = named,
                      .path = "test",
                      .phase = t->phase,
                      .scope = scope_of(t, op),
                      .layout = layout ? &to : NULL};
    if (tn_graph_add(t->g, &d, &out)) give_up(tn_op_name(op));
    t->under_test = t->g->n_nodes - 1;
    return out;
}

int32_t tn_ops_find_again(const tn_graph *from, int32_t value, const tn_graph *to)
{
    const tn_node *n = &from->nodes[from->values[value].node];
    tn_op_id op = (tn_op_id)n->op;
    int64_t k = 0;
    for (int64_t i = 0; &from->nodes[i] < n; i++) k += from->nodes[i].op == op;
    bool expanded = op == TN_OP_cross_entropy;
    for (int64_t i = 0; i < to->n_nodes; i++) expanded &= to->nodes[i].op != op;
    if (expanded) op = TN_OP_loss_merge;
    for (int64_t i = 0; i < to->n_nodes; i++)
        if (to->nodes[i].op == op && k-- == 0) return to->nodes[i].out0 + from->values[value].out;
    return -1;
}
