#include "engine/sample.h"

#include <math.h>

static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best] || isnan(x[best])) best = i;
    return best;
}

/* Before: a larger logit, or the same one of a smaller id; what is no number comes last. */
static bool before(const float *x, int32_t a, int32_t b)
{
    if (isnan(x[a]) || isnan(x[b])) return isnan(x[b]) && (!isnan(x[a]) || a < b);
    return x[a] != x[b] ? x[a] > x[b] : a < b;
}

static void sift(const float *x, int32_t *heap, int64_t at, int64_t n)
{
    for (;;) { /* the last in order is on top */
        int64_t k = 2 * at + 1;
        if (k + 1 < n && before(x, heap[k], heap[k + 1])) k++;
        if (k >= n || !before(x, heap[at], heap[k])) return;
        int32_t t = heap[at];
        heap[at] = heap[k];
        heap[k] = t;
        at = k;
    }
}

/* The first k of all n in order. */
static void select_first(const float *x, int64_t n, int32_t *order, int64_t k)
{
    for (int64_t i = 0; i < k; i++) order[i] = (int32_t)i;
    for (int64_t i = k / 2; i-- > 0;) sift(x, order, i, k);
    for (int64_t i = k; i < n; i++)
        if (before(x, (int32_t)i, order[0])) {
            order[0] = (int32_t)i;
            sift(x, order, 0, k);
        }
    for (int64_t m = k; m-- > 1;) { /* heap sort */
        int32_t t = order[0];
        order[0] = order[m];
        order[m] = t;
        sift(x, order, 0, m);
    }
}

static double weight(const float *x, int32_t i, double most, double temperature)
{
    return isnan(x[i]) ? 0 : exp(((double)x[i] - most) / temperature);
}

int64_t tn_sample_draw(const float *logits, int64_t n, const tn_sample_options *o, tn_rng rng,
                       uint64_t index, int32_t *order)
{
    int64_t k = o->top_k > 0 && o->top_k < n ? o->top_k : n, kept = k;
    double sum = 0, reach = 0;
    if (o->temperature <= 0) return largest(logits, n);
    select_first(logits, n, order, k);
    double most = (double)logits[order[0]];
    if (!isfinite(most)) return order[0];
    for (int64_t i = 0; i < k; i++) sum += weight(logits, order[i], most, o->temperature);
    for (kept = 0; kept < k && (kept == 0 || reach < o->top_p * sum); kept++)
        reach += weight(logits, order[kept], most, o->temperature);
    double at = tn_rng_uniform(rng, index) * reach;
    for (int64_t i = 0; i < kept; i++) {
        at -= weight(logits, order[i], most, o->temperature);
        if (at < 0) return order[i];
    }
    return order[kept - 1];
}
