/* What C reads from a recipe: every key's value and origin, lists, groups, overrides; and the ways
 * in. */
#include "lua/recipe.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const char head[] = "local titan = require 'titan'\nlocal llama3 = require "
                           "'models.llama3'\nreturn titan.recipe {\n";

static tn_status open_text(const char *body, int n, const char *const *overrides, tn_recipe **out)
{
    char text[2048];
    snprintf(text, sizeof text, "%s%s\n}", head, body);
    tn_recipe_options o = {.text = text, .name = "r.lua", .overrides = overrides, .n_overrides = n};
    return tn_recipe_open(&o, out);
}

static void test_defaults(void)
{
    tn_recipe *r = NULL;
    if (!TN_CHECK_OK(open_text("model = llama3.debug {}", 0, NULL, &r))) return;
    TN_CHECK(tn_recipe_int(r, "training.steps") == 10000 &&
             tn_recipe_int(r, "training.seq_len") == 2048);
    TN_CHECK(tn_recipe_int(r, "training.local_batch_size") == 8 &&
             tn_recipe_int(r, "training.global_batch_size") == -1);
    TN_CHECK(tn_recipe_num(r, "training.max_norm") == 1.0 &&
             tn_recipe_int(r, "training.seed") == 42);
    TN_CHECK_TEXT(tn_recipe_text(r, "training.mixed_precision_param"), "float32");
    TN_CHECK_TEXT(tn_recipe_where(r, "training.mixed_precision_param"), "default for cpu");
    TN_CHECK_TEXT(tn_recipe_text(r, "optimizer.name"), "AdamW");
    TN_CHECK(tn_recipe_num(r, "optimizer.lr") == 8e-4 && tn_recipe_num(r, "optimizer.eps") == 1e-8);
    TN_CHECK(tn_recipe_num(r, "optimizer.weight_decay") == 0.1 &&
             tn_recipe_num(r, "optimizer.momentum") == 0);
    TN_CHECK(tn_recipe_count(r, "optimizer.betas") == 2 &&
             tn_recipe_num_at(r, "optimizer.betas", 0) == 0.9 &&
             tn_recipe_num(r, "optimizer.betas[2]") == 0.95);
    TN_CHECK(tn_recipe_int(r, "lr_scheduler.warmup_steps") == 200 &&
             !tn_recipe_is_set(r, "lr_scheduler.total_steps"));
    TN_CHECK(tn_recipe_int(r, "lr_scheduler.total_steps") == 0 &&
             !tn_recipe_is_set(r, "lr_scheduler.decay_ratio"));
    TN_CHECK_TEXT(tn_recipe_text(r, "lr_scheduler.decay_type"), "linear");
    TN_CHECK(tn_recipe_int(r, "parallelism.data_parallel_shard_degree") == -1);
    TN_CHECK(tn_recipe_bool(r, "parallelism.enable_sequence_parallel") &&
             !tn_recipe_bool(r, "checkpoint.enable"));
    TN_CHECK_TEXT(tn_recipe_text(r, "activation_checkpoint.mode"), "none");
    TN_CHECK_TEXT(tn_recipe_text(r, "debug.reduce"), "canonical");
    TN_CHECK(tn_recipe_count(r, "debug.reduce_grid") == 3 &&
             tn_recipe_int_at(r, "debug.reduce_grid", 2) == 8);
    TN_CHECK(tn_recipe_int(r, "metrics.log_freq") == 10 && tn_recipe_int(r, "loss.chunks") == 0);
    TN_CHECK_TEXT(tn_recipe_text(r, "job.dump_folder"), "./outputs");
    TN_CHECK(!tn_recipe_is_set(r, "data.path") && tn_recipe_count(r, "data.path") == 0 &&
             !tn_recipe_is_set(r, "no.such_key"));
    TN_CHECK_TEXT(tn_recipe_text(r, "data.path"), "");
    TN_CHECK_TEXT(tn_recipe_device(r), "cpu");
    TN_CHECK_TEXT(tn_recipe_where(r, "training.steps"), "default");
    TN_CHECK_TEXT(tn_recipe_name(r), "r.lua");
    TN_CHECK(tn_recipe_groups(r) == 0 && !tn_recipe_is_set(r, "model.hf"));
    tn_recipe_close(r);
    tn_recipe_close(NULL);
}

