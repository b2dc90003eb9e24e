/* pack.c - every order places its items one by one into the lowest gap (first fit) or the tightest one (best fit) among the
 * items that are placed and live at the same time. The placed items are kept sorted by offset, so one placement is one scan.
 * Orders in the sequence in which they tend to win on training programs; the first that meets the bound ends the search.
 * Refused: branch and bound (MiniMalloc, Moffitt 2023), 300 lines for the last 0.1 % of plans that are already within 0.5 %. */
#include "graph/pack.h"

#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef enum order { BY_LIFETIME, BY_SIZE, BY_AREA, BY_START, BY_END, N_ORDERS } order;

static const char *const order_names[N_ORDERS][2] = {
    {"lifetime, first fit", "lifetime, best fit"}, {"size, first fit", "size, best fit"}, {"area, first fit", "area, best fit"},
    {"start, first fit", "start, best fit"},       {"end, first fit", "end, best fit"}};

typedef struct key {
    double a, b;
    int64_t index;
} key;

typedef struct placed {
    int64_t offset, end_offset, start, end;
} placed;

static int by_key(const void *pa, const void *pb)
{
    const key *x = pa, *y = pb;
    if (x->a != y->a) return x->a < y->a ? -1 : 1;
    if (x->b != y->b) return x->b < y->b ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void sort_items(const tn_pack_item *items, int64_t n, order o, key *keys)
{
    for (int64_t i = 0; i < n; i++) {
        const tn_pack_item *x = &items[i];
        double life = (double)(x->end - x->start), size = (double)x->bytes;
        keys[i].index = i;
        switch (o) {
        case BY_LIFETIME: keys[i].a = -life; keys[i].b = -size; break;
        case BY_SIZE: keys[i].a = -size; keys[i].b = -life; break;
        case BY_AREA: keys[i].a = -life * size; keys[i].b = -size; break;
        case BY_START: keys[i].a = (double)x->start; keys[i].b = -size; break;
        default: keys[i].a = -(double)x->end; keys[i].b = -size; break;
        }
    }
    qsort(keys, (size_t)n, sizeof *keys, by_key);
}

/* The offset for x among the m placed ones (sorted by offset). */
static int64_t find_gap(const placed *p, int64_t m, const tn_pack_item *x, bool best)
{
    int64_t at = 0, found = -1, width = INT64_MAX;
    for (int64_t i = 0; i < m; i++) {
        if (p[i].start >= x->end || p[i].end <= x->start) continue;
        int64_t gap = p[i].offset - at;
        if (gap >= x->bytes) {
            if (!best) return at;
            if (gap < width) {
                width = gap;
                found = at;
            }
        }
        if (p[i].end_offset > at) at = p[i].end_offset;
    }
    return found >= 0 ? found : at;
}

static void insert(placed *p, int64_t m, const tn_pack_item *x, int64_t offset)
{
    int64_t lo = 0, hi = m;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (p[mid].offset <= offset) lo = mid + 1;
        else hi = mid;
    }
    memmove(&p[lo + 1], &p[lo], (size_t)(m - lo) * sizeof *p);
    p[lo] = (placed){offset, offset + x->bytes, x->start, x->end};
}

/* Peak of one run; stops early, with INT64_MAX, when it gets above `limit`. */
static int64_t place(const tn_pack_item *items, int64_t n, const key *keys, bool best, int64_t limit, placed *p, int64_t *offsets)
{
    int64_t peak = 0, m = 0;
    for (int64_t k = 0; k < n; k++) {
        const tn_pack_item *x = &items[keys[k].index];
        int64_t off = 0;
        if (x->bytes) {
            off = find_gap(p, m, x, best);
            insert(p, m++, x, off);
            if (off + x->bytes > peak) peak = off + x->bytes;
            if (peak >= limit) return INT64_MAX;
        }
        offsets[keys[k].index] = off;
    }
    return peak;
}

typedef struct event {
    int64_t tick, bytes;
} event;

static int by_event(const void *pa, const void *pb)
{
    const event *x = pa, *y = pb;
    if (x->tick != y->tick) return x->tick < y->tick ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static void bound(const tn_pack_item *items, int64_t n, event *ev, tn_pack_result *out)
{
    int64_t live = 0;
    for (int64_t i = 0; i < n; i++) {
        ev[2 * i] = (event){items[i].start, items[i].bytes};
        ev[2 * i + 1] = (event){items[i].end, -items[i].bytes};
    }
    qsort(ev, (size_t)(2 * n), sizeof *ev, by_event);
    for (int64_t i = 0; i < 2 * n; i++) {
        live += ev[i].bytes;
        if (live > out->bound) {
            out->bound = live;
            out->peak_tick = ev[i].tick;
        }
    }
}

tn_status tn_pack(tn_pack_item *items, int64_t n, tn_pack_result *out)
{
    tn_arena arena = {0};
    void *keys = NULL, *p = NULL, *offsets = NULL, *ev = NULL;
    tn_pack_result r = {.peak = INT64_MAX, .order = "empty"};
    size_t k = (size_t)(n ? n : 1);
    tn_status st = tn_arena_alloc(&arena, k * sizeof(key), &keys);
    if (!st) st = tn_arena_alloc(&arena, (k + 1) * sizeof(placed), &p);
    if (!st) st = tn_arena_alloc(&arena, k * sizeof(int64_t), &offsets);
    if (!st) st = tn_arena_alloc(&arena, 2 * k * sizeof(event), &ev);
    if (st) goto out;
    bound(items, n, ev, &r);
    if (!r.bound) r.peak = 0;
    for (int o = 0; o < N_ORDERS && r.peak > r.bound + r.bound / 1000; o++) {
        sort_items(items, n, (order)o, keys);
        for (int best = 0; best < 2 && r.peak > r.bound; best++) {
            int64_t peak = place(items, n, keys, best != 0, r.peak, p, offsets);
            if (peak >= r.peak) continue;
            r.peak = peak;
            r.order = order_names[o][best];
            for (int64_t i = 0; i < n; i++) items[i].offset = ((int64_t *)offsets)[i];
        }
    }
    *out = r;
out:
    tn_arena_fini(&arena);
    return st;
}
