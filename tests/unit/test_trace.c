/* From a recipe's model to the typed graph: parameters, names, units, types, scopes, initialisers.
 */
#include "tests/traced.h"

#include <glob.h>

static bool is_param(const tn_node *n)
{
    return n->op == TN_OP_state && !strcmp(tn_node_attr_text(n, "kind"), "param");
}

static int64_t count_parameters(const tn_graph *g)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (is_param(&g->nodes[i])) n += tn_value_elements(&g->values[g->nodes[i].out0]);
    return n;
}

static void check_layout(const tn_value *v, const char *want)
{
    char text[128];
    tn_layout_print(&v->layout, text, sizeof text);
    TN_CHECK_TEXT(text, want);
}

/* ------------------------------------------------------------ whole models */

static void test_flavours(void)
{
    /* 405B, 70B, 8B and 1B as published; the others from the formula */
    static const struct {
        const char *flavour;
        int64_t parameters;
    } cases[] = {{"1B", 1235814400},
                 {"3B", 3212749824},
                 {"8B", 8030261248},
                 {"70B", 70553706496},
                 {"405B", 405853388800},
                 {"debug", 2LL * 2048 * 256 + 6 * (4 * 256 * 256 + 3 * 256 * 768 + 2 * 256) + 256}};
    for (int i = 0; i < TN_COUNT(cases); i++)
        for (int sp = 0; sp < 2; sp++)
            for (int kind = 0; kind < 2; kind++) {
                char text[256];
                fixture f = {0};
                tn_trace_options o = options_of((tn_trace_kind)kind, sp != 0);
                o.compute = TN_BF16;
                snprintf(
                    text, sizeof text,
                    "return require('titan').recipe { model = require('models.llama3')['%s'] }",
                    cases[i].flavour);
                if (TN_CHECK_OK(trace_with(text, &o, &f))) {
                    TN_CHECK_MSG(count_parameters(f.t.g) == cases[i].parameters,
                                 "%s: %lld parameters", cases[i].flavour,
                                 (long long)count_parameters(f.t.g));
                    TN_CHECK((f.t.loss >= 0) == (kind == TN_TRACE_TRAIN) &&
                             (f.t.logits >= 0) == (kind == TN_TRACE_LOGITS));
                }
                fini(&f);
            }
}

/* Parameters come in the order in which their modules were made, whatever the order of assignment.
 */
static void test_names(void)
{
    static const char *const names[] = {"tok_embeddings.weight",
                                        "layers.0.attention_norm.weight",
                                        "layers.0.ffn_norm.weight",
                                        "layers.0.attention.wq.weight",
                                        "layers.0.attention.wk.weight",
                                        "layers.0.attention.wv.weight",
                                        "layers.0.attention.wo.weight",
                                        "layers.0.feed_forward.w1.weight",
                                        "layers.0.feed_forward.w3.weight",
                                        "layers.0.feed_forward.w2.weight",
                                        "norm.weight",
                                        "output.weight"};
    fixture f = {0};
    int n = 0;
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    if (!TN_CHECK_OK(trace_with("return require('titan').recipe { model = "
                                "require('models.llama3').debug { n_layers = 1 } }",
                                &o, &f)))
        return;
    for (int64_t i = 0; i < f.t.g->n_nodes; i++)
        if (is_param(&f.t.g->nodes[i]) && n < TN_COUNT(names))
            TN_CHECK_TEXT(tn_node_attr_text(&f.t.g->nodes[i], "name"), names[n++]);
    TN_CHECK(n == TN_COUNT(names));
    fini(&f);
}

static void test_tied(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, false);
    if (TN_CHECK_OK(trace_with(
            "return require('titan').recipe { model = require('models.llama3').debug { n_layers "
            "= 1, tied = true } }",
            &o, &f))) {
        TN_CHECK(!find_state(f.t.g, "output.weight"));
        const tn_node *w = find_state(f.t.g, "tok_embeddings.weight");
        int uses = 0;
        for (int64_t i = 0; w && i < f.t.g->n_operands; i++) uses += f.t.g->operands[i] == w->out0;
        TN_CHECK(uses == 2);
    }
    fini(&f);
}

