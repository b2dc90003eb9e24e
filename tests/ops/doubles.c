/* doubles.c - a graph computed in double, node by node, by the formulas of the rows. Every value
 * has memory of its own; the loops over microbatches and chunks are those of the executor. */
#include "tests/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double tn_ops_stored(double x, int dtype)
{
    uint64_t u;
    if (dtype != TN_BF16 || x == 0) return x;
    memcpy(&u, &x, sizeof u);
    const uint64_t half = (uint64_t)1 << 44, odd = u >> 45 & 1; /* 52 - 7 bits are dropped */
    u = (u + half - 1 + odd) & ~(2 * half - 1);
    memcpy(&x, &u, sizeof x);
    return x;
}

double **tn_ops_doubles(const tn_ops *t, const tn_graph *g)
{
    double **values = calloc((size_t)g->n_values + 1, sizeof *values);
    if (!values) exit(1);
    for (int64_t v = 0; v < g->n_values; v++) {
        values[v] = calloc((size_t)tn_value_elements(&g->values[v]), sizeof **values);
        if (!values[v]) exit(1);
    }
    for (int i = 0; i < t->n_leaves; i++) {
        char name[16];
        snprintf(name, sizeof name, "leaf%d", i);
        int32_t v = tn_ops_name_leaf(g, name);
        if (v >= 0)
            memcpy(values[v], t->content[i],
                   (size_t)tn_value_elements(&g->values[v]) * sizeof **values);
    }
    return values;
}

void tn_ops_doubles_free(double **values, const tn_graph *g)
{
    for (int64_t v = 0; v < g->n_values; v++) free(values[v]);
    free(values);
}

typedef struct walk {
    const tn_graph *g;
    double **values;
    const tn_step *step;
    int64_t end;
} walk;

static void nodes(const walk *w, tn_scope scope, int64_t begin, int64_t end, int64_t microbatch,
                  int64_t chunk)
{
    const tn_graph *g = w->g;
    for (int64_t i = begin; i < end && i < w->end; i++) {
        const tn_node *n = &g->nodes[i];
        if (n->scope != scope || n->n_in == 0) continue;
        int64_t chunks = scope == TN_SCOPE_CHUNK ? g->n_chunks : 1;
        tn_ops_ref r = {.g = g,
                        .n = n,
                        .microbatch = microbatch,
                        .chunk = chunk,
                        .iteration = microbatch * chunks + chunk,
                        .step = w->step};
        for (int k = 0; k < n->n_in; k++) r.in[k] = w->values[tn_node_in(g, n, k)];
        for (int k = 0; k < n->n_out; k++) r.out[k] = w->values[n->out0 + k];
        tn_ops_row((tn_op_id)n->op)->ref(&r);
        for (int k = 0; k < n->n_out; k++) {
            const tn_value *v = tn_ops_out(&r, k);
            for (int64_t e = 0; v->dtype == TN_BF16 && e < tn_ops_count(v, 0); e++)
                r.out[k][e] = tn_ops_stored(r.out[k][e], v->dtype);
        }
    }
}

void tn_ops_evaluate(const tn_graph *g, double **values, const tn_step *step, int64_t end)
{
    walk w = {g, values, step, end};
    int64_t chunk = g->n_nodes, chunk_end = g->n_nodes;
    for (int64_t i = g->n_nodes - 1; i >= 0; i--) {
        if (g->nodes[i].scope != TN_SCOPE_CHUNK) continue;
        if (chunk == g->n_nodes) chunk_end = i + 1;
        chunk = i;
    }
    nodes(&w, TN_SCOPE_HEAD, 0, g->n_nodes, 0, 0);
    for (int64_t m = 0; m < g->n_microbatches; m++) {
        nodes(&w, TN_SCOPE_MICROBATCH, 0, chunk, m, 0);
        for (int64_t c = 0; c < g->n_chunks; c++) nodes(&w, TN_SCOPE_CHUNK, chunk, chunk_end, m, c);
        nodes(&w, TN_SCOPE_MICROBATCH, chunk_end, g->n_nodes, m, 0);
    }
    nodes(&w, TN_SCOPE_TAIL, 0, g->n_nodes, 0, 0);
}
