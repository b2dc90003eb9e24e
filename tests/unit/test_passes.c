/* test_passes.c - what each pass must keep and may change, seen from outside: gradients and their
 * order, carried sums, fusing, storage, recompute. */
#include "graph/passes.h"

#include "graph/fuse.h"
#include "graph/recompute.h"
#include "graph/rewrite.h"
#include "graph/text.h"
#include "tests/programs.h"

#include <stdlib.h>

static const char *const bf16 = "training.mixed_precision_param=bfloat16";

static tn_graph *behind(const char *recipe, const char *pass, const char *a, const char *b)
{
    wanted w = {.recipe = recipe, .until = pass, .overrides = {a, a ? b : NULL}};
    tn_graph *g = NULL;
    TN_CHECK_OK(build_graph(&w, &g));
    return g;
}

static int64_t count(const tn_graph *g, tn_op_id op)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].op == op;
    return n;
}

static double flops(const tn_graph *g)
{
    double sum = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_op *op = tn_op_get((tn_op_id)g->nodes[i].op);
        if (op->flops) sum += op->flops(g, &g->nodes[i]);
    }
    return sum;
}

/* Work whose results nobody reads, and which is no result of the step. */
static int64_t dead_nodes(const tn_graph *g)
{
    tn_uses uses;
    int64_t dead = 0;
    if (!TN_CHECK_OK(tn_uses_build(g, &uses))) return -1;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        bool used = !n->n_in || n->scope == TN_SCOPE_TAIL || n->op == TN_OP_loss_sum;
        for (int o = 0; o < n->n_out; o++) used |= tn_uses_count(&uses, n->out0 + o) > 0;
        dead += !used;
    }
    tn_uses_fini(&uses);
    return dead;
}

static bool in_block(const char *path, const char *block, size_t n)
{
    return n && tn_recompute_block(path) == n && !strncmp(path, block, n);
}

/* ------------------------------------------------------------ differentiate */

#define HEAD                                                                                       \
    "graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=2\nsums canonical tp=8 seq=4 "     \
    "rows=4\n"                                                                                     \
    "step rows=2 seq=8 microbatches=1 chunks=1\n"
#define ALL "{dp:R cp:R tp:R}"
#define PARAM(name, dims)                                                                          \
    "%" name " : f32[" dims "] " ALL " = state() name=\"" name "\" @m F head s0\n"
#define INPUT "%x : f32[2,8,4] " ALL " = state() name=\"x\" kind=\"buffer\" @m F head s0\n"
#define LOSS(of) "%loss : exact[] " ALL " carried=1 = loss_sum(%" of ") @l F microbatch s0\n"

#define I "{dp:I cp:I tp:I}"
#define PARAM_I(name, dims)                                                                        \
    "%" name " : f32[" dims "] " I " = state() name=\"" name "\" @m F head s0\n"
#define INPUT_I "%x : f32[2,8,4] " I " = state() name=\"x\" kind=\"buffer\" @m F head s0\n"
#define LOSS_I(of) "%loss : exact[] " I " carried=1 = loss_sum(%" of ") @l F microbatch s0\n"

static tn_status differentiated(const char *text, tn_graph **out)
{
    tn_graph *g;
    TN_TRY(tn_graph_parse("t", text, strlen(text), &g));
    tn_status st = tn_pass_differentiate(g, g->nodes[g->n_nodes - 1].out0, out);
    tn_graph_destroy(g);
    return st;
}

/* A weight that is used twice has two accumulators, reduced first, added in the order of its uses;
 * so has a value with two users. */
