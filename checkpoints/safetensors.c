#include "checkpoints/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints/quote.h"
#include "engine/base/json.h"
#include "engine/base/map.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

struct tn_safetensors {
    tn_arena arena; /* names, where, metadata */
    tn_map map;     /* empty when the bytes are the caller's */
    const char *where;
    tn_safetensors_tensor *tensors; /* sorted by name */
    int64_t n;
    const char *(*metadata)[2];
    int64_t n_metadata;
};

/* A tensor's bytes within the file, for messages that name offsets; data is set once they are known
 * to be there. */
typedef struct range {
    const tn_safetensors_tensor *tensor;
    int64_t begin, end; /* from the end of the header */
} range;

typedef struct reader {
    tn_safetensors *file;
    const char *bytes;
    int64_t size, data_at; /* of the file; where the header ends */
    const tn_json *root;
    range *ranges;
} reader;

/* Bounds what the JSON tree of a header may cost before it is built: a tree takes up to 80 times
 * the bytes of its text. A legal header nests three deep, has one object and two lists per tensor,
 * and a list has at most MAX_RANK elements. */
static tn_status check_structure(const char *where, const char *text, int64_t n)
{
    int64_t objects = 0, lists = 0, commas = 0;
    int depth = 0;
    bool quoted = false;
    for (int64_t i = 0; i < n; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        objects += c == '{';
        lists += c == '[';
        commas += c == ',';
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth > 3)
            TN_FAIL(TN_BAD_INPUT, "%s: offset %lld: header nested deeper than 3 levels", where,
                    (long long)i + 8);
    }
    if (objects > TN_SAFETENSORS_MAX_TENSORS + 2 || lists > 2 * TN_SAFETENSORS_MAX_TENSORS ||
        commas > (TN_SAFETENSORS_MAX_RANK + 8) * (int64_t)TN_SAFETENSORS_MAX_TENSORS)
        TN_FAIL(TN_BAD_INPUT, "%s: header has more than %d entries; the limit is %d tensors", where,
                TN_SAFETENSORS_MAX_TENSORS, TN_SAFETENSORS_MAX_TENSORS);
    return TN_OK;
}

/* On success the header is r->bytes[8 .. r->data_at). */
static tn_status find_header(reader *r)
{
    const char *where = r->file->where;
    uint64_t n;
    if (r->size < 8)
        TN_FAIL(TN_BAD_INPUT,
                "%s: offset 0: the file ends at byte %lld, inside the 8 bytes of the header "
                "length; truncated?",
                where, (long long)r->size);
    memcpy(&n, r->bytes, sizeof n);
    if (n > TN_SAFETENSORS_MAX_HEADER)
        TN_FAIL(TN_BAD_INPUT,
                "%s: offset 0: header length %llu; at most %d: this is no safetensors file", where,
                (unsigned long long)n, TN_SAFETENSORS_MAX_HEADER);
    if ((int64_t)n > r->size - 8)
        TN_FAIL(TN_BAD_INPUT,
                "%s: offset 8: the header ends at byte %llu, but the file at byte %lld; truncated?",
                where, (unsigned long long)n + 8, (long long)r->size);
    if (n == 0 || r->bytes[8] != '{')
        TN_FAIL(TN_BAD_INPUT,
                "%s: offset 8: the header does not begin with '{': this is no safetensors file",
                where);
    r->data_at = 8 + (int64_t)n;
    return check_structure(where, r->bytes + 8, (int64_t)n);
}

static tn_status check_name(const char *where, const char *name, int64_t i)
{
    size_t n = strlen(name);
    if (n == 0)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor %lld of the header has an empty name", where,
                (long long)i);
    if (n > TN_SAFETENSORS_MAX_NAME)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': a name of %zu bytes; at most %d", where,
                tn_quote_text(name).s, n, TN_SAFETENSORS_MAX_NAME);
    for (const char *c = name; *c; c++)
        if (tn_quote_control(c))
            TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': control character in the name", where,
                    tn_quote_text(name).s);
    return TN_OK;
}

