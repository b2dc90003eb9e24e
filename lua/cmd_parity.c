/* cmd_parity.c - `titan parity DIR`: a Hugging Face folder with golden values
 * (tests/golden/README.md) is built, run and compared.
 *
 * The recipe is written from curve.json; overrides of the command line apply to it (microbatch
 * split, threads, recompute). */
#include "checkpoints/diff.h"
#include "checkpoints/hf.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/text.h"
#include "engine/init.h"
#include "engine/train.h"
#include "graph/op.h"
#include "graph/recompute.h"
#include "lua/commands.h"
#include "lua/session.h"
#include "lua/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Tolerances of golden/README.md: max abs difference over max abs truth, about three times
 * transformers' own noise. */
static const double TOL_LOGITS = 5e-6, TOL_LOSS = 1e-6, TOL_GRADIENT = 1e-5, TOL_CURVE_LOSS = 2e-6,
                    TOL_CURVE_NORM = 1e-4, TOL_WEIGHTS = 1e-3, TOL_LR = 1e-12;

typedef struct output { /* what titan computed, for --out */
    const char *name;
    const float *data;
    int rank;
    int64_t shape[TN_MAX_RANK];
} output;

typedef struct parity {
    const tn_args *a;
    const char *dir;
    const tn_json *curve;
    tn_safetensors *io, *train, *final;
    tn_session s;
    tn_arena arena;
    tn_weight *w;
    int64_t n_w;
    output *out;
    int64_t n_out, cap_out;
    bool missed;
} parity;

/* Rank 0 speaks; all ranks compute and compare alike. */
static void line(parity *p, const char *what, double error, double tolerance, const char *detail)
{
    bool ok = error <= tolerance;
    if (p->s.world.rank == 0)
        printf("%-16s error %-10.3g tolerance %-8.1g %s%s%s\n", what, error, tolerance,
               ok ? "ok" : "MISSED", detail[0] ? "  " : "", detail);
    p->missed |= !ok;
}

static int64_t elements(int rank, const tn_dim *dim)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= dim[d].extent;
    return n;
}

/* The value as a whole, from all ranks. Collective: nothing is overwritten while someone reads. */
static tn_status whole(parity *p, tn_exec *e, const tn_program *program, int32_t value,
                       const float **out)
{
    void *mem;
    int64_t n = tn_value_elements(&program->g->values[value]);
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(n + 1) * sizeof(float), &mem));
    if (p->s.comm) TN_TRY(tn_comm_sync(p->s.comm, TN_COMM_WORLD, "parity", 0));
    TN_TRY(tn_weights_read(e, program, value, 0, n, mem));
    if (p->s.comm) TN_TRY(tn_comm_sync(p->s.comm, TN_COMM_WORLD, "parity", 0));
    *out = mem;
    return TN_OK;
}

static tn_status keep(parity *p, const char *name, const float *data, int rank, const tn_dim *dim)
{
    void *mem;
    int64_t n = elements(rank, dim);
    TN_TRY(tn_grow((void **)&p->out, &p->cap_out, p->n_out + 1, sizeof *p->out));
    output *o = &p->out[p->n_out];
    *o = (output){.rank = rank};
    for (int d = 0; d < rank; d++) o->shape[d] = dim[d].extent;
    TN_TRY(tn_arena_text(&p->arena, name, &o->name));
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)n * sizeof(float), &mem));
    memcpy(mem, data, (size_t)n * sizeof(float));
    o->data = mem;
    p->n_out++;
    return TN_OK;
}

/* ------------------------------------------------------------ the recipe */

static double number(const tn_json *o, const char *key, double fallback)
{
    double x;
    return tn_json_number(tn_json_find(o, key), &x) ? x : fallback;
}

static tn_status open_file(const parity *p, const char *name, bool needed, tn_safetensors **out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    if (!needed && !tn_file_exists(path)) return TN_OK;
    return tn_safetensors_open(path, out);
}

