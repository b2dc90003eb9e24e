/* test_loss.c - cross entropy against its formula in double, whole and from parts, split in every
 * way against whole. */
#include "kernels/cpu/loss.h"
#include "graph/order.h"
#include "tests/cpu.h"

typedef struct setting {
    int64_t rows, vocab;
    int parts;
    float *logits, coefficient;
    int32_t *labels;
    double *nll, *lse, *dlogits;
} setting;

static void formula(setting *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        const float *z = s->logits + r * s->vocab;
        double max = (double)z[0], sum = 0;
        for (int64_t i = 0; i < s->vocab; i++) max = (double)z[i] > max ? (double)z[i] : max;
        for (int64_t i = 0; i < s->vocab; i++) sum += exp((double)z[i] - max);
        s->lse[r] = max + log(sum);
        const bool counted = s->labels[r] >= 0;
        s->nll[r] = counted ? log(sum) + (max - (double)z[s->labels[r]]) : 0;
        for (int64_t i = 0; i < s->vocab && counted; i++)
            s->dlogits[r * s->vocab + i] =
                (exp((double)z[i] - s->lse[r]) - (i == s->labels[r])) * (double)s->coefficient;
    }
}

/* Columns [begin, begin + n) of x [rows vocab]. */
static float *columns(const setting *s, const float *x, int64_t begin, int64_t n)
{
    float *y = tn_test_floats(s->rows * n);
    for (int64_t r = 0; r < s->rows; r++)
        memcpy(y + r * n, x + r * s->vocab + begin, (size_t)n * sizeof *y);
    return y;
}

/* Every rank of tp makes the statistics of its parts and the gradient of its columns; all have the
 * bits of one rank. */
static void split_case(const tn_cpu *cpu, const setting *s, int tp, const float *nll,
                       const float *lse, const float *dlogits)
{
    const int own = s->parts / tp;
    float *stats = tn_test_floats(s->rows * s->parts * 3), *nll2 = tn_test_floats(s->rows),
          *lse2 = tn_test_floats(s->rows);
    for (int rank = 0; rank < tp; rank++) {
        const int64_t begin = tn_order_cut(s->vocab, 0, rank, tp),
                      n = tn_order_cut(s->vocab, 0, rank + 1, tp) - begin;
        float *z = columns(s, s->logits, begin, n), *dz = columns(s, dlogits, begin, n),
              *mine = tn_test_floats(s->rows * own * 3);
        tn_loss_parts(cpu, &(tn_loss_parts_args){s->rows, s->vocab, begin, n, s->parts, rank * own,
                                                 own, z, s->labels, mine});
        TN_CHECK(tn_test_intact(mine, s->rows * own * 3));
        for (int64_t r = 0; r < s->rows; r++)
            memcpy(stats + (r * s->parts + rank * own) * 3, mine + r * own * 3,
                   (size_t)own * 3 * sizeof *stats);
        tn_loss_backward(
            cpu, &(tn_loss_grad_args){s->rows, begin, n, z, lse, &s->coefficient, s->labels, z});
        TN_CHECK(tn_test_intact(z, s->rows * n) &&
                 memcmp(z, dz, (size_t)(s->rows * n) * sizeof *z) == 0);
        tn_test_free(z);
        tn_test_free(dz);
        tn_test_free(mine);
    }
    tn_loss_merge(cpu, &(tn_loss_merge_args){s->rows, s->parts, stats, s->labels, nll2, lse2});
    TN_CHECK(tn_test_intact(nll2, s->rows) &&
             memcmp(nll, nll2, (size_t)s->rows * sizeof *nll) == 0);
    TN_CHECK(tn_test_intact(lse2, s->rows) &&
             memcmp(lse, lse2, (size_t)s->rows * sizeof *lse) == 0);
    tn_test_free(stats);
    tn_test_free(nll2);
    tn_test_free(lse2);
}

