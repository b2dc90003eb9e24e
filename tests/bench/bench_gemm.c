/* bench_gemm.c - our GEMM, with its canonical leaves, beside OpenBLAS, BLIS and oneDNN on the
 * shapes of a training step.
 *
 *     bench_gemm [--threads N] [--isa NAME] [--rounds N] [--only TEXT] [--clock cpu] [--dtype
 * bf16|pairs]
 *
 * One process, turn and turn about: in every round each library computes the shape a few times
 * after a pause (the others' threads have gone to sleep) and a warm-up; the minimum over the rounds
 * counts. The libraries get what suits them best: the weights of one op side by side in one matrix,
 * one call; ours gets the separate matrices of the model. Libraries are opened at run time; what is
 * not there is left out. FMA peak: all threads, no memory. With `--clock cpu` the time is that of
 * the calling thread: for one thread on a machine that others use too. With `--dtype bf16` ours
 * gets its operands and gives y and dx in bf16, the libraries have theirs in fp32; `pairs` is the
 * same in fast mode.
 */
#include "kernels/cpu/gemm.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_LIBS = 3, GRID = 8, MAX_WEIGHTS = 3 };
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef enum kind { FORWARD, INPUT_GRAD, WEIGHT_GRAD, N_KINDS } kind;
static const char *const kind_names[N_KINDS] = {"y", "dx", "dW"};

/* One linear op: `rows` rows of `seq` tokens in one call, d features to sum of f. Column parallel:
 * its forward is one leaf and its input gradient a tree of 8; row parallel: the other way round.
 * `calls` per training step. */
typedef struct op {
    const char *model, *name;
    int64_t rows, seq, d;
    int n_f;
    int64_t f[MAX_WEIGHTS];
    bool column_parallel, accumulate;
    int calls;
} op;

static const op ops[] = {
    {"tiny", "q,k,v", 8, 512, 256, 3, {256, 128, 128}, true, false, 6},
    {"tiny", "wo", 8, 512, 256, 1, {256}, false, false, 6},
    {"tiny", "gate,up", 8, 512, 256, 2, {768, 768}, true, false, 6},
    {"tiny", "down", 8, 512, 768, 1, {256}, false, false, 6},
    {"tiny", "head", 8, 512, 256, 1, {2048}, true, false, 1},
    {"110m", "q,k,v", 4, 512, 768, 3, {768, 768, 768}, true, false, 12},
    {"110m", "wo", 4, 512, 768, 1, {768}, false, false, 12},
    {"110m", "gate,up", 4, 512, 768, 2, {2048, 2048}, true, false, 12},
    {"110m", "down", 4, 512, 2048, 1, {768}, false, false, 12},
    {"110m", "head", 1, 512, 768, 1, {32000}, true, true, 4},
};

/* ---- the libraries ---- */

typedef void (*cblas_fn)(int, int, int, int, int, int, float, const float *, int, const float *,
                         int, float, float *, int);
typedef int (*dnnl_fn)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                       const float *, int64_t, float, float *, int64_t);
typedef void (*set_int_fn)(int);
typedef void (*set_dim_fn)(int64_t);

typedef struct library {
    const char *name;
    cblas_fn cblas;
    dnnl_fn dnnl;
} library;

static void *symbol(void *lib, const char *name)
{
    return lib ? dlsym(lib, name) : NULL;
}

static void open_libraries(library libs[N_LIBS], int threads)
{
    unsetenv("OPENBLAS_CORETYPE"); /* read when the library is loaded: it shall choose its kernel
                                      itself */
    unsetenv("OPENBLAS_L2_SIZE");
    void *openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *blis = dlopen("libblis.so.4", RTLD_NOW | RTLD_LOCAL);
    void *dnnl = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    libs[0] = (library){"OpenBLAS", NULL, NULL};
    libs[1] = (library){"BLIS", NULL, NULL};
    libs[2] = (library){"oneDNN", NULL, NULL};
    *(void **)&libs[0].cblas = symbol(openblas, "cblas_sgemm");
    *(void **)&libs[1].cblas = symbol(blis, "cblas_sgemm");
    *(void **)&libs[2].dnnl = symbol(dnnl, "dnnl_sgemm");
    set_int_fn set;
    set_dim_fn set_dim;
    *(void **)&set = symbol(openblas, "openblas_set_num_threads");
    if (set) set(threads);
    *(void **)&set_dim = symbol(blis, "bli_thread_set_num_threads");
    if (set_dim) set_dim(threads);
    *(void **)&set = symbol(dnnl, "omp_set_num_threads"); /* of the OpenMP that oneDNN brings */
    if (set) set(threads);
}

/* ---- one shape ---- */

