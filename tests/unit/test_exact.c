/* test_exact.c - exact sums against wide integers, in every order, and against what rounding to
 * double must give. */
#include "kernels/cpu/exact.h"
#include "tests/cpu.h"

static size_t scratch(int threads, const void *arg)
{
    (void)arg;
    return tn_exact_scratch(threads);
}

/* The same sum in plain fixed point: 24 limbs of 32 bits with a weight of 2^-320, two's complement.
 */
enum { LIMBS = 24 };
typedef struct fixed {
    uint32_t limb[LIMBS];
} fixed;

static void fixed_add(fixed *f, uint64_t m, int e, bool negative)
{
    uint32_t term[LIMBS] = {0};
    uint64_t carry = negative;
    for (int bit = 0; bit < 64; bit++)
        if (m >> bit & 1) term[(e + 320 + bit) / 32] |= (uint32_t)1 << (e + 320 + bit) % 32;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)f->limb[i] + (negative ? ~term[i] : term[i]);
        f->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static fixed fixed_sum(const float *x, int64_t n, bool squares)
{
    fixed f = {{0}};
    for (int64_t i = 0; i < n; i++) {
        int e;
        const int64_t m = (int64_t)ldexpf(frexpf(x[i], &e), 24); /* x = m 2^(e - 24) */
        if (m == 0) continue;
        if (squares) fixed_add(&f, (uint64_t)(m * m), 2 * (e - 24), false);
        else fixed_add(&f, (uint64_t)(m < 0 ? -m : m), e - 24, m < 0);
    }
    return f;
}

static bool fixed_equal(const fixed *f, const tn_exact *s)
{
    for (int i = 0; i < TN_EXACT_LIMBS; i++)
        if (f->limb[i] != (uint32_t)s->limb[i]) return false;
    return s->special == 0;
}

/* exponents from `low` to `high` (of 2), a share of zeros */
static float *numbers(uint64_t *r, int64_t n, int low, int high, int zeros)
{
    float *x = tn_test_uniform(r, n, 1);
    for (int64_t i = 0; i < n; i++) {
        x[i] = tn_test_below(r, 100) < zeros
                   ? 0
                   : ldexpf(x[i], low + (int)tn_test_below(r, high - low + 1));
        if (isinf(x[i])) x[i] = 1e38f;
    }
    return x;
}

static void add(const tn_cpu *cpu, tn_exact *s, const float *x, int64_t n, bool squares)
{
    if (squares) tn_exact_add_squares(cpu, s, x, n);
    else tn_exact_add(cpu, s, x, n);
}

static void sum_case(int64_t n, int low, int high, int zeros, uint64_t seed)
{
    uint64_t r = seed;
    float *x = numbers(&r, n, low, high, zeros);
    tn_cpu cpu;
    for (int squares = 0; squares < 2; squares++) {
        const fixed want = fixed_sum(x, n, squares);
        for (int i = 0; tn_test_cpu(i, scratch, NULL, &cpu); i++) {
            tn_exact whole = {{0}, 0}, parts = {{0}, 0}, other = {{0}, 0};
            add(&cpu, &whole, x, n, squares);
            TN_CHECK_MSG(fixed_equal(&want, &whole),
                         "%lld values, exponents %d to %d, squares %d, %s, %d threads: not exact",
                         (long long)n, low, high, squares, tn_isa_name(cpu.isa),
                         tn_pool_threads(cpu.pool));
            /* from the end, in pieces, into two sums that are merged: the same bytes */
            for (int64_t end = n, m; end > 0; end -= m) {
                m = 1 + tn_test_below(&r, end < 5000 ? end : 5000);
                add(&cpu, tn_test_below(&r, 2) ? &parts : &other, x + end - m, m, squares);
            }
            tn_exact_merge(&parts, &other);
            TN_CHECK(memcmp(&parts, &whole, sizeof whole) == 0);
        }
    }
    tn_test_free(x);
}

/* Blocks that come closest to what doubles can hold: one value at the top, 4095 equal ones `apart`
 * exponents below, whose squares leave nearly half a unit behind when they are split at bit k of
 * the squared mantissa. */
