#include "engine/lr.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const char *const decay_names[] = {
    [TN_LR_LINEAR] = "linear",
    [TN_LR_SQRT] = "sqrt",
    [TN_LR_COSINE] = "cosine",
};

static tn_status read_type(const char *name, tn_lr_decay *out)
{
    for (int i = 0; i < TN_COUNT(decay_names); i++) {
        if (!name || strcmp(name, decay_names[i]) == 0) {
            *out = (tn_lr_decay)i;
            return TN_OK;
        }
    }
    TN_FAIL(TN_BAD_INPUT, "lr_scheduler.decay_type: '%s' is unknown; use linear, sqrt or cosine",
            name);
}

/* Written so that a NaN fails too. */
static bool is_share(double x)
{
    return x >= 0 && x <= 1;
}

tn_status tn_lr_init(const tn_lr_options *o, tn_lr *out)
{
    tn_lr lr = {.total = o->total_steps ? o->total_steps : o->steps,
                .min_factor = o->min_lr_factor};

    TN_TRY(read_type(o->decay_type, &lr.type));
    if (o->steps < 1)
        TN_FAIL(TN_BAD_INPUT, "training.steps: %lld steps; use at least 1", (long long)o->steps);
    if (lr.total < o->steps)
        TN_FAIL(
            TN_BAD_INPUT,
            "lr_scheduler.total_steps: %lld ends before training.steps = %lld; use %lld or more",
            (long long)lr.total, (long long)o->steps, (long long)o->steps);
    if (o->warmup_steps < 0)
        TN_FAIL(TN_BAD_INPUT, "lr_scheduler.warmup_steps: %lld is negative; use 0 or more",
                (long long)o->warmup_steps);
    if (!(o->decay_ratio < 0) && !is_share(o->decay_ratio))
        TN_FAIL(TN_BAD_INPUT, "lr_scheduler.decay_ratio: %g is not a share; use 0 to 1",
                o->decay_ratio);
    if (!is_share(lr.min_factor))
        TN_FAIL(TN_BAD_INPUT, "lr_scheduler.min_lr_factor: %g is not a share; use 0 to 1",
                lr.min_factor);

    lr.warmup = o->warmup_steps < lr.total ? o->warmup_steps : lr.total;
    lr.decay = lr.total - lr.warmup;
    if (o->decay_ratio >= 0) {
        double decay = rint((double)lr.total * o->decay_ratio);
        if (decay < (double)lr.decay) lr.decay = (int64_t)decay;
    }
    *out = lr;
    return TN_OK;
}

/* cos(pi p) for 0 <= p <= 1 as sin(x), x = pi (1/2 - p): the Taylor series to x^21, whose next term
 * is below 2e-18. */
static double cos_pi(double p)
{
    static const double pi = 3.14159265358979323846;
    double x = pi * (0.5 - p), x2 = x * x, sum = 1;
    for (int k = 10; k >= 1; k--) sum = 1 - sum * x2 / (double)(2 * k * (2 * k + 1));
    return x * sum;
}

double tn_lr_factor(const tn_lr *lr, int64_t step)
{
    assert(step >= 0 && step < lr->total);
    if (step < lr->warmup) return (double)(step + 1) / (double)lr->warmup;
    if (step < lr->total + 1 - lr->decay) return 1;

    double p = (double)(step - (lr->total - lr->decay)) / (double)lr->decay, f = 0;
    switch (lr->type) {
    case TN_LR_LINEAR:
        f = 1 - p;
        break;
    case TN_LR_SQRT:
        f = 1 - sqrt(p);
        break;
    case TN_LR_COSINE:
        f = 0.5 * (1 + cos_pi(p));
        break;
    }
    return lr->min_factor + (1 - lr->min_factor) * f;
}
