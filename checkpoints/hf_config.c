#include "checkpoints/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoints/quote.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

enum {
    MAX_BYTES = 4 << 20
}; /* the largest published ones hold lists of layers and stay under 100 KiB */

tn_status tn_hf_config_parse(const char *path, const char *text, int64_t n, tn_hf_config *out)
{
    const tn_json *root = NULL;
    void *copy = NULL;
    TN_TRY(tn_json_parse(path, text, n, &root));
    tn_status st = TN_OK;
    if (tn_json_kind_of(root) != TN_JSON_OBJECT)
        st = tn_error(TN_BAD_INPUT, "%s: holds %s; it must be an object", path,
                      tn_json_kind_name(tn_json_kind_of(root)));
    if (!st) st = tn_alloc(strlen(path) + 1, &copy);
    if (st) {
        tn_json_free(root);
        return st;
    }
    strcpy(copy, path);
    *out = (tn_hf_config){.path = copy, .root = root};
    return TN_OK;
}

tn_status tn_hf_config_read(const char *dir, tn_hf_config *out)
{
    tn_text path = {0};
    char *text = NULL;
    int64_t n = 0;
    tn_text_add(&path, "%s/config.json", dir);
    tn_status st = tn_text_end(&path);
    if (!st) st = tn_file_read(tn_text_str(&path), MAX_BYTES, &text, &n);
    if (!st) st = tn_hf_config_parse(tn_text_str(&path), text, n, out);
    tn_free(text);
    tn_text_fini(&path);
    return st;
}

void tn_hf_config_free(tn_hf_config *c)
{
    tn_json_free(c->root);
    tn_free((void *)(uintptr_t)c->path);
    *c = (tn_hf_config){0};
}

const tn_json *tn_hf_config_find(const tn_hf_config *c, const char *key)
{
    char part[64];
    const tn_json *at = c->root;
    for (;;) {
        size_t n = strcspn(key, ".");
        if (n >= sizeof part) return NULL;
        memcpy(part, key, n);
        part[n] = 0;
        at = tn_json_find(at, part);
        if (!key[n]) break;
        key += n + 1;
    }
    return tn_json_kind_of(at) == TN_JSON_NULL ? NULL : at;
}

static tn_status missing(const tn_hf_config *c, const char *key, const char *what)
{
    TN_FAIL(TN_BAD_INPUT, "%s: %s: missing; it must be %s", c->path, key, what);
}

static tn_status wrong_kind(const tn_hf_config *c, const char *key, const tn_json *j,
                            const char *what)
{
    TN_FAIL(TN_BAD_INPUT, "%s: %s: is %s; it must be %s", c->path, key,
            tn_json_kind_name(tn_json_kind_of(j)), what);
}

tn_status tn_hf_config_int(const tn_hf_config *c, const char *key, int64_t min, int64_t max,
                           const int64_t *fallback, int64_t *out)
{
    const tn_json *j = tn_hf_config_find(c, key);
    char what[96];
    int64_t v;
    snprintf(what, sizeof what, "a whole number from %lld to %lld", (long long)min, (long long)max);
    if (!j && !fallback) return missing(c, key, what);
    if (!j) {
        *out = *fallback;
        return TN_OK;
    }
    if (!tn_json_int(j, &v)) return wrong_kind(c, key, j, what);
    if (v < min || v > max)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: %lld is no whole number from %lld to %lld; nearest legal value %lld",
                c->path, key, (long long)v, (long long)min, (long long)max,
                (long long)(v < min ? min : max));
    *out = v;
    return TN_OK;
}

tn_status tn_hf_config_number(const tn_hf_config *c, const char *key, double min, double max,
                              const double *fallback, double *out)
{
    const tn_json *j = tn_hf_config_find(c, key);
    char what[96];
    double v;
    snprintf(what, sizeof what, "a number from %g to %g", min, max);
    if (!j && !fallback) return missing(c, key, what);
    if (!j) {
        *out = *fallback;
        return TN_OK;
    }
    if (!tn_json_number(j, &v)) return wrong_kind(c, key, j, what);
    if (!(v >= min && v <= max))
        TN_FAIL(TN_BAD_INPUT, "%s: %s: %s is no number from %g to %g; nearest legal value %g",
                c->path, key, tn_text_double(v).s, min, max, v < min ? min : max);
    *out = v;
    return TN_OK;
}

tn_status tn_hf_config_bool(const tn_hf_config *c, const char *key, const bool *fallback, bool *out)
{
    const tn_json *j = tn_hf_config_find(c, key);
    if (!j && !fallback) return missing(c, key, "true or false");
    if (!j) {
        *out = *fallback;
        return TN_OK;
    }
    if (!tn_json_bool(j, out)) return wrong_kind(c, key, j, "true or false");
    return TN_OK;
}

static tn_status wrong_word(const tn_hf_config *c, const char *key, const char *word,
                            const tn_hf_config_words *words)
{
    char list[256];
    size_t at = 0;
    list[0] = 0;
    for (int i = 0; i < words->n_legal && at < sizeof list; i++)
        at +=
            (size_t)snprintf(list + at, sizeof list - at, "%s'%s'", i ? ", " : "", words->legal[i]);
    const char *near = tn_text_nearest(word, words->legal, words->n_legal);
    TN_FAIL(TN_BAD_INPUT, "%s: %s: '%s' is none of %s; nearest legal value '%s'", c->path, key,
            tn_quote_text(word).s, list, near ? near : words->legal[0]);
}