static tn_status read_metadata(tn_safetensors *file, const tn_json *json)
{
    void *mem;
    if (tn_json_kind_of(json) != TN_JSON_OBJECT)
        TN_FAIL(TN_BAD_INPUT, "%s: __metadata__ is %s; it must be an object", file->where,
                tn_json_kind_name(tn_json_kind_of(json)));
    TN_TRY(
        tn_arena_alloc(&file->arena, (size_t)tn_json_count(json) * sizeof *file->metadata, &mem));
    file->metadata = mem;
    for (tn_json_pair p = tn_json_first(json); p.key; p = tn_json_next(p)) {
        const char *value = tn_json_string(p.value);
        if (!value)
            TN_FAIL(TN_BAD_INPUT, "%s: __metadata__ '%s' is %s; it must be a string", file->where,
                    tn_quote_text(p.key).s, tn_json_kind_name(tn_json_kind_of(p.value)));
        TN_TRY(tn_arena_text(&file->arena, p.key, &file->metadata[file->n_metadata][0]));
        TN_TRY(tn_arena_text(&file->arena, value, &file->metadata[file->n_metadata][1]));
        file->n_metadata++;
    }
    return TN_OK;
}

static tn_status read_dtype(tn_safetensors_tensor *t, const tn_json *json)
{
    const char *name = tn_json_string(json);
    if (!name)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': dtype is %s; it must be a string", t->where,
                t->name, tn_json_kind_name(tn_json_kind_of(json)));
    for (int i = 0; i < TN_SAFETENSORS_N_DTYPES; i++) {
        if (strcmp(name, tn_safetensors_dtype_name((tn_safetensors_dtype)i)) != 0) continue;
        t->dtype = (tn_safetensors_dtype)i;
        return TN_OK;
    }
    TN_FAIL(TN_BAD_INPUT,
            "%s: tensor '%s': dtype '%s' is not known here; store it as F32, F16 or BF16", t->where,
            t->name, tn_quote_text(name).s);
}

/* t->n and t->bytes from t->shape and t->dtype. */
static tn_status read_sizes(tn_safetensors_tensor *t)
{
    char shape[256];
    int64_t n = 1;
    bool bad = false;
    for (int i = 0; i < t->rank; i++) bad |= __builtin_mul_overflow(n, t->shape[i], &n);
    bad |= __builtin_mul_overflow(n, tn_safetensors_dtype_bytes(t->dtype), &t->bytes);
    if (bad)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': the size of shape %s overflows", t->where, t->name,
                tn_safetensors_shape_text(t->rank, t->shape, shape, sizeof shape));
    t->n = n;
    return TN_OK;
}

static tn_status read_shape(tn_safetensors_tensor *t, const tn_json *json)
{
    int64_t rank = tn_json_count(json);
    if (tn_json_kind_of(json) != TN_JSON_ARRAY)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': shape is %s; it must be a list", t->where, t->name,
                tn_json_kind_name(tn_json_kind_of(json)));
    if (rank > TN_SAFETENSORS_MAX_RANK)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': %lld dimensions; at most %d", t->where, t->name,
                (long long)rank, TN_SAFETENSORS_MAX_RANK);
    t->rank = (int)rank;
    for (int i = 0; i < t->rank; i++)
        if (!tn_json_int(tn_json_at(json, i), &t->shape[i]) || t->shape[i] < 0)
            TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s': extent %d of its shape is no whole number >= 0",
                    t->where, t->name, i);
    return read_sizes(t);
}

