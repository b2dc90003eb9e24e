#include "graph/dot.h"

#include "graph/names.h"
#include "graph/op.h"
#include "graph/program.h"

#include <stdio.h>
#include <string.h>

enum { OPS_SHOWN = 3, LABELLED = 120 }; /* more arrows: dot needs minutes to place their labels */

typedef struct box { /* the nodes of one key */
    const char *key;
    int64_t first, n_nodes; /* node that made it */
    double flops;
    int64_t ops[TN_N_OPS];
    bool shown;
} box;

typedef struct arrow {
    int64_t n_values;
    double bytes;
    int32_t value; /* the first */
} arrow;

typedef struct drawing {
    const tn_graph *g;
    const tn_dot_options *o;
    tn_text *out;
    tn_arena arena;
    const char **names;    /* by value */
    bool *chosen, *beside; /* by node: to be drawn; an end of an arrow from outside */
    int64_t *box_of;       /* by node */
    box *boxes;
    int64_t n_boxes, n_arrows;
} drawing;

/* ------------------------------------------------------------ choosing */

static bool below(const char *path, const char *under)
{
    size_t n = strlen(under);
    return !n || (!strncmp(path, under, n) && (!path[n] || path[n] == '.'));
}

static tn_status choose_under(drawing *q)
{
    int64_t found = 0;
    const char *under = q->o->under ? q->o->under : "";
    for (int64_t i = 0; i < q->g->n_nodes; i++)
        found += q->chosen[i] = below(q->g->nodes[i].path, under);
    if (found) return TN_OK;
    TN_FAIL(TN_BAD_INPUT, "graph: no node at or below '%s'; paths stand behind @ in the text form",
            under);
}

static void spread(drawing *q, bool *next)
{
    const tn_graph *g = q->g;
    for (int64_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            int32_t from = g->values[tn_node_in(g, &g->nodes[i], k)].node;
            if (q->chosen[i]) next[from] = true;
            if (q->chosen[from]) next[i] = true;
        }
}

static tn_status choose_focus(drawing *q)
{
    const tn_graph *g = q->g;
    const char *focus = q->o->focus;
    void *mem;
    int64_t found = 0;
    if (focus[0] == '%') focus++;
    for (int64_t v = 0; v < g->n_values; v++)
        if (!strcmp(q->names[v], focus)) found += q->chosen[g->values[v].node] = true;
    for (int64_t i = 0; i < g->n_nodes && !found; i++)
        q->chosen[i] = !strcmp(g->nodes[i].path, focus);
    for (int64_t i = 0; i < g->n_nodes; i++) found += q->chosen[i];
    if (!found)
        TN_FAIL(TN_BAD_INPUT, "graph: no value '%s'%s", focus,
                tn_text_hint(focus, q->names, (int)g->n_values).s);
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)g->n_nodes + 1, &mem));
    for (int d = 0; d < q->o->depth; d++) {
        bool *next = mem;
        memcpy(next, q->chosen, (size_t)g->n_nodes);
        spread(q, next);
        memcpy(q->chosen, next, (size_t)g->n_nodes);
    }
    return TN_OK;
}

/* ------------------------------------------------------------ boxes */

static const char *direction(const tn_node *n)
{
    if (n->phase == TN_PHASE_OPT) return "update";
    if (n->phase == TN_PHASE_B || n->phase == TN_PHASE_W) return "backward";
    return n->scope == TN_SCOPE_HEAD ? "before" : n->scope == TN_SCOPE_TAIL ? "update" : "forward";
}

static void key_of(const drawing *q, const tn_node *n, int64_t i, char *out, size_t size)
{
    const char *path = n->path[0] ? n->path : "step";
    switch (q->o->collapse) {
    case TN_DOT_NODES:
        snprintf(out, size, "%s", q->names[n->out0]);
        if (!n->n_out) snprintf(out, size, "node %lld", (long long)i);
        break;
    case TN_DOT_MODULE:
        snprintf(out, size, "%s %s", path, direction(n));
        break;
    case TN_DOT_LAYER:
        snprintf(out, size, "%.*s %s", (int)tn_names_layer(path), path, direction(n));
        break;
    case TN_DOT_STAGE:
        if (n->stage < 0) snprintf(out, size, "all stages %s", direction(n));
        else snprintf(out, size, "stage %d %s", n->stage, direction(n));
    }
}