static void gradients(void)
{
    static const char text[] = HEAD PARAM_I("w", "4,4") INPUT_I
        "%a : f32[2,8,4] " I " = linear(%x, %w) @first F microbatch s0\n"
        "%b : f32[2,8,4] " I " = linear(%a, %w) @second F microbatch s0\n"
        "%c : f32[2,8,4] " I " = mul(%a, %b) @m F microbatch s0\n" LOSS_I("c");
    tn_graph *g;
    if (!TN_CHECK_OK(differentiated(text, &g))) return;
    int64_t reduces[2], n_reduces = 0, last_add = -1;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (n->op == TN_OP_reduce && n_reduces < 2) reduces[n_reduces++] = i;
        if (n->op == TN_OP_add && n->scope == TN_SCOPE_TAIL) last_add = i;
    }
    TN_CHECK(count(g, TN_OP_reduce) == 2 && count(g, TN_OP_linear_bwd_w) == 2 &&
             count(g, TN_OP_linear_bwd_x) == 1 && count(g, TN_OP_mul) == 3);
    if (TN_CHECK(n_reduces == 2 && last_add > reduces[1])) {
        const tn_node *first = &g->nodes[g->values[tn_node_in(g, &g->nodes[reduces[0]], 0)].node];
        const tn_node *second = &g->nodes[g->values[tn_node_in(g, &g->nodes[reduces[1]], 0)].node];
        TN_CHECK_TEXT(first->path, "first");
        TN_CHECK_TEXT(second->path, "second");
        TN_CHECK_TEXT(tn_node_attr_text(&g->nodes[reduces[0]], "param"), "w");
        TN_CHECK(tn_node_in(g, &g->nodes[last_add], 0) == g->nodes[reduces[0]].out0 &&
                 tn_node_in(g, &g->nodes[last_add], 1) == g->nodes[reduces[1]].out0);
    }
    for (int64_t i = 0; i < g->n_nodes;
         i++) { /* d a = (what came by b) + (what came by c), b first */
        const tn_node *n = &g->nodes[i];
        if (n->op != TN_OP_add || n->scope != TN_SCOPE_MICROBATCH) continue;
        TN_CHECK(g->nodes[g->values[tn_node_in(g, n, 0)].node].op == TN_OP_linear_bwd_x &&
                 g->nodes[g->values[tn_node_in(g, n, 1)].node].op == TN_OP_mul);
        TN_CHECK_TEXT(n->path, "first");
    }
    tn_graph_destroy(g);
}

static void gradients_refused(void)
{
    tn_graph *g = NULL;
    TN_CHECK_FAILS(
        differentiated(HEAD PARAM("w", "4,4") PARAM("v", "4,4") INPUT
                       "%a : f32[2,8,4] " ALL " = linear(%x, %w) @f F microbatch s0\n" LOSS("a"),
                       &g),
        TN_BAD_INPUT, "axis dp_replicate: the loss is R; it must be I or P on every axis");
    TN_CHECK_FAILS(differentiated(HEAD PARAM_I("w", "4,4") PARAM_I("v", "4,4") INPUT_I
                                  "%a : f32[2,8,4] " I
                                  " = linear(%x, %w) @f F microbatch s0\n" LOSS_I("a"),
                                  &g),
                   TN_BAD_INPUT, "m: parameter 'v' is not used by the loss; use it or remove it");
    TN_CHECK_FAILS(differentiated(HEAD PARAM_I("w", "4") INPUT_I
                                  "%r : f32[2,8,4] " I ", %s : f32[2,8] " I
                                  " = rmsnorm(%x, %w) @f F microbatch s0\n"
                                  "%t : f32[2,8,4] " I
                                  " = unary_bwd(%r, %x) @g F microbatch s0\n" LOSS_I("t"),
                                  &g),
                   TN_BAD_INPUT, "g: unary_bwd has no gradient; use it on values that need none");
    TN_CHECK_OK(differentiated(HEAD PARAM_I("w", "4,4") INPUT_I
                               "%a : f32[2,8,4] " I
                               " = linear(%x, %w) @f F microbatch s0\n" LOSS_I("a"),
                               &g));
    TN_CHECK(count(g, TN_OP_reduce) == 1 && count(g, TN_OP_linear_bwd_x) == 0);
    tn_graph_destroy(g);
}

/* ------------------------------------------------------------ lower */

