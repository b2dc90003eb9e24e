/* isa.h - which instruction set the CPU kernels use, and what a kernel call may rely on. */
#ifndef TN_KERNELS_CPU_ISA_H
#define TN_KERNELS_CPU_ISA_H
#include "engine/base/base.h"
#include "engine/base/pool.h"

TN_C_BEGIN

typedef enum tn_isa { TN_ISA_PORTABLE, TN_ISA_AVX2, TN_ISA_AVX512, TN_N_ISA } tn_isa;

tn_isa tn_isa_best(void);       /* the widest that this build has and this machine runs */
bool tn_isa_usable(tn_isa isa); /* built in, and the machine runs it */
bool tn_isa_pairs(tn_isa isa);  /* it multiplies bf16 two at a time (AVX-512 BF16): for fast mode */
const char *tn_isa_name(tn_isa isa); /* "portable", "avx2", "avx512" */
bool tn_isa_parse(const char *name, tn_isa *out);

/* What every CPU kernel receives. scratch: at least the bytes that the kernel's *_scratch function
 * asked for with this pool's number of threads, aligned to 64; its content means nothing before or
 * after a call. Kernels never allocate. */
typedef struct tn_cpu {
    tn_isa isa;
    tn_pool *pool;
    void *scratch;
    size_t scratch_bytes;
} tn_cpu;

TN_C_END
#endif
