/* Model descriptions: flavours, overrides and their mistakes, Hugging Face names both ways,
 * config.json in and out.
 */
#include "lua/model.h"
#include "engine/base/json.h"
#include "graph/op.h"
#include "lua/trace.h"
#include "tests/scratch.h"
#include "tests/test.h"

#include <stdlib.h>

static tn_status open_with(const char *text, int n, const char *const *overrides, tn_recipe **out)
{
    tn_recipe_options o = {.text = text,
                           .name = "r.lua",
                           .overrides = overrides,
                           .n_overrides = n,
                           .host = {.share = "."}};
    return tn_recipe_open(&o, out);
}

static tn_status trace(tn_recipe *r, tn_graph **out)
{
    tn_trace t;
    tn_trace_options o = {.kind = TN_TRACE_LOGITS,
                          .mesh = {1, {1, 1, 1, 1}},
                          .grid = {8, 8, 8},
                          .canonical = true,
                          .sp = true,
                          .compute = TN_F32,
                          .rows = 1,
                          .seq = 16,
                          .n_microbatches = 1};
    TN_TRY(tn_trace_model(r, &o, &t));
    *out = t.g;
    return TN_OK;
}

static const tn_value *find_parameter(const tn_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TN_OP_state && !strcmp(tn_node_attr_text(&g->nodes[i], "name"), name))
            return &g->values[g->nodes[i].out0];
    return NULL;
}

#define MODEL(text)                                                                                \
    "local titan, nn, llama3 = require 'titan', require 'titan.nn', require "                      \
    "'models.llama3'\n" text
#define RECIPE(model) MODEL("return titan.recipe { model = " model " }")

/* ------------------------------------------------------------ descriptions */

/* One override on top of `model`; the error, or TN_OK if the graph traces. */
static tn_status override_one(const char *model, const char *override)
{
    char text[512];
    tn_recipe *r = NULL;
    tn_graph *g = NULL;
    snprintf(text, sizeof text, RECIPE("%s"), model);
    tn_status st = open_with(text, override != NULL, &override, &r);
    if (!st) st = trace(r, &g);
    tn_graph_destroy(g);
    tn_recipe_close(r);
    return st;
}

static void test_overrides(void)
{
    const char *many[] = {"model.n_layers=3", "model.dim=64", "model.rope.theta=10000",
                          "model.rope.scaling=false", "model.n_layers=2"};
    tn_recipe *r = NULL;
    tn_graph *g = NULL;
    if (TN_CHECK_OK(open_with(RECIPE("llama3.debug { n_layers = 5 }"), TN_COUNT(many), many, &r)) &&
        TN_CHECK_OK(trace(r, &g))) {
        TN_CHECK(find_parameter(g, "layers.1.ffn_norm.weight") &&
                 !find_parameter(g, "layers.2.ffn_norm.weight"));
        const tn_value *table = find_parameter(g, "rope.cache");
        const tn_node *n = table ? &g->nodes[table->node] : NULL;
        TN_CHECK(n && tn_node_attr_num(n, "theta") == 10000 && tn_node_attr_num(n, "factor") == 0);
        TN_CHECK(table && table->dim[1].extent ==
                              4); /* head_dim is derived from the overridden dim: 64 / 16 */
        TN_CHECK(strstr(tn_recipe_config(r),
                        "require(\"models.llama3\").debug { dim = 64, n_layers = 2, rope = { "
                        "scaling = false, theta = 10000.0 } }") != NULL);
    }
    tn_graph_destroy(g);
    tn_recipe_close(r);
}