/* The levels that a carried sum keeps in memory, by running its program piece by piece. */
static int levels_of(const tn_graph *g, const tn_node *n)
{
    tn_arena arena = {0};
    const tn_order_tokens *t;
    tn_order_run run;
    int most = 1;
    int64_t pieces = g->n_microbatches * (n->scope == TN_SCOPE_CHUNK ? g->n_chunks : 1);
    if (!TN_CHECK_OK(tn_lower_tokens(g, &arena, &t))) return 0;
    int64_t step = tn_order_tokens_leaves(t) / pieces;
    for (int64_t i = 0; i < pieces; i++) {
        if (!TN_CHECK_OK(tn_order_tokens_run(t, &arena, i * step, (i + 1) * step, &run))) break;
        if (run.depth_out > most) most = run.depth_out;
    }
    tn_arena_fini(&arena);
    return most;
}

static void carried_sums(void)
{
    static const char *const batches[] = {"training.global_batch_size=6",
                                          "training.global_batch_size=18",
                                          "training.global_batch_size=96"};
    for (int i = 0; i < 3; i++) {
        tn_graph *g = behind(tiny_recipe, "lower", batches[i], "debug.reduce_grid={8,8,16}");
        int64_t n = 0;
        if (!g) continue;
        for (int64_t k = 0; k < g->n_nodes; k++) {
            const tn_node *q = &g->nodes[k];
            const tn_value *v = &g->values[q->out0];
            bool sums = q->op == TN_OP_linear_bwd_w || q->op == TN_OP_rmsnorm_bwd_w ||
                        q->op == TN_OP_embedding_bwd;
            TN_CHECK((q->order == TN_ORDER_OVER_TOKENS) == sums);
            TN_CHECK(v->carried == (sums || q->op == TN_OP_loss_sum));
            if (sums)
                TN_CHECK_MSG(v->levels == levels_of(g, q), "%s: %d levels, counted %d", q->path,
                             v->levels, levels_of(g, q));
            bool product =
                q->op == TN_OP_linear || q->op == TN_OP_linear_add || q->op == TN_OP_linear_bwd_x;
            TN_CHECK((q->order == TN_ORDER_OVER_PARAM) == product &&
                     (!product || q->parts == 1 || q->parts == 8));
            TN_CHECK(k == 0 || g->nodes[k - 1].scope == TN_SCOPE_CHUNK ||
                     g->nodes[k - 1].scope <= q->scope);
            n += sums;
        }
        TN_CHECK(n == 3 * 9 + 3 && count(g, TN_OP_cross_entropy) == 0 &&
                 count(g, TN_OP_loss_parts) == 1 && count(g, TN_OP_loss_merge) == 1);
        tn_graph_destroy(g);
    }
}

static void lower_refuses(void)
{
    static const char text[] =
        HEAD "%w : f32[4] " ALL " = state() name=\"w\" @m F head s0\n"
             "%x : f32[2,8,3,4] " ALL " = state() name=\"x\" kind=\"buffer\" @m F head s0\n"
             "%r : f32[2,8,3] " ALL " = state() name=\"r\" kind=\"buffer\" @m F head s0\n"
             "%g : f32[4] {dp:R cp:R tp:R} = rmsnorm_bwd_w(%x, %x, %r) @m.q_norm W microbatch s0\n";
    static const char cut[] =
        HEAD "%x : f32[1,3,4] " ALL " = state() name=\"x\" kind=\"buffer\" @m F head s0\n"
             "%g : f32[4,4] " ALL " = linear_bwd_w(%x, %x) @m.head W chunk s0\n";
    tn_graph *g, *out = NULL;
    if (TN_CHECK_OK(tn_graph_parse("t", text, sizeof text - 1, &g))) {
        TN_CHECK_FAILS(
            tn_pass_lower(g, &out), TN_BAD_INPUT,
            "m.q_norm: rmsnorm_bwd_w: a gain that is shared by heads has no token order yet");
        tn_graph_destroy(g);
    }
    if (TN_CHECK_OK(tn_graph_parse("t", cut, sizeof cut - 1, &g))) {
        TN_CHECK_FAILS(tn_pass_lower(g, &out), TN_BAD_INPUT,
                       "m.head: linear_bwd_w: a chunk of 3 positions cuts a position part of the "
                       "reduce grid (seq = 4)");
        tn_graph_destroy(g);
    }
}

