/* test_bf16.c - kernels on bf16 memory: the bits of the fp32 kernel on widened operands, every
 * result rounded once. */
#include "kernels/cpu/cast.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/norm.h"
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

/* The operands in both formats, and room for the results in fp32. */
typedef struct operands {
    float *x, *w[2], *dy[2], *add, *want[2];
    uint16_t *x16, *w16[2], *dy16[2], *add16;
    int n_out;
} operands;

static operands operands_build(const product *p, uint64_t seed)
{
    uint64_t s = seed;
    operands o = {.n_out = p->kind == INPUT ? 1 : p->n_f};
    o.x = tn_test_uniform(&s, p->n * p->d, 1);
    o.x16 = narrowed(o.x, p->n * p->d);
    if (p->add) {
        o.add = tn_test_uniform(&s, p->n * p->f[0], 3);
        o.add16 = narrowed(o.add, p->n * p->f[0]);
    }
    for (int i = 0; i < p->n_f; i++) {
        o.w[i] = tn_test_uniform(&s, p->f[i] * p->d, 1);
        o.w16[i] = narrowed(o.w[i], p->f[i] * p->d);
        o.dy[i] = tn_test_uniform(&s, p->n * p->f[i], 1);
        if (!p->mixed) o.dy16[i] = narrowed(o.dy[i], p->n * p->f[i]);
    }
    for (int i = 0; i < o.n_out; i++) o.want[i] = tn_test_floats(out_size(p, i));
    return o;
}

static void operands_free(operands *o)
{
    for (int i = 0; i < 2; i++) {
        tn_test_free(o->w[i]);
        tn_test_free(o->dy[i]);
        tn_test_free(o->want[i]);
        halves_free(o->w16[i]);
        halves_free(o->dy16[i]);
    }
    tn_test_free(o->x);
    tn_test_free(o->add);
    halves_free(o->x16);
    halves_free(o->add16);
}

static tn_gemm plain_gemm(const product *p, const operands *o, const tn_order_run *order)
{
    tn_gemm g = describe(p, false, o->x, (const void *const *)o->w, (const void *const *)o->dy,
                         (void *const *)o->want, NULL);
    g.order = order;
    return g;
}

/* Runs it on bf16 into `got`, with scratch of its own. */
static void run_halves(const tn_cpu *cpu, const product *p, const operands *o, void *const *got,
                       const tn_order_run *order, bool pairs)
{
    tn_cpu own = *cpu;
    void *mem = NULL;
    tn_gemm g = describe(p, true, o->x16, (const void *const *)o->w16,
                         p->mixed ? (const void *const *)o->dy : (const void *const *)o->dy16, got,
                         o->add16);
    g.order = order;
    g.pairs = pairs;
    own.scratch_bytes = tn_gemm_scratch(tn_pool_threads(cpu->pool), &g);
    if (posix_memalign(&mem, 64, own.scratch_bytes + 64)) exit(1);
    own.scratch = mem;
    tn_gemm_run(&own, &g);
    free(mem);
}

static void *room(const product *p, int i)
{
    return p->kind == WEIGHT ? (void *)tn_test_floats(out_size(p, i))
                             : (void *)halves(out_size(p, i));
}

static void room_free(const product *p, void *x)
{
    if (p->kind == WEIGHT) tn_test_free(x);
    else halves_free(x);
}

static void test_product(const product *p, uint64_t seed)
{
    tn_arena arena = {0};
    tn_order_run order;
    operands o = operands_build(p, seed);
    if (!TN_CHECK_OK(order_of(p, &arena, &order))) exit(1);
    tn_gemm plain = plain_gemm(p, &o, &order);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, gemm_scratch, &plain, &cpu); i++) {
        void *got[2] = {NULL};
        tn_gemm_run(&cpu, &plain);
        for (int k = 0; k < o.n_out; k++) got[k] = room(p, k);
        run_halves(&cpu, p, &o, got, &order, false);
        for (int64_t e = 0; o.add && e < out_size(p, 0); e++)
            o.want[0][e] = widened(rounded(o.want[0][e])) + o.add[e];
        for (int k = 0; k < o.n_out; k++) {
            if (p->kind == WEIGHT)
                check_f32("a weight's gradient", &cpu, got[k], o.want[k], out_size(p, k));
            else check("a product", &cpu, got[k], o.want[k], out_size(p, k));
            room_free(p, got[k]);
        }
    }
    operands_free(&o);
    tn_arena_fini(&arena);
}

/* Two k at a time: near the sum in order. A weight's gradient goes on with what it holds: with the
 * result once more, twice of it. */