static void loss_case(int64_t rows, int64_t vocab, int parts, float scale, uint64_t seed)
{
    uint64_t r = seed;
    setting s = {rows,
                 vocab,
                 parts,
                 tn_test_uniform(&r, rows * vocab, scale),
                 0.0123f,
                 malloc((size_t)rows * sizeof(int32_t)),
                 tn_test_doubles(rows),
                 tn_test_doubles(rows),
                 tn_test_doubles(rows * vocab)};
    float *first[4] = {0};
    if (!s.labels) exit(1);
    for (int64_t i = 0; i < rows; i++)
        s.labels[i] = tn_test_below(&r, 4) ? (int32_t)tn_test_below(&r, vocab) : -100;
    s.labels[0] = (int32_t)vocab - 1;
    formula(&s);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *nll = tn_test_floats(rows), *lse = tn_test_floats(rows),
              *dz = tn_test_floats(rows * vocab);
        float *stats = tn_test_floats(rows * parts * 3);
        tn_loss_parts(&cpu, &(tn_loss_parts_args){rows, vocab, 0, vocab, parts, 0, parts, s.logits,
                                                  s.labels, stats});
        tn_test_same("stats", &cpu, stats, rows * parts * 3, &first[3]);
        tn_loss_merge(&cpu, &(tn_loss_merge_args){rows, parts, stats, s.labels, nll, lse});
        tn_test_free(stats);
        tn_test_same("nll", &cpu, nll, rows, &first[0]);
        tn_test_same("lse", &cpu, lse, rows, &first[1]);
        tn_loss_backward(&cpu, &(tn_loss_grad_args){rows, 0, vocab, s.logits, lse, &s.coefficient,
                                                    s.labels, dz});
        tn_test_same("dlogits", &cpu, dz, rows * vocab, &first[2]);
        for (int tp = 1; tp <= parts; tp *= 2) split_case(&cpu, &s, tp, nll, lse, dz);
        tn_test_free(nll);
        tn_test_free(lse);
        tn_test_free(dz);
    }
    tn_test_close("nll", first[0], s.nll, rows, 2e-6 + 4e-7 * (double)scale);
    tn_test_close("lse", first[1], s.lse, rows, 2e-6 + 4e-7 * (double)scale);
    tn_test_close("dlogits", first[2], s.dlogits, rows * vocab,
                  (double)s.coefficient * (1e-6 + 4e-7 * (double)scale));
    for (int64_t i = 0; i < rows; i++)
        TN_CHECK(s.labels[i] >= 0 || (first[0][i] == 0 && first[2][i * vocab] == 0));
    for (int k = 0; k < 4; k++) tn_test_free(first[k]);
    tn_test_free(s.logits);
    free(s.labels);
    free(s.nll);
    free(s.lse);
    free(s.dlogits);
}

/* A row with a NaN or an infinity gives a loss that is not finite, wherever it stands. */
static void not_finite_case(void)
{
    float z[100], stats[8 * 3], nll, lse;
    const int32_t label = 3;
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++)
        for (int at = 0; at < 100; at++) {
            for (int k = 0; k < 100; k++) z[k] = (float)k / 50;
            z[at] = at % 2 ? NAN : INFINITY;
            tn_loss_parts(&cpu, &(tn_loss_parts_args){1, 100, 0, 100, 8, 0, 8, z, &label, stats});
            tn_loss_merge(&cpu, &(tn_loss_merge_args){1, 8, stats, &label, &nll, &lse});
            TN_CHECK_MSG(!isfinite(nll), "element %d: nll %g", at, (double)nll);
        }
}

int main(void)
{
    loss_case(3, 1, 1, 1, 1);
    loss_case(5, 3, 8, 1, 2); /* fewer logits than parts */
    loss_case(33, 257, 8, 5, 3);
    loss_case(17, 1000, 4, 60, 4);
    loss_case(40, 2048, 8, 10, 5);
    loss_case(700, 129, 2, 3, 6);
    loss_case(9, 33000, 8, 20, 7);
    loss_case(2, 4096, TN_LOSS_MAX_PARTS, 20, 8);
    not_finite_case();
    return tn_test_done("loss");
}
