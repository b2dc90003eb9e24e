#include "lua/build.h"

#include "engine/base/clock.h"
#include "graph/op.h"
#include "lua/inspect.h"
#include "lua/model.h"
#include "lua/stage_plan.h"

#include <stdio.h>
#include <string.h>

const char *const tn_build_passes[] = {
    "trace",    "stages",    "differentiate", "lower",    "fuse", "storage",
    "boundary", "recompute", "overlap",       "pipeline", NULL};

/* ------------------------------------------------------------ batch arithmetic */

enum { MAX_MICROBATCHES = 1 << 14 };

static tn_recompute recompute_of(const tn_recipe *r, int64_t *every)
{
    static const char option[] = "activation_checkpoint.selective_ac_option";
    const char *mode = tn_recipe_text(r, "activation_checkpoint.mode");
    *every = 0;
    if (!strcmp(mode, "full")) return TN_RECOMPUTE_FULL;
    if (strcmp(mode, "selective")) return TN_RECOMPUTE_NONE;
    if (tn_recipe_is_text(r, option)) return TN_RECOMPUTE_OP;
    *every = tn_recipe_int(r, option);
    return TN_RECOMPUTE_LAYERS;
}

/* Which ranks' pieces a parameter is gathered from, and how often. */
static tn_status unshard_of(const tn_recipe *r, const tn_mesh *mesh, tn_shape *out)
{
    static const char key[] = "parallelism.fsdp_reshard_after_forward";
    int64_t shard = mesh->size[TN_AXIS_DP_SHARD],
            n = tn_recipe_is_text(r, key) ? shard : tn_recipe_int(r, key);
    if (n < 1 || shard % n || (n > 255 && n < shard)) {
        int64_t near = n < shard ? n : shard;
        while (shard % near || (near > 255 && near < shard)) near--;
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: groups of %lld ranks do not divide data_parallel_shard_degree %lld; the "
                "nearest is %lld",
                tn_recipe_where(r, key), key, (long long)n, (long long)shard, (long long)near);
    }
    const char *policy = tn_recipe_is_text(r, key) ? tn_recipe_text(r, key) : "always";
    bool once = !strcmp(policy, "never") || (!strcmp(policy, "default") && mesh->pp > 1);
    out->unshard = once ? TN_UNSHARD_ONCE : TN_UNSHARD_ALWAYS;
    out->unshard_ranks = n < shard ? (int)n : 0;
    return TN_OK;
}

tn_status tn_build_shape(const tn_recipe *r, const tn_mesh *mesh, tn_shape *out)
{
    int64_t dp = (int64_t)mesh->size[TN_AXIS_DP_REPLICATE] * mesh->size[TN_AXIS_DP_SHARD];
    int64_t local = tn_recipe_int(r, "training.local_batch_size"),
            global = tn_recipe_int(r, "training.global_batch_size");
    int64_t unit = local * dp, below = global / unit * unit;
    if (global < 0) global = unit;
    if (global % unit)
        TN_FAIL(TN_BAD_INPUT,
                "%s: training.global_batch_size: %lld is not a multiple of "
                "training.local_batch_size %lld x data-parallel ranks %lld; the nearest is %lld",
                tn_recipe_where(r, "training.global_batch_size"), (long long)global,
                (long long)local, (long long)dp,
                (long long)(!below || global - below > unit / 2 ? below + unit : below));
    int64_t rows = local;
    if (mesh->pp > 1) {
        rows = tn_recipe_int(r, "parallelism.pipeline_parallel_microbatch_size");
        int64_t near = rows < local ? rows : local;
        while (local % near) near--;
        if (near != rows)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: parallelism.pipeline_parallel_microbatch_size: %lld does not divide "
                    "training.local_batch_size %lld; the nearest is %lld",
                    tn_recipe_where(r, "parallelism.pipeline_parallel_microbatch_size"),
                    (long long)rows, (long long)local, (long long)near);
    }
    if (global / unit * (local / rows) > MAX_MICROBATCHES)
        TN_FAIL(TN_BAD_INPUT,
                "%s: training.global_batch_size: %lld are %lld microbatches of a rank, at most %d "
                "can be planned; %lld, or a larger training.local_batch_size",
                tn_recipe_where(r, "training.global_batch_size"), (long long)global,
                (long long)(global / unit * (local / rows)), (int)MAX_MICROBATCHES,
                (long long)(MAX_MICROBATCHES * unit / (local / rows)));
    *out = (tn_shape){.mesh = *mesh,
                      .dp = dp,
                      .rows = rows,
                      .seq = tn_recipe_int(r, "training.seq_len"),
                      .n_microbatches = global / unit * (local / rows),
                      .rounds = global / unit,
                      .chunks = tn_recipe_int(r, "loss.chunks")};
    out->recompute = recompute_of(r, &out->recompute_every);
    TN_TRY(unshard_of(r, mesh, out));
    return TN_OK;
}

