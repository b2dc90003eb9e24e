/* bench_attention.c - flash attention forward and backward: GF/s over the visible pairs, share of
 * the FMA peak, beside a port of the tiling that titan's CPU prototype had (64x64 blocks, 4x16
 * register tiles, heads contiguous in memory, AVX2).
 *
 *     bench_attention [seconds per shape, default 2] [threads, default all cores]
 *
 * FLOPs: visible (causal) pairs x 2 d x 2 forward, x 5 backward. All variants take turns; the best
 * run of each counts, by the wall clock and (cpu) by the CPU time of the process per thread, which
 * other programs on the machine disturb less. */
#include "kernels/cpu/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now_cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *block(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

static float *uniform(int64_t n)
{
    static uint64_t state = 1;
    float *p = block((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        p[i] = (float)(state >> 40) / 8388608.0f - 1.0f;
    }
    return p;
}

/* A shape, as the kernel wants it; the port reads the same floats as [b h s d]. */
typedef struct shape {
    int64_t b, s, h, g, d;
} shape;

typedef struct run {
    tn_attention a;
    float *d_o, *dq, *dk, *d_v;
} run;

static run run_build(const shape *x)
{
    const int64_t nq = x->b * x->s * x->h * x->d, nk = x->b * x->s * x->g * x->d,
                  tokens = x->b * x->s;
    int32_t *pos = block((size_t)tokens * sizeof *pos), *doc = block((size_t)tokens * sizeof *doc);
    for (int64_t i = 0; i < tokens; i++) pos[i] = (int32_t)(i % x->s);
    run r = {.a = {.b = x->b,
                   .s = x->s,
                   .t = x->s,
                   .h = x->h,
                   .g = x->g,
                   .d = x->d,
                   .dv = x->d,
                   .q = uniform(nq),
                   .k = uniform(nk),
                   .v = uniform(nk),
                   .o = uniform(nq),
                   .lse = uniform(tokens * x->h),
                   .q_pos = pos,
                   .q_doc = doc,
                   .k_pos = pos,
                   .k_doc = doc,
                   .causal = true,
                   .scale = 1.0f / sqrtf((float)x->d),
                   .seq_parts = 8,
                   .head_parts = 8,
                   .units = x->h}};
    r.d_o = uniform(nq);
    r.dq = uniform(nq);
    r.dk = uniform(nq); /* the port writes one per query head */
    r.d_v = uniform(nq);
    return r;
}

static void run_free(run *r)
{
    const void *mine[] = {r->a.q,   r->a.k, r->a.v, r->a.q_pos, r->a.q_doc, r->a.o,
                          r->a.lse, r->d_o, r->dq,  r->dk,      r->d_v};
    for (int i = 0; i < TN_COUNT(mine); i++) free((void *)(uintptr_t)mine[i]);
}

#if defined __x86_64__
#include <immintrin.h>

/* The port. */
#if defined __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif
#define AVX2 __attribute__((target("avx2,fma")))
enum { B = 64 };

static AVX2 __m256 port_exp(__m256 x)
{
    x = _mm256_max_ps(x, _mm256_set1_ps(-87.3f));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500E-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507E-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073E-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894E-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459E-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201E-1f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1)));
    __m256i e =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(e));
}

/* C[64, n] (+)= A[64, k] B[k, n]; element (i, k) of A at a[i * ai + k * ak]. */
typedef struct tile {
    const float *a;
    int64_t ai, ak;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
} tile;

static AVX2 void port_gemm(int64_t n, int64_t depth, bool add, tile t)
{
    for (int64_t j = 0; j < n; j += 16) {
        for (int64_t i = 0; i < B; i += 4) {
            const float *a = t.a + i * t.ai, *b = t.b + j;
            float *c = t.c + i * t.ldc + j;
            __m256 s[4][2];
            UNROLL for (int r = 0; r < 4; r++)
            {
                s[r][0] = add ? _mm256_loadu_ps(c + r * t.ldc) : _mm256_setzero_ps();
                s[r][1] = add ? _mm256_loadu_ps(c + r * t.ldc + 8) : _mm256_setzero_ps();
            }
            for (int64_t k = 0; k < depth; k++, a += t.ak, b += t.ldb) {
                __m256 x = _mm256_loadu_ps(b), y = _mm256_loadu_ps(b + 8);
                UNROLL for (int r = 0; r < 4; r++)
                {
                    __m256 v = _mm256_broadcast_ss(a + r * t.ai);
                    s[r][0] = _mm256_fmadd_ps(v, x, s[r][0]);
                    s[r][1] = _mm256_fmadd_ps(v, y, s[r][1]);
                }
            }
            UNROLL for (int r = 0; r < 4; r++)
            {
                _mm256_storeu_ps(c + r * t.ldc, s[r][0]);
                _mm256_storeu_ps(c + r * t.ldc + 8, s[r][1]);
            }
        }
    }
}

