#include "lua/stage_plan.h"

#include "engine/base/file.h"
#include "graph/passes.h"

#include <string.h>

#define KEY "parallelism.pipeline_parallel_"
static const char PARTS[] = "parallelism.module_fqns_per_model_part", CSV[] = KEY "schedule_csv";

/* ------------------------------------------------------------ tables */

/* A list of rows in the recipe, each a list of cells, as the text of a table. */
static void rows_text(const tn_recipe *r, tn_text *out)
{
    char key[128];
    int rows = tn_recipe_count(r, KEY "schedule");
    for (int i = 1; i <= rows; i++) {
        snprintf(key, sizeof key, KEY "schedule[%d]", i);
        int cells = tn_recipe_count(r, key);
        for (int k = 1; k <= cells; k++) {
            snprintf(key, sizeof key, KEY "schedule[%d][%d]", i, k);
            tn_text_add(out, "%s%s", k > 1 ? "," : "", tn_recipe_text(r, key));
        }
        tn_text_add(out, "\n");
    }
}

static tn_status read_table(const tn_recipe *r, tn_schedule **out)
{
    tn_text text = {0};
    char *file;
    int64_t n;
    if (!tn_recipe_is_set(r, CSV)) {
        rows_text(r, &text);
        tn_status st = tn_text_end(&text);
        if (!st) st = tn_schedule_parse(KEY "schedule", tn_text_str(&text), text.n_bytes, out);
        tn_text_fini(&text);
        return st;
    }
    TN_TRY(tn_file_read(tn_recipe_text(r, CSV), (int64_t)64 << 20, &file, &n));
    tn_status st = tn_schedule_parse(tn_recipe_text(r, CSV), file, n, out);
    tn_free(file);
    return st;
}

static bool has_table(const tn_recipe *r)
{
    return tn_recipe_is_set(r, CSV) || tn_recipe_is_set(r, KEY "schedule[1]");
}

/* ------------------------------------------------------------ stages */

static tn_status explicit_parts(const tn_recipe *r, tn_arena *arena, tn_schedule_split_options *o)
{
    char key[128];
    void *mem;
    o->n_parts = tn_recipe_is_set(r, PARTS) ? tn_recipe_count(r, PARTS) : 0;
    TN_TRY(tn_arena_alloc(arena, (size_t)(o->n_parts + 1) * sizeof(tn_schedule_names), &mem));
    tn_schedule_names *parts = mem;
    for (int i = 0; i < o->n_parts; i++) {
        snprintf(key, sizeof key, "%s[%d]", PARTS, i + 1);
        parts[i].n = tn_recipe_count(r, key);
        TN_TRY(tn_arena_alloc(arena, (size_t)(parts[i].n + 1) * sizeof(char *), &mem));
        const char **names = mem;
        for (int k = 0; k < parts[i].n; k++) {
            snprintf(key, sizeof key, "%s[%d][%d]", PARTS, i + 1, k + 1);
            names[k] = tn_recipe_text(r, key);
        }
        parts[i].names = names;
    }
    o->parts = parts;
    return TN_OK;
}

static tn_status split(const tn_recipe *r, const tn_shape *shape, const tn_schedule *table,
                       const tn_schedule_module *modules, int32_t n, tn_arena *arena,
                       tn_schedule_stages *out)
{
    tn_schedule_split_options o = {
        .n_modules = n,
        .modules = modules,
        .n_ranks = shape->mesh.pp,
        .n_stages = table ? table->n_stages : 0,
        .first_less = (int32_t)tn_recipe_int(r, KEY "first_stage_less_layers"),
        .last_less = (int32_t)tn_recipe_int(r, KEY "last_stage_less_layers")};
    if (tn_recipe_is_set(r, KEY "layers_per_stage"))
        o.layers_per_stage = (int32_t)tn_recipe_int(r, KEY "layers_per_stage");
    if (!table) TN_TRY(tn_schedule_type_of(tn_recipe_text(r, KEY "schedule"), &o.type));
    TN_TRY(explicit_parts(r, arena, &o));
    return tn_schedule_split(&o, out);
}

/* ------------------------------------------------------------ lists */

