/* loss.h - cross entropy over a vocabulary that may be split, and its gradient (DESIGN.md 7 (12))
 *
 * parts: per vocabulary part of the reduce grid (m, s, target): maximum of the logits, sum of exp(z
 * - m) (lane i mod 16 from the part's start, then the pairwise tree), the label's logit (0 where it
 * lies in another part). An empty part has s = 0. merge: m = max, s = s_a e^(m_a - m) + s_b e^(m_b
 * - m) in the balanced tree over the parts, empty ones passed through; lse = m + log s; nll = log s
 * + (m - target), 0 where the label is negative (-100: no target). backward: (e^(z - lse) -
 * [label]) * coefficient, 0 where the label is negative.
 */
#ifndef TN_KERNELS_CPU_LOSS_H
#define TN_KERNELS_CPU_LOSS_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

typedef struct tn_loss_parts_args {
    int64_t rows, vocab, v_begin, v_count; /* of the whole vocabulary, the columns of logits */
    int64_t parts, part_begin, part_count; /* of the grid; those that the columns are made of */
    const float *logits;                   /* [rows v_count] */
    const int32_t *labels;                 /* [rows] */
    float *stats;                          /* [rows part_count 3] */
} tn_loss_parts_args;
void tn_loss_parts(const tn_cpu *cpu, const tn_loss_parts_args *a);

typedef struct tn_loss_merge_args {
    int64_t rows, parts; /* parts: a power of two, at most TN_LOSS_MAX_PARTS */
    const float *stats;  /* [rows parts 3] */
    const int32_t *labels;
    float *nll, *lse; /* [rows] */
} tn_loss_merge_args;
enum { TN_LOSS_MAX_PARTS = 256 };
void tn_loss_merge(const tn_cpu *cpu, const tn_loss_merge_args *a);

typedef struct tn_loss_grad_args {
    int64_t rows, v_begin, v_count;
    const float *logits, *lse, *coefficient;
    const int32_t *labels;
    float *grad; /* [rows v_count]; may be logits */
} tn_loss_grad_args;
void tn_loss_backward(const tn_cpu *cpu, const tn_loss_grad_args *a);

/* From loss_isa.c, once per instruction set: rows [begin, end). */
typedef struct tn_loss_fns {
    void (*parts)(const tn_loss_parts_args *a, int64_t begin, int64_t end);
    void (*merge)(const tn_loss_merge_args *a, int64_t begin, int64_t end);
    void (*backward)(const tn_loss_grad_args *a, int64_t begin, int64_t end);
} tn_loss_fns;

TN_C_END
#endif
