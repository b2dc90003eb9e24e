#include "lua/decoder.h"

#include "engine/base/text.h"
#include "engine/exec.h"
#include "engine/init.h"
#include "lua/session.h"
#include "lua/weights.h"

#include <string.h>

enum { PREFILL = 64 }; /* positions of a block */

typedef struct half { /* one of the two programs */
    tn_programs programs;
    tn_exec *e;
    int32_t *tokens, *positions;
    int64_t seq;
} half;

struct tn_decoder {
    tn_device *device;
    tn_memory *memory;
    half decode, prefill;
    const half *filled; /* whose keys lie in the inputs, which both share */
    int64_t rows, positions, vocab;
};

static tn_status build(tn_recipe *r, tn_build_kind kind, int64_t seq, const tn_decoder *d, half *h)
{
    tn_build_options o = {.kind = kind,
                          .shape = {.dp = 1,
                                    .rows = d->rows,
                                    .seq = seq,
                                    .cache = d->positions,
                                    .n_microbatches = 1,
                                    .rounds = 1}};
    h->seq = seq;
    TN_TRY(tn_build_mesh(r, 1, &o.shape.mesh));
    return tn_build_programs(r, &o, &h->programs);
}

static tn_status check_memory(const tn_decoder *d)
{
    int64_t need = 0, have = tn_device_memory_bytes(), most = 0;
    const half *both[2] = {&d->decode, &d->prefill};
    for (int i = 0; i < 2; i++) {
        const tn_program *p = both[i]->programs.of[0];
        int64_t step = p->region_bytes[TN_REGION_STEP] + p->region_bytes[TN_REGION_PLAN];
        if (step > most) most = step;
    }
    need = d->decode.programs.of[0]->region_bytes[TN_REGION_PROCESS] + most;
    if (need <= have) return TN_OK;
    TN_FAIL(
        TN_BAD_INPUT,
        "memory: %lld sequences of %lld tokens need %s, this machine has %s; fewer prompts, or a "
        "smaller --max-tokens",
        (long long)d->rows, (long long)d->positions, tn_text_bytes(need).s, tn_text_bytes(have).s);
}

/* Keys lie at their positions, in one document. */
static tn_status bind(tn_decoder *d, half *h)
{
    TN_TRY(tn_exec_create(d->memory, h->programs.of[0], &h->e));
    h->tokens = tn_exec_named(h->e, "tokens", NULL);
    h->positions = tn_exec_named(h->e, "positions", NULL);
    if (!h->tokens || !h->positions)
        TN_FAIL(TN_BAD_INPUT, "model: hidden(tokens, at) does not read its positions; a decoder "
                              "needs attention over at.positions");
    return TN_OK;
}

static void fill_keys(tn_decoder *d, const half *h)
{
    if (d->filled == h) return;
    d->filled = h;
    int32_t *at = tn_exec_named(h->e, "key_positions", NULL),
            *document = tn_exec_named(h->e, "key_documents", NULL),
            *own = tn_exec_named(h->e, "documents", NULL);
    for (int64_t i = 0; i < d->rows * d->positions; i++) {
        at[i] = (int32_t)(i % d->positions);
        document[i] = 0;
    }
    memset(own, 0, (size_t)(d->rows * h->seq) * sizeof *own);
}

static tn_status open_all(tn_recipe *r, const char *hf, tn_decoder *d)
{
    tn_world world = {.size = 1, .local_size = 1, .control_fd = -1};
    int64_t block = d->positions < PREFILL ? d->positions : PREFILL;
    TN_TRY(tn_session_device(r, &world, &d->device));
    TN_TRY(build(r, TN_BUILD_DECODE, 1, d, &d->decode));
    TN_TRY(build(r, TN_BUILD_PREFILL, block, d, &d->prefill));
    TN_TRY(check_memory(d));
    const tn_program *programs[2] = {d->decode.programs.of[0], d->prefill.programs.of[0]};
    const tn_value *logits = &programs[0]->g->values[d->decode.programs.result];
    d->vocab = logits->dim[logits->rank - 1].extent;
    TN_TRY(tn_memory_create(d->device, NULL, 0, programs, 2, &d->memory));
    TN_TRY(bind(d, &d->decode));
    TN_TRY(bind(d, &d->prefill));
    TN_TRY(tn_init_states(d->decode.e, (uint64_t)tn_recipe_int(r, "training.seed"), hf != NULL));
    return hf ? tn_weights_load(r, &d->decode.programs, d->decode.e, hf) : TN_OK;
}

tn_status tn_decoder_open(tn_recipe *r, int64_t rows, int64_t positions, const char *hf,
                          tn_decoder **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_decoder), &mem));
    tn_decoder *d = mem;
    d->rows = rows;
    d->positions = positions;
    tn_status st = open_all(r, hf, d);
    if (st) {
        tn_decoder_close(d);
        return st;
    }
    *out = d;
    return TN_OK;
}

void tn_decoder_close(tn_decoder *d)
{
    if (!d) return;
    tn_exec_destroy(d->decode.e);
    tn_exec_destroy(d->prefill.e);
    tn_memory_destroy(d->memory);
    tn_build_destroy(&d->decode.programs);
    tn_build_destroy(&d->prefill.programs);
    tn_device_destroy(d->device);
    tn_free(d);
}

int64_t tn_decoder_vocab(const tn_decoder *d)
{
    return d->vocab;
}

/* A row that has no more tokens reads its last one again, at its place. */
tn_status tn_decoder_prefill(tn_decoder *d, const int32_t *const *ids, const int64_t *n)
{
    half *h = &d->prefill;
    int64_t most = 0;
    for (int64_t r = 0; r < d->rows; r++)
        if (n[r] - 1 > most) most = n[r] - 1;
    fill_keys(d, h);
    for (int64_t first = 0; first < most; first += h->seq) {
        for (int64_t r = 0; r < d->rows; r++)
            for (int64_t i = 0; i < h->seq; i++) {
                int64_t last = n[r] > 1 ? n[r] - 2 : 0, at = first + i < last ? first + i : last;
                h->tokens[r * h->seq + i] = ids[r][at];
                h->positions[r * h->seq + i] = (int32_t)at;
            }
        TN_TRY(tn_exec_run(h->e, TN_EXEC_ALL, NULL));
    }
    return TN_OK;
}

tn_status tn_decoder_step(tn_decoder *d, const int32_t *ids, const int32_t *positions,
                          const float **logits)
{
    half *h = &d->decode;
    fill_keys(d, h);
    memcpy(h->tokens, ids, (size_t)d->rows * sizeof *ids);
    memcpy(h->positions, positions, (size_t)d->rows * sizeof *positions);
    TN_TRY(tn_exec_run(h->e, TN_EXEC_ALL, NULL));
    *logits = tn_exec_value(h->e, h->programs.result);
    return TN_OK;
}
