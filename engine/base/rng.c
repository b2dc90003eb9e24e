#include "engine/base/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/base/hash.h"

tn_rng tn_rng_make(uint64_t seed, const char *name, uint64_t stream)
{
    uint64_t parts[2] = {seed,
                         tn_hash_text(name)}; /* little-endian machines only, as all of titan */
    uint64_t key = tn_hash_xxh64(parts, sizeof parts, 0);
    return (tn_rng){{(uint32_t)key, (uint32_t)(key >> 32)}, stream};
}

static inline void philox(tn_rng r, uint64_t index, uint32_t x[4])
{
    uint32_t k0 = r.key[0], k1 = r.key[1];
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)r.stream,
             c3 = (uint32_t)(r.stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    x[0] = c0, x[1] = c1, x[2] = c2, x[3] = c3;
}

void tn_rng_words(tn_rng r, uint64_t index, uint32_t out[4])
{
    philox(r, index, out);
}

/* 52 bits and a half: the ends 0 and 1 cannot come out, and 1 - u is exact. */
static inline double uniform(tn_rng r, uint64_t index)
{
    uint32_t x[4];
    philox(r, index, x);
    uint64_t k = ((uint64_t)x[1] << 32 | x[0]) >> 12;
    return ((double)(int64_t)k + 0.5) * 0x1p-52;
}

double tn_rng_uniform(tn_rng r, uint64_t index)
{
    return uniform(r, index);
}

uint64_t tn_rng_below(tn_rng r, uint64_t index, uint64_t n)
{
    uint32_t x[4];
    philox(r, index, x);
    /* the upper 64 bits of word * n, in halves of 32 bits */
    uint64_t n0 = (uint32_t)n, n1 = n >> 32, low = x[0] * n0, mid = x[1] * n0 + (low >> 32);
    uint64_t mid2 = x[0] * n1 + (uint32_t)mid;
    return x[1] * n1 + (mid >> 32) + (mid2 >> 32);
}

uint64_t tn_rng_permute(tn_rng r, uint64_t n, uint64_t i)
{
    int half =
        3; /* below 2^6 elements a Feistel network mixes poorly: walk a little longer instead */
    while (half < 31 && n > 1ull << (2 * half)) half++;
    assert(i < n && n <= 1ull << (2 * half));
    const uint32_t mask = (uint32_t)((1ull << half) - 1);
    do {
        uint32_t left = (uint32_t)(i >> half), right = (uint32_t)i & mask;
        for (uint64_t round = 0; round < 8; round++) {
            uint32_t x[4];
            philox(r, round << 32 | right, x);
            uint32_t mixed = left ^ (x[0] & mask);
            left = right;
            right = mixed;
        }
        i = (uint64_t)left << half | right;
    } while (i >= n);
    return i;
}

/* e^x for x in [-745, 709]: x = k ln 2 + f, Taylor to degree 13 on |f| <= 0.35. Relative error
 * about 3e-16. */
static double exp_own(double x)
{
    double k = floor(x * 1.4426950408889634 + 0.5);
    double f = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10, sum = 1;
    for (int i = 13; i > 0; i--) sum = 1 + sum * f / i;
    return ldexp(sum, (int)k);
}

/* log x, x positive and normal: x = m 2^k, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m
 * + 1)). */
static double log_own(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    int64_t k = ((int64_t)(u - 0x3fe6a09e667f3bcdull)) >> 52;
    u -= (uint64_t)k << 52;
    double m;
    memcpy(&m, &u, 8);
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int i = 21; i > 0; i -= 2) sum = sum * z + 1.0 / i;
    return (double)k * 6.93147180369123816490e-01 +
           (2 * s * sum + (double)k * 1.90821492927058770002e-10);
}

/* Marsaglia, Evaluating the normal distribution (2004): a Taylor series whose terms are all
 * positive; the far tail, where 1/2 - sum would cancel, by its continued fraction. */
double tn_rng_normal_cdf(double z)
{
    double density = fabs(z) < 38 ? 0.398942280401432677939946 * exp_own(-0.5 * z * z) : 0;
    if (fabs(z) > 2) {
        double f = 0;
        for (int i = 200; i > 0; i--) f = i / (fabs(z) + f);
        double tail = density / (fabs(z) + f);
        return z > 0 ? 1 - tail : tail;
    }
    double sum = z, before = 0, term = z;
    for (int i = 3; sum != before; i += 2) {
        before = sum;
        term *= z * z / i;
        sum += term;
    }
    return 0.5 + sum * density;
}

static inline double poly7(const double c[8], double x)
{
    return ((((((c[7] * x + c[6]) * x + c[5]) * x + c[4]) * x + c[3]) * x + c[2]) * x + c[1]) * x +
           c[0];
}

