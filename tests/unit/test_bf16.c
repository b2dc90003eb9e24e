/* test_bf16.c - kernels on bf16 memory: the bits of the fp32 kernel on widened operands, every
 * result rounded once. */
#include "kernels/cpu/cast.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rope.h"
#include "tests/attention.h"

static uint16_t rounded(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (f != f) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float widened(uint16_t h)
{
    float f;
    const uint32_t u = (uint32_t)h << 16;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---- memory of bf16, with guards */

enum { GUARD = 35 };

static uint16_t *halves(int64_t n)
{
    uint16_t *p = malloc(((size_t)n + 2 * GUARD) * sizeof *p);
    if (!p) exit(1);
    for (int64_t i = 0; i < n + 2 * GUARD; i++) p[i] = 0xa5a5;
    return p + GUARD;
}

static void halves_free(const uint16_t *p)
{
    if (p) free((void *)((uintptr_t)p - GUARD * sizeof *p));
}

/* x rounded, and x becomes what was rounded. */
static uint16_t *narrowed(float *x, int64_t n)
{
    uint16_t *p = halves(n);
    for (int64_t i = 0; i < n; i++) {
        p[i] = rounded(x[i]);
        x[i] = widened(p[i]);
    }
    return p;
}

static void check(const char *what, const tn_cpu *cpu, const uint16_t *got, const float *want,
                  int64_t n)
{
    int64_t i = 0;
    bool whole = true;
    while (i < n && got[i] == rounded(want[i])) i++;
    for (int64_t k = 0; k < GUARD; k++) whole &= got[-1 - k] == 0xa5a5 && got[n + k] == 0xa5a5;
    TN_CHECK_MSG(i == n && whole, "%s, %s, %d threads: element %lld of %lld is %a, rounded %a%s",
                 what, tn_isa_name(cpu->isa), tn_pool_threads(cpu->pool), (long long)i,
                 (long long)n, i < n ? (double)widened(got[i]) : 0,
                 i < n ? (double)widened(rounded(want[i])) : 0, whole ? "" : "; wrote outside");
}

static void check_f32(const char *what, const tn_cpu *cpu, const float *got, const float *want,
                      int64_t n)
{
    int64_t i = 0;
    while (i < n && !memcmp(got + i, want + i, sizeof *got)) i++;
    TN_CHECK_MSG(i == n && tn_test_intact(got, n), "%s, %s, %d threads: element %lld", what,
                 tn_isa_name(cpu->isa), tn_pool_threads(cpu->pool), (long long)i);
}

/* ---- casts */

static void test_casts(void)
{
    enum { N = 65536, MANY = 200000 };
    uint16_t *all = halves(N), *to = halves(MANY);
    float *from = tn_test_floats(MANY), *wide = tn_test_floats(N);
    uint64_t s = 3;
    for (int64_t i = 0; i < N; i++) all[i] = (uint16_t)i;
    for (int64_t i = 0; i < MANY; i++) { /* any bits; then halves, and one beside a half */
        uint32_t u = (uint32_t)tn_test_random(&s);
        if (i % 3 == 1) u = (u & 0xffff0000u) | 0x8000;
        if (i % 3 == 2) u = ((u & 0xffff0000u) | 0x8000) + (i & 1 ? 1 : -1u);
        memcpy(from + i, &u, sizeof u);
    }
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        tn_cast_run(&cpu, &(tn_cast_args){N, all, true, wide, false});
        bool same = true;
        for (int64_t k = 0; k < N; k++) {
            const float f = widened((uint16_t)k);
            same &= !memcmp(wide + k, &f, sizeof f);
        }
        TN_CHECK(same);
        tn_cast_run(&cpu, &(tn_cast_args){MANY, from, false, to, true});
        check("casts", &cpu, to, from, MANY);
        for (int64_t n = 0; n < 40; n++) { /* ends of every length */
            uint16_t *part = halves(n);
            float *back = tn_test_floats(n);
            tn_cast_block(cpu.isa, &(tn_cast_args){n, from + n, false, part, true});
            check("a short cast", &cpu, part, from + n, n);
            tn_cast_block(cpu.isa, &(tn_cast_args){n, all + 16000 + n, true, back, false});
            for (int64_t k = 0; k < n; k++) same &= back[k] == widened((uint16_t)(16000 + n + k));
            TN_CHECK(same && tn_test_intact(back, n));
            tn_cast_table(cpu.isa)->round(back, n);
            TN_CHECK(tn_test_intact(back, n));
            halves_free(part);
            tn_test_free(back);
        }
    }
    halves_free(all);
    halves_free(to);
    tn_test_free(from);
    tn_test_free(wide);
}

/* ---- products */

typedef enum kind { FORWARD, INPUT, WEIGHT } kind;

typedef struct product {
    kind kind;
    int64_t n, d, f[2]; /* tokens; features in and out of one or two weights */
    int n_f, parts;
    bool add, mixed; /* mixed: dy is fp32 */
} product;

static size_t gemm_scratch(int threads, const void *arg)
{
    return tn_gemm_scratch(threads, arg);
}

/* The product on fp32 (bf16 false) or bf16 memory. */
static tn_gemm describe(const product *p, bool bf16, const void *x, const void *const *w,
                        const void *const *dy, void *const *out, const void *add)
{
    tn_gemm g = {.n_out = p->kind == INPUT ? 1 : p->n_f, .n_src = p->kind == INPUT ? p->n_f : 1};
    const bool dy_bf16 = bf16 && !p->mixed;
    for (int i = 0; i < p->n_f; i++) {
        const int64_t f = p->f[i], d = p->d;
        if (p->kind == FORWARD) {
            g.src[i] = (tn_gemm_src){x, d, 1, w[i], 1, d, bf16, bf16};
            g.out[i] = (tn_gemm_out){
                .c = out[i], .ldc = f, .m = p->n, .n = f, .add = add, .ldadd = f, .c_bf16 = bf16};
        } else if (p->kind == INPUT) {
            g.src[i] = (tn_gemm_src){dy[i], f, 1, w[i], d, 1, dy_bf16, bf16};
            g.out[0] = (tn_gemm_out){.c = out[0], .ldc = d, .m = p->n, .n = d, .c_bf16 = bf16};
        } else {
            g.src[i] = (tn_gemm_src){dy[i], 1, f, x, d, 1, dy_bf16, bf16};
            g.out[i] = (tn_gemm_out){.ldc = d, .m = f, .n = d, .stack = {out[i]}};
        }
    }
    return g;
}

static int64_t out_size(const product *p, int i)
{
    return p->kind == FORWARD ? p->n * p->f[i] : p->kind == INPUT ? p->n * p->d : p->f[i] * p->d;
}

static tn_status order_of(const product *p, tn_arena *arena, tn_order_run *out)
{
    static const int64_t units[2];
    const tn_order_tokens *t;
    if (p->kind == FORWARD) return tn_order_param(arena, p->parts, 1, &p->d, units, out);
    if (p->kind == INPUT) return tn_order_param(arena, p->parts, p->n_f, p->f, units, out);
    TN_TRY(tn_order_tokens_build(arena, (tn_order_grid){8, 8, 8}, 2, p->n / 2, &t));
    return tn_order_tokens_run(t, arena, 0, tn_order_tokens_leaves(t), out);
}

static void test_product(const product *p, uint64_t seed)
{
    uint64_t s = seed;
    tn_arena arena = {0};
    tn_order_run order;
    float *x = tn_test_uniform(&s, p->n * p->d, 1), *w[2] = {NULL}, *dy[2] = {NULL},
          *add = p->add ? tn_test_uniform(&s, p->n * p->f[0], 3) : NULL, *want[2] = {NULL};
    const int n_out = p->kind == INPUT ? 1 : p->n_f;
    uint16_t *x16 = narrowed(x, p->n * p->d), *w16[2] = {NULL}, *dy16[2] = {NULL},
             *add16 = add ? narrowed(add, p->n * p->f[0]) : NULL;
    for (int i = 0; i < p->n_f; i++) {
        w[i] = tn_test_uniform(&s, p->f[i] * p->d, 1);
        w16[i] = narrowed(w[i], p->f[i] * p->d);
        dy[i] = tn_test_uniform(&s, p->n * p->f[i], 1);
        if (!p->mixed) dy16[i] = narrowed(dy[i], p->n * p->f[i]);
    }
    for (int i = 0; i < n_out; i++) want[i] = tn_test_floats(out_size(p, i));
    if (!TN_CHECK_OK(order_of(p, &arena, &order))) exit(1);
    tn_gemm plain = describe(p, false, x, (const void *const *)w, (const void *const *)dy,
                             (void *const *)want, NULL);
    plain.order = &order;
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, gemm_scratch, &plain, &cpu); i++) {
        tn_gemm_run(&cpu, &plain);
        void *got[2];
        for (int k = 0; k < n_out; k++) {
            if (p->kind == WEIGHT) got[k] = tn_test_floats(out_size(p, k));
            else got[k] = halves(out_size(p, k));
        }
        tn_gemm half =
            describe(p, true, x16, (const void *const *)w16,
                     p->mixed ? (const void *const *)dy : (const void *const *)dy16, got, add16);
        half.order = &order;
        void *mem = NULL;
        cpu.scratch_bytes = tn_gemm_scratch(tn_pool_threads(cpu.pool), &half);
        if (posix_memalign(&mem, 64, cpu.scratch_bytes + 64)) exit(1);
        cpu.scratch = mem;
        tn_gemm_run(&cpu, &half);
        free(mem);
        for (int64_t e = 0; add && e < out_size(p, 0); e++)
            want[0][e] = widened(rounded(want[0][e])) + add[e];
        for (int k = 0; k < n_out; k++) {
            if (p->kind == WEIGHT) {
                check_f32("a weight's gradient", &cpu, got[k], want[k], out_size(p, k));
                tn_test_free(got[k]);
            } else {
                check("a product", &cpu, got[k], want[k], out_size(p, k));
                halves_free(got[k]);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        tn_test_free(w[i]);
        tn_test_free(dy[i]);
        tn_test_free(want[i]);
        halves_free(w16[i]);
        halves_free(dy16[i]);
    }
    tn_test_free(x);
    tn_test_free(add);
    halves_free(x16);
    halves_free(add16);
    tn_arena_fini(&arena);
}

static void test_products(void)
{
    static const product cases[] = {
        {FORWARD, 1, 1, {1, 0}, 1, 1, false, false},
        {FORWARD, 37, 131, {67, 33}, 2, 8, false, false},
        {FORWARD, 40, 128, {64, 0}, 1, 8, true, false},
        {FORWARD, 19, 77, {35, 0}, 1, 1, true, false},
        {FORWARD, 17, 5000, {50, 0}, 1, 8, true, false}, /* several segments */
        {INPUT, 33, 47, {70, 21}, 2, 8, false, false},
        {INPUT, 20, 64, {2500, 2100}, 2, 8, false, false},
        {INPUT, 15, 33, {129, 0}, 1, 1, false, true}, /* of logits */
        {WEIGHT, 34, 45, {71, 0}, 1, 1, false, false},
        {WEIGHT, 66, 64, {96, 0}, 1, 1, false, true},
        {WEIGHT, 4800, 32, {48, 0}, 1, 1, false, false},
        {WEIGHT, 128, 40, {30, 33}, 2, 1, false, false},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) test_product(&cases[i], (uint64_t)i);
}

/* ---- attention */

static tn_attention with_halves(const tn_attention *a, const sample *x, uint16_t *const *h)
{
    tn_attention half = *a;
    (void)x;
    half.q = h[0], half.k = h[1], half.v = h[2];
    half.bf16 = true;
    return half;
}

static size_t both_scratch(int threads, const void *arg)
{
    tn_attention a = *(const tn_attention *)arg;
    size_t most = scratch(threads, &a);
    a.bf16 = true;
    return scratch(threads, &a) > most ? scratch(threads, &a) : most;
}

static void test_attention(const extents *e, uint64_t seed)
{
    sample x = sample_build(e, seed);
    const tn_attention *a = &x.a;
    const int64_t nq = a->b * a->s * a->h * a->d, nk = a->b * a->t * a->g * a->d,
                  nv = a->b * a->t * a->g * a->dv, no = a->b * a->s * a->h * a->dv,
                  nl = a->b * a->s * a->h;
    uint16_t *h[] = {narrowed(x.q, nq), narrowed(x.k, nk), narrowed(x.v, nv), narrowed(x.d_o, no)};
    float *o = NULL, *lse = tn_test_floats(nl);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, both_scratch, a, &cpu); i++) {
        bool slow = a->s * a->h * a->d > 40000,
             once = 1 + (a->s + a->d) % 3 != tn_pool_threads(cpu.pool);
        if (cpu.isa == TN_ISA_PORTABLE && (slow || once)) continue;
        tn_attention half = with_halves(a, &x, h), plain = *a;
        result r = result_build(a);
        uint16_t *o16 = halves(no), *dq = halves(nq), *dk = halves(nk), *d_v = halves(nv);
        plain.o = r.o, plain.lse = r.lse;
        half.o = o16, half.lse = lse;
        tn_attention_fwd(&cpu, &plain);
        tn_attention_fwd(&cpu, &half);
        check("attention's o", &cpu, o16, r.o, no);
        check_f32("attention's lse", &cpu, lse, r.lse, nl);
        o = r.o;
        for (int64_t k = 0; k < no; k++)
            o[k] = widened(o16[k]); /* backward reads what was stored */
        tn_attention_bwd(&cpu, &plain, x.d_o, r.dq, r.dk, r.d_v);
        tn_attention_bwd(&cpu, &half, h[3], dq, dk, d_v);
        check("attention's dq", &cpu, dq, r.dq, nq);
        check("attention's dk", &cpu, dk, r.dk, nk);
        check("attention's dv", &cpu, d_v, r.d_v, nv);
        float *wide_k = tn_test_floats(nk), *wide_v = tn_test_floats(nv);
        half.dkv_fp32 = true; /* parts of a sum */
        tn_attention_bwd(&cpu, &half, h[3], dq, wide_k, wide_v);
        check("attention's dq beside parts", &cpu, dq, r.dq, nq);
        check_f32("a part of dk", &cpu, wide_k, r.dk, nk);
        check_f32("a part of dv", &cpu, wide_v, r.d_v, nv);
        tn_test_free(wide_k);
        tn_test_free(wide_v);
        halves_free(o16);
        halves_free(dq);
        halves_free(dk);
        halves_free(d_v);
        result_free(&r);
    }
    tn_test_free(lse);
    for (int i = 0; i < TN_COUNT(h); i++) halves_free(h[i]);
    sample_free(&x);
}