/* Pieces are whole rows or an even share of one row that consists of whole position parts of the
 * reduce grid. */
static bool piece_of(const tn_shape *s, int grid_seq, int64_t n, int64_t *rows, int64_t *seq)
{
    if (n <= s->rows) {
        *rows = s->rows / n;
        *seq = s->seq;
        return s->rows % n == 0;
    }
    int64_t per_row = n / s->rows;
    *rows = 1;
    *seq = s->seq / per_row;
    return n % s->rows == 0 && grid_seq % per_row == 0 && s->seq % per_row == 0;
}

tn_status tn_build_check_chunks(const tn_recipe *r)
{
    bool cut = tn_recipe_int(r, "parallelism.pipeline_parallel_degree") > 1;
    tn_shape s = {.rows = tn_recipe_int(r, cut ? "parallelism.pipeline_parallel_microbatch_size"
                                               : "training.local_batch_size"),
                  .seq = tn_recipe_int(r, "training.seq_len")};
    int grid_seq = (int)tn_recipe_int_at(r, "debug.reduce_grid", 1);
    int64_t n = tn_recipe_int(r, "loss.chunks"), most = s.rows * grid_seq, rows, seq;
    if (!n || piece_of(&s, grid_seq, n, &rows, &seq)) return TN_OK;
    int64_t below = n < most ? n : most, above = n;
    while (below > 1 && !piece_of(&s, grid_seq, below, &rows, &seq)) below--;
    while (above <= most && !piece_of(&s, grid_seq, above, &rows, &seq)) above++;
    char more[32] = "";
    if (above <= most) snprintf(more, sizeof more, " or %lld", (long long)above);
    TN_FAIL(
        TN_BAD_INPUT,
        "%s: loss.chunks: %lld pieces do not tile %lld rows of %lld positions in whole parts of "
        "the reduce grid; the nearest is %lld%s",
        tn_recipe_where(r, "loss.chunks"), (long long)n, (long long)s.rows, (long long)s.seq,
        (long long)below, more);
}

/* loss.chunks = 0: few enough tokens that the logits of a piece stay below 16 MiB, but not below
 * 512 tokens, where a piece would cost more in passes over the head's gradient than it saves. */
static tn_status choose_chunks(tn_recipe *r, const tn_shape *s, int grid_seq, int64_t vocab,
                               int64_t *n, int64_t *rows, int64_t *seq)
{
    int64_t wanted = s->chunks, tokens = s->rows * s->seq;
    if (wanted) {
        *n = wanted;
        return piece_of(s, grid_seq, wanted, rows, seq) ? TN_OK : tn_build_check_chunks(r);
    }
    int64_t most = ((int64_t)4 << 20) / vocab;
    if (most < 512) most = 512;
    int64_t best = 1;
    for (int64_t k = 1; k <= s->rows * grid_seq; k++)
        if (piece_of(s, grid_seq, k, rows, seq)) {
            best = k;
            if (tokens / k <= most) break;
        }
    *n = best;
    piece_of(s, grid_seq, best, rows, seq);
    return TN_OK;
}

