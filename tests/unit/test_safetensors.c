/* safetensors: what is read is what was written, every other file is refused with its place,
 * nothing crashes.
 *
 * Files are made here byte by byte (craft), not by the writer under test. */
#include "checkpoints/safetensors.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/fault.h"
#include "engine/base/text.h"
#include "tests/weights.h"

enum { ROOM = 4096 };

typedef struct blob {
    _Alignas(16) unsigned char bytes[ROOM];
    size_t n;
} blob;

/* Header text, then data_bytes bytes 1, 2, 3, ... */
static blob craft(const char *header, size_t data_bytes)
{
    blob b;
    uint64_t n = strlen(header);
    memcpy(b.bytes, &n, 8);
    memcpy(b.bytes + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++) b.bytes[8 + n + i] = (unsigned char)(i + 1);
    b.n = 8 + n + data_bytes;
    return b;
}

static void refuses(const char *header, size_t data_bytes, const char *part)
{
    blob b = craft(header, data_bytes);
    tn_safetensors *f = NULL;
    tn_status st = tn_safetensors_parse("a.st", b.bytes, b.n, &f);
    TN_CHECK_MSG(strncmp(tn_error_text(), "a.st: ", 6) == 0 && !strchr(tn_error_text(), '\n'),
                 "one line with its place: '%s'", tn_error_text());
    TN_CHECK_FAILS(st, TN_BAD_INPUT, part);
    TN_CHECK(f == NULL);
}

static const char two[] = "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"},"
                          "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[2,26]},"
                          "\"b\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]},"
                          "\"none\":{\"dtype\":\"I64\",\"shape\":[5,0],\"data_offsets\":[26,26]}}";
enum { TWO_DATA = 26 };

static void reading(void)
{
    blob b = craft(two, TWO_DATA);
    const char *path = tn_scratch_write("two.safetensors", b.bytes, b.n);
    tn_safetensors *f = NULL;
    if (!TN_CHECK_OK(tn_safetensors_open(path, &f))) return;
    TN_CHECK(tn_safetensors_count(f) == 3);
    TN_CHECK_TEXT(tn_safetensors_get(f, 0)->name, "b");
    TN_CHECK_TEXT(tn_safetensors_get(f, 1)->name, "none");
    TN_CHECK_TEXT(tn_safetensors_get(f, 2)->name, "w");
    TN_CHECK_TEXT(tn_safetensors_where(f), path);
    TN_CHECK_TEXT(tn_safetensors_metadata(f, "format"), "pt");
    TN_CHECK(!tn_safetensors_metadata(f, "w") && !tn_safetensors_find(f, "x") &&
             !tn_safetensors_find(f, "__metadata__"));
    const tn_safetensors_tensor *w = tn_safetensors_find(f, "w"),
                                *none = tn_safetensors_find(f, "none");
    TN_CHECK(w->rank == 2 && w->shape[0] == 2 && w->shape[1] == 3 && w->n == 6 && w->bytes == 24);
    TN_CHECK(w->dtype == TN_SAFETENSORS_F32 &&
             *(const unsigned char *)w->data == 3); /* and unaligned */
    TN_CHECK(none->rank == 2 && none->n == 0 && none->bytes == 0);
    TN_CHECK(tn_safetensors_find(f, "b")->rank == 0 && tn_safetensors_find(f, "b")->n == 1);
    float got[6];
    TN_CHECK_OK(tn_safetensors_to_f32(w, 1, 5, got));
    TN_CHECK(memcmp(got, (const char *)w->data + 4, 20) == 0);

    const int64_t any[] = {-1, 3}, wrong[] = {2, 4};
    const tn_safetensors_tensor *t = NULL;
    TN_CHECK_OK(tn_safetensors_require(f, "w", 2, any, &t));
    TN_CHECK(t == w);
    TN_CHECK_FAILS(tn_safetensors_require(f, "w", 2, wrong, &t), TN_BAD_INPUT,
                   "'w' has shape [2, 3]; it must be [2, 4]");
    TN_CHECK_FAILS(tn_safetensors_require(f, "w", 1, any, &t), TN_BAD_INPUT, "it must be [-1]");
    TN_CHECK_FAILS(tn_safetensors_require(f, "v", 2, any, &t), TN_BAD_INPUT,
                   "no tensor 'v' among its 3");
    tn_safetensors_close(f);
    tn_safetensors_close(NULL);
    TN_CHECK_FAILS(tn_safetensors_open(tn_scratch_path("absent"), &f), TN_BAD_INPUT,
                   "absent: cannot open");
    TN_CHECK_FAILS(tn_safetensors_open(tn_scratch_folder, &f), TN_BAD_INPUT, "cannot map");
    TN_CHECK_FAILS(tn_safetensors_open(tn_scratch_text("empty", ""), &f), TN_BAD_INPUT,
                   "ends at byte 0");
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void header_refusals(void)
{
    refuses("", 8, "does not begin with '{'");
    refuses(" {}", 0, "does not begin with '{'");
    refuses("[]", 0, "does not begin with '{'");
    refuses("{", 0, "expected strict JSON");
    refuses("{}x", 0, "expected strict JSON");
    refuses("{\"a\":1,}", 0, "expected strict JSON");
    refuses("{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[0,1]") "}", 1, "duplicate");
    refuses("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "duplicate");
    refuses("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate");
    refuses("{\"\\u0000\":1}", 0, "expected strict JSON");
    refuses("{\"\xff\":1}", 0, "expected strict JSON");
    refuses("{\"__metadata__\":{\"a\":1}}", 0,
            "__metadata__ 'a' is a whole number; it must be a string");
    refuses("{\"__metadata__\":[]}", 0, "__metadata__ is a list");
    refuses("{\"a\":3}", 0, "tensor 'a' is a whole number; it must be an object");
    refuses("{" T("", "U8", "[1]", "[0,1]") "}", 1, "empty name");
    refuses("{" T("a\\nb", "U8", "[1]", "[0,1]") "}", 1, "'a?b': control character");
    refuses("{" T("a\\u009bb", "U8", "[1]", "[0,1]") "}", 1, "'a?b': control character");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\\n\":0}}", 1,
            "unknown key 'x?'");
    refuses("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype is null");
    refuses("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape is null");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets must be two");
    refuses("{\"a\":[[[[1]]]]}", 0, "offset 15: header nested deeper");

    char name[TN_SAFETENSORS_MAX_NAME + 2], header[ROOM];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    refuses(header, 1, "a name of 513 bytes; at most 512");
}

