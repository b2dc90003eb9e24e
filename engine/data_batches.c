/* data_batches.c - exact batches from a safetensors file: step s is entry s of [N, global_batch,
 * seq_len].
 *
 * Values are checked once, at open, and read from the mapped file afterwards. */
#include "checkpoints/safetensors.h"
#include "engine/base/mem.h"
#include "engine/data_source.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { IDS, LABELS, POSITIONS, DOCUMENTS, N_TENSORS };

#ifdef TN_HOSTILE
enum { CHUNK = 7 }; /* values that are checked at once */
#else
enum { CHUNK = 1024 };
#endif

typedef struct batches {
    tn_safetensors *file;
    const tn_safetensors_tensor *tensors[N_TENSORS]; /* positions and documents may be NULL */
    int64_t seq_len;
    int64_t samples[TN_DATA_N_SPLITS]; /* training first, the held-out batches behind them */
} batches;

/* What a tensor's values may be: low .. high - 1, or no_target. */
typedef struct range {
    const char *name;
    int64_t high;
    bool may_lack; /* the tensor may be absent */
    bool may_skip; /* TN_DATA_NO_TARGET is fine */
    const char *limit;
} range;

static void close_batches(void *state)
{
    batches *b = state;
    if (!b) return;
    tn_safetensors_close(b->file);
    tn_free(b);
}

/* ------------------------------------------------------------ opening */

static tn_status check_shape(const tn_data_options *o, const tn_safetensors_tensor *t, int64_t n)
{
    char text[128];
    bool fits = t->rank == 3 && t->shape[0] > 0 && (n < 0 || t->shape[0] == n) &&
                t->shape[1] == o->global_batch && t->shape[2] == o->seq_len;
    if (fits) return TN_OK;
    tn_safetensors_shape_text(t->rank, t->shape, text, sizeof text);
    if (t->rank == 3 && n >= 0 && t->shape[0] != n)
        TN_FAIL(TN_BAD_INPUT,
                "%s.path: '%s': %s is %s, and input_ids has %lld batches; write as many of each",
                o->section, t->where, t->name, text, (long long)n);
    TN_FAIL(TN_BAD_INPUT,
            "%s.path: '%s': %s is %s, and the recipe asks for [N, %lld, %lld] (N >= 1 batches, "
            "training.global_batch_size, training.seq_len); set these to what the file holds",
            o->section, t->where, t->name, text, (long long)o->global_batch, (long long)o->seq_len);
}

static tn_status check_values(const tn_data_options *o, const tn_safetensors_tensor *t,
                              const range *r)
{
    int32_t values[CHUNK];
    int64_t row = o->seq_len, batch = row * o->global_batch;
    for (int64_t begin = 0; begin < t->n; begin += CHUNK) {
        int64_t n = t->n - begin < CHUNK ? t->n - begin : CHUNK;
        TN_TRY_WHILE(tn_safetensors_to_i32(t, begin, n, values), "reading %s.path",
                     o->section);
        for (int64_t i = 0; i < n; i++) {
            int32_t v = values[i];
            if ((v >= 0 && v < r->high) || (r->may_skip && v == TN_DATA_NO_TARGET)) continue;
            int64_t at = begin + i;
            TN_FAIL(TN_BAD_INPUT, "%s.path: '%s': %s[%lld, %lld, %lld] is %d; use 0 to %lld (%s)%s",
                    o->section, t->where, t->name, (long long)(at / batch),
                    (long long)(at % batch / row), (long long)(at % row), v,
                    (long long)(r->high - 1), r->limit,
                    r->may_skip ? ", or -100 for no target" : "");
        }
    }
    return TN_OK;
}

static tn_status find_tensor(const tn_data_options *o, const range *r, batches *b,
                             const tn_safetensors_tensor **out)
{
    const tn_safetensors_tensor *t = tn_safetensors_find(b->file, r->name);
    if (!t && r->may_lack) return TN_OK;
    if (!t)
        TN_FAIL(TN_BAD_INPUT,
                "%s.path: '%s' has no tensor %s; a file of batches holds input_ids and labels",
                o->section, tn_safetensors_where(b->file), r->name);
    if (t->dtype != TN_SAFETENSORS_I32 && t->dtype != TN_SAFETENSORS_I64)
        TN_FAIL(TN_BAD_INPUT, "%s.path: '%s': %s is %s; write it as I32 or I64", o->section,
                t->where, t->name, tn_safetensors_dtype_name(t->dtype));
    TN_TRY(check_shape(o, t, b->tensors[IDS] ? b->tensors[IDS]->shape[0] : -1));
    TN_TRY(check_values(o, t, r));
    *out = t;
    return TN_OK;
}

