/* test_attention.c - flash attention against its formula in double, and that against finite
 * differences; every case on all instruction sets and thread counts. */
#include "tests/attention.h"

/* The formula. */

static bool sees(const tn_attention *a, int64_t row, int64_t i, int64_t j)
{
    int64_t q = row * a->s + i, k = row * a->t + j, ahead = (int64_t)a->k_pos[k] - a->q_pos[q];
    return a->q_doc[q] == a->k_doc[k] && (!a->causal || ahead <= 0) &&
           (!a->window || -ahead < a->window);
}

typedef struct want {
    double *o, *lse, *dq, *dk, *d_v;
} want;

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

static void want_query(const tn_attention *a, const float *d_o, int64_t row, int64_t i,
                       int64_t head, want *w, double *p)
{
    int64_t at = (row * a->s + i) * a->h + head, kv = head / (a->h / a->g);
    double most = -INFINITY, sum = 0, down = 0, *o = w->o + at * a->dv, *dq = w->dq + at * a->d;
    for (int64_t j = 0; j < a->t; j++) {
        int64_t k = (row * a->t + j) * a->g + kv;
        p[j] = sees(a, row, i, j) ? (double)a->scale * dot(tn_test_f32(a->q) + at * a->d,
                                                           tn_test_f32(a->k) + k * a->d, a->d)
                                  : -INFINITY;
        if (p[j] > most) most = p[j];
    }
    w->lse[at] = -INFINITY;
    if (most == -INFINITY) return;
    for (int64_t j = 0; j < a->t; j++) sum += exp(p[j] - most);
    w->lse[at] = most + log(sum);
    for (int64_t j = 0; j < a->t; j++) {
        int64_t k = (row * a->t + j) * a->g + kv;
        p[j] = exp(p[j] - w->lse[at]);
        for (int64_t c = 0; c < a->dv; c++) {
            o[c] += p[j] * (double)tn_test_f32(a->v)[k * a->dv + c];
            w->d_v[k * a->dv + c] += p[j] * (double)d_o[at * a->dv + c];
        }
        down += p[j] * dot(d_o + at * a->dv, tn_test_f32(a->v) + k * a->dv, a->dv);
    }
    for (int64_t j = 0; j < a->t; j++) {
        int64_t k = (row * a->t + j) * a->g + kv;
        double ds = p[j] * (dot(d_o + at * a->dv, tn_test_f32(a->v) + k * a->dv, a->dv) - down) *
                    (double)a->scale;
        for (int64_t c = 0; c < a->d; c++) {
            dq[c] += ds * (double)tn_test_f32(a->k)[k * a->d + c];
            w->dk[k * a->d + c] += ds * (double)tn_test_f32(a->q)[at * a->d + c];
        }
    }
}

static want want_build(const tn_attention *a, const float *d_o)
{
    want w = {tn_test_doubles(a->b * a->s * a->h * a->dv), tn_test_doubles(a->b * a->s * a->h),
              tn_test_doubles(a->b * a->s * a->h * a->d),
              tn_test_doubles(a->b * a->t * a->g * a->d),
              tn_test_doubles(a->b * a->t * a->g * a->dv)};
    double *p = tn_test_doubles(a->t);
    for (int64_t row = 0; row < a->b; row++)
        for (int64_t i = 0; i < a->s; i++)
            for (int64_t head = 0; head < a->h; head++) want_query(a, d_o, row, i, head, &w, p);
    free(p);
    return w;
}

static void want_free(want *w)
{
    double *mine[] = {w->o, w->lse, w->dq, w->dk, w->d_v};
    for (int i = 0; i < 5; i++) free(mine[i]);
}

/* lse holds -infinity where nothing is seen: compared apart. */
static void close_lse(const char *name, const float *got, const double *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool ok = expected[i] == -INFINITY ? got[i] == -INFINITY
                                           : fabs((double)got[i] - expected[i]) <= 4e-6;
        if (!TN_CHECK_MSG(ok, "%s lse: element %lld is %.9g, expected %.9g", name, (long long)i,
                          (double)got[i], expected[i]))
            return;
    }
}

