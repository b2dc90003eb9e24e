/* finite.h - looking for values that are not finite. */
#ifndef TN_KERNELS_CPU_FINITE_H
#define TN_KERNELS_CPU_FINITE_H
#include "engine/base/base.h"

TN_C_BEGIN

/* Index of the first NaN or infinity, -1 if there is none. */
int64_t tn_finite_first(const float *x, int64_t n);
int64_t tn_finite_first_bf16(const uint16_t *x, int64_t n);

TN_C_END
#endif