/* What the resolved recipe prints is the same recipe. */
static void test_config_text(void)
{
    static const char *const models[] = {
        "llama3.debug", "llama3['8B']", "llama3.debug { tied = true, norm_eps = 1e-6 }",
        "llama3.debug { n_layers = 1, rope = { scaling = { factor = 2.5 } }, feed_forward = "
        "llama3.FeedForward }",
        "llama3 { dim = 64, n_layers = 1, n_heads = 8, ffn_dim = 96 }"};
    for (int i = 0; i < TN_COUNT(models); i++) {
        char text[512];
        tn_recipe *a = NULL, *b = NULL;
        snprintf(text, sizeof text, RECIPE("%s"), models[i]);
        if (TN_CHECK_OK(open_with(text, 0, NULL, &a)) &&
            TN_CHECK_OK(open_with(tn_recipe_config(a), 0, NULL, &b))) {
            const char *x = strstr(tn_recipe_config(a), "model = "),
                       *y = strstr(tn_recipe_config(b), "model = ");
            TN_CHECK_MSG(x && y && !strncmp(x, y, strcspn(x, "\n") > 50 ? 50 : strcspn(x, "\n")),
                         "%.80s / %.80s", x, y);
        }
        tn_recipe_close(a);
        tn_recipe_close(b);
    }
}

static void test_wrong(void)
{
    static const struct {
        const char *model, *override, *said;
    } cases[] = {
        {"llama3.debug { n_layer = 3 }", NULL,
         "r.lua:2: model.n_layer: unknown key; did you mean n_layers?"},
        {"llama3.debug { n_layers = 2.5 }", NULL,
         "r.lua:2: model.n_layers: a whole number from 0 on is needed, not 2.5"},
        {"llama3.debug { n_layers = '2' }", NULL,
         "model.n_layers: a whole number from 0 on is needed, not \"2\""},
        {"llama3.debug { tied = 1 }", NULL, "model.tied: a boolean is needed, not 1"},
        {"llama3.debug { norm_eps = 'x' }", NULL, "model.norm_eps: a number from 0 on is needed"},
        {"llama3.debug { rope = 3 }", NULL, "model.rope: a table (or false) is needed, not 3"},
        {"llama3.debug { rope = { thet = 3 } }", NULL, "model.rope.thet: unknown key; "},
        {"llama3.debug { rope = { scaling = { lo = 3 } } }", NULL,
         "model.rope.scaling.lo: unknown key; "},
        {"llama3.debug { rope = { scaling = { original = 3.5 } } }", NULL,
         "model.rope.scaling.original: a whole number from 0 on is needed"},
        {"llama3.debug { attention = 3 }", NULL,
         "model.attention: a module class, as nn.module makes it is needed"},
        {"llama3['7B']", NULL, "llama3 has no flavour '7B'"},
        {"llama3.debug { n_layers = 0 }", NULL,
         "nn.list needs a number of modules from 1 on, not 0"},
        {"llama3.debug { n_kv_heads = 3 }", NULL,
         "nn.heads: 16 query heads cannot share 3 key and value heads"},
        {"llama3.debug { head_dim = 7 }", NULL,
         "layers.0.attention: rope: head dim 7 is odd; it must be even"},
        {"llama3.debug { head_dim = function(c) return c.head_dim end }", NULL,
         "model.head_dim: its derived value depends on itself"},
        {"llama3.debug { head_dim = function(c) end }", NULL,
         "model.head_dim: its derived value is nil"},
        {"llama3 { dim = 64 }", NULL,
         "model.n_layers: no value; the flavour or the recipe must give one"},
        {"llama3.debug(3)", NULL, "model: a table of keys is needed, not 3"},
        {"llama3.debug", "model.n_layer=4",
         "command line: model.n_layer: unknown key; did you mean n_layers?"},
        {"llama3.debug", "model.n_layers=four",
         "command line: model.n_layers: a whole number from 0 on is needed, not \"four\""},
        {"llama3.debug", "model.rope.scaling.factr=4",
         "command line: model.rope.scaling.factr: unknown key; "},
        {"llama3.debug", "model.dim=17", "layers.0."},
    };
    for (int i = 0; i < TN_COUNT(cases); i++)
        TN_CHECK_FAILS(override_one(cases[i].model, cases[i].override), TN_BAD_INPUT,
                       cases[i].said);
    static const struct {
        const char *text, *said;
    } families[] = {
        {"nn.family(3)", "nn.family needs a table"},
        {"nn.family { nam = 'x' }", "nn.family: unknown field 'nam'; did you mean name?"},
        {"nn.family { model = llama3.Block }", "nn.family: name is missing"},
        {"nn.family { name = 'x' }", "nn.family x: model is no module class"},
        {"nn.family { name = 'x', base = 3 }", "nn.family: base is no family"},
        {"nn.family { name = 'x', base = llama3, flavours = { a = { n_layers = 'x' } } }",
         "x.a.n_layers: a whole number from 0 on is needed"},
        {"llama3.x = 3", "family llama3 is fixed"},
        {"local d = llama3.debug; d.n_layers = 3", "a model's description is fixed"},
        {"local F = nn.family { name = 'x', model = llama3.Block, flavours = { a = { dim = 3 } } "
         "}; return "
         "titan.recipe { model = F.a }",
         "Block: the model has no hidden(tokens, at)"},
        {"local M = nn.module 'M'; function M:hidden(x) return x end; return titan.recipe { model "
         "= nn.family { "
         "name = 'x', model = M, flavours = { a = {} } }.a }",
         "M: the model has no output module"},
    };
    for (int i = 0; i < TN_COUNT(families); i++) {
        char text[1024];
        tn_recipe *r = NULL;
        tn_graph *g = NULL;
        snprintf(text, sizeof text, MODEL("%s"), families[i].text);
        tn_status st = open_with(text, 0, NULL, &r);
        if (!st) st = trace(r, &g);
        TN_CHECK_FAILS(st, TN_BAD_INPUT, families[i].said);
        tn_graph_destroy(g);
        tn_recipe_close(r);
    }
}

