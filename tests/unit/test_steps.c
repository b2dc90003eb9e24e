/* Whole steps of small models: every way to run the same step gives the same bits, and no step
 * allocates.
 *
 * Each model is traced, printed, read back, and the graph that was read goes through the passes. */
#include "engine/device.h"
#include "engine/exec.h"
#include "engine/init.h"
#include "engine/train.h"
#include "graph/passes.h"
#include "graph/text.h"
#include "lua/session.h"
#include "tests/traced.h"

#include <malloc.h>
#include <stdlib.h>

enum { BATCH = 4, SEQ = 24, VOCAB = 37, STEPS = 3 };

static const char *const models[] = {
    "return require('titan').recipe { model = require('models.llama3').debug { n_layers = 2, dim = "
    "40, n_heads = 4, n_kv_heads = 2, "
    "ffn_dim = 56, vocab_size = 37, rope = { theta = 1e4 } } }",
    "return require('titan').recipe { model = require('models.llama3').debug { n_layers = 2, dim = "
    "36, n_heads = 3, n_kv_heads = 3, "
    "ffn_dim = 20, vocab_size = 37, tied = true, rope = { theta = 1e4 } } }"};

typedef struct way { /* of running the same step */
    const char *name;
    int64_t rows, chunks;
    bool fuse;
    tn_recompute recompute;
    int threads;
    tn_isa isa;
    tn_optimizer optimizer;
} way;

typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
    unsigned char *params;
    int64_t n_params; /* bytes */
    int64_t step_bytes;
    int fused, cloned; /* nodes that the passes made */
} outcome;

/* ------------------------------------------------------------ graphs */

static tn_status printed_and_read(tn_graph *g, tn_graph **out)
{
    tn_text text = {0};
    tn_status st = tn_graph_print(g, NULL, &text);
    if (!st) st = tn_graph_parse("printed.graph", tn_text_str(&text), (size_t)text.n_bytes, out);
    tn_text_fini(&text);
    return st;
}

static tn_status traced(const char *model, const way *w, tn_graph **out)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    o.rows = w->rows;
    o.seq = o.chunk_seq = SEQ;
    o.n_microbatches = BATCH / w->rows;
    o.chunk_rows = w->rows % w->chunks ? 1 : w->rows / w->chunks;
    if (w->rows % w->chunks) o.chunk_seq = SEQ * w->rows / w->chunks;
    tn_status st = trace_with(model, &o, &f);
    if (!st) {
        f.t.g->n_chunks = w->chunks;
        st = printed_and_read(f.t.g, out);
    }
    fini(&f);
    return st;
}

static int group_of(void *user, const char *param)
{
    (void)user;
    return strstr(param, "norm") ? 1 : 0;
}

typedef tn_status (*pass)(const tn_graph *in, const tn_pass_options *o, tn_graph **out);

static tn_status differentiate(const tn_graph *in, const tn_pass_options *o, tn_graph **out)
{
    (void)o;
    for (int64_t i = 0; i < in->n_nodes; i++)
        if (in->nodes[i].op == TN_OP_loss_sum)
            return tn_pass_differentiate(in, in->nodes[i].out0, out);
    TN_FAIL(TN_FAILED, "no loss");
}

static tn_status lower(const tn_graph *in, const tn_pass_options *o, tn_graph **out)
{
    (void)o;
    return tn_pass_lower(in, out);
}

static tn_status fuse(const tn_graph *in, const tn_pass_options *o, tn_graph **out)
{
    (void)o;
    return tn_pass_fuse(in, out);
}

static tn_status program_of(const char *model, const way *w, outcome *r, tn_program **out)
{
    static const tn_optimizer_group groups[] = {{"", 0.02, 0.9, 0.95, 1e-8, 0.1, 0.9},
                                                {"norm", 0.01, 0.9, 0.95, 1e-8, 0, 0.5}};
    const tn_pass_options o = {.recompute = w->recompute,
                               .optimizer = w->optimizer,
                               .n_groups = 2,
                               .groups = groups,
                               .group_of = group_of,
                               .max_norm = 0.5,
                               .compute = TN_F32};
    const pass all[] = {differentiate, lower, w->fuse ? fuse : NULL, tn_pass_storage,
                        tn_pass_recompute};
    tn_graph *g, *next;
    TN_TRY(traced(model, w, &g));
    for (int i = 0; i < TN_COUNT(all); i++) {
        if (!all[i]) continue;
        tn_status st = all[i](g, &o, &next);
        if (!st && all[i] == tn_pass_recompute) r->cloned = (int)(next->n_nodes - g->n_nodes);
        tn_graph_destroy(g);
        TN_TRY(st);
        g = next;
    }
    r->fused = count_op(g, TN_OP_fused) + count_op(g, TN_OP_linear_add);
    TN_TRY(tn_program_build(g, NULL, 0, 0, NULL, out));
    r->step_bytes = (*out)->region_bytes[TN_REGION_STEP];
    return tn_program_verify(*out);
}