static tn_status read_range(const reader *r, const tn_safetensors_tensor *t, const tn_json *json,
                            range *out)
{
    char shape[256];
    bool ok = tn_json_kind_of(json) == TN_JSON_ARRAY && tn_json_count(json) == 2 &&
              tn_json_int(tn_json_at(json, 0), &out->begin) &&
              tn_json_int(tn_json_at(json, 1), &out->end);
    if (!ok || out->begin < 0 || out->end < out->begin)
        TN_FAIL(TN_BAD_INPUT,
                "%s: tensor '%s': data_offsets must be two whole numbers, 0 <= begin <= end",
                t->where, t->name);
    if (out->end - out->begin != t->bytes)
        TN_FAIL(TN_BAD_INPUT,
                "%s: tensor '%s': data_offsets [%lld, %lld] hold %lld bytes, but %s %s takes %lld",
                t->where, t->name, (long long)out->begin, (long long)out->end,
                (long long)(out->end - out->begin), tn_safetensors_dtype_name(t->dtype),
                tn_safetensors_shape_text(t->rank, t->shape, shape, sizeof shape),
                (long long)t->bytes);
    if (out->end > r->size - r->data_at)
        TN_FAIL(TN_BAD_INPUT,
                "%s: tensor '%s': its bytes end at offset %llu, but the file at %lld; truncated?",
                t->where, t->name, (unsigned long long)out->end + (unsigned long long)r->data_at,
                (long long)r->size);
    out->tensor = t;
    return TN_OK;
}

static tn_status read_tensor(reader *r, const char *name, const tn_json *json)
{
    tn_safetensors *file = r->file;
    tn_safetensors_tensor *t = &file->tensors[file->n];
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    TN_TRY(check_name(file->where, name, file->n));
    TN_TRY(tn_arena_text(&file->arena, name, &t->name));
    t->where = file->where;
    if (tn_json_kind_of(json) != TN_JSON_OBJECT)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s' is %s; it must be an object", file->where, name,
                tn_json_kind_name(tn_json_kind_of(json)));
    for (tn_json_pair p = tn_json_first(json); p.key; p = tn_json_next(p))
        if (strcmp(p.key, keys[0]) != 0 && strcmp(p.key, keys[1]) != 0 &&
            strcmp(p.key, keys[2]) != 0)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: tensor '%s': unknown key '%s'; dtype, shape and data_offsets are known",
                    file->where, name, tn_quote_text(p.key).s);
    TN_TRY(read_dtype(t, tn_json_find(json, keys[0])));
    TN_TRY(read_shape(t, tn_json_find(json, keys[1])));
    TN_TRY(read_range(r, t, tn_json_find(json, keys[2]), &r->ranges[file->n]));
    t->data = r->bytes + r->data_at + r->ranges[file->n].begin;
    file->n++;
    return TN_OK;
}

static int by_offset(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b)
{
    const tn_safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* No overlap, no hole, nothing behind the last tensor. */
static tn_status check_tiling(reader *r)
{
    const tn_safetensors *file = r->file;
    const char *before = NULL;
    int64_t at = 0, end = r->size - r->data_at;
    if (file->n) qsort(r->ranges, (size_t)file->n, sizeof *r->ranges, by_offset);
    for (int64_t i = 0; i < file->n; i++) {
        const range *g = &r->ranges[i];
        if (g->begin < at)
            TN_FAIL(TN_BAD_INPUT, "%s: offset %lld: tensors '%s' and '%s' overlap", file->where,
                    (long long)(r->data_at + g->begin), before, g->tensor->name);
        if (g->begin > at)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: offset %lld: %lld bytes before tensor '%s' belong to no tensor",
                    file->where, (long long)(r->data_at + at), (long long)(g->begin - at),
                    g->tensor->name);
        at = g->end;
        before = g->tensor->name;
    }
    if (at < end)
        TN_FAIL(TN_BAD_INPUT, "%s: offset %lld: %lld bytes at the end belong to no tensor",
                file->where, (long long)(r->data_at + at), (long long)(end - at));
    return TN_OK;
}

static tn_status read_header(reader *r)
{
    tn_safetensors *file = r->file;
    tn_text where = {0};
    void *mem;
    TN_TRY(find_header(r));
    tn_text_add(&where, "%s: header", file->where);
    tn_status st = tn_text_end(&where);
    if (!st) st = tn_json_parse(tn_text_str(&where), r->bytes + 8, r->data_at - 8, &r->root);
    tn_text_fini(&where);
    TN_TRY(st);
    size_t n = (size_t)tn_json_count(r->root);
    TN_TRY(tn_alloc(n * sizeof *file->tensors, &mem));
    file->tensors = mem;
    TN_TRY(tn_alloc(n * sizeof *r->ranges, &mem));
    r->ranges = mem;
    for (tn_json_pair p = tn_json_first(r->root); p.key; p = tn_json_next(p)) {
        if (strcmp(p.key, "__metadata__") == 0) TN_TRY(read_metadata(file, p.value));
        else TN_TRY(read_tensor(r, p.key, p.value));
    }
    TN_TRY(check_tiling(r));
    if (file->n) qsort(file->tensors, (size_t)file->n, sizeof *file->tensors, by_name);
    return TN_OK;
}

