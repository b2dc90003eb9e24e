/* pack.c - items are placed one by one, each into the lowest gap among those that are placed and
 * live at the same time.
 *
 * (1) Ticks are ranks: the instance's own starts and ends, in order.
 * (2) Two stacks. What lives longer than a span of ticks is placed first: what outlives the last
 *     births (gradients) upwards from 0 in the order of birth, what dies before them (saved
 *     activations) downwards from the bound, the last to die at the top. Gradients grow into what
 *     activations leave, and the room between the stacks has no holes.
 * (3) The short ones share that room: first those that meet the highest sum of live bytes, of
 *     them the last to die.
 * (4) What comes to lie above the bound is placed first in the next round (squeaky wheel
 *     optimisation, Joslin and Clements 1999). One to four rounds reach the bound on nearly every
 *     training program: docs/decisions/0010-packing.md.
 * (5) After four rounds 0.1 % above the bound is good enough; where that is not reached, other
 *     spans and plainer orders follow, and the best of all stays.
 * (6) Short items look only at the lists of the one or two buckets (of a span of ticks) that they
 *     touch. There a run of long items that cover the whole bucket is one entry.
 * (7) Where no order comes near enough, windows around the highest item are packed anew
 *     (graph/repack.h). */
#include "graph/pack.h"

#include "engine/base/mem.h"
#include "graph/repack.h"

#include <stdlib.h>
#include <string.h>

typedef enum rule { BY_PRESSURE, BY_PRESSED_AREA, BY_SIZE, BY_AREA, BY_LIFETIME, BY_START } rule;

typedef struct order {
    const char *name;
    rule rule;
    bool stacks;  /* (2); else the long ones by the same rule, upwards */
    int32_t span; /* 0: all items are short, one bucket */
    int rounds;
} order;

static const order orders[] = {{"stacks, then pressure", BY_PRESSURE, true, 64, 8},
                               {"stacks, then pressed area", BY_PRESSED_AREA, true, 512, 10},
                               {"pressed area", BY_PRESSED_AREA, false, 512, 10},
                               {"stacks, then pressure, span 512", BY_PRESSURE, true, 512, 3},
                               {"stacks, then size", BY_SIZE, true, 64, 12},
                               {"pressure", BY_PRESSURE, false, 0, 8},
                               {"size", BY_SIZE, false, 0, 12},
                               {"area", BY_AREA, false, 0, 12},
                               {"lifetime", BY_LIFETIME, false, 0, 4},
                               {"start", BY_START, false, 0, 2}};

enum { EXACT_ROUNDS = 4, MENDS = 2500 }; /* (5), (7) */
static const int64_t MAX_WORK =
    100000000; /* entries looked at: no round begins behind it, a fifth of a second */
enum {
    SMALL = 1500
}; /* more items than that are always cut into spans: one bucket would cost a second */

typedef struct item {
    int32_t start, end; /* (1) */
    int64_t bytes, offset, pressure;
    bool is_long, up;
} item;

typedef struct placed {
    int64_t offset, end_offset;
    int32_t start, end;
} placed;

typedef struct list { /* sorted by offset */
    placed *p;
    int64_t n, capacity;
    int64_t last_whole; /* entry that covers the whole bucket, -1 */
} list;

typedef struct search {
    tn_arena arena;
    int64_t n, n_ticks, bound;
    item *items;
    int64_t *tick, *live;   /* by rank */
    int32_t *queue, *spare; /* items in the order of placing */
    int64_t n_long;         /* they come first in it */
    int64_t peak;           /* of what is placed */
    int64_t work;
    int32_t span, n_buckets;
    int32_t last_birth; /* (2) */
    list all, *buckets;
    int64_t cap_buckets;
} search;

/* ------------------------------------------------------------ the instance */

static int by_tick(const void *pa, const void *pb)
{
    int64_t x = *(const int64_t *)pa, y = *(const int64_t *)pb;
    return x < y ? -1 : x > y;
}