static void check_formula(const char *name, const sample *x, const result *r)
{
    const tn_attention *a = &x->a;
    want w = want_build(a, x->d_o);
    const double slack = 1e-6 * sqrt((double)a->d) * (1 + sqrt((double)(a->s * a->h / a->g)) / 4);
    tn_test_close(name, r->o, w.o, a->b * a->s * a->h * a->dv, 3e-6);
    close_lse(name, r->lse, w.lse, a->b * a->s * a->h);
    tn_test_close(name, r->dq, w.dq, a->b * a->s * a->h * a->d, 8e-6);
    tn_test_close(name, r->dk, w.dk, a->b * a->t * a->g * a->d, 6e-6 + slack);
    tn_test_close(name, r->d_v, w.d_v, a->b * a->t * a->g * a->dv, 6e-6 + slack);
    want_free(&w);
}

static void formula_case(const extents *e, uint64_t seed)
{
    sample x = sample_build(e, seed);
    char name[160];
    snprintf(name, sizeof name, "b%lld s%lld t%lld h%lld/%lld d%lld/%lld w%lld docs %lld J%lld",
             (long long)e->b, (long long)e->s, (long long)e->t, (long long)e->h, (long long)e->g,
             (long long)e->d, (long long)e->dv, (long long)e->window, (long long)e->documents,
             (long long)e->seq_parts);
    result r = run_everywhere(name, &x.a, x.d_o);
    check_formula(name, &x, &r);
    result_free(&r);
    sample_free(&x);
}

/* The formula's gradients against central differences of sum(o d_o). */
static double loss(const sample *x)
{
    want w = want_build(&x->a, x->d_o);
    double sum = 0;
    for (int64_t i = 0; i < x->a.b * x->a.s * x->a.h * x->a.dv; i++)
        sum += w.o[i] * (double)x->d_o[i];
    want_free(&w);
    return sum;
}

static void slope(const char *name, const sample *x, float *at, double expected)
{
    const float here = *at, step = 1.0f / 512;
    volatile float up = here + step, down = here - step; /* what was really added counts */
    *at = up;
    double more = loss(x);
    *at = down;
    double less = loss(x);
    *at = here;
    double got = (more - less) / ((double)up - (double)down);
    TN_CHECK_MSG(fabs(got - expected) < 1e-4, "%s: difference %.9g, formula %.9g", name, got,
                 expected);
}

static void differences(void)
{
    const extents e = {2, 9, 11, 4, 2, 5, 3, 6, 8, 8, true, 2, 2};
    sample x = sample_build(&e, 3);
    want w = want_build(&x.a, x.d_o);
    uint64_t s = 5;
    for (int i = 0; i < 40; i++) {
        int64_t j = tn_test_below(&s, e.b * e.s * e.h * e.d);
        slope("dq", &x, x.q + j, w.dq[j]);
        j = tn_test_below(&s, e.b * e.t * e.g * e.d);
        slope("dk", &x, x.k + j, w.dk[j]);
        j = tn_test_below(&s, e.b * e.t * e.g * e.dv);
        slope("dv", &x, x.v + j, w.d_v[j]);
    }
    want_free(&w);
    sample_free(&x);
}

