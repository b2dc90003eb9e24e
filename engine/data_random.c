/* data_random.c - ids uniform over the vocabulary, without end: token t of sample i is number t of
 * Philox stream i.
 *
 * About 20 ns a token, nothing beside a training step, and no file is needed: what speed
 * measurements want. */
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/data_source.h"

#include <string.h>

typedef struct noise {
    tn_rng rng;
    int64_t seq_len;
    uint64_t vocab_size;
} noise;

static tn_status open_random(const tn_data_options *o, void **state, tn_data_info *info,
                             int64_t end[TN_DATA_N_SPLITS])
{
    void *mem;
    TN_TRY(tn_data_refuse(o, "path", o->n_paths != 0, "random ids come from no file"));
    TN_TRY(tn_data_refuse(o, "packing", o->packing && strcmp(o->packing, "stream") != 0,
                          "random ids have no documents"));
    TN_TRY(
        tn_data_refuse(o, "validation", o->validation != 0, "random ids have nothing to hold out"));
    TN_TRY(tn_data_refuse(o, "epochs", o->epochs != 0, "random ids never repeat"));
    TN_TRY(tn_alloc(sizeof(noise), &mem));
    noise *n = mem;
    n->rng = tn_rng_make(o->seed, "data.random", 0);
    n->seq_len = o->seq_len;
    n->vocab_size = (uint64_t)o->vocab_size;
    info->documents[TN_DATA_TRAIN] = info->documents[TN_DATA_VALIDATION] = -1;
    end[TN_DATA_TRAIN] = INT64_MAX;
    end[TN_DATA_VALIDATION] = 0;
    *state = n;
    return TN_OK;
}

static void draw(const noise *n, int64_t sample, int64_t first, int64_t count, int32_t *out)
{
    tn_rng rng = n->rng;
    rng.stream = (uint64_t)sample;
    for (int64_t s = 0; s < count; s++)
        out[s] = (int32_t)tn_rng_below(rng, (uint64_t)(first + s), n->vocab_size);
}

static tn_status random_row(void *state, tn_data_split split, int64_t sample,
                            const tn_data_row *out)
{
    const noise *n = state;
    int64_t rest = n->seq_len - 1; /* labels that are ids of the same row */
    (void)split;                   /* there is only training */
    tn_data_plain(out, n->seq_len);
    if (out->ids_s) draw(n, sample, 0, n->seq_len, out->ids_s);
    if (!out->labels_s) return TN_OK;
    if (out->ids_s) memcpy(out->labels_s, out->ids_s + 1, (size_t)rest * sizeof *out->labels_s);
    else draw(n, sample, 1, rest, out->labels_s);
    draw(n, sample, n->seq_len, 1, out->labels_s + rest);
    return TN_OK;
}

const tn_data_source tn_data_random = {
    .name = "random", .open = open_random, .close = tn_free, .row = random_row};