static void test_values(void)
{
    static const char *const overrides[] = {
        "training.steps=1e3", "model.n_layers=3", "parallelism.dp_shard=1", "debug.seed=9",
        "job.description=3",  "device=cuda",      "training.steps=12"};
    tn_recipe *r = NULL;
    const char *body = "model = llama3.debug { n_layers = 2 },\n"
                       "training = { steps = 5, seq_len = 64.0,\n  max_norm = 2 },\n"
                       "data = { path = { 'a.txt', { 'b.txt', weight = 3 } } },\n"
                       "lr_scheduler = { decay_ratio = 0.25, total_steps = 100 }";
    if (!TN_CHECK_OK(open_text(body, TN_COUNT(overrides), overrides, &r))) return;
    TN_CHECK(tn_recipe_int(r, "training.steps") == 12 &&
             tn_recipe_int(r, "training.seq_len") == 64);
    TN_CHECK_TEXT(tn_recipe_where(r, "training.steps"), "command line");
    TN_CHECK_TEXT(tn_recipe_where(r, "training.seq_len"), "r.lua:5");
    TN_CHECK_TEXT(tn_recipe_where(r, "training.max_norm"), "r.lua:6");
    TN_CHECK(tn_recipe_num(r, "training.max_norm") == 2 && tn_recipe_int(r, "training.seed") == 9);
    TN_CHECK(tn_recipe_num(r, "lr_scheduler.decay_ratio") == 0.25 &&
             tn_recipe_int(r, "lr_scheduler.total_steps") == 100);
    TN_CHECK(tn_recipe_int(r, "parallelism.data_parallel_shard_degree") == 1);
    TN_CHECK_TEXT(tn_recipe_text(r, "job.description"), "3");
    TN_CHECK(tn_recipe_count(r, "data.path") == 2);
    TN_CHECK_TEXT(tn_recipe_text_at(r, "data.path", 0), "a.txt");
    TN_CHECK_TEXT(tn_recipe_text_at(r, "data.path", 1), "b.txt");
    TN_CHECK(tn_recipe_num(r, "data.path[2].weight") == 3 &&
             !tn_recipe_is_set(r, "data.path[1].weight"));
    TN_CHECK_TEXT(tn_recipe_device(r), "cuda");
    TN_CHECK_TEXT(tn_recipe_text(r, "training.mixed_precision_param"), "bfloat16");
    TN_CHECK_TEXT(tn_recipe_text(r, "debug.reduce"), "fast");
    TN_CHECK(strstr(tn_recipe_config(r), "n_layers = 3") &&
             strstr(tn_recipe_config(r), "steps = 12,"));
    tn_recipe_close(r);
    if (!TN_CHECK_OK(open_text("model = llama3.debug, data = { path = 'one.txt' }", 0, NULL, &r)))
        return;
    TN_CHECK(tn_recipe_count(r, "data.path") == 1);
    TN_CHECK_TEXT(tn_recipe_text_at(r, "data.path", 0), "one.txt");
    tn_recipe_close(r);
}

static void test_groups(void)
{
    tn_recipe *r = NULL;
    const char *body = "model = llama3.debug {}, optimizer = { lr = 1e-3, weight_decay = 0.5, "
                       "betas = { 0.8, 0.9 },\n"
                       " groups = { { pattern = 'norm', weight_decay = 0 }, { pattern = 'wq', lr = "
                       "2, betas = { 0.5, 0.6 }, eps = 1 } } }";
    if (!TN_CHECK_OK(open_text(body, 0, NULL, &r))) return;
    tn_recipe_group all = tn_recipe_group_default(r);
    TN_CHECK(tn_recipe_groups(r) == 2 && all.lr == 1e-3 && all.weight_decay == 0.5 &&
             all.beta1 == 0.8 && all.beta2 == 0.9);
    TN_CHECK_TEXT(all.pattern, "");
    tn_recipe_group norm = tn_recipe_group_at(r, 0), wq = tn_recipe_group_at(r, 1);
    TN_CHECK_TEXT(norm.pattern, "norm");
    TN_CHECK_TEXT(norm.where, "r.lua:5");
    TN_CHECK(norm.weight_decay == 0 && norm.lr == 1e-3 && norm.beta2 == 0.9 && norm.eps == 1e-8);
    TN_CHECK(wq.lr == 2 && wq.weight_decay == 0.5 && wq.beta1 == 0.5 && wq.beta2 == 0.6 &&
             wq.eps == 1 && wq.momentum == 0);
    tn_recipe_close(r);
}

