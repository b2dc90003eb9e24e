#include "kernels/cpu/finite.h"

#include <string.h>

int64_t tn_finite_first(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 256) {
        int64_t m = n - i < 256 ? n - i : 256;
        uint32_t worst = 0;
        for (int64_t k = 0; k < m; k++) {
            uint32_t b;
            memcpy(&b, x + i + k, 4);
            b &= 0x7fffffff;
            worst = b > worst ? b : worst;
        }
        for (int64_t k = 0; worst >= 0x7f800000 && k < m; k++)
            if (x[i + k] - x[i + k] != 0) return i + k;
    }
    return -1;
}
