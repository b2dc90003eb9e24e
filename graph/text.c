#include "graph/text.h"

#include "graph/events.h"
#include "graph/names.h"
#include "graph/op.h"
#include "graph/program.h"
#include "graph/traffic.h"

#include <string.h>

static const char *const phases[] = {"F", "B", "W", "OPT", "COMM"};
static const char *const scopes[] = {"head", "microbatch", "chunk", "tail"};

static void print_value(const tn_value *v, const char *name, tn_text *out)
{
    char layout[128];
    tn_layout_print(&v->layout, layout, sizeof layout);
    tn_text_add(out, "%%%s : %s[", name, tn_dtype_name((tn_dtype)v->dtype));
    for (int d = 0; d < v->rank; d++) {
        tn_text_add(out, "%s%lld", d ? "," : "", (long long)v->dim[d].extent);
        if (v->dim[d].units) tn_text_add(out, "/%lld", (long long)v->dim[d].units);
    }
    tn_text_add(out, "] %s", layout);
    if (v->carried) tn_text_add(out, " carried=%d", v->levels);
}

static void print_quoted(const char *s, tn_text *out)
{
    tn_text_add(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') tn_text_add(out, "\\%c", c);
        else if (c < 32 || c == 127) tn_text_add(out, "\\x%02x", c);
        else tn_text_put(out, s, 1);
    }
    tn_text_add(out, "\"");
}

static bool same_attr(const tn_attr *a, const tn_attr *b)
{
    if (a->kind == 'i') return a->u.i == b->u.i;
    if (a->kind == 'f') return !memcmp(&a->u.f, &b->u.f, sizeof a->u.f);
    return !strcmp(a->u.s, b->u.s);
}

static void print_attrs(const tn_graph *g, const tn_node *n, tn_text *out)
{
    for (int i = 0; i < tn_graph_attr_count(g, (tn_op_id)n->op); i++) {
        const tn_attr *a = &n->attrs[i];
        if (same_attr(a, tn_graph_attr_default(g, (tn_op_id)n->op, i))) continue;
        tn_text_add(out, " %s=", tn_graph_attr_name(g, (tn_op_id)n->op, i));
        if (a->kind == 'i') tn_text_add(out, "%lld", (long long)a->u.i);
        else if (a->kind == 'f') tn_text_add(out, "%s", tn_text_double(a->u.f).s);
        else print_quoted(a->u.s, out);
    }
}

/* A comment that follows from the rest: what travels, each time, and on which stream. */
static void print_exchange(const tn_graph *g, const tn_node *n, tn_text *out)
{
    tn_traffic_move m;
    if (n->op == TN_OP_send) tn_text_add(out, "  # stream send");
    if (!tn_traffic_of_node(g, n, &m)) return;
    tn_text_add(out, "  # %s over %s, %s, stream %s", tn_traffic_kind_name((tn_traffic_kind)m.kind),
                tn_traffic_axes(m.axes).s, tn_text_bytes(m.bytes).s,
                tn_events_stream(tn_program_stream(g, n)));
}

static void print_node(const tn_graph *g, const tn_node *n, const char **names, tn_text *out)
{
    for (int i = 0; i < n->n_out; i++) {
        if (i) tn_text_add(out, ", ");
        print_value(&g->values[n->out0 + i], names[n->out0 + i], out);
    }
    tn_text_add(out, " = %s(", tn_op_name((tn_op_id)n->op));
    for (int i = 0; i < n->n_in; i++)
        tn_text_add(out, "%s%%%s", i ? ", " : "", names[tn_node_in(g, n, i)]);
    tn_text_add(out, ")");
    print_attrs(g, n, out);
    tn_text_add(out, " @%s %s %s ", n->path, phases[n->phase], scopes[n->scope]);
    if (n->stage < 0) tn_text_add(out, "s*");
    else tn_text_add(out, "s%d", n->stage);
    if (n->order == TN_ORDER_OVER_PARAM) tn_text_add(out, " order=param:%d", n->parts);
    if (n->order == TN_ORDER_OVER_TOKENS) tn_text_add(out, " order=tokens");
    print_exchange(g, n, out);
    tn_text_add(out, "\n");
}

static bool below(const char *path, const char *under)
{
    size_t n = strlen(under);
    return !n || (!strncmp(path, under, n) && (!path[n] || path[n] == '.'));
}

tn_status tn_graph_print(const tn_graph *g, const char *under, tn_text *out)
{
    tn_arena arena = {0};
    const char **names;
    tn_status st = tn_names_build(g, &arena, &names);
    if (!st) {
        tn_text_add(out, "graph titan 1\nmesh pp=%d", g->mesh.pp);
        for (int a = 0; a < TN_N_AXES; a++)
            tn_text_add(out, " %s=%d", tn_axis_name((tn_axis)a), g->mesh.size[a]);
        tn_text_add(out, "\nsums %s tp=%d seq=%d rows=%d\n", g->canonical ? "canonical" : "fast",
                    g->grid.tp, g->grid.seq, g->grid.rows);
        tn_text_add(out, "step rows=%lld seq=%lld microbatches=%lld chunks=%lld\n\n",
                    (long long)g->rows, (long long)g->seq, (long long)g->n_microbatches,
                    (long long)g->n_chunks);
        for (int64_t i = 0; i < g->n_nodes; i++)
            if (!under || below(g->nodes[i].path, under)) print_node(g, &g->nodes[i], names, out);
        st = tn_text_end(out);
    }
    tn_arena_fini(&arena);
    return st;
}
