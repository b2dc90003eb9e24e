#include "lua/session.h"

#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/map.h"
#include "engine/base/text.h"
#include "engine/init.h"
#include "graph/meetings.h"
#include "graph/op.h"
#include "graph/text.h"
#include "lua/model.h"
#include "lua/recipe_data.h"
#include "lua/weights.h"

#include <string.h>
#include <sys/stat.h>

/* What the process itself takes: program text, Lua, graphs of the size of a laptop's model
 * (measured: 9 to 12 MiB). */
static const int64_t PROCESS_BYTES = (int64_t)12 << 20;

/* ------------------------------------------------------------ device */

tn_status tn_session_device(const tn_recipe *r, const tn_world *w, tn_device **out)
{
    tn_device_options o = {.threads = (int)tn_recipe_int(r, "device.threads"),
                           .isa = tn_isa_best()};
    const char *isa = tn_recipe_text(r, "device.isa");
    if (strcmp(tn_recipe_device(r), "cpu"))
        TN_FAIL(TN_BAD_INPUT,
                "%s: device.kind: this recipe is made for GPUs and this build has no CUDA plugin; "
                "`titan plan %s` shows its plan, device=cpu tries it here",
                tn_recipe_where(r, "device.kind"), tn_recipe_name(r));
    if (strcmp(isa, "auto") && (!tn_isa_parse(isa, &o.isa) || !tn_isa_usable(o.isa)))
        TN_FAIL(TN_BAD_INPUT, "%s: device.isa: this machine does not run %s kernels; %s",
                tn_recipe_where(r, "device.isa"), isa, tn_isa_name(tn_isa_best()));
    if (!o.threads) o.threads = tn_world_threads(w);
    return tn_device_cpu_create(&o, out);
}

/* ------------------------------------------------------------ plan */

static tn_status build(const tn_session *s, tn_build_kind kind, const tn_shape *shape,
                       tn_programs *out)
{
    tn_build_options o = {.kind = kind, .shape = *shape, .rank = s->world.rank};
    return tn_build_programs(s->recipe, &o, out);
}

static int64_t vocabulary(const tn_programs *all)
{
    for (int i = 0; i < all->n; i++) {
        const tn_graph *g = all->of[i]->g;
        int32_t v = tn_build_find(g, TN_OP_loss_bwd, 0);
        if (v >= 0) return g->values[v].dim[g->values[v].rank - 1].extent;
    }
    return 0;
}

/* A step that the run does not have would leave no trace and say nothing. */
static tn_status check_traces(const tn_recipe *r)
{
    static const char key[] = "profiling.trace_steps";
    int64_t steps = tn_recipe_int(r, "training.steps");
    for (int i = 0; i < tn_recipe_count(r, key); i++)
        if (tn_recipe_int_at(r, key, i) > steps)
            TN_FAIL(TN_BAD_INPUT, "%s: %s: step %lld is behind the last one; training.steps = %lld",
                    tn_recipe_where(r, key), key, (long long)tn_recipe_int_at(r, key, i),
                    (long long)steps);
    return TN_OK;
}

