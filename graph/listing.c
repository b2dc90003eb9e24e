#include "graph/listing.h"

#include "engine/base/jsonout.h"
#include "graph/names.h"
#include "graph/op.h"
#include "graph/program.h"
#include "graph/traffic.h"

#include <stdio.h>
#include <string.h>

static void add_head(const tn_graph *g, tn_jsonout *w)
{
    tn_jsonout_int(w, "titan", 1);
    tn_jsonout_open(w, "mesh", '{');
    tn_jsonout_int(w, "pp", g->mesh.pp);
    for (int a = 0; a < TN_N_AXES; a++)
        tn_jsonout_int(w, tn_axis_name((tn_axis)a), g->mesh.size[a]);
    tn_jsonout_close(w);
    tn_jsonout_open(w, "sums", '{');
    tn_jsonout_bool(w, "canonical", g->canonical);
    tn_jsonout_int(w, "tp", g->grid.tp);
    tn_jsonout_int(w, "seq", g->grid.seq);
    tn_jsonout_int(w, "rows", g->grid.rows);
    tn_jsonout_close(w);
    tn_jsonout_open(w, "step", '{');
    tn_jsonout_int(w, "rows", g->rows);
    tn_jsonout_int(w, "seq", g->seq);
    tn_jsonout_int(w, "microbatches", g->n_microbatches);
    tn_jsonout_int(w, "chunks", g->n_chunks);
    tn_jsonout_close(w);
}

static void add_layout(const tn_layout *l, tn_jsonout *w)
{
    char text[128];
    tn_layout_print(l, text, sizeof text);
    tn_jsonout_string(w, "placement", text);
    tn_jsonout_open(w, "layout", '{');
    for (int a = 0; a < TN_N_AXES; a++) {
        snprintf(text, sizeof text, "%c", tn_type_letter((tn_type)l->type[a]));
        if (l->type[a] == TN_TYPE_S) snprintf(text, sizeof text, "S(%d)", l->dim[a]);
        tn_jsonout_string(w, tn_axis_name((tn_axis)a), text);
    }
    tn_jsonout_close(w);
}

static void add_value(const tn_value *v, const char *name, tn_jsonout *w)
{
    tn_jsonout_open(w, NULL, '{');
    tn_jsonout_string(w, "name", name);
    tn_jsonout_string(w, "dtype", tn_dtype_name((tn_dtype)v->dtype));
    tn_jsonout_open(w, "shape", '[');
    for (int d = 0; d < v->rank; d++) tn_jsonout_int(w, NULL, v->dim[d].extent);
    tn_jsonout_close(w);
    tn_jsonout_open(w, "units", '[');
    for (int d = 0; d < v->rank; d++) tn_jsonout_int(w, NULL, v->dim[d].units);
    tn_jsonout_close(w);
    add_layout(&v->layout, w);
    tn_jsonout_int(w, "carried", v->carried ? v->levels : 0);
    tn_jsonout_close(w);
}

static void add_attrs(const tn_graph *g, const tn_node *n, tn_jsonout *w)
{
    tn_jsonout_open(w, "attrs", '{');
    for (int i = 0; i < tn_graph_attr_count(g, (tn_op_id)n->op); i++) {
        const char *name = tn_graph_attr_name(g, (tn_op_id)n->op, i);
        const tn_attr *a = &n->attrs[i];
        if (a->kind == 'i') tn_jsonout_int(w, name, a->u.i);
        else if (a->kind == 'f') tn_jsonout_double(w, name, a->u.f);
        else tn_jsonout_string(w, name, a->u.s);
    }
    tn_jsonout_close(w);
}

static void add_node(const tn_graph *g, const tn_node *n, const char **names, tn_jsonout *w)
{
    static const char *const phases[] = {"F", "B", "W", "OPT", "COMM"}, *const scopes[] = {
                                                                            "head", "microbatch",
                                                                            "chunk", "tail"};
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    tn_traffic_move m;
    tn_jsonout_open(w, NULL, '{');
    tn_jsonout_string(w, "op", tn_op_name((tn_op_id)n->op));
    tn_jsonout_string(w, "path", n->path);
    tn_jsonout_string(w, "phase", phases[n->phase]);
    tn_jsonout_string(w, "scope", scopes[n->scope]);
    tn_jsonout_int(w, "stage", n->stage);
    tn_jsonout_open(w, "in", '[');
    for (int i = 0; i < n->n_in; i++) tn_jsonout_string(w, NULL, names[tn_node_in(g, n, i)]);
    tn_jsonout_close(w);
    tn_jsonout_open(w, "out", '[');
    for (int i = 0; i < n->n_out; i++) add_value(&g->values[n->out0 + i], names[n->out0 + i], w);
    tn_jsonout_close(w);
    add_attrs(g, n, w);
    tn_jsonout_double(w, "flops", op->flops ? op->flops(g, n) : 0);
    if (tn_traffic_of_node(g, n, &m)) {
        tn_jsonout_string(w, "collective", tn_traffic_kind_name((tn_traffic_kind)m.kind));
        tn_jsonout_string(w, "axes", tn_traffic_axes(m.axes).s);
        tn_jsonout_int(w, "bytes", m.bytes);
    }
    tn_jsonout_close(w);
}

static bool below(const char *path, const char *under)
{
    size_t n = strlen(under);
    return !n || (!strncmp(path, under, n) && (!path[n] || path[n] == '.'));
}

tn_status tn_listing_print(const tn_graph *g, const char *under, tn_text *out)
{
    tn_arena arena = {0};
    const char **names;
    tn_jsonout w = {.text = out};
    tn_status st = tn_names_build(g, &arena, &names);
    if (!st) {
        tn_jsonout_open(&w, NULL, '{');
        add_head(g, &w);
        tn_text_add(out, ",\n\"nodes\": [");
        bool more = false;
        for (int64_t i = 0; i < g->n_nodes; i++) {
            if (!below(g->nodes[i].path, under ? under : "")) continue;
            tn_jsonout line = {.text = out}; /* a node a line */
            tn_text_add(out, "%s\n", more ? "," : "");
            add_node(g, &g->nodes[i], names, &line);
            more = true;
        }
        tn_text_add(out, "\n]}\n");
        st = tn_text_end(out);
    }
    tn_arena_fini(&arena);
    return st;
}
