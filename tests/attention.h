/* attention.h - what the tests of attention share: samples (random operands, packed documents,
 * offsets), running the kernel with scratch that is checked for overruns. */
#ifndef TN_TESTS_ATTENTION_H
#define TN_TESTS_ATTENTION_H
#include "kernels/cpu/attention.h"
#include "tests/cpu.h"

typedef struct extents {
    int64_t b, s, t, h, g, d, dv, window, seq_parts, head_parts;
    bool causal;
    int64_t documents; /* per row, of uneven lengths; 0: one */
    int64_t offset;    /* position of the first query */
} extents;

typedef struct sample {
    tn_attention a;
    float *q, *k, *v, *d_o;
    int32_t *q_pos, *q_doc, *k_pos, *k_doc;
} sample;

typedef struct result {
    float *o, *lse, *dq, *dk, *d_v;
} result;

TN_UNUSED static int32_t *ints(int64_t n)
{
    int32_t *p = malloc((size_t)(n + 1) * sizeof *p);
    if (!p) exit(1);
    return p;
}

/* Documents of a row: lengths from 1 on, positions of keys from 0 in each; a query at i + offset is
 * what the key there is. */
TN_UNUSED static void place(const extents *e, int64_t row, uint64_t *state, sample *out)
{
    int64_t all = e->t > e->s + e->offset ? e->t : e->s + e->offset;
    int32_t *pos = ints(all), *doc = ints(all);
    int64_t start = 0, id = row * 100 + 7;
    for (int64_t i = 0; i < all; i++) {
        if (e->documents && i > start && tn_test_below(state, all / e->documents + 1) == 0) {
            start = i;
            id += 3;
        }
        pos[i] = (int32_t)(i - start);
        doc[i] = (int32_t)id;
    }
    memcpy(out->k_pos + row * e->t, pos, (size_t)e->t * sizeof *pos);
    memcpy(out->k_doc + row * e->t, doc, (size_t)e->t * sizeof *doc);
    memcpy(out->q_pos + row * e->s, pos + e->offset, (size_t)e->s * sizeof *pos);
    memcpy(out->q_doc + row * e->s, doc + e->offset, (size_t)e->s * sizeof *doc);
    free(pos);
    free(doc);
}

TN_UNUSED static sample sample_build(const extents *e, uint64_t seed)
{
    uint64_t s = seed;
    sample x = {.a = {.b = e->b,
                      .s = e->s,
                      .t = e->t,
                      .h = e->h,
                      .g = e->g,
                      .d = e->d,
                      .dv = e->dv,
                      .causal = e->causal,
                      .scale = 1.0f / sqrtf((float)e->d),
                      .window = e->window,
                      .seq_parts = e->seq_parts,
                      .head_parts = e->head_parts,
                      .units = e->h}};
    x.a.q = x.q = tn_test_uniform(&s, e->b * e->s * e->h * e->d, 2.5f);
    x.a.k = x.k = tn_test_uniform(&s, e->b * e->t * e->g * e->d, 2);
    x.a.v = x.v = tn_test_uniform(&s, e->b * e->t * e->g * e->dv, 1);
    x.d_o = tn_test_uniform(&s, e->b * e->s * e->h * e->dv, 1);
    x.a.q_pos = x.q_pos = ints(e->b * e->s), x.a.q_doc = x.q_doc = ints(e->b * e->s);
    x.a.k_pos = x.k_pos = ints(e->b * e->t), x.a.k_doc = x.k_doc = ints(e->b * e->t);
    for (int64_t row = 0; row < e->b; row++) place(e, row, &s, &x);
    return x;
}

TN_UNUSED static void sample_free(sample *x)
{
    const float *mine[] = {x->q, x->k, x->v, x->d_o};
    int32_t *ids[] = {x->q_pos, x->q_doc, x->k_pos, x->k_doc};
    for (int i = 0; i < 4; i++) {
        tn_test_free(mine[i]);
        free(ids[i]);
    }
}

