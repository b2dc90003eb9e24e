/* gemm.h - matrix products whose sums keep the order of graph/order.h, in fp32.
 *
 * C_o[m, n] = sum over k of A_o[m, k] * B_o[k, n]: every element is the value of the order's
 * program on its own products, so that neither blocking nor threads nor the instruction set changes
 * a bit. Three uses, all row-major: y[n,f]  = x[n,d] W[f,d]^T     several outputs that share A: q,
 * k, v or gate, up on one input dx[n,d] = dy[n,f] W[f,d]      several sources: leaf r chains part r
 * of the first weight, then of the second, ... dW[f,d] = dy[n,f]^T x[n,d]    the order of tokens;
 * several outputs that share B
 *
 * A run of a program that was cut keeps its stack in memory: before it, level i < depth_in lies in
 * stack[i], and after it, level i < depth_out; both are shaped as C with row stride n. Exception:
 * if c is given, the only level after the run (depth_out must be 1) goes to c instead, which may be
 * stack[0]. C is only written, so it may hold anything before.
 *
 * Operands may be bf16, each on its own: they are widened, the sums are those of fp32. A bf16 C is
 * rounded once, to nearest even; with `add`, the sum is rounded, and what is added to it once more.
 */
#ifndef TN_KERNELS_CPU_GEMM_H
#define TN_KERNELS_CPU_GEMM_H
#include "engine/base/base.h"
#include "graph/order.h"
#include "kernels/cpu/isa.h"

TN_C_BEGIN

enum { TN_GEMM_MAX = 8 };

/* Element (m, k) of A at a[m * a_m + k * a_k], (k, n) of B at b[k * b_k + n * b_n]; one stride of
 * each is 1. */
typedef struct tn_gemm_src {
    const void *a;
    int64_t a_m, a_k;
    const void *b;
    int64_t b_k, b_n;
    bool a_bf16, b_bf16;
} tn_gemm_src;

typedef struct tn_gemm_out {
    void *c; /* [m, n] with row stride ldc; NULL: the levels go to stack */
    int64_t ldc;
    int64_t m, n;
    const void *add; /* NULL, or [m, n] with row stride ldadd: C = sum + add, after the root; may be
                        c itself */
    int64_t ldadd;
    float *stack[TN_ORDER_MAX_DEPTH];
    bool c_bf16; /* c and add */
} tn_gemm_out;

/* n_out or n_src is 1. With several outputs, output o reads src[o], and all of them agree in A and
 * m, or in B and n. With several sources, instruction `LEAF s ..` reads src[s]. The leaves of a
 * source follow each other: each begins where the one before it ended. */
typedef struct tn_gemm {
    int n_out, n_src;
    tn_gemm_out out[TN_GEMM_MAX];
    tn_gemm_src src[TN_GEMM_MAX];
    const tn_order_run *order;
    bool pairs; /* no order is kept between k = 2 i and 2 i + 1, and subnormals are zero:
                   tn_isa_pairs. All operands are bf16, every source has an even number of k, and
                   the program counts i in the place of k */
} tn_gemm;

void tn_gemm_run(const tn_cpu *cpu, const tn_gemm *g);

/* Bytes of scratch that tn_gemm_run needs: at most about 8 MiB and half a MiB per thread, whatever
 * the shape. Only the extents, the agreement of pointers and the order's program count. */
size_t tn_gemm_scratch(int n_threads, const tn_gemm *g);

TN_C_END
#endif
