/* safetensors_write.c - the writer: the header is known before the first tensor, so the file is
 * written front to back. */
#include "checkpoints/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints/quote.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

/* A multiple of every dtype's size. */
#ifdef TN_HOSTILE
enum { PIECE_BYTES = 64 };
#else
enum { PIECE_BYTES = 1 << 20 };
#endif

static int by_name(const void *a, const void *b)
{
    const tn_safetensors_spec *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The reference implementation's order, which keeps every tensor aligned. */
static int by_place(const void *a, const void *b)
{
    const tn_safetensors_spec *const *x = a, *const *y = b;
    if ((*x)->dtype != (*y)->dtype) return (*x)->dtype > (*y)->dtype ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static tn_status check_spec(const char *path, const tn_safetensors_spec *s)
{
    size_t length = strlen(s->name);
    int64_t bytes = tn_safetensors_dtype_bytes(s->dtype);
    bool bad =
        length == 0 || length > TN_SAFETENSORS_MAX_NAME || strcmp(s->name, "__metadata__") == 0;
    for (const char *c = s->name; *c; c++) bad |= tn_quote_control(c) != 0;
    if (bad)
        TN_FAIL(TN_BAD_INPUT, "%s: '%s' cannot be the name of a tensor", path,
                tn_quote_text(s->name).s);
    bad = s->rank < 0 || s->rank > TN_SAFETENSORS_MAX_RANK;
    for (int i = 0; !bad && i < s->rank; i++)
        bad = s->shape[i] < 0 || __builtin_mul_overflow(bytes, s->shape[i], &bytes);
    if (bad) TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': shape out of range", path, s->name);
    return TN_OK;
}

static int64_t elements(const tn_safetensors_spec *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->shape[i];
    return n;
}

static void add_string(tn_text *t, const char *s)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    tn_text_put(t, "\"", 1);
    for (; *s; s++) {
        const char *e = strchr(escaped, *s);
        if (e) tn_text_add(t, "\\%c", letters[e - escaped]);
        else if ((unsigned char)*s < 0x20) tn_text_add(t, "\\u%04x", *s);
        else tn_text_put(t, s, 1);
    }
    tn_text_put(t, "\"", 1);
}

static tn_status add_tensors(tn_text *t, const char *path, const tn_safetensors_spec *const *order,
                             int64_t n, bool comma)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const tn_safetensors_spec *s = order[i];
        int64_t end;
        if (__builtin_add_overflow(at, elements(s) * tn_safetensors_dtype_bytes(s->dtype), &end))
            TN_FAIL(TN_BAD_INPUT, "%s: the size of all tensors overflows at '%s'", path, s->name);
        if (comma || i) tn_text_put(t, ",", 1);
        add_string(t, s->name);
        tn_text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", tn_safetensors_dtype_name(s->dtype));
        for (int d = 0; d < s->rank; d++)
            tn_text_add(t, "%s%lld", d ? "," : "", (long long)s->shape[d]);
        tn_text_add(t, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)end);
        at = end;
    }
    return TN_OK;
}

static tn_status make_header(tn_text *t, const char *path, const tn_safetensors_content *c,
                             const tn_safetensors_spec *const *order)
{
    tn_text_put(t, "{", 1);
    if (c->n_metadata) tn_text_add(t, "\"__metadata__\":");
    for (int i = 0; i < c->n_metadata; i++) {
        tn_text_put(t, i ? "," : "{", 1);
        add_string(t, c->metadata[i][0]);
        tn_text_put(t, ":", 1);
        add_string(t, c->metadata[i][1]);
    }
    if (c->n_metadata) tn_text_put(t, "}", 1);
    TN_TRY(add_tensors(t, path, order, c->n, c->n_metadata > 0));
    tn_text_put(t, "}", 1);
    while (!t->failed && t->n_bytes % 8) tn_text_put(t, " ", 1);
    TN_TRY(tn_text_end(t));
    if (t->n_bytes > TN_SAFETENSORS_MAX_HEADER)
        TN_FAIL(TN_BAD_INPUT, "%s: %lld tensors need a header of %lld bytes; at most %d", path,
                (long long)c->n, (long long)t->n_bytes, TN_SAFETENSORS_MAX_HEADER);
    return TN_OK;
}

static tn_status put_tensor(tn_file *f, const tn_safetensors_content *c,
                            const tn_safetensors_spec *s, void *piece)
{
    int64_t each = tn_safetensors_dtype_bytes(s->dtype), n = elements(s), step = PIECE_BYTES / each;
    for (int64_t at = 0; at < n; at += step) {
        int64_t count = n - at < step ? n - at : step;
        TN_TRY(c->source(c->arg, s - c->specs, at, count, piece));
        TN_TRY(tn_file_put(f, piece, (size_t)(count * each)));
    }
    return TN_OK;
}

static tn_status put_all(tn_file *f, const tn_safetensors_content *c,
                         const tn_safetensors_spec *const *order, const tn_text *header)
{
    uint64_t n = (uint64_t)header->n_bytes;
    void *piece;
    TN_TRY(tn_file_put(f, &n, sizeof n));
    TN_TRY(tn_file_put(f, tn_text_str(header), (size_t)header->n_bytes));
    TN_TRY(tn_alloc(PIECE_BYTES, &piece));
    tn_status st = TN_OK;
    for (int64_t i = 0; i < c->n && !st; i++) st = put_tensor(f, c, order[i], piece);
    tn_free(piece);
    return st;
}

/* order: room for c->n pointers. */
static tn_status sort_specs(const char *path, const tn_safetensors_content *c,
                            const tn_safetensors_spec **order)
{
    for (int64_t i = 0; i < c->n; i++) {
        TN_TRY(check_spec(path, &c->specs[i]));
        order[i] = &c->specs[i];
    }
    if (c->n) qsort(order, (size_t)c->n, sizeof *order, by_name);
    for (int64_t i = 1; i < c->n; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            TN_FAIL(TN_BAD_INPUT, "%s: two tensors named '%s'", path, order[i]->name);
    if (c->n) qsort(order, (size_t)c->n, sizeof *order, by_place);
    return TN_OK;
}

tn_status tn_safetensors_write(const char *path, const tn_safetensors_content *content)
{
    tn_status st;
    tn_text header = {0};
    tn_file *f = NULL;
    void *order;
    TN_TRY(tn_alloc((size_t)content->n * sizeof(tn_safetensors_spec *), &order));
    if ((st = sort_specs(path, content, order))) goto out;
    if ((st = make_header(&header, path, content, order))) goto out;
    if ((st = tn_file_create(path, &f))) goto out;
    if ((st = put_all(f, content, order, &header))) goto out;
    st = tn_file_publish(f);
    f = NULL; /* publish freed it */
out:
    tn_file_discard(f);
    tn_text_fini(&header);
    tn_free(order);
    return st;
}