/* dp: ranks that share the rows; 0: not known yet. */
static void write_recipe(const parity *p, const tn_json *t, int64_t rows, int64_t dp, int64_t seq,
                         tn_text *out)
{
    const char *name = tn_json_string(tn_json_find(t, "name"));
    const tn_json *betas = tn_json_find(t, "betas"), *ratio = tn_json_find(t, "decay_ratio");
    double b1 = 0.9, b2 = 0.95, r;
    bool no_decay = false;
    tn_json_number(tn_json_at(betas, 0), &b1);
    tn_json_number(tn_json_at(betas, 1), &b2);
    tn_json_bool(tn_json_find(t, "no_decay_on_1d"), &no_decay);
    tn_text_add(out, "return require('titan').recipe {\n model = { hf = [[%s]] },\n", p->dir);
    tn_text_add(out, " data = { source = 'batches', path = [[%s/train.safetensors]] },\n", p->dir);
    tn_text_add(out,
                " training = { steps = %lld, seq_len = %lld, local_batch_size = %lld, "
                "global_batch_size = %lld, max_norm = %.17g },\n",
                (long long)number(t, "steps", 1), (long long)seq,
                (long long)(dp && rows % dp == 0 ? rows / dp : rows), (long long)(dp ? rows : -1),
                number(t, "clip", 1.0));
    tn_text_add(out,
                " optimizer = { name = '%s', lr = %.17g, betas = { %.17g, %.17g }, eps = %.17g, "
                "weight_decay = %.17g, momentum = %.17g",
                name ? name : "AdamW", number(t, "lr", 1e-3), b1, b2, number(t, "eps", 1e-8),
                number(t, "weight_decay", 0), number(t, "momentum", 0));
    if (no_decay)
        tn_text_add(out,
                    ", groups = { { pattern = '(^|_|[.])norm[.]weight$', weight_decay = 0 } }");
    tn_text_add(
        out, " },\n lr_scheduler = { warmup_steps = %lld, decay_type = '%s', min_lr_factor = %.17g",
        (long long)number(t, "warmup", 0),
        tn_json_string(tn_json_find(t, "decay")) ? tn_json_string(tn_json_find(t, "decay"))
                                                 : "linear",
        number(t, "min_lr_factor", 0));
    if (tn_json_number(ratio, &r)) tn_text_add(out, ", decay_ratio = %.17g", r);
    tn_text_add(out, " },\n device = 'cpu',\n}\n");
}

static tn_status open_text(const parity *p, const tn_json *t, const tn_safetensors_tensor *ids,
                           int64_t dp, tn_recipe **out)
{
    tn_text text = {0};
    write_recipe(p, t, ids->shape[1], dp, ids->shape[2], &text);
    tn_status st = tn_text_end(&text);
    if (!st) {
        tn_recipe_options o = {.text = tn_text_str(&text),
                               .name = "parity",
                               .overrides = p->a->overrides,
                               .n_overrides = p->a->n_overrides,
                               .host = p->a->host};
        st = tn_recipe_open(&o, out);
    }
    tn_text_fini(&text);
    return st;
}

static tn_status open_recipe(parity *p, tn_recipe **out)
{
    char path[4096];
    const tn_safetensors_tensor *ids;
    const int64_t any[3] = {-1, -1, -1};
    snprintf(path, sizeof path, "%s/curve.json", p->dir);
    TN_TRY(tn_json_read(path, &p->curve));
    const tn_json *t = tn_json_find(p->curve, "train");
    if (!t) TN_FAIL(TN_BAD_INPUT, "%s: no object 'train'; golden values come with one", path);
    TN_TRY(open_file(p, "train.safetensors", true, &p->train));
    TN_TRY(open_file(p, "io.safetensors", false, &p->io));
    TN_TRY(open_file(p, "final.safetensors", false, &p->final));
    TN_TRY(tn_safetensors_require(p->train, "input_ids", 3, any, &ids));
    tn_mesh mesh;
    tn_world world;
    TN_TRY(tn_world_find(&world));
    if (world.size == 1) return open_text(p, t, ids, 1, out);
    TN_TRY(open_text(p, t, ids, 0, out)); /* who shares the rows? */
    tn_status st = tn_build_mesh(*out, world.size, &mesh);
    tn_recipe_close(*out);
    if (st) return st;
    return open_text(p, t, ids,
                     (int64_t)mesh.size[TN_AXIS_DP_REPLICATE] * mesh.size[TN_AXIS_DP_SHARD], out);
}

/* ------------------------------------------------------------ one batch */

