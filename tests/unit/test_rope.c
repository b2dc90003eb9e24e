/* test_rope.c - rotation and table against the formulas in double. */
#include "kernels/cpu/rope.h"
#include "tests/cpu.h"

/* Angles by another way than the table: the frequency of dim i is theta^(-2i/d) = exp(-2i/d ln
 * theta). */
static double frequency(int64_t i, int64_t d, double theta, const tn_rope_scaling *s)
{
    const double f = exp(-2.0 * (double)i / (double)d * log(theta)), two_pi = 2 * acos(-1.0);
    if (!s || two_pi / f < s->original / s->high) return f;
    if (two_pi / f > s->original / s->low) return f / s->factor;
    const double smooth = (s->original * f / two_pi - s->low) / (s->high - s->low);
    return f * ((1 - smooth) / s->factor + smooth);
}

static void table_case(int64_t positions, int64_t d, double theta, const tn_rope_scaling *s)
{
    float *table = tn_test_floats(positions * d);
    double *want = tn_test_doubles(positions * d);
    tn_rope_table(positions, d, theta, s, table);
    TN_CHECK(tn_test_intact(table, positions * d));
    for (int64_t p = 0; p < positions; p++)
        for (int64_t i = 0; i < d / 2; i++) {
            want[p * d + i] = cos((double)p * frequency(i, d, theta, s));
            want[p * d + d / 2 + i] = sin((double)p * frequency(i, d, theta, s));
        }
    tn_test_close("rope table", table, want, positions * d, 6e-8 + 1e-15 * (double)positions);
    tn_test_free(table);
    free(want);
}

/* theta 5e5, d 16, original 32: dim 0 (wavelength 6.3 < 32/4) is kept, the others (32.4 and more >
 * 32/1) are stretched by 8. */
static void scaling_case(void)
{
    const tn_rope_scaling s = {8, 1, 4, 32};
    float table[2 * 16];
    tn_rope_table(2, 16, 500000, &s, table);
    TN_CHECK(fabs((double)table[16 + 8] - sin(1.0)) < 1e-7);
    for (int i = 1; i < 8; i++)
        TN_CHECK(fabs((double)table[16 + 8 + i] - sin(pow(500000, -i / 8.0) / 8)) < 1e-7);
}

static void apply_case(int64_t tokens, int64_t heads, int64_t d, int64_t gap, uint64_t seed)
{
    uint64_t r = seed;
    const int64_t n = tokens * heads * d, max = 50, stride = heads * d + gap;
    float *x = tn_test_uniform(&r, n, 1), *wide = tn_test_floats(tokens * stride),
          *table = tn_test_floats(max * d);
    float *first[2] = {0};
    int32_t *positions = malloc((size_t)tokens * sizeof *positions);
    double *want = tn_test_doubles(n);
    if (!positions) exit(1);
    tn_rope_table(max, d, 10000, NULL, table);
    for (int64_t t = 0; t < tokens; t++) {
        positions[t] = (int32_t)tn_test_below(&r, max);
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < d / 2; i++) {
                double angle = (double)positions[t] * frequency(i, d, 10000, NULL),
                       *y = want + (t * heads + h) * d;
                double a = (double)x[(t * heads + h) * d + i],
                       b = (double)x[(t * heads + h) * d + d / 2 + i];
                y[i] = a * cos(angle) - b * sin(angle);
                y[i + d / 2] = b * cos(angle) + a * sin(angle);
            }
        memcpy(wide + t * stride, x + t * heads * d, (size_t)(heads * d) * sizeof *x);
    }
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *y = tn_test_floats(n);
        tn_rope_args a = {tokens, heads,     d,     stride, heads * d, wide,
                          table,  positions, false, y,      false};
        tn_rope_apply(&cpu, &a);
        tn_test_same("rope", &cpu, y, n, &first[0]);
        /* in place inside a wider buffer: the same values, the gaps as they were */
        float *inside = tn_test_copy(wide, tokens * stride);
        tn_rope_apply(&cpu, &(tn_rope_args){tokens, heads, d, stride, stride, inside, table,
                                            positions, false, inside, false});
        bool same = true;
        for (int64_t t = 0; t < tokens; t++) {
            same = same && memcmp(inside + t * stride, y + t * heads * d,
                                  (size_t)(heads * d) * sizeof *y) == 0;
            for (int64_t k = heads * d; k < stride; k++)
                same = same && tn_test_is_poison(inside[t * stride + k]);
        }
        TN_CHECK(same);
        tn_test_free(inside);
        a.x = y; /* and back, in place */
        a.x_stride = heads * d;
        a.inverse = true;
        tn_rope_apply(&cpu, &a);
        tn_test_same("rope inverse", &cpu, y, n, &first[1]);
        tn_test_free(y);
    }
    tn_test_close("rope", first[0], want, n, 3e-7);
    for (int64_t i = 0; i < n; i++) want[i] = (double)x[i];
    tn_test_close("rope inverse", first[1], want, n, 5e-7);
    const float *mine[] = {x, wide, table, first[0], first[1]};
    for (int k = 0; k < TN_COUNT(mine); k++) tn_test_free(mine[k]);
    free(want);
    free(positions);
}

int main(void)
{
    const tn_rope_scaling llama31 = {8, 1, 4, 8192}, small = {8, 1, 4, 32};
    table_case(100, 64, 10000, NULL);
    table_case(3000, 128, 500000, &llama31);
    table_case(64, 16, 500000, &small);
    table_case(1, 2, 10000, NULL);
    scaling_case();
    const int64_t dims[] = {2, 6, 16, 32, 48, 64, 80, 128, 200};
    for (int i = 0; i < TN_COUNT(dims); i++) {
        apply_case(1, 1, dims[i], 0, 1 + (uint64_t)i);
        apply_case(37, 3, dims[i], 5, 50 + (uint64_t)i);
    }
    apply_case(1200, 8, 32, 0, 99);
    return tn_test_done("rope");
}