/* ------------------------------------------------------------ running */

static uint32_t next_random(uint32_t *state)
{
    return *state = *state * 1664525u + 1013904223u;
}

/* Documents of uneven lengths, positions from 0 in each, no target at their ends. */
static void fill_inputs(const tn_exec *e, uint32_t seed)
{
    int32_t *tokens = tn_exec_named(e, "tokens", NULL), *labels = tn_exec_named(e, "labels", NULL),
            *positions = tn_exec_named(e, "positions", NULL),
            *documents = tn_exec_named(e, "documents", NULL);
    for (int64_t row = 0; row < BATCH; row++)
        for (int32_t i = 0, pos = 0, doc = 0; i < SEQ; i++, pos++) {
            int64_t at = row * SEQ + i;
            bool end = (next_random(&seed) >> 16) % 9 == 0;
            tokens[at] = (int32_t)((next_random(&seed) >> 16) % VOCAB);
            labels[at] = end ? -100 : (int32_t)((next_random(&seed) >> 16) % VOCAB);
            positions[at] = pos;
            documents[at] = doc;
            if (!end) continue;
            pos = -1;
            doc++;
        }
}

static void take_params(const tn_exec *e, outcome *r)
{
    const tn_graph *g = tn_exec_program(e)->g;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op != TN_OP_state) continue;
        int32_t v = g->nodes[i].out0;
        int64_t n = tn_value_elements(&g->values[v]) * 4;
        r->params = realloc(r->params, (size_t)(r->n_params + n));
        memcpy(r->params + r->n_params, tn_exec_value(e, v), (size_t)n);
        r->n_params += n;
    }
}

static tn_status run(const char *model, const way *w, outcome *r)
{
    tn_program *p = NULL;
    tn_device *d = NULL;
    tn_memory *m = NULL;
    tn_exec *e = NULL;
    const tn_device_options o = {.threads = w->threads, .isa = w->isa};
    tn_status st = program_of(model, w, r, &p);
    const tn_program *programs[1] = {p};
    if (!st) st = tn_device_cpu_create(&o, &d);
    if (!st) st = tn_memory_create(d, NULL, 0, programs, 1, &m);
    if (!st) st = tn_exec_create(m, p, &e);
    if (!st) st = tn_init_states(e, 5, false);
    for (int i = 0; i < STEPS && !st; i++) {
        const tn_step step = {i + 1, 1.0 / (i + 1)};
        fill_inputs(e, (uint32_t)i + 1);
        st = tn_exec_run(e, TN_EXEC_ALL, &step);
        r->loss[i] = tn_train_loss(e);
        r->norm[i] = tn_train_grad_norm(e);
    }
    if (!st) take_params(e, r);
    tn_exec_destroy(e);
    tn_memory_destroy(m);
    tn_device_destroy(d);
    tn_program_destroy(p);
    return st;
}

static bool same(const outcome *a, const outcome *b)
{
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm) &&
           a->n_params == b->n_params && a->n_params > 0 &&
           !memcmp(a->params, b->params, (size_t)a->n_params);
}

