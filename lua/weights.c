#include "lua/weights.h"

#include "checkpoints/hf.h"
#include "graph/op.h"
#include "lua/model.h"

#include <string.h>

tn_status tn_weights_list(tn_recipe *r, const tn_graph *g, tn_arena *arena, tn_weight **out, int64_t *n_out)
{
    void *mem;
    int64_t n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == TN_OP_state && !strcmp(tn_node_attr_text(&g->nodes[i], "kind"), "param");
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_weight), &mem));
    tn_weight *w = mem;
    n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *q = &g->nodes[i];
        if (q->op != TN_OP_state || strcmp(tn_node_attr_text(q, "kind"), "param")) continue;
        w[n] = (tn_weight){.value = q->out0, .name = tn_node_attr_text(q, "name")};
        TN_TRY(tn_model_hf_name(r, w[n].name, arena, &w[n].hf_name));
        n++;
    }
    *out = w;
    *n_out = n;
    return TN_OK;
}

/* A tensor that is not a parameter of its own: a tied head, rotary tables of old files. */
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight"};

static tn_status match(const tn_graph *g, const tn_weight *w, int64_t n, const tn_hf *hf, tn_arena *arena)
{
    void *mem;
    bool head = false;
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_hf_want), &mem));
    tn_hf_want *want = mem;
    for (int64_t i = 0; i < n; i++) {
        const tn_value *v = &g->values[w[i].value];
        want[i] = (tn_hf_want){.name = w[i].hf_name, .rank = v->rank};
        for (int d = 0; d < v->rank; d++) want[i].shape[d] = v->dim[d].extent;
        head |= !strcmp(w[i].hf_name, ignored[1]);
    }
    return tn_hf_match(hf, want, n, ignored, head ? 1 : 2);
}

static tn_status load(tn_recipe *r, tn_exec *e, const tn_hf *hf, tn_arena *arena)
{
    const tn_graph *g = tn_exec_program(e)->g;
    tn_weight *w;
    int64_t n;
    TN_TRY(tn_weights_list(r, g, arena, &w, &n));
    TN_TRY(match(g, w, n, hf, arena));
    for (int64_t i = 0; i < n; i++) {
        const tn_safetensors_tensor *t = tn_hf_find(hf, w[i].hf_name);
        TN_TRY(tn_safetensors_to_f32(t, 0, t->n, tn_exec_value(e, w[i].value)));
    }
    return TN_OK;
}

tn_status tn_weights_load(tn_recipe *r, tn_exec *e, const char *dir)
{
    tn_arena arena = {0};
    tn_hf *hf;
    TN_TRY(tn_hf_open(dir, &hf));
    tn_status st = load(r, e, hf, &arena);
    tn_hf_close(hf);
    tn_arena_fini(&arena);
    return st;
}

typedef struct source {
    tn_exec *e;
    const tn_weight *w;
} source;

static tn_status copy_piece(void *arg, int64_t i, int64_t begin, int64_t count, void *out)
{
    const source *s = arg;
    memcpy(out, (const float *)tn_exec_value(s->e, s->w[i].value) + begin, (size_t)count * sizeof(float));
    return TN_OK;
}

static tn_status export_all(tn_recipe *r, tn_exec *e, const char *dir, tn_arena *arena)
{
    const tn_graph *g = tn_exec_program(e)->g;
    tn_weight *w;
    int64_t n;
    const char *config;
    void *specs_mem, *shapes_mem;
    TN_TRY(tn_weights_list(r, g, arena, &w, &n));
    TN_TRY(tn_model_config_json(r, TN_F32, arena, &config));
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_safetensors_spec), &specs_mem));
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * TN_MAX_RANK * sizeof(int64_t), &shapes_mem));
    tn_safetensors_spec *specs = specs_mem;
    int64_t *shape = shapes_mem;
    for (int64_t i = 0; i < n; i++, shape += TN_MAX_RANK) {
        const tn_value *v = &g->values[w[i].value];
        for (int d = 0; d < v->rank; d++) shape[d] = v->dim[d].extent;
        specs[i] = (tn_safetensors_spec){.name = w[i].hf_name, .dtype = TN_SAFETENSORS_F32, .rank = v->rank, .shape = shape};
    }
    source s = {e, w};
    return tn_hf_export(dir, config, specs, n, copy_piece, &s);
}

tn_status tn_weights_export(tn_recipe *r, tn_exec *e, const char *dir)
{
    tn_arena arena = {0};
    tn_status st = export_all(r, e, dir, &arena);
    tn_arena_fini(&arena);
    return st ? tn_error_while(st, "writing the weights to '%s'", dir) : TN_OK;
}