/* Every error of a recipe at once, the first in the order of its lines. */
static void test_errors(void)
{
    static const char *const bad[] = {"training.stps=1", "optimizer.lr=fast"};
    tn_recipe *r = NULL;
    TN_CHECK_FAILS(
        open_text("model = llama3.debug {},\ntraining = { steps = 0,\n sed = 3 }", 0, NULL, &r),
        TN_BAD_INPUT,
        "r.lua:5: training.steps = 0: must be an integer of at least 1; the nearest is 1\n"
        "also r.lua:6: training.sed: unknown key; did you mean seed?");
    TN_CHECK_FAILS(open_text("model = llama3.debug {}", 2, bad, &r), TN_BAD_INPUT,
                   "command line: training.stps: unknown key; did you mean steps?\nalso command "
                   "line: optimizer.lr = \"fast\"");
    TN_CHECK(r == NULL);
    tn_recipe_options o = {.path = "/nowhere/r.lua"};
    TN_CHECK_FAILS(tn_recipe_open(&o, &r), TN_BAD_INPUT,
                   "/nowhere/r.lua: cannot open: No such file");
    o.path = "/";
    TN_CHECK_FAILS(tn_recipe_open(&o, &r), TN_BAD_INPUT, "/: a folder; name the recipe's file");
    o = (tn_recipe_options){.text = "return 3", .name = "t.lua"};
    TN_CHECK_FAILS(tn_recipe_open(&o, &r), TN_BAD_INPUT,
                   "t.lua: must end with `return titan.recipe { ... }`");
    o.text = "while true do end";
    o.host.seconds = 0.02;
    TN_CHECK_FAILS(tn_recipe_open(&o, &r), TN_BAD_INPUT,
                   "t.lua:1: the recipe ran longer than 0.02 s");
}

static void test_fixed(void)
{
    tn_recipe *r = NULL;
    tn_recipe_options o = {.name = "t.lua"};
    o.text = "local titan, llama3 = require 'titan', require 'models.llama3'\n"
             "local r = titan.recipe { model = llama3.debug, training = { steps = 3 } }\n"
             "assert(r.training.steps == 3)\nr.training = {}\nreturn r";
    TN_CHECK_FAILS(tn_recipe_open(&o, &r), TN_BAD_INPUT, "t.lua:4: a recipe is finished");
    o.text =
        "local titan, llama3 = require 'titan', require 'models.llama3'\n"
        "local ok, e = pcall(titan.recipe, { model = llama3.debug, training = { steps = -1 } })\n"
        "assert(not ok and e:find('training.steps = -1', 1, true), e)\n"
        "local t = { lr = 3 }\nreturn titan.recipe({ model = llama3.debug, optimizer = t })";
    if (TN_CHECK_OK(tn_recipe_open(&o, &r))) {
        TN_CHECK_TEXT(tn_recipe_where(r, "optimizer.lr"),
                      "t.lua:4"); /* a section that was put together elsewhere */
        tn_recipe_close(r);
    }
}

static void test_file(void)
{
    char top[] = "/tmp/titan-test-recipe-XXXXXX", path[100];
    tn_recipe *r = NULL;
    tn_recipe_options o = {.path = path};
    if (!TN_CHECK(mkdtemp(top))) return;
    snprintf(path, sizeof path, "%s/r.lua", top);
    FILE *f = fopen(path, "w");
    if (TN_CHECK(f)) {
        fprintf(f, "%smodel = llama3.debug }\n", head);
        fclose(f);
    }
    if (TN_CHECK_OK(tn_recipe_open(&o, &r))) {
        TN_CHECK_TEXT(tn_recipe_name(r), path);
        TN_CHECK_TEXT(tn_recipe_folder(r), top);
        tn_recipe_close(r);
    }
    TN_CHECK(unlink(path) == 0 && rmdir(top) == 0);
}

/* The first allocations, and then one in so many: each failure is answered or survived. */
static void test_allocations(void)
{
    tn_recipe *r = NULL;
    int64_t begin = tn_mem_count(), failed = 0;
    if (!TN_CHECK_OK(open_text("model = llama3.debug {}", 0, NULL, &r))) return;
    int64_t n = tn_mem_count() - begin;
    tn_recipe_close(r);
    for (int64_t i = 1; i <= n; i += i < 50 || i > n - 200 ? 1 : n / 50) {
        r = NULL;
        tn_mem_fail_at(i);
        tn_status st = open_text("model = llama3.debug {}", 0, NULL, &r);
        tn_mem_fail_at(0);
        failed += st != TN_OK;
        TN_CHECK_MSG(st == TN_OK || (st == TN_FAILED && tn_error_text()[0]),
                     "allocation %lld: status %d: %s", (long long)i, (int)st, tn_error_text());
        tn_error_clear();
        tn_recipe_close(r);
    }
    TN_CHECK(failed >= 5);
}

int main(void)
{
    test_defaults();
    test_values();
    test_groups();
    test_errors();
    test_fixed();
    test_file();
    test_allocations();
    return tn_test_done("recipe");
}
