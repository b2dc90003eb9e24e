#include "graph/graph.h"

#include "graph/op.h"
#include "graph/sig.h"

#include <stdlib.h>
#include <string.h>

/* The attribute list of an op, parsed once per graph from "eps=1e-5 causal=1 f=silu". */
enum { MAX_ATTRS = 16 };
typedef struct tn_attr_list {
    int n;
    const char *name[MAX_ATTRS];
    tn_attr value[MAX_ATTRS];
} tn_attr_list;

static const tn_op *const op_table[TN_N_OPS] = {
#define TN_OP(name) &tn_op_##name,
#include "graph/ops.def"
#undef TN_OP
};

const tn_op *tn_op_get(tn_op_id id)
{
    return op_table[id];
}

const char *tn_op_name(tn_op_id id)
{
    return op_table[id]->name;
}

tn_op_id tn_op_find(const char *name, bool *found)
{
    for (int i = 0; i < TN_N_OPS; i++)
        if (!strcmp(op_table[i]->name, name)) {
            *found = true;
            return (tn_op_id)i;
        }
    *found = false;
    return TN_OP_state;
}

static const struct {
    const char *name;
    int bytes;
} dtypes[TN_N_DTYPES] = {
    {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i32", 4}, {"exact", TN_EXACT_BYTES}};

const char *tn_dtype_name(tn_dtype t)
{
    return dtypes[t].name;
}

int64_t tn_dtype_bytes(tn_dtype t)
{
    return dtypes[t].bytes;
}

bool tn_dtype_parse(const char *name, tn_dtype *out)
{
    for (int i = 0; i < TN_N_DTYPES; i++)
        if (!strcmp(name, dtypes[i].name)) {
            *out = (tn_dtype)i;
            return true;
        }
    return false;
}

int64_t tn_value_elements(const tn_value *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->rank; d++)
        if (__builtin_mul_overflow(n, v->dim[d].extent, &n)) return INT64_MAX;
    return n;
}

/* ------------------------------------------------------------ attributes */

static tn_status read_attr(tn_graph *g, const char *text, size_t n, tn_attr *out)
{
    char buf[64], *end;
    if (n >= sizeof buf) TN_FAIL(TN_FAILED, "attribute default '%s' is too long", text);
    memcpy(buf, text, n);
    buf[n] = 0;
    long long i = strtoll(buf, &end, 10);
    if (n && !*end) {
        *out = (tn_attr){.kind = 'i', .u.i = i};
        return TN_OK;
    }
    double f = strtod(buf, &end);
    if (n && !*end) {
        *out = (tn_attr){.kind = 'f', .u.f = f};
        return TN_OK;
    }
    out->kind = 's';
    return tn_arena_text(&g->arena, buf, &out->u.s);
}

static tn_status read_attrs(tn_graph *g, const char *text, tn_attr_list *out)
{
    out->n = 0;
    while (text && *text) {
        size_t len = strcspn(text, " "), name = strcspn(text, "=");
        char buf[32];
        if (name >= len || name >= sizeof buf || out->n == MAX_ATTRS)
            TN_FAIL(TN_FAILED, "attributes '%s' are malformed", text);
        memcpy(buf, text, name);
        buf[name] = 0;
        TN_TRY(tn_arena_text(&g->arena, buf, &out->name[out->n]));
        TN_TRY(read_attr(g, text + name + 1, len - name - 1, &out->value[out->n]));
        out->n++;
        text += len;
        text += strspn(text, " ");
    }
    return TN_OK;
}

int tn_graph_attr_count(const tn_graph *g, tn_op_id op)
{
    return g->lists[op].n;
}

const char *tn_graph_attr_name(const tn_graph *g, tn_op_id op, int i)
{
    return g->lists[op].name[i];
}

const tn_attr *tn_graph_attr_default(const tn_graph *g, tn_op_id op, int i)
{
    return &g->lists[op].value[i];
}

static int attr_index(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; list && *list; i++) {
        if (!strncmp(list, name, n) && list[n] == '=') return i;
        list += strcspn(list, " ");
        list += strspn(list, " ");
    }
    return -1;
}

static const tn_attr *attr_get(const tn_node *n, const char *name)
{
    int i = attr_index(op_table[n->op]->attrs, name);
    if (i < 0) abort(); /* a misspelt name in our own code */
    return &n->attrs[i];
}