static void test_values(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    if (!TN_CHECK_OK(trace_with(gqa, &o, &f))) return;
    const tn_graph *g = f.t.g;
    const tn_value *wq = &g->values[find_state(g, "layers.2.attention.wq.weight")->out0];
    const tn_value *wk = &g->values[find_state(g, "layers.2.attention.wk.weight")->out0];
    const tn_value *wo = &g->values[find_state(g, "layers.2.attention.wo.weight")->out0];
    TN_CHECK(wq->dim[0].extent == 96 && wq->dim[0].units == 6 && wq->dim[1].extent == 96 &&
             wq->dim[1].units == 0);
    TN_CHECK(wk->dim[0].extent == 32 && wk->dim[0].units == 6 && wk->dtype == TN_F32 && wk->grad);
    TN_CHECK(wo->dim[0].units == 0 && wo->dim[1].extent == 96 && wo->dim[1].units == 6);
    check_layout(wq, "{dp:R cp:R tp:0}");
    check_layout(wo, "{dp:R cp:R tp:1}");
    check_layout(&g->values[find_state(g, "norm.weight")->out0], "{dp:R cp:R tp:R}");
    const tn_node *table = find_state(g, "rope.cache");
    if (TN_CHECK(table)) {
        const tn_value *v = &g->values[table->out0];
        TN_CHECK(v->dim[0].extent == 32 && v->dim[1].extent == 16 && v->dtype == TN_F32 &&
                 !v->grad);
        TN_CHECK(tn_node_attr_num(table, "theta") == 1e4 && tn_node_attr_num(table, "factor") == 8);
        TN_CHECK(tn_node_attr_num(table, "low") == 1 && tn_node_attr_num(table, "high") == 4);
        TN_CHECK(tn_node_attr_int(table, "original") == 8192);
        TN_CHECK_TEXT(tn_node_attr_text(table, "init"), "rope");
    }
    TN_CHECK(count_op(g, TN_OP_attention) == 4 && count_op(g, TN_OP_rope) == 8 &&
             count_op(g, TN_OP_linear) == 4 * 4 + 1);
    TN_CHECK(g->rows == 4 && g->seq == 32 && g->n_microbatches == 2 && g->n_chunks == 2);
    fini(&f);
}

static void test_scopes(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, false);
    if (!TN_CHECK_OK(trace_with(gqa, &o, &f))) return;
    const tn_graph *g = f.t.g;
    int inputs = 0, in_chunk = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        bool head = n->op == TN_OP_state || n->op == TN_OP_input || n->op == TN_OP_count_labels ||
                    n->op == TN_OP_inv_count;
        if (head) TN_CHECK(n->scope == TN_SCOPE_HEAD);
        if (!strncmp(n->path, "layers.", 7) && n->op != TN_OP_state)
            TN_CHECK(n->scope == TN_SCOPE_MICROBATCH);
        if (n->op == TN_OP_input) {
            inputs++;
            TN_CHECK(g->values[n->out0].dim[0].extent == 8 &&
                     g->values[n->out0].dim[1].extent == 32);
        }
        in_chunk += n->scope == TN_SCOPE_CHUNK;
        TN_CHECK(n->phase == TN_PHASE_F && n->stage == 0);
    }
    TN_CHECK(inputs == 4);
    TN_CHECK(in_chunk == 5); /* two views, the head, cross entropy, its sum */
    const tn_value *loss = &g->values[f.t.loss];
    TN_CHECK(loss->dtype == TN_EXACT && loss->carried &&
             g->nodes[loss->node].scope == TN_SCOPE_CHUNK);
    check_layout(loss, "{dp:P cp:P tp:I}");
    TN_CHECK_TEXT(g->nodes[loss->node].path, "loss");
    fini(&f);
}

