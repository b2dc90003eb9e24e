/* guarded.c - running a graph as training does, with poison in and around every buffer.
 *
 * The program is the real one; before it is bound its buffers are moved apart, so that between any
 * two of them lies poison (and behind every buffer's last byte, which packing rounds up). Under the
 * address sanitizer the gaps cannot even be read. The device is the CPU's, but its memory is poison
 * where a real one is zero: nothing may count on that. */
#include "engine/exec.h"
#include "tests/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 192, MAX_BLOCKS = 8 };
static const uint32_t poison = 0x7fe0dead; /* a NaN that nobody computes */

#if defined(__SANITIZE_ADDRESS__)
void __asan_poison_memory_region(const volatile void *p, size_t n);
void __asan_unpoison_memory_region(const volatile void *p, size_t n);
static const bool watched = true;
#else
static void __asan_poison_memory_region(const volatile void *p, size_t n)
{
    (void)p, (void)n;
}
static void __asan_unpoison_memory_region(const volatile void *p, size_t n)
{
    (void)p, (void)n;
}
static const bool watched = false;
#endif

/* ---- a device whose memory is poison */

typedef struct device {
    tn_device d; /* first: the engine sees only this */
    int n_blocks;
    unsigned char *block[MAX_BLOCKS]; /* with a guard on both sides */
    int64_t bytes[MAX_BLOCKS];
} device;

static void poison_words(unsigned char *p, int64_t n)
{
    for (int64_t i = 0; i + 4 <= n; i += 4) memcpy(p + i, &poison, 4);
}

static bool is_poison(const unsigned char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (p[i] != ((const unsigned char *)&poison)[(uintptr_t)(p + i) & 3]) return false;
    return true;
}

static tn_status device_alloc(tn_device *d, int64_t bytes, void **out)
{
    device *q = (device *)d;
    int64_t all = (bytes + 63) / 64 * 64 + 2 * GUARD;
    unsigned char *p = aligned_alloc(64, (size_t)all);
    if (!p || q->n_blocks == MAX_BLOCKS) exit(1);
    poison_words(p, all);
    q->block[q->n_blocks] = p;
    q->bytes[q->n_blocks++] = bytes;
    __asan_poison_memory_region(p, GUARD);
    __asan_poison_memory_region(p + GUARD + bytes, (size_t)(all - GUARD - bytes));
    *out = p + GUARD;
    return TN_OK;
}

/* Blocks are looked at when the executor is gone, then given back. */
static void device_free(tn_device *d, void *p, int64_t bytes)
{
    (void)d, (void)p, (void)bytes;
}

static void device_destroy(tn_device *d)
{
    (void)d;
}

static const tn_device_ops device_ops = {"cpu", device_alloc, device_free, tn_cpu_kernel,
                                         device_destroy};

static void device_check(device *q, const char *name)
{
    for (int i = 0; i < q->n_blocks; i++) {
        unsigned char *end = q->block[i] + GUARD + q->bytes[i];
        __asan_unpoison_memory_region(q->block[i], (size_t)(GUARD + q->bytes[i] + GUARD));
        tn_ops_check(is_poison(q->block[i], GUARD) && is_poison(end, GUARD),
                     "%s: wrote outside of the memory of a region or of scratch", name);
        free(q->block[i]);
    }
    q->n_blocks = 0;
}

/* ---- buffers apart */

typedef struct map { /* which bytes of a region belong to values */
    unsigned char *used[TN_N_REGIONS];
    int64_t bytes[TN_N_REGIONS];
} map;

static int64_t value_bytes(const tn_value *v)
{
    return tn_value_elements(v) * tn_dtype_bytes((tn_dtype)v->dtype);
}

static void spread(tn_program *p)
{
    int64_t cursor[TN_N_REGIONS] = {GUARD, GUARD, GUARD};
    for (int64_t i = 0; i < p->n_buffers; i++) {
        tn_buffer *b = &p->buffers[i];
        b->offset = cursor[b->region];
        cursor[b->region] += b->bytes + GUARD;
    }
    for (int64_t v = 0; v < p->g->n_values; v++)
        p->places[v].offset = p->buffers[p->places[v].buffer].offset;
    for (int r = 0; r < TN_N_REGIONS; r++) p->region_bytes[r] = cursor[r];
}