/* ------------------------------------------------------------ fuse */

static bool pointwise(uint16_t op)
{
    return op == TN_OP_add || op == TN_OP_mul || op == TN_OP_scale || op == TN_OP_unary ||
           op == TN_OP_unary_bwd;
}

/* Pointwise ops of a graph, those in fused programs counted singly; *again: forward functions that
 * backward computes again. */
static int64_t pointwise_ops(const tn_graph *g, int64_t *again)
{
    int64_t n = 0;
    *again = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *q = &g->nodes[i];
        tn_fuse_prog p;
        n += pointwise(q->op) || q->op == TN_OP_linear_add ||
             (q->op == TN_OP_rmsnorm_bwd && q->n_in == 5);
        if (q->op != TN_OP_fused || !TN_CHECK(tn_fuse_parse(tn_node_attr_text(q, "prog"), &p)))
            continue;
        n += p.n;
        for (int k = 0; k < p.n; k++)
            *again += q->phase != TN_PHASE_F && p.ins[k].op == TN_OP_unary;
    }
    return n;
}

static void fusing(void)
{
    static const char *const recipes[] = {tiny_recipe, "recipes/demo.lua",
                                          "recipes/llama3_debug.lua"};
    for (int i = 0; i < 6; i++) {
        tn_graph *plain = behind(recipes[i % 3], "lower", i < 3 ? NULL : bf16, NULL), *fused;
        int64_t again, none;
        if (!plain || !TN_CHECK_OK(tn_pass_fuse(plain, &fused))) return;
        for (int op = 0; op < TN_N_OPS; op++) {
            bool changes = pointwise((uint16_t)op) || op == TN_OP_fused || op == TN_OP_linear ||
                           op == TN_OP_linear_add || op == TN_OP_redistribute;
            if (!changes)
                TN_CHECK_MSG(count(plain, (tn_op_id)op) == count(fused, (tn_op_id)op), "%s",
                             tn_op_name((tn_op_id)op));
        }
        TN_CHECK(count(plain, TN_OP_linear) ==
                     count(fused, TN_OP_linear) + count(fused, TN_OP_linear_add) &&
                 count(fused, TN_OP_linear_add) > 0);
        int64_t before = pointwise_ops(plain, &none), after = pointwise_ops(fused, &again);
        TN_CHECK_MSG(after - again == before && none == 0 && again > 0,
                     "%lld pointwise ops, then %lld, %lld of them again", (long long)before,
                     (long long)after, (long long)again);
        TN_CHECK(flops(plain) == flops(fused) && dead_nodes(plain) == 0 && dead_nodes(fused) == 0);
        tn_program *a, *b;
        if (!TN_CHECK_OK(tn_program_build(plain, NULL, 0, 0, NULL, &a)) ||
            !TN_CHECK_OK(tn_program_build(fused, NULL, 0, 0, NULL, &b)))
            return;
        TN_CHECK_OK(tn_program_verify(a));
        TN_CHECK_OK(tn_program_verify(b));
        TN_CHECK(b->pack.bound <= a->pack.bound && b->n_entries < a->n_entries);
        TN_CHECK(a->region_bytes[TN_REGION_PROCESS] == b->region_bytes[TN_REGION_PROCESS]);
        tn_program_destroy(a);
        tn_program_destroy(b);
    }
}

/* ------------------------------------------------------------ storage */