static tn_status read_file(tn_safetensors *file, const char *bytes, int64_t size)
{
    reader r = {.file = file, .bytes = bytes, .size = size};
    tn_status st = read_header(&r);
    tn_free(r.ranges);
    tn_json_free(r.root);
    return st;
}

static tn_status new_file(const char *where, tn_safetensors **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof **out, &mem));
    tn_safetensors *file = mem;
    tn_status st = tn_arena_text(&file->arena, where, &file->where);
    if (st) {
        tn_safetensors_close(file);
        return st;
    }
    *out = file;
    return TN_OK;
}

tn_status tn_safetensors_open(const char *path, tn_safetensors **out)
{
    tn_safetensors *file;
    TN_TRY(new_file(path, &file));
    tn_status st = tn_map_open(path, &file->map);
    if (!st) st = read_file(file, file->map.data, file->map.n);
    if (st) {
        tn_safetensors_close(file);
        return st;
    }
    *out = file;
    return TN_OK;
}

tn_status tn_safetensors_parse(const char *where, const void *bytes, size_t size,
                               tn_safetensors **out)
{
    tn_safetensors *file;
    TN_TRY(new_file(where, &file));
    tn_status st = read_file(file, bytes, (int64_t)size);
    if (st) {
        tn_safetensors_close(file);
        return st;
    }
    *out = file;
    return TN_OK;
}

void tn_safetensors_close(tn_safetensors *file)
{
    if (!file) return;
    tn_map_close(&file->map);
    tn_free(file->tensors);
    tn_arena_fini(&file->arena);
    tn_free(file);
}

const char *tn_safetensors_where(const tn_safetensors *file)
{
    return file->where;
}

int64_t tn_safetensors_count(const tn_safetensors *file)
{
    return file->n;
}

const tn_safetensors_tensor *tn_safetensors_get(const tn_safetensors *file, int64_t i)
{
    return &file->tensors[i];
}

const tn_safetensors_tensor *tn_safetensors_find(const tn_safetensors *file, const char *name)
{
    tn_safetensors_tensor key = {.name = name};
    if (!file->n) return NULL;
    return bsearch(&key, file->tensors, (size_t)file->n, sizeof key, by_name);
}

const char *tn_safetensors_metadata(const tn_safetensors *file, const char *key)
{
    for (int64_t i = 0; i < file->n_metadata; i++)
        if (strcmp(file->metadata[i][0], key) == 0) return file->metadata[i][1];
    return NULL;
}

tn_status tn_safetensors_check_shape(const tn_safetensors_tensor *t, int rank, const int64_t *shape)
{
    char has[256], wants[256];
    bool same = t->rank == rank;
    for (int i = 0; same && i < rank; i++) same = shape[i] == -1 || shape[i] == t->shape[i];
    if (!same)
        TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s' has shape %s; it must be %s", t->where, t->name,
                tn_safetensors_shape_text(t->rank, t->shape, has, sizeof has),
                tn_safetensors_shape_text(rank, shape, wants, sizeof wants));
    return TN_OK;
}

tn_status tn_safetensors_require(const tn_safetensors *file, const char *name, int rank,
                                 const int64_t *shape, const tn_safetensors_tensor **out)
{
    const tn_safetensors_tensor *t = tn_safetensors_find(file, name);
    if (!t)
        TN_FAIL(TN_BAD_INPUT, "%s: no tensor '%s' among its %lld", file->where, name,
                (long long)file->n);
    TN_TRY(tn_safetensors_check_shape(t, rank, shape));
    *out = t;
    return TN_OK;
}