static map map_build(const tn_program *p)
{
    map m;
    for (int r = 0; r < TN_N_REGIONS; r++) {
        m.bytes[r] = p->region_bytes[r];
        m.used[r] = calloc((size_t)m.bytes[r], 1);
        if (!m.used[r]) exit(1);
    }
    for (int64_t v = 0; v < p->g->n_values; v++) {
        const tn_value *x = &p->g->values[v];
        const tn_place *at = &p->places[v];
        if (at->microbatch_stride || at->chunk_stride)
            continue; /* a piece: the whole is a value of its own */
        for (int level = 0; level < (x->levels > 1 ? x->levels : 1); level++)
            memset(m.used[at->region] + at->offset + level * at->level_bytes, 1,
                   (size_t)value_bytes(x));
    }
    return m;
}

/* f over the runs of bytes that belong to nothing. */
static void gaps(const map *m, void *const base[TN_N_REGIONS],
                 void (*f)(void *user, unsigned char *p, int64_t n), void *user)
{
    for (int r = 0; r < TN_N_REGIONS; r++)
        for (int64_t i = 0, end; i < m->bytes[r]; i = end) {
            for (end = i; end < m->bytes[r] && m->used[r][end] == m->used[r][i]; end++) continue;
            if (!m->used[r][i]) f(user, (unsigned char *)base[r] + i, end - i);
        }
}

static void gap_close(void *user, unsigned char *p, int64_t n)
{
    (void)user;
    __asan_poison_memory_region(p, (size_t)n);
}

static void gap_check(void *user, unsigned char *p, int64_t n)
{
    __asan_unpoison_memory_region(p, (size_t)n);
    tn_ops_check(is_poison(p, n), "%s: wrote between the buffers", (const char *)user);
}

/* ---- one run */

static bool updated(const tn_program *p, int32_t leaf)
{
    for (int64_t i = 0; i < p->g->n_nodes; i++) {
        const tn_node *n = &p->g->nodes[i];
        for (int o = 0; o < n->n_out && tn_op_get((tn_op_id)n->op)->reuse_must; o++)
            if (p->places[n->out0 + o].buffer == p->places[leaf].buffer) return true;
    }
    return false;
}

/* x, which the dtype holds exactly. */
static void element_bytes(double x, int dtype, unsigned char out[4])
{
    float f = (float)x;
    int32_t n = (int32_t)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    const uint16_t upper = (uint16_t)(u >> 16);
    memcpy(out, dtype == TN_I32 ? (const void *)&n : (const void *)&f, 4);
    if (dtype == TN_BF16) memcpy(out, &upper, sizeof upper);
}

/* put: writes the leaves; else compares. */
static void leaves(const tn_ops *t, const tn_exec *e, bool put, const char *name)
{
    for (int i = 0; i < t->n_leaves; i++) {
        char leaf[16];
        const tn_value *v;
        snprintf(leaf, sizeof leaf, "leaf%d", i);
        unsigned char *p = tn_exec_named(e, leaf, &v);
        if (!p) continue; /* nothing reads it any more */
        bool same = true;
        const size_t size = (size_t)tn_dtype_bytes((tn_dtype)v->dtype);
        for (int64_t k = 0; k < tn_value_elements(v); k++) {
            unsigned char want[4];
            element_bytes(t->content[i][k], v->dtype, want);
            if (put) memcpy(p + (int64_t)size * k, want, size);
            else same &= !memcmp(p + (int64_t)size * k, want, size);
        }
        int32_t value = tn_ops_name_leaf(tn_exec_program(e)->g, leaf);
        if (!put && !updated(tn_exec_program(e), value))
            tn_ops_check(same, "%s: operand %s was written to", name, leaf);
    }
}

