/* optim.h - optimizers over flat fp32 arrays, PyTorch's formulas. Element by element: any cut gives
 * the same bits.
 *
 * AdamW (Loshchilov & Hutter 2019):  p -= lr wd p;  m += (1 - b1)(g - m);  v = b2 v + (1 - b2) g^2;
 *                                    p -= (lr / bc1) m / (sqrt(v) / sqrt(bc2) + eps),  bci = 1 -
 * bi^step Adam: g += wd p instead of the decay of p. SGD: g += wd p; buf = momentum buf + g (the
 * first time: g); p -= lr buf. g is the gradient times the clip coefficient.
 */
#ifndef TN_KERNELS_CPU_OPTIM_H
#define TN_KERNELS_CPU_OPTIM_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

typedef struct tn_optim_adam {
    int64_t n, step; /* step counts from 1 */
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled;
    const float *coefficient; /* of clipping */
    const float *grad;        /* [n] */
    float *param, *m, *v;     /* [n], updated in place */
} tn_optim_adam;
void tn_optim_adam_run(const tn_cpu *cpu, const tn_optim_adam *a);

typedef struct tn_optim_sgd {
    int64_t n, step;
    double lr, momentum, weight_decay;
    const float *coefficient, *grad;
    float *param, *buffer;
} tn_optim_sgd;
void tn_optim_sgd_run(const tn_cpu *cpu, const tn_optim_sgd *a);

/* From optim_isa.c, once per instruction set: elements [begin, end); the constants rounded to float
 * by the caller. */
typedef struct tn_optim_constants {
    float lr, decay, b2, c1, c2, eps, wd, step_size, root_bc2, momentum,
        coefficient; /* c: 1 - beta */
    bool decoupled, first;
} tn_optim_constants;
typedef struct tn_optim_fns {
    void (*adam)(const tn_optim_adam *a, const tn_optim_constants *k, int64_t begin, int64_t end);
    void (*sgd)(const tn_optim_sgd *a, const tn_optim_constants *k, int64_t begin, int64_t end);
} tn_optim_fns;

TN_C_END
#endif