static void port_transpose(int64_t rows, int64_t cols, const float *x, float *y)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) y[j * rows + i] = x[i * cols + j];
}

static AVX2 float port_max(__m256 v)
{
    float t[8], m;
    _mm256_storeu_ps(t, v);
    m = t[0];
    for (int i = 1; i < 8; i++) m = t[i] > m ? t[i] : m;
    return m;
}

static AVX2 float port_sum(__m256 v)
{
    float t[8];
    _mm256_storeu_ps(t, v);
    return t[0] + t[1] + t[2] + t[3] + t[4] + t[5] + t[6] + t[7];
}

static AVX2 void port_scale(float *x, int64_t n, float by)
{
    const __m256 f = _mm256_set1_ps(by);
    for (int64_t j = 0; j < n; j += 8)
        _mm256_storeu_ps(x + j, _mm256_mul_ps(f, _mm256_loadu_ps(x + j)));
}

static AVX2 void port_softmax(float *s, int64_t seen, float scale, float *m, float *l, float *o,
                              int64_t d)
{
    __m256 top = _mm256_set1_ps(-1e30f), sum = _mm256_setzero_ps();
    for (int64_t j = seen; j < B; j++) s[j] = -1e30f;
    for (int64_t j = 0; j < B; j += 8) {
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(s + j), _mm256_set1_ps(scale));
        _mm256_storeu_ps(s + j, x);
        top = _mm256_max_ps(top, x);
    }
    float now_m = port_max(top);
    if (now_m < *m) now_m = *m;
    float f = expf(*m - now_m);
    for (int64_t j = 0; j < B; j += 8) {
        __m256 x = port_exp(_mm256_sub_ps(_mm256_loadu_ps(s + j), _mm256_set1_ps(now_m)));
        _mm256_storeu_ps(s + j, x);
        sum = _mm256_add_ps(sum, x);
    }
    *l = *l * f + port_sum(sum);
    *m = now_m;
    if (f != 1) port_scale(o, d, f);
}

static const float *floats(const void *p)
{
    return p;
}

typedef struct port {
    run *r;
    float *scratch;
    size_t floats;
} port;

static AVX2 void port_fwd(void *arg, int64_t z, int thread)
{
    port *p = arg;
    const tn_attention *a = &p->r->a;
    const int64_t n = a->s, d = a->d, at = z * n * d,
                  kv = (z / a->h * a->g + z % a->h * a->g / a->h) * n * d;
    const float *q = floats(a->q) + at, *v = floats(a->v) + kv;
    float *kt = p->scratch + (size_t)thread * p->floats, *s = kt + n * d, *o = (float *)a->o + at;
    port_transpose(n, d, floats(a->k) + kv, kt);
    for (int64_t i = 0; i < n; i += B) {
        float m[B], l[B];
        for (int64_t r = 0; r < B; r++) m[r] = -1e30f, l[r] = 0;
        memset(o + i * d, 0, sizeof(float) * (size_t)(B * d));
        for (int64_t k = 0; k <= i; k += B) {
            port_gemm(B, d, false, (tile){q + i * d, d, 1, kt + k, n, s, B});
            for (int64_t r = 0; r < B; r++)
                port_softmax(s + r * B, k == i ? r + 1 : B, a->scale, m + r, l + r, o + (i + r) * d,
                             d);
            port_gemm(d, B, true, (tile){s, B, 1, v + k * d, d, o + i * d, d});
        }
        for (int64_t r = 0; r < B; r++) {
            port_scale(o + (i + r) * d, d, 1 / l[r]);
            a->lse[z * n + i + r] = m[r] + logf(l[r]);
        }
    }
}

static AVX2 void port_slopes(float *p, float *g, int64_t seen, float scale, float lse, float sum)
{
    for (int64_t j = seen; j < B; j++) p[j] = -1e30f;
    for (int64_t j = 0; j < B; j += 8) {
        __m256 x = port_exp(
            _mm256_fmsub_ps(_mm256_loadu_ps(p + j), _mm256_set1_ps(scale), _mm256_set1_ps(lse)));
        _mm256_storeu_ps(p + j, x);
        x = _mm256_mul_ps(x, _mm256_set1_ps(scale));
        _mm256_storeu_ps(
            g + j, _mm256_mul_ps(x, _mm256_sub_ps(_mm256_loadu_ps(g + j), _mm256_set1_ps(sum))));
    }
}