static void tensor_refusals(void)
{
    refuses("{" T("a", "F4", "[2]", "[0,1]") "}", 1, "dtype 'F4' is not known here");
    refuses("{" T("a", "f32", "[1]", "[0,4]") "}", 4, "dtype 'f32'");
    refuses("{" T("a", "F3\\u001b[31m", "[1]", "[0,4]") "}", 4, "dtype 'F3?[31m'");
    refuses(
        "{" T("a", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\xc3\xa4y",
              "[1]", "[0,4]") "}",
        4,
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' is not known"); /* whole
                                                                                                 characters
                                                                                               */
    refuses("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "dtype is a whole number");
    refuses("{" T("a", "U8", "1", "[0,1]") "}", 1, "shape is a whole number; it must be a list");
    refuses("{" T("a", "U8", "[-1]", "[0,1]") "}", 1,
            "extent 0 of its shape is no whole number >= 0");
    refuses("{" T("a", "U8", "[1,1.0]", "[0,1]") "}", 1, "extent 1 of its shape");
    refuses("{" T("a", "U8", "[true]", "[0,1]") "}", 1, "extent 0 of its shape");
    refuses("{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1, "expected strict JSON");
    refuses("{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "9 dimensions; at most 8");
    refuses("{" T("a", "U8", "[4294967296,4294967296]", "[0,1]") "}", 1,
            "shape [4294967296, 4294967296] overflows");
    refuses("{" T("a", "F32", "[4611686018427387904]", "[0,1]") "}", 1, "overflows");
    refuses("{" T("a", "U8", "[4294967296,4294967296,0]", "[0,0]") "}", 0, "overflows");
    refuses("{" T("a", "F32", "[2]", "[0,4]") "}", 4,
            "data_offsets [0, 4] hold 4 bytes, but F32 [2] takes 8");
    refuses("{" T("a", "U8", "[1]", "[1,0]") "}", 1, "data_offsets must be two");
    refuses("{" T("a", "U8", "[1]", "[-1,0]") "}", 1, "data_offsets must be two");
    refuses("{" T("a", "U8", "[1]", "[0,1,2]") "}", 1, "data_offsets must be two");
    refuses("{" T("a", "U8", "[1]", "[0.0,1]") "}", 1, "data_offsets must be two");
    refuses("{" T("a", "U8", "[1]", "{}") "}", 1, "data_offsets must be two");
    refuses("{" T("a", "U8", "[9]", "[0,9]") "}", 8,
            "end at offset 70, but the file at 69; truncated?");
    refuses("{" T("a", "U8", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1,
            "truncated?");
    refuses("{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[3,7]") "}", 7,
            "tensors 'a' and 'b' overlap");
    refuses("{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[0,4]") "}", 4, "overlap");
    refuses("{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[0]", "[2,2]") "}", 4, "overlap");
    refuses("{" T("b", "U8", "[4]", "[5,9]") "," T("a", "U8", "[4]", "[0,4]") "}", 9,
            "1 bytes before tensor 'b'");
    refuses("{" T("a", "U8", "[4]", "[1,5]") "}", 5, "1 bytes before tensor 'a'");
    refuses("{" T("a", "U8", "[4]", "[0,4]") "}", 7, "3 bytes at the end belong to no tensor");
    refuses("{}", 1, "1 bytes at the end");
}

static void lengths(void)
{
    tn_safetensors *f = NULL;
    blob b = craft("{}", 0);
    uint64_t n = TN_SAFETENSORS_MAX_HEADER + 1;
    memcpy(b.bytes, &n, 8);
    TN_CHECK_FAILS(tn_safetensors_parse("a", b.bytes, b.n, &f), TN_BAD_INPUT,
                   "header length 100000001; at most 100000000");
    n = UINT64_MAX;
    memcpy(b.bytes, &n, 8);
    TN_CHECK_FAILS(tn_safetensors_parse("a", b.bytes, b.n, &f), TN_BAD_INPUT,
                   "header length 18446744073709551615");
    n = 3;
    memcpy(b.bytes, &n, 8);
    TN_CHECK_FAILS(tn_safetensors_parse("a", b.bytes, b.n, &f), TN_BAD_INPUT,
                   "the header ends at byte 11, but the file at byte 10");
    b = craft("{}      ", 0);
    TN_CHECK_OK(tn_safetensors_parse("a", b.bytes, b.n, &f));
    TN_CHECK(tn_safetensors_count(f) == 0 && !tn_safetensors_find(f, "a"));
    tn_safetensors_close(f);

    /* more values than any legal header has: refused before a tree is built of them */
    tn_text t = {0};
    f = NULL;
    tn_text_put(&t, "\0\0\0\0\0\0\0\0", 8);
    tn_text_add(&t, "{\"a\":[[]");
    for (int i = 0; i < 2 * TN_SAFETENSORS_MAX_TENSORS; i++) tn_text_put(&t, ",[]", 3);
    tn_text_add(&t, "]}");
    n = (uint64_t)t.n_bytes - 8;
    memcpy(t.items, &n, 8);
    int64_t before = tn_mem_count();
    TN_CHECK_FAILS(tn_safetensors_parse("a", t.items, (size_t)t.n_bytes, &f), TN_BAD_INPUT,
                   "more than 1000000 entries");
    TN_CHECK(tn_mem_count() - before < 10);
    tn_text_fini(&t);
}

/* Every prefix is refused; every flipped bit is refused or leaves a file whose tensors can all be
 * read. */
static void broken(void)
{
    blob whole = craft(two, TWO_DATA);
    for (size_t n = 0; n < whole.n; n++) {
        tn_safetensors *f = NULL;
        void *exact = malloc(n ? n : 1); /* the address sanitizer watches its end */
        memcpy(exact, whole.bytes, n);
        TN_CHECK_MSG(tn_safetensors_parse("a", exact, n, &f) == TN_BAD_INPUT && !f,
                     "%zu bytes of %zu", n, whole.n);
        free(exact);
    }
    for (size_t bit = 0; bit < 8 * (whole.n - TWO_DATA); bit++) {
        tn_safetensors *f = NULL;
        blob b = whole;
        b.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (tn_safetensors_parse("a", b.bytes, b.n, &f) != TN_OK) continue;
        int64_t bytes = 0;
        for (int64_t i = 0; i < tn_safetensors_count(f); i++)
            bytes += tn_safetensors_get(f, i)->bytes;
        TN_CHECK_MSG(bytes == TWO_DATA, "bit %zu: %lld bytes in tensors", bit, (long long)bytes);
        tn_safetensors_close(f);
    }
    tn_error_clear();
}

/* IEEE 754 binary16, read off its definition. */
static double half_value(unsigned h)
{
    double sign = h & 0x8000 ? -1 : 1;
    int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    if (e == 31) return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24));
}

