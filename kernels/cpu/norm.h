/* norm.h - RMSNorm: y = x * r * w, r = 1/sqrt(mean(x^2 over d) + eps)             (Zhang & Sennrich
 * 2019, eq. 4)
 *
 * Rows are independent. Sums over a row: lane i mod 16, then the pairwise tree (DESIGN.md 7 (12)).
 * n = x * r is rounded before it meets w, forwards and backwards. Outputs may be the same buffers
 * as inputs of the same shape.
 *
 * With `bf16` everything but r and the levels of the gain's sum is stored in bf16: loads widen,
 * every store rounds, and so does n where it meets w and, in the gain's gradient, dy. dx is made
 * of the n before that rounding.
 */
#ifndef TN_KERNELS_CPU_NORM_H
#define TN_KERNELS_CPU_NORM_H
#include "graph/order.h"
#include "kernels/cpu/isa.h"

TN_C_BEGIN

/* add != NULL: h = x + add is written first, and normalised in the place of x. */
typedef struct tn_norm_forward_args {
    int64_t rows, d;
    float eps;
    const void *x, *add, *w; /* [rows d], [rows d] or NULL, [d] */
    void *h, *y;             /* [rows d] where add is given, [rows d] */
    float *r;                /* [rows] */
    bool bf16;
} tn_norm_forward_args;

/* dx = r * (g - n * mean(g * n)), g = dy * w; `more` != NULL: dx = more + that, rounded in between.
 */
typedef struct tn_norm_backward_args {
    int64_t rows, d;
    const void *x; /* [rows d] */
    const float *r;
    const void *w, *dy, *more; /* [d], [rows d], [rows d] or NULL */
    void *dx;                  /* [rows d] */
    bool bf16;
} tn_norm_backward_args;

/* The gain's gradient over one run of the token order: leaf = chain over its tokens k of acc =
 * fma(dy, n, acc). stack: the program's levels, [d] each: read below run.depth_in, written below
 * run.depth_out. */
typedef struct tn_norm_gain_args {
    int64_t d;
    const void *x; /* [tokens d] */
    const float *r;
    const void *dy; /* [tokens d] */
    tn_order_run run;
    float *stack[TN_ORDER_MAX_DEPTH];
    bool bf16; /* x, dy */
} tn_norm_gain_args;

void tn_norm_forward(const tn_cpu *cpu, const tn_norm_forward_args *a);
void tn_norm_backward(const tn_cpu *cpu, const tn_norm_backward_args *a);
void tn_norm_gain(const tn_cpu *cpu, const tn_norm_gain_args *a);

/* From norm_isa.c, once per instruction set: rows [begin, end); columns [begin, end), at most
 * TN_NORM_GAIN_COLS. */
enum { TN_NORM_GAIN_COLS = 512 };
typedef struct tn_norm_fns {
    void (*forward)(const tn_norm_forward_args *a, int64_t begin, int64_t end);
    void (*backward)(const tn_norm_backward_args *a, int64_t begin, int64_t end);
    void (*gain)(const tn_norm_gain_args *a, int64_t begin, int64_t end);
} tn_norm_fns;

TN_C_END
#endif