static AVX2 void port_bwd(void *arg, int64_t z, int thread)
{
    port *p = arg;
    const tn_attention *a = &p->r->a;
    const int64_t n = a->s, d = a->d, at = z * n * d,
                  kv = (z / a->h * a->g + z % a->h * a->g / a->h) * n * d;
    const size_t bytes = sizeof(float) * (size_t)(n * d);
    const float *q = floats(a->q) + at, *d_o = p->r->d_o + at, *o = floats(a->o) + at;
    float *kt = p->scratch + (size_t)thread * p->floats, *vt = kt + n * d, *w = vt + n * d,
          *g = w + B * B;
    float *dq = p->r->dq + at, *dk = p->r->dk + at, *d_v = p->r->d_v + at, sum[B];
    port_transpose(n, d, floats(a->k) + kv, kt);
    port_transpose(n, d, floats(a->v) + kv, vt);
    memset(dq, 0, bytes);
    memset(dk, 0, bytes);
    memset(d_v, 0, bytes);
    for (int64_t i = 0; i < n; i += B) {
        for (int64_t r = 0; r < B; r++) {
            __m256 s = _mm256_setzero_ps();
            for (int64_t j = 0; j < d; j += 8)
                s = _mm256_fmadd_ps(_mm256_loadu_ps(o + (i + r) * d + j),
                                    _mm256_loadu_ps(d_o + (i + r) * d + j), s);
            sum[r] = port_sum(s);
        }
        for (int64_t k = 0; k <= i; k += B) {
            port_gemm(B, d, false, (tile){q + i * d, d, 1, kt + k, n, w, B});
            port_gemm(B, d, false, (tile){d_o + i * d, d, 1, vt + k, n, g, B});
            for (int64_t r = 0; r < B; r++)
                port_slopes(w + r * B, g + r * B, k == i ? r + 1 : B, a->scale,
                            a->lse[z * n + i + r], sum[r]);
            port_gemm(d, B, true, (tile){w, 1, B, d_o + i * d, d, d_v + k * d, d});
            port_gemm(d, B, true, (tile){g, 1, B, q + i * d, d, dk + k * d, d});
            port_gemm(d, B, true, (tile){g, B, 1, floats(a->k) + kv + k * d, d, dq + i * d, d});
        }
    }
}

static port port_build(run *r, int threads)
{
    size_t floats = 2 * (size_t)(r->a.s * r->a.d) + 2 * B * B + 1024;
    return (port){
        r, tn_isa_usable(TN_ISA_AVX2) ? block((size_t)threads * floats * sizeof(float)) : NULL,
        floats};
}

