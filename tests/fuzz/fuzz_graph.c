/* Any bytes: refused with one line, or a graph that prints, reads back as it was printed, and goes
 * through the passes and the planner without a wrong byte: a program that is built is sound. */
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "graph/passes.h"
#include "graph/program.h"
#include "graph/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

static void must_say(tn_status st, const char *what)
{
    must(st == TN_OK || (st == TN_BAD_INPUT && strlen(tn_error_text()) > strlen(what)));
}

/* Small enough that tables by row, part and chunk are, too. */
static bool small(const tn_graph *g)
{
    double bytes = 0;
    for (int64_t v = 0; v < g->n_values; v++) bytes += (double)tn_value_elements(&g->values[v]);
    return bytes < 1e15 && g->rows * g->n_microbatches < 1000 && g->n_chunks < 100 &&
           g->n_microbatches < 100 && tn_mesh_ranks(&g->mesh) < 1000;
}

static int group_of(void *user, const char *param)
{
    (void)user;
    (void)param;
    return 0;
}

/* Takes g over. Is it sound? */
static bool plan(tn_graph *g)
{
    tn_program *p;
    tn_status st = tn_program_build(g, NULL, 0, 0, NULL, &p);
    must_say(st, "");
    if (st) return false;
    st = tn_program_verify(p); /* scopes and states by hand may be in an order that no pass makes */
    must(st == TN_OK || st == TN_FAILED);
    tn_program_destroy(p);
    return st == TN_OK;
}

/* Settings that follow from the graph: of two graphs that differ by a byte, any two. */
static void choose(const tn_graph *g, tn_pass_options *o)
{
    int64_t k = g->n_nodes + 7 * g->n_values + g->rows;
    int shard = g->mesh.size[TN_AXIS_DP_SHARD], n = 1 + (int)(k / 8 % shard);
    o->recompute = (tn_recompute)(k % 4);
    o->recompute_every = 1 + k % 3;
    o->unshard = k / 4 % 2 ? TN_UNSHARD_ONCE : TN_UNSHARD_ALWAYS;
    o->unshard_ranks = shard % n || n == shard ? 0 : n;
    o->machine = tn_cost_guess(&g->mesh, k / 3 % 2, 4);
}

static tn_status differentiate(const tn_graph *g, tn_graph **out)
{
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TN_OP_loss_sum)
            return tn_pass_differentiate(g, g->nodes[i].out0, out);
    return tn_error(TN_BAD_INPUT, "no loss");
}

static void transform(const tn_graph *g)
{
    static const tn_optimizer_group group = {"", 1e-3, 0.9, 0.95, 1e-8, 0.1, 0};
    tn_pass_options o = {.recompute = TN_RECOMPUTE_FULL,
                         .n_groups = 1,
                         .groups = &group,
                         .group_of = group_of,
                         .max_norm = 1};
    tn_graph *grads, *fused, *lowered, *stored, *again, *moved;
    choose(g, &o);
    tn_status st = differentiate(g, &grads);
    must_say(st, "");
    if (st) return;
    st = tn_pass_lower(grads, &lowered);
    tn_graph_destroy(grads);
    must_say(st, "");
    if (st) return;
    st = tn_pass_fuse(lowered, &fused);
    must_say(st, "");
    tn_graph_destroy(lowered);
    if (st) return;
    st = tn_pass_storage(fused, &o, &stored);
    must_say(st, "");
    tn_graph_destroy(fused);
    if (st) return;
    st = tn_pass_recompute(stored, &o, &again);
    must_say(st, "");
    tn_graph_destroy(stored);
    if (st) return;
    st = tn_pass_overlap(again, &o, &moved);
    must_say(st, "");
    bool sound = plan(again);
    if (!st) must(plan(moved) || !sound); /* moving exchanges breaks nothing */
}

static void check(const tn_graph *g)
{
    tn_graph *back;
    tn_text once = {0}, twice = {0};
    must(tn_graph_print(g, NULL, &once) == TN_OK);
    must(tn_graph_parse("g", tn_text_str(&once), (size_t)once.n_bytes, &back) == TN_OK);
    must(tn_graph_print(back, NULL, &twice) == TN_OK);
    must(!strcmp(tn_text_str(&once), tn_text_str(&twice)));
    tn_text_fini(&once);
    tn_text_fini(&twice);
    if (small(g)) {
        transform(g);
        (void)plan(back);
    } else {
        tn_graph_destroy(back);
    }
}

