/* lr.h - the learning rate's factor at each step: warm up, stay, decay (the schedule that
 * TorchTitan users know).
 *
 * With s counted from 0, T steps in total, W of warm-up and D of decay:
 *
 *   s < W             (s + 1) / W
 *   s < T + 1 - D     1
 *   else              m + (1 - m) f(p), p = (s - (T - D)) / D; f: linear 1 - p, sqrt 1 - sqrt(p),
 *                     cosine (1 + cos(pi p)) / 2
 *
 * W = min(warmup_steps, T); D = round(T * decay_ratio) (half to even), or T - W without a ratio,
 * never more than T - W. The stable part is one virtual step longer than T - W - D, so the last
 * step never has a rate of zero.
 *
 * Only the four operations and sqrt are used, no cosine of libm: every machine computes the same
 * bits.
 */
#ifndef TN_ENGINE_LR_H
#define TN_ENGINE_LR_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef enum tn_lr_decay { TN_LR_LINEAR, TN_LR_SQRT, TN_LR_COSINE } tn_lr_decay;

/* As in the recipe's section lr_scheduler. */
typedef struct tn_lr_options {
    int64_t steps;        /* training.steps */
    int64_t total_steps;  /* of the schedule; 0: steps */
    int64_t warmup_steps; /* >= 0; more than total_steps counts as total_steps */
    double
        decay_ratio; /* share of total_steps that decays, 0 .. 1; below 0: all after the warm-up */
    const char *decay_type; /* "linear" (also NULL), "sqrt", "cosine" */
    double min_lr_factor;   /* floor of the decay, 0 .. 1 */
} tn_lr_options;

typedef struct tn_lr {
    int64_t total, warmup, decay; /* T, W, D above */
    tn_lr_decay type;
    double min_factor;
} tn_lr;

/* TN_BAD_INPUT names the key. A schedule shorter than the run is refused: it says nothing about the
 * steps behind it. */
tn_status tn_lr_init(const tn_lr_options *options, tn_lr *out) TN_MUST_USE;

/* 0 <= step < total; the rate of a parameter group is its lr times this. */
double tn_lr_factor(const tn_lr *lr, int64_t step);

TN_C_END
#endif
