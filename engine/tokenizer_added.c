/* tokenizer_added.c - added_tokens of a tokenizer.json. */
#include "engine/base/mem.h"
#include "engine/tokenizer_parts.h"
#include "engine/unicode.h"

#include <stdio.h>
#include <string.h>

/* The id that the reference gives it, whatever the file says: that of the vocabulary's entry, else
 * the next one behind the number of entries and behind the added tokens so far. */
static int64_t number(const tn_tokenizer *t, int32_t in_vocab, int64_t largest_added)
{
    if (in_vocab >= 0) return in_vocab;
    return largest_added >= t->n_vocab ? largest_added + 1 : t->n_vocab;
}

static tn_status check_id(const tn_tokenizer *t, int64_t i, const char *content, int32_t id,
                          int32_t in_vocab, int64_t expected)
{
    if (in_vocab >= 0 && t->tokens[in_vocab].added)
        TN_FAIL(TN_BAD_INPUT, "%s: added_tokens[%lld]: %s stands there twice; keep one", t->path,
                (long long)i, tn_tokenizer_quote(content).s);
    bool taken = in_vocab < 0 && id < t->size && t->tokens[id].is;
    if (taken)
        TN_FAIL(TN_BAD_INPUT,
                "%s: added_tokens[%lld]: the id of %s is %d, which another token has; its own is "
                "%lld",
                t->path, (long long)i, tn_tokenizer_quote(content).s, id, (long long)expected);
    if (id != expected)
        TN_FAIL(TN_BAD_INPUT,
                "%s: added_tokens[%lld]: the id of %s is %d, where tokenizers counts %lld; correct "
                "the file",
                t->path, (long long)i, tn_tokenizer_quote(content).s, id, (long long)expected);
    return TN_OK;
}

/* What the reference looks for in normalised text, and what the token decodes to. */
static tn_status normalise(tn_tokenizer *t, const char *content, tn_added *a, tn_text *bytes)
{
    tn_text text = {0};
    tn_token *token = &t->tokens[a->id];
    tn_status st = tn_unicode_nfc(content, (int64_t)strlen(content), &text);
    if (!st) st = tn_arena_text(&t->arena, tn_text_str(&text), &a->content);
    tn_text_fini(&text);
    TN_TRY(st);
    tn_tokenizer_bytes(a->content, bytes);
    TN_TRY(tn_text_end(bytes));
    token->text_at = t->blob.n_bytes;
    token->text_n = (int32_t)bytes->n_bytes;
    tn_text_put(&t->blob, tn_text_str(bytes), (size_t)bytes->n_bytes);
    return tn_text_end(&t->blob);
}

static tn_status keep(tn_tokenizer *t, tn_added *a, const char *content, tn_text *bytes)
{
    tn_added_set *set = a->normalized ? &t->normal_added : &t->raw_added;
    void *items = set->items;
    if (a->normalized && t->nfc) TN_TRY(normalise(t, content, a, bytes));
    else TN_TRY(tn_arena_text(&t->arena, content, &a->content));
    a->n = (int64_t)strlen(a->content);
    TN_TRY(tn_grow(&items, &set->capacity, set->n + 1, sizeof *set->items));
    set->items = items;
    set->items[set->n++] = *a;
    return TN_OK;
}

static tn_status read_flags(const tn_tokenizer *t, int64_t i, const tn_json *j, tn_added *a)
{
    char key[64];
    snprintf(key, sizeof key, "added_tokens[%lld]", (long long)i);
    TN_TRY(tn_tokenizer_want(t, key, j, TN_JSON_OBJECT));
    TN_TRY(tn_tokenizer_bool(t, key, j, "single_word", &a->single_word));
    TN_TRY(tn_tokenizer_bool(t, key, j, "lstrip", &a->lstrip));
    TN_TRY(tn_tokenizer_bool(t, key, j, "rstrip", &a->rstrip));
    TN_TRY(tn_tokenizer_bool(t, key, j, "normalized", &a->normalized));
    return tn_tokenizer_bool(t, key, j, "special", &a->special);
}

static tn_status read_token(tn_tokenizer *t, int64_t i, const tn_json *j, int64_t *largest,
                            tn_text *bytes)
{
    char what[160];
    tn_added a = {0};
    const char *content = tn_json_string(tn_json_find(j, "content"));
    TN_TRY(read_flags(t, i, j, &a));
    if (!content || !content[0])
        TN_FAIL(TN_BAD_INPUT, "%s: added_tokens[%lld].content: it has none; give its text", t->path,
                (long long)i);
    snprintf(what, sizeof what, "added_tokens[%lld]: the id of %s", (long long)i,
             tn_tokenizer_quote(content).s);
    TN_TRY(tn_tokenizer_id(t, what, tn_json_find(j, "id"), &a.id));
    bool raw = !tn_tokenizer_bytes(content, bytes);
    TN_TRY(tn_text_end(bytes));
    int32_t known = tn_tokenizer_lookup(t, tn_text_str(bytes), bytes->n_bytes, raw);
    TN_TRY(check_id(t, i, content, a.id, known, number(t, known, *largest)));
    if (known < 0) TN_TRY(tn_tokenizer_add(t, a.id, tn_text_str(bytes), bytes->n_bytes, raw));
    t->tokens[a.id].added = true;
    t->tokens[a.id].outside = known < 0;
    t->tokens[a.id].special = a.special;
    if (a.id > *largest) *largest = a.id;
    return keep(t, &a, content, bytes);
}

tn_status tn_tokenizer_read_added(tn_tokenizer *t, const tn_json *list)
{
    tn_text bytes = {0};
    tn_status st = TN_OK;
    int64_t largest = -1;
    if (list) TN_TRY(tn_tokenizer_want(t, "added_tokens", list, TN_JSON_ARRAY));
    for (int64_t i = 0; i < tn_json_count(list) && !st; i++)
        st = read_token(t, i, tn_json_at(list, i), &largest, &bytes);
    tn_text_fini(&bytes);
    tn_added_index(&t->raw_added);
    tn_added_index(&t->normal_added);
    return st;
}
