#include "engine/corpus_ids.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/mem.h"
#include "engine/encoder.h"
#include "engine/tokenizer.h"

struct tn_corpus_ids {
    tn_tokenizer *tokenizer; /* until sealed, as the next three */
    tn_encoder *encoder;
    tn_ids ids; /* of one document */
    FILE *file;
    int32_t *items; /* mapped */
    int64_t n;
    int64_t *starts; /* of the documents, ascending */
    int64_t n_starts, starts_capacity;
};

static tn_status open_tokenizer(const char *section, const char *path, int64_t vocab_size,
                                tn_corpus_ids *c)
{
    TN_TRY_WHILE(tn_tokenizer_open(path, &c->tokenizer), "opening %s.tokenizer", section);
    if (tn_tokenizer_size(c->tokenizer) > vocab_size)
        TN_FAIL(TN_BAD_INPUT,
                "%s.tokenizer: '%s' has ids up to %lld, and model.vocab_size is %lld; set "
                "model.vocab_size = %lld",
                section, path, (long long)tn_tokenizer_size(c->tokenizer) - 1,
                (long long)vocab_size, (long long)tn_tokenizer_size(c->tokenizer));
    TN_TRY(tn_encoder_create(c->tokenizer, &c->encoder));
    c->file = tmpfile();
    if (!c->file)
        TN_FAIL(TN_FAILED, "%s.tokenizer: cannot create a temporary file: %s", section,
                strerror(errno));
    return TN_OK;
}

tn_status tn_corpus_ids_create(const char *section, const char *tokenizer, int64_t vocab_size,
                               tn_corpus_ids **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof **out, &mem));
    tn_status st = open_tokenizer(section, tokenizer, vocab_size, mem);
    if (st) {
        tn_corpus_ids_destroy(mem);
        return st;
    }
    *out = mem;
    return TN_OK;
}

static void close_tokenizer(tn_corpus_ids *c)
{
    tn_encoder_destroy(c->encoder);
    tn_tokenizer_close(c->tokenizer);
    tn_ids_fini(&c->ids);
    if (c->file) fclose(c->file);
    c->encoder = NULL;
    c->tokenizer = NULL;
    c->file = NULL;
}

void tn_corpus_ids_destroy(tn_corpus_ids *c)
{
    if (!c) return;
    close_tokenizer(c);
    if (c->items) munmap(c->items, (size_t)c->n * sizeof *c->items);
    tn_free(c->starts);
    tn_free(c);
}

static tn_status failed(const char *action)
{
    TN_FAIL(TN_FAILED, "temporary file for token ids: cannot %s: %s", action, strerror(errno));
}

tn_status tn_corpus_ids_add(tn_corpus_ids *c, const char *text, int64_t n)
{
    void *starts = c->starts;
    c->ids.n = 0;
    TN_TRY(tn_encoder_encode(c->encoder, text, n, TN_ENCODE_TEMPLATE, &c->ids));
    if (c->ids.n == 0) return TN_OK;
    TN_TRY(tn_grow(&starts, &c->starts_capacity, c->n_starts + 1, sizeof *c->starts));
    c->starts = starts;
    c->starts[c->n_starts++] = c->n;
    size_t count = (size_t)c->ids.n;
    if (fwrite(c->ids.items, sizeof *c->ids.items, count, c->file) != count) return failed("write");
    c->n += c->ids.n;
    return TN_OK;
}

tn_status tn_corpus_ids_seal(tn_corpus_ids *c)
{
    if (fflush(c->file)) return failed("write");
    if (c->n) {
        void *map =
            mmap(NULL, (size_t)c->n * sizeof *c->items, PROT_READ, MAP_SHARED, fileno(c->file), 0);
        if (map == MAP_FAILED) return failed("map");
        c->items = map;
    }
    close_tokenizer(c);
    return TN_OK;
}

int64_t tn_corpus_ids_tokens(const tn_corpus_ids *c)
{
    return c->n;
}

int64_t tn_corpus_ids_documents(const tn_corpus_ids *c)
{
    return c->n_starts;
}

int64_t tn_corpus_ids_tail(const tn_corpus_ids *c, int64_t documents)
{
    assert(documents >= 1 && documents <= c->n_starts);
    return c->starts[c->n_starts - documents];
}

int64_t tn_corpus_ids_next(const tn_corpus_ids *c, int64_t token, int64_t end)
{
    int64_t low = 0, high = c->n_starts; /* the first start behind the token */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (c->starts[middle] <= token) low = middle + 1;
        else high = middle;
    }
    return low < c->n_starts && c->starts[low] < end ? c->starts[low] : end;
}

const int32_t *tn_corpus_ids_items(const tn_corpus_ids *c)
{
    return c->items;
}
