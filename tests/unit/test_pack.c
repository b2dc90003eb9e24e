/* test_pack.c - offsets for buffers: the bound against a plain count, no two live buffers in one
 * place, odd instances, and how near the bound a training step, a pipeline stage and random
 * instances come. */
#include "graph/pack.h"
#include "tests/test.h"

#include <stdlib.h>

static uint64_t seed = 1;

static int64_t random_below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* The bound by its definition: at every start, the sum of what is live. */
static int64_t plain_bound(const tn_pack_item *x, int64_t n, int64_t *tick)
{
    int64_t most = 0;
    *tick = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t live = 0;
        for (int64_t k = 0; k < n; k++)
            if (x[k].start <= x[i].start && x[i].start < x[k].end) live += x[k].bytes;
        if (live > most || (live == most && live && x[i].start < *tick)) {
            most = live;
            *tick = x[i].start;
        }
    }
    return most;
}

static bool disjoint(const tn_pack_item *a, const tn_pack_item *b)
{
    bool together =
        a->start < b->end && b->start < a->end && a->end > a->start && b->end > b->start;
    return !together || a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
}

/* Packs, checks everything that must hold, and returns arena / bound. */
static double pack(const char *what, tn_pack_item *x, int64_t n)
{
    tn_pack_result r;
    int64_t tick, top = 0;
    if (!TN_CHECK_OK(tn_pack(x, n, &r))) return 0;
    int64_t bound = plain_bound(x, n, &tick);
    TN_CHECK_MSG(r.bound == bound, "%s: bound %lld, counted %lld", what, (long long)r.bound,
                 (long long)bound);
    TN_CHECK_MSG(!bound || r.peak_tick == tick, "%s: peak at %lld, counted %lld", what,
                 (long long)r.peak_tick, (long long)tick);
    int64_t bad = -1;
    for (int64_t i = 0; i < n; i++) {
        if (x[i].end > x[i].start && x[i].offset + x[i].bytes > top) top = x[i].offset + x[i].bytes;
        if (x[i].offset < 0 || x[i].offset % TN_PACK_ALIGN) bad = i;
        for (int64_t k = 0; k < i; k++)
            if (!disjoint(&x[i], &x[k])) bad = i;
    }
    TN_CHECK_MSG(bad < 0, "%s: item %lld overlaps another or lies crooked", what, (long long)bad);
    TN_CHECK_MSG(r.peak == top, "%s: peak %lld, the highest end is %lld", what, (long long)r.peak,
                 (long long)top);
    TN_CHECK(r.order && r.order[0]);
    return bound ? (double)r.peak / (double)bound : 1;
}

static void odd_ones(void)
{
    tn_pack_item none[1], zero[3] = {{0, 4, 0, -1}, {1, 2, 0, -1}, {2, 9, 0, -1}};
    tn_pack_item one[1] = {{7, 8, 640, -1}},
                 empty[3] = {{3, 3, 6400, -1}, {2, 5, 64, -1}, {5, 5, 640, -1}};
    tn_pack_item far[3] = {
        {0, INT64_MAX, 64, 0}, {INT64_MAX - 2, INT64_MAX - 1, 128, 0}, {1, 2, 128, 0}};
    tn_pack_item below[3] = {{-100, -50, 64, 0}, {-60, 10, 128, 0}, {5, 20, 192, 0}};
    tn_pack_item same[40];
    TN_CHECK(pack("no items", none, 0) == 1);
    TN_CHECK(pack("items without bytes", zero, 3) == 1);
    TN_CHECK(pack("one item", one, 1) == 1);
    TN_CHECK(pack("items that never live", empty, 3) == 1);
    TN_CHECK(pack("ticks far away", far, 3) == 1);
    TN_CHECK(pack("negative ticks", below, 3) == 1);
    for (int i = 0; i < 40; i++) same[i] = (tn_pack_item){3, 4, 64 * (i % 7), 0};
    TN_CHECK(pack("all at one time", same, 40) == 1);
    for (int i = 0; i < 40; i++) same[i] = (tn_pack_item){i, i + 1, 64 * (1 + i % 7), 0};
    TN_CHECK(pack("one after another", same, 40) == 1);
    for (int i = 0; i < 40; i++) same[i] = (tn_pack_item){i, 80 - i, 64 * (1 + i % 7), 0};
    TN_CHECK(pack("nested", same, 40) == 1);
    for (int i = 0; i < 40; i++) same[i] = (tn_pack_item){i, i + 40, 64 * (1 + i % 7), 0};
    TN_CHECK_MSG(pack("a queue", same, 40) <= 1.06, "a queue");
}

/* A step of a transformer: per layer, activations that live until its backward, transients of
 * forward and backward, and gradients that live to the end. With full recompute the activations are
 * transients of the backward. */
typedef struct step {
    tn_pack_item x[6000];
    int64_t n, tick;
} step;

static int64_t put(step *s, int64_t start, int64_t end, int64_t bytes)
{
    s->x[s->n] = (tn_pack_item){start, end, bytes * TN_PACK_ALIGN, 0};
    return s->n++;
}