static void storing(void)
{
    tn_graph *before = behind(tiny_recipe, "fuse", bf16, NULL),
             *g = behind(tiny_recipe, "storage", bf16, NULL);
    tn_uses uses;
    int64_t params = 0, moments = 0;
    if (!before || !g || !TN_CHECK_OK(tn_uses_build(g, &uses))) return;
    for (int64_t i = 0; i < before->n_nodes; i++)
        params += before->nodes[i].op == TN_OP_state &&
                  !strcmp(tn_node_attr_text(&before->nodes[i], "kind"), "param");
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (n->op == TN_OP_state) {
            TN_CHECK(g->values[n->out0].dtype == TN_F32);
            moments += !strcmp(tn_node_attr_text(n, "kind"), "moment");
        }
        if (n->op != TN_OP_unshard) continue;
        /* a compute copy serves one block in one direction */
        size_t block = tn_recompute_block(n->path);
        int forward = 0, backward = 0;
        TN_CHECK(g->values[n->out0].dtype == TN_BF16 && tn_uses_count(&uses, n->out0) > 0);
        for (int64_t u = uses.first[n->out0]; u < uses.first[n->out0 + 1]; u++) {
            const tn_node *user = &g->nodes[uses.users[u]];
            forward += user->phase == TN_PHASE_F || user->scope == TN_SCOPE_CHUNK;
            backward += user->phase != TN_PHASE_F && user->scope != TN_SCOPE_CHUNK;
            if (block) TN_CHECK(in_block(user->path, n->path, block));
        }
        TN_CHECK_MSG(!forward || !backward, "%s: a compute copy serves forward and backward",
                     n->path);
    }
    TN_CHECK(moments == 2 * params && count(g, TN_OP_adamw) == params &&
             count(g, TN_OP_norm_sum) == params && count(g, TN_OP_clip) == 1);
    TN_CHECK(count(g, TN_OP_reduce) == count(before, TN_OP_reduce) && flops(g) == flops(before));
    tn_uses_fini(&uses);
    tn_graph_destroy(before);
    tn_graph_destroy(g);
}

/* Once a step: one compute copy per parameter, made before the microbatches; recompute gathers
 * nothing again. */
static void storing_once(void)
{
    static const char *const batches[] = {"training.global_batch_size=6",
                                          "training.global_batch_size=18"};
    for (int i = 0; i < 4; i++) {
        wanted w = {.recipe = tiny_recipe,
                    .until = "recompute",
                    .overrides = {"parallelism.fsdp_reshard_after_forward=never", bf16,
                                  batches[i % 2],
                                  i < 2 ? "activation_checkpoint.mode=full"
                                        : "activation_checkpoint.mode=none"}};
        tn_graph *g;
        tn_program *p;
        int64_t params = 0;
        if (!TN_CHECK_OK(build_graph(&w, &g))) return;
        for (int64_t k = 0; k < g->n_nodes; k++) {
            const tn_node *n = &g->nodes[k];
            params += n->op == TN_OP_state && !strcmp(tn_node_attr_text(n, "kind"), "param");
            if (n->op == TN_OP_unshard)
                TN_CHECK(n->scope == (i % 2 ? TN_SCOPE_HEAD : TN_SCOPE_MICROBATCH));
        }
        TN_CHECK(params > 0 && count(g, TN_OP_unshard) == params && dead_nodes(g) == 0);
        if (!TN_CHECK_OK(tn_program_build(g, NULL, 0, 0, NULL, &p))) return;
        TN_CHECK_OK(tn_program_verify(p));
        tn_program_destroy(p);
    }
}

/* Between forward and backward every two ranks of four keep a parameter: backward gathers from
 * there, and so do clones. */