static void edge_case(int apart, int k, uint64_t seed)
{
    const uint64_t modulus = (uint64_t)1 << k;
    float x[4096];
    uint32_t m;
    do m = 0x800001 | (uint32_t)tn_test_below(&seed, 0x800000);
    while ((uint64_t)m * m % modulus < modulus / 2 - modulus / 16 ||
           (uint64_t)m * m % modulus >= modulus / 2);
    x[0] = 1;
    for (int i = 1; i < 4096; i++) x[i] = ldexpf((float)m, -23 - apart);
    const fixed want = fixed_sum(x, 4096, true);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, scratch, NULL, &cpu); i++) {
        tn_exact s = {{0}, 0};
        tn_exact_add_squares(&cpu, &s, x, 4096);
        TN_CHECK_MSG(fixed_equal(&want, &s), "%d exponents apart, %s: not exact", apart,
                     tn_isa_name(cpu.isa));
    }
}

static double sum_of(const tn_cpu *cpu, const float *x, int64_t n)
{
    tn_exact s = {{0}, 0};
    tn_exact_add(cpu, &s, x, n);
    return tn_exact_get(&s);
}

/* Few values, whose double sum is known: rounding to nearest even, carries through many limbs,
 * signs, what is not finite. */
static void get_case(const tn_cpu *cpu)
{
    const struct {
        float x[6];
        int n;
        double want;
    } cases[] = {
        {{0}, 0, 0},
        {{-0.0f}, 1, 0},
        {{1, 0x1p-24f, 0x1p-53f}, 3, 1 + 0x1p-24},  /* half an ulp of 1 + 2^-24: to even */
        {{1, 0x1p-52f, 0x1p-53f}, 3, 1 + 0x1p-51},  /* to even, upwards */
        {{1, 0x1p-53f, 0x1p-149f}, 3, 1 + 0x1p-52}, /* a hair above half an ulp */
        {{1, 0x1p-53f, -0x1p-149f}, 3, 1},          /* a hair below */
        {{0x1p127f, 1, -0x1p127f}, 3, 1},
        {{0x1p127f, 0x1p-149f, -0x1p127f}, 3, 0x1p-149},
        {{-0x1p-149f}, 1, -0x1p-149},
        {{-0x1p127f, 0x1p-149f}, 2, -0x1p127},
        {{0x1.fffffep127f, 0x1.fffffep127f, 0x1.fffffep127f, 0x1.fffffep127f}, 4, 0x1.fffffep129},
        {{1, INFINITY}, 2, INFINITY},
        {{-INFINITY, 3}, 2, -INFINITY},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) {
        double got = sum_of(cpu, cases[i].x, cases[i].n), minus;
        float y[6];
        for (int k = 0; k < cases[i].n; k++) y[k] = -cases[i].x[k];
        minus = sum_of(cpu, y, cases[i].n);
        TN_CHECK_MSG(got == cases[i].want && minus == -cases[i].want,
                     "case %d: %a and %a, expected %a", i, got, minus, cases[i].want);
    }
    TN_CHECK(isnan(sum_of(cpu, (float[]){1, NAN, 2}, 3)));
    TN_CHECK(isnan(sum_of(cpu, (float[]){INFINITY, -INFINITY}, 2)));
    for (int at = 0; at < 20; at++) {
        float x[20];
        tn_exact s = {{0}, 0};
        for (int k = 0; k < 20; k++) x[k] = 1;
        x[at] = at % 2 ? NAN : -INFINITY;
        tn_exact_add_squares(cpu, &s, x, 20);
        TN_CHECK(at % 2 ? isnan(tn_exact_get(&s)) : tn_exact_get(&s) == INFINITY);
    }
}

int main(void)
{
    sum_case(0, 0, 0, 0, 1);
    sum_case(1, 0, 0, 0, 2);
    sum_case(7, 0, 0, 0, 3);
    sum_case(100, -149, 127, 0, 4);
    sum_case(20000, -10, 3, 0, 5);     /* near */
    sum_case(20000, -16, 3, 50, 6);    /* near and far */
    sum_case(20000, -24, 3, 0, 7);     /* far */
    sum_case(20000, -44, 3, 10, 8);    /* far and any */
    sum_case(20000, -170, 127, 5, 9);  /* any, denormals */
    sum_case(9000, -170, -125, 5, 10); /* around the smallest normal */
    sum_case(9000, 120, 127, 0, 11);   /* the largest */
    sum_case(9000, 0, 0, 100, 12);     /* zeros */
    sum_case(300000, -12, 0, 0, 13);   /* several tiles */
    for (int apart = 14; apart <= 20; apart++) edge_case(apart, 2 * apart + 8, (uint64_t)apart);
    for (int apart = 30; apart <= 40; apart++) edge_case(apart, 2 * apart - 33, (uint64_t)apart);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, scratch, NULL, &cpu); i++) get_case(&cpu);
    return tn_test_done("exact");
}
