/* test_infer.c - what the node constructor gives and what it refuses: every error names module, op
 * and axis, and says how to mend it. */
#include "graph/op.h"
#include "tests/test.h"

#include <stdlib.h>

/* ------------------------------------------------------------ one node */

/* "8,4/2 {dp:0 cp:R tp:1}", with a word behind it: const (no gradient flows), i32, bf16, exact. A
 * value made by a state. */
static tn_status operand(tn_graph *g, const char *text, int32_t *out)
{
    const char *open = strchr(text, '{'), *close = strchr(text, '}');
    tn_layout l;
    char layout[128];
    tn_value like = {.levels = 1, .dtype = TN_F32};
    snprintf(layout, sizeof layout, "%.*s", (int)(close - open + 1), open);
    if (!tn_layout_parse(layout, &l)) TN_FAIL(TN_FAILED, "test: layout '%s'", layout);
    for (const char *p = text; *p >= '0' && *p <= '9';) {
        char *end;
        tn_dim *d = &like.dim[like.rank++];
        d->extent = strtoll(p, &end, 10);
        if (*end == '/') d->units = strtoll(end + 1, &end, 10);
        p = end + (*end == ',');
    }
    bool constant = strstr(close, "const") != NULL;
    if (strstr(close, "i32")) like.dtype = TN_I32;
    if (strstr(close, "bf16")) like.dtype = TN_BF16;
    bool scalar = !like.rank;
    if (scalar) like.dim[like.rank++].extent = 1; /* states have dims */
    tn_layout at = l;
    for (int a = 0; scalar && a < TN_N_AXES; a++) at.type[a] = TN_TYPE_R;
    tn_named_attr attrs[2] = {{"name", {.kind = 's', .u.s = "v"}},
                              {"kind", {.kind = 's', .u.s = constant ? "buffer" : "param"}}};
    tn_node_desc d = {
        .op = TN_OP_state, .n_attrs = 2, .attrs = attrs, .path = "m", .layout = &at, .like = &like};
    TN_TRY(tn_graph_add(g, &d, out));
    tn_value *v = &g->values[*out];
    v->layout = l;
    if (scalar) v->rank = 0;
    if (strstr(close, "exact")) v->dtype = TN_EXACT;
    return TN_OK;
}

typedef struct example {
    const char *op;
    const char *in[11];
    const char *attrs;   /* "over=chunk rows=1 by=2.0" or NULL */
    const char *to;      /* placement for ops that need one */
    const char *gives;   /* type of every output, "8,4 {..}; 8 {..}", or NULL */
    const char *refuses; /* part of the message */
    bool fast;
} example;

static int read_attrs(const char *text, tn_named_attr *out, char *buf)
{
    int n = 0;
    char *save = NULL;
    snprintf(buf, 256, "%s", text ? text : "");
    for (char *w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '='), *end;
        *eq = 0;
        out[n].name = w;
        out[n].value = (tn_attr){.kind = 'i', .u.i = strtoll(eq + 1, &end, 10)};
        if (*end) out[n].value = (tn_attr){.kind = 'f', .u.f = strtod(eq + 1, &end)};
        if (*end) out[n].value = (tn_attr){.kind = 's', .u.s = eq + 1};
        n++;
    }
    return n;
}

static void describe(const tn_graph *g, char *out, size_t size)
{
    const tn_node *n = &g->nodes[g->n_nodes - 1];
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < n->n_out && at < size; i++) {
        const tn_value *v = &g->values[n->out0 + i];
        char layout[128];
        tn_layout_print(&v->layout, layout, sizeof layout);
        if (i) at += (size_t)snprintf(out + at, size - at, "; ");
        if (v->dtype != TN_F32)
            at += (size_t)snprintf(out + at, size - at, "%s ", tn_dtype_name((tn_dtype)v->dtype));
        for (int d = 0; d < v->rank; d++) {
            at += (size_t)snprintf(out + at, size - at, "%s%lld", d ? "," : "",
                                   (long long)v->dim[d].extent);
            if (v->dim[d].units)
                at += (size_t)snprintf(out + at, size - at, "/%lld", (long long)v->dim[d].units);
        }
        at += (size_t)snprintf(out + at, size - at, "%s%s", v->rank ? " " : "", layout);
    }
}

