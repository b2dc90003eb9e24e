/* tokenizer_steps.c - normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json. */
#include "engine/base/mem.h"
#include "engine/tokenizer_parts.h"
#include "engine/unicode.h"

#include <stdio.h>
#include <string.h>

/* GPT-2's, which ByteLevel brings along. */
static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

enum { KEY_BYTES = 256 };

typedef tn_status (*read_fn)(tn_tokenizer *t, const char *key, const tn_json *j, const char *type);

static bool is_null(const tn_json *j)
{
    return tn_json_kind_of(j) == TN_JSON_NULL;
}

static tn_status refuse(const tn_tokenizer *t, const char *key, const char *type, const char *has)
{
    TN_FAIL(TN_BAD_INPUT, "%s: %s.type: %s is not supported; titan reads %s", t->path, key,
            tn_tokenizer_quote(type).s, has);
}

/* Calls `one` for j, or, when it is a Sequence, for each of j[list], in order and to any depth. */
static tn_status read_sequence(tn_tokenizer *t, const char *key, const tn_json *j, const char *list,
                               read_fn one)
{
    char below[KEY_BYTES];
    TN_TRY(tn_tokenizer_want(t, key, j, TN_JSON_OBJECT));
    const char *type = tn_json_string(tn_json_find(j, "type"));
    if (!type) TN_FAIL(TN_BAD_INPUT, "%s: %s.type: it has none; say what it is", t->path, key);
    if (strcmp(type, "Sequence")) return one(t, key, j, type);
    const tn_json *items = tn_json_find(j, list);
    snprintf(below, sizeof below, "%s.%s", key, list);
    TN_TRY(tn_tokenizer_want(t, below, items, TN_JSON_ARRAY));
    for (int64_t i = 0; i < tn_json_count(items); i++) {
        snprintf(below, sizeof below, "%s.%s[%lld]", key, list, (long long)i);
        TN_TRY(read_sequence(t, below, tn_json_at(items, i), list, one));
    }
    return TN_OK;
}

/* ------------------------------------------------------------ normalizer */

static tn_status read_normalizer(tn_tokenizer *t, const char *key, const tn_json *j,
                                 const char *type)
{
    (void)j;
    if (strcmp(type, "NFC")) return refuse(t, key, type, "NFC and Sequence");
    t->nfc = true;
    return TN_OK;
}

/* ------------------------------------------------------------ pre-tokenizer */

static tn_status new_step(tn_tokenizer *t, const char *key, tn_step **out)
{
    if (t->n_steps == TN_MAX_STEPS)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: more than %d pre-tokenizers; use fewer", t->path, key,
                TN_MAX_STEPS);
    *out = &t->steps[t->n_steps++];
    return TN_OK;
}

static tn_status regex_step(tn_tokenizer *t, const char *key, const char *pattern, tn_step **out)
{
    char where[KEY_BYTES * 2];
    TN_TRY(new_step(t, key, out));
    snprintf(where, sizeof where, "%s: %s", t->path, key);
    return tn_regex_compile(where, pattern, &(*out)->regex);
}