tn_status tn_session_plan(tn_recipe *recipe, bool only_plan, int64_t world, tn_session *s)
{
    *s = (tn_session){.recipe = recipe};
    tn_mesh mesh;
    TN_TRY(tn_world_find(&s->world));
    TN_TRY(tn_build_mesh(recipe, only_plan ? world : s->world.size, &mesh));
    TN_TRY(tn_build_shape(recipe, &mesh, &s->shape));
    if (!only_plan || !strcmp(tn_recipe_device(recipe), "cpu"))
        TN_TRY(tn_session_device(recipe, &s->world, &s->device));
    TN_TRY(check_traces(recipe));
    TN_TRY(build(s, TN_BUILD_TRAIN, &s->shape, &s->trains));
    s->train = s->trains.of[s->trains.mine];
    s->global_batch = s->shape.rows * s->shape.n_microbatches * s->shape.dp;
    s->vocab = vocabulary(&s->trains);
    s->validates = tn_recipe_bool(recipe, "validation.enable");
    if (s->validates) {
        TN_TRY(build(s, TN_BUILD_EVAL, &s->shape, &s->evals));
        s->eval = s->evals.of[s->evals.mine];
    }
    if (s->device) TN_TRY(tn_exec_scratch_bytes(s->train, s->device, &s->scratch_bytes));
    if (s->device && s->eval) {
        int64_t more;
        TN_TRY(tn_exec_scratch_bytes(s->eval, s->device, &more));
        if (more > s->scratch_bytes) s->scratch_bytes = more;
    }
    return TN_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static tn_session_bytes program_bytes(const tn_program *p)
{
    tn_session_bytes b = {0};
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *q = &p->buffers[i];
        const tn_node *n = &p->g->nodes[p->g->values[q->value].node];
        if (n->op != TN_OP_state) continue;
        const char *kind = tn_node_attr_text(n, "kind");
        int64_t *to = !strcmp(kind, "param")    ? &b.parameters
                      : !strcmp(kind, "moment") ? &b.moments
                                                : &b.buffers;
        *to += q->bytes;
    }
    b.inputs = p->region_bytes[TN_REGION_PLAN];
    b.step = p->region_bytes[TN_REGION_STEP];
    b.mail = p->region_bytes[TN_REGION_MAIL];
    return b;
}

tn_session_bytes tn_session_memory_of(const tn_session *s, int pipeline_rank)
{
    tn_session_bytes b = program_bytes(s->trains.of[pipeline_rank]);
    if (s->eval) {
        const tn_program *eval = s->evals.of[pipeline_rank];
        b.inputs = larger(b.inputs, eval->region_bytes[TN_REGION_PLAN]);
        b.step = larger(b.step, eval->region_bytes[TN_REGION_STEP]);
        b.mail += eval->region_bytes[TN_REGION_MAIL];
    }
    b.scratch = s->scratch_bytes;
    b.process = PROCESS_BYTES;
    if (s->data)
        b.process += tn_data_about(s->data)->mapped_bytes < ((int64_t)16 << 20)
                         ? tn_data_about(s->data)->mapped_bytes
                         : (int64_t)16 << 20;
    b.total =
        b.parameters + b.moments + b.buffers + b.inputs + b.step + b.mail + b.scratch + b.process;
    return b;
}

tn_session_bytes tn_session_memory(const tn_session *s)
{
    return tn_session_memory_of(s, s->trains.mine);
}

/* ------------------------------------------------------------ does it fit */

static int64_t need_with(tn_session *s, const tn_shape *shape)
{
    tn_programs all;
    if (build(s, TN_BUILD_TRAIN, shape, &all)) {
        tn_error_clear();
        return INT64_MAX;
    }
    int64_t need = 0;
    for (int i = 0; i < all.n; i++) {
        tn_session_bytes b = program_bytes(all.of[i]);
        need += (b.parameters + b.moments + b.buffers + b.inputs + b.step + b.mail +
                 s->scratch_bytes + PROCESS_BYTES) *
                tn_mesh_ranks(&s->shape.mesh);
    }
    tn_build_destroy(&all);
    return need;
}

/* The first of: recompute, smaller microbatches of the same global batch, both, then shorter rows,
 * that fits in `have`. */