/* ----------------------------------------------------------------------------------------------
 * Hugging Face names
 */

static void check_name(tn_recipe *r, const char *ours, const char *theirs)
{
    tn_arena a = {0};
    const char *got = NULL;
    if (TN_CHECK_OK(tn_model_hf_name(r, ours, &a, &got))) TN_CHECK_TEXT(got, theirs);
    if (theirs[0] && TN_CHECK_OK(tn_model_titan_name(r, theirs, &a, &got)))
        TN_CHECK_TEXT(got, ours);
    tn_arena_fini(&a);
}

static void test_names(void)
{
    static const char *const names[][2] = {
        {"tok_embeddings.weight", "model.embed_tokens.weight"},
        {"layers.0.attention.wq.weight", "model.layers.0.self_attn.q_proj.weight"},
        {"layers.17.attention.wk.weight", "model.layers.17.self_attn.k_proj.weight"},
        {"layers.125.attention.wv.weight", "model.layers.125.self_attn.v_proj.weight"},
        {"layers.3.attention.wo.weight", "model.layers.3.self_attn.o_proj.weight"},
        {"layers.3.feed_forward.w1.weight", "model.layers.3.mlp.gate_proj.weight"},
        {"layers.3.feed_forward.w2.weight", "model.layers.3.mlp.down_proj.weight"},
        {"layers.3.feed_forward.w3.weight", "model.layers.3.mlp.up_proj.weight"},
        {"layers.9.attention_norm.weight", "model.layers.9.input_layernorm.weight"},
        {"layers.9.ffn_norm.weight", "model.layers.9.post_attention_layernorm.weight"},
        {"norm.weight", "model.norm.weight"},
        {"output.weight", "lm_head.weight"},
    };
    tn_recipe *r = NULL;
    tn_arena a = {0};
    const char *got = NULL, *family = NULL;
    if (!TN_CHECK_OK(open_with(RECIPE("llama3['8B']"), 0, NULL, &r))) return;
    for (int i = 0; i < TN_COUNT(names); i++) check_name(r, names[i][0], names[i][1]);
    TN_CHECK_FAILS(tn_model_titan_name(r, "model.layers.0.self_attn.q_proj.bias", &a, &got),
                   TN_BAD_INPUT,
                   "model.layers.0.self_attn.q_proj.bias: no parameter of llama3 has this name");
    TN_CHECK_FAILS(tn_model_titan_name(r, "model.layers.x.mlp.up_proj.weight", &a, &got),
                   TN_BAD_INPUT, "no parameter of llama3");
    TN_CHECK_FAILS(tn_model_titan_name(r, "model.layers.{}.mlp.up_proj.weight", &a, &got),
                   TN_BAD_INPUT, "no parameter of llama3");
    TN_CHECK_FAILS(tn_model_hf_name(r, "layers.0.attention.wq.bias", &a, &got), TN_BAD_INPUT,
                   "the name map of llama3 does not have it");
    if (TN_CHECK_OK(
            tn_model_titan_name(r, "model.layers.4.self_attn.rotary_emb.inv_freq", &a, &got)))
        TN_CHECK_TEXT(got, "");
    if (TN_CHECK_OK(tn_model_name(r, &a, &family, &got))) TN_CHECK_TEXT(family, "llama3");
    TN_CHECK_TEXT(got, "8B");
    int64_t n = 0;
    if (TN_CHECK_OK(tn_model_int(r, "vocab_size", &n))) TN_CHECK(n == 128256);
    if (TN_CHECK_OK(tn_model_int(r, "head_dim", &n))) TN_CHECK(n == 128);
    if (TN_CHECK_OK(tn_model_int(r, "nothing", &n))) TN_CHECK(n == 0);
    if (TN_CHECK_OK(tn_model_hf_dir(r, &a, &got))) TN_CHECK_TEXT(got, "");
    tn_recipe_close(r);
    if (!TN_CHECK_OK(open_with(RECIPE("llama3['1B']"), 0, NULL, &r))) return;
    check_name(r, "output.weight", "");
    if (TN_CHECK_OK(tn_model_titan_name(r, "lm_head.weight", &a, &got))) TN_CHECK_TEXT(got, "");
    tn_recipe_close(r);
    /* a swapped block is no Llama any more: its files keep titan's names */
    if (!TN_CHECK_OK(open_with(
            MODEL("local My = nn.module('My', llama3.FeedForward); return titan.recipe { model "
                  "= llama3.debug { feed_forward = My } }"),
            0, NULL, &r)))
        return;
    check_name(r, "norm.weight", "norm.weight");
    if (TN_CHECK_OK(tn_model_config_json(r, TN_F32, &a, &got)))
        TN_CHECK(strstr(got, "\"model_type\": \"titan.llama3\"") && strstr(got, "\"dim\": 256"));
    tn_recipe_close(r);
    tn_arena_fini(&a);
}