static tn_status read_behavior(const tn_tokenizer *t, const char *key, const tn_json *j,
                               tn_step *step)
{
    static const char *const names[] = {[TN_SPLIT_ISOLATED] = "Isolated",
                                        [TN_SPLIT_REMOVED] = "Removed",
                                        [TN_SPLIT_CONTIGUOUS] = "Contiguous",
                                        [TN_SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [TN_SPLIT_WITH_NEXT] = "MergedWithNext"};
    const char *name = tn_json_string(tn_json_find(j, "behavior"));
    if (!name)
        TN_FAIL(TN_BAD_INPUT, "%s: %s.behavior: it has none; say what becomes of matches", t->path,
                key);
    for (int i = 0; i < TN_COUNT(names); i++) {
        if (strcmp(names[i], name)) continue;
        step->behavior = (tn_behavior)i;
        return TN_OK;
    }
    TN_FAIL(TN_BAD_INPUT,
            "%s: %s.behavior: %s is unknown; use Isolated, Removed, Contiguous, MergedWithPrevious "
            "or MergedWithNext",
            t->path, key, tn_tokenizer_quote(name).s);
}

static tn_status read_split(tn_tokenizer *t, const char *key, const tn_json *j)
{
    const tn_json *pattern = tn_json_find(j, "pattern");
    const char *regex = tn_json_string(tn_json_find(pattern, "Regex")),
               *literal = tn_json_string(tn_json_find(pattern, "String"));
    tn_step *step = NULL;
    if (!regex == !literal)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s.pattern: %s; write {\"Regex\": \"...\"} or {\"String\": \"...\"}", t->path,
                key, regex ? "both a Regex and a String" : "neither a Regex nor a String");
    if (regex) {
        char below[KEY_BYTES + 16];
        snprintf(below, sizeof below, "%s.pattern.Regex", key);
        TN_TRY(regex_step(t, below, regex, &step));
    } else {
        if (!literal[0])
            TN_FAIL(TN_BAD_INPUT, "%s: %s.pattern.String: it is empty; give some text", t->path,
                    key);
        TN_TRY(new_step(t, key, &step));
        TN_TRY(tn_arena_text(&t->arena, literal, &step->literal));
        step->n_literal = (int64_t)strlen(literal);
    }
    TN_TRY(read_behavior(t, key, j, step));
    return tn_tokenizer_bool(t, key, j, "invert", &step->invert);
}

static tn_status read_digits(tn_tokenizer *t, const char *key, const tn_json *j)
{
    bool individual = false;
    tn_step *step = NULL;
    TN_TRY(tn_tokenizer_bool(t, key, j, "individual_digits", &individual));
    TN_TRY(regex_step(t, key, "\\p{N}", &step));
    step->behavior = individual ? TN_SPLIT_ISOLATED : TN_SPLIT_CONTIGUOUS;
    return TN_OK;
}

static tn_status read_byte_level(tn_tokenizer *t, const char *key, const tn_json *j)
{
    bool prefix = true, regex = true;
    tn_step *step = NULL;
    TN_TRY(tn_tokenizer_bool(t, key, j, "add_prefix_space", &prefix));
    TN_TRY(tn_tokenizer_bool(t, key, j, "use_regex", &regex));
    if (prefix) TN_TRY(new_step(t, key, &step));
    if (regex) TN_TRY(regex_step(t, key, gpt2, &step));
    t->byte_level = true;
    return TN_OK;
}

static tn_status read_pre_tokenizer(tn_tokenizer *t, const char *key, const tn_json *j,
                                    const char *type)
{
    if (t->byte_level)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: a pre-tokenizer behind ByteLevel is not supported; put it "
                "before",
                t->path, key);
    if (strcmp(type, "Split") == 0) return read_split(t, key, j);
    if (strcmp(type, "Digits") == 0) return read_digits(t, key, j);
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(t, key, j);
    return refuse(t, key, type, "ByteLevel, Split, Digits and Sequence");
}

/* ------------------------------------------------------------ post-processor */

/* ids of one special token; put behind (before = false) or in front of what is there. */
static tn_status add_special(tn_tokenizer *t, const char *key, const tn_json *template,
                             const char *name, int32_t *list, int *n)
{
    const tn_json *entry = tn_json_find(tn_json_find(template, "special_tokens"), name),
                  *ids = tn_json_find(entry, "ids");
    char what[KEY_BYTES * 2];
    if (!entry)
        TN_FAIL(TN_BAD_INPUT, "%s: %s.single: %s is not among its special_tokens; add it", t->path,
                key, tn_tokenizer_quote(name).s);
    snprintf(what, sizeof what, "%s.special_tokens[%s].ids", key, tn_tokenizer_quote(name).s);
    TN_TRY(tn_tokenizer_want(t, what, ids, TN_JSON_ARRAY));
    for (int64_t i = 0; i < tn_json_count(ids); i++) {
        int32_t id;
        TN_TRY(tn_tokenizer_id(t, what, tn_json_at(ids, i), &id));
        if (id >= t->size || !t->tokens[id].is)
            TN_FAIL(TN_BAD_INPUT, "%s: %s: no token has the id %d; correct it", t->path, what, id);
        if (*n == TN_MAX_TEMPLATE)
            TN_FAIL(TN_BAD_INPUT, "%s: %s: more than %d ids on one side of a text; use fewer",
                    t->path, key, TN_MAX_TEMPLATE);
        list[(*n)++] = id;
    }
    return TN_OK;
}