static tn_status try(const example *e, char *made, size_t size)
{
    static const tn_mesh mesh = {1, {2, 2, 2, 2}};
    tn_graph *g;
    tn_layout to;
    int32_t in[16];
    bool found;
    char buf[256], what[64];
    tn_named_attr attrs[16];
    TN_TRY(tn_graph_create(&mesh, (tn_order_grid){8, 8, 8}, !e->fast, &g));
    tn_node_desc d = {.op = tn_op_find(e->op, &found), .in = in, .attrs = attrs, .path = "m"};
    tn_status st = found ? TN_OK : tn_error(TN_FAILED, "test: no op '%s'", e->op);
    for (; !st && e->in[d.n_in]; d.n_in++) st = operand(g, e->in[d.n_in], &in[d.n_in]);
    d.n_attrs = read_attrs(e->attrs, attrs, buf);
    if (e->to && tn_layout_parse(e->to, &to)) d.layout = &to;
    if (!st) st = tn_graph_add(g, &d, NULL);
    if (!st) describe(g, made, size);
    snprintf(what, sizeof what, "m: %s: ", e->op);
    if (st == TN_BAD_INPUT)
        TN_CHECK_MSG(!strncmp(tn_error_text(), what, strlen(what)), "'%s' does not begin with '%s'",
                     tn_error_text(), what);
    tn_graph_destroy(g);
    return st;
}

static void check(const example *e, int n)
{
    for (int i = 0; i < n; i++) {
        char made[512] = "";
        tn_status st = try(&e[i], made, sizeof made);
        if (e[i].gives)
            TN_CHECK_MSG(!st && !strcmp(made, e[i].gives), "%d %s: status %d '%s' %s, expected %s",
                         i, e[i].op, (int)st, tn_error_text(), made, e[i].gives);
        else
            TN_CHECK_MSG(st == TN_BAD_INPUT && strstr(tn_error_text(), e[i].refuses),
                         "%d %s: status %d '%s' %s, expected '..%s..'", i, e[i].op, (int)st,
                         tn_error_text(), made, e[i].refuses);
        tn_error_clear();
    }
}

/* ------------------------------------------------------------ what follows from the factors */

