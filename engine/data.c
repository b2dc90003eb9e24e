#include "engine/data.h"

#include "engine/base/mem.h"
#include "engine/base/text.h"
#include "engine/data_built.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct tn_data {
    const tn_data_source *source;
    void *state;
    tn_data_info info;
    int64_t end[TN_DATA_N_SPLITS];
    int64_t seq_len, global_batch, epochs;
    double validation;
    char section[32];
};

static const tn_data_source *const sources[] = {&tn_data_text, &tn_data_jsonl, &tn_data_tokens,
                                                &tn_data_batches, &tn_data_random};

/* ------------------------------------------------------------ helpers */

tn_status tn_data_choose(const tn_data_options *o, const char *key, const char *value,
                         const char *const *names, int n, int *out)
{
    tn_text list = {0};
    for (int i = 0; i < n; i++) {
        if (!value || strcmp(value, names[i]) == 0) {
            *out = i;
            return TN_OK;
        }
    }
    for (int i = 0; i < n; i++) tn_text_add(&list, "%s%s", i ? ", " : "", names[i]);
    tn_status st = tn_text_end(&list);
    if (!st)
        st = tn_error(TN_BAD_INPUT, "%s.%s: '%s' is unknown; use %s", o->section, key, value,
                      tn_text_str(&list));
    tn_text_fini(&list);
    return st;
}

tn_status tn_data_refuse(const tn_data_options *o, const char *key, bool is_set, const char *why)
{
    if (is_set) TN_FAIL(TN_BAD_INPUT, "%s.%s: %s; leave it out", o->section, key, why);
    return TN_OK;
}

void tn_data_plain(const tn_data_row *out, int64_t seq_len)
{
    if (out->documents_s) memset(out->documents_s, 0, (size_t)seq_len * sizeof *out->documents_s);
    if (!out->positions_s) return;
    for (int64_t s = 0; s < seq_len; s++) out->positions_s[s] = (int32_t)s;
}

int64_t tn_data_times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* ------------------------------------------------------------ weights */

/* All weights or none; *n_parts is 1 without. */
static tn_status check_weights(const tn_data_options *o, int64_t *n_parts)
{
    int64_t n_weights = 0;
    for (int64_t i = 0; i < o->n_paths; i++) {
        double w = o->paths[i].weight;
        if (!(w >= 0) || isinf(w))
            TN_FAIL(TN_BAD_INPUT, "%s.path: weight %g of '%s' cannot be; use a number above 0",
                    o->section, w, o->paths[i].pattern);
        n_weights += w > 0;
    }
    if (n_weights && n_weights < o->n_paths)
        TN_FAIL(
            TN_BAD_INPUT,
            "%s.path: %lld of %lld entries have a weight; give every entry one above 0, or none",
            o->section, (long long)n_weights, (long long)o->n_paths);
    if (n_weights > TN_MIXTURE_PERIOD)
        TN_FAIL(TN_BAD_INPUT, "%s.path: %lld entries with weights; use at most %d, or globs",
                o->section, (long long)n_weights, TN_MIXTURE_PERIOD);
    *n_parts = n_weights ? n_weights : 1;
    return TN_OK;
}

tn_status tn_data_mix(const tn_data_options *o, tn_mixture *out)
{
    int64_t weak = -1, n_parts;
    double *weights = NULL;
    void *mem;
    TN_TRY(check_weights(o, &n_parts));
    TN_TRY(tn_alloc((size_t)n_parts * sizeof *weights, &mem));
    weights = mem;
    for (int64_t k = 0; k < n_parts; k++) weights[k] = o->paths[k].weight;
    tn_status st = tn_mixture_init(weights, n_parts, &weak, out);
    tn_free(weights);
    if (weak >= 0)
        return tn_error(
            TN_BAD_INPUT,
            "%s.path: weight %g of '%s' is less than 1/%d of all; raise it or leave the entry out",
            o->section, o->paths[weak].weight, o->paths[weak].pattern, TN_MIXTURE_PERIOD);
    return st;
}

/* ------------------------------------------------------------ opening */

static tn_status check_number(const char *key, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        TN_FAIL(TN_BAD_INPUT, "%s: %lld is out of range; use %lld to %lld", key, (long long)value,
                (long long)low, (long long)high);
    return TN_OK;
}

/* What is mapped as it lies needs no stream. */
static tn_status choose_mode(const tn_data_options *o, const tn_data_source **source)
{
    static const char *const modes[] = {"built", "stream"};
    int mode;
    tn_paths files;
    TN_TRY(tn_data_choose(o, "mode", o->mode, modes, TN_COUNT(modes), &mode));
    if (!mode) return TN_OK;
    TN_TRY(tn_data_refuse(o, "mode", *source != &tn_data_text && *source != &tn_data_jsonl,
                          "only text and jsonl are tokenised"));
    TN_TRY(tn_paths_find(o->section, o->paths, o->n_paths, &files));
    if (!tn_data_built_is_mapped(o, &files)) *source = &tn_data_stream;
    tn_paths_fini(&files);
    return TN_OK;
}