static int32_t rank_of(const search *s, int64_t tick)
{
    int64_t lo = 0, hi = s->n_ticks - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (s->tick[mid] < tick) lo = mid + 1;
        else hi = mid;
    }
    return (int32_t)lo;
}

/* The last tick behind which less than 0.5 % of the bound is born. */
static void find_last_birth(search *s, int64_t *born)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < s->n; i++) born[s->items[i].start] += s->items[i].bytes;
    for (s->last_birth = (int32_t)s->n_ticks - 1; s->last_birth > 0; s->last_birth--) {
        sum += born[s->last_birth];
        if (sum > s->bound / 200) return;
    }
}

/* The largest live sum that each item meets; blocks of 64 ticks keep long items cheap. */
static void find_pressure(search *s, int64_t *block)
{
    enum { BLOCK = 64 };
    for (int64_t t = 0; t < s->n_ticks; t++)
        if (s->live[t] > block[t / BLOCK]) block[t / BLOCK] = s->live[t];
    for (int64_t i = 0; i < s->n; i++) {
        item *x = &s->items[i];
        for (int32_t t = x->start; t < x->end;) {
            bool whole = t % BLOCK == 0 && t + BLOCK <= x->end;
            int64_t most = whole ? block[t / BLOCK] : s->live[t];
            if (most > x->pressure) x->pressure = most;
            t += whole ? BLOCK : 1;
        }
    }
}

static tn_status take(search *s, size_t count, size_t size, void **out)
{
    return tn_arena_alloc(&s->arena, (count ? count : 1) * size, out);
}

static tn_status read_items(search *s, const tn_pack_item *in, tn_pack_result *out)
{
    void *mem, *scratch;
    size_t n = (size_t)s->n;
    TN_TRY(take(s, n, sizeof(item), &mem));
    s->items = mem;
    TN_TRY(take(s, 2 * n, sizeof(int64_t), &mem));
    s->tick = mem;
    TN_TRY(take(s, 2 * n, sizeof(int32_t), &mem));
    s->queue = mem;
    s->spare = s->queue + n;
    for (size_t i = 0; i < n; i++) {
        s->tick[2 * i] = in[i].start;
        s->tick[2 * i + 1] = in[i].end;
    }
    qsort(s->tick, 2 * n, sizeof(int64_t), by_tick);
    for (size_t i = 0; i < 2 * n; i++)
        if (!i || s->tick[s->n_ticks - 1] != s->tick[i]) s->tick[s->n_ticks++] = s->tick[i];
    TN_TRY(take(s, 3 * (size_t)s->n_ticks, sizeof(int64_t), &mem));
    s->live = mem;
    scratch = s->live + s->n_ticks;
    for (size_t i = 0; i < n; i++) {
        item *x = &s->items[i];
        *x = (item){
            .start = rank_of(s, in[i].start), .end = rank_of(s, in[i].end), .bytes = in[i].bytes};
        s->live[x->start] += x->bytes;
        s->live[x->end] -= x->bytes;
    }
    for (int64_t t = 0; t < s->n_ticks; t++) {
        if (t) s->live[t] += s->live[t - 1];
        if (s->live[t] <= s->bound) continue;
        s->bound = s->live[t];
        out->peak_tick = s->tick[t];
    }
    out->bound = s->bound;
    find_last_birth(s, scratch);
    find_pressure(s, (int64_t *)scratch + s->n_ticks);
    return TN_OK;
}

/* ------------------------------------------------------------ the order */

typedef struct key {
    double group, a, b;
    int32_t index;
} key;