static void halves(void)
{
    enum { N = 65536 };
    static uint16_t bits_n[N];
    static float f_n[N];
    static double d_n[N];
    for (int i = 0; i < N; i++) bits_n[i] = (uint16_t)i;
    tn_safetensors_tensor f16 = tn_weights_tensor(TN_SAFETENSORS_F16, bits_n, N),
                          bf16 = tn_weights_tensor(TN_SAFETENSORS_BF16, bits_n, N);
    TN_CHECK_OK(tn_safetensors_to_f32(&f16, 0, N, f_n));
    TN_CHECK_OK(tn_safetensors_to_f64(&f16, 0, N, d_n));
    int64_t bad = 0;
    for (unsigned i = 0; i < N; i++) {
        uint32_t got,
            kept = (uint32_t)(i & 0x8000) << 16 | 0x7f800000u | (uint32_t)(i & 1023) << 13;
        double v = half_value(i);
        memcpy(&got, &f_n[i], 4);
        if (isnan(v)) bad += got != kept || !isnan(d_n[i]);
        else bad += (double)f_n[i] != v || d_n[i] != v || !signbit(f_n[i]) != !(i & 0x8000);
    }
    TN_CHECK_MSG(bad == 0, "%lld of 65536 f16 patterns", (long long)bad);
    TN_CHECK_OK(tn_safetensors_to_f32(&bf16, 0, N, f_n));
    TN_CHECK_OK(tn_safetensors_to_f64(&bf16, 0, N, d_n));
    for (unsigned i = 0; i < N; i++) {
        uint32_t got, want = i << 16;
        int e = (int)(i >> 7 & 255), m = (int)(i & 127);
        double v = (i & 0x8000 ? -1.0 : 1.0) * (e ? ldexp(128 + m, e - 134) : ldexp(m, -133));
        memcpy(&got, &f_n[i], 4);
        bad += got != want || (e < 255 && ((double)f_n[i] != v || d_n[i] != v));
        bad += e == 255 && (m ? !isnan(d_n[i]) : !isinf(d_n[i]));
    }
    TN_CHECK_MSG(bad == 0, "%lld of 65536 bf16 patterns", (long long)bad);
}