static void test_pairs(const product *p, uint64_t seed)
{
    tn_arena arena = {0};
    tn_order_run order;
    operands o = operands_build(p, seed);
    if (!TN_CHECK_OK(order_of(p, &arena, &order))) exit(1);
    tn_gemm plain = plain_gemm(p, &o, &order);
    tn_order_ins ins[3] = {{TN_ORDER_LEAF, 0, 0, 0, 0}};
    tn_order_run halved = {ins, plain.n_src, 0, 1};
    int64_t k = p->kind == FORWARD ? p->d : p->n;
    for (int i = 0; i < plain.n_src; i++)
        ins[i] = (tn_order_ins){TN_ORDER_LEAF, i + 1 < plain.n_src, (int16_t)i, 0,
                                (p->kind == INPUT ? p->f[i] : k) / 2};
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, gemm_scratch, &plain, &cpu); i++) {
        void *got[2] = {NULL};
        if (!tn_isa_pairs(cpu.isa)) continue;
        tn_gemm_run(&cpu, &plain);
        for (int e = 0; e < o.n_out; e++) got[e] = room(p, e);
        halved.n = plain.n_src, halved.depth_in = 0;
        run_halves(&cpu, p, &o, got, &halved, true);
        if (p->kind == WEIGHT) {
            ins[1] = (tn_order_ins){TN_ORDER_ADD, 0, 0, 0, 0};
            halved.n = 2, halved.depth_in = 1;
            run_halves(&cpu, p, &o, got, &halved, true);
        }
        for (int e = 0; e < o.n_out; e++) {
            const int64_t n = out_size(p, e);
            const float times = p->kind == WEIGHT ? 2 : 1;
            bool near = true;
            for (int64_t j = 0; j < n; j++) {
                float want = times * o.want[e][j] + (o.add ? o.add[j] : 0),
                      x = p->kind == WEIGHT ? ((float *)got[e])[j]
                                            : widened(((uint16_t *)got[e])[j]);
                float slack = p->kind == WEIGHT ? 0 : (fabsf(want) + 4 * (float)p->add) / 128;
                near &= fabsf(x - want) <= 1e-4f + 1e-7f * (float)k + slack;
            }
            TN_CHECK_MSG(near, "pairs: result %d is far from the sum in order", e);
            room_free(p, got[e]);
        }
    }
    operands_free(&o);
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
    static const product even[] = {
        {FORWARD, 37, 130, {67, 33}, 2, 1, false, false},
        {FORWARD, 1, 2, {1, 0}, 1, 1, false, false},
        {FORWARD, 19, 78, {35, 0}, 1, 1, true, false},
        {INPUT, 33, 47, {70, 22}, 2, 1, false, false},
        {INPUT, 20, 64, {2500, 2100}, 2, 1, false, false},
        {WEIGHT, 34, 45, {71, 0}, 1, 1, false, false},
        {WEIGHT, 4800, 33, {48, 0}, 1, 1, false, false},
        {WEIGHT, 128, 40, {30, 33}, 2, 1, false, false},
    };
    for (int i = 0; i < TN_COUNT(cases); i++) test_product(&cases[i], (uint64_t)i);
    for (int i = 0; i < TN_COUNT(even); i++) test_pairs(&even[i], (uint64_t)i);
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

/* The norm rounds once more inside: x r where it meets the gain, dx where the residual's gradient
 * is added. */
static void test_norm(int64_t rows, int64_t d)
{
    uint64_t s = (uint64_t)d;
    const int64_t n = rows * d;
    float *x = tn_test_uniform(&s, n, 2), *w = tn_test_uniform(&s, d, 2),
          *dy = tn_test_uniform(&s, n, 1), *more = tn_test_uniform(&s, n, 3);
    uint16_t *x16 = narrowed(x, n), *w16 = narrowed(w, d), *dy16 = narrowed(dy, n),
             *more16 = narrowed(more, n);
    const tn_order_ins leaf = {TN_ORDER_LEAF, 0, 0, 0, rows};
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *want = tn_test_floats(n), *r = tn_test_floats(rows), *r16 = tn_test_floats(rows),
              *gain = tn_test_floats(d), *sum = tn_test_floats(d);
        uint16_t *y = halves(n), *dx = halves(n);
        tn_norm_forward(&cpu,
                        &(tn_norm_forward_args){rows, d, 1e-5f, x, NULL, w, NULL, want, r, false});
        tn_norm_forward(
            &cpu, &(tn_norm_forward_args){rows, d, 1e-5f, x16, NULL, w16, NULL, y, r16, true});
        for (int64_t k = 0; k < n; k++) want[k] = widened(rounded(x[k] * r[k / d])) * w[k % d];
        check_f32("the norm's r", &cpu, r16, r, rows);
        check("the norm", &cpu, y, want, n);

        tn_norm_backward(&cpu, &(tn_norm_backward_args){rows, d, x, r, w, dy, NULL, want, false});
        tn_norm_backward(&cpu,
                         &(tn_norm_backward_args){rows, d, x16, r, w16, dy16, NULL, dx, true});
        check("the norm's gradient", &cpu, dx, want, n);
        tn_norm_backward(&cpu,
                         &(tn_norm_backward_args){rows, d, x16, r, w16, dy16, more16, dx, true});
        for (int64_t k = 0; k < n; k++) want[k] = more[k] + widened(rounded(want[k]));
        check("the norm's gradient and the residual's", &cpu, dx, want, n);

        for (int64_t c = 0; c < d; c++) {
            sum[c] = 0;
            for (int64_t k = c; k < n; k += d)
                sum[c] = fmaf(dy[k], widened(rounded(x[k] * r[k / d])), sum[c]);
            sum[c] = sum[c] + 0.0f;
        }
        tn_norm_gain(&cpu, &(tn_norm_gain_args){d, x16, r, dy16, {&leaf, 1, 0, 1}, {gain}, true});
        check_f32("the gain's gradient", &cpu, gain, sum, d);
        float *const mine[] = {want, r, r16, gain, sum};
        for (int k = 0; k < TN_COUNT(mine); k++) tn_test_free(mine[k]);
        halves_free(y);
        halves_free(dx);
    }
    const float *const mine[] = {x, w, dy, more};
    const uint16_t *const theirs[] = {x16, w16, dy16, more16};
    for (int k = 0; k < 4; k++) {
        tn_test_free(mine[k]);
        halves_free(theirs[k]);
    }
}

int main(void)
{
    test_casts();
    test_products();
    test_attentions();
    test_rope(9, 3, 6, false);
    test_rope(70, 2, 64, true);
    test_norm(1, 1);
    test_norm(9, 37);
    test_norm(70, 512);
    test_embedding(40, 37);
    test_embedding(1, 1);
    return tn_test_done("bf16");
}
