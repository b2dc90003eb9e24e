#include "lua/weights.h"

#include "checkpoints/hf.h"
#include "graph/op.h"
#include "lua/model.h"

#include <stdlib.h>
#include <string.h>

static bool is_param(const tn_node *n)
{
    return n->op == TN_OP_state && !strcmp(tn_node_attr_text(n, "kind"), "param");
}

static int by_order(const void *pa, const void *pb)
{
    const tn_weight *a = pa, *b = pb;
    return a->order < b->order ? -1 : a->order > b->order;
}

tn_status tn_weights_list(tn_recipe *r, const tn_programs *programs, tn_arena *arena,
                          tn_weight **out, int64_t *n_out)
{
    void *mem;
    int64_t n = 0;
    for (int k = 0; k < programs->n; k++)
        for (int64_t i = 0; i < programs->of[k]->g->n_nodes; i++)
            n += is_param(&programs->of[k]->g->nodes[i]);
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_weight), &mem));
    tn_weight *w = mem;
    n = 0;
    for (int k = 0; k < programs->n; k++)
        for (int64_t i = 0; i < programs->of[k]->g->n_nodes; i++) {
            const tn_program *p = programs->of[k];
            const tn_node *q = &p->g->nodes[i];
            if (!is_param(q)) continue;
            w[n] = (tn_weight){.p = p,
                               .value = q->out0,
                               .order = p->pipeline ? p->pipeline->origin[i] : i,
                               .name = tn_node_attr_text(q, "name")};
            TN_TRY(tn_model_hf_name(r, w[n].name, arena, &w[n].hf_name));
            n++;
        }
    qsort(w, (size_t)n, sizeof *w, by_order);
    *out = w;
    *n_out = n;
    return TN_OK;
}

/* A tensor that is not a parameter of its own: a tied head, rotary tables of old files. */
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight"};

static tn_status match(const tn_weight *w, int64_t n, const tn_hf *hf, tn_arena *arena)
{
    void *mem;
    bool head = false;
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_hf_want), &mem));
    tn_hf_want *want = mem;
    for (int64_t i = 0; i < n; i++) {
        const tn_value *v = &w[i].p->g->values[w[i].value];
        want[i] = (tn_hf_want){.name = w[i].hf_name, .rank = v->rank};
        for (int d = 0; d < v->rank; d++) want[i].shape[d] = v->dim[d].extent;
        head |= !strcmp(w[i].hf_name, ignored[1]);
    }
    return tn_hf_match(hf, want, n, ignored, head ? 1 : 2);
}

static tn_status load(tn_recipe *r, const tn_programs *programs, tn_exec *e, const tn_hf *hf,
                      tn_arena *arena)
{
    tn_weight *w;
    int64_t n;
    TN_TRY(tn_weights_list(r, programs, arena, &w, &n));
    TN_TRY(match(w, n, hf, arena));
    for (int64_t i = 0; i < n; i++) {
        if (w[i].p != tn_exec_program(e)) continue;
        const tn_safetensors_tensor *t = tn_hf_find(hf, w[i].hf_name);
        tn_runs runs = tn_program_runs(tn_exec_program(e), w[i].value);
        float *to = tn_exec_value(e, w[i].value);
        for (int64_t k = 0; k < runs.n && runs.run; k++)
            TN_TRY(tn_safetensors_to_f32(t, runs.first + k * runs.stride, runs.run,
                                         to + k * runs.run));
    }
    return TN_OK;
}

tn_status tn_weights_load(tn_recipe *r, const tn_programs *programs, tn_exec *e, const char *dir)
{
    tn_arena arena = {0};
    tn_hf *hf;
    TN_TRY(tn_hf_open(dir, &hf));
    tn_status st = load(r, programs, e, hf, &arena);
    tn_hf_close(hf);
    tn_arena_fini(&arena);
    return st;
}

/* Where element `index` of the whole lies, and how many follow it there. All dims but the last
 * count as rows: of several only the first may be split. */