static void storing_pieces(void)
{
    static const char *const modes[] = {"activation_checkpoint.mode=none",
                                        "activation_checkpoint.mode=full",
                                        "activation_checkpoint.mode=selective"};
    static const char *const policies[] = {"parallelism.fsdp_reshard_after_forward=2",
                                           "parallelism.fsdp_reshard_after_forward=1",
                                           "parallelism.fsdp_reshard_after_forward=4"};
    for (int i = 0; i < 9; i++) {
        wanted w = {
            .recipe = tiny_recipe,
            .world = 4,
            .until = "recompute",
            .overrides = {policies[i / 3], modes[i % 3], bf16, "training.global_batch_size=24"}};
        tn_graph *g;
        int64_t pieces = 0, from_piece = 0, from_master = 0;
        if (!TN_CHECK_OK(build_graph(&w, &g))) return;
        for (int64_t k = 0; k < g->n_nodes; k++) {
            const tn_node *n = &g->nodes[k];
            if (n->op == TN_OP_redistribute && n->phase == TN_PHASE_COMM &&
                n->scope == TN_SCOPE_MICROBATCH) {
                const tn_layout *l = &g->values[n->out0].layout;
                TN_CHECK(l->among[TN_AXIS_DP_SHARD] == 2 && l->type[TN_AXIS_DP_SHARD] == TN_TYPE_S);
                TN_CHECK(g->nodes[g->values[tn_node_in(g, n, 0)].node].op == TN_OP_unshard);
                TN_CHECK(g->values[n->out0].dtype == TN_BF16);
                pieces++;
            }
            if (n->op != TN_OP_unshard) continue;
            bool master = g->nodes[g->values[tn_node_in(g, n, 0)].node].op == TN_OP_state;
            from_master += master;
            from_piece += !master;
        }
        /* 3 blocks of 9 and the last norm have a backward that reads them */
        TN_CHECK_MSG(pieces == (i / 3 ? 0 : 28) && from_piece == pieces &&
                         from_master == (i / 3 == 2 ? 30 + 28 : 30),
                     "%s, %s: %d pieces, %d and %d gathers", policies[i / 3], modes[i % 3],
                     (int)pieces, (int)from_master, (int)from_piece);
        TN_CHECK(dead_nodes(g) == 0);
        tn_program *p;
        if (!TN_CHECK_OK(tn_program_build(g, NULL, 3, 0, NULL, &p))) return;
        TN_CHECK_OK(tn_program_verify(p));
        tn_program_destroy(p);
    }
}

/* ------------------------------------------------------------ recompute */

static int64_t forward_nodes(const tn_graph *g, const char *block, size_t n, tn_phase phase)
{
    int64_t found = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *q = &g->nodes[i];
        bool forward_op = q->op == TN_OP_linear || q->op == TN_OP_linear_add ||
                          q->op == TN_OP_rmsnorm || q->op == TN_OP_attention ||
                          (q->op == TN_OP_rope && !tn_node_attr_int(q, "inverse"));
        found += forward_op && q->phase == phase && in_block(q->path, block, n);
    }
    return found;
}

/* A block keeps what enters it: its backward reads nothing of its forward, and every clone is read.
 */
static void check_recompute(const tn_graph *before, const tn_graph *g)
{
    TN_CHECK(dead_nodes(before) == 0 && dead_nodes(g) == 0);
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        size_t block = tn_recompute_block(n->path);
        bool backward = n->phase == TN_PHASE_B || n->phase == TN_PHASE_W;
        if (!block || !backward || n->scope != TN_SCOPE_MICROBATCH) continue;
        for (int k = 0; k < n->n_in; k++) {
            int32_t v = tn_node_in(g, n, k);
            const tn_node *p = &g->nodes[g->values[v].node];
            bool own = in_block(p->path, n->path, block) && p->n_in;
            TN_CHECK_MSG(!own || p->phase != TN_PHASE_F, "%s: %s reads a value of its forward, %s",
                         n->path, tn_op_name((tn_op_id)n->op), p->path);
        }
    }
    /* what a compute copy serves lies in one direction: all of forward, or all behind it */
    tn_uses uses;
    if (!TN_CHECK_OK(tn_uses_build(g, &uses))) return;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (n->op != TN_OP_unshard || !tn_recompute_block(n->path)) continue;
        int forward = 0, backward = 0;
        for (int64_t u = uses.first[n->out0]; u < uses.first[n->out0 + 1]; u++) {
            forward += g->nodes[uses.users[u]].phase == TN_PHASE_F;
            backward += g->nodes[uses.users[u]].phase != TN_PHASE_F;
        }
        TN_CHECK_MSG(!forward || !backward, "%s: a compute copy lives from forward to backward",
                     n->path);
    }
    tn_uses_fini(&uses);
}