typedef struct template
{
    int32_t before[TN_MAX_TEMPLATE], after[TN_MAX_TEMPLATE];
    int n_before, n_after;
    bool has_text;
}
template;

static tn_status read_piece(tn_tokenizer *t, const char *key, const tn_json *j,
                            const tn_json *piece, template *p)
{
    const tn_json *sequence = tn_json_find(piece, "Sequence"),
                  *special = tn_json_find(piece, "SpecialToken");
    const char *name = tn_json_string(tn_json_find(sequence ? sequence : special, "id"));
    if (!name)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s.single: a piece is neither Sequence nor SpecialToken with an "
                "id; correct it",
                t->path, key);
    if (special) {
        return p->has_text ? add_special(t, key, j, name, p->after, &p->n_after)
                           : add_special(t, key, j, name, p->before, &p->n_before);
    }
    if (strcmp(name, "A") || p->has_text)
        TN_FAIL(TN_BAD_INPUT, "%s: %s.single: it must use the text, A, once; correct it", t->path,
                key);
    p->has_text = true;
    return TN_OK;
}

/* A template behind another goes around what that one made. */
static tn_status read_template(tn_tokenizer *t, const char *key, const tn_json *j)
{
    template p = {.n_before = 0};
    const tn_json *single = tn_json_find(j, "single");
    char what[KEY_BYTES + 16];
    snprintf(what, sizeof what, "%s.single", key);
    TN_TRY(tn_tokenizer_want(t, what, single, TN_JSON_ARRAY));
    for (int64_t i = 0; i < tn_json_count(single); i++)
        TN_TRY(read_piece(t, key, j, tn_json_at(single, i), &p));
    if (!p.has_text)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: it does not use the text; add {\"Sequence\": {\"id\": \"A\", "
                "\"type_id\": 0}}",
                t->path, what);
    if (p.n_before + t->n_before > TN_MAX_TEMPLATE || p.n_after + t->n_after > TN_MAX_TEMPLATE)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: more than %d ids on one side of a text; use fewer", t->path,
                key, TN_MAX_TEMPLATE);
    memmove(t->before + p.n_before, t->before, (size_t)t->n_before * sizeof *t->before);
    memcpy(t->before, p.before, (size_t)p.n_before * sizeof *t->before);
    memcpy(t->after + t->n_after, p.after, (size_t)p.n_after * sizeof *t->after);
    t->n_before += p.n_before;
    t->n_after += p.n_after;
    return TN_OK;
}

static tn_status read_post_processor(tn_tokenizer *t, const char *key, const tn_json *j,
                                     const char *type)
{
    if (strcmp(type, "ByteLevel") == 0) return TN_OK; /* about offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, key, j);
    return refuse(t, key, type, "ByteLevel, TemplateProcessing and Sequence");
}

/* ------------------------------------------------------------ decoder */

static tn_status read_decoder(tn_tokenizer *t, const char *key, const tn_json *j, const char *type)
{
    (void)j;
    if (strcmp(type, "ByteLevel") || t->decodes) return refuse(t, key, type, "one ByteLevel");
    t->decodes = true;
    return TN_OK;
}

/* ------------------------------------------------------------ all */

tn_status tn_tokenizer_read_steps(tn_tokenizer *t, const tn_json *top)
{
    const tn_json *normalizer = tn_json_find(top, "normalizer"),
                  *pre = tn_json_find(top, "pre_tokenizer"),
                  *decoder = tn_json_find(top, "decoder");
    if (!is_null(normalizer))
        TN_TRY(read_sequence(t, "normalizer", normalizer, "normalizers", read_normalizer));
    if (!is_null(pre))
        TN_TRY(read_sequence(t, "pre_tokenizer", pre, "pretokenizers", read_pre_tokenizer));
    if (!t->byte_level)
        TN_FAIL(TN_BAD_INPUT,
                "%s: pre_tokenizer: no ByteLevel in it; titan reads byte-level BPE only", t->path);
    if (!is_null(decoder)) TN_TRY(read_sequence(t, "decoder", decoder, "decoders", read_decoder));
    return TN_OK;
}

tn_status tn_tokenizer_read_template(tn_tokenizer *t, const tn_json *post)
{
    if (is_null(post)) return TN_OK;
    return read_sequence(t, "post_processor", post, "processors", read_post_processor);
}