static tn_status fill_boxes(drawing *q, tn_names *known)
{
    const tn_graph *g = q->g;
    char key[TN_MAX_PATH + 64];
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        const tn_op *op = tn_op_get((tn_op_id)n->op);
        int64_t b;
        key_of(q, n, i, key, sizeof key);
        if (!tn_names_find(known, key, &b)) {
            b = q->n_boxes++;
            q->boxes[b].first = i;
            TN_TRY(tn_arena_text(&q->arena, key, &q->boxes[b].key));
            TN_TRY(tn_names_put(known, q->boxes[b].key, b));
        }
        q->box_of[i] = b;
        if (!q->chosen[i]) continue;
        q->boxes[b].shown = true;
        q->boxes[b].n_nodes++;
        q->boxes[b].ops[n->op]++;
        if (op->flops) q->boxes[b].flops += op->flops(g, n);
    }
    return TN_OK;
}

/* ------------------------------------------------------------ writing */

static void add_quoted(tn_text *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') tn_text_put(out, "\\", 1);
        if ((unsigned char)*s >= 32) tn_text_put(out, s, 1);
    }
}

static const char *color(const tn_graph *g, const tn_node *n)
{
    if (n->op == TN_OP_state || n->op == TN_OP_input) return "#e8e8e8";
    if (tn_node_is_exchange(g, n)) return "#ffd9a8";
    if (n->phase == TN_PHASE_B) return "#cfe3ff";
    if (n->phase == TN_PHASE_W) return "#b9d0f5";
    return n->phase == TN_PHASE_F ? "#d9f2d0" : n->phase == TN_PHASE_OPT ? "#f2d0e6" : "#ffffff";
}

/* "12 nodes: 3 linear, 2 mul, ..", the most frequent first. */
static void add_ops(const box *b, tn_text *out)
{
    int64_t left[TN_N_OPS];
    memcpy(left, b->ops, sizeof left);
    tn_text_add(out, "%lld node%s", (long long)b->n_nodes, b->n_nodes == 1 ? "" : "s");
    for (int k = 0; k < OPS_SHOWN; k++) {
        int best = 0;
        for (int i = 1; i < TN_N_OPS; i++)
            if (left[i] > left[best]) best = i;
        if (!left[best]) return;
        tn_text_add(out, "%s%lld %s", k ? ", " : ": ", (long long)left[best],
                    tn_op_name((tn_op_id)best));
        left[best] = 0;
    }
}

static void add_type(const drawing *q, int32_t v, tn_text *out)
{
    const tn_value *x = &q->g->values[v];
    char layout[128];
    tn_layout_print(&x->layout, layout, sizeof layout);
    tn_text_add(out, "%s[", tn_dtype_name((tn_dtype)x->dtype));
    for (int d = 0; d < x->rank; d++)
        tn_text_add(out, "%s%lld", d ? "," : "", (long long)x->dim[d].extent);
    tn_text_add(out, "] %s", layout);
}

static void add_box(const drawing *q, int64_t i)
{
    const box *b = &q->boxes[i];
    const tn_node *n = &q->g->nodes[b->first];
    bool one = q->o->collapse == TN_DOT_NODES;
    tn_text_add(q->out, "  b%lld [label=\"", (long long)i);
    if (one) {
        tn_text_add(q->out, "%s\\n", tn_op_name((tn_op_id)n->op));
        add_quoted(q->out, n->op == TN_OP_state ? tn_node_attr_text(n, "name") : b->key);
        if (n->n_out) {
            tn_text_add(q->out, "\\n");
            add_type(q, n->out0, q->out);
        }
    } else {
        add_quoted(q->out, b->key);
        tn_text_add(q->out, "\\n");
        add_ops(b, q->out);
        if (b->flops > 0) tn_text_add(q->out, "\\n%s FLOPs", tn_text_count(b->flops).s);
    }
    tn_text_add(q->out, "\", fillcolor=\"%s\"%s];\n", color(q->g, n),
                one && tn_node_is_exchange(q->g, n) ? ", shape=hexagon"
                : one && n->op == TN_OP_state       ? ", shape=cylinder"
                                                    : "");
}

/* A box that is not drawn itself, but an arrow begins or ends there. */
static void add_outside(const drawing *q, int64_t i)
{
    tn_text_add(q->out, "  b%lld [label=\"", (long long)i);
    add_quoted(q->out, q->boxes[i].key);
    tn_text_add(q->out, "\", style=dashed, shape=ellipse];\n");
}

