#include "engine/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/tokenizer_parts.h"
#include "engine/unicode.h"

/* ------------------------------------------------------------ messages */

tn_text_short tn_tokenizer_quote(const char *text)
{
    enum { SHOWN = 60 };
    tn_text_short out = {"\""};
    int64_t n = (int64_t)strlen(text), shown = n;
    if (n > SHOWN) {
        shown = SHOWN;
        while (shown > 0 && ((unsigned char)text[shown] & 0xc0) == 0x80) shown--;
    }
    snprintf(out.s, sizeof out.s, "\"%.*s%s\"", (int)shown, text, shown < n ? "..." : "");
    for (char *c = out.s; *c; c++) {
        bool c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 &&
                  (unsigned char)c[1] < 0xa0;
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
        if (c1) c[0] = c[1] = '?';
    }
    return out;
}

tn_status tn_tokenizer_want(const tn_tokenizer *t, const char *key, const tn_json *j,
                            tn_json_kind kind)
{
    if (tn_json_kind_of(j) == kind) return TN_OK;
    TN_FAIL(TN_BAD_INPUT, "%s: %s is %s; it must be %s", t->path, key,
            j ? tn_json_kind_name(tn_json_kind_of(j)) : "missing", tn_json_kind_name(kind));
}

tn_status tn_tokenizer_bool(const tn_tokenizer *t, const char *key, const tn_json *object,
                            const char *name, bool *out)
{
    const tn_json *j = tn_json_find(object, name);
    if (!j || tn_json_bool(j, out)) return TN_OK;
    TN_FAIL(TN_BAD_INPUT, "%s: %s.%s is %s; it must be true or false", t->path, key, name,
            tn_json_kind_name(tn_json_kind_of(j)));
}

/* ------------------------------------------------------------ opening */

static tn_status check_version(const tn_tokenizer *t, const tn_json *version)
{
    if (!version) return TN_OK;
    TN_TRY(tn_tokenizer_want(t, "version", version, TN_JSON_STRING));
    if (strcmp(tn_json_string(version), "1.0"))
        TN_FAIL(TN_BAD_INPUT, "%s: version: %s is unknown; titan reads \"1.0\"", t->path,
                tn_tokenizer_quote(tn_json_string(version)).s);
    return TN_OK;
}

static tn_status read_all(tn_tokenizer *t, const tn_json *top)
{
    const tn_json *model = tn_json_find(top, "model"), *added = tn_json_find(top, "added_tokens");
    if (tn_json_kind_of(top) != TN_JSON_OBJECT)
        TN_FAIL(TN_BAD_INPUT, "%s: the file holds %s; a tokenizer.json holds an object", t->path,
                tn_json_kind_name(tn_json_kind_of(top)));
    TN_TRY(check_version(t, tn_json_find(top, "version")));
    TN_TRY(tn_tokenizer_want(t, "model", model, TN_JSON_OBJECT));
    TN_TRY(tn_tokenizer_make_lookup(t, tn_json_count(tn_json_find(model, "vocab")) +
                                           tn_json_count(added)));
    TN_TRY(tn_tokenizer_read_model(t, model));
    TN_TRY(tn_tokenizer_read_steps(t, top));
    TN_TRY(tn_tokenizer_read_added(t, added));
    return tn_tokenizer_read_template(t, tn_json_find(top, "post_processor"));
}

tn_status tn_tokenizer_parse(const char *where, const char *json, int64_t n, tn_tokenizer **out)
{
    void *mem = NULL;
    const tn_json *top = NULL;
    TN_TRY(tn_json_parse(where, json, n, &top));
    tn_status st = tn_alloc(sizeof **out, &mem);
    tn_tokenizer *t = mem;
    if (!st) st = tn_arena_text(&t->arena, where, &t->path);
    if (!st) t->fingerprint = tn_hash_xxh64(json, (size_t)n, 0);
    if (!st) st = read_all(t, top);
    tn_json_free(top);
    if (st) {
        tn_tokenizer_close(t);
        return st;
    }
    *out = t;
    return TN_OK;
}

tn_status tn_tokenizer_open(const char *path, tn_tokenizer **out)
{
    char *text = NULL;
    int64_t n = 0;
    TN_TRY(tn_file_read(path, TN_JSON_MAX_BYTES, &text, &n));
    tn_status st = tn_tokenizer_parse(path, text, n, out);
    tn_free(text);
    return st;
}

void tn_tokenizer_close(tn_tokenizer *t)
{
    if (!t) return;
    for (int i = 0; i < t->n_steps; i++) tn_regex_free(t->steps[i].regex);
    tn_free(t->raw_added.items);
    tn_free(t->normal_added.items);
    tn_free(t->tokens);
    tn_free(t->lookup);
    tn_free(t->merges);
    tn_text_fini(&t->blob);
    tn_arena_fini(&t->arena);
    tn_free(t);
}

int64_t tn_tokenizer_size(const tn_tokenizer *t)
{
    return t->size;
}

uint64_t tn_tokenizer_fingerprint(const tn_tokenizer *t)
{
    return t->fingerprint;
}

tn_status tn_tokenizer_find(const tn_tokenizer *t, const char *token, int32_t *out)
{
    tn_text bytes = {0};
    bool raw = !tn_tokenizer_bytes(token, &bytes);
    tn_status st = tn_text_end(&bytes);
    if (!st) *out = tn_tokenizer_lookup(t, tn_text_str(&bytes), bytes.n_bytes, raw);
    tn_text_fini(&bytes);
    return st;
}

/* ------------------------------------------------------------ decoding */

tn_status tn_tokenizer_decode(const tn_tokenizer *t, const int32_t *ids, int64_t n,
                              bool skip_special, tn_text *out)
{
    tn_text bytes = {0};
    const char *blob = tn_text_str(&t->blob);
    if (!t->decodes)
        TN_FAIL(TN_BAD_INPUT, "%s: decoder: the file has none; add {\"type\": \"ByteLevel\"}",
                t->path);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->size) continue;
        const tn_token *token = &t->tokens[ids[i]];
        if (!token->is || (skip_special && token->special)) continue;
        tn_text_put(&bytes, blob + token->text_at, (size_t)token->text_n);
    }
    tn_status st = tn_text_end(&bytes);
    if (!st) tn_unicode_mend(tn_text_str(&bytes), bytes.n_bytes, out);
    if (!st) st = tn_text_end(out);
    tn_text_fini(&bytes);
    return st;
}