static void take(const tn_exec *e, const tn_ops_run *r, const char *name, tn_ops_results *out)
{
    const tn_graph *g = tn_exec_program(e)->g;
    for (int k = 0; k < r->n_keep; k++) {
        const tn_value *v = &g->values[r->keep[k]];
        const unsigned char *p = tn_exec_value(e, r->keep[k]);
        int64_t n = value_bytes(v), size = tn_dtype_bytes((tn_dtype)v->dtype);
        bool floats = v->dtype == TN_F32 || v->dtype == TN_BF16;
        for (int64_t i = 0; floats && i < n; i += size)
            if (is_poison(p + i, size)) {
                tn_ops_check(false, "%s: result %d: element %lld was not written", name, k,
                             (long long)(i / size));
                break;
            }
        if (!out->bytes[k]) {
            out->bytes[k] = malloc((size_t)n);
            if (!out->bytes[k]) exit(1);
            memcpy(out->bytes[k], p, (size_t)n);
            out->n_bytes[k] = n;
            continue;
        }
        int64_t i = 0;
        while (i < n && p[i] == out->bytes[k][i]) i++;
        tn_ops_check(i == n, "%s: result %d: byte %lld differs from the first run", name, k,
                     (long long)i);
    }
    out->n = r->n_keep;
}

static bool run_once(const tn_ops *t, const tn_ops_run *r, const tn_program *p, const map *m,
                     tn_cpu cpu, tn_ops_results *out)
{
    char name[160];
    device d = {.d = {&device_ops, cpu}};
    tn_memory *memory = NULL;
    tn_exec *e = NULL;
    snprintf(name, sizeof name, "%s, %s, %d threads", r->name, tn_isa_name(cpu.isa),
             tn_pool_threads(cpu.pool));
    bool ok = tn_ops_ok(tn_memory_create(&d.d, NULL, 0, &p, 1, &memory), name) &&
              tn_ops_ok(tn_exec_create(memory, p, &e), name);
    if (ok) {
        leaves(t, e, true, name);
        if (watched) gaps(m, memory->base, gap_close, NULL);
        tn_ops_ok(tn_exec_run(e, TN_EXEC_ALL, &t->step), name);
        gaps(m, memory->base, gap_check, name);
        leaves(t, e, false, name);
        take(e, r, name, out);
    }
    tn_exec_destroy(e);
    tn_memory_destroy(memory);
    device_check(&d, name);
    return ok;
}

static tn_pool *pools[2];

void tn_ops_end(void)
{
    for (int i = 0; i < TN_COUNT(pools); i++) tn_pool_destroy(pools[i]);
}

bool tn_ops_run_everywhere(const tn_ops *t, const tn_ops_run *r, tn_ops_results *out)
{
    tn_program *p = NULL;
    bool ok = true;
    *out = (tn_ops_results){0};
    if (!tn_ops_ok(tn_program_build(r->g, NULL, 0, r->n_keep, r->keep, &p), r->name)) return false;
    for (int o = 0; r->watch >= 0 && o < p->g->nodes[r->watch].n_out; o++) {
        const tn_node *n = &p->g->nodes[r->watch];
        int k = o < 4 ? tn_op_get((tn_op_id)n->op)->reuse[o] - 1 : -1;
        if (k >= 0 && k < n->n_in)
            out->took_over |=
                p->places[n->out0 + o].buffer == p->places[tn_node_in(p->g, n, k)].buffer;
    }
    ok = tn_ops_ok(tn_program_verify(p), r->name);
    spread(p);
    map m = map_build(p);
    for (int isa = 0; isa < TN_N_ISA && ok; isa++)
        for (int i = 0; i < TN_COUNT(pools) && ok && tn_isa_usable((tn_isa)isa); i++) {
            if (!pools[i]) ok = tn_ops_ok(tn_pool_create(i + 1, &pools[i]), "pool");
            if (ok) ok = run_once(t, r, p, &m, (tn_cpu){.isa = (tn_isa)isa, .pool = pools[i]}, out);
        }
    for (int i = 0; i < TN_N_REGIONS; i++) free(m.used[i]);
    tn_program_destroy(p);
    return ok;
}

bool tn_ops_same(const tn_ops_results *a, const tn_ops_results *b)
{
    bool same = a->n == b->n && a->n > 0;
    for (int i = 0; same && i < a->n; i++)
        same = a->n_bytes[i] == b->n_bytes[i] &&
               !memcmp(a->bytes[i], b->bytes[i], (size_t)a->n_bytes[i]);
    return same;
}

void tn_ops_results_free(tn_ops_results *r)
{
    for (int i = 0; i < r->n; i++) free(r->bytes[i]);
    *r = (tn_ops_results){0};
}