static const float *find_element(tn_exec *e, const tn_program *p, int32_t value, int64_t index,
                                 int64_t *n)
{
    const tn_value *v = &p->g->values[value];
    int last = v->rank - 1;
    int64_t columns = v->rank > 1 ? v->dim[last].extent : 1, row = index / columns,
            column = index % columns, inner = 1;
    for (int d = 1; d < last; d++) inner *= v->dim[d].extent;
    for (int r = 0; r < tn_mesh_ranks(&p->g->mesh); r++) {
        int at[TN_N_AXES];
        int64_t r0, c0 = 0;
        tn_mesh_coordinates(&p->g->mesh, r, at);
        int64_t rows = inner * tn_layout_local(&v->layout, &p->g->mesh, at, 0, v->dim[0].extent,
                                               v->dim[0].units, &r0);
        int64_t width = v->rank > 1 ? tn_layout_local(&v->layout, &p->g->mesh, at, last, columns,
                                                      v->dim[last].units, &c0)
                                    : 1;
        r0 *= inner;
        if (row < r0 || row >= r0 + rows || column < c0 || column >= c0 + width) continue;
        const float *data = tn_exec_peer(e, p, r, value);
        *n = width == columns ? (r0 + rows - row) * columns - column : c0 + width - column;
        return data + (row - r0) * width + (column - c0);
    }
    return NULL;
}

tn_status tn_weights_read(tn_exec *e, const tn_program *p, int32_t value, int64_t begin,
                          int64_t count, float *out)
{
    for (int64_t done = 0; done < count;) {
        int64_t n = 0;
        const float *from = find_element(e, p, value, begin + done, &n);
        if (!from)
            TN_FAIL(TN_FAILED, "weights: no rank holds element %lld of value %d",
                    (long long)(begin + done), value);
        if (n > count - done) n = count - done;
        memcpy(out + done, from, (size_t)n * sizeof(float));
        done += n;
    }
    return TN_OK;
}

typedef struct source {
    tn_exec *e;
    const tn_weight *w;
} source;

static tn_status copy_piece(void *arg, int64_t i, int64_t begin, int64_t count, void *out)
{
    const source *s = arg;
    return tn_weights_read(s->e, s->w[i].p, s->w[i].value, begin, count, out);
}

static tn_status export_all(tn_recipe *r, const tn_programs *programs, tn_exec *e, const char *dir,
                            tn_arena *arena)
{
    tn_weight *w;
    int64_t n;
    const char *config;
    void *specs_mem, *shapes_mem;
    TN_TRY(tn_weights_list(r, programs, arena, &w, &n));
    TN_TRY(tn_model_config_json(r, TN_F32, arena, &config));
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_safetensors_spec), &specs_mem));
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * TN_MAX_RANK * sizeof(int64_t), &shapes_mem));
    tn_safetensors_spec *specs = specs_mem;
    int64_t *shape = shapes_mem;
    for (int64_t i = 0; i < n; i++, shape += TN_MAX_RANK) {
        const tn_value *v = &w[i].p->g->values[w[i].value];
        for (int d = 0; d < v->rank; d++) shape[d] = v->dim[d].extent;
        specs[i] = (tn_safetensors_spec){
            .name = w[i].hf_name, .dtype = TN_SAFETENSORS_F32, .rank = v->rank, .shape = shape};
    }
    source s = {e, w};
    return tn_hf_export(dir, config, specs, n, copy_piece, &s);
}

tn_status tn_weights_export(tn_recipe *r, const tn_programs *programs, tn_exec *e, tn_comm *comm,
                            const char *dir)
{
    tn_arena arena = {0};
    tn_status st = comm ? tn_comm_sync(comm, TN_COMM_WORLD, "export", 0) : TN_OK;
    if (!st && (!comm || tn_comm_rank(comm) == 0)) st = export_all(r, programs, e, dir, &arena);
    if (!st && comm) st = tn_comm_sync(comm, TN_COMM_WORLD, "export", 0);
    tn_arena_fini(&arena);
    return st ? tn_error_while(st, "writing the weights to '%s'", dir) : TN_OK;
}