static const example rules[] = {
    /* column parallel, row parallel, data and sequence parallel, several weights */
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:R}", "10,6 {dp:R cp:R tp:0}"},
     .gives = "4,8,10 {dp:0 cp:1 tp:2}"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:2}", "10,6 {dp:R cp:R tp:1}"},
     .gives = "4,8,10 {dp:0 cp:1 tp:P}"},
    {"linear",
     {"4,8,6 {dp:0 cp:1.0 tp:1.1}", "10,6 {dp:R cp:R tp:R}"},
     .gives = "4,8,10 {dp:0 cp:1.0 tp:1.1}"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:R}", "12/4,6 {dp:R cp:R tp:0}", "6/2,6 {dp:R cp:R tp:0}"},
     .gives = "4,8,12/4 {dp:0 cp:1 tp:2}; 4,8,6/2 {dp:0 cp:1 tp:2}"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:I}", "10,6 {dp:R cp:R tp:R} const"},
     .gives = "4,8,10 {dp:0 cp:1 tp:I}"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:R} bf16", "10,6 {dp:R cp:R tp:0} bf16"},
     .gives = "bf16 4,8,10 {dp:0 cp:1 tp:2}"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:R} bf16", "10,6 {dp:R cp:R tp:0} bf16"},
     .attrs = "out_f32=1",
     .gives = "4,8,10 {dp:0 cp:1 tp:2}"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:R}", "10,6 {dp:R cp:R tp:0}"},
     .attrs = "out_f32=0.0",
     .gives = "4,8,10 {dp:0 cp:1 tp:2}"},
    {"linear_bwd_w",
     {"4,8,10 {dp:0 cp:1 tp:2}", "4,8,6 {dp:0 cp:1 tp:R}"},
     .gives = "10,6 {dp:P cp:P tp:0}"},
    {"linear_bwd_x",
     {"4,8,10 {dp:0 cp:1 tp:2}", "10,6 {dp:R cp:R tp:0}"},
     .gives = "4,8,6 {dp:0 cp:1 tp:P}"},
    {"linear_bwd_x",
     {"4,8,4 {dp:0 cp:1 tp:2}", "4,8,2 {dp:0 cp:1 tp:2}", "4,6 {dp:R cp:R tp:0}",
      "2,6 {dp:R cp:R tp:0}"},
     .gives = "4,8,6 {dp:0 cp:1 tp:P}"},
    {"embedding",
     {"4,8 {dp:0 cp:1 tp:I} const i32", "20,6 {dp:R cp:R tp:0} bf16"},
     .gives = "4,8,6 {dp:0 cp:1 tp:P}"}, /* a pending sum is fp32 */
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:2} bf16", "10,6 {dp:R cp:R tp:1} bf16"},
     .gives = "4,8,10 {dp:0 cp:1 tp:P}"},
    {"linear_bwd_x", /* the gradient of fp32 logits */
     {"4,8,10 {dp:0 cp:1 tp:R}", "10,6 {dp:R cp:R tp:R} bf16"},
     .gives = "bf16 4,8,6 {dp:0 cp:1 tp:R}"},
    {"linear_bwd_w",
     {"4,8,10 {dp:0 cp:1 tp:2} bf16", "4,8,6 {dp:0 cp:1 tp:R} bf16"},
     .gives = "10,6 {dp:P cp:P tp:0}"},
    {"redistribute",
     {"4,6 {dp:0 cp:1 tp:P}"},
     .attrs = "dtype=bf16",
     .to = "{dp:0 cp:1.0 tp:1.1}",
     .gives = "bf16 4,6 {dp:0 cp:1.0 tp:1.1}"},
    {"redistribute",
     {"4,6 {dp:0 cp:1 tp:I} const i32"},
     .attrs = "dtype=bf16",
     .to = "{dp:0 cp:1 tp:R}",
     .refuses = "i32 is not cast"},
    {"add",
     {"4,6 {dp:0 cp:R tp:R} bf16", "4,6 {dp:0 cp:R tp:R}"},
     .refuses = "operand 1 is f32, operand 0 is bf16; they must be alike"},
    {"embedding_bwd",
     {"4,8 {dp:0 cp:1 tp:R} const i32", "4,8,6 {dp:0 cp:1 tp:R}"},
     .attrs = "vocab=20",
     .to = "{dp:P cp:P tp:0}",
     .gives = "20,6 {dp:P cp:P tp:0}"},
    {"rmsnorm",
     {"4,8,6 {dp:0 cp:1.0 tp:1.1}", "6 {dp:R cp:R tp:R}"},
     .gives = "4,8,6 {dp:0 cp:1.0 tp:1.1}; 4,8 {dp:0 cp:1.0 tp:1.1}"},
    {"rmsnorm",
     {"6 {dp:R cp:R tp:R} bf16", "6 {dp:R cp:R tp:R} bf16"},
     .gives = "bf16 6 {dp:R cp:R tp:R}; {dp:R cp:R tp:R}"},
    {"heads", {"4,8,12/4 {dp:0 cp:1 tp:2}"}, .attrs = "k=3", .gives = "4,8,4,3 {dp:0 cp:1 tp:2}"},
    {"merge_heads", {"4,8,4,3 {dp:0 cp:1 tp:2}"}, .gives = "4,8,12/4 {dp:0 cp:1 tp:2}"},
    {"attention",
     {"2,8,6,4 {dp:0 cp:R tp:2}", "2,8,2,4 {dp:0 cp:R tp:2}", "2,8,2,4 {dp:0 cp:R tp:2}",
      "2,8 {dp:0 cp:R tp:R} const i32", "2,8 {dp:0 cp:R tp:R} const i32",
      "2,8 {dp:0 cp:R tp:R} const i32", "2,8 {dp:0 cp:R tp:R} const i32"},
     .gives = "2,8,6,4 {dp:0 cp:R tp:2}; 2,8,6 {dp:0 cp:R tp:2}"},
    {"add",
     {"4,6 {dp:0 cp:R tp:P}", "4,6 {dp:0 cp:R tp:P}"},
     .gives = "4,6 {dp:0 cp:R tp:P}",
     .fast = true},
    {"mul",
     {"4,6 {dp:0 cp:R tp:P}", "4,6 {dp:0 cp:R tp:R}"},
     .gives = "4,6 {dp:0 cp:R tp:P}",
     .fast = true},
    {"scale",
     {"4,6 {dp:0 cp:R tp:P}"},
     .attrs = "by=2",
     .gives = "4,6 {dp:0 cp:R tp:P}",
     .fast = true},
    {"add", {"4,6 {dp:0 cp:R tp:V}", "4,6 {dp:0 cp:R tp:R}"}, .gives = "4,6 {dp:0 cp:R tp:V}"},
    {"add",
     {"4,6 {dp:0 cp:R tp:R} const", "4,6 {dp:0 cp:R tp:I}"},
     .gives = "4,6 {dp:0 cp:R tp:I}"},
    {"add",
     {"4,6 {dp:0 cp:R tp:I} const", "4,6 {dp:0 cp:R tp:R}"},
     .gives = "4,6 {dp:0 cp:R tp:R}"},
    {"add",
     {"4,6 {dp:0 cp:R tp:I} const", "4,6 {dp:0 cp:R tp:I} const"},
     .gives = "4,6 {dp:0 cp:R tp:I}"},
    {"fused",
     {"4,6 {dp:0 cp:R tp:R}", "4,6 {dp:0 cp:R tp:R}"},
     .attrs = "prog=mul outs=3",
     .gives = "4,6 {dp:0 cp:R tp:R}; 4,6 {dp:0 cp:R tp:R}; 4,6 {dp:0 cp:R tp:R}"},
    {"chunk",
     {"8,6 {dp:0 cp:1 tp:R} const i32"},
     .attrs = "over=microbatch rows=4 seq=6",
     .gives = "i32 4,6 {dp:0 cp:1 tp:R}"},
    {"chunk",
     {"8,6,5 {dp:R cp:1 tp:R}"},
     .attrs = "rows=1 seq=3",
     .gives = "1,3,5 {dp:R cp:1 tp:R}"},
    {"unchunk",
     {"1,3,5 {dp:R cp:1 tp:R}"},
     .attrs = "rows=8 seq=6",
     .gives = "8,6,5 {dp:R cp:1 tp:R}"},
    {"cross_entropy",
     {"4,8,20 {dp:0 cp:1 tp:2}", "4,8 {dp:0 cp:1 tp:I} const i32", "{dp:R cp:R tp:R} const"},
     .gives = "4,8 {dp:0 cp:1 tp:I}; 4,8 {dp:0 cp:1 tp:I}"},
    {"loss_parts",
     {"4,8,20 {dp:0 cp:1 tp:2}", "4,8 {dp:0 cp:1 tp:I} const i32"},
     .gives = "4,8,8,3 {dp:0 cp:1 tp:2}"},
    {"loss_merge",
     {"4,8,8,3 {dp:0 cp:1 tp:I}", "4,8 {dp:0 cp:1 tp:I} const i32"},
     .gives = "4,8 {dp:0 cp:1 tp:I}; 4,8 {dp:0 cp:1 tp:I}"},
    {"loss_sum", {"4,8 {dp:0 cp:1 tp:I}"}, .gives = "exact {dp:P cp:P tp:I}"},
    {"count_labels", {"4,8 {dp:0 cp:1 tp:I} const i32"}, .gives = "i32 {dp:P cp:P tp:I}"},
    {"inv_count", {"{dp:R cp:R tp:R} const i32"}, .gives = "{dp:R cp:R tp:R}"},
    {"redistribute",
     {"4,6 {dp:0 cp:1 tp:P}"},
     .to = "{dp:R cp:1.0 tp:1.1}",
     .gives = "4,6 {dp:R cp:1.0 tp:1.1}"},
    {"unshard",
     {"4,6 {dp_replicate:R dp_shard:0 cp:R tp:1}"},
     .attrs = "dtype=bf16",
     .to = "{dp:R cp:R tp:1}",
     .gives = "bf16 4,6 {dp:R cp:R tp:1}"},
    {"reduce",
     {"4,6 {dp:P cp:P tp:0} bf16"},
     .to = "{dp:R cp:R tp:0}",
     .gives = "4,6 {dp:R cp:R tp:0}"},
    {"norm_sum", {"4,6 {dp_replicate:R dp_shard:0 cp:R tp:1}"}, .gives = "exact {dp:P cp:P tp:P}"},
    {"adamw",
     {"4 {dp:R cp:R tp:0}", "4 {dp:R cp:R tp:0}", "4 {dp:R cp:R tp:0}", "4 {dp:R cp:R tp:0}",
      "{dp:R cp:R tp:R} const"},
     .gives = "4 {dp:R cp:R tp:0}; 4 {dp:R cp:R tp:0}; 4 {dp:R cp:R tp:0}"},
};