/* ------------------------------------------------------------ trace and passes */

typedef struct build {
    tn_recipe *r;
    const tn_build_options *o;
    tn_groups *groups;
    tn_pass_options pass;
    tn_stage_plan *stages; /* NULL: no pipeline */
    double begun_s;
} build;

static int64_t vocabulary(const tn_graph *g)
{
    const tn_value *logits = &g->values[tn_node_in(
        g, &g->nodes[g->values[tn_build_find(g, TN_OP_cross_entropy, 0)].node], 0)];
    return logits->dim[logits->rank - 1].extent;
}

static tn_trace_kind trace_kind(tn_build_kind kind)
{
    return kind == TN_BUILD_LOGITS    ? TN_TRACE_LOGITS
           : kind == TN_BUILD_DECODE  ? TN_TRACE_DECODE
           : kind == TN_BUILD_PREFILL ? TN_TRACE_PREFILL
                                      : TN_TRACE_TRAIN;
}

static tn_status trace(build *b, tn_graph **out, int32_t *loss)
{
    const tn_shape *s = &b->o->shape;
    tn_order_grid grid = {(int)tn_recipe_int_at(b->r, "debug.reduce_grid", 0),
                          (int)tn_recipe_int_at(b->r, "debug.reduce_grid", 1),
                          (int)tn_recipe_int_at(b->r, "debug.reduce_grid", 2)};
    tn_trace_options t = {.kind = trace_kind(b->o->kind),
                          .mesh = s->mesh,
                          .grid = grid,
                          .canonical = !strcmp(tn_recipe_text(b->r, "debug.reduce"), "canonical"),
                          .sp = tn_recipe_bool(b->r, "parallelism.enable_sequence_parallel"),
                          .compute = b->pass.compute,
                          .rows = s->rows * s->dp,
                          .seq = s->seq,
                          .cache = s->cache,
                          .n_microbatches = s->n_microbatches,
                          .chunk_rows = s->rows,
                          .chunk_seq = s->seq};
    tn_trace traced;
    int64_t chunks = 1, vocab = 0;
    bool loss_follows = t.kind == TN_TRACE_TRAIN;
    if (loss_follows) TN_TRY(tn_model_int(b->r, "vocab_size", &vocab));
    if (vocab)
        TN_TRY(choose_chunks(b->r, s, grid.seq, vocab, &chunks, &t.chunk_rows, &t.chunk_seq));
    t.chunk_rows *= s->dp;
    TN_TRY(tn_trace_model(b->r, &t, &traced));
    *out = traced.g;
    *loss = traced.loss;
    if (!loss_follows || vocab) {
        traced.g->n_chunks = chunks;
        return TN_OK;
    }
    /* a model without that key: only its logits say how large the vocabulary is */
    tn_status st = choose_chunks(b->r, s, grid.seq, vocabulary(traced.g), &chunks, &t.chunk_rows,
                                 &t.chunk_seq);
    if (!st && chunks > 1) {
        tn_graph_destroy(traced.g);
        *out = NULL;
        t.chunk_rows *= s->dp;
        TN_TRY(tn_trace_model(b->r, &t, &traced));
        *out = traced.g;
        *loss = traced.loss;
    }
    (*out)->n_chunks = chunks;
    return st;
}

static tn_status seen(build *b, const char *pass, const tn_graph *g)
{
    double now = tn_clock_s(), took = now - b->begun_s;
    tn_status st = b->o->watch ? b->o->watch(b->o->user, pass, g, took) : TN_OK;
    b->begun_s = tn_clock_s();
    return st;
}