static void test_ways(const char *model, tn_optimizer optimizer)
{
    const tn_isa best = tn_isa_best();
    const way plain = {"plain", BATCH, 1, false, TN_RECOMPUTE_NONE, 1, best, optimizer};
    const way ways[] = {
        {"fused", BATCH, 1, true, TN_RECOMPUTE_NONE, 1, best, optimizer},
        {"full recompute", BATCH, 1, false, TN_RECOMPUTE_FULL, 1, best, optimizer},
        {"fused, full recompute", BATCH, 1, true, TN_RECOMPUTE_FULL, 2, best, optimizer},
        {"fused, products kept", BATCH, 1, true, TN_RECOMPUTE_OP, 2, best, optimizer},
        {"4 microbatches, products kept", 1, 2, false, TN_RECOMPUTE_OP, 1, best, optimizer},
        {"2 microbatches", 2, 1, true, TN_RECOMPUTE_NONE, 1, best, optimizer},
        {"4 microbatches, full recompute", 1, 1, true, TN_RECOMPUTE_FULL, 1, best, optimizer},
        {"2 chunks", BATCH, 2, true, TN_RECOMPUTE_NONE, 2, best, optimizer},
        {"8 chunks, parts of rows", BATCH, 8, true, TN_RECOMPUTE_NONE, 1, best, optimizer},
        {"2 microbatches of 4 chunks", 2, 4, false, TN_RECOMPUTE_FULL, 1, best, optimizer},
        {"4 microbatches of 8 chunks", 1, 8, true, TN_RECOMPUTE_NONE, 2, best, optimizer},
        {"portable", BATCH, 1, true, TN_RECOMPUTE_NONE, 2, TN_ISA_PORTABLE, optimizer},
        {"avx2", 2, 2, true, TN_RECOMPUTE_FULL, 1, TN_ISA_AVX2, optimizer}};
    outcome base = {0};
    if (!TN_CHECK_OK(run(model, &plain, &base))) return;
    TN_CHECK_MSG(base.loss[0] > 3 && base.loss[0] < 50 && base.norm[0] > 0, "loss %g, grad_norm %g",
                 base.loss[0], (double)base.norm[0]);
    TN_CHECK(base.loss[1] != base.loss[0] && base.loss[2] != base.loss[1] && base.fused == 0 &&
             base.cloned == 0);
    for (int i = 0; i < TN_COUNT(ways); i++) {
        outcome r = {0};
        if (!tn_isa_usable(ways[i].isa)) continue;
        if (TN_CHECK_MSG(run(model, &ways[i], &r) == TN_OK, "%s: %s", ways[i].name,
                         tn_error_text())) {
            TN_CHECK_MSG(same(&base, &r), "%s: other bits: loss %a %a, grad_norm %a %a",
                         ways[i].name, r.loss[STEPS - 1], base.loss[STEPS - 1],
                         (double)r.norm[STEPS - 1], (double)base.norm[STEPS - 1]);
            TN_CHECK_MSG((r.fused > 0) == ways[i].fuse, "%s: %d nodes were fused", ways[i].name,
                         r.fused);
            TN_CHECK_MSG((r.cloned > 0) == (ways[i].recompute != TN_RECOMPUTE_NONE),
                         "%s: %d nodes were cloned", ways[i].name, r.cloned);
            if (i == 1)
                TN_CHECK_MSG(r.step_bytes < base.step_bytes, "recompute: %lld bytes, without %lld",
                             (long long)r.step_bytes, (long long)base.step_bytes);
        }
        free(r.params);
    }
    free(base.params);
}

/* ---------------------------------------------------------------------------------------------- no
 * step allocates */

static const char training[] =
    "return require('titan').recipe { device = { kind = 'cpu', threads = 2 }, model = "
    "require('models.llama3').debug { n_layers = 2, dim = 40, n_heads = 4, "
    "n_kv_heads = 2, ffn_dim = 56, vocab_size = 256 }, data = { source = 'text', path = "
    "'README.md', validation = 0.2 }, "
    "validation = { enable = true, freq = 1, steps = 1 }, "
    "training = { steps = 3, seq_len = 32, local_batch_size = 2, global_batch_size = 4 } }";

typedef struct counted {
    int64_t allocations[STEPS + 1], heap[STEPS + 1];
    int n;
} counted;

static void count_now(counted *c)
{
    c->allocations[c->n] = tn_mem_count();
    c->heap[c->n++] = (int64_t)mallinfo2().uordblks;
}

static tn_status on_step(void *user, const tn_train_report *r)
{
    TN_CHECK(r->valid_tokens > 0 && isfinite(r->loss));
    count_now(user);
    return TN_OK;
}

static void test_no_allocation(void)
{
    tn_recipe *recipe;
    tn_session s = {0};
    counted c = {0};
    if (!TN_CHECK_OK(open_text(training, &recipe))) return;
    if (TN_CHECK_OK(tn_session_plan(recipe, false, 0, &s)) && TN_CHECK_OK(tn_session_ready(&s))) {
        const tn_lr_options lr = {.steps = STEPS, .decay_ratio = -1};
        tn_train_options o = {.train = s.train_exec,
                              .eval = s.eval_exec,
                              .data = s.data,
                              .validation = s.data,
                              .steps = STEPS,
                              .global_batch = s.global_batch,
                              .seq = s.shape.seq,
                              .validate_every = 1,
                              .validate_steps = 1,
                              .user = &c,
                              .on_step = on_step};
        TN_CHECK_OK(tn_lr_init(&lr, &o.lr));
        count_now(&c);
        TN_CHECK_OK(tn_train_run(&o));
        TN_CHECK(c.n == STEPS + 1 && c.allocations[0] > 100);
        int64_t blocks = tn_mem_count(), bytes = (int64_t)mallinfo2().uordblks;
        TN_CHECK_MSG(blocks == c.allocations[0], "%lld allocations in %d steps",
                     (long long)(blocks - c.allocations[0]), STEPS);
        TN_CHECK_MSG(bytes == c.heap[0], "the heap grew by %lld bytes in %d steps",
                     (long long)(bytes - c.heap[0]), STEPS);
    }
    tn_session_close(&s);
}

int main(void)
{
    test_ways(models[0], TN_OPTIMIZER_ADAMW);
    test_ways(models[1], TN_OPTIMIZER_SGD);
    test_no_allocation();
    return tn_test_done("steps");
}