/* Arrows by pairs of boxes: keys "from to" in `pairs`. */
static tn_status collect(drawing *q, tn_names *pairs, arrow *arrows, int64_t *n_out)
{
    const tn_graph *g = q->g;
    int64_t n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            char key[64];
            const char *kept;
            int64_t at;
            int32_t v = tn_node_in(g, &g->nodes[i], k), from = g->values[v].node;
            int64_t a = q->box_of[from], b = q->box_of[i];
            if (a == b || (!q->chosen[i] && !q->chosen[from])) continue;
            q->beside[i] = q->beside[from] = true;
            snprintf(key, sizeof key, "%lld %lld", (long long)a, (long long)b);
            if (!tn_names_find(pairs, key, &at)) {
                at = n++;
                TN_TRY(tn_arena_text(&q->arena, key, &kept));
                TN_TRY(tn_names_put(pairs, kept, at));
                arrows[at].value = v;
            }
            arrows[at].n_values++;
            arrows[at].bytes += (double)tn_value_elements(&g->values[v]) *
                                (double)tn_dtype_bytes((tn_dtype)g->values[v].dtype);
        }
    *n_out = n;
    return TN_OK;
}

static void add_arrow(const drawing *q, const char *pair, const arrow *a)
{
    long long from = 0, to = 0;
    sscanf(pair, "%lld %lld", &from, &to);
    tn_text_add(q->out, "  b%lld -> b%lld [%s=\"", from, to,
                q->n_arrows > LABELLED ? "tooltip" : "label");
    if (q->o->collapse == TN_DOT_NODES)
        tn_text_add(q->out, "%s", tn_text_bytes((int64_t)a->bytes).s);
    else if (a->n_values > 1)
        tn_text_add(q->out, "%lld values, %s", (long long)a->n_values,
                    tn_text_bytes((int64_t)a->bytes).s);
    else add_type(q, a->value, q->out);
    tn_text_add(q->out, "\"];\n");
}

static tn_status write_all(drawing *q, tn_names *pairs)
{
    void *mem;
    int64_t n;
    const char **keys;
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)(q->g->n_operands + 1) * sizeof(arrow), &mem));
    arrow *arrows = mem;
    TN_TRY(collect(q, pairs, arrows, &n));
    q->n_arrows = n;
    if (n > LABELLED) tn_text_add(q->out, "  nslimit=2; nslimit1=2; mclimit=0.3; splines=line;\n");
    TN_TRY(tn_arena_alloc(&q->arena, (size_t)(n + 1) * sizeof *keys, &mem));
    keys = mem;
    for (int64_t i = 0; i < pairs->capacity; i++)
        if (pairs->key[i]) keys[pairs->number[i]] = pairs->key[i];
    for (int64_t i = 0; i < q->g->n_nodes; i++)
        if (q->box_of[i] >= 0 && q->boxes[q->box_of[i]].first == i && q->boxes[q->box_of[i]].shown)
            add_box(q, q->box_of[i]);
    for (int64_t i = 0; i < q->g->n_nodes; i++) {
        box *b = &q->boxes[q->box_of[i]];
        if (!q->beside[i] || b->shown) continue;
        add_outside(q, q->box_of[i]);
        b->shown = true;
    }
    for (int64_t i = 0; i < n; i++) add_arrow(q, keys[i], &arrows[i]);
    return TN_OK;
}

static tn_status draw(drawing *q)
{
    size_t n = (size_t)q->g->n_nodes + 1;
    void *mem;
    tn_names known = {0}, pairs = {0};
    TN_TRY(tn_names_build(q->g, &q->arena, &q->names));
    TN_TRY(tn_arena_alloc(&q->arena, 2 * n, &mem));
    q->chosen = mem;
    q->beside = q->chosen + n;
    TN_TRY(tn_arena_alloc(&q->arena, n * sizeof(int64_t), &mem));
    q->box_of = mem;
    TN_TRY(tn_arena_alloc(&q->arena, n * sizeof(box), &mem));
    q->boxes = mem;
    TN_TRY(q->o->focus ? choose_focus(q) : choose_under(q));
    tn_text_add(q->out, "digraph titan {\n  rankdir=TB;\n"
                        "  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=10];\n"
                        "  edge [fontname=\"Helvetica\", fontsize=8, color=\"#606060\"];\n");
    tn_status st = fill_boxes(q, &known);
    if (!st) st = write_all(q, &pairs);
    tn_text_add(q->out, "}\n");
    tn_names_fini(&known);
    tn_names_fini(&pairs);
    return st ? st : tn_text_end(q->out);
}

tn_status tn_dot_print(const tn_graph *g, const tn_dot_options *o, tn_text *out)
{
    drawing q = {.g = g, .o = o, .out = out};
    tn_status st = draw(&q);
    tn_arena_fini(&q.arena);
    return st;
}