/* Every parameter of a traced model has a name there, and comes back. */
static void test_all_names(void)
{
    tn_recipe *r = NULL;
    tn_graph *g = NULL;
    if (TN_CHECK_OK(open_with(RECIPE("llama3.debug { n_layers = 12 }"), 0, NULL, &r)) &&
        TN_CHECK_OK(trace(r, &g)))
        for (int64_t i = 0; i < g->n_nodes; i++) {
            const tn_node *n = &g->nodes[i];
            tn_arena a = {0};
            const char *there = NULL, *back = NULL;
            if (n->op != TN_OP_state || strcmp(tn_node_attr_text(n, "kind"), "param")) continue;
            if (TN_CHECK_OK(tn_model_hf_name(r, tn_node_attr_text(n, "name"), &a, &there)) &&
                TN_CHECK(there[0]) && TN_CHECK_OK(tn_model_titan_name(r, there, &a, &back)))
                TN_CHECK_TEXT(back, tn_node_attr_text(n, "name"));
            tn_arena_fini(&a);
        }
    tn_graph_destroy(g);
    tn_recipe_close(r);
}

/* ------------------------------------------------------------ config.json */

static const char good[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
    "\"hidden_size\": 96, \"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"head_dim\": 16, "
    "\"intermediate_size\": 200, \"vocab_size\": 257,"
    "\"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", \"attention_bias\": false, "
    "\"mlp_bias\": false, \"attention_dropout\": 0.0,"
    "\"tie_word_embeddings\": false, \"max_position_embeddings\": 64, \"pad_token_id\": "
    "null, \"unheard_of\": [1, {}],";
static const char rope5[] =
    "\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 10000.0, \"factor\": "
    "8.0, \"low_freq_factor\": 1.0,"
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32}}";
static const char rope4[] =
    "\"rope_theta\": 10000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": "
    "8.0, \"low_freq_factor\": 1.0,"
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32}}";

