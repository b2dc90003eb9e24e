/* chunk.c - the piece of this microbatch or loss chunk: rows and positions [rows, seq, ...] of a
 * larger tensor. A view that moves with the iteration; pieces are consecutive runs of tokens, so
 * nothing is copied. */
#include "graph/op.h"

#include <string.h>

static tn_status shape(tn_infer *t)
{
    int64_t rows = tn_infer_attr(t, "rows").u.i, seq = tn_infer_attr(t, "seq").u.i;
    const tn_dim *d = t->in[0]->dim;
    const char *over = tn_infer_attr(t, "over").u.s;
    if (strcmp(over, "chunk") && strcmp(over, "microbatch"))
        return tn_infer_bad(t, "over = '%s'; chunk or microbatch", over);
    if (t->in[0]->rank < 2) return tn_infer_bad(t, "needs rows and positions");
    tn_axis axes[TN_N_AXES];
    int64_t ranks = 1; /* that share the rows: each takes its piece of its own */
    for (int i = 0, n = tn_layout_axes(&t->in[0]->layout, 0, axes); i < n; i++)
        ranks *= t->g->mesh.size[axes[i]];
    bool even = rows % ranks == 0 && d[0].extent % ranks == 0;
    bool whole_rows = even && rows >= 1 && seq == d[1].extent && d[0].extent % rows == 0;
    bool part_of_row = even && rows == ranks && seq >= 1 && d[1].extent % seq == 0;
    if (!whole_rows && !part_of_row)
        return tn_infer_bad(t,
                            "pieces of %lld x %lld do not tile %lld x %lld; whole rows, or an even "
                            "share of one row",
                            (long long)rows, (long long)seq, (long long)d[0].extent,
                            (long long)d[1].extent);
    t->out[0].dim[0].extent = rows;
    t->out[0].dim[1].extent = seq;
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    const tn_value *x = &v->g->values[v->in[0]];
    tn_named_attr attrs[3] = {{"over", {.kind = 's', .u.s = tn_node_attr_text(v->n, "over")}},
                              {"rows", {.kind = 'i', .u.i = x->dim[0].extent}},
                              {"seq", {.kind = 'i', .u.i = x->dim[1].extent}}};
    return tn_vjp_add(v, TN_OP_unchunk, TN_PHASE_B, 1, v->dy, 3, attrs, &v->dx[0]);
}

const tn_op tn_op_chunk = {
    .name = "chunk",
    .sig = "... -> ...",
    .attrs = "over=chunk rows=0 seq=0",
    .linear = 1u << 0,
    .shape = shape,
    .vjp = vjp,
    .view = true,
    .partial = true,
};