/* ------------------------------------------------------------ what is refused */

static const example type_errors[] = {
    /* a sum that was not reduced */
    {"rmsnorm",
     {"4,6 {dp:0 cp:R tp:P}", "6 {dp:R cp:R tp:R}"},
     .refuses = "axis tp: operand 0 is a pending sum (P); reduce it where it is made"},
    {"rmsnorm",
     {"4,6 {dp:0 cp:R tp:P}", "6 {dp:R cp:R tp:R}"},
     .refuses =
         "axis tp: operand 0 is a pending sum (P) and rmsnorm is not linear in it; reduce it first",
     .fast = true},
    {"unary",
     {"4,6 {dp:P cp:R tp:R}"},
     .refuses = "axis dp_replicate: operand 0 is a pending sum (P) and unary is not linear",
     .fast = true},
    {"attention",
     {"2,8,6,4 {dp:0 cp:R tp:P}", "2,8,2,4 {dp:0 cp:R tp:R}", "2,8,2,4 {dp:0 cp:R tp:R}",
      "2,8 {dp:0 cp:R tp:R} i32", "2,8 {dp:0 cp:R tp:R} i32", "2,8 {dp:0 cp:R tp:R} i32",
      "2,8 {dp:0 cp:R tp:R} i32"},
     .refuses = "attention is not linear in it",
     .fast = true},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:R}", "10,6 {dp:R cp:R tp:P}"},
     .refuses = "operand 1 is a pending sum (P) and linear is not linear in it",
     .fast = true},
    {"add",
     {"4,6 {dp:0 cp:R tp:R}", "4,6 {dp:0 cp:R tp:P}"},
     .refuses = "operand 1 is a pending sum (P); reduce it where it is made (out_dst = R, I or S)"},
    /* added once per rank, multiplied twice */
    {"add",
     {"4,6 {dp:0 cp:R tp:P}", "4,6 {dp:0 cp:R tp:R}"},
     .refuses = "P + a complete value would add it once per rank; reduce the P operand first",
     .fast = true},
    {"add",
     {"4,6 {dp:0 cp:R tp:I} const", "4,6 {dp:0 cp:R tp:P}"},
     .refuses = "P + a complete value",
     .fast = true},
    {"mul",
     {"4,6 {dp:0 cp:R tp:P}", "4,6 {dp:0 cp:R tp:P}"},
     .refuses = "a product of two pending sums is not the sum of products; reduce one first",
     .fast = true},
    {"add",
     {"4,6 {dp:0 cp:R tp:P}", "4,6 {dp:0 cp:R tp:V}"},
     .refuses =
         "P meets a value that differs by rank; reduce it first (redistribute P to R, I or S)",
     .fast = true},
    {"mul",
     {"4,6 {dp:0 cp:R tp:P}", "4,6 {dp:0 cp:R tp:1}"},
     .refuses = "on the same loop (dim 1)",
     .fast = true},
    {"linear_bwd_w",
     {"4,8,10 {dp:0 cp:1 tp:P}", "4,8,6 {dp:0 cp:1 tp:2}"},
     .refuses = "P meets a value that differs by rank",
     .fast = true},
    {"norm_sum",
     {"4,6 {dp:P cp:R tp:1}"},
     .refuses = "axis dp_replicate: the gradient is still pending; reduce it first"},
    /* R and I, V */
    {"add",
     {"4,6 {dp:0 cp:R tp:R}", "4,6 {dp:0 cp:R tp:I}"},
     .refuses = "axis tp: R mixed with I: their gradients differ (P and I); convert the I operand "
                "(redistribute I to R)"},
    {"linear", {"4,8,6 {dp:0 cp:1 tp:I}", "10,6 {dp:R cp:R tp:R}"}, .refuses = "R mixed with I"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:I}", "10,6 {dp:R cp:R tp:0}"},
     .refuses = "axis tp: an I operand meets a split one; convert it first (redistribute I to R)"},
    {"add",
     {"4,6 {dp:0 cp:R tp:V}", "4,6 {dp:0 cp:R tp:I}"},
     .refuses = "I mixed with V; convert the I operand (redistribute I to R)"},
    /* splits */
    {"rmsnorm",
     {"4,6 {dp:0 cp:R tp:1}", "6 {dp:R cp:R tp:R}"},
     .refuses = "axis tp: dim 1 of operand 0 must stay whole but is split ({dp:0 cp:R tp:1}); "
                "gather it first (redistribute to R)"},
    {"attention",
     {"2,8,6,4 {dp:0 cp:R tp:3}", "2,8,2,4 {dp:0 cp:R tp:R}", "2,8,2,4 {dp:0 cp:R tp:R}",
      "2,8 {dp:0 cp:R tp:R} i32", "2,8 {dp:0 cp:R tp:R} i32", "2,8 {dp:0 cp:R tp:R} i32",
      "2,8 {dp:0 cp:R tp:R} i32"},
     .refuses = "dim 3 of operand 0 must stay whole"},
    {"attention",
     {"2,8,6,4 {dp:0 cp:1 tp:2}", "2,8,2,4 {dp:0 cp:1 tp:2}", "2,8,2,4 {dp:0 cp:1 tp:2}",
      "2,8 {dp:0 cp:1 tp:R} i32", "2,8 {dp:0 cp:1 tp:R} i32", "2,8 {dp:0 cp:1 tp:R} i32",
      "2,8 {dp:0 cp:1 tp:R} i32"},
     .refuses = "axis cp: dim 1 of operand 1 must stay whole"},
    {"add",
     {"4,6 {dp:0 cp:R tp:1}", "4,6 {dp:0 cp:R tp:R}"},
     .refuses = "axis tp: operand 0 is {dp:0 cp:R tp:1}, operand 1 is {dp:0 cp:R tp:R} on the same "
                "loop (dim 1); redistribute one of them to the other's placement"},
    {"add",
     {"4,6 {dp:0 cp:R tp:1}", "4,6 {dp:0 cp:R tp:0.2}"},
     .refuses = "on the same loop (dim 0)"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:2}", "10,6 {dp:R cp:R tp:R}"},
     .refuses =
         "operand 0 is {dp:0 cp:1 tp:2}, operand 1 is {dp:R cp:R tp:R} on the same loop (dim 1)"},
    {"linear",
     {"4,8,6 {dp:0 cp:1 tp:R}", "10,6 {dp:R cp:R tp:1}"},
     .refuses = "on the same loop (dim 2)"},
    /* two loops on one axis */
    {"linear",
     {"4,8,6 {dp:0 cp:1.0 tp:1.1}", "10,6 {dp:R cp:R tp:0}"},
     .refuses = "axis tp splits two different loops: dim 0 of operand 1 and another of operand 0; "
                "move one of them to another dim first"},
    {"linear_bwd_w",
     {"4,8,10 {dp:0 cp:1 tp:2}", "4,8,6 {dp:0 cp:1 tp:2}"},
     .refuses = "splits two different loops"},
    /* order of axes on one dim */
    {"add",
     {"4,6 {dp:R cp:0.0 tp:0.1}", "4,6 {dp:R cp:0.1 tp:0.0}"},
     .refuses = "on the same loop (dim 0); redistribute one of them"},
    {"add",
     {"4,6 {dp:R cp:0.0 tp:0.1}", "4,6 {dp:R cp:0 tp:R}"},
     .refuses = "axis cp: operand 0 is {dp:R cp:0.0 tp:0.1}, operand 1 is {dp:R cp:0 tp:R} on the "
                "same loop"},
    {"linear_bwd_x",
     {"4,8,4 {dp:0 cp:1 tp:2}", "4,8,2 {dp:0 cp:1 tp:R}", "4,6 {dp:R cp:R tp:0}",
      "2,6 {dp:R cp:R tp:R}"},
     .refuses = "axis tp: the terms of the sum are P and R; place all operands alike"},
    /* composite dims */
    {"heads",
     {"4,8,12 {dp:0 cp:1 tp:2}"},
     .attrs = "k=3",
     .refuses =
         "axis tp splits a dim made of heads that is not declared so; declare it with nn.heads"},
    {"merge_heads",
     {"4,8,4,3 {dp:0 cp:1 tp:3}"},
     .refuses = "axis tp splits an inner factor of dim 2 of output 0; only the outermost factor of "
                "a composite dim may be split"},
    {"attention",
     {"2,8,6,4 {dp:0 cp:R tp:R}", "2,8,2,4 {dp:0 cp:R tp:2}", "2,8,2,4 {dp:0 cp:R tp:2}",
      "2,8 {dp:0 cp:R tp:R} i32", "2,8 {dp:0 cp:R tp:R} i32", "2,8 {dp:0 cp:R tp:R} i32",
      "2,8 {dp:0 cp:R tp:R} i32"},
     .refuses = "axis tp: operand 1 is"},
};

