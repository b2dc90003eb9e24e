/* diff.h - two sets of tensors compared: to the bit (`titan diff`), and by the measure of golden
 * values (`titan parity`).
 *
 * Bits: IDENTICAL means equal names, dtypes, shapes and bytes, so that -0 and +0 differ and a NaN
 * equals itself. Measure: the max abs difference over the max abs truth, per tensor; not finite
 * against finite is an infinite error.
 */
#ifndef TN_CHECKPOINTS_DIFF_H
#define TN_CHECKPOINTS_DIFF_H
#include "checkpoints/safetensors.h"

TN_C_BEGIN

typedef enum tn_diff_kind {
    TN_DIFF_SAME,
    TN_DIFF_VALUES,
    TN_DIFF_SHAPE,
    TN_DIFF_DTYPE,
    TN_DIFF_ONLY_A,
    TN_DIFF_ONLY_B,
    TN_DIFF_CONFIG, /* a key of config.json; name is the key */
} tn_diff_kind;

typedef struct tn_diff_tensor {
    tn_diff_kind kind;
    char name[TN_SAFETENSORS_MAX_NAME + 1];
    char a_is[128], b_is[128]; /* "F32 [256, 64]"; "" for the side that lacks it */
    int64_t n, n_differ;       /* elements, and how many have other bits */
    int64_t first;             /* index of the first of these */
    double a, b;               /* its values (as double; integers beyond 2^53 rounded) */
    double max_abs; /* max abs difference over all elements; infinite where only one side is NaN or
                       Inf */
} tn_diff_tensor;

/* Two tensors of one name. */
void tn_diff_tensors(const tn_safetensors_tensor *a, const tn_safetensors_tensor *b,
                     tn_diff_tensor *out);

/* Told of every tensor that differs, in the order of names. May be NULL. */
typedef void (*tn_diff_fn)(void *arg, const tn_diff_tensor *difference);

typedef struct tn_diff_result {
    bool identical;
    int64_t n_tensors, n_differ; /* names in a or b, and how many of them differ */
    int64_t n_elements_differ;
    double max_abs;       /* the largest of all tensors with values on both sides */
    tn_diff_tensor first; /* kind TN_DIFF_SAME when identical */
} tn_diff_result;

/* Two Hugging Face folders: config.json (by value, whatever the order of its keys), then all
 * tensors. */
tn_status tn_diff_folders(const char *a, const char *b, tn_diff_fn fn, void *arg,
                          tn_diff_result *out) TN_MUST_USE;
tn_status tn_diff_files(const char *a, const char *b, tn_diff_fn fn, void *arg,
                        tn_diff_result *out) TN_MUST_USE;

/* One line: "model.norm.weight: 3 of 64 elements differ, max abs difference 1.2e-07, first at [17]:
 * 0.5 and 0.50000012"; a_where and b_where name the sides. */
const char *tn_diff_text(const tn_diff_tensor *d, const char *a_where, const char *b_where,
                         char *buffer, size_t size);

/* The measure of golden values. */
typedef struct tn_diff_error {
    double max_abs, max_truth; /* max abs difference, max abs truth */
    double error;  /* max_abs / max_truth; 0 when nothing differs, infinite when only the truth is
                      all 0 */
    int64_t worst; /* index of the element with max_abs */
} tn_diff_error;

/* got: truth->n values. truth: a floating tensor. */
tn_status tn_diff_measure(const float *got, const tn_safetensors_tensor *truth,
                          tn_diff_error *out) TN_MUST_USE;
tn_status tn_diff_measure_tensors(const tn_safetensors_tensor *got,
                                  const tn_safetensors_tensor *truth,
                                  tn_diff_error *out) TN_MUST_USE;

/* The worst tensor of a whole file against the truth; every tensor of truth must be in got, with
 * its shape. */
typedef struct tn_diff_worst {
    int64_t n_tensors;
    const tn_safetensors_tensor *tensor; /* of truth; NULL when that has none */
    tn_diff_error error;
} tn_diff_worst;
tn_status tn_diff_measure_files(const tn_safetensors *got, const tn_safetensors *truth,
                                tn_diff_worst *out) TN_MUST_USE;

TN_C_END
#endif