TN_UNUSED static result result_build(const tn_attention *a)
{
    return (result){tn_test_floats(a->b * a->s * a->h * a->dv), tn_test_floats(a->b * a->s * a->h),
                    tn_test_floats(a->b * a->s * a->h * a->d),
                    tn_test_floats(a->b * a->t * a->g * a->d),
                    tn_test_floats(a->b * a->t * a->g * a->dv)};
}

TN_UNUSED static void result_free(result *r)
{
    const float *mine[] = {r->o, r->lse, r->dq, r->dk, r->d_v};
    for (int i = 0; i < 5; i++) tn_test_free(mine[i]);
}

/* Running the kernel. */

enum { GUARD_BYTES = 256 };

TN_UNUSED static size_t scratch(int threads, const void *arg)
{
    size_t fwd = tn_attention_scratch(threads, arg, false),
           bwd = tn_attention_scratch(threads, arg, true);
    return (fwd > bwd ? fwd : bwd) + GUARD_BYTES;
}

TN_UNUSED static void run(const tn_cpu *cpu, const tn_attention *a, const float *d_o, result *r)
{
    tn_attention own = *a;
    own.o = r->o;
    own.lse = r->lse;
    tn_cpu exact = *cpu;
    for (int backward = 0; backward < 2; backward++) {
        exact.scratch_bytes = tn_attention_scratch(tn_pool_threads(cpu->pool), a, backward);
        if (backward) tn_attention_bwd(&exact, &own, d_o, r->dq, r->dk, r->d_v);
        else tn_attention_fwd(&exact, &own);
        const unsigned char *end =
            (const unsigned char *)cpu->scratch + cpu->scratch_bytes - GUARD_BYTES;
        for (int i = 0; i < GUARD_BYTES; i++)
            if (!TN_CHECK_MSG(end[i] == 0xa5, "scratch overrun")) return;
    }
}

/* One thread, the best instruction set; own scratch. */
TN_UNUSED static result run_alone(const tn_attention *a, const float *d_o)
{
    tn_cpu cpu = {.isa = tn_isa_best()};
    result r = result_build(a);
    if (!TN_CHECK_OK(tn_pool_create(1, &cpu.pool))) exit(1);
    cpu.scratch_bytes = scratch(1, a);
    cpu.scratch = aligned_alloc(64, (cpu.scratch_bytes + 63) / 64 * 64);
    if (!cpu.scratch) exit(1);
    memset(cpu.scratch, 0xa5, cpu.scratch_bytes);
    run(&cpu, a, d_o, &r);
    free(cpu.scratch);
    tn_pool_destroy(cpu.pool);
    return r;
}

/* On every instruction set with 1, 2 and 3 threads (the portable one, which is slow, with one of
 * these in turn): the same bits, returned once. */
TN_UNUSED static result run_everywhere(const char *name, const tn_attention *a, const float *d_o)
{
    const int64_t n[] = {a->b * a->s * a->h * a->dv, a->b * a->s * a->h, a->b * a->s * a->h * a->d,
                         a->b * a->t * a->g * a->d, a->b * a->t * a->g * a->dv};
    float *first[5] = {0};
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, scratch, a, &cpu); i++) {
        if (cpu.isa == TN_ISA_PORTABLE && tn_pool_threads(cpu.pool) != 1 + (a->s + a->d) % 3)
            continue;
        result r = result_build(a);
        run(&cpu, a, d_o, &r);
        const float *all[] = {r.o, r.lse, r.dq, r.dk, r.d_v};
        for (int k = 0; k < 5; k++) tn_test_same(name, &cpu, all[k], n[k], &first[k]);
        result_free(&r);
    }
    return (result){first[0], first[1], first[2], first[3], first[4]};
}

TN_UNUSED static bool same(const float *x, const float *y, int64_t n)
{
    return memcmp(x, y, (size_t)n * sizeof *x) == 0;
}

#endif
