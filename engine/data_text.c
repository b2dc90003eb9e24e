/* data_text.c - samples from text and token files: which window of which tokens sample i is, and
 * what documents do inside it.
 *
 * A part is what one weight stands for: files of its own, cut once into training and held-out
 * tokens. Without weights there is one part. Sample i -> mixture -> the nth sample of a part ->
 * epoch n / samples and place n mod samples -> the window at that place, or, when shuffled, where
 * the epoch's permutation sends it. */
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/data_built.h"
#include "engine/data_source.h"
#include "engine/mixture.h"

#include <math.h>
#include <stdio.h>

typedef struct part {
    tn_windows *windows;
    tn_rng order; /* of the shuffle; the epoch is its stream */
    int64_t cut;  /* first token that is held out */
    int64_t tokens[TN_DATA_N_SPLITS];
    int64_t samples[TN_DATA_N_SPLITS];
    int64_t documents[TN_DATA_N_SPLITS]; /* -1: not counted */
} part;

typedef struct text {
    part *parts;
    int64_t n_parts;
    tn_mixture mixture;
    int64_t seq_len;
    bool shuffle, by_document;
} text;

/* ------------------------------------------------------------ opening */

static void close_text(void *state)
{
    text *t = state;
    if (!t) return;
    for (int64_t k = 0; k < t->n_parts; k++) tn_windows_close(t->parts[k].windows);
    tn_free(t->parts);
    tn_mixture_fini(&t->mixture);
    tn_free(t);
}

static tn_status count_samples(const tn_data_options *o, const char *name, part *p)
{
    int64_t need = o->seq_len + 1;
    for (int s = 0; s < TN_DATA_N_SPLITS; s++)
        p->samples[s] = p->tokens[s] < need ? 0 : (p->tokens[s] - 1) / o->seq_len;

    int64_t all = tn_windows_tokens(p->windows);
    if (all < need)
        TN_FAIL(TN_BAD_INPUT,
                "%s.path: '%s' holds %lld tokens, fewer than one sample of training.seq_len + 1 = "
                "%lld; use "
                "more text or seq_len = %lld",
                o->section, name, (long long)all, (long long)need,
                (long long)(all > 1 ? all - 1 : 1));
    if (o->validation > 0 && p->samples[TN_DATA_VALIDATION] == 0)
        TN_FAIL(TN_BAD_INPUT,
                "%s.validation: %g of '%s' holds out %lld documents with %lld tokens, fewer than "
                "one sample of "
                "training.seq_len + 1 = %lld; hold out about %.2g or more, or cut smaller "
                "documents (%s.document)",
                o->section, o->validation, name, (long long)p->documents[TN_DATA_VALIDATION],
                (long long)p->tokens[TN_DATA_VALIDATION], (long long)need,
                (double)need / (double)all, o->section);
    if (o->validation < 1 && p->samples[TN_DATA_TRAIN] == 0)
        TN_FAIL(TN_BAD_INPUT,
                "%s.validation: %g of '%s' leaves %lld documents with %lld tokens to train on, "
                "fewer than one "
                "sample of training.seq_len + 1 = %lld; hold out less, or cut smaller documents "
                "(%s.document)",
                o->section, o->validation, name, (long long)p->documents[TN_DATA_TRAIN],
                (long long)p->tokens[TN_DATA_TRAIN], (long long)need, o->section);
    return TN_OK;
}

/* The held-out share is a number of documents, rounded to the nearest. */
static tn_status cut_part(const tn_data_options *o, const char *name, part *p)
{
    int64_t all = tn_windows_tokens(p->windows);
    p->documents[TN_DATA_TRAIN] = p->documents[TN_DATA_VALIDATION] = -1;
    p->cut = all;
    if (o->validation > 0) {
        int64_t n = tn_windows_documents(p->windows),
                held = (int64_t)floor((double)n * o->validation + 0.5);
        if (held == n) p->cut = 0;
        else if (held > 0) TN_TRY(tn_windows_tail(p->windows, held, &p->cut));
        p->documents[TN_DATA_TRAIN] = n - held;
        p->documents[TN_DATA_VALIDATION] = held;
    }
    p->tokens[TN_DATA_TRAIN] = p->cut;
    p->tokens[TN_DATA_VALIDATION] = all - p->cut;
    return count_samples(o, name, p);
}

static tn_status open_part(const tn_data_options *o, const tn_data_path *paths, int64_t n_paths,
                           part *p)
{
    TN_TRY(tn_data_built_open(o, paths, n_paths, &p->windows));
    TN_TRY(tn_windows_check(p->windows, o->section, o->vocab_size));
    return cut_part(o, paths->pattern, p);
}

static tn_status open_parts(const tn_data_options *o, text *t)
{
    void *mem;
    TN_TRY(tn_data_mix(o, &t->mixture));
    int64_t n_parts = t->mixture.n;
    TN_TRY(tn_alloc((size_t)n_parts * sizeof *t->parts, &mem));
    t->parts = mem;
    t->n_parts = n_parts;
    for (int64_t k = 0; k < n_parts; k++) {
        char name[40];
        snprintf(name, sizeof name, "data.shuffle.%lld", (long long)k);
        t->parts[k].order = tn_rng_make(o->seed, name, 0);
        TN_TRY(open_part(o, o->paths + k, n_parts > 1 ? 1 : o->n_paths, &t->parts[k]));
    }
    return TN_OK;
}