static tn_status find_tensors(const tn_data_options *o, batches *b)
{
    const range ranges[N_TENSORS] = {
        [IDS] = {.name = "input_ids", .high = o->vocab_size, .limit = "model.vocab_size"},
        [LABELS] = {.name = "labels",
                    .high = o->vocab_size,
                    .limit = "model.vocab_size",
                    .may_skip = true},
        [POSITIONS] = {.name = "positions",
                       .high = o->seq_len,
                       .limit = "training.seq_len",
                       .may_lack = true},
        [DOCUMENTS] = {.name = "documents",
                       .high = o->seq_len,
                       .limit = "training.seq_len",
                       .may_lack = true},
    };
    for (int i = 0; i < N_TENSORS; i++) TN_TRY(find_tensor(o, &ranges[i], b, &b->tensors[i]));
    return TN_OK;
}

static tn_status split(const tn_data_options *o, batches *b, tn_data_info *info)
{
    int64_t n = b->tensors[IDS]->shape[0], held = (int64_t)floor((double)n * o->validation + 0.5);
    if (o->validation > 0 && held == 0)
        TN_FAIL(TN_BAD_INPUT, "%s.validation: %g of %lld batches is none; hold out %.2g or more",
                o->section, o->validation, (long long)n, 1.0 / (double)n);
    if (o->validation < 1 && held == n)
        TN_FAIL(TN_BAD_INPUT,
                "%s.validation: %g of %lld batches leaves none to train on; hold out less",
                o->section, o->validation, (long long)n);
    b->samples[TN_DATA_TRAIN] = (n - held) * o->global_batch;
    b->samples[TN_DATA_VALIDATION] = held * o->global_batch;
    info->files = 1;
    for (int i = 0; i < N_TENSORS; i++)
        info->mapped_bytes += b->tensors[i] ? b->tensors[i]->bytes : 0;
    for (int s = 0; s < TN_DATA_N_SPLITS; s++) {
        info->samples[s] = b->samples[s];
        info->tokens[s] = b->samples[s] * o->seq_len;
        info->documents[s] = -1;
    }
    return TN_OK;
}

static bool is_other(const char *value, const char *standard)
{
    return value && strcmp(value, standard) != 0;
}

static tn_status open_batches(const tn_data_options *o, void **state, tn_data_info *info,
                              int64_t end[TN_DATA_N_SPLITS])
{
    const char *why = "batches are exact data from outside, which names its own documents";
    tn_status st;
    void *mem;
    TN_TRY(tn_data_refuse(o, "packing", is_other(o->packing, "stream"), why));
    TN_TRY(tn_data_refuse(o, "document", is_other(o->document, "line"), why));
    if (o->n_paths != 1 || !o->paths[0].pattern)
        TN_FAIL(TN_BAD_INPUT, "%s.path: %lld files are given; name one safetensors file of batches",
                o->section, (long long)o->n_paths);

    TN_TRY(tn_alloc(sizeof(batches), &mem));
    batches *b = mem;
    b->seq_len = o->seq_len;
    st = tn_safetensors_open(o->paths[0].pattern, &b->file);
    if (st) st = tn_error_while(st, "opening %s.path", o->section);
    if (!st) st = find_tensors(o, b);
    if (!st) st = split(o, b, info);
    if (st) {
        close_batches(b);
        return st;
    }
    end[TN_DATA_TRAIN] = tn_data_times(b->samples[TN_DATA_TRAIN], o->epochs ? o->epochs : 1);
    end[TN_DATA_VALIDATION] = b->samples[TN_DATA_VALIDATION];
    *state = b;
    return TN_OK;
}

/* ------------------------------------------------------------ rows */

static void copy(const tn_safetensors_tensor *t, int64_t row, int64_t seq_len, int32_t *out)
{
    if (!t || !out) return;
    tn_status st = tn_safetensors_to_i32(t, row * seq_len, seq_len, out);
    assert(st == TN_OK); /* every value was converted at open */
    (void)st;
}

static tn_status batches_row(void *state, tn_data_split which, int64_t sample,
                             const tn_data_row *out)
{
    const batches *b = state;
    int64_t n_train = b->samples[TN_DATA_TRAIN];
    int64_t row = which == TN_DATA_TRAIN ? sample % n_train : n_train + sample;
    tn_data_plain(out, b->seq_len);
    copy(b->tensors[IDS], row, b->seq_len, out->ids_s);
    copy(b->tensors[LABELS], row, b->seq_len, out->labels_s);
    copy(b->tensors[POSITIONS], row, b->seq_len, out->positions_s);
    copy(b->tensors[DOCUMENTS], row, b->seq_len, out->documents_s);
    return TN_OK;
}

const tn_data_source tn_data_batches = {
    .name = "batches", .open = open_batches, .close = close_batches, .row = batches_row};