static tn_status run_pass(build *b, const char *name, int32_t loss, const tn_graph *g,
                          tn_graph **out)
{
    if (!strcmp(name, "stages"))
        return tn_stage_plan_make(b->r, &b->o->shape, b->o->kind != TN_BUILD_TRAIN, g, &b->stages,
                                  out);
    if (!strcmp(name, "differentiate")) return tn_pass_differentiate(g, loss, out);
    if (!strcmp(name, "lower")) return tn_pass_lower(g, out);
    if (!strcmp(name, "fuse")) return tn_pass_fuse(g, out);
    if (!strcmp(name, "storage")) return tn_pass_storage(g, &b->pass, out);
    if (!strcmp(name, "boundary")) return tn_pass_boundary(g, &b->pass.machine.links, out);
    if (!strcmp(name, "recompute")) return tn_pass_recompute(g, &b->pass, out);
    return tn_pass_overlap(g, &b->pass, out);
}

static bool wanted(const build *b, const char *pass)
{
    if (!strcmp(pass, "overlap")) return tn_mesh_ranks(&b->o->shape.mesh) > 1;
    if (!strcmp(pass, "stages")) return b->o->shape.mesh.pp > 1;
    if (!strcmp(pass, "pipeline")) return false; /* behind the others, for each rank */
    if (b->o->kind != TN_BUILD_TRAIN)
        return strcmp(pass, "differentiate") && strcmp(pass, "recompute");
    return strcmp(pass, "recompute") || b->pass.recompute != TN_RECOMPUTE_NONE;
}

/* The passes over the whole graph. */
static tn_status passes(build *b, tn_graph **g)
{
    int32_t loss = -1;
    b->begun_s = tn_clock_s();
    TN_TRY(trace(b, g, &loss));
    TN_TRY(seen(b, "trace", *g));
    if (b->o->kind == TN_BUILD_TRAIN) TN_TRY(tn_groups_check(b->groups, *g));
    if (b->o->until && !strcmp(b->o->until, "trace")) return TN_OK;
    for (int i = 1; tn_build_passes[i]; i++) {
        const char *name = tn_build_passes[i];
        tn_graph *next;
        if (wanted(b, name)) {
            TN_TRY(run_pass(b, name, loss, *g, &next));
            tn_graph_destroy(*g);
            *g = next;
            TN_TRY(seen(b, name, *g));
        }
        if (b->o->until && !strcmp(b->o->until, name)) return TN_OK;
    }
    return TN_OK;
}

static tn_optimizer optimizer_of(const tn_recipe *r)
{
    const char *name = tn_recipe_text(r, "optimizer.name");
    return !strcmp(name, "SGD")    ? TN_OPTIMIZER_SGD
           : !strcmp(name, "Adam") ? TN_OPTIMIZER_ADAM
                                   : TN_OPTIMIZER_ADAMW;
}

static tn_status begin(build *b)
{
    const tn_recipe *r = b->r;
    TN_TRY(tn_groups_create(r, &b->groups));
    b->pass = (tn_pass_options){
        .recompute = b->o->shape.recompute,
        .recompute_every = b->o->shape.recompute_every,
        .unshard = b->o->shape.unshard,
        .unshard_ranks = b->o->shape.unshard_ranks,
        .optimizer = optimizer_of(r),
        .group_of = tn_groups_of,
        .user = b->groups,
        .max_norm = tn_recipe_num(r, "training.max_norm"),
        .compute = strcmp(tn_recipe_text(r, "training.mixed_precision_param"), "bfloat16")
                       ? TN_F32
                       : TN_BF16,
        .machine = tn_cost_guess(&b->o->shape.mesh, strcmp(tn_recipe_device(r), "cpu") != 0,
                                 tn_inspect_node(r))};
    if (b->o->kind == TN_BUILD_TRAIN) {
        b->pass.n_groups = tn_groups_count(b->groups);
        b->pass.groups = tn_groups_get(b->groups, 0);
    }
    return TN_OK;
}

static int stage_rank(const build *b)
{
    return b->o->rank / tn_mesh_ranks(&b->o->shape.mesh);
}

static bool stops_early(const build *b)
{
    return b->o->until && strcmp(b->o->until, "pipeline");
}