/* This rank's rows of the batch that begins at row `first`. */
static tn_status fill(tn_exec *e, const char *input, const tn_safetensors *f, const char *tensor,
                      int64_t first)
{
    const tn_program *p = tn_exec_program(e);
    const tn_value *v;
    int32_t *to = tn_exec_named(e, input, &v);
    if (!to) return TN_OK;
    int64_t id = v - p->g->values, seq = v->dim[1].extent, shape[2] = {-1, seq},
            rows = p->local[id].dim[0].extent;
    const tn_safetensors_tensor *t = tn_safetensors_find(f, tensor);
    first += p->begin[id][0];
    if (t) {
        TN_TRY(tn_safetensors_check_shape(t, 2, shape));
        if (first + rows > t->shape[0])
            TN_FAIL(TN_BAD_INPUT, "%s: '%s' has %lld rows where %lld are needed", t->where, tensor,
                    (long long)t->shape[0], (long long)(first + rows));
        return tn_safetensors_to_i32(t, first * seq, rows * seq, to);
    }
    for (int64_t i = 0; i < rows * seq; i++)
        to[i] = strcmp(input, "positions") ? 0 : (int32_t)(i % seq);
    return TN_OK;
}

static tn_status fill_io(parity *p, tn_exec *e, int64_t first_row)
{
    TN_TRY(fill(e, "tokens", p->io, "input_ids", first_row));
    TN_TRY(fill(e, "labels", p->io, "labels", first_row));
    TN_TRY(fill(e, "positions", p->io, "positions", first_row));
    return fill(e, "documents", p->io, "documents", first_row);
}

static tn_status logits_with(parity *p, const tn_programs *programs, tn_exec *e,
                             const tn_safetensors_tensor *truth)
{
    int32_t id = programs->result;
    const tn_program *program = programs->of[programs->result_of];
    const tn_value *v = &program->g->values[id];
    int64_t rows = v->dim[0].extent, n = tn_value_elements(v), total = truth->shape[0];
    void *mem;
    tn_diff_error err;
    tn_dim dim[3] = {{total, 0}, v->dim[1], v->dim[2]};
    const int64_t shape[3] = {total, dim[1].extent, dim[2].extent};
    TN_TRY(tn_safetensors_check_shape(truth, 3, shape));
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(n / rows * total) * sizeof(float), &mem));
    float *all = mem;
    for (int64_t r = 0; r + rows <= total; r += rows) {
        TN_TRY(fill_io(p, e, r));
        TN_TRY(tn_exec_run(e, TN_EXEC_ALL, NULL));
        const float *piece;
        TN_TRY(whole(p, e, program, id, &piece));
        memcpy(all + n / rows * r, piece, (size_t)n * sizeof(float));
    }
    TN_TRY(tn_diff_measure(all, truth, &err));
    line(p, "logits", err.error, TOL_LOGITS, "");
    return keep(p, "logits", all, 3, dim);
}

/* A program of its own, on memory of its own: parity is for small models. */
static tn_status logits(parity *p)
{
    const int64_t any[3] = {-1, -1, -1};
    const tn_safetensors_tensor *truth;
    tn_build_options o = {.kind = TN_BUILD_LOGITS, .shape = p->s.shape, .rank = p->s.world.rank};
    tn_programs all;
    tn_memory *memory = NULL;
    tn_exec *e = NULL;
    o.shape.n_microbatches = o.shape.rounds = 1;
    TN_TRY(tn_safetensors_require(p->io, "logits", 3, any, &truth));
    TN_TRY(tn_build_programs(p->s.recipe, &o, &all));
    const tn_program *program = all.of[all.mine], *programs[1] = {program};
    tn_status st = tn_memory_create(p->s.device, p->s.comm, TN_N_REGIONS, programs, 1, &memory);
    if (!st) st = tn_exec_create(memory, program, &e);
    if (!st) st = tn_init_states(e, 0, true);
    if (!st) st = tn_weights_load(p->s.recipe, &all, e, p->dir);
    if (!st) st = logits_with(p, &all, e, truth);
    tn_exec_destroy(e);
    tn_memory_destroy(memory);
    tn_build_destroy(&all);
    return st;
}

/* The complete gradient of a parameter: what the norm is taken of. */
static int32_t gradient_of(const tn_graph *g, int32_t param)
{
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if ((n->op == TN_OP_adamw || n->op == TN_OP_sgd) && tn_node_in(g, n, 0) == param)
            return tn_node_in(g, n, 1);
    }
    return -1;
}

