/* rope.h - rotary position embedding, halves rotated against each other               (Su et al.
 * 2021; layout of Hugging Face)
 *
 *     y[i]       = x[i] cos - x[i + d/2] sin          for i < d/2, cos and sin of position *
 * freq[i] y[i + d/2] = x[i + d/2] cos + x[i] sin
 *
 * One product is rounded, the other goes through fma. The inverse (sin negated) is the gradient.
 */
#ifndef TN_KERNELS_CPU_ROPE_H
#define TN_KERNELS_CPU_ROPE_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

/* Llama 3.1: wavelengths above original / low are stretched by factor, below original / high kept,
 * between blended. */
typedef struct tn_rope_scaling {
    double factor, low, high, original;
} tn_rope_scaling;

/* table [positions d]: row p holds cos(p freq[i]) for i < d/2, then the sines; freq[i] =
 * theta^(-2i/d), then scaled (NULL: not). In double with libm, rounded once: for plan time, not a
 * kernel. d is even. */
void tn_rope_table(int64_t positions, int64_t d, double theta, const tn_rope_scaling *scaling,
                   float *table);

typedef struct tn_rope_args {
    int64_t tokens, heads, d;
    int64_t x_stride, y_stride; /* elements from one token to the next; heads * d where they lie
                                   close */
    const void *x;              /* [tokens heads d] */
    const float *table;         /* [positions d]: every position is a row of it */
    const int32_t *positions;   /* [tokens] */
    bool inverse;
    void *y;   /* [tokens heads d]; x itself, or apart from it */
    bool bf16; /* x, y */
} tn_rope_args;

void tn_rope_apply(const tn_cpu *cpu, const tn_rope_args *a);

/* From rope_isa.c, once per instruction set: tokens [begin, end). */
typedef struct tn_rope_fns {
    void (*apply)(const tn_rope_args *a, int64_t begin, int64_t end);
} tn_rope_fns;

TN_C_END
#endif
