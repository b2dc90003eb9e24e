/* Any bytes as a token file: refused in one line, or every read is answered or refused in one line,
 * and no id outside the vocabulary comes out.
 *
 * Mutation seldom keeps a hash right, so the input is also read with its hashes made good: what
 * then opens is a file that lies with care. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool ok)
{
    if (!ok) abort();
}

static void refused(tn_status st)
{
    must(st == TN_BAD_INPUT && !strchr(tn_error_text(), '\n') &&
         strncmp(tn_error_text(), "fuzz: ", 6) == 0);
    tn_error_clear();
}

static void read_all(tn_tokens *t)
{
    const tn_tokens_header *h = tn_tokens_about(t);
    int32_t ids[64];
    int64_t at, json;
    tn_status st;
    must(tn_tokens_json(t, &json) != NULL && json == h->about_bytes);
    for (int64_t token = 0; token < h->n_tokens; token += 64) {
        int64_t n = h->n_tokens - token < 64 ? h->n_tokens - token : 64;
        if ((st = tn_tokens_copy(t, token, n, ids))) refused(st);
        else
            for (int64_t i = 0; i < n; i++) must(ids[i] >= 0 && ids[i] <= h->largest);
        if ((st = tn_tokens_next(t, token, token + n, &at))) refused(st);
        else must(at > token && at <= token + n);
        tn_tokens_forget(t, token, n);
    }
    for (int64_t d = 0; d <= h->n_documents; d++) {
        if ((st = tn_tokens_start(t, d, &at))) refused(st);
        else must(at >= 0 && at <= h->n_tokens);
    }
    if ((st = tn_tokens_check(t))) refused(st);
}

static void read_file(const void *bytes, size_t n)
{
    tn_tokens *t = NULL;
    tn_status st = tn_tokens_parse("fuzz", bytes, (int64_t)n, &t);
    if (st) {
        must(!t);
        refused(st);
        return;
    }
    read_all(t);
    tn_tokens_close(t);
}

/* Header, tables and blocks get the hashes of what they hold. */
static void make_good(uint8_t *bytes, size_t n)
{
    tn_tokens_header h;
    tn_tokens_layout l;
    if (n < TN_TOKENS_HEADER_BYTES) return;
    memcpy(&h, bytes, sizeof h);
    if (!tn_tokens_lay_out(&h, &l)) return;
    if (l.end == (int64_t)n) {
        for (int64_t b = 0; b < l.n_blocks; b++) {
            int64_t begin = l.ids + b * h.block_bytes, end = begin + h.block_bytes;
            if (end > l.hashes) end = l.hashes;
            uint64_t hash = tn_hash_xxh64(bytes + begin, (size_t)(end - begin), 0);
            memcpy(bytes + l.hashes + 8 * b, &hash, 8);
        }
        h.hashes_hash = tn_hash_xxh64(bytes + l.hashes, (size_t)(l.about - l.hashes), 0);
        h.about_hash = tn_hash_xxh64(bytes + l.about, (size_t)h.about_bytes, 0);
    }
    h.hash = tn_tokens_hash_header(&h);
    memcpy(bytes, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = calloc(n + 1, 1); /* aligned as a map is */
    must(copy != NULL);
    if (n) memcpy(copy, bytes, n);
    read_file(copy, n);
    make_good(copy, n);
    read_file(copy, n);
    free(copy);
    return 0;
}