/* The lists of one forward, once for each round. */
static tn_status repeat(const tn_schedule *one, int32_t rounds, tn_schedule **out)
{
    TN_TRY(tn_schedule_create(one->n_ranks, one->n_stages, one->n_microbatches * rounds,
                              one->rank_of, out));
    for (int32_t r = 0; r < one->n_ranks; r++)
        for (int32_t k = 0; k < rounds; k++)
            for (int64_t i = 0; i < one->lists[r].n; i++) {
                tn_schedule_action a = one->lists[r].actions[i];
                a.microbatch += k * one->n_microbatches;
                TN_TRY(tn_schedule_add(*out, r, a));
            }
    return TN_OK;
}

/* Forward alone, in groups of as many microbatches as there are ranks: enough to keep them busy. */
static tn_status forward_lists(const tn_schedule *one, int32_t n, tn_schedule **out)
{
    TN_TRY(tn_schedule_create(one->n_ranks, one->n_stages, n, one->rank_of, out));
    for (int32_t r = 0; r < one->n_ranks; r++)
        for (int32_t first = 0; first < n; first += one->n_ranks)
            for (int32_t s = 0; s < one->n_stages; s++)
                for (int32_t m = first; m < n && m < first + one->n_ranks; m++)
                    if (one->rank_of[s] == r)
                        TN_TRY(tn_schedule_add(*out, r, (tn_schedule_action){TN_SCHEDULE_F, s, m}));
    return TN_OK;
}

/* Of a step. Where the schedule keeps no more for more microbatches, the forwards of a step are one
 * run of it: the pipeline fills and drains once. */
static tn_status whole_step(const tn_schedule *one, const tn_schedule_options *o, bool grows,
                            int32_t rounds, tn_schedule **out)
{
    tn_schedule_options all = *o;
    all.n_microbatches *= rounds;
    return grows ? repeat(one, rounds, out) : tn_schedule_generate(&all, out);
}

static tn_status make_lists(const tn_recipe *r, const tn_shape *shape, bool forward_only,
                            bool canonical, int32_t stages_per_rank, tn_schedule *table,
                            tn_schedule **out)
{
    int32_t n = (int32_t)shape->n_microbatches, each = n / (int32_t)shape->rounds;
    tn_schedule *one = table;
    tn_schedule_options o = {.name = table ? NULL : tn_recipe_text(r, KEY "schedule"),
                             .n_ranks = shape->mesh.pp,
                             .stages_per_rank = stages_per_rank,
                             .n_microbatches = each};
    tn_schedule_report report;
    const tn_schedule_type *type;
    bool grows = true;
    if (table) {
        TN_TRY(tn_schedule_fits(table, tn_recipe_is_set(r, CSV) ? CSV : KEY "schedule",
                                shape->mesh.pp, each));
    } else {
        TN_TRY(tn_schedule_type_of(o.name, &type));
        grows = type->grows;
        TN_TRY(tn_schedule_generate(&o, &one));
    }
    tn_status st = tn_schedule_simulate(one, NULL, canonical, &report);
    if (!st) {
        tn_schedule_report_fini(&report);
        st = forward_only ? forward_lists(one, n, out)
                          : whole_step(one, &o, grows, (int32_t)shape->rounds, out);
    }
    if (one != table) tn_schedule_destroy(one);
    return st;
}

/* ------------------------------------------------------------ all */

static tn_status keep_names(tn_stage_plan *p, const tn_schedule_module *modules, int32_t n,
                            const tn_schedule_stages *s)
{
    void *mem;
    p->n_modules = n;
    p->n_stages = s->n_stages;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(n + 1) * sizeof(char *), &mem));
    p->module = mem;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(n + s->n_stages + 1) * sizeof(int32_t), &mem));
    p->stage = mem;
    p->n_layers = p->stage + n;
    for (int32_t i = 0; i < s->n_stages; i++) p->n_layers[i] = s->n_layers[i];
    for (int32_t i = 0, at = 0; i < n; i++) {
        while (at + 1 < s->n_stages && s->first_module[at + 1] <= i) at++;
        p->stage[i] = at;
        TN_TRY(tn_arena_text(&p->arena, modules[i].name, &p->module[i]));
    }
    return TN_OK;
}

/* No layer is ever dropped. */
static tn_status check_layers(const tn_stage_plan *p, const tn_schedule_module *modules)
{
    int32_t want = 0, have = 0;
    for (int32_t i = 0; i < p->n_modules; i++) want += modules[i].layer;
    for (int32_t s = 0; s < p->n_stages; s++) have += p->n_layers[s];
    if (want == have) return TN_OK;
    TN_FAIL(TN_FAILED, "pipeline: the stages hold %d layers, the model has %d", have, want);
}