static void nearest_fit(tn_session *s, int64_t have, char *out, size_t size)
{
    for (int64_t seq = s->shape.seq; seq >= 64; seq /= 2)
        for (int full = 0; full < 2; full++)
            for (int64_t rows = s->shape.rows;; rows /= 2) {
                tn_shape t = s->shape;
                char more[96] = "";
                if (s->global_batch % (rows * s->shape.dp) == 0) {
                    t.recompute = full ? TN_RECOMPUTE_FULL : t.recompute;
                    t.rows = rows;
                    t.seq = seq;
                    t.n_microbatches = s->global_batch / (rows * s->shape.dp);
                    int64_t need = need_with(s, &t);
                    if (rows != s->shape.rows)
                        snprintf(more, sizeof more,
                                 " training.local_batch_size=%lld training.global_batch_size=%lld",
                                 (long long)rows, (long long)s->global_batch);
                    if (need <= have) {
                        snprintf(out, size, "it fits with%s%s%s",
                                 full ? " activation_checkpoint.mode=full" : "", more, "");
                        if (seq != s->shape.seq) {
                            size_t n = strlen(out);
                            snprintf(out + n, size - n, " training.seq_len=%lld", (long long)seq);
                        }
                        return;
                    }
                }
                if (rows == 1) break;
            }
    tn_session_bytes b = program_bytes(s->train);
    snprintf(out, size,
             "no batch size or recompute fits: parameters, optimizer and gradients alone take %s; "
             "a smaller model, or more ranks (`titan plan` shows it)",
             tn_text_bytes((2 * b.parameters + b.moments) * s->world.size).s);
}

static tn_status check_memory(tn_session *s)
{
    int64_t have = tn_device_memory_bytes(), need = 0;
    tn_session_bytes b = tn_session_memory(s);
    char mend[512], ranks[48] = "";
    for (int i = 0; i < s->trains.n; i++) /* all of them are on this machine */
        need += tn_session_memory_of(s, i).total * tn_mesh_ranks(&s->shape.mesh);
    if (need <= have) return TN_OK;
    nearest_fit(s, have, mend, sizeof mend);
    if (s->world.size > 1) snprintf(ranks, sizeof ranks, " of %d ranks", s->world.size);
    tn_status st = tn_error(TN_BAD_INPUT, "memory: the plan%s needs %s, this machine has %s; %s",
                            ranks, tn_text_bytes(need).s, tn_text_bytes(have).s, mend);
    if (s->world.size > 1) st = tn_error_note(st, "of rank %d:", s->world.rank);
    const struct {
        const char *what;
        int64_t bytes;
    } rows[] = {{"parameters", b.parameters},
                {"optimizer state", b.moments},
                {"activations and gradients", b.step},
                {"pipeline mail", b.mail},
                {"buffers and inputs", b.buffers + b.inputs},
                {"kernel scratch", b.scratch},
                {"process", b.process}};
    for (int i = 0; i < TN_COUNT(rows); i++)
        st = tn_error_note(st, "%-26s %12s", rows[i].what, tn_text_bytes(rows[i].bytes).s);
    return st;
}

/* ------------------------------------------------------------ data */

tn_status tn_session_data(tn_session *s)
{
    tn_recipe_data_run run = {.seq_len = s->shape.seq,
                              .global_batch = s->global_batch,
                              .vocab_size = s->vocab,
                              .threads = tn_world_threads(&s->world),
                              .progress = s->progress};
    TN_TRY(tn_recipe_data_open(s->recipe, &run, &s->data, &s->validation));
    TN_TRY(tn_recipe_data_tokenizer(s->recipe, s->tokenizer, sizeof s->tokenizer));
    if (!strcmp(s->tokenizer, "bytes")) s->tokenizer[0] = 0;
    return TN_OK;
}

/* ------------------------------------------------------------ several ranks */

/* The resolved recipe without the comments that say where each value came from. */
static uint64_t hash_config(const char *text)
{
    tn_hash h;
    tn_hash_start(&h, 0);
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        const char *comment = strstr(text, "--");
        size_t n = strcspn(text, "\n");
        if (comment && comment < text + n) n = (size_t)(comment - text);
        tn_hash_add(&h, text, n);
    }
    return tn_hash_value(&h);
}