static void test_logits(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_LOGITS, true);
    o.compute = TN_BF16;
    if (!TN_CHECK_OK(trace_with(gqa, &o, &f))) return;
    const tn_value *v = &f.t.g->values[f.t.logits];
    TN_CHECK(v->rank == 3 && v->dim[0].extent == 4 && v->dim[1].extent == 32 &&
             v->dim[2].extent == 257 && v->dtype == TN_F32);
    TN_CHECK(!count_op(f.t.g, TN_OP_cross_entropy) && count_op(f.t.g, TN_OP_input) == 3);
    fini(&f);
}

/* Each layout that the tables declare, after the places where data moves (types.md 3.2, 3.3). */
static void test_boundaries(void)
{
    static const struct {
        const char *path;
        tn_op_id op;
        const char *plain,
            *sequence; /* output 0 of the first node of that path and op, without and with sp */
    } cases[] = {
        {"tok_embeddings", TN_OP_embedding, "{dp:0 cp:1 tp:P}", "{dp:0 cp:1 tp:P}"},
        {"tok_embeddings", TN_OP_redistribute, "{dp:0 cp:1 tp:I}", "{dp:0 cp:1.0 tp:1.1}"},
        {"layers.0.attention_norm", TN_OP_rmsnorm, "{dp:0 cp:1 tp:I}", "{dp:0 cp:1.0 tp:1.1}"},
        {"layers.0.attention", TN_OP_redistribute, "{dp:0 cp:1 tp:R}", "{dp:0 cp:1 tp:R}"},
        {"layers.0.attention", TN_OP_linear, "{dp:0 cp:1 tp:2}", "{dp:0 cp:1 tp:2}"},
        {"layers.0.attention", TN_OP_heads, "{dp:0 cp:1 tp:2}", "{dp:0 cp:1 tp:2}"},
        {"layers.0.attention.inner", TN_OP_redistribute, "{dp:0 cp:R tp:2}", "{dp:0 cp:R tp:2}"},
        {"layers.0.attention.inner", TN_OP_attention, "{dp:0 cp:1 tp:2}", "{dp:0 cp:1 tp:2}"},
        {"layers.0.attention.wo", TN_OP_linear, "{dp:0 cp:1 tp:P}", "{dp:0 cp:1 tp:P}"},
        {"layers.0", TN_OP_add, "{dp:0 cp:1 tp:I}", "{dp:0 cp:1.0 tp:1.1}"},
        {"layers.0.feed_forward.w2", TN_OP_redistribute, "{dp:0 cp:1 tp:I}",
         "{dp:0 cp:1.0 tp:1.1}"},
        {"norm", TN_OP_redistribute, "{dp:0 cp:1 tp:R}", "{dp:0 cp:1 tp:R}"},
        {"output", TN_OP_linear, "{dp:0 cp:1 tp:2}", "{dp:0 cp:1 tp:2}"}};
    for (int sp = 0; sp < 2; sp++) {
        fixture f = {0};
        tn_trace_options o = options_of(TN_TRACE_TRAIN, sp != 0);
        if (!TN_CHECK_OK(trace_with(gqa, &o, &f))) return;
        for (int i = 0; i < TN_COUNT(cases); i++) {
            const tn_node *found = NULL;
            for (int64_t k = 0; k < f.t.g->n_nodes && !found; k++)
                if (f.t.g->nodes[k].op == cases[i].op &&
                    !strcmp(f.t.g->nodes[k].path, cases[i].path))
                    found = &f.t.g->nodes[k];
            if (TN_CHECK_MSG(found, "no %s at %s", tn_op_name(cases[i].op), cases[i].path))
                check_layout(&f.t.g->values[found->out0], sp ? cases[i].sequence : cases[i].plain);
        }
        fini(&f);
    }
}