static const example shape_errors[] = {
    {"add",
     {"4,6 {dp:R cp:R tp:R}"},
     .refuses = "1 operands do not fit its form '..., ... -> ...'"},
    {"add",
     {"4,6 {dp:R cp:R tp:R}", "4,6 {dp:R cp:R tp:R}", "4,6 {dp:R cp:R tp:R}"},
     .refuses = "3 operands do not fit its form"},
    {"linear",
     {"4,6 {dp:R cp:R tp:R}"},
     .refuses = "1 operands do not fit its form '... d, {f d}+ -> {... f}+'"},
    {"linear_bwd_x",
     {"4,6 {dp:R cp:R tp:R}", "4,6 {dp:R cp:R tp:R}", "6,3 {dp:R cp:R tp:R}"},
     .refuses = "3 operands do not fit its form"},
    {"add",
     {"4,6 {dp:R cp:R tp:R}", "4,7 {dp:R cp:R tp:R}"},
     .refuses = "operand 1 has extent 7 in dim 1 where 6 is needed"},
    {"add",
     {"4,6 {dp:R cp:R tp:R}", "4,6,1 {dp:R cp:R tp:R}"},
     .refuses = "operand 1 has rank 3 where 2 is needed"},
    {"linear",
     {"4,6 {dp:R cp:R tp:R}", "10,6,1 {dp:R cp:R tp:R}"},
     .refuses = "operand 1 has rank 3 where 2 is needed"},
    {"linear",
     {"4,6 {dp:R cp:R tp:R}", "10,5 {dp:R cp:R tp:R}"},
     .refuses = "operand 1 has extent 5 in dim 1 where 6 is needed"},
    {"rmsnorm",
     {"{dp:R cp:R tp:R}", "6 {dp:R cp:R tp:R}"},
     .refuses = "operand 0 has rank 0 where 1 is needed"},
    {"heads",
     {"4,8,12 {dp:R cp:R tp:R}"},
     .attrs = "k=5",
     .refuses = "dim 2 of operand 0 has extent 12, which is not a multiple of 5"},
    {"heads", {"4,8,12 {dp:R cp:R tp:R}"}, .attrs = "k=0", .refuses = "k = 0; at least 1"},
    {"heads",
     {"4,8,12/4 {dp:R cp:R tp:R}"},
     .attrs = "k=4",
     .refuses = "3 heads of 4 elements in a dim that is cut in 4 units; declare it with nn.heads"},
    {"heads",
     {"4,8,8/6 {dp:R cp:R tp:R}"},
     .attrs = "k=4",
     .gives = "4,8,2/6,4 {dp:R cp:R tp:R}"}, /* two heads, shared by six */
    {"add",
     {"4,12/4 {dp:R cp:R tp:R}", "4,12/3 {dp:R cp:R tp:R}"},
     .refuses = "dim 1 of operand 1 is cut in 3 units, elsewhere in 4; declare both with the same "
                "nn.heads"},
    {"attention",
     {"2,8,6,4 {dp:R cp:R tp:R}", "2,8,4,4 {dp:R cp:R tp:R}", "2,8,4,4 {dp:R cp:R tp:R}",
      "2,8 {dp:R cp:R tp:R} i32", "2,8 {dp:R cp:R tp:R} i32", "2,8 {dp:R cp:R tp:R} i32",
      "2,8 {dp:R cp:R tp:R} i32"},
     .refuses = "dim 2 of operand 0 has extent 6, which is not a multiple of 4"},
    {"attention",
     {"2,8,6,4 {dp:R cp:R tp:R}", "2,8,2,4 {dp:R cp:R tp:R}", "2,8,2,4 {dp:R cp:R tp:R}",
      "2,8 {dp:R cp:R tp:R}", "2,8 {dp:R cp:R tp:R} i32", "2,8 {dp:R cp:R tp:R} i32",
      "2,8 {dp:R cp:R tp:R} i32"},
     .refuses = "operand 3 must be i32"},
    {"rope",
     {"2,8,4,5 {dp:R cp:R tp:R}", "2,8 {dp:R cp:R tp:R} i32", "8,5 {dp:R cp:R tp:R}"},
     .refuses = "head dim 5 is odd; it must be even"},
    {"rope",
     {"2,8,4,6 {dp:R cp:R tp:R}", "2,8 {dp:R cp:R tp:R} i32", "8,4 {dp:R cp:R tp:R}"},
     .refuses = "the table has 4 columns where the head dim is 6"},
    {"embedding",
     {"4,8 {dp:R cp:R tp:R}", "20,6 {dp:R cp:R tp:R}"},
     .refuses = "operand 0 must be i32 ids"},
    {"embedding_bwd",
     {"4,8 {dp:R cp:R tp:R} i32", "4,8,6 {dp:R cp:R tp:R}"},
     .refuses = "vocab = 0; at least 1"},
    {"cross_entropy",
     {"4,8,20 {dp:R cp:R tp:R}", "4,8 {dp:R cp:R tp:R}", "{dp:R cp:R tp:R}"},
     .refuses = "operand 1 must be i32 labels"},
    {"count_labels", {"4,8 {dp:R cp:R tp:R}"}, .refuses = "operand 0 must be i32 labels"},
    {"norm_sum",
     {"4,6 {dp:R cp:R tp:R}", "{dp:R cp:R tp:R}"},
     .refuses = "operand 1 must be an exact sum"},
    {"unary",
     {"4 {dp:R cp:R tp:R}"},
     .attrs = "f=sine",
     .refuses = "no function 'sine'; there are silu, gelu"},
    {"chunk",
     {"8,6 {dp:R cp:R tp:R}"},
     .attrs = "rows=3 seq=6",
     .refuses = "pieces of 3 x 6 do not tile 8 x 6; whole rows, or an even share of one row"},
    {"chunk", {"8,6 {dp:R cp:R tp:R}"}, .attrs = "rows=1 seq=4", .refuses = "do not tile"},
    {"chunk",
     {"8,6 {dp:0 cp:R tp:R}"},
     .attrs = "rows=2 seq=6",
     .refuses = "do not tile"}, /* less than a row for each of four ranks */
    {"chunk",
     {"8,6 {dp:R cp:R tp:R}"},
     .attrs = "over=step rows=8 seq=6",
     .refuses = "over = 'step'; chunk or microbatch"},
    {"chunk",
     {"8 {dp:R cp:R tp:R}"},
     .attrs = "rows=8 seq=1",
     .refuses = "needs rows and positions"},
    {"unchunk",
     {"3,6 {dp:R cp:R tp:R}"},
     .attrs = "rows=8 seq=6",
     .refuses = "pieces of 3 x 6 do not tile 8 x 6"},
    {"unchunk", {"3,6 {dp:R cp:R tp:R}"}, .attrs = "rows=0 seq=6", .refuses = "do not tile"},
    {"unchunk",
     {"3,6 {dp:R cp:R tp:R}"},
     .attrs = "over=step rows=3 seq=6",
     .refuses = "over = 'step'; chunk or microbatch"},
    {"unchunk",
     {"3 {dp:R cp:R tp:R}"},
     .attrs = "rows=3 seq=6",
     .refuses = "needs rows and positions"},
    {"fused", {"4 {dp:R cp:R tp:R}"}, .attrs = "outs=0", .refuses = "0 outputs"},
    {"fused", {"4 {dp:R cp:R tp:R}"}, .attrs = "outs=4000000000", .refuses = "outputs"},
    {"unshard",
     {"4 {dp:R cp:R tp:R}"},
     .attrs = "dtype=f64",
     .to = "{dp:R cp:R tp:R}",
     .refuses = "dtype 'f64'; f32, bf16 or f16"},
    {"unshard", {"4 {dp:R cp:R tp:R}"}, .refuses = "needs a placement"},
    {"redistribute", {"4,6 {dp:R cp:R tp:R}"}, .refuses = "needs a placement"},
    {"redistribute",
     {"4,6 {dp:R cp:R tp:R}"},
     .to = "{dp:R cp:R tp:2}",
     .refuses = "axis tp: S(2) of a value with 2 dims; the last dim is S(1)"},
    {"reduce",
     {"4,6 {dp:P cp:R tp:R}"},
     .to = "{dp:R cp:R tp:5}",
     .refuses = "axis tp: S(5) of a value with 2 dims"},
    {"linear_add",
     {"4,6 {dp:0 cp:R tp:1}", "5,6 {dp:R cp:R tp:1}", "4,5 {dp:0 cp:R tp:R}"},
     .refuses = "axis tp: the product is P, what is added is R; reduce the product first"},
    {"state", {0}, .refuses = "needs dims and a dtype"},
    {"input", {0}, .refuses = "needs two dims: rows and positions"},
};

