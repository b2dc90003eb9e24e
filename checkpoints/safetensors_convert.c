/* safetensors_convert.c - dtypes of the format, and elements as float, double or int32.
 *
 * Data in a file may be unaligned (old writers do not pad the header), so elements are copied out,
 * never dereferenced. */
#include "checkpoints/safetensors.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the format is little-endian and read in place");

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[TN_SAFETENSORS_N_DTYPES] = {
    [TN_SAFETENSORS_BOOL] = {"BOOL", 1},       [TN_SAFETENSORS_U8] = {"U8", 1},
    [TN_SAFETENSORS_I8] = {"I8", 1},           [TN_SAFETENSORS_F8_E5M2] = {"F8_E5M2", 1},
    [TN_SAFETENSORS_F8_E4M3] = {"F8_E4M3", 1}, [TN_SAFETENSORS_F8_E8M0] = {"F8_E8M0", 1},
    [TN_SAFETENSORS_I16] = {"I16", 2},         [TN_SAFETENSORS_U16] = {"U16", 2},
    [TN_SAFETENSORS_F16] = {"F16", 2},         [TN_SAFETENSORS_BF16] = {"BF16", 2},
    [TN_SAFETENSORS_I32] = {"I32", 4},         [TN_SAFETENSORS_U32] = {"U32", 4},
    [TN_SAFETENSORS_F32] = {"F32", 4},         [TN_SAFETENSORS_F64] = {"F64", 8},
    [TN_SAFETENSORS_I64] = {"I64", 8},         [TN_SAFETENSORS_U64] = {"U64", 8},
};

const char *tn_safetensors_dtype_name(tn_safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

int64_t tn_safetensors_dtype_bytes(tn_safetensors_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *tn_safetensors_shape_text(int rank, const int64_t *shape, char *buffer, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < rank && at < size; i++)
        at +=
            (size_t)snprintf(buffer + at, size - at, "%s%lld", i ? ", " : "[", (long long)shape[i]);
    if (at < size) snprintf(buffer + at, size - at, "%s", rank ? "]" : "[]");
    return buffer;
}

static float f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Exponent and mantissa shifted into place make the value times 2^-112, subnormals included; the
 * product is exact. Inf and NaN are finite until the exponent is set at the end, so that no
 * multiplication makes a signaling NaN quiet. */
static float f32_of_f16(uint16_t h)
{
    uint32_t scaled = bits_of_f32(f32_of_bits((uint32_t)(h & 0x7fff) << 13) * 0x1p112f);
    uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    return f32_of_bits(scaled | special | (uint32_t)(h & 0x8000) << 16);
}

static float f32_of_bf16(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

static void check_range(const tn_safetensors_tensor *t, int64_t begin, int64_t count)
{
    if (begin < 0 || count < 0 || begin > t->n || count > t->n - begin)
        __builtin_trap(); /* the caller's bug */
}

static tn_status wrong_dtype(const tn_safetensors_tensor *t, const char *takes)
{
    TN_FAIL(TN_BAD_INPUT, "%s: tensor '%s' has dtype %s; here it must be %s", t->where, t->name,
            dtypes[t->dtype].name, takes);
}

tn_status tn_safetensors_to_f32(const tn_safetensors_tensor *t, int64_t begin, int64_t count,
                                float *out)
{
    check_range(t, begin, count);
    const char *src = (const char *)t->data + begin * dtypes[t->dtype].bytes;
    switch (t->dtype) {
    case TN_SAFETENSORS_F32:
        if (count) memcpy(out, src, (size_t)count * sizeof *out);
        return TN_OK;
    case TN_SAFETENSORS_F16:
        for (int64_t i = 0; i < count; i++) {
            uint16_t h;
            memcpy(&h, src + 2 * i, sizeof h);
            out[i] = f32_of_f16(h);
        }
        return TN_OK;
    case TN_SAFETENSORS_BF16:
        for (int64_t i = 0; i < count; i++) {
            uint16_t h;
            memcpy(&h, src + 2 * i, sizeof h);
            out[i] = f32_of_bf16(h);
        }
        return TN_OK;
    case TN_SAFETENSORS_F64:
        for (int64_t i = 0; i < count; i++) {
            double d;
            memcpy(&d, src + 8 * i, sizeof d);
            out[i] = (float)d;
        }
        return TN_OK;
    default:
        return wrong_dtype(t, "F32, F16, BF16 or F64");
    }
}

tn_status tn_safetensors_to_f64(const tn_safetensors_tensor *t, int64_t begin, int64_t count,
                                double *out)
{
    float piece[256];
    if (t->dtype == TN_SAFETENSORS_F64) {
        check_range(t, begin, count);
        if (count) memcpy(out, (const char *)t->data + 8 * begin, (size_t)count * sizeof *out);
        return TN_OK;
    }
    TN_TRY(tn_safetensors_to_f32(t, begin, 0, piece)); /* the dtype, also when count is 0 */
    for (int64_t at = 0; at < count; at += TN_COUNT(piece)) {
        int64_t n = count - at < TN_COUNT(piece) ? count - at : TN_COUNT(piece);
        TN_TRY(tn_safetensors_to_f32(t, begin + at, n, piece));
        for (int64_t i = 0; i < n; i++) out[at + i] = (double)piece[i];
    }
    return TN_OK;
}

tn_status tn_safetensors_to_i32(const tn_safetensors_tensor *t, int64_t begin, int64_t count,
                                int32_t *out)
{
    check_range(t, begin, count);
    if (t->dtype == TN_SAFETENSORS_I32) {
        if (count) memcpy(out, (const char *)t->data + 4 * begin, (size_t)count * sizeof *out);
        return TN_OK;
    }
    if (t->dtype != TN_SAFETENSORS_I64) return wrong_dtype(t, "I32 or I64");
    for (int64_t i = 0; i < count; i++) {
        int64_t v;
        memcpy(&v, (const char *)t->data + 8 * (begin + i), sizeof v);
        if (v < INT32_MIN || v > INT32_MAX)
            TN_FAIL(
                TN_BAD_INPUT,
                "%s: tensor '%s', element %lld: %lld does not fit int32; the limits are %d and %d",
                t->where, t->name, (long long)(begin + i), (long long)v, INT32_MIN, INT32_MAX);
        out[i] = (int32_t)v;
    }
    return TN_OK;
}