/* Training ends with the first sample that would be seen once too often. */
static int64_t find_end(const tn_data_options *o, const text *t)
{
    int64_t end = INT64_MAX;
    for (int64_t k = 0; k < t->n_parts; k++) {
        int64_t n = t->parts[k].samples[TN_DATA_TRAIN],
                nth = o->epochs ? tn_data_times(n, o->epochs) : INT64_MAX;
        if (n == 0) return 0;
        if (nth == INT64_MAX) continue;
        int64_t place = tn_mixture_place(&t->mixture, k, nth);
        if (place < end) end = place;
    }
    return end;
}

static void sum_up(const text *t, tn_data_info *info)
{
    for (int64_t k = 0; k < t->n_parts; k++) {
        const part *p = &t->parts[k];
        info->files += tn_windows_files(p->windows);
        info->mapped_bytes += tn_windows_bytes(p->windows);
        for (int s = 0; s < TN_DATA_N_SPLITS; s++) {
            info->tokens[s] += p->tokens[s];
            info->samples[s] += p->samples[s];
            if (p->documents[s] < 0) info->documents[s] = -1; /* one part: all or none */
            else info->documents[s] += p->documents[s];
        }
    }
}

static tn_status open_text(const tn_data_options *o, void **state, tn_data_info *info,
                           int64_t end[TN_DATA_N_SPLITS])
{
    static const char *const packings[] = {"stream", "documents"};
    int packing;
    void *mem;
    TN_TRY(tn_data_choose(o, "packing", o->packing, packings, TN_COUNT(packings), &packing));
    if (o->n_paths < 1)
        TN_FAIL(TN_BAD_INPUT, "%s.path: no file is given; name a file, a glob or a list",
                o->section);

    TN_TRY(tn_alloc(sizeof(text), &mem));
    text *t = mem;
    t->seq_len = o->seq_len;
    t->shuffle = o->shuffle;
    t->by_document = packing == 1;
    tn_status st = open_parts(o, t);
    if (st) {
        close_text(t);
        return st;
    }
    sum_up(t, info);
    end[TN_DATA_TRAIN] = find_end(o, t);
    end[TN_DATA_VALIDATION] = info->samples[TN_DATA_VALIDATION];
    *state = t;
    return TN_OK;
}

/* ------------------------------------------------------------ rows */

/* The first token of training sample i. */
static int64_t find_window(const text *t, int64_t i, const part **out)
{
    int64_t k, nth;
    tn_mixture_find(&t->mixture, i, &k, &nth);
    const part *p = &t->parts[k];
    int64_t n = p->samples[TN_DATA_TRAIN], place = nth % n;
    if (t->shuffle) {
        tn_rng order = p->order;
        order.stream = (uint64_t)(nth / n);
        place = (int64_t)tn_rng_permute(order, (uint64_t)n, (uint64_t)place);
    }
    *out = p;
    return place * t->seq_len;
}

/* The first token of validation sample i: part after part, in order. */
static int64_t find_held_out(const text *t, int64_t i, const part **out)
{
    const part *p = t->parts;
    for (; i >= p->samples[TN_DATA_VALIDATION]; p++) i -= p->samples[TN_DATA_VALIDATION];
    *out = p;
    return p->cut + i * t->seq_len;
}

static tn_status mark_documents(const text *t, const tn_windows *windows, int64_t first,
                                const tn_data_row *out)
{
    int64_t end = first + t->seq_len;
    int32_t document = 0;
    for (int64_t at = first, next; at < end; at = next, document++) {
        /* end itself is the target of the last position */
        TN_TRY(tn_windows_next(windows, at, end + 1, &next));
        int64_t stop = next < end ? next : end;
        for (int64_t s = at - first; s < stop - first; s++) {
            if (out->positions_s) out->positions_s[s] = (int32_t)(s - (at - first));
            if (out->documents_s) out->documents_s[s] = document;
        }
        if (out->labels_s && next <= end) out->labels_s[next - 1 - first] = TN_DATA_NO_TARGET;
    }
    return TN_OK;
}

static tn_status text_row(void *state, tn_data_split split, int64_t sample, const tn_data_row *out)
{
    const text *t = state;
    const part *p;
    int64_t first =
        split == TN_DATA_TRAIN ? find_window(t, sample, &p) : find_held_out(t, sample, &p);
    if (out->ids_s) TN_TRY(tn_windows_copy(p->windows, first, t->seq_len, out->ids_s));
    if (out->labels_s) TN_TRY(tn_windows_copy(p->windows, first + 1, t->seq_len, out->labels_s));
    if (t->by_document) TN_TRY(mark_documents(t, p->windows, first, out));
    else tn_data_plain(out, t->seq_len);
    tn_windows_forget(p->windows, first, t->seq_len + 1);
    return TN_OK;
}

const tn_data_source tn_data_text = {
    .name = "text", .open = open_text, .close = close_text, .row = text_row};
const tn_data_source tn_data_jsonl = {
    .name = "jsonl", .open = open_text, .close = close_text, .row = text_row};
const tn_data_source tn_data_tokens = {
    .name = "tokens", .open = open_text, .close = close_text, .row = text_row};