static int by_key(const void *pa, const void *pb)
{
    const key *x = pa, *y = pb;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->a != y->a) return x->a < y->a ? -1 : 1;
    if (x->b != y->b) return x->b < y->b ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static key key_of(const item *x, const order *o, int32_t index)
{
    double life = (double)(x->end - x->start), size = (double)x->bytes;
    if (x->is_long && o->stacks)
        return (key){!x->up, x->up ? (double)x->start : -(double)x->end, -size, index};
    double group = x->is_long ? 0 : 2;
    switch (o->rule) {
    case BY_PRESSURE:
        return (key){group, -(double)x->pressure, -(double)x->end, index};
    case BY_PRESSED_AREA:
        return (key){group, -(double)x->pressure, -life * size, index};
    case BY_SIZE:
        return (key){group, -size, -life, index};
    case BY_AREA:
        return (key){group, -life * size, -size, index};
    case BY_LIFETIME:
        return (key){group, -life, -size, index};
    default:
        return (key){group, (double)x->start, -size, index};
    }
}

static tn_status sort_items(search *s, const order *o)
{
    void *mem;
    TN_TRY(tn_alloc((size_t)s->n * sizeof(key) + 1, &mem));
    key *keys = mem;
    s->span = o->span ? o->span : s->n > SMALL ? 64 : (int32_t)s->n_ticks;
    s->n_buckets = (int32_t)(s->n_ticks / s->span + 1);
    s->n_long = 0;
    for (int64_t i = 0; i < s->n; i++) {
        item *x = &s->items[i];
        x->is_long = x->end - x->start > s->span;
        x->up = !o->stacks || x->end > s->last_birth;
        s->n_long += x->is_long;
        keys[i] = key_of(x, o, (int32_t)i);
    }
    qsort(keys, (size_t)s->n, sizeof *keys, by_key);
    for (int64_t i = 0; i < s->n; i++) s->queue[i] = keys[i].index;
    tn_free(keys);
    return TN_OK;
}

/* ------------------------------------------------------------ placing */

/* The lowest gap for x among the items of up to two lists; with `high` the highest one below the
 * bound, where there is one. */
static int64_t find_gap(const list *l, const list *m, const item *x, bool high, int64_t bound)
{
    int64_t at = 0, found = -1, n = m ? m->n : 0;
    for (int64_t i = 0, k = 0; i < l->n || k < n;) {
        const placed *p =
            k == n || (i < l->n && l->p[i].offset <= m->p[k].offset) ? &l->p[i++] : &m->p[k++];
        if (p->start >= x->end || p->end <= x->start) continue;
        if (p->offset - at >= x->bytes) {
            if (!high) return at;
            found = p->offset - x->bytes;
        }
        if (p->end_offset > at) at = p->end_offset;
    }
    if (high && bound - at >= x->bytes) return bound - x->bytes;
    return found >= 0 ? found : at;
}

static tn_status insert(list *l, const placed *x)
{
    int64_t lo = 0, hi = l->n;
    if (l->n == l->capacity) TN_TRY(tn_grow((void **)&l->p, &l->capacity, l->n + 1, sizeof *l->p));
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (l->p[mid].offset <= x->offset) lo = mid + 1;
        else hi = mid;
    }
    memmove(&l->p[lo + 1], &l->p[lo], (size_t)(l->n - lo) * sizeof *l->p);
    l->p[lo] = *x;
    l->n++;
    return TN_OK;
}

static placed at_offset(search *s, item *x, int64_t offset)
{
    x->offset = offset;
    if (offset + x->bytes > s->peak) s->peak = offset + x->bytes;
    return (placed){offset, offset + x->bytes, x->start, x->end};
}

static tn_status place_long(search *s)
{
    s->all.n = s->peak = 0;
    for (int64_t k = 0; k < s->n_long; k++) {
        item *x = &s->items[s->queue[k]];
        if (!x->bytes) continue;
        placed p = at_offset(s, x, find_gap(&s->all, NULL, x, !x->up, s->bound));
        s->work += s->all.n;
        TN_TRY(insert(&s->all, &p));
    }
    return TN_OK;
}