tn_status tn_build_graph(tn_recipe *r, const tn_build_options *o, tn_graph **out)
{
    build b = {.r = r, .o = o};
    tn_graph *g = NULL, *part;
    tn_pipeline *plan;
    TN_TRY(begin(&b));
    tn_status st = passes(&b, &g);
    if (!st && b.stages && !stops_early(&b)) {
        st = tn_pass_pipeline(g, b.stages->schedule, stage_rank(&b), &part, &plan);
        if (!st) {
            tn_pipeline_destroy(plan);
            tn_graph_destroy(g);
            g = part;
            st = seen(&b, "pipeline", g);
        }
    }
    tn_groups_destroy(b.groups);
    tn_stage_plan_destroy(b.stages);
    if (st) {
        tn_graph_destroy(g);
        return st;
    }
    *out = g;
    return TN_OK;
}

/* Without a loss the last value of the whole graph, which has `nodes` nodes, is the result. */
static tn_status make_program(const build *b, tn_graph *g, tn_pipeline *plan, int64_t nodes,
                              int rank, int number, tn_programs *out)
{
    int32_t keep = -1;
    for (int64_t i = 0; i < g->n_nodes && trace_kind(b->o->kind) != TN_TRACE_TRAIN; i++)
        if ((plan ? plan->origin[i] : i) == nodes - 1) keep = g->nodes[i].out0;
    if (keep >= 0) {
        out->result_of = number;
        out->result = keep;
    }
    tn_program **p = &out->of[number];
    TN_TRY(tn_program_build(g, plan, rank, keep >= 0, &keep, p));
    return tn_recipe_bool(b->r, "debug.verify") ? tn_program_verify(*p) : TN_OK;
}

static tn_status cut_stages(const build *b, const tn_graph *g, tn_programs *out)
{
    const tn_pipeline **plans;
    const tn_graph **graphs;
    void *mem;
    tn_arena arena = {0};
    int ranks = tn_mesh_ranks(&b->o->shape.mesh);
    tn_status st = tn_arena_alloc(&arena, (size_t)(2 * out->n) * sizeof(void *), &mem);
    plans = mem;
    graphs = (const tn_graph **)mem + out->n;
    for (int i = 0; i < out->n && !st; i++) {
        tn_graph *part;
        tn_pipeline *plan;
        st = tn_pass_pipeline(g, b->stages->schedule, i, &part, &plan);
        if (!st)
            st = make_program(b, part, plan, g->n_nodes, i == out->mine ? b->o->rank % ranks : 0, i,
                              out);
        if (st) break;
        plans[i] = out->of[i]->pipeline;
        graphs[i] = out->of[i]->g;
    }
    if (!st) st = tn_pipeline_verify(plans, graphs, out->n);
    tn_arena_fini(&arena);
    return st;
}

tn_status tn_build_programs(tn_recipe *r, const tn_build_options *o, tn_programs *out)
{
    build b = {.r = r, .o = o};
    tn_graph *g = NULL;
    void *mem;
    *out = (tn_programs){.n = o->shape.mesh.pp, .mine = stage_rank(&b), .result_of = -1};
    TN_TRY(tn_alloc((size_t)out->n * sizeof(tn_program *), &mem));
    out->of = mem;
    tn_status st = begin(&b);
    if (!st) st = passes(&b, &g);
    out->stages = b.stages;
    if (!st) out->cost = tn_cost_of(g);
    if (!st && b.stages) {
        st = cut_stages(&b, g, out);
    } else if (!st) {
        int64_t n = g->n_nodes;
        st = make_program(&b, g, NULL, n, o->rank, 0, out);
        g = NULL;
    }
    tn_graph_destroy(g);
    tn_groups_destroy(b.groups);
    if (st) tn_build_destroy(out);
    return st;
}

void tn_build_destroy(tn_programs *p)
{
    for (int i = 0; i < p->n && p->of; i++) tn_program_destroy(p->of[i]);
    tn_free(p->of);
    tn_stage_plan_destroy(p->stages);
    *p = (tn_programs){0};
}

int32_t tn_build_find(const tn_graph *g, tn_op_id op, int out)
{
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == op) return g->nodes[i].out0 + out;
    return -1;
}