static void test_attentions(void)
{
    static const extents cases[] = {
        {1, 1, 1, 1, 1, 1, 1, 0, 8, 8, true, 0, 0},
        {2, 70, 70, 6, 2, 20, 12, 0, 8, 8, true, 3, 0},
        {1, 130, 130, 2, 2, 32, 32, 17, 8, 8, true, 0, 0},
        {1, 33, 150, 2, 1, 32, 32, 0, 8, 8, true, 0, 117},
        {1, 700, 700, 2, 1, 128, 128, 0, 8, 8, true, 2, 0}, /* chunks of keys: dq is kept */
        {1, 400, 400, 6, 1, 256, 256, 300, 8, 8, true, 0, 0},
        {1, 520, 520, 10, 1, 256, 64, 0, 8, 8, true, 0, 0}, /* too much of it for one pass */
        {3, 520, 520, 3, 3, 128, 96, 0, 8, 8, true, 0, 0},  /* one pass makes all gradients */
        {1, 20, 140, 17, 1, 256, 256, 0, 8, 8, true, 0, 120},
        {1, 150, 40, 2, 1, 16, 16, 0, 8, 8, true, 2, 60},
        {2, 0, 70, 2, 1, 16, 16, 0, 8, 8, true, 0, 0},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) test_attention(&cases[i], (uint64_t)i);
}

