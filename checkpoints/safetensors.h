/* safetensors.h - tensors in a .safetensors file: a reader that trusts nothing, conversions, a
 * streaming writer.
 *
 * The format: u64 little-endian N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets":
 * [begin, end]}, ...,
 * "__metadata__": {string: string}}, then the bytes of the tensors; offsets count from the end of
 * the header. A file that opens has been checked completely: the header is strict JSON without
 * duplicate keys, every dtype is known, every shape is non-negative and its product does not
 * overflow, every byte range has the size its shape and dtype ask for, and the ranges tile the rest
 * of the file exactly, without overlap, hole or surplus. So whoever holds a tensor may read all its
 * bytes.
 *
 * A file is mapped, never read whole; its tensors are views that live until close. A file that
 * another process truncates while it is mapped ends this process by SIGBUS, as with every map.
 */
#ifndef TN_CHECKPOINTS_SAFETENSORS_H
#define TN_CHECKPOINTS_SAFETENSORS_H
#include "engine/base/base.h"

TN_C_BEGIN

enum {
    TN_SAFETENSORS_MAX_HEADER =
        100000000, /* bytes of JSON; the limit of the reference implementation */
    TN_SAFETENSORS_MAX_TENSORS = 1000000,
    TN_SAFETENSORS_MAX_RANK = 8,
    TN_SAFETENSORS_MAX_NAME = 512, /* bytes of a tensor's name; no control characters in it */
};

/* In the order of the reference implementation: its writer sorts tensors by this, descending, then
 * by name. */
typedef enum tn_safetensors_dtype {
    TN_SAFETENSORS_BOOL,
    TN_SAFETENSORS_U8,
    TN_SAFETENSORS_I8,
    TN_SAFETENSORS_F8_E5M2,
    TN_SAFETENSORS_F8_E4M3,
    TN_SAFETENSORS_F8_E8M0,
    TN_SAFETENSORS_I16,
    TN_SAFETENSORS_U16,
    TN_SAFETENSORS_F16,
    TN_SAFETENSORS_BF16,
    TN_SAFETENSORS_I32,
    TN_SAFETENSORS_U32,
    TN_SAFETENSORS_F32,
    TN_SAFETENSORS_F64,
    TN_SAFETENSORS_I64,
    TN_SAFETENSORS_U64,
    TN_SAFETENSORS_N_DTYPES,
} tn_safetensors_dtype;

const char *tn_safetensors_dtype_name(tn_safetensors_dtype dtype); /* "F32" */
int64_t tn_safetensors_dtype_bytes(tn_safetensors_dtype dtype);

typedef struct tn_safetensors tn_safetensors;

typedef struct tn_safetensors_tensor {
    const char *name;
    const char *where; /* path of the file, for messages */
    tn_safetensors_dtype dtype;
    int rank;
    int64_t shape[TN_SAFETENSORS_MAX_RANK];
    int64_t n;        /* elements: the product of shape, 1 for rank 0 */
    int64_t bytes;    /* n * dtype bytes */
    const void *data; /* row-major, little-endian; may be unaligned */
} tn_safetensors_tensor;

tn_status tn_safetensors_open(const char *path, tn_safetensors **out) TN_MUST_USE;

/* The same over bytes in memory, which stay the caller's and must live until close; `where` names
 * them in messages.
 */
tn_status tn_safetensors_parse(const char *where, const void *bytes, size_t size,
                               tn_safetensors **out) TN_MUST_USE;
void tn_safetensors_close(tn_safetensors *file); /* NULL is fine */

const char *tn_safetensors_where(const tn_safetensors *file);
int64_t tn_safetensors_count(const tn_safetensors *file);
const tn_safetensors_tensor *tn_safetensors_get(const tn_safetensors *file,
                                                int64_t i); /* sorted by name (strcmp) */
const tn_safetensors_tensor *tn_safetensors_find(const tn_safetensors *file,
                                                 const char *name);               /* or NULL */
const char *tn_safetensors_metadata(const tn_safetensors *file, const char *key); /* or NULL */

/* The tensor `name`, which must be there with this shape; an extent of -1 takes any. */
tn_status tn_safetensors_require(const tn_safetensors *file, const char *name, int rank,
                                 const int64_t *shape,
                                 const tn_safetensors_tensor **out) TN_MUST_USE;

/* Fails with TN_BAD_INPUT unless `t` has this shape; an extent of -1 takes any. */
tn_status tn_safetensors_check_shape(const tn_safetensors_tensor *t, int rank,
                                     const int64_t *shape) TN_MUST_USE;

/* "[256, 64]" */
const char *tn_safetensors_shape_text(int rank, const int64_t *shape, char *buffer, size_t size);

/* Elements [begin, begin + count) of `t`, converted. F32, F16, BF16 exact, NaN payloads kept; F64
 * rounded to nearest. */
tn_status tn_safetensors_to_f32(const tn_safetensors_tensor *t, int64_t begin, int64_t count,
                                float *out) TN_MUST_USE;
/* F32, F16, BF16, F64: exact. */
tn_status tn_safetensors_to_f64(const tn_safetensors_tensor *t, int64_t begin, int64_t count,
                                double *out) TN_MUST_USE;
/* I32, I64; a value outside int32 fails with its index. */
tn_status tn_safetensors_to_i32(const tn_safetensors_tensor *t, int64_t begin, int64_t count,
                                int32_t *out) TN_MUST_USE;

/* Writing. */
typedef struct tn_safetensors_spec {
    const char *name;
    tn_safetensors_dtype dtype;
    int rank;
    const int64_t *shape;
} tn_safetensors_spec;

/* Write elements [begin, begin + count) of tensor `i` (index into specs) to `out`, in the spec's
 * dtype. */
typedef tn_status (*tn_safetensors_source)(void *arg, int64_t i, int64_t begin, int64_t count,
                                           void *out);

typedef struct tn_safetensors_content {
    const tn_safetensors_spec *specs;
    int64_t n;
    const char *const (*metadata)[2]; /* {key, value} pairs, written in this order */
    int n_metadata;
    tn_safetensors_source source;
    void *arg;
} tn_safetensors_content;

/* The file appears at `path` complete and synced, or not at all. Byte for byte what the reference
 * implementation writes: tensors sorted by dtype then name, header padded to 8 bytes. The source is
 * asked for one piece after another, in file order, never more than 1 MiB: nothing of the model's
 * size is allocated. */
tn_status tn_safetensors_write(const char *path, const tn_safetensors_content *content) TN_MUST_USE;

TN_C_END
#endif