static tn_status check_options(const tn_data_options *o, const tn_data_source **out)
{
    const char *names[TN_COUNT(sources)];
    int which;
    for (int i = 0; i < TN_COUNT(sources); i++) names[i] = sources[i]->name;
    TN_TRY(tn_data_choose(o, "source", o->source, names, TN_COUNT(names), &which));
    TN_TRY(check_number("training.seq_len", o->seq_len, 1, 1 << 24));
    TN_TRY(check_number("training.global_batch_size", o->global_batch, 1, INT32_MAX));
    TN_TRY(check_number("model.vocab_size", o->vocab_size, 1, INT32_MAX));
    if (!(o->validation >= 0 && o->validation <= 1))
        TN_FAIL(TN_BAD_INPUT,
                "%s.validation: %g is no share; use 0 to 1, as 0.02 for the last 2 %%", o->section,
                o->validation);
    if (o->epochs < 0)
        TN_FAIL(TN_BAD_INPUT,
                "%s.epochs: %lld is negative; use 0 (as many as the steps need) or more",
                o->section, (long long)o->epochs);
    *out = sources[which];
    return choose_mode(o, out);
}

tn_status tn_data_open(const tn_data_options *options, tn_data **out)
{
    tn_data_options o = *options;
    const tn_data_source *source = NULL;
    void *mem;
    if (!o.section) o.section = "data";
    TN_TRY(check_options(&o, &source));

    TN_TRY(tn_alloc(sizeof(tn_data), &mem));
    tn_data *d = mem;
    d->seq_len = o.seq_len;
    d->global_batch = o.global_batch;
    d->epochs = o.epochs;
    d->validation = o.validation;
    snprintf(d->section, sizeof d->section, "%s", o.section);
    tn_status st = source->open(&o, &d->state, &d->info, d->end);
    if (st) {
        tn_free(d);
        return st;
    }
    d->source = source;
    *out = d;
    return TN_OK;
}

void tn_data_close(tn_data *d)
{
    if (!d) return;
    d->source->close(d->state);
    tn_free(d);
}

/* ------------------------------------------------------------ questions */

const tn_data_info *tn_data_about(const tn_data *d)
{
    return &d->info;
}

int64_t tn_data_steps(const tn_data *d, tn_data_split split)
{
    int64_t end = d->end[split];
    if (end == INT64_MAX) return INT64_MAX;
    return end / d->global_batch + (split == TN_DATA_VALIDATION && end % d->global_batch != 0);
}

tn_status tn_data_check_steps(const tn_data *d, int64_t steps)
{
    int64_t most = tn_data_steps(d, TN_DATA_TRAIN), samples = d->info.samples[TN_DATA_TRAIN];
    if (steps <= most) return TN_OK;
    if (samples == 0)
        TN_FAIL(
            TN_BAD_INPUT,
            "%s.validation: %g holds everything out, nothing is left to train on; use less than 1",
            d->section, d->validation);
    int64_t asked = tn_data_times(steps, d->global_batch);
    TN_FAIL(TN_BAD_INPUT,
            "training.steps: %lld steps of %lld samples are more than %s.epochs = %lld of %lld "
            "samples; use at "
            "most %lld "
            "steps, or %s.epochs = %lld",
            (long long)steps, (long long)d->global_batch, d->section,
            (long long)(d->epochs ? d->epochs : 1), (long long)samples, (long long)most, d->section,
            (long long)(asked / samples + (asked % samples != 0)));
}

/* ------------------------------------------------------------ rows */

static int32_t *at(int32_t *x_bs, int64_t row, int64_t seq_len)
{
    return x_bs ? x_bs + row * seq_len : NULL;
}

/* A row behind the last sample of the validation split. */
static void blank_row(const tn_data_row *out, int64_t seq_len)
{
    tn_data_plain(out, seq_len);
    if (out->ids_s) memset(out->ids_s, 0, (size_t)seq_len * sizeof *out->ids_s);
    for (int64_t s = 0; out->labels_s && s < seq_len; s++) out->labels_s[s] = TN_DATA_NO_TARGET;
}

tn_status tn_data_rows(const tn_data *d, tn_data_split split, int64_t step, int64_t first_row,
                       int64_t n_rows, const tn_data_batch *out)
{
    assert(step >= 0 && step < INT64_MAX / d->global_batch);
    assert(first_row >= 0 && n_rows >= 0 && n_rows <= d->global_batch - first_row);
    if (step >= tn_data_steps(d, split))
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s step %lld, counted from 0, is behind the last of %lld; use fewer steps",
                d->section, split == TN_DATA_TRAIN ? "training" : "validation", (long long)step,
                (long long)tn_data_steps(d, split));
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t sample = step * d->global_batch + first_row + r;
        tn_data_row row = {at(out->ids_bs, r, d->seq_len), at(out->labels_bs, r, d->seq_len),
                           at(out->positions_bs, r, d->seq_len),
                           at(out->documents_bs, r, d->seq_len)};
        if (sample < d->end[split]) TN_TRY(d->source->row(d->state, split, sample, &row));
        else blank_row(&row, d->seq_len);
    }
    return TN_OK;
}
