/* test_finite.c - the first value that is not finite, wherever it stands. */
#include "kernels/cpu/finite.h"
#include "tests/cpu.h"

int main(void)
{
    uint64_t r = 1;
    for (int64_t n = 0; n < 1200; n = n * 2 + 1) {
        float *values = tn_test_uniform(&r, n, 3e38f),
              *x = malloc((size_t)n * sizeof *x + 1); /* its end is the block's end */
        if (!x) exit(1);
        for (int64_t i = 0; i < n; i++) x[i] = i % 3 ? values[i] : i % 2 ? 0x1p-149f : -0.0f;
        TN_CHECK(tn_finite_first(x, n) == -1);
        for (int64_t at = n - 1; at >= 0; at--) {
            x[at] = at % 3 == 0 ? NAN : at % 3 == 1 ? INFINITY : -INFINITY;
            TN_CHECK(tn_finite_first(x, n) == at);
        }
        uint16_t *h = malloc((size_t)n * sizeof *h + 1);
        if (!h) exit(1);
        for (int64_t i = 0; i < n; i++) h[i] = i % 2 ? 0x7f7f : 0x8000; /* the largest; -0 */
        TN_CHECK(tn_finite_first_bf16(h, n) == -1);
        for (int64_t at = n - 1; at >= 0; at--) {
            h[at] = at % 3 == 0 ? 0x7fc0 : at % 3 == 1 ? 0x7f80 : 0xff80;
            TN_CHECK(tn_finite_first_bf16(h, n) == at);
        }
        free(h);
        tn_test_free(values);
        free(x);
    }
    return tn_test_done("finite");
}