/* The peak: independent fused multiply-adds and nothing else; by CPU time. */
static AVX2 void peak_avx2(void *arg, int64_t i, int thread)
{
    __m256 s[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    (void)thread;
    for (int k = 0; k < 12; k++) s[k] = _mm256_set1_ps((float)k);
    for (int n = 0; n < 1000000; n++) {
        UNROLL for (int k = 0; k < 12; k++) s[k] = _mm256_fmadd_ps(s[k], x, y);
        __asm__ volatile("" : "+x"(x));
    }
    for (int k = 1; k < 12; k++) s[0] = _mm256_add_ps(s[0], s[k]);
    ((float *)arg)[i] = _mm256_cvtss_f32(s[0]);
}

__attribute__((target("avx512f"))) static void peak_avx512(void *arg, int64_t i, int thread)
{
    __m512 s[12], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    (void)thread;
    for (int k = 0; k < 12; k++) s[k] = _mm512_set1_ps((float)k);
    for (int n = 0; n < 1000000; n++) {
        UNROLL for (int k = 0; k < 12; k++) s[k] = _mm512_fmadd_ps(s[k], x, y);
        __asm__ volatile("" : "+v"(x));
    }
    for (int k = 1; k < 12; k++) s[0] = _mm512_add_ps(s[0], s[k]);
    ((float *)arg)[i] = _mm512_cvtss_f32(s[0]);
}

static double peak(tn_pool *pool)
{
    const bool wide = tn_isa_usable(TN_ISA_AVX512);
    const int n = tn_pool_threads(pool);
    float *sink = block((size_t)n * sizeof *sink);
    double best = 1e30;
    if (!wide && !tn_isa_usable(TN_ISA_AVX2)) return 0;
    for (int rep = 0; rep < 8; rep++) {
        double t = now_cpu();
        tn_pool_run(pool, n, wide ? peak_avx512 : peak_avx2, sink);
        t = (now_cpu() - t) / n;
        best = t < best ? t : best;
    }
    free(sink);
    return 1e6 * 12 * 2 * (wide ? 16 : 8) * n / best;
}

#else
typedef struct port {
    run *r;
    float *scratch;
} port;
static port port_build(run *r, int threads)
{
    (void)threads;
    return (port){r, NULL};
}
static void port_fwd(void *arg, int64_t z, int thread)
{
    (void)arg, (void)z, (void)thread;
}
static void port_bwd(void *arg, int64_t z, int thread)
{
    (void)arg, (void)z, (void)thread;
}
static double peak(tn_pool *pool)
{
    (void)pool;
    return 0;
}
#endif

/* Best times of a variant: forward and backward, wall and CPU. */
typedef struct times {
    double wall[2], cpu[2];
} times;

static void take_turn(int variant, const tn_cpu *cpu, port *p, run *r, times *best)
{
    for (int k = 0; k < 2; k++) {
        double t = now(), c = now_cpu();
        if (variant == TN_N_ISA)
            tn_pool_run(cpu->pool, r->a.b * r->a.h, k ? port_bwd : port_fwd, p);
        else if (k) tn_attention_bwd(cpu, &r->a, r->d_o, r->dq, r->dk, r->d_v);
        else tn_attention_fwd(cpu, &r->a);
        t = now() - t, c = (now_cpu() - c) / tn_pool_threads(cpu->pool);
        best->wall[k] = fmin(best->wall[k], t);
        best->cpu[k] = fmin(best->cpu[k], c);
    }
}

static void print_variant(const char *name, double flops, double top, const times *t,
                          const times *base)
{
    printf("  %-9s", name);
    for (int k = 0; k < 2; k++) {
        double f = flops * (k ? 5 : 2);
        printf("%s %8.3f ms %6.1f GF/s (%3.0f %%) cpu %6.1f GF/s (%3.0f %%) x%.2f%s",
               k ? "backward" : " forward", t->wall[k] * 1e3, f / t->wall[k] / 1e9,
               100 * f / t->wall[k] / top, f / t->cpu[k] / 1e9, 100 * f / t->cpu[k] / top,
               base->cpu[k] / t->cpu[k], k ? "\n" : ", ");
    }
}

static void bench(const shape *x, tn_pool *pool, double seconds)
{
    const int threads = tn_pool_threads(pool);
    run r = run_build(x);
    port p = port_build(&r, threads);
    const double pairs = (double)(x->b * x->h) * (double)(x->s * (x->s + 1)) / 2, top = peak(pool);
    times best[TN_N_ISA + 1];
    for (int i = 0; i <= TN_N_ISA; i++) best[i] = (times){{1e30, 1e30}, {1e30, 1e30}};
    size_t fwd = tn_attention_scratch(threads, &r.a, false),
           bwd = tn_attention_scratch(threads, &r.a, true);
    void *scratch = block(fwd > bwd ? fwd : bwd);
    for (double start = now(); now() - start < seconds;)
        for (int i = TN_ISA_AVX2; i <= TN_N_ISA; i++) {
            if (i < TN_N_ISA ? !tn_isa_usable((tn_isa)i) : !p.scratch) continue;
            take_turn(i, &(tn_cpu){(tn_isa)(i % TN_N_ISA), pool, scratch, fwd > bwd ? fwd : bwd},
                      &p, &r, &best[i]);
        }
    printf("b %lld s %lld h %lld/%lld d %lld, %d threads, FMA peak %.0f GF/s, scratch %.1f + %.1f "
           "MiB\n",
           (long long)x->b, (long long)x->s, (long long)x->h, (long long)x->g, (long long)x->d,
           threads, top / 1e9, (double)fwd / 1048576, (double)bwd / 1048576);
    for (int i = TN_ISA_AVX2; i <= TN_N_ISA; i++)
        if (best[i].wall[0] < 1e29)
            print_variant(i < TN_N_ISA ? tn_isa_name((tn_isa)i) : "prototype",
                          2 * pairs * (double)x->d, top, &best[i], &best[TN_N_ISA]);
    free(scratch);
    free(p.scratch);
    run_free(&r);
}

int main(int argc, char **argv)
{
    static const shape shapes[] = {
        {8, 512, 8, 4, 32},   {4, 512, 12, 12, 64}, {16, 128, 4, 2, 32},
        {1, 2048, 8, 2, 128}, {1, 4096, 2, 1, 64},  {2, 256, 2, 1, 256},
    };
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    int threads = argc > 2 ? atoi(argv[2]) : tn_pool_cores();
    tn_pool *pool;
    if (threads < 1 || tn_pool_create(threads, &pool) != TN_OK) return 1;
    for (int i = 0; i < TN_COUNT(shapes); i++) bench(&shapes[i], pool, seconds);
    tn_pool_destroy(pool);
    return 0;
}
