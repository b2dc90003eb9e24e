/* Every allocation fails in turn, from the text of a graph to an executor that has run: each
 * failure is TN_FAILED with a message, leaks nothing (the address sanitizer looks), leaves what it
 * was given as it was, and the next try succeeds. */
#include "engine/device.h"
#include "engine/exec.h"
#include "engine/init.h"
#include "engine/train.h"
#include "graph/passes.h"
#include "graph/text.h"
#include "lua/session.h"
#include "tests/traced.h"

static char recipe[] = "return require('titan').recipe { device = { kind = 'cpu', threads = 2 }, "
                       "data = { source = 'random' }, "
                       "training = { steps = 1, seq_len = 8, local_batch_size = 1 }, "
                       "model = require('models.llama3').debug { n_layers = 1, dim = 8, n_heads = "
                       "2, n_kv_heads = 1, ffn_dim = 6, vocab_size = 5 } }";

/* In the hostile build every piece of an arena is an allocation: so many of them are tried, spread
 * over all. */
enum { MOST = 400 };

/* Counts the allocations of a call that succeeds; -1: it does not. */
static int64_t count(const char *what, tn_status (*fn)(void *arg), void *arg)
{
    int64_t begun = tn_mem_count();
    if (!TN_CHECK_MSG(fn(arg) == TN_OK, "%s: %s", what, tn_error_text())) return -1;
    TN_CHECK_MSG(tn_mem_count() > begun, "%s: allocates nothing", what);
    return tn_mem_count() - begun;
}

static void fail_at(const char *what, tn_status (*fn)(void *arg), void *arg, int64_t n,
                    bool may_succeed)
{
    tn_error_clear();
    tn_mem_fail_at(n);
    tn_status st = fn(arg);
    tn_mem_fail_at(0);
    TN_CHECK_MSG((st == TN_OK && may_succeed) ||
                     (st == TN_FAILED && !strncmp(tn_error_text(), "memory: ", 8)),
                 "%s: allocation %lld fails: status %d, '%s'", what, (long long)n, (int)st,
                 tn_error_text());
}

static void fail_in_turn(const char *what, tn_status (*fn)(void *arg), void *arg)
{
    int64_t total = count(what, fn, arg);
    for (int64_t n = 1; n <= total; n += total / MOST + 1) fail_at(what, fn, arg, n, false);
    TN_CHECK_MSG(fn(arg) == TN_OK, "%s: not again after failures: %s", what, tn_error_text());
}

/* ------------------------------------------------------------ graphs */

static tn_status parse(const tn_text *text, tn_graph **out)
{
    return tn_graph_parse("m.graph", tn_text_str(text), (size_t)text->n_bytes, out);
}

static tn_status read_and_print(void *arg)
{
    tn_text again = {0};
    tn_graph *g;
    TN_TRY(parse(arg, &g));
    tn_status st = tn_graph_print(g, NULL, &again);
    if (!st) TN_CHECK_TEXT(tn_text_str(&again), tn_text_str(arg));
    tn_text_fini(&again);
    tn_graph_destroy(g);
    return st;
}

static int group_of(void *user, const char *param)
{
    (void)user, (void)param;
    return 0;
}

static const char *const passes[] = {"differentiate", "lower", "fuse", "storage", "recompute"};

static tn_status run_pass(int i, const tn_graph *g, tn_graph **out)
{
    static const tn_optimizer_group group = {"", 0.02, 0.9, 0.95, 1e-8, 0.1, 0.9};
    const tn_pass_options o = {.recompute = TN_RECOMPUTE_FULL,
                               .n_groups = 1,
                               .groups = &group,
                               .group_of = group_of,
                               .max_norm = 1,
                               .compute = TN_F32};
    switch (i) {
    case 0:
        for (int64_t k = 0; k < g->n_nodes; k++)
            if (g->nodes[k].op == TN_OP_loss_sum)
                return tn_pass_differentiate(g, g->nodes[k].out0, out);
        TN_FAIL(TN_BAD_INPUT, "no loss");
    case 1:
        return tn_pass_lower(g, out);
    case 2:
        return tn_pass_fuse(g, out);
    case 3:
        return tn_pass_storage(g, &o, out);
    default:
        return tn_pass_recompute(g, &o, out);
    }
}