typedef struct job {
    const op *op;
    kind kind;
    int64_t n, F;              /* tokens, features of all weights */
    float *x, *w, *y, *result; /* y: of the weights side by side; result: what is computed, at least
                                  as large as needed */
    tn_gemm gemm;
    tn_order_run order;
} job;

static double flops(const job *j)
{
    return 2.0 * (double)j->n * (double)j->F * (double)j->op->d;
}

static void library_run(const library *lib, const job *j)
{
    const float *a = j->kind == FORWARD ? j->x : j->y, *b = j->kind == WEIGHT_GRAD ? j->x : j->w;
    int64_t n = j->n, d = j->op->d, F = j->F;
    int64_t M = j->kind == WEIGHT_GRAD ? F : n, N = j->kind == FORWARD ? F : d,
            K = j->kind == FORWARD      ? d
                : j->kind == INPUT_GRAD ? F
                                        : n;
    int64_t lda = j->kind == FORWARD ? d : F, ldb = d;
    bool ta = j->kind == WEIGHT_GRAD, tb = j->kind == FORWARD;
    float beta = j->kind == WEIGHT_GRAD && j->op->accumulate ? 1.0f : 0.0f;
    if (lib->cblas)
        lib->cblas(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)M, (int)N, (int)K,
                   1.0f, a, (int)lda, b, (int)ldb, beta, j->result, (int)N);
    else
        lib->dnnl(ta ? 'T' : 'N', tb ? 'T' : 'N', M, N, K, 1.0f, a, lda, b, ldb, beta, j->result,
                  N);
}

static bool bf16, pairs;

static void set_gemm(job *j)
{
    const op *o = j->op;
    tn_gemm *g = &j->gemm;
    int64_t at = 0, d = o->d, n = j->n;
    memset(g, 0, sizeof *g);
    g->order = &j->order;
    g->pairs = pairs;
    g->n_out = j->kind == INPUT_GRAD ? 1 : o->n_f;
    g->n_src = j->kind == INPUT_GRAD ? o->n_f : 1;
    for (int i = 0; i < o->n_f; i++) {
        int64_t f = o->f[i];
        const float *w = j->w + at * d, *y = j->y + at * n; /* separate matrices */
        switch (j->kind) {
        case FORWARD:
            g->src[i] = (tn_gemm_src){j->x, d, 1, w, 1, d, bf16, bf16};
            g->out[i] =
                (tn_gemm_out){.c = j->result + at * n, .ldc = f, .m = n, .n = f, .c_bf16 = bf16};
            break;
        case INPUT_GRAD:
            g->src[i] = (tn_gemm_src){y, f, 1, w, d, 1, bf16, bf16};
            g->out[0] = (tn_gemm_out){.c = j->result, .ldc = d, .m = n, .n = d, .c_bf16 = bf16};
            break;
        default:
            g->src[i] = (tn_gemm_src){y, 1, f, j->x, d, 1, bf16, bf16};
            g->out[i] = (tn_gemm_out){.c = j->result + at * d, .ldc = d, .m = f, .n = d};
            g->out[i].stack[0] = g->out[i].c;
        }
        at += f;
    }
}

static tn_status set_order(job *j, tn_arena *arena)
{
    const op *o = j->op;
    static const int64_t units[MAX_WEIGHTS];
    if (pairs) {
        int64_t half[MAX_WEIGHTS] = {(j->kind == FORWARD ? o->d : j->n) / 2};
        for (int i = 0; j->kind == INPUT_GRAD && i < o->n_f; i++) half[i] = o->f[i] / 2;
        return tn_order_param(arena, 1, j->gemm.n_src, half, units, &j->order);
    }
    if (j->kind == FORWARD)
        return tn_order_param(arena, o->column_parallel ? 1 : GRID, 1, &o->d, units, &j->order);
    if (j->kind == INPUT_GRAD)
        return tn_order_param(arena, o->column_parallel ? GRID : 1, o->n_f, o->f, units, &j->order);
    const tn_order_tokens *t;
    tn_order_grid grid = {GRID, GRID, GRID};
    int64_t first =
        o->accumulate ? GRID
                      : 0; /* the second of the step's calls: it adds to what the first one left */
    TN_TRY(tn_order_tokens_build(arena, grid, o->accumulate ? o->rows * o->calls : o->rows, o->seq,
                                 &t));
    return tn_order_tokens_run(t, arena, first, first + o->rows * GRID, &j->order);
}

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(long ms)
{
    struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* Seconds of one call: the smallest of a few, after a warm-up. lib NULL: ours. */
static double measure(const library *lib, const job *j, const tn_cpu *cpu)
{
    double best = 1e30, end = 0;
    for (int i = 0; i < 2 || (now() < end && i < 20); i++) {
        double t = now();
        if (lib) library_run(lib, j);
        else tn_gemm_run(cpu, &j->gemm);
        t = now() - t;
        if (i == 0) end = now() + (t < 0.01 ? 0.03 : 3 * t);
        else if (t < best) best = t;
    }
    return best;
}

static float *filled(int64_t n)
{
    void *p = NULL;
    uint32_t s = 12345;
    if (posix_memalign(&p, 4096, (size_t)n * sizeof(float))) abort();
    float *x = p;
    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) / 16777216.0f - 0.5f;
        if (bf16) { /* both halves the upper one: a number either way */
            uint16_t half[2];
            memcpy(half, &x[i], sizeof half);
            half[0] = half[1];
            memcpy(&x[i], half, sizeof half);
        }
    }
    return x;
}