static void conversions(void)
{
    static const double f64[] = {1.0,      -0.0, 0.1,         1e300,        5e-324,
                                 INFINITY, NAN,  1 + 0x1p-24, 1 + 0x1.8p-24};
    static const int64_t i64[] = {0, INT32_MIN, INT32_MAX, -100},
                         wide[] = {7, (int64_t)INT32_MAX + 1, INT32_MIN - 1LL};
    static const int32_t i32[] = {INT32_MIN, 5};
    float f[TN_COUNT(f64)];
    double d[TN_COUNT(f64)];
    int32_t i[4];
    tn_safetensors_tensor t = tn_weights_tensor(TN_SAFETENSORS_F64, f64, TN_COUNT(f64));
    TN_CHECK_OK(tn_safetensors_to_f32(&t, 0, t.n, f));
    TN_CHECK(f[0] == 1 && signbit(f[1]) && f[2] == 0.1f && isinf(f[3]) && f[4] == 0 &&
             isinf(f[5]) && isnan(f[6]));
    TN_CHECK(f[7] == 1 && f[8] == 1 + 0x1p-23f); /* nearest, ties to even */
    TN_CHECK_OK(tn_safetensors_to_f64(&t, 1, 4, d));
    TN_CHECK(memcmp(d, f64 + 1, sizeof(double) * 4) == 0);
    TN_CHECK_FAILS(tn_safetensors_to_i32(&t, 0, 1, i), TN_BAD_INPUT,
                   "'t' has dtype F64; here it must be I32 or I64");
    t = tn_weights_tensor(TN_SAFETENSORS_I64, i64, 4);
    TN_CHECK_OK(tn_safetensors_to_i32(&t, 0, 4, i));
    TN_CHECK(i[0] == 0 && i[1] == INT32_MIN && i[2] == INT32_MAX && i[3] == -100);
    TN_CHECK_FAILS(tn_safetensors_to_f32(&t, 0, 0, f), TN_BAD_INPUT,
                   "has dtype I64; here it must be F32, F16, BF16 or F64");
    TN_CHECK_FAILS(tn_safetensors_to_f64(&t, 0, 0, d), TN_BAD_INPUT, "has dtype I64");
    t = tn_weights_tensor(TN_SAFETENSORS_I64, wide, 3);
    TN_CHECK_FAILS(tn_safetensors_to_i32(&t, 0, 3, i), TN_BAD_INPUT,
                   "element 1: 2147483648 does not fit int32");
    TN_CHECK_FAILS(tn_safetensors_to_i32(&t, 2, 1, i), TN_BAD_INPUT,
                   "element 2: -2147483649 does not fit int32");
    t = tn_weights_tensor(TN_SAFETENSORS_I32, i32, 2);
    TN_CHECK_OK(tn_safetensors_to_i32(&t, 1, 1, i));
    TN_CHECK(i[0] == 5);
}

