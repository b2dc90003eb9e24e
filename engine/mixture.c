#include "engine/mixture.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>

/* Largest remainders: every source its whole turns, then one more each to those that lost the
 * largest fractions. */
static void share_turns(const double *weights, int64_t n, double *lost, int64_t *turns)
{
    double largest = 0, sum = 0; /* a sum of large weights could overflow */
    for (int64_t k = 0; k < n; k++) largest = fmax(largest, weights[k]);
    for (int64_t k = 0; k < n; k++) sum += weights[k] / largest;
    int64_t left = TN_MIXTURE_PERIOD;
    for (int64_t k = 0; k < n; k++) {
        double exact = weights[k] / largest / sum * TN_MIXTURE_PERIOD;
        turns[k] = (int64_t)floor(exact);
        lost[k] = exact - floor(exact);
        left -= turns[k];
    }
    for (; left > 0; left--) {
        int64_t most = 0;
        for (int64_t k = 1; k < n; k++) {
            if (lost[k] > lost[most]) most = k;
        }
        turns[most]++;
        lost[most] = -1;
    }
}

/* Behind r of R turns source k is due turns[k] * r / R; the next turn goes to the one that is
 * furthest behind. It was behind, so nobody is ever a whole turn ahead. At the end of the period
 * the debts are whole numbers that add up to zero and none is -1 or less, so all are zero: each
 * source had exactly its turns. */
static void spread_turns(tn_mixture *m, int64_t *given)
{
    for (int64_t r = 0; r < m->period; r++) {
        int64_t next = 0, debt = INT64_MIN;
        for (int64_t k = 0; k < m->n; k++) {
            int64_t d = m->turns[k] * (r + 1) - given[k] * m->period;
            if (d > debt) next = k, debt = d;
        }
        m->source[r] = (uint16_t)next;
        m->nth[r] = (uint16_t)given[next]++;
    }
    for (int64_t k = 0; k < m->n; k++) assert(given[k] == m->turns[k]);
}

static tn_status build(const double *weights, int64_t n, int64_t *weak, tn_mixture *m)
{
    void *mem;
    tn_status st;
    double *lost = NULL;
    int64_t *given = NULL;
    if ((st = tn_alloc((size_t)n * sizeof *m->turns, &mem))) goto out;
    m->turns = mem;
    if ((st = tn_alloc((size_t)m->period * sizeof *m->source, &mem))) goto out;
    m->source = mem;
    if ((st = tn_alloc((size_t)m->period * sizeof *m->nth, &mem))) goto out;
    m->nth = mem;
    if ((st = tn_alloc((size_t)n * sizeof *lost, &mem))) goto out;
    lost = mem;
    if ((st = tn_alloc((size_t)n * sizeof *given, &mem))) goto out;
    given = mem;

    share_turns(weights, n, lost, m->turns);
    for (int64_t k = 0; k < n; k++) {
        if (m->turns[k]) continue;
        *weak = k;
        st = tn_error(TN_BAD_INPUT, "mixture: weight %g is less than 1/%d of all", weights[k],
                      TN_MIXTURE_PERIOD);
        goto out;
    }
    spread_turns(m, given);
out:
    tn_free(lost);
    tn_free(given);
    return st;
}

tn_status tn_mixture_init(const double *weights, int64_t n, int64_t *weak, tn_mixture *out)
{
    assert(n >= 1 && n <= TN_MIXTURE_PERIOD);
    tn_mixture m = {.n = n, .period = n == 1 ? 1 : TN_MIXTURE_PERIOD};
    *weak = -1;
    if (n > 1) {
        tn_status st = build(weights, n, weak, &m);
        if (st) {
            tn_mixture_fini(&m);
            return st;
        }
    }
    *out = m;
    return TN_OK;
}

void tn_mixture_fini(tn_mixture *m)
{
    tn_free(m->turns);
    tn_free(m->source);
    tn_free(m->nth);
    *m = (tn_mixture){0};
}

void tn_mixture_find(const tn_mixture *m, int64_t i, int64_t *source, int64_t *nth)
{
    if (m->n == 1) {
        *source = 0;
        *nth = i;
        return;
    }
    int64_t slot = i % m->period;
    *source = m->source[slot];
    *nth = i / m->period * m->turns[*source] + m->nth[slot];
}

int64_t tn_mixture_place(const tn_mixture *m, int64_t source, int64_t nth)
{
    if (m->n == 1) return nth;
    int64_t slot = 0, i;
    while (m->source[slot] != source || m->nth[slot] != nth % m->turns[source]) slot++;
    if (__builtin_mul_overflow(nth / m->turns[source], m->period, &i)) return INT64_MAX;
    if (__builtin_add_overflow(i, slot, &i)) return INT64_MAX;
    return i;
}
