#include "checkpoints/diff.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoints/hf.h"
#include "checkpoints/quote.h"
#include "engine/base/text.h"

enum { PIECE = 512 };

/* max over abs differences; 0 where both are the same infinity or both NaN. */
static double distance(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) return 0;
    double d = fabs(a - b);
    return isnan(d) ? INFINITY : d;
}

static double integer_at(const tn_safetensors_tensor *t, int64_t i)
{
    const char *p = (const char *)t->data + i * tn_safetensors_dtype_bytes(t->dtype);
    union {
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
    } v = {0};
    memcpy(&v, p, (size_t)tn_safetensors_dtype_bytes(t->dtype));
    switch (t->dtype) {
    case TN_SAFETENSORS_I8:
        return v.i8;
    case TN_SAFETENSORS_I16:
        return v.i16;
    case TN_SAFETENSORS_U16:
        return v.u16;
    case TN_SAFETENSORS_I32:
        return v.i32;
    case TN_SAFETENSORS_U32:
        return v.u32;
    case TN_SAFETENSORS_I64:
        return (double)v.i64;
    case TN_SAFETENSORS_U64:
        return (double)v.u64;
    default:
        return v.u8; /* U8, BOOL and the bits of 8-bit floats */
    }
}

static bool is_float(const tn_safetensors_tensor *t)
{
    return t->dtype == TN_SAFETENSORS_F32 || t->dtype == TN_SAFETENSORS_F16 ||
           t->dtype == TN_SAFETENSORS_BF16 || t->dtype == TN_SAFETENSORS_F64;
}

static void values(const tn_safetensors_tensor *t, int64_t begin, int64_t n, double *out)
{
    if (!is_float(t)) {
        for (int64_t i = 0; i < n; i++) out[i] = integer_at(t, begin + i);
    } else if (tn_safetensors_to_f64(t, begin, n, out) != TN_OK) {
        __builtin_trap(); /* is_float says what converts */
    }
}

static void compare_piece(const tn_safetensors_tensor *a, const tn_safetensors_tensor *b,
                          int64_t begin, int64_t n, tn_diff_tensor *out)
{
    const size_t each = (size_t)tn_safetensors_dtype_bytes(a->dtype);
    const char *x = (const char *)a->data + (size_t)begin * each,
               *y = (const char *)b->data + (size_t)begin * each;
    double a_n[PIECE], b_n[PIECE];
    if (memcmp(x, y, (size_t)n * each) == 0) return;
    values(a, begin, n, a_n);
    values(b, begin, n, b_n);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(x + (size_t)i * each, y + (size_t)i * each, each) == 0) continue;
        if (out->n_differ++ == 0) {
            out->first = begin + i;
            out->a = a_n[i];
            out->b = b_n[i];
        }
        out->max_abs = fmax(out->max_abs, distance(a_n[i], b_n[i]));
    }
}