static void recomputing(void)
{
    static const char *const recipes[] = {tiny_recipe, "recipes/demo.lua"};
    for (int i = 0; i < 4; i++) {
        tn_pass_options full = {.recompute = TN_RECOMPUTE_FULL},
                        none = {.recompute = TN_RECOMPUTE_NONE};
        tn_graph *g = behind(recipes[i % 2], "storage", i < 2 ? NULL : bf16, NULL), *again, *same;
        tn_text a = {0}, b = {0};
        if (!g || !TN_CHECK_OK(tn_pass_recompute(g, &full, &again)) ||
            !TN_CHECK_OK(tn_pass_recompute(g, &none, &same)))
            return;
        TN_CHECK_OK(tn_graph_print(g, NULL, &a));
        TN_CHECK_OK(tn_graph_print(same, NULL, &b));
        TN_CHECK_TEXT(tn_text_str(&b), tn_text_str(&a));
        check_recompute(g, again);
        /* of each block, all but its last product (w2) is cloned once */
        int64_t blocks = 0;
        for (int64_t k = 0; k < again->n_nodes; k++) {
            const char *path = again->nodes[k].path;
            size_t n = tn_recompute_block(path);
            if (!n || (k && in_block(again->nodes[k - 1].path, path, n)) ||
                again->nodes[k].phase != TN_PHASE_F)
                continue;
            int64_t forward = forward_nodes(again, path, n, TN_PHASE_F),
                    clones = forward_nodes(again, path, n, TN_PHASE_B);
            TN_CHECK_MSG(clones == forward - 1, "%.*s: %lld forward nodes, %lld clones", (int)n,
                         path, (long long)forward, (long long)clones);
            blocks++;
        }
        TN_CHECK(blocks >= 3 && count(again, TN_OP_unshard) == count(g, TN_OP_unshard));
        tn_text_fini(&a);
        tn_text_fini(&b);
        tn_graph_destroy(g);
        tn_graph_destroy(again);
        tn_graph_destroy(same);
    }
    TN_CHECK(tn_recompute_block("layers.3.ffn_norm") == 8 && tn_recompute_block("layers.12") == 9 &&
             tn_recompute_block("a.b") == 0 && tn_recompute_block("") == 0 &&
             tn_recompute_block("7.x") == 1 && tn_recompute_block("l3.x.12.y.4") == 7);
}

/* `op`: no product and no attention runs again, the rest that backward reads does. */
static void keeping_products(void)
{
    static const tn_op_id kept[] = {TN_OP_linear, TN_OP_linear_add, TN_OP_attention};
    static const tn_op_id again_ops[] = {TN_OP_rmsnorm, TN_OP_rope, TN_OP_fused};
    static const char *const degrees[] = {NULL, "parallelism.tensor_parallel_degree=2"};
    for (int i = 0; i < 2; i++) {
        tn_pass_options op = {.recompute = TN_RECOMPUTE_OP},
                        full = {.recompute = TN_RECOMPUTE_FULL};
        wanted w = {
            .recipe = tiny_recipe, .world = i + 1, .until = "storage", .overrides = {degrees[i]}};
        tn_graph *g, *some, *all;
        if (!TN_CHECK_OK(build_graph(&w, &g)) || !TN_CHECK_OK(tn_pass_recompute(g, &op, &some)) ||
            !TN_CHECK_OK(tn_pass_recompute(g, &full, &all)))
            return;
        for (int k = 0; k < TN_COUNT(kept); k++)
            TN_CHECK(count(some, kept[k]) == count(g, kept[k]));
        for (int k = 0; k < TN_COUNT(again_ops); k++)
            TN_CHECK_MSG(count(some, again_ops[k]) == count(all, again_ops[k]) &&
                             count(some, again_ops[k]) > count(g, again_ops[k]),
                         "%s", tn_op_name(again_ops[k]));
        int64_t sums[3] = {0}; /* reductions over ranks in forward and in clones of it */
        const tn_graph *three[3] = {g, some, all};
        for (int k = 0; k < 3; k++)
            for (int64_t n = 0; n < three[k]->n_nodes; n++) {
                const tn_node *q = &three[k]->nodes[n];
                sums[k] += q->op == TN_OP_redistribute && !tn_node_attr_int(q, "grad") &&
                           three[k]->values[tn_node_in(three[k], q, 0)].layout.type[TN_AXIS_TP] ==
                               TN_TYPE_P;
            }
        TN_CHECK_MSG(sums[0] == sums[1] && (sums[2] > sums[0]) == (i == 1), "%lld %lld %lld",
                     (long long)sums[0], (long long)sums[1], (long long)sums[2]);
        TN_CHECK(dead_nodes(some) == 0 && flops(some) == flops(g) && flops(all) > flops(g));
        tn_graph_destroy(g);
        tn_graph_destroy(some);
        tn_graph_destroy(all);
    }
}