/* ---- rows */

static void test_rope(int64_t tokens, int64_t heads, int64_t d, bool inverse)
{
    uint64_t s = (uint64_t)d;
    const int64_t n = tokens * heads * d;
    float *x = tn_test_uniform(&s, n, 2), *table = tn_test_floats(tokens * d);
    int32_t *at = ints(tokens);
    uint16_t *x16 = narrowed(x, n);
    for (int64_t i = 0; i < tokens; i++) at[i] = (int32_t)(tokens - 1 - i);
    tn_rope_table(tokens, d, 10000, NULL, table);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *y = tn_test_floats(n);
        uint16_t *y16 = halves(n);
        tn_rope_args a = {.tokens = tokens,
                          .heads = heads,
                          .d = d,
                          .x_stride = heads * d,
                          .y_stride = heads * d,
                          .x = x,
                          .table = table,
                          .positions = at,
                          .inverse = inverse,
                          .y = y};
        tn_rope_apply(&cpu, &a);
        a.x = x16, a.y = y16, a.bf16 = true;
        tn_rope_apply(&cpu, &a);
        check("rope", &cpu, y16, y, n);
        tn_test_free(y);
        halves_free(y16);
    }
    tn_test_free(x);
    tn_test_free(table);
    halves_free(x16);
    free(at);
}