/* A folder with that config.json. */
static const char *folder_with(const char *head, const char *tail)
{
    char text[8192];
    snprintf(text, sizeof text, "%s%s", head, tail);
    (void)tn_scratch_text("config.json", text);
    return tn_scratch_folder;
}

static tn_status open_hf(const char *dir, const char *more, tn_recipe **out)
{
    char text[1024];
    snprintf(text, sizeof text, "return require('titan').recipe { model = { hf = '%s'%s } }", dir,
             more);
    return open_with(text, 0, NULL, out);
}

static void check_loaded(const char *dir, const char *more, double theta, double factor,
                         int64_t layers)
{
    tn_recipe *r = NULL;
    tn_graph *g = NULL;
    tn_arena a = {0};
    const char *got = NULL;
    char name[64];
    if (TN_CHECK_OK(open_hf(dir, more, &r)) && TN_CHECK_OK(trace(r, &g))) {
        const tn_value *w1 = find_parameter(g, "layers.0.feed_forward.w1.weight"),
                       *table = find_parameter(g, "rope.cache");
        const tn_value *wk = find_parameter(g, "layers.0.attention.wk.weight");
        TN_CHECK(w1 && w1->dim[0].extent == 200 && w1->dim[1].extent == 96);
        TN_CHECK(wk && wk->dim[0].extent == 32 && wk->dim[0].units == 6);
        snprintf(name, sizeof name, "layers.%lld.norm.weight", (long long)layers - 1);
        TN_CHECK(table && tn_node_attr_num(&g->nodes[table->node], "theta") == theta);
        TN_CHECK(table && tn_node_attr_num(&g->nodes[table->node], "factor") == factor);
        snprintf(name, sizeof name, "layers.%lld.ffn_norm.weight", (long long)layers);
        TN_CHECK(!find_parameter(g, name));
        if (TN_CHECK_OK(tn_model_hf_dir(r, &a, &got))) TN_CHECK_TEXT(got, dir);
        TN_CHECK(strstr(tn_recipe_config(r), "hf = ") != NULL);
    }
    tn_arena_fini(&a);
    tn_graph_destroy(g);
    tn_recipe_close(r);
}

static void test_hf_good(void)
{
    check_loaded(folder_with(good, rope5), "", 10000, 8, 2);
    check_loaded(folder_with(good, rope4), "", 10000, 8, 2);
    check_loaded(folder_with(good, "\"rope_theta\": 5000}"), "", 5000, 0, 2);
    check_loaded(folder_with(good, "\"rope_theta\": 5000.5, \"rope_scaling\": null}"), "", 5000.5,
                 0, 2);
    check_loaded(
        folder_with(good, "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 7}}"),
        "", 7, 0, 2);
    check_loaded(folder_with(good, "\"torch_dtype\": \"bfloat16\"}"), "", 10000, 0, 2);
    check_loaded(folder_with(good, rope5), ", n_layers = 1", 10000, 8, 1);
    check_loaded(folder_with(good, rope5), ", rope = { theta = 3.0 }", 3, 8, 2);
}