static void every_kth_layer(void)
{
    for (int64_t k = 1; k <= 4; k++) {
        tn_pass_options o = {.recompute = TN_RECOMPUTE_LAYERS, .recompute_every = k};
        tn_graph *g = behind(tiny_recipe, "storage", NULL, NULL), *again;
        if (!g || !TN_CHECK_OK(tn_pass_recompute(g, &o, &again))) return;
        for (int layer = 0; layer < 3; layer++) {
            char block[16];
            size_t n = (size_t)snprintf(block, sizeof block, "layers.%d", layer);
            int64_t forward = forward_nodes(again, block, n, TN_PHASE_F),
                    clones = forward_nodes(again, block, n, TN_PHASE_B);
            TN_CHECK_MSG(clones == ((layer + 1) % k ? 0 : forward - 1), "every %d, %s: %d clones",
                         (int)k, block, (int)clones);
        }
        TN_CHECK(dead_nodes(again) == 0);
        tn_graph_destroy(g);
        tn_graph_destroy(again);
    }
    TN_CHECK_TEXT(tn_recompute_text(TN_RECOMPUTE_FULL, 0).s, "full");
    TN_CHECK_TEXT(tn_recompute_text(TN_RECOMPUTE_OP, 0).s, "selective (op)");
    TN_CHECK_TEXT(tn_recompute_text(TN_RECOMPUTE_LAYERS, 1).s, "selective (every layer)");
    TN_CHECK_TEXT(tn_recompute_text(TN_RECOMPUTE_LAYERS, 2).s, "selective (every 2nd layer)");
    TN_CHECK_TEXT(tn_recompute_text(TN_RECOMPUTE_LAYERS, 12).s, "selective (every 12th layer)");
    TN_CHECK_TEXT(tn_recompute_text(TN_RECOMPUTE_LAYERS, 23).s, "selective (every 23rd layer)");
}

/* ------------------------------------------------------------ failing memory */

static tn_status all_passes(void *arg)
{
    static const char text[] = HEAD PARAM_I("w", "4,4") INPUT_I
        "%a : f32[2,8,4] " I " = linear(%x, %w) @layers.0 F microbatch s0\n"
        "%b : f32[2,8,4] " I " = unary(%a) @layers.0 F microbatch s0\n"
        "%c : f32[2,8,4] " I " = mul(%a, %b) @layers.0 F microbatch s0\n" LOSS_I("c");
    tn_graph *g, *next;
    tn_pass_options o = {.recompute = TN_RECOMPUTE_FULL};
    tn_program **p = arg;
    TN_TRY(differentiated(text, &g));
    for (int i = 0; i < 4; i++) {
        tn_status st = i == 0   ? tn_pass_lower(g, &next)
                       : i == 1 ? tn_pass_fuse(g, &next)
                       : i == 2 ? tn_pass_storage(g, &o, &next)
                                : tn_pass_recompute(g, &o, &next);
        tn_graph_destroy(g);
        TN_TRY(st);
        g = next;
    }
    TN_TRY(tn_program_build(g, NULL, 0, 0, NULL, p));
    tn_status st = tn_program_verify(*p);
    tn_program_destroy(*p);
    return st;
}

int main(void)
{
    tn_program *p = NULL;
    gradients();
    gradients_refused();
    carried_sums();
    lower_refuses();
    fusing();
    storing();
    storing_once();
    storing_pieces();
    recomputing();
    keeping_products();
    every_kth_layer();
    TN_CHECK(tn_test_each_alloc(all_passes, &p) > 50);
    return tn_test_done("passes");
}