/* ---- nodes from bytes: what text seldom gets right by chance */

typedef struct bytes {
    const uint8_t *p, *end;
} bytes;

static int next(bytes *b, int n)
{
    return b->p < b->end ? *b->p++ % n : 0;
}

static tn_layout next_layout(bytes *b, int rank)
{
    tn_layout l = tn_layout_all(TN_TYPE_R);
    for (int i = 0; i < TN_N_AXES; i++) {
        int a = (i + next(b, 2)) % TN_N_AXES, type = next(b, 8);
        if (type < 4) l.type[a] = (uint8_t)type;
        else if (type < 7 && rank && l.type[a] != TN_TYPE_S)
            tn_layout_shard(&l, (tn_axis)a, type % rank);
    }
    for (int a = 0; a < TN_N_AXES; a++)
        if (l.type[a] != TN_TYPE_S) l.dim[a] = l.order[a] = 0;
    char text[128];
    tn_layout sound;
    tn_layout_print(&l, text, sizeof text);
    return tn_layout_parse(text, &sound) ? sound : tn_layout_all(TN_TYPE_R);
}

static tn_attr next_attr(bytes *b, const tn_attr *like)
{
    static const char *const words[] = {
        "",     "chunk", "microbatch", "param", "buffer", "moment",
        "silu", "relu",  "bf16",       "f32",   "w",      "silu i0; mul r0 i1 > r1"};
    if (like->kind == 'i') return (tn_attr){.kind = 'i', .u.i = next(b, 10)};
    if (like->kind == 'f') return (tn_attr){.kind = 'f', .u.f = next(b, 10) / 4.0};
    return (tn_attr){.kind = 's', .u.s = words[next(b, TN_COUNT(words))]};
}

static void add_node(tn_graph *g, bytes *b, int *scope)
{
    static const char *const paths[] = {"", "a", "layers.0", "layers.1.b", "layers.1"};
    tn_op_id op = (tn_op_id)next(b, TN_N_OPS);
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    if (*scope < TN_SCOPE_TAIL && !next(b, 6)) ++*scope;
    tn_value like = {.dtype = (uint8_t)next(b, 4), .rank = (uint8_t)next(b, 4), .levels = 1};
    tn_layout l = next_layout(b, like.rank);
    for (int d = 0; d < like.rank; d++) like.dim[d] = (tn_dim){1 + next(b, 8), next(b, 3)};
    tn_node_desc d = {.op = op,
                      .n_in = g->n_values ? next(b, 8) : 0,
                      .in = in,
                      .attrs = attrs,
                      .n_attrs = tn_graph_attr_count(g, op),
                      .path = paths[next(b, TN_COUNT(paths))],
                      .phase = (tn_phase)next(b, 5),
                      .scope = (tn_scope)*scope,
                      .layout = &l,
                      .like = &like};
    for (int i = 0; i < d.n_in; i++) in[i] = (int32_t)(g->n_values - 1 - next(b, 12) % g->n_values);
    for (int i = 0; i < d.n_attrs; i++)
        attrs[i] = (tn_named_attr){tn_graph_attr_name(g, op, i),
                                   next_attr(b, tn_graph_attr_default(g, op, i))};
    if (next(b, 2)) d.n_attrs = 0;
    must_say(tn_graph_add(g, &d, NULL), "");
}

static void build(bytes b)
{
    tn_graph *g;
    tn_mesh mesh = {1, {1 + next(&b, 2), 1 + next(&b, 3), 1 + next(&b, 2), 1 + next(&b, 4)}};
    int scope = 0;
    must(tn_graph_create(&mesh,
                         (tn_order_grid){1 << next(&b, 4), 1 << next(&b, 3), 1 << next(&b, 3)},
                         next(&b, 2), &g) == TN_OK);
    g->rows = next(&b, 9);
    g->seq = next(&b, 9);
    g->n_microbatches = 1 + next(&b, 3);
    g->n_chunks = 1 + next(&b, 3);
    while (b.p < b.end && g->n_nodes < 60) add_node(g, &b, &scope);
    check(g);
    tn_graph_destroy(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_graph *g;
    if (size && data[0] == 0xff) {
        build((bytes){data + 1, data + size});
        return 0;
    }
    tn_status st = tn_graph_parse("f", (const char *)data, size, &g);
    must_say(st, "f:");
    if (st) return 0;
    check(g);
    tn_graph_destroy(g);
    return 0;
}