static tn_status gradients(parity *p)
{
    double worst = -1;
    char worst_name[600] = "";
    for (int64_t i = 0; i < p->n_w; i++) {
        const tn_graph *g = p->w[i].p->g;
        char name[600];
        tn_diff_error err;
        const tn_value *v = &g->values[p->w[i].value];
        const float *grad;
        TN_TRY(whole(p, p->s.train_exec, p->w[i].p, gradient_of(g, p->w[i].value), &grad));
        snprintf(name, sizeof name, "grad.%s", p->w[i].hf_name);
        const tn_safetensors_tensor *truth = tn_safetensors_find(p->io, name);
        if (!truth) TN_FAIL(TN_BAD_INPUT, "%s/io.safetensors: no tensor '%s'", p->dir, name);
        if (truth->n != tn_value_elements(v))
            TN_FAIL(TN_BAD_INPUT, "%s/io.safetensors: '%s' has another shape than the parameter",
                    p->dir, name);
        TN_TRY(tn_diff_measure(grad, truth, &err));
        TN_TRY(keep(p, name, grad, v->rank, v->dim));
        if (err.error > worst) {
            worst = err.error;
            snprintf(worst_name, sizeof worst_name, "%s", p->w[i].hf_name);
        }
    }
    line(p, "worst gradient", worst, TOL_GRADIENT, worst_name);
    return TN_OK;
}

static tn_status loss_and_gradients(parity *p)
{
    const tn_safetensors_tensor *t;
    const int64_t one[1] = {1};
    double truth;
    tn_step step = {.step = 1, .lr_factor = 0};
    TN_TRY(tn_safetensors_require(p->io, "loss", 1, one, &t));
    TN_TRY(tn_safetensors_to_f64(t, 0, 1, &truth));
    TN_TRY(fill_io(p, p->s.train_exec, 0));
    TN_TRY(tn_exec_run(p->s.train_exec, TN_EXEC_BEFORE_UPDATE, &step));
    double loss = tn_train_loss(p->s.train_exec);
    char detail[64];
    snprintf(detail, sizeof detail, "%.9g", loss);
    line(p, "loss", fabs(loss - truth) / fabs(truth), TOL_LOSS, detail);
    float f = (float)loss;
    tn_dim dim = {1, 0};
    TN_TRY(keep(p, "loss", &f, 1, &dim));
    return gradients(p);
}

/* ------------------------------------------------------------ the curve */

typedef struct curve {
    parity *p;
    const tn_json *rows;
    double loss, norm, lr; /* worst errors */
    double base_lr;
} curve;

static double relative(double got, double truth)
{
    return truth != 0 ? fabs(got / truth - 1) : fabs(got);
}

static tn_status on_step(void *user, const tn_train_report *r)
{
    curve *c = user;
    const tn_json *row = tn_json_at(c->rows, r->step - 1);
    if (!row)
        TN_FAIL(TN_BAD_INPUT, "%s/curve.json: no row for step %lld", c->p->dir, (long long)r->step);
    c->loss = fmax(c->loss, relative(r->loss, number(row, "loss", NAN)));
    c->norm = fmax(c->norm, relative((double)r->grad_norm, number(row, "grad_norm", NAN)));
    c->lr = fmax(c->lr, relative(r->lr_factor * c->base_lr, number(row, "lr", NAN)));
    if (isnan(r->loss) || (int64_t)number(row, "valid_tokens", -1) != r->valid_tokens)
        TN_FAIL(TN_FAILED, "step %lld: %lld valid tokens where the truth has %g",
                (long long)r->step, (long long)r->valid_tokens, number(row, "valid_tokens", -1));
    return TN_OK;
}

static tn_status run_curve(parity *p)
{
    const tn_recipe *r = p->s.recipe;
    curve c = {.p = p,
               .rows = tn_json_find(p->curve, "curve"),
               .base_lr = tn_recipe_num(r, "optimizer.lr")};
    tn_train_options o = {.train = p->s.train_exec,
                          .comm = p->s.comm,
                          .data = p->s.data,
                          .steps = tn_recipe_int(r, "training.steps"),
                          .global_batch = p->s.global_batch,
                          .seq = p->s.shape.seq,
                          .on_step = on_step,
                          .user = &c};
    tn_lr_options lr = {.steps = o.steps,
                        .warmup_steps = tn_recipe_int(r, "lr_scheduler.warmup_steps"),
                        .decay_ratio = tn_recipe_is_set(r, "lr_scheduler.decay_ratio")
                                           ? tn_recipe_num(r, "lr_scheduler.decay_ratio")
                                           : -1,
                        .decay_type = tn_recipe_text(r, "lr_scheduler.decay_type"),
                        .min_lr_factor = tn_recipe_num(r, "lr_scheduler.min_lr_factor")};
    TN_TRY(tn_lr_init(&lr, &o.lr));
    TN_TRY(tn_train_run(&o));
    line(p, "curve loss", c.loss, TOL_CURVE_LOSS, "");
    line(p, "curve grad_norm", c.norm, TOL_CURVE_NORM, "");
    line(p, "curve lr", c.lr, TOL_LR, "");
    return TN_OK;
}