/* ---- FMA peak ---- */

enum { PEAK_ITERATIONS = 3000000, CHAINS = 12 };

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined __x86_64__
#include <immintrin.h>
__attribute__((target("avx512f"))) static void fma512(void *arg, int64_t tile, int thread)
{
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f), r[CHAINS];
    (void)thread;
    UNROLL for (int i = 0; i < CHAINS; i++) r[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < PEAK_ITERATIONS; n++) {
        __asm__ volatile("" : "+v"(x));
        UNROLL for (int i = 0; i < CHAINS; i++) r[i] = _mm512_fmadd_ps(r[i], x, y);
    }
    UNROLL for (int i = 1; i < CHAINS; i++) r[0] = _mm512_add_ps(r[0], r[i]);
    ((float *)arg)[tile] = _mm512_cvtss_f32(r[0]);
}
__attribute__((target("avx2,fma"))) static void fma256(void *arg, int64_t tile, int thread)
{
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f), r[CHAINS];
    (void)thread;
    UNROLL for (int i = 0; i < CHAINS; i++) r[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < PEAK_ITERATIONS; n++) {
        __asm__ volatile("" : "+x"(x));
        UNROLL for (int i = 0; i < CHAINS; i++) r[i] = _mm256_fmadd_ps(r[i], x, y);
    }
    UNROLL for (int i = 1; i < CHAINS; i++) r[0] = _mm256_add_ps(r[0], r[i]);
    ((float *)arg)[tile] = _mm256_cvtss_f32(r[0]);
}

static double peak_of(tn_pool *pool, tn_pool_fn fn, int lanes)
{
    float sink[1024];
    double best = 1e30, total = 2.0 * lanes * CHAINS * PEAK_ITERATIONS * tn_pool_threads(pool);
    for (int i = 0; i < 7; i++) {
        double t = now();
        tn_pool_run(pool, tn_pool_threads(pool), fn, sink);
        t = now() - t;
        if (t < best) best = t;
    }
    return total / best / 1e9;
}

static double print_peak(tn_pool *pool)
{
    double p512 = tn_isa_usable(TN_ISA_AVX512) ? peak_of(pool, fma512, 16) : 0;
    double p256 = tn_isa_usable(TN_ISA_AVX2) ? peak_of(pool, fma256, 8) : 0;
    printf("FMA peak, %d threads: %.1f GF/s (512 bits), %.1f GF/s (256 bits)\n",
           tn_pool_threads(pool), p512, p256);
    return p512 > p256 ? p512 : p256;
}
#else
static double print_peak(tn_pool *pool)
{
    (void)pool;
    return 0;
}
#endif

/* ---- the table ---- */

typedef struct totals {
    const char *model;
    double ms[N_LIBS + 1], best_ms; /* of a step: libraries, ours; the best library of each shape */
} totals;

typedef struct score {
    double log_sum, worst;
    int n;
} score;

static void bench_job(const library *libs, job *j, const tn_cpu *cpu, int rounds, double peak,
                      totals *sum, score *all)
{
    double s[N_LIBS + 1], best = 1e30;
    for (int i = 0; i <= N_LIBS; i++) s[i] = 1e30;
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i <= N_LIBS; i++) {
            const library *lib = i < N_LIBS ? &libs[i] : NULL;
            if (lib && !lib->cblas && !lib->dnnl) continue;
            nap(30);
            double t = measure(lib, j, cpu);
            if (t < s[i]) s[i] = t;
        }
    }
    for (int i = 0; i < N_LIBS; i++) best = s[i] < best ? s[i] : best;
    double gf = flops(j) / 1e9, ratio = best / s[N_LIBS];
    printf("%-5s %-8s %-3s %6lld %6lld %6lld |", j->op->model, j->op->name, kind_names[j->kind],
           (long long)j->n, (long long)j->F, (long long)j->op->d);
    for (int i = 0; i < N_LIBS; i++) printf(" %8.1f", gf / s[i]);
    printf(" | %7.1f  %5.3f", gf / s[N_LIBS], ratio);
    if (peak > 0) printf("  %4.1f%%", 100 * gf / s[N_LIBS] / peak);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i <= N_LIBS; i++) sum->ms[i] += 1e3 * s[i] * j->op->calls;
    sum->best_ms += 1e3 * best * j->op->calls;
    all->log_sum += log(ratio);
    all->n++;
    if (ratio < all->worst) all->worst = ratio;
}