/* (6) Every bucket gets the long items that live in it. */
static tn_status fill_buckets(search *s)
{
    for (int32_t b = 0; b < s->n_buckets; b++) {
        s->buckets[b].n = 0;
        s->buckets[b].last_whole = -1;
    }
    for (int64_t i = 0; i < s->all.n; i++) {
        const placed *p = &s->all.p[i];
        for (int32_t b = p->start / s->span; b <= (p->end - 1) / s->span; b++) {
            list *l = &s->buckets[b];
            int32_t begin = b * s->span, end = begin + s->span;
            bool whole = p->start <= begin && p->end >= end;
            if (whole && l->last_whole >= 0 && l->p[l->last_whole].end_offset == p->offset) {
                l->p[l->last_whole].end_offset = p->end_offset;
                continue;
            }
            if (l->n == l->capacity)
                TN_TRY(tn_grow((void **)&l->p, &l->capacity, l->n + 1, sizeof *l->p));
            if (whole) l->last_whole = l->n;
            l->p[l->n++] = whole ? (placed){p->offset, p->end_offset, begin, end} : *p;
        }
    }
    return TN_OK;
}

/* One round over the short items; (4) reorders them for the next. */
static tn_status place_short(search *s, bool *all_below)
{
    int64_t n_above = 0, n_below = 0, n = s->n - s->n_long;
    int32_t *queue = s->queue + s->n_long, *below = s->spare;
    TN_TRY(fill_buckets(s));
    for (int64_t k = 0; k < n; k++) {
        item *x = &s->items[queue[k]];
        int32_t b0 = x->start / s->span, b1 = (x->end - 1) / s->span;
        bool above = false;
        if (x->bytes && x->end > x->start) {
            list *l = &s->buckets[b0], *m = b1 > b0 ? &s->buckets[b1] : NULL;
            placed p = at_offset(s, x, find_gap(l, m, x, false, s->bound));
            s->work += l->n + (m ? m->n : 0);
            TN_TRY(insert(l, &p));
            if (m) TN_TRY(insert(m, &p));
            above = p.end_offset > s->bound;
        }
        if (above) queue[n_above++] = queue[k];
        else below[n_below++] = queue[k];
    }
    memcpy(queue + n_above, below, (size_t)n_below * sizeof *queue);
    *all_below = !n_above;
    return TN_OK;
}

static bool good(const tn_pack_result *r)
{
    return r->peak <= r->bound + r->bound / 1000;
}

static tn_status run_order(search *s, const order *o, tn_pack_item *items, tn_pack_result *r)
{
    bool all_below = false;
    TN_TRY(sort_items(s, o));
    TN_TRY(tn_grow((void **)&s->buckets, &s->cap_buckets, s->n_buckets, sizeof(list)));
    TN_TRY(place_long(s));
    int64_t long_peak = s->peak;
    for (int round = 0; round < o->rounds && !all_below; round++) {
        if (round >= EXACT_ROUNDS && good(r)) break;
        if (round && (s->work > MAX_WORK || long_peak > s->bound)) break;
        s->peak = long_peak;
        TN_TRY(place_short(s, &all_below));
        if (s->peak >= r->peak) continue;
        r->peak = s->peak;
        r->order = o->name;
        for (int64_t i = 0; i < s->n; i++) items[i].offset = s->items[i].offset;
    }
    return TN_OK;
}

tn_status tn_pack(tn_pack_item *items, int64_t n, tn_pack_result *out)
{
    search s = {.n = n};
    tn_pack_result r = {.peak = INT64_MAX, .order = "empty"};
    tn_status st = n > INT32_MAX / 2
                       ? tn_error(TN_FAILED, "packing: %lld buffers; at most 2^30", (long long)n)
                       : read_items(&s, items, &r);
    for (int k = 0; !st && k < TN_COUNT(orders) && !(k && (good(&r) || s.work > MAX_WORK)); k++)
        st = run_order(&s, &orders[k], items, &r);
    for (int64_t b = 0; b < s.cap_buckets; b++) tn_free(s.buckets[b].p);
    tn_free(s.buckets);
    tn_free(s.all.p);
    tn_arena_fini(&s.arena);
    if (!st && r.peak > r.bound + r.bound * TN_REPACK_GOOD / 10000)
        st = tn_repack(items, n, MENDS, &r);
    if (!st) *out = r;
    return st;
}