static bool same_shape(const tn_safetensors_tensor *a, const tn_safetensors_tensor *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

static void say_what(const tn_safetensors_tensor *t, char *out, size_t size)
{
    char shape[112];
    snprintf(out, size, "%s %s", tn_safetensors_dtype_name(t->dtype),
             tn_safetensors_shape_text(t->rank, t->shape, shape, sizeof shape));
}

void tn_diff_tensors(const tn_safetensors_tensor *a, const tn_safetensors_tensor *b,
                     tn_diff_tensor *out)
{
    *out = (tn_diff_tensor){.kind = TN_DIFF_SAME, .n = a->n};
    snprintf(out->name, sizeof out->name, "%s", a->name);
    say_what(a, out->a_is, sizeof out->a_is);
    say_what(b, out->b_is, sizeof out->b_is);
    if (!same_shape(a, b)) {
        out->kind = TN_DIFF_SHAPE;
    } else if (a->dtype != b->dtype) {
        out->kind = TN_DIFF_DTYPE;
    } else {
        for (int64_t at = 0; at < a->n; at += PIECE)
            compare_piece(a, b, at, a->n - at < PIECE ? a->n - at : PIECE, out);
        if (out->n_differ) out->kind = TN_DIFF_VALUES;
    }
}

/* Names in order, from a folder or a file. */
typedef struct side {
    const tn_hf *hf;
    const tn_safetensors *file;
} side;

static int64_t side_count(side s)
{
    return s.hf ? tn_hf_count(s.hf) : tn_safetensors_count(s.file);
}

static const tn_safetensors_tensor *side_get(side s, int64_t i)
{
    if (i >= side_count(s)) return NULL;
    return s.hf ? tn_hf_get(s.hf, i) : tn_safetensors_get(s.file, i);
}

typedef struct report {
    tn_diff_fn fn;
    void *arg;
    tn_diff_result *result;
} report;

static void report_one(const report *r, const tn_diff_tensor *d)
{
    tn_diff_result *out = r->result;
    if (d->kind == TN_DIFF_SAME) return;
    if (out->identical) out->first = *d;
    out->identical = false;
    out->n_differ += d->kind != TN_DIFF_CONFIG;
    out->n_elements_differ += d->n_differ;
    out->max_abs = fmax(out->max_abs, d->max_abs);
    if (r->fn) r->fn(r->arg, d);
}

static void compare_sides(side a, side b, const report *r)
{
    int64_t i = 0, j = 0;
    tn_diff_tensor d;
    for (;;) {
        const tn_safetensors_tensor *x = side_get(a, i), *y = side_get(b, j);
        if (!x && !y) return;
        int order = !x ? 1 : !y ? -1 : strcmp(x->name, y->name);
        if (order == 0) {
            tn_diff_tensors(x, y, &d);
        } else {
            const tn_safetensors_tensor *t = order < 0 ? x : y;
            d = (tn_diff_tensor){.kind = order < 0 ? TN_DIFF_ONLY_A : TN_DIFF_ONLY_B, .n = t->n};
            snprintf(d.name, sizeof d.name, "%s", t->name);
            say_what(t, order < 0 ? d.a_is : d.b_is, sizeof d.a_is);
        }
        i += order <= 0;
        j += order >= 0;
        r->result->n_tensors++;
        report_one(r, &d);
    }
}

tn_status tn_diff_files(const char *a, const char *b, tn_diff_fn fn, void *arg, tn_diff_result *out)
{
    tn_safetensors *x = NULL, *y = NULL;
    tn_diff_result result = {.identical = true};
    tn_status st = tn_safetensors_open(a, &x);
    if (!st) st = tn_safetensors_open(b, &y);
    if (!st) {
        compare_sides((side){.file = x}, (side){.file = y}, &(report){fn, arg, &result});
        *out = result;
    }
    tn_safetensors_close(x);
    tn_safetensors_close(y);
    return st;
}

static bool same_json(const tn_json *a, const tn_json *b)
{
    double x, y;
    int64_t i, j;
    bool p, q;
    if (tn_json_int(a, &i) && tn_json_int(b, &j)) return i == j;
    if (tn_json_number(a, &x) && tn_json_number(b, &y)) return x == y;
    if (tn_json_kind_of(a) != tn_json_kind_of(b) || tn_json_count(a) != tn_json_count(b))
        return false;
    if (tn_json_string(a)) return strcmp(tn_json_string(a), tn_json_string(b)) == 0;
    if (tn_json_bool(a, &p) && tn_json_bool(b, &q)) return p == q;
    if (tn_json_kind_of(a) == TN_JSON_ARRAY)
        for (i = 0; i < tn_json_count(a); i++)
            if (!same_json(tn_json_at(a, i), tn_json_at(b, i))) return false;
    for (tn_json_pair pair = tn_json_first(a); pair.key; pair = tn_json_next(pair)) {
        const tn_json *other = tn_json_find(b, pair.key);
        if (!other || !same_json(pair.value, other)) return false;
    }
    return true;
}

/* Keys of a that b lacks or has with another value; with `lacks_only` only those that b lacks. */
static void compare_keys(const tn_json *a, const tn_json *b, bool lacks_only, const report *r)
{
    for (tn_json_pair p = tn_json_first(a); p.key; p = tn_json_next(p)) {
        const tn_json *other = tn_json_find(b, p.key);
        if (other && (lacks_only || same_json(p.value, other))) continue;
        tn_diff_tensor d = {.kind = TN_DIFF_CONFIG};
        snprintf(d.name, sizeof d.name, "%s", tn_quote_text(p.key).s);
        report_one(r, &d);
    }
}

tn_status tn_diff_folders(const char *a, const char *b, tn_diff_fn fn, void *arg,
                          tn_diff_result *out)
{
    tn_hf *x = NULL, *y = NULL;
    tn_diff_result result = {.identical = true};
    const report r = {fn, arg, &result};
    tn_status st = tn_hf_open(a, &x);
    if (!st) st = tn_hf_open(b, &y);
    if (!st) {
        compare_keys(tn_hf_config_of(x)->root, tn_hf_config_of(y)->root, false, &r);
        compare_keys(tn_hf_config_of(y)->root, tn_hf_config_of(x)->root, true, &r);
        compare_sides((side){.hf = x}, (side){.hf = y}, &r);
        *out = result;
    }
    tn_hf_close(x);
    tn_hf_close(y);
    return st;
}

const char *tn_diff_text(const tn_diff_tensor *d, const char *a_where, const char *b_where,
                         char *buffer, size_t size)
{
    switch (d->kind) {
    case TN_DIFF_SAME:
        snprintf(buffer, size, "%s: identical", d->name);
        break;
    case TN_DIFF_SHAPE:
    case TN_DIFF_DTYPE:
        snprintf(buffer, size, "%s: %s and %s", d->name, d->a_is, d->b_is);
        break;
    case TN_DIFF_ONLY_A:
        snprintf(buffer, size, "%s: only in %s", d->name, a_where);
        break;
    case TN_DIFF_ONLY_B:
        snprintf(buffer, size, "%s: only in %s", d->name, b_where);
        break;
    case TN_DIFF_CONFIG:
        snprintf(buffer, size, "config.json: %s differs", d->name);
        break;
    case TN_DIFF_VALUES:
        snprintf(buffer, size,
                 "%s: %lld of %lld elements differ, max abs difference %.3g, first at element "
                 "%lld: %s and %s",
                 d->name, (long long)d->n_differ, (long long)d->n, d->max_abs, (long long)d->first,
                 tn_text_double(d->a).s, tn_text_double(d->b).s);
        break;
    }
    return buffer;
}

/* Add elements [begin, begin + n) to a running measure. */
static void measure_piece(const double *got, const double *truth, int64_t begin, int64_t n,
                          tn_diff_error *e)
{
    for (int64_t i = 0; i < n; i++) {
        double d = distance(got[i], truth[i]), size = fabs(truth[i]);
        if (d > e->max_abs) {
            e->max_abs = d;
            e->worst = begin + i;
        }
        if (size > e->max_truth && isfinite(size)) e->max_truth = size;
    }
}

static void measure_end(tn_diff_error *e)
{
    e->error = e->max_abs == 0 ? 0 : e->max_truth == 0 ? INFINITY : e->max_abs / e->max_truth;
}

tn_status tn_diff_measure(const float *got, const tn_safetensors_tensor *truth, tn_diff_error *out)
{
    double got_n[PIECE], truth_n[PIECE];
    tn_diff_error e = {0};
    TN_TRY(tn_safetensors_to_f64(truth, 0, 0, truth_n)); /* its dtype, also when it is empty */
    for (int64_t at = 0; at < truth->n; at += PIECE) {
        int64_t n = truth->n - at < PIECE ? truth->n - at : PIECE;
        TN_TRY(tn_safetensors_to_f64(truth, at, n, truth_n));
        for (int64_t i = 0; i < n; i++) got_n[i] = (double)got[at + i];
        measure_piece(got_n, truth_n, at, n, &e);
    }
    measure_end(&e);
    *out = e;
    return TN_OK;
}

tn_status tn_diff_measure_tensors(const tn_safetensors_tensor *got,
                                  const tn_safetensors_tensor *truth, tn_diff_error *out)
{
    double got_n[PIECE], truth_n[PIECE];
    tn_diff_error e = {0};
    TN_TRY(tn_safetensors_check_shape(got, truth->rank, truth->shape));
    TN_TRY(tn_safetensors_to_f64(truth, 0, 0, truth_n));
    TN_TRY(tn_safetensors_to_f64(got, 0, 0, got_n));
    for (int64_t at = 0; at < truth->n; at += PIECE) {
        int64_t n = truth->n - at < PIECE ? truth->n - at : PIECE;
        TN_TRY(tn_safetensors_to_f64(truth, at, n, truth_n));
        TN_TRY(tn_safetensors_to_f64(got, at, n, got_n));
        measure_piece(got_n, truth_n, at, n, &e);
    }
    measure_end(&e);
    *out = e;
    return TN_OK;
}

tn_status tn_diff_measure_files(const tn_safetensors *got, const tn_safetensors *truth,
                                tn_diff_worst *out)
{
    tn_diff_worst worst = {0};
    for (int64_t i = 0; i < tn_safetensors_count(truth); i++) {
        const tn_safetensors_tensor *t = tn_safetensors_get(truth, i), *g;
        tn_diff_error e;
        TN_TRY(tn_safetensors_require(got, t->name, t->rank, t->shape, &g));
        TN_TRY(tn_diff_measure_tensors(g, t, &e));
        worst.n_tensors++;
        if (worst.tensor && !(e.error > worst.error.error)) continue;
        worst.tensor = t;
        worst.error = e;
    }
    *out = worst;
    return TN_OK;
}