static const example attr_errors[] = {
    {"scale",
     {"4 {dp:R cp:R tp:R}"},
     .attrs = "times=2",
     .refuses = "no attribute 'times'; it has: by=1.0"},
    {"add",
     {"4 {dp:R cp:R tp:R}", "4 {dp:R cp:R tp:R}"},
     .attrs = "by=2",
     .refuses = "no attribute 'by'; it has: none"},
    {"scale",
     {"4 {dp:R cp:R tp:R}"},
     .attrs = "by=much",
     .refuses = "attribute 'by' must be a number"},
    {"heads",
     {"4,8,12 {dp:R cp:R tp:R}"},
     .attrs = "k=1.5",
     .refuses = "attribute 'k' must be an integer"},
    {"heads",
     {"4,8,12 {dp:R cp:R tp:R}"},
     .attrs = "k=three",
     .refuses = "attribute 'k' must be an integer"},
    {"heads",
     {"4,8,12 {dp:R cp:R tp:R}"},
     .attrs = "k=1e300",
     .refuses = "attribute 'k' must be an integer"},
    {"unary", {"4 {dp:R cp:R tp:R}"}, .attrs = "f=1", .refuses = "attribute 'f' must be text"},
};

/* From each type to each: DESIGN.md 5; those that only gradients make need `grad`. */
static void transitions(void)
{
    static const char letters[] = "RIVP0";
    static const char *const plain[5] = {"R0", "RI0", "V", "RIP0", "RI0"}, *const grad[5] = {
                                                                               "RI0P", "RI0P", "V",
                                                                               "RIP0", "RI0P"};
    for (int i = 0; i < 5 * 5 * 2; i++) {
        char from[48], to[32], attrs[16];
        int a = i % 5, b = i / 5 % 5, g = i / 25;
        snprintf(from, sizeof from, "4,6 {dp:R cp:1 tp:%c}", letters[a]);
        snprintf(to, sizeof to, "{dp:R cp:1 tp:%c}", letters[b]);
        snprintf(attrs, sizeof attrs, "grad=%d", g);
        char gives[48], refuses[64];
        snprintf(gives, sizeof gives, "4,6 %s", to);
        snprintf(refuses, sizeof refuses,
                 "axis tp: no transition from %c to %c; from %c legal are ", "RIVPS"[a], "RIVPS"[b],
                 "RIVPS"[a]);
        bool legal = strchr((g ? grad : plain)[a], letters[b]) != NULL;
        example e = {
            "redistribute",    {from}, .attrs = attrs, .to = to, .gives = legal ? gives : NULL,
            .refuses = refuses};
        check(&e, 1);
    }
}

static tn_status make_and_add(void *arg)
{
    static const example e = {"scale", {"4,6 {dp:0 cp:R tp:R}"}, .attrs = "by=2"};
    return try(&e, arg, 64);
}

int main(void)
{
    char made[64];
    check(rules, TN_COUNT(rules));
    check(type_errors, TN_COUNT(type_errors));
    check(shape_errors, TN_COUNT(shape_errors));
    check(attr_errors, TN_COUNT(attr_errors));
    transitions();
    TN_CHECK(tn_test_each_alloc(make_and_add, made) > 4);
    return tn_test_done("infer");
}
