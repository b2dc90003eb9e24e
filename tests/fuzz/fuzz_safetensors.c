/* Any bytes: refused with one line, or a file whose every element can be read and whose tensors
 * tile it.
 *
 * The input is read as a file and, because mutation seldom keeps the length in front of a header
 * right, also as header text (up to the last brace) with data behind it. */
#include <stdlib.h>
#include <string.h>

#include "checkpoints/diff.h"
#include "checkpoints/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool ok)
{
    if (!ok) abort();
}

static int64_t read_tensor(const tn_safetensors_tensor *t)
{
    float f[64];
    double d[64];
    int32_t k[64];
    char text[256];
    tn_diff_tensor same;
    int64_t product = 1, good = 0;
    for (int i = 0; i < t->rank; i++) product *= t->shape[i];
    must(product == t->n && t->bytes == t->n * tn_safetensors_dtype_bytes(t->dtype));
    for (int64_t at = 0; at < t->n; at += 64) {
        int64_t count = t->n - at < 64 ? t->n - at : 64;
        good += tn_safetensors_to_f32(t, at, count, f) == TN_OK;
        good += tn_safetensors_to_f64(t, at, count, d) == TN_OK;
        good += tn_safetensors_to_i32(t, at, count, k) == TN_OK;
    }
    tn_diff_tensors(t, t, &same);
    must(same.kind == TN_DIFF_SAME && same.n_differ == 0);
    must(strlen(tn_safetensors_shape_text(t->rank, t->shape, text, sizeof text)) >= 2);
    return good >= 0 ? t->bytes : 0;
}

static void read_file(const void *bytes, size_t n)
{
    tn_safetensors *f = NULL;
    tn_status st = tn_safetensors_parse("fuzz", bytes, n, &f);
    if (st) {
        must(st == TN_BAD_INPUT && !f && !strchr(tn_error_text(), '\n') &&
             strncmp(tn_error_text(), "fuzz: ", 6) == 0);
        return;
    }
    uint64_t header;
    int64_t total = 0;
    memcpy(&header, bytes, sizeof header);
    for (int64_t i = 0; i < tn_safetensors_count(f); i++) {
        const tn_safetensors_tensor *t = tn_safetensors_get(f, i);
        must(tn_safetensors_find(f, t->name) == t &&
             (i == 0 || strcmp(tn_safetensors_get(f, i - 1)->name, t->name) < 0));
        total += read_tensor(t);
    }
    must((uint64_t)total == n - 8 - header);
    must(!tn_safetensors_metadata(f, "format") || !tn_safetensors_find(f, "__metadata__"));
    tn_safetensors_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint64_t header = n;
    read_file(bytes, n);
    while (header && bytes[header - 1] != '}') header--;
    uint8_t *framed = malloc(n + 8);
    must(framed != NULL);
    memcpy(framed, &header, 8);
    if (n) memcpy(framed + 8, bytes, n);
    read_file(framed, n + 8);
    free(framed);
    return 0;
}