int64_t tn_node_attr_int(const tn_node *n, const char *name)
{
    return attr_get(n, name)->u.i;
}

double tn_node_attr_num(const tn_node *n, const char *name)
{
    return attr_get(n, name)->u.f;
}

const char *tn_node_attr_text(const tn_node *n, const char *name)
{
    return attr_get(n, name)->u.s;
}

tn_attr tn_infer_attr(const tn_infer *t, const char *name)
{
    int i = attr_index(op_table[t->d->op]->attrs, name);
    if (i < 0) abort();
    return t->attrs[i];
}

/* `guess`: where its name may stand in the op's list (passes copy whole lists in order). */
static tn_status set_attr(tn_graph *g, const tn_node_desc *d, const tn_named_attr *a, int guess,
                          tn_attr *values)
{
    const tn_attr_list *l = &g->lists[d->op];
    int i = guess < l->n && !strcmp(l->name[guess], a->name)
                ? guess
                : attr_index(op_table[d->op]->attrs, a->name);
    const char *path = d->path ? d->path : "graph", *op = tn_op_name(d->op);
    if (i < 0)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: no attribute '%s'; it has: %s", path, op, a->name,
                op_table[d->op]->attrs ? op_table[d->op]->attrs : "none");
    tn_attr v = a->value;
    char kind = l->value[i].kind;
    if (kind == 'f' && v.kind == 'i') v = (tn_attr){.kind = 'f', .u.f = (double)v.u.i};
    if (kind == 'i' && v.kind == 'f' && v.u.f == (double)(int64_t)v.u.f)
        v = (tn_attr){.kind = 'i', .u.i = (int64_t)v.u.f};
    if (v.kind != kind)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: attribute '%s' must be %s", path, op, a->name,
                kind == 'i'   ? "an integer"
                : kind == 'f' ? "a number"
                              : "text");
    if (v.kind == 's') TN_TRY(tn_arena_text(&g->arena, v.u.s, &v.u.s));
    values[i] = v;
    return TN_OK;
}

static tn_status node_attrs(tn_graph *g, const tn_node_desc *d, const tn_attr **out)
{
    const tn_attr_list *l = &g->lists[d->op];
    void *mem;
    *out = l->value;
    if (!d->n_attrs) return TN_OK; /* all defaults: shared */
    TN_TRY(tn_arena_alloc(&g->arena, (size_t)l->n * sizeof(tn_attr), &mem));
    memcpy(mem, l->value, (size_t)l->n * sizeof(tn_attr));
    for (int i = 0; i < d->n_attrs; i++) TN_TRY(set_attr(g, d, &d->attrs[i], i, mem));
    *out = mem;
    return TN_OK;
}

/* ------------------------------------------------------------ the graph */

static tn_status parse_tables(tn_graph *g)
{
    void *sigs, *lists;
    TN_TRY(tn_arena_alloc(&g->arena, TN_N_OPS * sizeof(tn_sig), &sigs));
    TN_TRY(tn_arena_alloc(&g->arena, TN_N_OPS * sizeof(tn_attr_list), &lists));
    for (int i = 0; i < TN_N_OPS; i++) {
        TN_TRY(tn_sig_parse(op_table[i]->sig, (tn_sig *)sigs + i));
        TN_TRY(read_attrs(g, op_table[i]->attrs, (tn_attr_list *)lists + i));
    }
    g->sigs = sigs;
    g->lists = lists;
    return TN_OK;
}

tn_status tn_graph_create(const tn_mesh *mesh, tn_order_grid grid, bool canonical, tn_graph **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_graph), &mem));
    tn_graph *g = mem;
    g->mesh = *mesh;
    g->grid = grid;
    g->canonical = canonical;
    g->n_microbatches = g->n_chunks = 1;
    tn_status st = parse_tables(g);
    if (st) {
        tn_graph_destroy(g);
        return st;
    }
    *out = g;
    return TN_OK;
}

void tn_graph_destroy(tn_graph *g)
{
    if (!g) return;
    tn_free(g->values);
    tn_free(g->nodes);
    tn_free(g->operands);
    tn_arena_fini(&g->arena);
    tn_free(g);
}