/* The values that transformers assumes where a config.json is silent. */
static void test_hf_defaults(void)
{
    static const char text[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, "
                               "\"num_hidden_layers\": 1, \"num_attention_heads\": 4,"
                               "\"intermediate_size\": 96, \"vocab_size\": 32}";
    tn_recipe *r = NULL;
    tn_graph *g = NULL;
    if (TN_CHECK_OK(open_hf(folder_with(text, ""), "", &r)) && TN_CHECK_OK(trace(r, &g))) {
        const tn_value *wk = find_parameter(g, "layers.0.attention.wk.weight");
        TN_CHECK(wk && wk->dim[0].extent == 64 && wk->dim[0].units == 4 &&
                 find_parameter(g, "output.weight"));
        for (int64_t i = 0; i < g->n_nodes; i++)
            if (g->nodes[i].op == TN_OP_rmsnorm)
                TN_CHECK(tn_node_attr_num(&g->nodes[i], "eps") == 1e-6);
    }
    tn_graph_destroy(g);
    tn_recipe_close(r);
}

static void test_hf_wrong(void)
{
    static const struct {
        const char *head, *tail, *said;
    } cases[] = {
        {"{\"architectures\": [\"MistralForCausalLM\"]", "}",
         "config.json: architectures: \"MistralForCausalLM\"; titan reads LlamaForCausalLM"},
        {"{\"model_type\": \"qwen3\"", "}",
         "config.json: architectures: missing, and model_type is \"qwen3\"; titan reads "
         "LlamaForCausalLM"},
        {"{", "}", "architectures: missing, and model_type is nil"},
        {"{\"architectures\": [\"LlamaForCausalLM\"]", "}", "missing; the model needs it"},
        {"[1]", "", "config.json: holds"},
        {"{\"a\": 1,", "}", "config.json: line 1"},
        {"", "", "config.json"},
        {good, "\"attention_bias\": true}", "duplicate"},
        {good, "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2}}",
         "config.json: rope_parameters.rope_type: 'yarn'; titan knows default and llama3"},
        {good, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "rope_scaling.rope_type: 'linear'"},
        {good, "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}}", "rope_scaling."},
        {good,
         "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": -2, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8}}",
         "rope_scaling.factor: -2; rope_type llama3 needs a number above 0"},
        {good,
         "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8}}",
         "high_freq_factor: 4 is not above low_freq_factor = 4"},
        {good, "\"rope_scaling\": 3}",
         "config.json: rope_scaling: is a whole number; it must be an object"},
        {good, "\"rope_theta\": 1, \"rope_parameters\": {\"rope_theta\": 2}}",
         "config.json: rope_theta: 1, but rope_parameters.rope_theta says 2"},
        {good, "\"rope_theta\": \"big\"}",
         "config.json: rope_theta: is a string; it must be a number"},
        {good, "\"partial_rotary_factor\": 0.5}", "config.json: partial_rotary_factor: 0.5"},
        {good, "\"pretraining_tp\": 2}", "config.json: pretraining_tp: 2; titan's model has 1"},
        {good, "\"quantization_config\": {\"bits\": 4}}",
         "quantization_config: quantised weights cannot be read"},
    };
    static const struct {
        const char *from, *to, *said;
    } changes[] = {
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"",
         "config.json: hidden_act: \"gelu\"; titan's model has \"silu\""},
        {"\"attention_bias\": false", "\"attention_bias\": true",
         "config.json: attention_bias: true; titan's model has false"},
        {"\"mlp_bias\": false", "\"mlp_bias\": true", "config.json: mlp_bias: true"},
        {"\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1",
         "config.json: attention_dropout: 0.1"},
        {"\"hidden_size\": 96", "\"hidden_size\": \"96\"",
         "config.json: hidden_size: a whole number from 0 on is needed, not \"96\""},
        {"\"hidden_size\": 96", "\"hidden_size\": -1",
         "config.json: hidden_size: -1; a number above 0 is needed"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2.5",
         "config.json: num_hidden_layers: a whole number from 0 on is needed"},
        {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4",
         "6 query heads cannot share 4"},
        {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": \"no\"",
         "config.json: tie_word_embeddings: a boolean is needed"},
        {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"small\"",
         "config.json: rms_norm_eps: a number from 0 on is needed"},
    };
    for (int i = 0; i < TN_COUNT(cases) + TN_COUNT(changes); i++) {
        char text[2048];
        const char *said, *dir;
        tn_recipe *r = NULL;
        tn_graph *g = NULL;
        if (i < TN_COUNT(cases)) {
            dir = folder_with(cases[i].head, cases[i].tail);
            said = cases[i].said;
        } else {
            int k = i - TN_COUNT(cases);
            const char *at = strstr(good, changes[k].from);
            snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, changes[k].to,
                     at + strlen(changes[k].from));
            dir = folder_with(text, rope5);
            said = changes[k].said;
        }
        tn_status st = open_hf(dir, "", &r);
        if (!st) st = trace(r, &g);
        TN_CHECK_FAILS(st, TN_BAD_INPUT, said);
        tn_graph_destroy(g);
        tn_recipe_close(r);
    }
    tn_recipe *r = NULL;
    TN_CHECK_FAILS(open_hf("no/such/folder", "", &r), TN_BAD_INPUT, "no/such/folder/config.json");
    TN_CHECK_FAILS(open_hf(folder_with(good, rope5), ", n_layer = 3", &r), TN_BAD_INPUT,
                   "model.n_layer: unknown key");
}

