/* programs.h - what the tests of the passes and of the planner share: the graph behind a pass, and
 * the program, of a recipe. */
#ifndef TN_TESTS_PROGRAMS_H
#define TN_TESTS_PROGRAMS_H
#include "graph/op.h"
#include "graph/program.h"
#include "lua/build.h"
#include "tests/test.h"

/* What to build: overrides end with NULL. */
typedef struct wanted {
    const char *recipe; /* a path, or a text that begins with "return" or "local" */
    tn_build_kind kind;
    int world, rank;
    const char *until;
    const char *overrides[12];
} wanted;

/* A recipe small enough for a test that looks at every byte: rows, heads and chunks that differ in
 * number. */
static const char tiny_recipe[] = "local titan = require 'titan'\n"
                                  "return titan.recipe { model = require('models.llama3').debug { "
                                  "n_layers = 3, dim = 32, n_heads = 4, n_kv_heads = 2,\n"
                                  "  ffn_dim = 48, vocab_size = 40 },\n"
                                  "  training = { seq_len = 16, local_batch_size = 6, "
                                  "global_batch_size = 18 }, loss = { chunks = 3 },\n"
                                  "  data = { source = 'random' }, device = 'cpu' }\n";

TN_UNUSED static tn_status build_graph(const wanted *w, tn_graph **out)
{
    tn_recipe *r;
    tn_mesh mesh;
    bool text = !strncmp(w->recipe, "local", 5) || !strncmp(w->recipe, "return", 6);
    tn_recipe_options o = {.path = text ? NULL : w->recipe,
                           .text = w->recipe,
                           .name = "r.lua",
                           .overrides = w->overrides,
                           .host = {.share = "."}};
    while (w->overrides[o.n_overrides]) o.n_overrides++;
    TN_TRY(tn_recipe_open(&o, &r));
    tn_build_options b = {.kind = w->kind, .rank = w->rank, .until = w->until};
    tn_status st = tn_build_mesh(r, w->world ? w->world : 1, &mesh);
    if (!st) st = tn_build_shape(r, &mesh, &b.shape);
    if (!st) st = tn_build_graph(r, &b, out);
    tn_recipe_close(r);
    return st;
}

TN_UNUSED static tn_status build_program(const wanted *w, tn_program **out)
{
    tn_graph *g;
    TN_TRY(build_graph(w, &g));
    int32_t keep = g->nodes[g->n_nodes - 1].out0;
    return tn_program_build(g, NULL, w->rank, w->kind == TN_BUILD_LOGITS, &keep, out);
}

#endif
