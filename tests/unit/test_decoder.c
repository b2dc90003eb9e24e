/* A decoder's logits are those of the full forward, to the bit, at every position, for rows of
 * different lengths; and what is drawn from logits. */
#include "engine/exec.h"
#include "engine/init.h"
#include "engine/sample.h"
#include "lua/decoder.h"
#include "lua/session.h"
#include "tests/programs.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 3, POSITIONS = 90, MAX_VOCAB = 512 };

static uint64_t state = 5;

static uint64_t draw(uint64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}

static tn_status open_recipe(const char *const *overrides, tn_recipe **out)
{
    tn_recipe_options o = {
        .text = tiny_recipe, .name = "r.lua", .overrides = overrides, .host = {.share = "."}};
    while (overrides[o.n_overrides]) o.n_overrides++;
    return tn_recipe_open(&o, out);
}

/* Logits of all positions by the program without a cache. */
static tn_status full(tn_recipe *r, const int32_t *ids, float *out)
{
    tn_world world = {.size = 1, .local_size = 1, .control_fd = -1};
    tn_device *device;
    tn_programs all;
    tn_memory *memory;
    tn_exec *e;
    tn_build_options o = {
        .kind = TN_BUILD_LOGITS,
        .shape = {.dp = 1, .rows = ROWS, .seq = POSITIONS, .n_microbatches = 1, .rounds = 1}};
    TN_TRY(tn_session_device(r, &world, &device));
    TN_TRY(tn_build_mesh(r, 1, &o.shape.mesh));
    TN_TRY(tn_build_programs(r, &o, &all));
    const tn_program *p = all.of[0];
    TN_TRY(tn_memory_create(device, NULL, 0, &p, 1, &memory));
    TN_TRY(tn_exec_create(memory, p, &e));
    TN_TRY(tn_init_states(e, (uint64_t)tn_recipe_int(r, "training.seed"), false));
    memcpy(tn_exec_named(e, "tokens", NULL), ids, ROWS * POSITIONS * sizeof *ids);
    int32_t *at = tn_exec_named(e, "positions", NULL),
            *document = tn_exec_named(e, "documents", NULL);
    for (int i = 0; i < ROWS * POSITIONS; i++) {
        at[i] = i % POSITIONS;
        document[i] = 0;
    }
    TN_TRY(tn_exec_run(e, TN_EXEC_ALL, NULL));
    memcpy(out, tn_exec_value(e, all.result),
           sizeof(float) * (size_t)tn_value_elements(&p->g->values[all.result]));
    tn_exec_destroy(e);
    tn_memory_destroy(memory);
    tn_build_destroy(&all);
    tn_device_destroy(device);
    return TN_OK;
}

/* Rows begin with 1, 40 and 70 tokens and go on, each at its own positions. */
static void test_logits(const char *const *overrides, int64_t vocab)
{
    static const int64_t begins[ROWS] = {1, 40, 70};
    static float whole[ROWS * POSITIONS * MAX_VOCAB];
    int32_t ids[ROWS * POSITIONS];
    const int32_t *rows[ROWS];
    tn_recipe *r;
    tn_decoder *d;
    for (int i = 0; i < ROWS * POSITIONS; i++) ids[i] = (int32_t)draw((uint64_t)vocab);
    for (int i = 0; i < ROWS; i++) rows[i] = ids + i * POSITIONS;
    if (!TN_CHECK_OK(open_recipe(overrides, &r))) return;
    if (!TN_CHECK_OK(full(r, ids, whole)) ||
        !TN_CHECK_OK(tn_decoder_open(r, ROWS, POSITIONS, NULL, &d))) {
        tn_recipe_close(r);
        return;
    }
    TN_CHECK(tn_decoder_vocab(d) == vocab);
    TN_CHECK_OK(tn_decoder_prefill(d, rows, begins));
    for (int64_t step = 0; step < POSITIONS; step++) {
        int32_t next[ROWS], at[ROWS];
        const float *logits;
        for (int i = 0; i < ROWS; i++) {
            int64_t p = begins[i] - 1 + step < POSITIONS ? begins[i] - 1 + step : POSITIONS - 1;
            at[i] = (int32_t)p;
            next[i] = rows[i][p];
        }
        if (!TN_CHECK_OK(tn_decoder_step(d, next, at, &logits))) break;
        for (int i = 0; i < ROWS; i++)
            TN_CHECK_MSG(!memcmp(logits + i * vocab, whole + (i * POSITIONS + at[i]) * vocab,
                                 (size_t)vocab * sizeof(float)),
                         "row %d, position %d: other logits than the full forward's", i, at[i]);
    }
    tn_decoder_close(d);
    tn_recipe_close(r);
}

/* ------------------------------------------------------------ drawing */

static void test_sample(void)
{
    const float x[6] = {1.0f, 3.0f, -2.0f, 3.0f, 2.0f, NAN};
    int32_t order[6];
    int64_t counts[6] = {0};
    tn_sample_options o = {0, 0, 1};
    TN_CHECK(tn_sample_draw(x, 6, &o, tn_rng_make(1, "x", 0), 0, order) == 1);
    o.temperature = 1;
    o.top_k = 1;
    for (uint64_t i = 0; i < 20; i++)
        TN_CHECK(tn_sample_draw(x, 6, &o, tn_rng_make(1, "x", 0), i, order) == 1);
    o.top_k = 3;
    for (uint64_t i = 0; i < 4000; i++)
        counts[tn_sample_draw(x, 6, &o, tn_rng_make(1, "x", 0), i, order)]++;
    TN_CHECK(!counts[0] && !counts[2] && !counts[5]);
    double sum = 2 * exp(3) + exp(2);
    TN_CHECK(fabs((double)counts[1] / 4000 - exp(3) / sum) < 0.03 &&
             fabs((double)counts[4] / 4000 - exp(2) / sum) < 0.03);
    o = (tn_sample_options){1, 0, 0.5}; /* two of 0.35 reach it */
    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i < 2000; i++)
        counts[tn_sample_draw(x, 6, &o, tn_rng_make(1, "x", 0), i, order)]++;
    TN_CHECK(counts[1] + counts[3] == 2000 && counts[1] > 900 && counts[3] > 900);
    o = (tn_sample_options){100, 0, 1};
    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i < 4000; i++)
        counts[tn_sample_draw(x, 6, &o, tn_rng_make(1, "x", 0), i, order)]++;
    TN_CHECK(counts[2] > 600 && !counts[5]);
    TN_CHECK(tn_sample_draw(x, 6, &o, tn_rng_make(1, "x", 0), 7, order) ==
             tn_sample_draw(x, 6, &o, tn_rng_make(1, "x", 0), 7, order));
}

int main(void)
{
    static const char *const plain[] = {NULL},
                             *const tied[] = {"model.tied=true", "device.threads=2", NULL},
                             *const shared[] = {"model.n_kv_heads=1", "device.isa=portable", NULL};
    test_logits(plain, 40);
    test_logits(tied, 40);
    test_logits(shared, 40);
    test_sample();
    return tn_test_done("decoder");
}
