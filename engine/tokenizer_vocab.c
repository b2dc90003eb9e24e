/* tokenizer_vocab.c - model: the vocabulary and the merges of a tokenizer.json. */
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/tokenizer_parts.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------ byte alphabet */

/* The byte that a character stands for, -1: none. 0x21-7E, A1-AC and AE-FF stand for themselves,
 * the other 68, in order, are U+0100, U+0101 ... */
static int byte_of(int32_t c)
{
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff)) return c;
    c -= 0x100;
    if (c < 0 || c > 67) return -1;
    return c <= 0x20 ? c : c <= 66 ? c - 0x21 + 0x7f : 0xad;
}

bool tn_tokenizer_bytes(const char *token, tn_text *out)
{
    tn_text_cut(out, 0);
    for (const unsigned char *p = (const unsigned char *)token; *p;) {
        int32_t c = *p++;
        if (c >= 0x80) c = c < 0xe0 ? (c & 0x1f) << 6 | (*p++ & 0x3f) : -1; /* above U+07FF: none */
        int byte = c < 0 ? -1 : byte_of(c);
        if (byte < 0) {
            tn_text_cut(out, 0);
            tn_text_put(out, token, strlen(token));
            return false;
        }
        char b = (char)byte;
        tn_text_put(out, &b, 1);
    }
    return true;
}

/* ------------------------------------------------------------ vocabulary */

static uint64_t slot(const tn_tokenizer *t, const char *bytes, int64_t n, bool raw)
{
    return tn_hash_xxh64(bytes, (size_t)n, raw) & t->lookup_mask;
}

int32_t tn_tokenizer_lookup(const tn_tokenizer *t, const char *bytes, int64_t n, bool raw)
{
    const char *blob = tn_text_str(&t->blob);
    for (uint64_t at = slot(t, bytes, n, raw); t->lookup[at] >= 0; at = (at + 1) & t->lookup_mask) {
        const tn_token *token = &t->tokens[t->lookup[at]];
        if (token->n == n && token->raw == raw && memcmp(blob + token->at, bytes, (size_t)n) == 0)
            return t->lookup[at];
    }
    return -1;
}

/* The ids lie in a table, so they may not be much larger than their number. */
static int64_t largest_id(int64_t n_tokens)
{
    return (1 << 20) + 8 * n_tokens;
}

tn_status tn_tokenizer_add(tn_tokenizer *t, int32_t id, const char *bytes, int64_t n, bool raw)
{
    void *tokens = t->tokens;
    TN_TRY(tn_grow(&tokens, &t->capacity, (int64_t)id + 1, sizeof *t->tokens));
    t->tokens = tokens;
    if (id >= t->size) t->size = (int64_t)id + 1;
    t->tokens[id] = (tn_token){.at = t->blob.n_bytes,
                               .text_at = t->blob.n_bytes,
                               .n = (int32_t)n,
                               .text_n = (int32_t)n,
                               .is = true,
                               .raw = raw};
    tn_text_put(&t->blob, bytes, (size_t)n);
    TN_TRY(tn_text_end(&t->blob));
    uint64_t at = slot(t, bytes, n, raw);
    while (t->lookup[at] >= 0) at = (at + 1) & t->lookup_mask;
    t->lookup[at] = id;
    return TN_OK;
}

tn_status tn_tokenizer_id(const tn_tokenizer *t, const char *what, const tn_json *j, int32_t *out)
{
    int64_t id = -1;
    double number = 0;
    if (!tn_json_int(j, &id)) {
        if (tn_json_number(j, &number))
            TN_FAIL(TN_BAD_INPUT, "%s: %s is %g; an id is a whole number", t->path, what, number);
        if (tn_json_string(j))
            TN_FAIL(TN_BAD_INPUT, "%s: %s is the string %s; an id is a whole number", t->path, what,
                    tn_tokenizer_quote(tn_json_string(j)).s);
        TN_FAIL(TN_BAD_INPUT, "%s: %s is %s; an id is a whole number", t->path, what,
                tn_json_kind_name(tn_json_kind_of(j)));
    }
    if (id < 0 || id > INT32_MAX)
        TN_FAIL(TN_BAD_INPUT, "%s: %s is %lld; ids go from 0 to %d", t->path, what, (long long)id,
                INT32_MAX);
    *out = (int32_t)id;
    return TN_OK;
}

tn_status tn_tokenizer_make_lookup(tn_tokenizer *t, int64_t n)
{
    void *mem;
    uint64_t slots = 1024;
    while (slots < (uint64_t)n * 2) slots *= 2;
    TN_TRY(tn_alloc(slots * sizeof *t->lookup, &mem));
    t->lookup = mem;
    t->lookup_mask = slots - 1;
    memset(t->lookup, 0xff, slots * sizeof *t->lookup);
    return TN_OK;
}