/* A source whose bytes say which element of which tensor they are. */
typedef struct source {
    const tn_safetensors_spec *specs;
    int64_t n_calls, largest, fail_at;
} source;

static unsigned char pattern(int64_t tensor, int64_t byte)
{
    return (unsigned char)(tensor * 59 + byte * 31 + (byte >> 8) * 7);
}

static tn_status fill(void *arg, int64_t i, int64_t begin, int64_t count, void *out)
{
    source *s = arg;
    int64_t each = tn_safetensors_dtype_bytes(s->specs[i].dtype);
    if (++s->n_calls == s->fail_at) TN_FAIL(TN_FAILED, "source: told to fail");
    if (count * each > s->largest) s->largest = count * each;
    for (int64_t b = 0; b < count * each; b++)
        ((unsigned char *)out)[b] = pattern(i, begin * each + b);
    return TN_OK;
}

static const int64_t big_shape[] = {1030, 515}, one_shape[] = {7}, empty_shape[] = {3, 0};
static const tn_safetensors_spec specs[] = {
    {"z.half", TN_SAFETENSORS_F16, 1, one_shape},    {"b.weight", TN_SAFETENSORS_F32, 2, big_shape},
    {"a \"quoted\\", TN_SAFETENSORS_F32, 0, NULL},   {"bytes", TN_SAFETENSORS_U8, 1, one_shape},
    {"empty", TN_SAFETENSORS_F32, 2, empty_shape},   {"wide", TN_SAFETENSORS_I64, 1, one_shape},
    {"\xc3\xa4", TN_SAFETENSORS_BF16, 1, one_shape}, {"double", TN_SAFETENSORS_F64, 1, one_shape},
};
static const char *const metadata[][2] = {{"format", "pt"}, {"odd", "\"\\\n\t\x01\xc3\xa4"}};

static tn_safetensors_content content_of(source *s)
{
    return (tn_safetensors_content){.specs = specs,
                                    .n = TN_COUNT(specs),
                                    .metadata = metadata,
                                    .n_metadata = 2,
                                    .source = fill,
                                    .arg = s};
}