static void test_init(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    if (TN_CHECK_OK(trace_with(gqa, &o, &f))) {
        const tn_graph *g = f.t.g;
        check_init(g, "tok_embeddings.weight", "normal", 1, 0);
        check_init(g, "layers.3.attention.wq.weight", "trunc_normal", 0.02, 2);
        check_init(g, "layers.0.attention.wo.weight", "trunc_normal", 0.02 / sqrt(2.0), 2);
        check_init(g, "layers.3.attention.wo.weight", "trunc_normal", 0.02 / sqrt(8.0), 2);
        check_init(g, "layers.2.feed_forward.w1.weight", "trunc_normal", 0.02, 2);
        check_init(g, "layers.2.feed_forward.w2.weight", "trunc_normal", 0.02 / sqrt(6.0), 2);
        check_init(g, "layers.2.feed_forward.w3.weight", "trunc_normal", 0.02 / sqrt(6.0), 2);
        check_init(g, "layers.2.ffn_norm.weight", "ones", 0, 0);
        check_init(g, "output.weight", "trunc_normal", pow(96, -0.5), 3 * pow(96, -0.5));
    }
    fini(&f);
}

static tn_status trace_file(const char *path, bool sp, fixture *f)
{
    tn_recipe_options ro = {.path = path, .host = {.share = "."}};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, sp);
    TN_TRY(tn_recipe_open(&ro, &f->r));
    return tn_trace_model(f->r, &o, &f->t);
}

/* Models in Lua files of their own. */
static void test_others(void)
{
    for (int sp = 0; sp < 2; sp++) {
        fixture f = {0};
        if (TN_CHECK_OK(trace_file("tests/models/train_parallel.lua", sp, &f))) {
            TN_CHECK(count_parameters(f.t.g) ==
                     256 * 64 + 3 * (4 * 64 * 64 + 2 * 64 * 192 + 64) + 64);
            TN_CHECK(!find_state(f.t.g, "output.weight") && count_op(f.t.g, TN_OP_add) == 6);
        }
        fini(&f);
        if (TN_CHECK_OK(trace_file("tests/models/train_window.lua", sp, &f)))
            for (int64_t i = 0; i < f.t.g->n_nodes; i++)
                if (f.t.g->nodes[i].op == TN_OP_attention)
                    TN_CHECK(tn_node_attr_int(&f.t.g->nodes[i], "window") == 16);
        fini(&f);
    }
}

/* Every recipe that is shipped, and those of the benchmark. */
static void test_recipes(void)
{
    static const char *const patterns[] = {"recipes/*.lua", "tests/bench/*.lua"};
    for (int i = 0; i < TN_COUNT(patterns); i++) {
        glob_t g = {0};
        TN_CHECK(glob(patterns[i], 0, NULL, &g) == 0 && g.gl_pathc >= 2);
        for (size_t k = 0; k < g.gl_pathc; k++) {
            fixture f = {0};
            TN_CHECK_OK(trace_file(g.gl_pathv[k], true, &f));
            fini(&f);
        }
        globfree(&g);
    }
}

static void test_limits(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, false);
    o.seq = 64;
    o.chunk_seq = 48;
    TN_CHECK_FAILS(trace_with(gqa, &o, &f), TN_FAILED,
                   "a loss chunk of 2 x 48 does not divide 4 x 64");
    fini(&f);
    o.chunk_seq = 64;
    TN_CHECK_FAILS(
        trace_with(
            "return require('titan').recipe { model = require('models.llama3').debug { n_layers "
            "= 1, max_seq_len = 63 } }",
            &o, &f),
        TN_BAD_INPUT, "training.seq_len: 64 is more than the model's max_seq_len 63");
    fini(&f);
}

int main(void)
{
    test_flavours();
    test_names();
    test_tied();
    test_values();
    test_scopes();
    test_logits();
    test_boundaries();
    test_init();
    test_others();
    test_recipes();
    test_limits();
    return tn_test_done("trace");
}