typedef struct one_pass {
    int pass;
    const tn_graph *in;
} one_pass;

static tn_status pass(void *arg)
{
    const one_pass *a = arg;
    tn_graph *out = NULL;
    int64_t nodes = a->in->n_nodes, values = a->in->n_values, operands = a->in->n_operands;
    tn_status st = run_pass(a->pass, a->in, &out);
    TN_CHECK(a->in->n_nodes == nodes && a->in->n_values == values && a->in->n_operands == operands);
    TN_CHECK((st == TN_OK) == (out != NULL)); /* results only on success */
    tn_graph_destroy(out);
    return st;
}

/* ------------------------------------------------------------ programs */

/* From a copy: the program takes its graph over, also when it fails. */
static tn_status plan(const tn_graph *in, tn_program **out)
{
    const tn_pass_options o = {.recompute = TN_RECOMPUTE_NONE};
    tn_graph *g;
    TN_TRY(tn_pass_recompute(in, &o, &g));
    return tn_program_build(g, NULL, 0, 0, NULL, out);
}

static tn_status plan_and_verify(void *arg)
{
    tn_program *p = NULL;
    tn_status st = plan(arg, &p);
    TN_CHECK((st == TN_OK) == (p != NULL));
    if (!st) st = tn_program_verify(p);
    tn_program_destroy(p);
    return st;
}

static tn_status execute(void *arg)
{
    const tn_program *p = arg;
    const tn_device_options o = {.threads = 2, .isa = tn_isa_best()};
    const tn_step step = {1, 1};
    tn_device *d = NULL;
    tn_memory *m = NULL;
    tn_exec *e = NULL;
    tn_status st = tn_device_cpu_create(&o, &d);
    if (!st) st = tn_memory_create(d, NULL, 0, &p, 1, &m);
    if (!st) st = tn_exec_create(m, p, &e);
    if (!st) st = tn_init_states(e, 1, false);
    if (!st) st = tn_exec_run(e, TN_EXEC_ALL, &step);
    if (!st) TN_CHECK(tn_train_loss(e) > 0);
    tn_exec_destroy(e);
    tn_memory_destroy(m);
    tn_device_destroy(d);
    return st;
}

/* From a recipe to memory, executors and data. */
static tn_status open_session(void *arg)
{
    tn_recipe *r;
    tn_session s = {0};
    TN_TRY(open_text(arg, &r));
    tn_status st = tn_session_plan(r, false, 0, &s);
    if (!st) st = tn_session_ready(&s);
    tn_session_close(&s);
    return st;
}

/* Some of Lua's, which collects its garbage and asks again, and the last ones: memory, executors,
 * data. */
static void fail_session(void)
{
    int64_t total = count("a session", open_session, recipe);
    for (int64_t n = 1; n < total - 60; n += total / 20)
        fail_at("a session", open_session, recipe, n, true);
    for (int64_t n = total - 60; n <= total && total > 0; n++)
        fail_at("a session", open_session, recipe, n, false);
}

/* ------------------------------------------------------------ all of it */

static bool traced_text(tn_text *out)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    o.rows = o.n_microbatches = o.chunk_rows = 1;
    o.seq = o.chunk_seq = 8;
    bool ok =
        TN_CHECK_OK(trace_with(recipe, &o, &f)) && TN_CHECK_OK(tn_graph_print(f.t.g, NULL, out));
    fini(&f);
    return ok;
}

int main(void)
{
    tn_text text = {0};
    tn_graph *g = NULL;
    tn_program *p = NULL;
    bool ok = traced_text(&text) && TN_CHECK_OK(parse(&text, &g));
    if (ok) fail_in_turn("reading and printing a graph", read_and_print, &text);
    for (int i = 0; i < TN_COUNT(passes) && ok; i++) {
        tn_graph *next = NULL;
        fail_in_turn(passes[i], pass, &(one_pass){i, g});
        ok = TN_CHECK_OK(run_pass(i, g, &next));
        tn_graph_destroy(g);
        g = next;
    }
    if (ok) fail_in_turn("planning", plan_and_verify, g);
    if (ok && TN_CHECK_OK(plan(g, &p))) fail_in_turn("running", execute, p);
    fail_session();
    tn_program_destroy(p);
    tn_graph_destroy(g);
    tn_text_fini(&text);
    return tn_test_done("allocations");
}