static tn_status read_entry(tn_tokenizer *t, tn_json_pair p, tn_text *bytes)
{
    char what[160];
    int32_t id;
    snprintf(what, sizeof what, "model.vocab: the id of %s", tn_tokenizer_quote(p.key).s);
    TN_TRY(tn_tokenizer_id(t, what, p.value, &id));
    if (id > largest_id(t->n_vocab))
        TN_FAIL(TN_BAD_INPUT, "%s: %s is %d in a vocabulary of %lld; ids must be dense", t->path,
                what, id, (long long)t->n_vocab);
    bool raw = !tn_tokenizer_bytes(p.key, bytes);
    TN_TRY(tn_text_end(bytes));
    if (id < t->size && t->tokens[id].is)
        TN_FAIL(TN_BAD_INPUT, "%s: %s is %d, which another token has; give each its own", t->path,
                what, id);
    return tn_tokenizer_add(t, id, tn_text_str(bytes), bytes->n_bytes, raw);
}

static tn_status read_vocab(tn_tokenizer *t, const tn_json *vocab, tn_text *bytes)
{
    TN_TRY(tn_tokenizer_want(t, "model.vocab", vocab, TN_JSON_OBJECT));
    t->n_vocab = tn_json_count(vocab);
    for (tn_json_pair p = tn_json_first(vocab); p.key; p = tn_json_next(p))
        TN_TRY(read_entry(t, p, bytes));
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->byte_ids[b] = tn_tokenizer_lookup(t, &byte, 1, false);
        if (t->byte_ids[b] < 0)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: model.vocab: no token for byte 0x%02X; byte-level BPE has all 256",
                    t->path, (unsigned)b);
    }
    return TN_OK;
}

/* ------------------------------------------------------------ merges */

static tn_status find_part(const tn_tokenizer *t, int64_t i, const char *part, tn_text *bytes,
                           int32_t *out)
{
    bool raw = !tn_tokenizer_bytes(part, bytes);
    TN_TRY(tn_text_end(bytes));
    *out = tn_tokenizer_lookup(t, tn_text_str(bytes), bytes->n_bytes, raw);
    if (*out < 0)
        TN_FAIL(TN_BAD_INPUT, "%s: model.merges[%lld]: no token %s in the vocabulary; add it",
                t->path, (long long)i, tn_tokenizer_quote(part).s);
    return TN_OK;
}

static void put_merge(tn_tokenizer *t, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 32 & t->merges_mask;
    while (t->merges[at].key != UINT64_MAX && t->merges[at].key != key)
        at = (at + 1) & t->merges_mask;
    t->merges[at] = (tn_merge){key, rank, id}; /* of two equal pairs the reference keeps the last */
}

/* parts[0], parts[1]: NUL-terminated. */
static tn_status add_merge(tn_tokenizer *t, int64_t i, uint32_t rank, const char *const parts[2],
                           tn_text scratch[2])
{
    int32_t left, right, id;
    TN_TRY(find_part(t, i, parts[0], &scratch[0], &left));
    TN_TRY(find_part(t, i, parts[1], &scratch[0], &right));
    tn_text_cut(&scratch[1], 0);
    tn_text_add(&scratch[1], "%s%s", parts[0], parts[1]);
    TN_TRY(tn_text_end(&scratch[1]));
    TN_TRY(find_part(t, i, tn_text_str(&scratch[1]), &scratch[0], &id));
    put_merge(t, left, right, rank, id);
    return TN_OK;
}

/* "a b" or ["a", "b"]; `line` holds the former's halves. */
static tn_status split_merge(const tn_tokenizer *t, int64_t i, const tn_json *j, tn_text *line,
                             const char *parts[2])
{
    const char *text = tn_json_string(j), *blank = text ? strchr(text, ' ') : NULL;
    if (text && (!blank || blank == text || !blank[1] || strchr(blank + 1, ' ')))
        TN_FAIL(TN_BAD_INPUT, "%s: model.merges[%lld]: %s; write two tokens with one blank between",
                t->path, (long long)i, tn_tokenizer_quote(text).s);
    if (text) {
        tn_text_cut(line, 0);
        tn_text_put(line, text, (size_t)(blank - text) + 1);
        tn_text_put(line, blank + 1, strlen(blank + 1));
        TN_TRY(tn_text_end(line));
        char *halves = line->items;
        halves[blank - text] = 0;
        parts[0] = halves;
        parts[1] = halves + (blank - text) + 1;
        return TN_OK;
    }
    parts[0] = tn_json_string(tn_json_at(j, 0));
    parts[1] = tn_json_string(tn_json_at(j, 1));
    if (tn_json_kind_of(j) != TN_JSON_ARRAY || tn_json_count(j) != 2)
        TN_FAIL(TN_BAD_INPUT, "%s: model.merges[%lld] is %s of %lld; write [\"a\", \"b\"]", t->path,
                (long long)i, tn_json_kind_name(tn_json_kind_of(j)), (long long)tn_json_count(j));
    if (!parts[0] || !parts[1] || !parts[0][0] || !parts[1][0])
        TN_FAIL(TN_BAD_INPUT, "%s: model.merges[%lld] must hold two tokens; write [\"a\", \"b\"]",
                t->path, (long long)i);
    return TN_OK;
}

