#include "graph/repack.h"

#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct key {
    double key;
    int32_t item;
} key;

typedef struct place {
    int64_t offset, end; /* bytes */
    int64_t from, to;    /* ticks */
} place;

typedef struct mender {
    tn_pack_item *items;
    int64_t n, bound, peak;
    int32_t highest; /* item at the peak */
    int64_t n_free, n_placed, n_around;
    key *free;    /* items of the window, in the order of placing */
    int64_t *old; /* by item: where it was */
    place *placed, *around;
    uint64_t state;
} mender;

static double draw(mender *q)
{
    q->state ^= q->state << 13;
    q->state ^= q->state >> 7;
    q->state ^= q->state << 17;
    return (double)(q->state >> 11) / 9007199254740992.0;
}

static void find_peak(mender *q)
{
    q->peak = 0;
    for (int64_t i = 0; i < q->n; i++) {
        const tn_pack_item *x = &q->items[i];
        if (x->end <= x->start || x->offset + x->bytes <= q->peak) continue;
        q->peak = x->offset + x->bytes;
        q->highest = (int32_t)i;
    }
}

static int by_key(const void *pa, const void *pb)
{
    const key *x = pa, *y = pb;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static int by_offset(const void *pa, const void *pb)
{
    const place *x = pa, *y = pb;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static place place_of(const tn_pack_item *x)
{
    return (place){x->offset, x->offset + x->bytes, x->start, x->end};
}

/* Free is what lives entirely within ticks [low, high); what only reaches into them stays. */
static void open_window(mender *q, int64_t low, int64_t high)
{
    q->n_free = q->n_around = 0;
    for (int64_t i = 0; i < q->n; i++) {
        const tn_pack_item *x = &q->items[i];
        if (x->end <= x->start || !x->bytes || x->end <= low || x->start >= high) continue;
        if (x->start >= low && x->end <= high) {
            q->old[i] = x->offset;
            q->free[q->n_free++].item = (int32_t)i;
        } else q->around[q->n_around++] = place_of(x);
    }
    qsort(q->around, (size_t)q->n_around, sizeof *q->around, by_offset);
}

/* Larger, longer or both first, or the highest and then as they lay; each a little out of its turn.
 */
static void draw_order(mender *q)
{
    double how = draw(q), noise = how < 0.5 ? 0.1 + draw(q) : 0.02 + 0.2 * draw(q);
    for (int64_t i = 0; i < q->n_free; i++) {
        const tn_pack_item *x = &q->items[q->free[i].item];
        double size = (double)x->bytes, life = (double)(x->end - x->start);
        double k = how < 0.2   ? size
                   : how < 0.4 ? size * life
                   : how < 0.5 ? life
                               : 2 * (double)q->peak - (double)x->offset;
        if (how >= 0.5 && (q->free[i].item == q->highest || draw(q) < 0.05)) k *= 2;
        q->free[i].key = k * (1 + noise * draw(q));
    }
    qsort(q->free, (size_t)q->n_free, sizeof *q->free, by_key);
}

/* The lowest gap; with `high` the highest one below the bound. */
static int64_t find_gap(const mender *q, const tn_pack_item *x, bool high)
{
    int64_t at = 0, found = -1;
    for (int64_t i = 0; i < q->n_placed; i++) {
        const place *p = &q->placed[i];
        if (p->from >= x->end || p->to <= x->start) continue;
        if (p->offset - at >= x->bytes) {
            if (!high) return at;
            found = p->offset - x->bytes;
        }
        if (p->end > at) at = p->end;
    }
    if (high && q->bound - at >= x->bytes) return q->bound - x->bytes;
    return high && found >= 0 ? found : at;
}

static void insert(mender *q, place p)
{
    int64_t i = q->n_placed++;
    for (; i > 0 && q->placed[i - 1].offset > p.offset; i--) q->placed[i] = q->placed[i - 1];
    q->placed[i] = p;
}

/* Below the peak, or as high by chance? */
static bool put_back(mender *q)
{
    bool sideways = draw(q) < 0.3, turned = draw(q) < 0.3;
    memcpy(q->placed, q->around, (size_t)q->n_around * sizeof *q->placed);
    q->n_placed = q->n_around;
    for (int64_t i = 0; i < q->n_free; i++) {
        tn_pack_item *x = &q->items[q->free[i].item];
        x->offset = find_gap(q, x, turned && draw(q) < 0.5);
        int64_t end = x->offset + x->bytes;
        if (end > q->peak || (end == q->peak && !sideways)) return false;
        insert(q, place_of(x));
    }
    return true;
}

static void try_once(mender *q)
{
    static const int64_t reach[] = {8, 24, 48, 96, 192};
    const tn_pack_item *x = &q->items[q->highest];
    int64_t low = x->start - reach[(int)(draw(q) * TN_COUNT(reach))],
            high = x->end + reach[(int)(draw(q) * TN_COUNT(reach))];
    open_window(q, low, high);
    draw_order(q);
    if (put_back(q)) find_peak(q);
    else
        for (int64_t i = 0; i < q->n_free; i++)
            q->items[q->free[i].item].offset = q->old[q->free[i].item];
}

static tn_status get(size_t count, size_t size, void **out)
{
    return tn_alloc((count + 1) * size, out);
}

tn_status tn_repack(tn_pack_item *items, int64_t n, int tries, tn_pack_result *r)
{
    mender q = {.items = items, .n = n, .bound = r->bound, .state = 88172645463325252u};
    void *mem[4] = {0};
    size_t k = (size_t)n;
    tn_status st = get(k, sizeof(key), &mem[0]);
    if (!st) st = get(k, sizeof(int64_t), &mem[1]);
    if (!st) st = get(k, sizeof(place), &mem[2]);
    if (!st) st = get(k, sizeof(place), &mem[3]);
    if (!st) {
        q.free = mem[0];
        q.old = mem[1];
        q.placed = mem[2];
        q.around = mem[3];
        find_peak(&q);
        for (int i = 0; i < tries && q.peak > q.bound + q.bound * TN_REPACK_GOOD / 10000; i++)
            try_once(&q);
        r->peak = q.peak;
    }
    for (int i = 0; i < 4; i++) tn_free(mem[i]);
    return st;
}
