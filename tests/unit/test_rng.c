/* Random numbers: published vectors, distribution functions against libm, moments, bijections, and
 * the bits of today. */
#include "engine/base/rng.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/hash.h"
#include "tests/test.h"

/* The known answers that come with the authors' Random123 library (kat_vectors, philox4x32 10
 * rounds). */
static void vectors(void)
{
    static const struct {
        tn_rng r;
        uint64_t index;
        uint32_t want[4];
    } cases[] = {
        {{{0, 0}, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{{0xffffffff, 0xffffffff}, UINT64_MAX},
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{{0xa4093822, 0x299f31d0}, 0x0370734413198a2e},
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) {
        uint32_t x[4];
        tn_rng_words(cases[i].r, cases[i].index, x);
        TN_CHECK_MSG(memcmp(x, cases[i].want, 16) == 0, "vector %d: %08x %08x %08x %08x", i, x[0],
                     x[1], x[2], x[3]);
    }
}

static double reference_cdf(double z)
{
    return 0.5 * erfc(-z * sqrt(0.5));
}

static void normal_functions(void)
{
    double worst = 0, worst_inverse = 0;
    for (double z = -37; z < 9; z += 0.0123) {
        double want = reference_cdf(z);
        worst = fmax(worst, fabs(tn_rng_normal_cdf(z) / want - 1) / fmax(1, z * z));
    }
    TN_CHECK_MSG(worst < 3e-15, "normal_cdf: relative error %g", worst);
    /* dp = density * dz, so an error of z shows in p multiplied by density / p, about |z| in the
     * tails */
    for (double e = -300; e < -0.31; e += 0.37) {
        double p = pow(10, e), z = tn_rng_normal_inverse(p), back = reference_cdf(z);
        worst_inverse = fmax(worst_inverse, fabs(back / p - 1) / fmax(1, z * z));
    }
    for (double p = 0.001; p < 1; p += 0.000917) {
        double z = tn_rng_normal_inverse(p);
        worst_inverse = fmax(worst_inverse, fabs(reference_cdf(z) - p));
        TN_CHECK(fabs(tn_rng_normal_inverse(1 - p) + z) < 1e-12);
    }
    TN_CHECK_MSG(worst_inverse < 5e-15, "normal_inverse: error %g", worst_inverse);
    TN_CHECK(fabs(tn_rng_normal_inverse(0.975) - 1.959963984540054) < 1e-15 * 4);
    TN_CHECK(tn_rng_normal_inverse(0.5) == 0 && tn_rng_normal_cdf(0) == 0.5);
    TN_CHECK(tn_rng_normal_cdf(-50) == 0 && tn_rng_normal_cdf(50) == 1);
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { N = 200000 };
static float sample[N];

/* Kolmogorov-Smirnov distance to the distribution function that the definition gives; 1.95 /
 * sqrt(n) is one in a thousand. */
static void distribution(const char *what, tn_rng_dist d)
{
    tn_rng_fill(tn_rng_make(42, what, 0), &d, 0, N, sample);
    double lo = 0, hi = 1, far = 0;
    if (d.kind == TN_RNG_TRUNC_NORMAL)
        lo = reference_cdf((d.lo - d.mean) / d.std), hi = reference_cdf((d.hi - d.mean) / d.std);
    qsort(sample, N, sizeof *sample, ascending);
    for (int i = 0; i < N; i++) {
        double x = (double)sample[i];
        double f = d.kind == TN_RNG_UNIFORM
                       ? (x - d.lo) / (d.hi - d.lo)
                       : (reference_cdf((x - d.mean) / d.std) - lo) / (hi - lo);
        far = fmax(far, fabs(f - (i + 0.5) / N));
    }
    TN_CHECK_MSG(far < 1.95 / sqrt(N), "%s: Kolmogorov-Smirnov distance %g", what, far);
    if (d.kind != TN_RNG_NORMAL) TN_CHECK(sample[0] >= (float)d.lo && sample[N - 1] <= (float)d.hi);
}

/* A shard is a window: any split, any start, the same values. */
static void windows(void)
{
    tn_rng_dist d = {.kind = TN_RNG_TRUNC_NORMAL, .std = 0.5, .lo = -1, .hi = 1};
    tn_rng r = tn_rng_make(7, "layers.0.attention.wq.weight", 0);
    float part[300];
    tn_rng_fill(r, &d, 0, 1000, sample);
    for (int first = 0; first < 700; first += 37) {
        tn_rng_fill(r, &d, (uint64_t)first, 300, part);
        TN_CHECK(memcmp(part, sample + first, sizeof part) == 0);
    }
    tn_rng other[] = {tn_rng_make(8, "layers.0.attention.wq.weight", 0),
                      tn_rng_make(7, "layers.0.attention.wk.weight", 0),
                      tn_rng_make(7, "layers.0.attention.wq.weight", 1)};
    for (int i = 0; i < TN_COUNT(other); i++) {
        tn_rng_fill(other[i], &d, 0, 300, part);
        int same = 0;
        for (int k = 0; k < 300; k++) same += part[k] == sample[k];
        TN_CHECK_MSG(same < 3, "generator %d: %d of 300 values are the same", i, same);
    }
    d = (tn_rng_dist){.kind = TN_RNG_CONSTANT, .mean = 1};
    tn_rng_fill(r, &d, 5, 3, part);
    TN_CHECK(part[0] == 1 && part[1] == 1 && part[2] == 1);
}

/* What is drawn today is drawn for ever: a checkpoint holds a seed, not values. */
static void bits(void)
{
    static const struct {
        tn_rng_dist d;
        uint64_t want;
    } cases[] = {
        {{.kind = TN_RNG_UNIFORM, .lo = -1, .hi = 3}, 0xb9bc67dc6a2430ff},
        {{.kind = TN_RNG_NORMAL, .std = 1}, 0x41275ebd6975e709},
        {{.kind = TN_RNG_TRUNC_NORMAL, .std = 0.02, .lo = -2, .hi = 2}, 0xf171ed8b673b5f13},
        {{.kind = TN_RNG_TRUNC_NORMAL, .mean = 0.5, .std = 1, .lo = -0.5, .hi = 2},
         0xa43183739679ed32},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) {
        tn_rng_fill(tn_rng_make(1234, "tok_embeddings.weight", 0), &cases[i].d, 1000000000000u, N,
                    sample);
        uint64_t got = tn_hash_xxh64(sample, sizeof sample, 0);
        TN_CHECK_MSG(got == cases[i].want, "case %d: 0x%016llx", i, (unsigned long long)got);
    }
    tn_rng r = tn_rng_make(42, "shuffle", 0);
    uint64_t h[1000];
    for (uint64_t i = 0; i < 1000; i++)
        h[i] = tn_rng_permute(r, 123457, i) ^ tn_rng_below(r, i, 1000) << 32;
    uint64_t got = tn_hash_xxh64(h, sizeof h, 0);
    TN_CHECK_MSG(got == 0x4e55155442de47cc, "permute: 0x%016llx", (unsigned long long)got);
}

static void permutations(void)
{
    static unsigned char seen[5000];
    static const uint64_t sizes[] = {64, 65, 255, 256, 257, 1000, 4096, 4999};
    for (uint64_t k = 1; k <= 40 + (uint64_t)TN_COUNT(sizes); k++) {
        uint64_t n = k <= 40 ? k : sizes[k - 41];
        tn_rng r = tn_rng_make(3, "shuffle", k);
        memset(seen, 0, sizeof seen);
        uint64_t bad = 0, moved = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t j = tn_rng_permute(r, n, i);
            bad += j >= n || seen[j]++;
            moved += j != i;
        }
        TN_CHECK_MSG(bad == 0, "%llu elements: no bijection", (unsigned long long)n);
        if (n > 50) TN_CHECK(moved > n - 12);
    }
    /* where element 0 of 10 lands over many epochs: chi square of 9 degrees, one in a thousand
     * is 27.9 */
    int at[10] = {0};
    for (uint64_t epoch = 0; epoch < 10000; epoch++)
        at[tn_rng_permute(tn_rng_make(3, "shuffle", epoch), 10, 0)]++;
    double chi = 0;
    for (int i = 0; i < 10; i++) chi += (at[i] - 1000.0) * (at[i] - 1000.0) / 1000;
    TN_CHECK_MSG(chi < 27.9, "chi square %g", chi);
    tn_rng r = tn_rng_make(3, "shuffle", 0);
    TN_CHECK(tn_rng_permute(r, 1ull << 40, 5) < 1ull << 40 &&
             tn_rng_permute(r, (1ull << 62), 5) < 1ull << 62);
    uint64_t below[7] = {0};
    for (uint64_t i = 0; i < 7000; i++) below[tn_rng_below(r, i, 7)]++;
    for (int i = 0; i < 7; i++) TN_CHECK(below[i] > 850 && below[i] < 1150);
}

int main(void)
{
    vectors();
    normal_functions();
    distribution("uniform", (tn_rng_dist){.kind = TN_RNG_UNIFORM, .lo = -1, .hi = 3});
    distribution("normal", (tn_rng_dist){.kind = TN_RNG_NORMAL, .mean = 2, .std = 0.5});
    distribution("narrow",
                 (tn_rng_dist){.kind = TN_RNG_TRUNC_NORMAL, .std = 0.02, .lo = -2, .hi = 2});
    distribution(
        "cut",
        (tn_rng_dist){.kind = TN_RNG_TRUNC_NORMAL, .mean = 0.5, .std = 1, .lo = -0.5, .hi = 2});
    windows();
    bits();
    permutations();
    return tn_test_done("rng");
}
