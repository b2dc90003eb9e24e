/* test_optim.c - AdamW, Adam and SGD over several steps against PyTorch's formulas in double. */
#include "kernels/cpu/optim.h"
#include "tests/cpu.h"

enum { STEPS = 4 };

typedef struct setting {
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, momentum;
    bool decoupled;
    float *param, *grad[STEPS], coefficient[STEPS];
} setting;

/* torch.optim.AdamW and Adam, single tensor */
static void adam_want(const setting *s, double *p, double *m, double *v)
{
    for (int64_t i = 0; i < s->n; i++) p[i] = (double)s->param[i];
    for (int step = 1; step <= STEPS; step++)
        for (int64_t i = 0; i < s->n; i++) {
            double g = (double)s->grad[step - 1][i] * (double)s->coefficient[step - 1];
            if (s->decoupled) p[i] *= 1 - s->lr * s->weight_decay;
            else g += s->weight_decay * p[i];
            m[i] = s->beta1 * m[i] + (1 - s->beta1) * g;
            v[i] = s->beta2 * v[i] + (1 - s->beta2) * g * g;
            p[i] -= s->lr / (1 - pow(s->beta1, step)) * m[i] /
                    (sqrt(v[i]) / sqrt(1 - pow(s->beta2, step)) + s->eps);
        }
}

/* torch.optim.SGD, dampening 0, no nesterov */
static void sgd_want(const setting *s, double *p, double *buffer)
{
    for (int64_t i = 0; i < s->n; i++) p[i] = (double)s->param[i];
    for (int step = 0; step < STEPS; step++)
        for (int64_t i = 0; i < s->n; i++) {
            const double g =
                (double)s->grad[step][i] * (double)s->coefficient[step] + s->weight_decay * p[i];
            buffer[i] = step == 0 ? g : s->momentum * buffer[i] + g;
            p[i] -= s->lr * buffer[i];
        }
}

static void adam_case(const setting *s)
{
    const size_t bytes = (size_t)s->n * sizeof(float);
    float *first[3] = {0};
    double *want[3];
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *p = tn_test_copy(s->param, s->n), *m = tn_test_floats(s->n),
              *v = tn_test_floats(s->n);
        memset(m, 0, bytes);
        memset(v, 0, bytes);
        for (int step = 0; step < STEPS; step++) {
            float *g = tn_test_copy(s->grad[step], s->n);
            tn_optim_adam_run(&cpu, &(tn_optim_adam){s->n, step + 1, s->lr, s->beta1, s->beta2,
                                                     s->eps, s->weight_decay, s->decoupled,
                                                     &s->coefficient[step], g, p, m, v});
            TN_CHECK(memcmp(g, s->grad[step], bytes) == 0);
            tn_test_free(g);
        }
        float *const mine[] = {p, m, v};
        for (int k = 0; k < 3; k++) {
            tn_test_same(k == 0 ? "param" : k == 1 ? "m" : "v", &cpu, mine[k], s->n, &first[k]);
            tn_test_free(mine[k]);
        }
    }
    for (int k = 0; k < 3; k++) want[k] = tn_test_doubles(s->n);
    adam_want(s, want[0], want[1], want[2]);
    tn_test_close("param", first[0], want[0], s->n, 6e-7 + 3e-6 * s->lr);
    tn_test_close("m", first[1], want[1], s->n, 4e-7);
    tn_test_close("v", first[2], want[2], s->n, 4e-7);
    for (int k = 0; k < 3; k++) {
        tn_test_free(first[k]);
        free(want[k]);
    }
}

static void sgd_case(const setting *s)
{
    float *first[2] = {0};
    double *want[2] = {tn_test_doubles(s->n), tn_test_doubles(s->n)};
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        /* the buffer starts as the first gradient, whatever is in it */
        float *p = tn_test_copy(s->param, s->n), *buffer = tn_test_floats(s->n);
        for (int step = 0; step < STEPS; step++)
            tn_optim_sgd_run(&cpu,
                             &(tn_optim_sgd){s->n, step + 1, s->lr, s->momentum, s->weight_decay,
                                             &s->coefficient[step], s->grad[step], p, buffer});
        tn_test_same("param", &cpu, p, s->n, &first[0]);
        tn_test_same("momentum", &cpu, buffer, s->n, &first[1]);
        tn_test_free(p);
        tn_test_free(buffer);
    }
    sgd_want(s, want[0], want[1]);
    tn_test_close("param", first[0], want[0], s->n, 4e-7);
    tn_test_close("momentum", first[1], want[1], s->n, 1e-6);
    for (int k = 0; k < 2; k++) {
        tn_test_free(first[k]);
        free(want[k]);
    }
}

int main(void)
{
    const int64_t sizes[] = {1, 15, 16, 1000, 50001};
    for (int i = 0; i < TN_COUNT(sizes); i++) {
        uint64_t r = 1 + (uint64_t)i;
        setting s = {.n = sizes[i],
                     .lr = 1e-2,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .weight_decay = 0.1,
                     .momentum = 0.9,
                     .coefficient = {1, 0.25f, 1, 0.5f}};
        s.param = tn_test_uniform(&r, s.n, 1);
        for (int k = 0; k < STEPS; k++) s.grad[k] = tn_test_uniform(&r, s.n, 1);
        for (int64_t k = 0; k < s.n; k += 9) s.grad[0][k] = s.grad[1][k] = 0;
        adam_case(&s); /* Adam: weight decay joins the gradient */
        s.decoupled = true;
        adam_case(&s);
        sgd_case(&s);
        s.weight_decay = s.momentum = 0;
        adam_case(&s);
        sgd_case(&s);
        s.eps = 0.1;
        s.lr = 0.5;
        adam_case(&s);
        tn_test_free(s.param);
        for (int k = 0; k < STEPS; k++) tn_test_free(s.grad[k]);
    }
    return tn_test_done("optim");
}
