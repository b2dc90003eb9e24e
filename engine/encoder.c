#include "engine/encoder.h"

#include "engine/base/mem.h"
#include "engine/merger.h"
#include "engine/tokenizer_parts.h"
#include "engine/unicode.h"

#include <string.h>

/* Nothing is collected on the way: a piece is merged as soon as it is cut. */
struct tn_encoder {
    const tn_tokenizer *t;
    tn_regex_search *search;
    tn_merger merger;
    tn_text mended, normal, prefixed;
    tn_ids *out, part; /* of the call; of tn_encoder_stream */
    int flags;
    tn_encoder_fn fn; /* NULL: everything stays in out */
    void *user;
};

enum { PART_IDS = 8192 };

tn_status tn_encoder_create(const tn_tokenizer *t, tn_encoder **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof **out, &mem));
    tn_encoder *e = mem;
    e->t = t;
    tn_status st = tn_regex_search_create(&e->search);
    if (!st) st = tn_merger_init(&e->merger, t);
    if (st) {
        tn_encoder_destroy(e);
        return st;
    }
    *out = e;
    return TN_OK;
}

void tn_encoder_destroy(tn_encoder *e)
{
    if (!e) return;
    tn_regex_search_destroy(e->search);
    tn_merger_fini(&e->merger);
    tn_text_fini(&e->mended);
    tn_text_fini(&e->normal);
    tn_text_fini(&e->prefixed);
    tn_ids_fini(&e->part);
    tn_free(e);
}

/* ------------------------------------------------------------ pre-tokenizers */

static tn_status run_step(tn_encoder *e, int k, const char *text, int64_t n);

static tn_status hand_over(tn_encoder *e)
{
    tn_status st = e->out->n ? e->fn(e->user, e->out->items, e->out->n) : TN_OK;
    e->out->n = 0;
    return st;
}

static tn_status piece(tn_encoder *e, const char *text, int64_t n)
{
    TN_TRY(tn_merger_piece(&e->merger, text, n, e->out));
    return e->fn && e->out->n > PART_IDS ? hand_over(e) : TN_OK;
}

static tn_status next_step(tn_encoder *e, int k, const char *text, int64_t n)
{
    if (n == 0) return TN_OK;
    return k + 1 < e->t->n_steps ? run_step(e, k + 1, text, n) : piece(e, text, n);
}

static tn_status prefix(tn_encoder *e, int k, const char *text, int64_t n)
{
    if (text[0] == ' ') return next_step(e, k, text, n);
    tn_text_cut(&e->prefixed, 0);
    tn_text_put(&e->prefixed, " ", 1);
    tn_text_put(&e->prefixed, text, (size_t)n);
    TN_TRY(tn_text_end(&e->prefixed));
    return next_step(e, k, tn_text_str(&e->prefixed), n + 1);
}

static tn_status find(tn_encoder *e, const tn_step *step, const char *text, int64_t n, int64_t from,
                      int64_t *begin, int64_t *end)
{
    if (step->regex) return tn_regex_find(step->regex, e->search, text, n, from, begin, end);
    const char *at =
        memmem(text + from, (size_t)(n - from), step->literal, (size_t)step->n_literal);
    *begin = at ? at - text : -1;
    *end = *begin + step->n_literal;
    return TN_OK;
}

/* What a split knows of the part before: [begin, end) waits until it is clear that nothing joins
 * it. */
typedef struct held {
    int64_t begin, end;
    bool match;
} held;

/* One part, a match or what lies between two; `h` is NULL for the behaviours that join nothing. */
static tn_status take(tn_encoder *e, int k, const char *text, int64_t begin, int64_t end,
                      bool match, held *h)
{
    const tn_step *step = &e->t->steps[k];
    match ^= step->invert;
    if (step->behavior == TN_SPLIT_ISOLATED) return next_step(e, k, text + begin, end - begin);
    if (step->behavior == TN_SPLIT_REMOVED)
        return match ? TN_OK : next_step(e, k, text + begin, end - begin);
    bool first = h->begin < 0;
    bool joins = step->behavior == TN_SPLIT_CONTIGUOUS      ? match == h->match
                 : step->behavior == TN_SPLIT_WITH_PREVIOUS ? match && !h->match
                                                            : !match && h->match;
    h->match = match;
    if (!first && joins) {
        h->end = end;
        return TN_OK;
    }
    int64_t from = h->begin, to = h->end;
    h->begin = begin;
    h->end = end;
    return first ? TN_OK : next_step(e, k, text + from, to - from);
}

static tn_status split(tn_encoder *e, int k, const char *text, int64_t n)
{
    const tn_step *step = &e->t->steps[k];
    held h = {.begin = -1};
    int64_t done = 0, from = 0, last = -1, begin, end;
    while (from <= n) {
        TN_TRY(find(e, step, text, n, from, &begin, &end));
        if (begin < 0) break;
        if (begin == end && end == last) { /* an empty match directly behind a match is none */
            int bytes = 1;
            if (from < n) (void)tn_unicode_at(text, from, &bytes);
            from += bytes;
            continue;
        }
        from = last = end;
        if (done != begin) TN_TRY(take(e, k, text, done, begin, false, &h));
        TN_TRY(take(e, k, text, begin, end, true, &h));
        done = end;
    }
    if (done != n) TN_TRY(take(e, k, text, done, n, false, &h));
    return h.begin < 0 ? TN_OK : next_step(e, k, text + h.begin, h.end - h.begin);
}