/* Paths are the names of values in the graph's text: no blanks, nothing that ends a name there. */
static tn_status check_path(const char *path)
{
    size_t n = strlen(path), good = 0;
    while (good < n && (unsigned char)path[good] > 32 && path[good] != 127 &&
           !strchr(",()=\"%@", path[good]))
        good++;
    if (good < n)
        TN_FAIL(TN_BAD_INPUT,
                "%s: a module path with character %d ('%c'); name the module with letters, digits, "
                "_ and .",
                path, (unsigned char)path[good],
                path[good] > 31 && path[good] < 127 ? path[good] : '?');
    if (n > TN_MAX_PATH)
        TN_FAIL(TN_BAD_INPUT, "%.60s...: a module path of %zu characters; at most %d", path, n,
                (int)TN_MAX_PATH);
    return TN_OK;
}

static tn_status shared_path(tn_graph *g, const char *path, const char **out)
{
    if (!path || !path[0]) {
        *out = "";
        return TN_OK;
    }
    if (g->n_nodes && !strcmp(g->nodes[g->n_nodes - 1].path, path)) {
        *out = g->nodes[g->n_nodes - 1].path;
        return TN_OK;
    }
    TN_TRY(check_path(path));
    return tn_arena_text(&g->arena, path, out);
}

static tn_status check_sizes(const tn_infer *t)
{
    for (int i = 0; i < t->n_out; i++) {
        int64_t n = 1;
        for (int d = 0; d < t->out[i].rank; d++)
            if (__builtin_mul_overflow(n, t->out[i].dim[d].extent, &n) || n > TN_MAX_ELEMENTS)
                return tn_infer_bad(t, "output %d has more than 2^48 elements; make it smaller", i);
    }
    return TN_OK;
}

static tn_status append(tn_graph *g, const tn_node_desc *d, const tn_attr *attrs,
                        const tn_value *outs, int n_out)
{
    const char *path;
    TN_TRY(shared_path(g, d->path, &path));
    TN_TRY(tn_grow((void **)&g->values, &g->cap_values, g->n_values + n_out, sizeof(tn_value)));
    TN_TRY(
        tn_grow((void **)&g->operands, &g->cap_operands, g->n_operands + d->n_in, sizeof(int32_t)));
    TN_TRY(tn_grow((void **)&g->nodes, &g->cap_nodes, g->n_nodes + 1, sizeof(tn_node)));
    tn_node *n = &g->nodes[g->n_nodes];
    *n = (tn_node){.op = (uint16_t)d->op,
                   .phase = (uint8_t)d->phase,
                   .scope = (uint8_t)d->scope,
                   .stage = (int16_t)d->stage,
                   .n_in = d->n_in,
                   .n_out = n_out,
                   .in0 = (int32_t)g->n_operands,
                   .out0 = (int32_t)g->n_values,
                   .attrs = attrs,
                   .path = path};
    for (int i = 0; i < d->n_in; i++) g->operands[g->n_operands + i] = d->in[i];
    for (int i = 0; i < n_out; i++) {
        g->values[g->n_values + i] = outs[i];
        g->values[g->n_values + i].node = (int32_t)g->n_nodes;
        g->values[g->n_values + i].out = (int16_t)i;
    }
    g->n_operands += d->n_in;
    g->n_values += n_out;
    g->n_nodes++;
    return TN_OK;
}

tn_status tn_graph_add(tn_graph *g, const tn_node_desc *d, int32_t *first_out)
{
    tn_value outs[TN_MAX_OPERANDS];
    const tn_attr *attrs;
    if (d->n_in > TN_MAX_OPERANDS)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: %d operands; at most %d", d->path ? d->path : "graph",
                tn_op_name(d->op), d->n_in, TN_MAX_OPERANDS);
    TN_TRY(node_attrs(g, d, &attrs));
    tn_infer t; /* half a KiB of operands: only those there are */
    t.g = g;
    t.bind = NULL;
    t.d = d;
    t.attrs = attrs;
    t.n_in = d->n_in;
    t.out = outs;
    t.n_out = 0;
    for (int i = 0; i < d->n_in; i++) {
        if (d->in[i] < 0 || d->in[i] >= g->n_values)
            TN_FAIL(TN_BAD_INPUT, "%s: %s: operand %d does not exist", d->path ? d->path : "graph",
                    tn_op_name(d->op), i);
        t.in[i] = &g->values[d->in[i]];
    }
    TN_TRY(tn_infer_run(&t, &g->sigs[d->op]));
    TN_TRY(check_sizes(&t));
    TN_TRY(append(g, d, attrs, outs, t.n_out));
    if (first_out) *first_out = g->nodes[g->n_nodes - 1].out0;
    return TN_OK;
}
