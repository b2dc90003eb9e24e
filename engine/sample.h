/* sample.h - the next token from logits. */
#ifndef TN_ENGINE_SAMPLE_H
#define TN_ENGINE_SAMPLE_H
#include "engine/base/rng.h"

TN_C_BEGIN

typedef struct tn_sample_options {
    double temperature; /* 0: the largest logit, the first of equal ones */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all; else the fewest that reach this share, largest first */
} tn_sample_options;

/* Draws from softmax(logits / temperature) over what top_k and then top_p leave; a function of the
 * logits, the options, rng and index alone. order: room for n numbers. A logit that is not a number
 * is never drawn unless all are. */
int64_t tn_sample_draw(const float *logits, int64_t n, const tn_sample_options *o, tn_rng rng,
                       uint64_t index, int32_t *order);

TN_C_END
#endif