static tn_status read_merges(tn_tokenizer *t, const tn_json *merges, tn_text scratch[3])
{
    void *mem;
    uint64_t slots = 1024;
    uint32_t rank = 0;
    TN_TRY(tn_tokenizer_want(t, "model.merges", merges, TN_JSON_ARRAY));
    while (slots < (uint64_t)tn_json_count(merges) * 2) slots *= 2;
    TN_TRY(tn_alloc(slots * sizeof *t->merges, &mem));
    t->merges = mem;
    t->merges_mask = slots - 1;
    memset(t->merges, 0xff, slots * sizeof *t->merges);
    for (int64_t i = 0; i < tn_json_count(merges); i++) {
        const char *parts[2] = {NULL}, *text = tn_json_string(tn_json_at(merges, i));
        if (text && strncmp(text, "#version", 8) == 0) continue;
        TN_TRY(split_merge(t, i, tn_json_at(merges, i), &scratch[2], parts));
        TN_TRY(add_merge(t, i, rank++, parts, scratch));
    }
    return TN_OK;
}

/* ------------------------------------------------------------ model */

static tn_status refuse_text(const tn_tokenizer *t, const tn_json *model, const char *key)
{
    const tn_json *j = tn_json_find(model, key);
    const char *text = tn_json_string(j);
    if (!j || tn_json_kind_of(j) == TN_JSON_NULL || (text && !text[0])) return TN_OK;
    TN_FAIL(TN_BAD_INPUT, "%s: model.%s is %s, which is not supported; byte-level BPE has none",
            t->path, key,
            text ? tn_tokenizer_quote(text).s : tn_json_kind_name(tn_json_kind_of(j)));
}

static tn_status check_kind(const tn_tokenizer *t, const tn_json *model)
{
    const tn_json *type = tn_json_find(model, "type"), *dropout = tn_json_find(model, "dropout");
    double share = 0;
    bool fallback = false;
    TN_TRY(tn_tokenizer_want(t, "model", model, TN_JSON_OBJECT));
    if (type) TN_TRY(tn_tokenizer_want(t, "model.type", type, TN_JSON_STRING));
    if (type && strcmp(tn_json_string(type), "BPE"))
        TN_FAIL(TN_BAD_INPUT, "%s: model.type: %s is not supported; titan reads byte-level BPE",
                t->path, tn_tokenizer_quote(tn_json_string(type)).s);
    if (tn_json_kind_of(dropout) != TN_JSON_NULL && (!tn_json_number(dropout, &share) || share))
        TN_FAIL(TN_BAD_INPUT,
                "%s: model.dropout is %g: encoding at random is not supported; set it to null",
                t->path, share);
    TN_TRY(refuse_text(t, model, "continuing_subword_prefix"));
    TN_TRY(refuse_text(t, model, "end_of_word_suffix"));
    TN_TRY(tn_tokenizer_bool(t, "model", model, "byte_fallback", &fallback));
    if (fallback)
        TN_FAIL(TN_BAD_INPUT,
                "%s: model.byte_fallback is not supported; titan reads byte-level BPE", t->path);
    return TN_OK;
}

tn_status tn_tokenizer_read_model(tn_tokenizer *t, const tn_json *model)
{
    tn_text scratch[3] = {{0}, {0}, {0}};
    TN_TRY(check_kind(t, model));
    TN_TRY(tn_tokenizer_bool(t, "model", model, "ignore_merges", &t->ignore_merges));
    tn_status st = read_vocab(t, tn_json_find(model, "vocab"), &scratch[0]);
    if (!st) st = read_merges(t, tn_json_find(model, "merges"), scratch);
    for (int i = 0; i < TN_COUNT(scratch); i++) tn_text_fini(&scratch[i]);
    return st;
}
