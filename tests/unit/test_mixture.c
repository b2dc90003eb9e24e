/* test_mixture.c - weights become turns, turns are spread evenly, and find and place are inverse.
 */
#include "engine/mixture.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

/* Counts everything by walking three periods. */
static void walk(const tn_mixture *m, const double *weights, int64_t n)
{
    int64_t given[64] = {0}, turns = 0;
    double sum = 0;
    bool ordered = true, even = true, inverse = true;
    for (int64_t k = 0; k < n; k++) sum += weights[k], turns += m->turns[k];
    TN_CHECK(turns == TN_MIXTURE_PERIOD);
    for (int64_t i = 0; i < 3 * TN_MIXTURE_PERIOD; i++) {
        int64_t k, nth;
        tn_mixture_find(m, i, &k, &nth);
        ordered &= k >= 0 && k < n && nth == given[k];
        given[k]++;
        inverse &= tn_mixture_place(m, k, nth) == i;
        for (int64_t j = 0; j < n; j++) {
            double due = (double)m->turns[j] * (double)(i + 1) / TN_MIXTURE_PERIOD;
            even &= (double)given[j] - due < 1 && due - (double)given[j] < (double)n;
        }
    }
    TN_CHECK_MSG(ordered, "the samples of a source are not 0, 1, 2 ...");
    TN_CHECK_MSG(even, "a source is a whole turn ahead, or far behind");
    TN_CHECK_MSG(inverse, "place is not the inverse of find");
    for (int64_t k = 0; k < n; k++) {
        TN_CHECK(given[k] == 3 * m->turns[k]);
        TN_CHECK(fabs((double)m->turns[k] - weights[k] / sum * TN_MIXTURE_PERIOD) < 1);
    }
}

static tn_status open_and_close(void *arg)
{
    (void)arg;
    tn_mixture m;
    int64_t weak;
    TN_TRY(tn_mixture_init((double[]){1, 2}, 2, &weak, &m));
    tn_mixture_fini(&m);
    return TN_OK;
}

int main(void)
{
    static const double sets[][5] = {{1, 1},
                                     {0.7, 0.3},
                                     {1, 2, 4},
                                     {1, 1, 1, 1, 1},
                                     {1e-3, 1},
                                     {1e300, 1e300, 1e300},
                                     {5, 0.0013, 0.0013, 0.0013, 1}};
    for (int i = 0; i < TN_COUNT(sets); i++) {
        int64_t n = 0, weak;
        while (n < 5 && sets[i][n] > 0) n++;
        tn_mixture m;
        if (!TN_CHECK_OK(tn_mixture_init(sets[i], n, &weak, &m))) continue;
        walk(&m, sets[i], n);
        TN_CHECK(tn_mixture_place(&m, 0, INT64_MAX) == INT64_MAX || m.turns[0] == m.period);
        tn_mixture_fini(&m);
    }

    tn_mixture m;
    int64_t weak, k, nth;
    TN_CHECK_OK(
        tn_mixture_init((double[]){0}, 1, &weak, &m)); /* one source: its weight means nothing */
    tn_mixture_find(&m, 123456789012, &k, &nth);
    TN_CHECK(k == 0 && nth == 123456789012 && tn_mixture_place(&m, 0, nth) == nth);
    tn_mixture_fini(&m);

    TN_CHECK_FAILS(tn_mixture_init((double[]){1, 1e-9, 1}, 3, &weak, &m), TN_BAD_INPUT,
                   "less than 1/4096");
    TN_CHECK(weak == 1);
    TN_CHECK(tn_test_each_alloc(open_and_close, NULL) == 5);
    return tn_test_done("mixture");
}
