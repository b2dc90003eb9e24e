/* gemm_avx512bf16.c - tiles of the GEMM that multiply bf16 two k at a time, for fast mode
 * (tn_gemm.pairs). gemm_isa.c once more, with vdpbf16ps in the place of the fma. */
#if defined TN_HAVE_AVX512BF16

#define TN_ISA_avx512
#define TN_GEMM_PAIRS
#include "kernels/cpu/gemm_isa.c"

#else

#include "kernels/cpu/gemm_tile.h"

const tn_gemm_isa tn_gemm_isa_pairs = {0, 0, 0, NULL, NULL}; /* never chosen (tn_isa_pairs) */

#endif
