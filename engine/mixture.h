/* mixture.h - which source the i-th sample of a run comes from when several are mixed by weight.
 *
 * Samples come in periods of 4096. In each, source k has a fixed number of turns (its weight,
 * rounded so that the turns add up), and the turns are spread as evenly as whole numbers allow:
 * behind every sample of the period each source is less than one turn ahead of its due. So "source
 * and how many of its samples came before" is a table look-up for any i, and nothing is drawn or
 * remembered. One source needs no table.
 */
#ifndef TN_ENGINE_MIXTURE_H
#define TN_ENGINE_MIXTURE_H
#include "engine/base/base.h"

TN_C_BEGIN

enum { TN_MIXTURE_PERIOD = 4096 };

typedef struct tn_mixture {
    int64_t n;        /* sources */
    int64_t period;   /* TN_MIXTURE_PERIOD, or 1 for one source */
    int64_t *turns;   /* [n], sum = period */
    uint16_t *source; /* [period] */
    uint16_t *nth;    /* [period], turn of that source inside the period */
} tn_mixture;

/* weights [n], all > 0 and finite, n <= TN_MIXTURE_PERIOD. A weight too small for one turn:
 * TN_BAD_INPUT, and *weak says which, for the caller's message (-1 otherwise). */
tn_status tn_mixture_init(const double *weights, int64_t n, int64_t *weak,
                          tn_mixture *out) TN_MUST_USE;
void tn_mixture_fini(tn_mixture *mixture); /* zeroed is fine */

/* Sample i >= 0 of the run is sample *nth of source *source. */
void tn_mixture_find(const tn_mixture *mixture, int64_t i, int64_t *source, int64_t *nth);

/* The inverse: the i of sample nth of `source`; INT64_MAX if that is larger. */
int64_t tn_mixture_place(const tn_mixture *mixture, int64_t source, int64_t nth);

TN_C_END
#endif