/* Rows of a bf16 table as bf16, and as the fp32 of a vocabulary that ranks share. */
static void test_embedding(int64_t tokens, int64_t d)
{
    enum { VOCAB = 9, FIRST = 3 };
    uint64_t s = 5;
    float *table = tn_test_uniform(&s, VOCAB * d, 2);
    uint16_t *table16 = narrowed(table, VOCAB * d);
    int32_t *ids = ints(tokens);
    for (int64_t i = 0; i < tokens; i++) ids[i] = (int32_t)tn_test_below(&s, VOCAB + 2 * FIRST);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *y = tn_test_floats(tokens * d), *wide = tn_test_floats(tokens * d);
        uint16_t *y16 = halves(tokens * d);
        tn_embedding_args a = {.tokens = tokens,
                               .d = d,
                               .v_begin = FIRST,
                               .v_count = VOCAB,
                               .ids = ids,
                               .table = table,
                               .y = y};
        tn_embedding_forward(&cpu, &a);
        a.table = table16, a.table_bf16 = true, a.y = wide;
        tn_embedding_forward(&cpu, &a);
        check_f32("rows as fp32", &cpu, wide, y, tokens * d);
        a.y = y16, a.y_bf16 = true;
        tn_embedding_forward(&cpu, &a);
        check("rows", &cpu, y16, y, tokens * d);
        tn_test_free(y);
        tn_test_free(wide);
        halves_free(y16);
    }
    tn_test_free(table);
    halves_free(table16);
    free(ids);
}

int main(void)
{
    test_casts();
    test_products();
    test_attentions();
    test_rope(9, 3, 6, false);
    test_rope(70, 2, 64, true);
    test_embedding(40, 37);
    test_embedding(1, 1);
    return tn_test_done("bf16");
}