/* What is written reads back to the same model, and to itself. */
static void test_round_trip(void)
{
    static const char *const models[] = {
        "llama3['8B']", "llama3['1B'] { n_layers = 2 }",
        "llama3.debug { rope = { theta = 1e4, scaling = false } }"};
    for (int i = 0; i < TN_COUNT(models); i++) {
        char text[512];
        tn_recipe *a = NULL, *b = NULL;
        tn_arena arena = {0};
        const char *first = NULL, *second = NULL;
        const tn_json *j = NULL;
        snprintf(text, sizeof text, RECIPE("%s"), models[i]);
        if (TN_CHECK_OK(open_with(text, 0, NULL, &a)) &&
            TN_CHECK_OK(tn_model_config_json(a, TN_BF16, &arena, &first)) &&
            TN_CHECK_OK(tn_json_parse("config", first, (int64_t)strlen(first), &j)) &&
            TN_CHECK_OK(open_hf(folder_with(first, ""), "", &b)) &&
            TN_CHECK_OK(tn_model_config_json(b, TN_BF16, &arena, &second)))
            TN_CHECK_TEXT(second, first);
        TN_CHECK(j && !strcmp(tn_json_string(tn_json_find(j, "dtype")), "bfloat16"));
        tn_json_free(j);
        tn_arena_fini(&arena);
        tn_recipe_close(a);
        tn_recipe_close(b);
    }
}

/* The folders that transformers wrote, both generations. */
static void test_golden(void)
{
    static const char *const cases[] = {"llama/mha",    "llama/gqa",       "llama/tied",
                                        "llama/odd",    "llama/long",      "llama/hd128",
                                        "llama/packed", "hf/sharded_bf16", "hf/tied_fp16"};
    for (int i = 0; i < TN_COUNT(cases); i++) {
        const char *path = tn_test_golden(cases[i]);
        if (!path) continue;
        char dir[512], file[600];
        snprintf(dir, sizeof dir, "%s", path);
        tn_recipe *r = NULL, *old = NULL;
        tn_graph *g = NULL;
        tn_arena a = {0};
        const char *x = NULL, *y = NULL;
        if (TN_CHECK_OK(open_hf(dir, "", &r))) TN_CHECK_OK(trace(r, &g));
        char legacy[8192] = "";
        snprintf(file, sizeof file, "%s/config.legacy.json", dir);
        FILE *f = fopen(file, "r");
        if (f) {
            legacy[fread(legacy, 1, sizeof legacy - 1, f)] = 0;
            fclose(f);
            if (TN_CHECK_OK(open_hf(folder_with(legacy, ""), "", &old)) &&
                TN_CHECK_OK(tn_model_config_json(r, TN_F32, &a, &x)) &&
                TN_CHECK_OK(tn_model_config_json(old, TN_F32, &a, &y)))
                TN_CHECK_TEXT(y, x);
        }
        tn_arena_fini(&a);
        tn_graph_destroy(g);
        tn_recipe_close(r);
        tn_recipe_close(old);
    }
}

int main(void)
{
    test_overrides();
    test_config_text();
    test_wrong();
    test_names();
    test_all_names();
    test_hf_good();
    test_hf_defaults();
    test_hf_wrong();
    test_round_trip();
    test_golden();
    return tn_test_done("model");
}