static void writing(void)
{
    source s = {.specs = specs};
    tn_safetensors_content c = content_of(&s);
    const char *path = tn_scratch_path("written.safetensors");
    tn_safetensors *f = NULL;
    char *text = NULL;
    int64_t n = 0;
    TN_CHECK_OK(tn_safetensors_write(path, &c));
    TN_CHECK(s.largest <= 1 << 20 && s.n_calls >= 9);
    if (!TN_CHECK_OK(tn_safetensors_open(path, &f))) return;
    TN_CHECK(tn_safetensors_count(f) == TN_COUNT(specs));
    TN_CHECK_TEXT(tn_safetensors_metadata(f, "format"), "pt");
    TN_CHECK_TEXT(tn_safetensors_metadata(f, "odd"), metadata[1][1]);
    for (int i = 0; i < TN_COUNT(specs); i++) {
        const tn_safetensors_tensor *t = NULL;
        TN_CHECK_OK(tn_safetensors_require(f, specs[i].name, specs[i].rank, specs[i].shape, &t));
        TN_CHECK(t && t->dtype == specs[i].dtype &&
                 (uintptr_t)t->data % (size_t)tn_safetensors_dtype_bytes(t->dtype) == 0);
        int64_t bad = 0;
        for (int64_t b = 0; t && b < t->bytes; b++)
            bad += ((const unsigned char *)t->data)[b] != pattern(i, b);
        TN_CHECK_MSG(bad == 0, "%s: %lld wrong bytes", specs[i].name, (long long)bad);
    }
    /* the reference implementation's order: dtype descending, then name */
    const char *order[] = {"wide",  "double",   "a \"quoted\\", "b.weight",
                           "empty", "\xc3\xa4", "z.half",       "bytes"};
    for (int i = 1; i < TN_COUNT(order); i++)
        TN_CHECK_MSG((const char *)tn_safetensors_find(f, order[i - 1])->data +
                             tn_safetensors_find(f, order[i - 1])->bytes ==
                         (const char *)tn_safetensors_find(f, order[i])->data,
                     "%s before %s", order[i - 1], order[i]);
    tn_safetensors_close(f);

    /* one small file, byte for byte */
    blob want =
        craft("{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}    ", 8);
    const int64_t shape[] = {1, 2};
    const tn_safetensors_spec small = {"attn0", TN_SAFETENSORS_F32, 2, shape};
    for (int64_t i = 0; i < 8; i++) want.bytes[want.n - 8 + (size_t)i] = pattern(0, i);
    s = (source){.specs = &small};
    c = (tn_safetensors_content){.specs = &small, .n = 1, .source = fill, .arg = &s};
    TN_CHECK_OK(tn_safetensors_write(path, &c));
    TN_CHECK_OK(tn_file_read(path, 1 << 20, &text, &n));
    TN_CHECK(n == (int64_t)want.n && memcmp(text, want.bytes, want.n) == 0);
    tn_free(text);
    c = (tn_safetensors_content){0};
    TN_CHECK_OK(tn_safetensors_write(path, &c));
    TN_CHECK_OK(tn_file_read(path, 1 << 20, &text, &n));
    TN_CHECK(n == 16 && memcmp(text, "\x08\0\0\0\0\0\0\0{}      ", 16) == 0);
    tn_free(text);
}

static void write_refuses(tn_safetensors_spec a, const char *part)
{
    const tn_safetensors_spec pair[] = {{"a", TN_SAFETENSORS_F32, 1, one_shape}, a};
    source s = {.specs = pair};
    const tn_safetensors_content c = {.specs = pair, .n = 2, .source = fill, .arg = &s};
    const char *path = tn_scratch_path("refused.safetensors");
    TN_CHECK_FAILS(tn_safetensors_write(path, &c), TN_BAD_INPUT, part);
    TN_CHECK(!tn_file_exists(path) && s.n_calls == 0);
}

static void write_refusals(void)
{
    const int64_t huge[] = {INT64_MAX / 4, 1, 2}, negative[] = {-1}, half[] = {INT64_MAX / 4 - 1};
    write_refuses((tn_safetensors_spec){"a", TN_SAFETENSORS_F16, 1, one_shape},
                  "two tensors named 'a'");
    write_refuses((tn_safetensors_spec){"", TN_SAFETENSORS_F32, 1, one_shape},
                  "cannot be the name");
    write_refuses((tn_safetensors_spec){"__metadata__", TN_SAFETENSORS_F32, 1, one_shape},
                  "cannot be the name");
    write_refuses((tn_safetensors_spec){"x\ny", TN_SAFETENSORS_F32, 1, one_shape},
                  "'x?y' cannot be the name");
    write_refuses((tn_safetensors_spec){"b", TN_SAFETENSORS_F32, 3, huge}, "shape out of range");
    write_refuses((tn_safetensors_spec){"b", TN_SAFETENSORS_F32, 1, negative},
                  "shape out of range");
    write_refuses((tn_safetensors_spec){"b", TN_SAFETENSORS_F32, 9, one_shape},
                  "shape out of range");
    write_refuses((tn_safetensors_spec){"b", TN_SAFETENSORS_F32, 1, half},
                  "the size of all tensors overflows at 'b'");
}