static tn_status final_weights(parity *p)
{
    double worst = -1;
    char worst_name[600] = "", name[640];
    for (int64_t i = 0; i < p->n_w; i++) {
        tn_diff_error err = {0};
        const tn_value *v = &p->w[i].p->g->values[p->w[i].value];
        const float *got;
        TN_TRY(whole(p, p->s.train_exec, p->w[i].p, p->w[i].value, &got));
        const tn_safetensors_tensor *truth =
            p->final ? tn_safetensors_find(p->final, p->w[i].hf_name) : NULL;
        if (p->final && !truth)
            TN_FAIL(TN_BAD_INPUT, "%s/final.safetensors: no tensor '%s'", p->dir, p->w[i].hf_name);
        if (truth) TN_TRY(tn_diff_measure(got, truth, &err));
        snprintf(name, sizeof name, "final.%s", p->w[i].hf_name);
        TN_TRY(keep(p, name, got, v->rank, v->dim));
        if (err.error > worst) {
            worst = err.error;
            snprintf(worst_name, sizeof worst_name, "%s", p->w[i].hf_name);
        }
    }
    if (p->final) line(p, "final weights", worst, TOL_WEIGHTS, worst_name);
    return TN_OK;
}

/* ------------------------------------------------------------ all */

static tn_status copy_piece(void *arg, int64_t i, int64_t begin, int64_t count, void *out)
{
    const parity *p = arg;
    memcpy(out, p->out[i].data + begin, (size_t)count * sizeof(float));
    return TN_OK;
}

static tn_status write_out(parity *p)
{
    void *mem;
    if (!p->a->out || p->s.world.rank) return TN_OK;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(p->n_out + 1) * sizeof(tn_safetensors_spec), &mem));
    tn_safetensors_spec *specs = mem;
    for (int64_t i = 0; i < p->n_out; i++)
        specs[i] = (tn_safetensors_spec){.name = p->out[i].name,
                                         .dtype = TN_SAFETENSORS_F32,
                                         .rank = p->out[i].rank,
                                         .shape = p->out[i].shape};
    tn_safetensors_content c = {.specs = specs, .n = p->n_out, .source = copy_piece, .arg = p};
    return tn_safetensors_write(p->a->out, &c);
}

static tn_status run(parity *p)
{
    tn_recipe *recipe;
    TN_TRY(open_recipe(p, &recipe));
    TN_TRY(tn_session_plan(recipe, false, 0, &p->s));
    TN_TRY(tn_session_ready(&p->s));
    TN_TRY(tn_weights_list(recipe, &p->s.trains, &p->arena, &p->w, &p->n_w));
    const int *n = p->s.shape.mesh.size;
    printf("parity %s: %d rank%s (pp %d, dp_replicate %d, dp_shard %d, tp %d), %s kernels, %d "
           "thread%s, "
           "microbatch %lld of %lld rows, recompute %s\n",
           p->dir, p->s.world.size, p->s.world.size == 1 ? "" : "s", p->s.shape.mesh.pp,
           n[TN_AXIS_DP_REPLICATE], n[TN_AXIS_DP_SHARD], n[TN_AXIS_TP],
           tn_isa_name(p->s.device->cpu.isa), tn_pool_threads(p->s.device->cpu.pool),
           tn_pool_threads(p->s.device->cpu.pool) == 1 ? "" : "s", (long long)p->s.shape.rows,
           (long long)p->s.global_batch,
           tn_recompute_text(p->s.shape.recompute, p->s.shape.recompute_every).s);
    if (p->io) {
        TN_TRY(logits(p));
        TN_TRY(loss_and_gradients(p));
    }
    TN_TRY(run_curve(p));
    TN_TRY(final_weights(p));
    TN_TRY(write_out(p));
    if (p->missed) TN_FAIL(TN_FAILED, "parity: %s misses a tolerance", p->dir);
    return TN_OK;
}

tn_status tn_command_parity(const tn_args *a)
{
    parity p = {.a = a, .dir = a->paths[0]};
    tn_status st = run(&p);
    if (st && p.s.comm) tn_comm_abort(p.s.comm, tn_error_text());
    tn_session_close(&p.s);
    tn_safetensors_close(p.io);
    tn_safetensors_close(p.train);
    tn_safetensors_close(p.final);
    tn_json_free(p.curve);
    tn_free(p.out);
    tn_arena_fini(&p.arena);
    return st;
}