static void make_step(step *s, int layers, bool recompute, int64_t d, int64_t f, int64_t grad)
{
    static int64_t saved[512][8];
    s->n = s->tick = 0;
    for (int l = 0; l < layers; l++) {
        int64_t t = s->tick;
        saved[l][0] = put(s, t, t + 1, d); /* what enters the layer */
        for (int k = 1; k < 8; k++) {
            saved[l][k] = put(s, t + k, t + k + 2, k > 4 ? f : d);
            if (!recompute && k != 4) s->x[saved[l][k]].end = 0; /* ends in backward */
        }
        s->x[saved[l][0]].end = 0;
        s->tick += 9;
    }
    put(s, s->tick, s->tick + 3, 5 * f); /* logits */
    s->tick += 3;
    for (int l = layers - 1; l >= 0; l--) {
        int64_t t = s->tick;
        for (int k = 0; k < 8; k++) {
            tn_pack_item *x = &s->x[saved[l][k]];
            if (!x->end) x->end = t + 20 - k;
            if (recompute && k) put(s, t + k, t + 20 - k, k > 4 ? f : d);
            if (k) put(s, t + 9 + k, t + 12 + k, k > 5 ? d : f);
            put(s, t + 12 + k, 1 << 20, grad / (1 + k % 3));
        }
        put(s, t + 8, t + 28, d); /* gradient of the layer above */
        s->tick += 20;
    }
}

static void training_steps(void)
{
    static step s;
    double sum = 0;
    for (int i = 0; i < 36; i++) {
        int layers = 2 + (int)random_below(i < 32 ? 12 : 60);
        int64_t d = 8 + random_below(60), f = d + random_below(4 * d),
                grad = 1 + random_below(2 * d);
        char what[96];
        make_step(&s, layers, i % 2, d, f, grad);
        snprintf(what, sizeof what, "step of %d layers, recompute %d, d %lld f %lld grad %lld",
                 layers, i % 2, (long long)d, (long long)f, (long long)grad);
        double ratio = pack(what, s.x, s.n);
        TN_CHECK_MSG(ratio <= 1.05, "%s: %.4f", what, ratio);
        sum += ratio;
    }
    TN_CHECK_MSG(sum / 36 <= 1.003, "training steps: mean %.4f", sum / 36);
}

/* One forward and one backward in turn, several microbatches in flight: activations are a queue,
 * not a stack. */
static void pipeline_stage(void)
{
    static tn_pack_item x[4000];
    enum { IN_FLIGHT = 6, MICROBATCHES = 24, PER = 40 };
    int64_t n = 0, forward[MICROBATCHES], backward[MICROBATCHES], t = 0;
    for (int f = 0, b = 0; b < MICROBATCHES;) {
        if (f < MICROBATCHES && f < b + IN_FLIGHT) forward[f++] = t, t += PER;
        else backward[b++] = t, t += PER;
    }
    for (int m = 0; m < MICROBATCHES; m++)
        for (int k = 0; k < PER; k++) {
            int64_t bytes = TN_PACK_ALIGN * (1 + k % 5);
            x[n++] = (tn_pack_item){forward[m] + k, backward[m] + PER - k, bytes, 0};
            x[n++] = (tn_pack_item){backward[m] + k, backward[m] + k + 2, 5 * bytes, 0};
        }
    double ratio = pack("pipeline stage", x, n);
    TN_CHECK_MSG(ratio <= 1.02, "pipeline stage: %.4f", ratio);
}

static void random_ones(void)
{
    static tn_pack_item x[3000];
    double sum = 0, worst = 0;
    for (int i = 0; i < 300; i++) {
        int64_t n = 1 + random_below(i < 290 ? 60 : 1500), ticks = 1 + random_below(2 * n),
                most = 1 + random_below(200);
        for (int64_t k = 0; k < n; k++) {
            int64_t start = random_below(ticks),
                    life = 1 + (random_below(4) ? random_below(8) : random_below(ticks));
            x[k] = (tn_pack_item){start, start + life, TN_PACK_ALIGN * random_below(most), 0};
        }
        double ratio = pack("random", x, n);
        sum += ratio;
        if (ratio > worst) worst = ratio;
    }
    TN_CHECK_MSG(sum / 300 <= 1.02 && worst <= 1.35, "random instances: mean %.4f, worst %.4f",
                 sum / 300, worst);
}

static void same_twice(void)
{
    static step a, b;
    tn_pack_result ra, rb;
    make_step(&a, 9, true, 31, 77, 40);
    make_step(&b, 9, true, 31, 77, 40);
    TN_CHECK_OK(tn_pack(a.x, a.n, &ra));
    for (int64_t i = 0; i < b.n; i++) b.x[i].offset = 12345; /* must not matter */
    TN_CHECK_OK(tn_pack(b.x, b.n, &rb));
    TN_CHECK(!memcmp(a.x, b.x, (size_t)a.n * sizeof *a.x) && ra.peak == rb.peak &&
             ra.order == rb.order);
}

static tn_status pack_small(void *arg)
{
    static step s;
    tn_pack_result *r = arg;
    make_step(&s, 3, true, 9, 20, 7);
    return tn_pack(s.x, s.n, r);
}

static void failing_memory(void)
{
    tn_pack_result r = {.peak = -1};
    TN_CHECK(tn_test_each_alloc(pack_small, &r) > 3);
    TN_CHECK(r.peak > 0);
}

int main(void)
{
    odd_ones();
    training_steps();
    pipeline_stage();
    random_ones();
    same_twice();
    failing_memory();
    return tn_test_done("pack");
}