static tn_status write_again(void *arg)
{
    const tn_safetensors_content c = content_of(arg);
    return tn_safetensors_write(tn_scratch_path("again.safetensors"), &c);
}

static tn_status read_again(void *arg)
{
    tn_safetensors *f = NULL;
    TN_TRY(tn_safetensors_open(arg, &f));
    tn_safetensors_close(f);
    return TN_OK;
}

/* Whatever fails, the file under that name is the old one, whole. */
static void failing_writes(void)
{
    source s = {.specs = specs};
    const char *path = tn_scratch_path("again.safetensors");
    static const struct {
        tn_fault place;
        int64_t hits;
    } faults[] = {{TN_FAULT_FILE_OPEN, 1},  {TN_FAULT_FILE_WRITE, 1}, {TN_FAULT_FILE_WRITE, 2},
                  {TN_FAULT_FILE_WRITE, 9}, {TN_FAULT_FILE_SYNC, 1},  {TN_FAULT_FILE_RENAME, 1}};
    tn_scratch_text("again.safetensors", "old");
    for (int i = 0; i < TN_COUNT(faults); i++) {
        char *text = NULL;
        int64_t n = 0;
        tn_fault_arm(faults[i].place, faults[i].hits);
        tn_status st = write_again(&s);
        TN_CHECK_MSG(st != TN_OK && strstr(tn_error_text(), "again.safetensors"), "fault %d: '%s'",
                     i, tn_error_text());
        tn_fault_clear();
        TN_CHECK_OK(tn_file_read(path, 100, &text, &n));
        TN_CHECK_TEXT(text, "old");
        tn_free(text);
    }
    s.fail_at = 3;
    s.n_calls = 0;
    TN_CHECK_FAILS(write_again(&s), TN_FAILED, "source: told to fail");
    s.fail_at = 0;
    TN_CHECK(tn_test_each_alloc(write_again, &s) >= 4);
    TN_CHECK(tn_test_each_alloc(read_again, (void *)(uintptr_t)path) >= 10);
    tn_fault_arm(TN_FAULT_MAP, 1);
    TN_CHECK_FAILS(read_again((void *)(uintptr_t)path), TN_FAILED, "cannot map");
    tn_fault_clear();
}

static void shape_text(void)
{
    char b[64], tiny[8];
    const int64_t shape[] = {256, 64, 1};
    TN_CHECK_TEXT(tn_safetensors_shape_text(3, shape, b, sizeof b), "[256, 64, 1]");
    TN_CHECK_TEXT(tn_safetensors_shape_text(1, shape, b, sizeof b), "[256]");
    TN_CHECK_TEXT(tn_safetensors_shape_text(0, NULL, b, sizeof b), "[]");
    TN_CHECK_TEXT(tn_safetensors_shape_text(3, shape, tiny, sizeof tiny), "[256, 6");
}

/* Files that Python wrote. */
static void golden(void)
{
    const char *const names[] = {"llama/mha/io.safetensors", "llama/packed/train.safetensors"};
    const int64_t n_tensors[] = {25, 4};
    for (int i = 0; i < TN_COUNT(names); i++) {
        const char *path = tn_test_golden(names[i]);
        tn_safetensors *f = NULL;
        if (!path || !TN_CHECK_OK(tn_safetensors_open(path, &f))) continue;
        TN_CHECK_MSG(tn_safetensors_count(f) == n_tensors[i], "%s: %lld tensors", names[i],
                     (long long)tn_safetensors_count(f));
        tn_safetensors_close(f);
    }
}

int main(void)
{
    reading();
    header_refusals();
    tensor_refusals();
    lengths();
    broken();
    halves();
    conversions();
    writing();
    write_refusals();
    failing_writes();
    shape_text();
    golden();
    return tn_test_done("safetensors");
}