tn_status tn_hf_config_string(const tn_hf_config *c, const char *key,
                              const tn_hf_config_words *words, const char **out)
{
    const tn_json *j = tn_hf_config_find(c, key);
    const char *v = tn_json_string(j);
    bool legal = words->n_legal == 0;
    if (!j && !words->fallback) return missing(c, key, "a string");
    if (!j) {
        *out = words->fallback;
        return TN_OK;
    }
    if (!v) return wrong_kind(c, key, j, "a string");
    for (int i = 0; i < words->n_legal; i++) legal |= strcmp(words->legal[i], v) == 0;
    if (!legal) return wrong_word(c, key, v, words);
    *out = v;
    return TN_OK;
}

/* A string under either of two keys; both together must agree. NULL when neither is there. */
static tn_status one_of(const tn_hf_config *c, const char *key, const char *old_key,
                        const char **out)
{
    const tn_hf_config_words any = {.fallback = ""};
    const char *now, *old;
    TN_TRY(tn_hf_config_string(c, key, &any, &now));
    TN_TRY(tn_hf_config_string(c, old_key, &any, &old));
    if (*now && *old && strcmp(now, old) != 0)
        TN_FAIL(TN_BAD_INPUT, "%s: %s: '%s', but %s says '%s'; keep one of them", c->path, key,
                tn_quote_text(now).s, old_key, tn_quote_text(old).s);
    *out = *now ? now : *old ? old : NULL;
    return TN_OK;
}

tn_hf_config_key tn_hf_config_rope_key(const tn_hf_config_rope *rope, const char *name)
{
    tn_hf_config_key k;
    snprintf(k.s, sizeof k.s, "%s.%s", rope->section, name);
    return k;
}

/* An object with numbers, strings and lists of numbers, but no objects: those would be parameters
 * for each layer type. */
static tn_status check_section(const tn_hf_config *c, const tn_hf_config_rope *r)
{
    if (!r->params) return TN_OK;
    if (tn_json_kind_of(r->params) != TN_JSON_OBJECT)
        return wrong_kind(c, r->section, r->params, "an object");
    for (tn_json_pair p = tn_json_first(r->params); p.key; p = tn_json_next(p))
        if (tn_json_kind_of(p.value) == TN_JSON_OBJECT)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: %s.%s: is an object; parameters for each layer type are not supported",
                    c->path, r->section, tn_quote_text(p.key).s);
    return TN_OK;
}

/* Theta stands beside the section or in it. */
static tn_status read_theta(const tn_hf_config *c, tn_hf_config_rope *r, double default_theta)
{
    const double least = 1e-6, most = 1e18, none = 0;
    const tn_hf_config_key inside = tn_hf_config_rope_key(r, "rope_theta");
    double beside_v, inside_v;
    TN_TRY(tn_hf_config_number(c, "rope_theta", least, most, &none, &beside_v));
    TN_TRY(tn_hf_config_number(c, inside.s, least, most, &none, &inside_v));
    if (beside_v != none && inside_v != none && beside_v != inside_v)
        TN_FAIL(TN_BAD_INPUT, "%s: rope_theta: %g, but %s says %g; keep one of them", c->path,
                beside_v, inside.s, inside_v);
    r->theta = inside_v != none ? inside_v : beside_v != none ? beside_v : default_theta;
    return TN_OK;
}

/* Both sections: the same keys with the same values, or somebody edited one of them. */
static tn_status check_agreement(const tn_hf_config *c, const tn_json *now, const tn_json *old)
{
    for (tn_json_pair p = tn_json_first(old); p.key; p = tn_json_next(p)) {
        const tn_json *other = tn_json_find(now, strcmp(p.key, "type") == 0 ? "rope_type" : p.key);
        const char *s = tn_json_string(p.value), *t = tn_json_string(other);
        double x = 0, y = 0;
        bool same = s ? t && strcmp(s, t) == 0 : tn_json_kind_of(p.value) == tn_json_kind_of(other);
        if (tn_json_number(p.value, &x)) same = tn_json_number(other, &y) && x == y;
        if (!same)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: rope_scaling.%s: differs from rope_parameters; keep one of them", c->path,
                    tn_quote_text(p.key).s);
    }
    return TN_OK;
}

tn_status tn_hf_config_rope_find(const tn_hf_config *c, double default_theta,
                                 tn_hf_config_rope *out)
{
    tn_hf_config_rope now = {.section = "rope_parameters",
                             .params = tn_hf_config_find(c, "rope_parameters")};
    tn_hf_config_rope old = {.section = "rope_scaling",
                             .params = tn_hf_config_find(c, "rope_scaling")};
    TN_TRY(check_section(c, &now));
    TN_TRY(check_section(c, &old));
    if (now.params && old.params) TN_TRY(check_agreement(c, now.params, old.params));
    tn_hf_config_rope *r = now.params ? &now : &old;
    TN_TRY(read_theta(c, r, default_theta));
    TN_TRY(one_of(c, tn_hf_config_rope_key(r, "rope_type").s, tn_hf_config_rope_key(r, "type").s,
                  &r->type));
    if (!r->type && r->params && r == &old)
        return missing(c, "rope_scaling.rope_type", "the kind of scaling");
    if (!r->type) r->type = "default";
    *out = *r;
    return TN_OK;
}

tn_status tn_hf_config_dtype(const tn_hf_config *c, const char **out)
{
    return one_of(c, "dtype", "torch_dtype", out);
}