static tn_status hash_graph(const tn_program *p, tn_hash *h)
{
    tn_text text = {0};
    tn_status st = tn_graph_print(p->g, NULL, &text);
    if (!st) tn_hash_add(h, tn_text_str(&text), (size_t)text.n_bytes);
    tn_text_fini(&text);
    return st;
}

/* Graphs, actions and meetings of all pipeline ranks: every rank has planned them all. */
static tn_status hash_programs(const tn_programs *all, tn_hash *h)
{
    for (int i = 0; i < all->n; i++) {
        uint64_t meetings = tn_meetings_hash(all->of[i], 0);
        tn_hash_add(h, &meetings, sizeof meetings);
        TN_TRY(hash_graph(all->of[i], h));
        tn_hash_add(h, all->of[i]->actions,
                    (size_t)all->of[i]->n_actions * sizeof *all->of[i]->actions);
    }
    return TN_OK;
}

static tn_status hash_program(uint64_t *out)
{
    tn_map map;
    TN_TRY(tn_map_open("/proc/self/exe", &map));
    *out = tn_hash_xxh64(map.data, (size_t)map.n, 0);
    tn_map_close(&map);
    return TN_OK;
}

/* Ranks that would not do the same work find out before the first exchange. */
static tn_status agree(const tn_session *s)
{
    uint64_t build;
    tn_hash plan;
    TN_TRY(hash_program(&build));
    TN_TRY(tn_comm_agree(s->comm, "the build of titan", build));
    TN_TRY(tn_comm_agree(s->comm, "the recipe", hash_config(tn_recipe_config(s->recipe))));
    tn_hash_start(&plan, 0);
    TN_TRY(hash_programs(&s->trains, &plan));
    TN_TRY(hash_programs(&s->evals, &plan));
    return tn_comm_agree(s->comm, "the plan", tn_hash_value(&plan));
}

/* ------------------------------------------------------------ memory and states */

tn_status tn_session_ready(tn_session *s)
{
    tn_arena arena = {0};
    const char *hf;
    TN_TRY(check_memory(s)); /* a plan that does not fit is the first thing to know */
    TN_TRY(tn_session_data(s));
    TN_TRY(tn_data_check_steps(s->data, tn_recipe_int(s->recipe, "training.steps")));
    const tn_program *programs[2] = {s->train, s->eval};
    if (s->world.size > 1) {
        TN_TRY(tn_comm_open(&s->world, tn_recipe_num(s->recipe, "comm.init_timeout_s"), &s->comm));
        TN_TRY(agree(s));
    }
    TN_TRY(tn_memory_create(s->device, s->comm, 0, programs, s->eval ? 2 : 1, &s->memory));
    TN_TRY(tn_exec_create(s->memory, s->train, &s->train_exec));
    if (s->eval) TN_TRY(tn_exec_create(s->memory, s->eval, &s->eval_exec));
    tn_status st = tn_model_hf_dir(s->recipe, &arena, &hf);
    s->first_kernel_s = tn_clock_s();
    if (!st)
        st = tn_init_states(s->train_exec, (uint64_t)tn_recipe_int(s->recipe, "training.seed"),
                            hf[0] != 0);
    if (!st && hf[0]) st = tn_weights_load(s->recipe, &s->trains, s->train_exec, hf);
    tn_arena_fini(&arena);
    if (!st && s->comm)
        tn_comm_set_timeout(s->comm, tn_recipe_num(s->recipe, "comm.train_timeout_s"));
    return st;
}

void tn_session_close(tn_session *s)
{
    tn_exec_destroy(s->train_exec);
    tn_exec_destroy(s->eval_exec);
    tn_memory_destroy(s->memory);
    tn_comm_close(s->comm);
    tn_build_destroy(&s->trains);
    tn_build_destroy(&s->evals);
    tn_device_destroy(s->device);
    tn_data_close(s->data);
    tn_data_close(s->validation);
    tn_recipe_close(s->recipe);
    *s = (tn_session){0};
}