static tn_status make(const tn_recipe *r, const tn_shape *shape, bool forward_only,
                      const tn_graph *traced, tn_schedule *table, tn_stage_plan *p,
                      tn_graph **staged)
{
    tn_schedule_module *modules;
    tn_schedule_stages stages = {0};
    tn_arena arena = {0};
    int32_t n;
    tn_status st = tn_stages_modules(traced, &arena, &modules, &n);
    if (!st) st = split(r, shape, table, modules, n, &arena, &stages);
    if (!st) st = keep_names(p, modules, n, &stages);
    if (!st) st = check_layers(p, modules);
    if (!st)
        st = make_lists(r, shape, forward_only, traced->canonical, stages.per_rank, table,
                        &p->schedule);
    if (!st) st = tn_pass_stages(traced, modules, n, &stages, staged);
    tn_schedule_stages_fini(&stages);
    tn_arena_fini(&arena);
    return st;
}

tn_status tn_stage_plan_make(const tn_recipe *r, const tn_shape *shape, bool forward_only,
                             const tn_graph *traced, tn_stage_plan **out, tn_graph **staged_out)
{
    tn_schedule *table = NULL;
    void *mem;
    if (has_table(r)) TN_TRY(read_table(r, &table));
    tn_status st = tn_alloc(sizeof(tn_stage_plan), &mem);
    if (!st) {
        tn_stage_plan *p = mem;
        st = make(r, shape, forward_only, traced, table, p, staged_out);
        if (st) tn_stage_plan_destroy(p);
        else *out = p;
    }
    tn_schedule_destroy(table);
    return st;
}

static tn_status check(const tn_recipe *r, const tn_shape *shape, int64_t layers, int64_t each,
                       const tn_schedule *table, tn_arena *arena)
{
    tn_schedule_stages stages = {0};
    tn_schedule *lists = NULL;
    void *mem;
    int32_t n = (int32_t)layers + 2;
    TN_TRY(tn_arena_alloc(arena, (size_t)n * sizeof(tn_schedule_module), &mem));
    tn_schedule_module *modules = mem;
    for (int32_t i = 0; i < n; i++) modules[i] = (tn_schedule_module){"", i > 0 && i < n - 1};
    TN_TRY(split(r, shape, table, modules, n, arena, &stages));
    tn_status st = TN_OK;
    bool canonical = !strcmp(tn_recipe_text(r, "debug.reduce"), "canonical");
    if (each)
        st = make_lists(r, shape, false, canonical, stages.per_rank,
                        (tn_schedule *)(uintptr_t)table, &lists);
    if (!st) tn_schedule_destroy(lists);
    tn_schedule_stages_fini(&stages);
    return st;
}

tn_status tn_stage_plan_check(const tn_recipe *r, const tn_mesh *mesh, int64_t layers, int64_t each)
{
    tn_shape shape = {.mesh = *mesh, .n_microbatches = each, .rounds = 1};
    tn_schedule *table = NULL;
    tn_arena arena = {0};
    if (tn_recipe_is_set(r, PARTS) || layers < 1) return TN_OK; /* by name: the graph's business */
    if (has_table(r)) TN_TRY(read_table(r, &table));
    tn_status st = check(r, &shape, layers, each, table, &arena);
    tn_schedule_destroy(table);
    tn_arena_fini(&arena);
    return st;
}

void tn_stage_plan_destroy(tn_stage_plan *p)
{
    if (!p) return;
    tn_schedule_destroy(p->schedule);
    tn_arena_fini(&p->arena);
    tn_free(p);
}

void tn_stage_plan_print(const tn_recipe *r, const tn_stage_plan *p, tn_text *out)
{
    int32_t layers = 0;
    const tn_schedule *s = p->schedule;
    const char *name = has_table(r) ? "a table" : tn_recipe_text(r, KEY "schedule");
    tn_text_add(out,
                "%d ranks, %d stages (%s), %d microbatches a step; layers by stage:", s->n_ranks,
                p->n_stages, name, s->n_microbatches);
    for (int32_t i = 0; i < p->n_stages; i++) {
        tn_text_add(out, " %d", p->n_layers[i]);
        layers += p->n_layers[i];
    }
    tn_text_add(out, ", all %d", layers);
}