/* Wichura, Algorithm AS 241: the percentage points of the normal distribution (Applied Statistics
 * 37, 1988), PPND16. */
static const double mid_num[8] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                  1.9715909503065514427e3, 1.3731693765509461125e4,
                                  4.5921953931549871457e4, 6.7265770927008700853e4,
                                  3.3430575583588128105e4, 2.5090809287301226727e3};
static const double mid_den[8] = {1.0,
                                  4.2313330701600911252e1,
                                  6.8718700749205790830e2,
                                  5.3941960214247511077e3,
                                  2.1213794301586595867e4,
                                  3.9307895800092710610e4,
                                  2.8729085735721942674e4,
                                  5.2264952788528545610e3};
static const double near_num[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                   5.76949722146069140550e0,  3.64784832476320460504e0,
                                   1.27045825245236838258e0,  2.41780725177450611770e-1,
                                   2.27238449892691845833e-2, 7.74545014278341407640e-4};
static const double near_den[8] = {1.0,
                                   2.05319162663775882187e0,
                                   1.67638483018380384940e0,
                                   6.89767334985100004550e-1,
                                   1.48103976427480074590e-1,
                                   1.51986665636164571966e-2,
                                   5.47593808499534494600e-4,
                                   1.05075007164441684324e-9};
static const double far_num[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                  1.78482653991729133580e0,  2.96560571828504891230e-1,
                                  2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                  2.71155556874348757815e-5, 2.01033439929228813265e-7};
static const double far_den[8] = {1.0,
                                  5.99832206555887937690e-1,
                                  1.36929880922735805310e-1,
                                  1.48753612908506148525e-2,
                                  7.86869131145613259100e-4,
                                  1.84631831751005468180e-5,
                                  1.42151175831644588870e-7,
                                  2.04426310338993978564e-15};

static double inverse_tail(double p, double q)
{
    double r = sqrt(-log_own(q < 0 ? p : 1 - p));
    double z = r <= 5 ? poly7(near_num, r - 1.6) / poly7(near_den, r - 1.6)
                      : poly7(far_num, r - 5) / poly7(far_den, r - 5);
    return q < 0 ? -z : z;
}

double tn_rng_normal_inverse(double p)
{
    double q = p - 0.5, r = 0.180625 - q * q;
    if (fabs(q) > 0.425) return inverse_tail(p, q);
    return q * poly7(mid_num, r) / poly7(mid_den, r);
}

#ifdef TN_HOSTILE
enum { BATCH = 3 };
#else
enum { BATCH = 64 };
#endif

/* A batch at a time, so that the long middle part has no branch. */
static void fill_normal(tn_rng r, const tn_rng_dist *d, uint64_t first, int64_t n, float *out)
{
    bool trunc = d->kind == TN_RNG_TRUNC_NORMAL;
    double lo = trunc ? tn_rng_normal_cdf((d->lo - d->mean) / d->std) : 0;
    double width = trunc ? tn_rng_normal_cdf((d->hi - d->mean) / d->std) - lo : 1;
    for (int64_t begin = 0; begin < n; begin += BATCH) {
        double p[BATCH], z[BATCH];
        int64_t m = n - begin < BATCH ? n - begin : BATCH;
        for (int64_t i = 0; i < m; i++)
            p[i] = lo + width * uniform(r, first + (uint64_t)(begin + i));
        for (int64_t i = 0; i < m; i++) {
            double q = p[i] - 0.5, t = 0.180625 - q * q;
            z[i] = q * poly7(mid_num, t) / poly7(mid_den, t);
        }
        for (int64_t i = 0; i < m; i++)
            if (fabs(p[i] - 0.5) > 0.425) z[i] = inverse_tail(p[i], p[i] - 0.5);
        for (int64_t i = 0; i < m; i++) {
            double x = d->mean + d->std * z[i];
            if (trunc) x = x < d->lo ? d->lo : x > d->hi ? d->hi : x;
            out[begin + i] = (float)x;
        }
    }
}

void tn_rng_fill(tn_rng r, const tn_rng_dist *dist, uint64_t first, int64_t n, float *out)
{
    switch (dist->kind) {
    case TN_RNG_CONSTANT:
        for (int64_t i = 0; i < n; i++) out[i] = (float)dist->mean;
        break;
    case TN_RNG_UNIFORM:
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(dist->lo + (dist->hi - dist->lo) * uniform(r, first + (uint64_t)i));
        break;
    case TN_RNG_NORMAL:
    case TN_RNG_TRUNC_NORMAL:
        fill_normal(r, dist, first, n, out);
        break;
    }
}