static tn_status bench_op(const library *libs, const op *o, tn_cpu *cpu, int rounds, double peak,
                          totals *sum, score *all)
{
    job j = {.op = o, .n = o->rows * o->seq};
    for (int i = 0; i < o->n_f; i++) j.F += o->f[i];
    int64_t largest = j.F * o->d > j.n * j.F ? j.F * o->d : j.n * j.F;
    if (j.n * o->d > largest) largest = j.n * o->d;
    j.x = filled(j.n * o->d);
    j.w = filled(j.F * o->d);
    j.y = filled(j.n * j.F);
    j.result = filled(largest);
    for (int k = 0; k < N_KINDS; k++) {
        tn_arena arena = {0};
        j.kind = (kind)k;
        set_gemm(&j);
        TN_TRY(set_order(&j, &arena));
        cpu->scratch_bytes = tn_gemm_scratch(tn_pool_threads(cpu->pool), &j.gemm);
        if (posix_memalign(&cpu->scratch, 64, cpu->scratch_bytes)) abort();
        memset(cpu->scratch, 0, cpu->scratch_bytes);
        bench_job(libs, &j, cpu, rounds, peak, sum, all);
        free(cpu->scratch);
        tn_arena_fini(&arena);
    }
    free(j.x);
    free(j.w);
    free(j.y);
    free(j.result);
    return TN_OK;
}

static tn_status bench(int threads, tn_isa isa, int rounds, const char *only)
{
    library libs[N_LIBS];
    totals sums[2] = {{.model = "tiny"}, {.model = "110m"}};
    score all = {0, 1e30, 0};
    tn_cpu cpu = {.isa = isa};
    TN_TRY(tn_pool_create(threads, &cpu.pool));
    open_libraries(libs, threads);
    double peak = print_peak(cpu.pool);
    printf("GF/s; tokens, f, d; y: forward, dx: input gradient, dW: weight gradient; ours on %s\n",
           tn_isa_name(isa));
    printf("%-18s %6s %6s %6s | %8s %8s %8s | %7s  %5s  %s\n", "", "tokens", "f", "d", libs[0].name,
           libs[1].name, libs[2].name, "ours", "ratio", "of peak");
    for (int i = 0; i < TN_COUNT(ops); i++) {
        char label[64];
        snprintf(label, sizeof label, "%s %s", ops[i].model, ops[i].name);
        if (only && !strstr(label, only)) continue;
        TN_TRY(bench_op(libs, &ops[i], &cpu, rounds, peak, &sums[strcmp(ops[i].model, "tiny") != 0],
                        &all));
    }
    if (all.n)
        printf("ours / best library: geometric mean %.3f, worst %.3f\n", exp(all.log_sum / all.n),
               all.worst);
    for (int m = 0; m < 2 && all.n; m++) {
        printf("GEMMs of a step of %s:", sums[m].model);
        for (int i = 0; i < N_LIBS; i++)
            if (sums[m].ms[i] < 1e20) printf(" %s %.1f ms,", libs[i].name, sums[m].ms[i]);
        printf(" best of each %.1f ms, ours %.1f ms\n", sums[m].best_ms, sums[m].ms[N_LIBS]);
    }
    tn_pool_destroy(cpu.pool);
    return TN_OK;
}

int main(int argc, char **argv)
{
    int threads = tn_pool_cores(), rounds = 5;
    tn_isa isa = tn_isa_best();
    const char *only = NULL;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--threads") == 0) threads = atoi(value);
        else if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(value);
        else if (strcmp(argv[i], "--only") == 0) only = value;
        else if (strcmp(argv[i], "--clock") == 0 && strcmp(value, "cpu") == 0)
            clock_used = CLOCK_THREAD_CPUTIME_ID;
        else if (strcmp(argv[i], "--dtype") == 0 && strcmp(value, "bf16") == 0) bf16 = true;
        else if (strcmp(argv[i], "--dtype") == 0 && strcmp(value, "pairs") == 0)
            bf16 = pairs = tn_isa_pairs(isa);
        else if (strcmp(argv[i], "--isa") != 0 || !tn_isa_parse(value, &isa) ||
                 !tn_isa_usable(isa)) {
            fprintf(stderr,
                    "bench_gemm: '%s %s' is not known; [--threads N] [--isa NAME] [--rounds N] "
                    "[--only TEXT] [--clock cpu] [--dtype bf16|pairs]\n",
                    argv[i], value);
            return 2;
        }
    }
    if (bench(threads, isa, rounds, only) == TN_OK) return 0;
    fprintf(stderr, "%s\n", tn_error_text());
    return 1;
}
