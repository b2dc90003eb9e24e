/* weights.h - small tensors and safetensors files for tests: made in one line, from one value. */
#ifndef TN_TESTS_WEIGHTS_H
#define TN_TESTS_WEIGHTS_H
#include "checkpoints/safetensors.h"

#include "engine/base/file.h"
#include "tests/scratch.h"
#include "tests/test.h"

/* A source: every tensor holds *(float *)arg, then one more per element. */
TN_UNUSED static tn_status tn_weights_fill(void *arg, int64_t i, int64_t begin, int64_t count,
                                           void *out)
{
    (void)i;
    for (int64_t k = 0; k < count; k++)
        ((float *)out)[k] = *(const float *)arg + (float)(begin + k);
    return TN_OK;
}

static const int64_t tn_weights_two[] = {2};

/* A file in the scratch folder whose n (up to 8) F32 [2] tensors hold value and value + 1. */
TN_UNUSED static void tn_weights_put(const char *file, const char *const *names, int n, float value)
{
    tn_safetensors_spec specs[8];
    for (int i = 0; i < n; i++)
        specs[i] = (tn_safetensors_spec){names[i], TN_SAFETENSORS_F32, 1, tn_weights_two};
    const tn_safetensors_content c = {
        .specs = specs, .n = n, .source = tn_weights_fill, .arg = &value};
    TN_CHECK_OK(tn_safetensors_write(tn_scratch_path(file), &c));
}

TN_UNUSED static void tn_weights_folder(const char *name)
{
    TN_CHECK_OK(tn_file_mkdirs(tn_scratch_path(name)));
}

/* A [n] tensor 't' of file 'a.st' over bytes in memory. */
TN_UNUSED static tn_safetensors_tensor tn_weights_tensor(tn_safetensors_dtype dtype,
                                                         const void *data, int64_t n)
{
    return (tn_safetensors_tensor){.name = "t",
                                   .where = "a.st",
                                   .dtype = dtype,
                                   .rank = 1,
                                   .shape = {n},
                                   .n = n,
                                   .bytes = n * tn_safetensors_dtype_bytes(dtype),
                                   .data = data};
}

#endif
