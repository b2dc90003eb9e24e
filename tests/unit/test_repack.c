/* test_repack.c - packings mended: nothing overlaps, the peak never rises, and what a stack wastes
 * is found. */
#include "graph/repack.h"
#include "tests/test.h"

#include <stdlib.h>

static uint64_t state = 1;
static int64_t draw(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(state >> 33) % n;
}

static bool overlap(const tn_pack_item *a, const tn_pack_item *b)
{
    return a->bytes && b->bytes && a->start < b->end && b->start < a->end &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes &&
           a->start < a->end && b->start < b->end;
}

static int64_t check(const tn_pack_item *items, int64_t n)
{
    int64_t peak = 0, bad = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = i + 1; k < n; k++) bad += overlap(&items[i], &items[k]);
        if (items[i].end > items[i].start && items[i].offset + items[i].bytes > peak)
            peak = items[i].offset + items[i].bytes;
    }
    TN_CHECK_MSG(!bad, "%lld pairs overlap", (long long)bad);
    return peak;
}

static int64_t bound_of(const tn_pack_item *items, int64_t n, int64_t ticks)
{
    int64_t bound = 0;
    for (int64_t t = 0; t < ticks; t++) {
        int64_t live = 0;
        for (int64_t i = 0; i < n; i++)
            if (items[i].start <= t && t < items[i].end) live += items[i].bytes;
        if (live > bound) bound = live;
    }
    return bound;
}

/* Every item on top of all that lives beside it, in a random order: far above the bound. */
static void stack(tn_pack_item *items, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        items[i].offset = 0;
        for (int64_t k = 0; k < i; k++)
            if (items[k].start < items[i].end && items[i].start < items[k].end &&
                items[k].offset + items[k].bytes > items[i].offset)
                items[i].offset = items[k].offset + items[k].bytes;
    }
}

static void random_instances(void)
{
    enum { N = 160, TICKS = 120 };
    static tn_pack_item items[N];
    double before = 0, after = 0;
    for (int k = 0; k < 40; k++) {
        for (int i = 0; i < N; i++) {
            int64_t start = draw(TICKS - 1), life = 1 + draw(draw(3) ? 12 : 60);
            items[i] = (tn_pack_item){start, start + life > TICKS ? TICKS : start + life,
                                      TN_PACK_ALIGN * (1 + draw(draw(4) ? 16 : 200)), 0};
        }
        items[3].end = items[3].start; /* takes no room */
        items[5].bytes = 0;
        stack(items, N);
        tn_pack_result r = {.bound = bound_of(items, N, TICKS), .order = "stack"};
        r.peak = check(items, N);
        before += (double)r.peak / (double)r.bound;
        int64_t was = r.peak;
        if (!TN_CHECK_OK(tn_repack(items, N, 400, &r))) return;
        TN_CHECK(r.peak == check(items, N) && r.peak <= was && r.peak >= r.bound);
        after += (double)r.peak / (double)r.bound;
    }
    TN_CHECK_MSG(after < 0.75 * before && after < 40 * 1.2, "from %.3f to %.3f of the bound",
                 before / 40, after / 40);
}

/* Two items in each other's way: one window, one try away from the bound. */
static void known(void)
{
    tn_pack_item items[] = {
        {0, 10, 640, 0}, {5, 20, 640, 640}, {12, 30, 640, 1280}, {25, 40, 640, 0}};
    tn_pack_result r = {.bound = 1280, .peak = 1920};
    TN_CHECK_OK(tn_repack(items, 4, 50, &r));
    TN_CHECK(r.peak == 1280 && check(items, 4) == 1280);
    tn_pack_item same[] = {{0, 10, 640, 0}, {5, 20, 640, 640}};
    tn_pack_result good = {.bound = 1280, .peak = 1280};
    TN_CHECK_OK(tn_repack(same, 2, 50, &good)); /* nothing to mend: nothing moves */
    TN_CHECK(good.peak == 1280 && same[0].offset == 0 && same[1].offset == 640);
    TN_CHECK_OK(tn_repack(same, 0, 50, &good));
}

/* The same input, the same offsets. */
static void pure(void)
{
    enum { N = 60 };
    tn_pack_item a[N], b[N];
    for (int i = 0; i < N; i++) {
        int64_t start = draw(40);
        a[i] = (tn_pack_item){start, start + 1 + draw(20), TN_PACK_ALIGN * (1 + draw(50)), 0};
    }
    stack(a, N);
    memcpy(b, a, sizeof a);
    tn_pack_result x = {.bound = bound_of(a, N, 60)}, y = x;
    TN_CHECK_OK(tn_repack(a, N, 100, &x));
    TN_CHECK_OK(tn_repack(b, N, 100, &y));
    TN_CHECK(x.peak == y.peak && !memcmp(a, b, sizeof a));
}

static tn_status mend(void *arg)
{
    tn_pack_item items[] = {{0, 10, 640, 0}, {5, 20, 640, 640}, {12, 30, 640, 1280}};
    tn_pack_result r = {.bound = 1280, .peak = 1920};
    (void)arg;
    return tn_repack(items, 3, 5, &r);
}

int main(void)
{
    known();
    random_instances();
    pure();
    TN_CHECK(tn_test_each_alloc(mend, NULL) >= 4);
    return tn_test_done("repack");
}