static tn_status run_step(tn_encoder *e, int k, const char *text, int64_t n)
{
    const tn_step *step = &e->t->steps[k];
    if (!step->regex && !step->literal) return prefix(e, k, text, n);
    return split(e, k, text, n);
}

/* ------------------------------------------------------------ added tokens */

static int64_t skip_spaces(const char *text, int64_t n, int64_t at)
{
    int bytes;
    while (at < n && tn_unicode_is_space(tn_unicode_at(text, at, &bytes))) at += bytes;
    return at;
}

static int64_t skip_spaces_back(const char *text, int64_t at)
{
    int bytes;
    while (at > 0 && tn_unicode_is_space(tn_unicode_before(text, at, &bytes))) at -= bytes;
    return at;
}

static bool stands_alone(const char *text, int64_t n, int64_t begin, int64_t end)
{
    int bytes;
    return (begin == 0 || !tn_unicode_is_word(tn_unicode_before(text, begin, &bytes))) &&
           (end == n || !tn_unicode_is_word(tn_unicode_at(text, end, &bytes)));
}

static tn_status put_ids(tn_ids *out, const int32_t *ids, int n)
{
    TN_TRY(tn_ids_grow(out, n));
    if (n) memcpy(out->items + out->n, ids, (size_t)n * sizeof *ids);
    out->n += n;
    return TN_OK;
}

typedef tn_status (*segment_fn)(tn_encoder *e, const char *text, int64_t n);

/* Cuts the tokens of the set out of the text and hands what is between them on. A token that is
 * refused is passed over: the search goes on behind it. */
static tn_status cut_out(tn_encoder *e, const tn_added_set *set, const char *text, int64_t n,
                         segment_fn segment)
{
    const tn_added *a = NULL;
    int64_t done = 0, begin = 0;
    for (int64_t from = 0; tn_added_find(set, text, n, from, &a, &begin);) {
        int64_t end = begin + a->n;
        from = end;
        if (a->special && (e->flags & TN_ENCODE_LITERAL)) continue;
        if (a->single_word && !stands_alone(text, n, begin, end)) continue;
        if (a->lstrip) {
            begin = skip_spaces_back(text, begin);
            if (begin < done) begin = done;
        }
        if (a->rstrip) end = skip_spaces(text, n, end);
        if (done < begin) TN_TRY(segment(e, text + done, begin - done));
        if (begin < end) TN_TRY(put_ids(e->out, &a->id, 1)); /* else a blank that was swallowed */
        done = end;
    }
    return done < n ? segment(e, text + done, n - done) : TN_OK;
}

static tn_status pieces(tn_encoder *e, const char *text, int64_t n)
{
    return e->t->n_steps ? run_step(e, 0, text, n) : piece(e, text, n);
}

static tn_status normalise(tn_encoder *e, const char *text, int64_t n)
{
    if (e->t->nfc) {
        tn_text_cut(&e->normal, 0);
        TN_TRY(tn_unicode_nfc(text, n, &e->normal));
        text = tn_text_str(&e->normal);
        n = e->normal.n_bytes;
    }
    return cut_out(e, &e->t->normal_added, text, n, pieces);
}

/* ------------------------------------------------------------ a text */

static tn_status encode(tn_encoder *e, const char *text, int64_t n)
{
    const tn_tokenizer *t = e->t;
    if (tn_unicode_check(text, n) < n) {
        tn_text_cut(&e->mended, 0);
        tn_unicode_mend(text, n, &e->mended);
        TN_TRY(tn_text_end(&e->mended));
        text = tn_text_str(&e->mended);
        n = e->mended.n_bytes;
    }
    if (e->flags & TN_ENCODE_TEMPLATE) TN_TRY(put_ids(e->out, t->before, t->n_before));
    TN_TRY(cut_out(e, &t->raw_added, text, n, normalise));
    if (e->flags & TN_ENCODE_TEMPLATE) TN_TRY(put_ids(e->out, t->after, t->n_after));
    return e->fn ? hand_over(e) : TN_OK;
}

tn_status tn_encoder_encode(tn_encoder *e, const char *text, int64_t n, int flags, tn_ids *out)
{
    e->out = out;
    e->flags = flags;
    e->fn = NULL;
    return encode(e, text, n);
}

tn_status tn_encoder_stream(tn_encoder *e, const char *text, int64_t n, int flags, tn_encoder_fn fn,
                            void *user)
{
    e->out = &e->part;
    e->part.n = 0;
    e->flags = flags;
    e->fn = fn;
    e->user = user;
    return encode(e, text, n);
}