static void formulas(void)
{
    static const int64_t lengths[] = {1, 5, 63, 64, 65, 100, 257},
                         dims[] = {8, 16, 20, 32, 64, 80, 128};
    static const int64_t groups[][2] = {{1, 1}, {2, 1}, {3, 1}, {6, 2}, {2, 2}};
    uint64_t seed = 100;
    for (int i = 0; i < TN_COUNT(lengths); i++) {
        for (int j = 0; j < TN_COUNT(dims); j++) {
            const int64_t *hg = groups[(i + 2 * j) % TN_COUNT(groups)], s = lengths[i], d = dims[j];
            if (s * s * d * hg[0] > 1000000 && (i + j) % 3)
                continue; /* the portable kernel is slow */
            extents e = {1 + (i + j) % 2, s, s, hg[0], hg[1], d, d, 0, 8, 8, true, (i * j) % 4, 0};
            if (s == 257) e.b = 1;
            formula_case(&e, seed++);
        }
    }
    static const extents more[] = {
        {2, 70, 70, 2, 1, 16, 48, 0, 8, 8, false, 0, 0},    /* not causal; dv is not d */
        {1, 130, 130, 2, 2, 32, 32, 17, 8, 8, true, 0, 0},  /* window */
        {1, 130, 130, 2, 2, 32, 32, 100, 8, 8, true, 3, 0}, /* window and documents */
        {1, 65, 65, 2, 1, 16, 16, 20, 8, 8, false, 0, 0},   /* window without causal */
        {1, 33, 150, 2, 1, 32, 32, 0, 8, 8, true, 0, 117},  /* the last queries of a longer row */
        {1, 20, 90, 2, 1, 20, 12, 0, 8, 8, true, 2, 10},
        {1, 150, 40, 2, 1, 16, 16, 0, 8, 8, true, 2, 60}, /* many queries see nothing */
        {1, 90, 90, 3, 1, 16, 16, 0, 1, 8, true, 0, 0},
        {1, 300, 300, 1, 1, 16, 16, 0, 3, 4, true, 5, 0}, /* parts across blocks */
        {1, 200, 200, 2, 1, 16, 16, 0, 64, 2, true, 0, 0},
        {2, 1, 200, 4, 2, 32, 32, 0, 8, 8, true, 0, 199}, /* one query, as in decoding */
        {1, 1100, 1100, 1, 1, 8, 8, 0, 8, 1, true, 0, 0}, /* more than one chunk of keys */
        {1, 40, 330, 2, 1, 256, 256, 0, 8, 8, true, 0, 290},
        {1, 20, 140, 17, 1, 256, 256, 0, 8, 8, true, 0, 120}, /* more heads than states */
        {1, 50, 1, 2, 1, 16, 16, 0, 8, 8, false, 0, 0},
        {2, 0, 70, 2, 1, 16, 16, 0, 8, 8, true, 0, 0}, /* an empty shard */
        {1, 70, 0, 2, 1, 16, 16, 0, 8, 8, true, 0, 0},
    };
    for (int i = 0; i < TN_COUNT(more); i++) formula_case(&more[i], seed++);
}

/* Positions and documents in any order; then runs of positions, as head-tail context parallelism
 * makes them. */
static void shuffled(void)
{
    const extents e = {1, 140, 180, 2, 1, 16, 16, 60, 8, 8, true, 0, 0};
    for (int round = 0; round < 3; round++) {
        uint64_t s = 71 + (uint64_t)round;
        sample x = sample_build(&e, s);
        for (int64_t i = 0; i < e.s; i++) {
            x.q_pos[i] = (int32_t)tn_test_below(&s, 200);
            x.q_doc[i] = (int32_t)tn_test_below(&s, 2 + i / 50) - 1;
            if (round == 2) x.q_pos[i] = (int32_t)(i < 70 ? i + 1 : i + 40), x.q_doc[i] = 0;
        }
        for (int64_t i = 0; i < e.t; i++) {
            x.k_pos[i] = (int32_t)tn_test_below(&s, 200);
            x.k_doc[i] = (int32_t)tn_test_below(&s, 3) - 1;
        }
        result r = run_everywhere("shuffled", &x.a, x.d_o);
        check_formula("shuffled", &x, &r);
        result_free(&r);
        sample_free(&x);
    }
}

/* Scratch is bounded, whatever the length. */
static void scratch_bound(void)
{
    const int64_t dims[] = {8, 64, 256};
    for (int i = 0; i < TN_COUNT(dims); i++)
        for (int64_t s = 64; s <= 1 << 20; s *= 32) {
            tn_attention a = {.b = 1,
                              .s = s,
                              .t = s,
                              .h = 128,
                              .g = 1,
                              .d = dims[i],
                              .dv = dims[i],
                              .seq_parts = 8,
                              .head_parts = 8,
                              .units = 128};
            TN_CHECK(tn_attention_scratch(2, &a, false) < 2 * (5u << 19));
            TN_CHECK(tn_attention_scratch(2, &a, true) < 2 * (5u << 19));
        }
}

int main(void)
{
    formulas();
    differences();
    shuffled();
    scratch_bound();
    return tn_test_done("attention");
}
