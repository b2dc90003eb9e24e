/* channel.c - vector clocks over the lists: what a rank has received proves how far the others are.
 */
#include "graph/channel.h"

#include <string.h>

/* ------------------------------------------------------------ positions */

/* Where an action of stage and kind (F, B or W; a BW is both) stands in its rank's list; -1:
 * nowhere. */
typedef struct positions {
    const tn_schedule *s;
    int32_t *at; /* by kind, stage, microbatch */
} positions;

static tn_status build_positions(const tn_schedule *s, tn_arena *arena, positions *out)
{
    size_t cells = (size_t)s->n_stages * (size_t)s->n_microbatches, n = 3 * cells;
    void *mem;
    TN_TRY(tn_arena_alloc(arena, n * sizeof(int32_t), &mem));
    *out = (positions){s, mem};
    for (size_t i = 0; i < n; i++) out->at[i] = -1;
    for (int32_t r = 0; r < s->n_ranks; r++)
        for (int64_t i = 0; i < s->lists[r].n; i++) {
            const tn_schedule_action *a = &s->lists[r].actions[i];
            size_t cell = (size_t)a->stage * (size_t)s->n_microbatches + (size_t)a->microbatch;
            if (a->kind == TN_SCHEDULE_BW) out->at[TN_SCHEDULE_W * cells + cell] = (int32_t)i;
            int kind = a->kind == TN_SCHEDULE_BW ? TN_SCHEDULE_B : a->kind;
            out->at[(size_t)kind * cells + cell] = (int32_t)i;
        }
    return TN_OK;
}

static int32_t position_of(const positions *p, int32_t stage, int kind, int32_t microbatch)
{
    size_t cells = (size_t)p->s->n_stages * (size_t)p->s->n_microbatches;
    return p->at[(size_t)kind * cells + (size_t)stage * (size_t)p->s->n_microbatches +
                 (size_t)microbatch];
}

/* ------------------------------------------------------------ clocks */

typedef struct clocks {
    const tn_schedule *s;
    positions at;
    tn_channel *channels;
    int64_t n;
    int64_t *next;     /* by rank: the action that it runs next */
    int32_t **known;   /* by rank, action and rank: how many of that rank's actions are then over */
    int64_t *incoming; /* by stage and kind: first channel that is received there; -1 */
    int64_t *more;     /* by channel: the next one of the same place */
    int64_t *sent;     /* by channel: messages so far */
    int64_t *read;     /* by channel: of these, the first so many are known to be read for good */
    int32_t *order;    /* by channel and ordinal: the microbatch of that message */
} clocks;

static int64_t place(const clocks *c, int32_t stage, int kind)
{
    return (int64_t)kind * c->s->n_stages + stage;
}

static tn_status prepare(clocks *c, tn_arena *arena)
{
    const tn_schedule *s = c->s;
    size_t places = 3 * (size_t)s->n_stages, n = (size_t)c->n + 1;
    void *mem;
    TN_TRY(build_positions(s, arena, &c->at));
    TN_TRY(tn_arena_alloc(arena, ((size_t)s->n_ranks + places + 3 * n) * sizeof(int64_t), &mem));
    c->next = mem;
    c->incoming = c->next + s->n_ranks;
    c->more = c->incoming + places;
    c->sent = c->more + n;
    c->read = c->sent + n;
    TN_TRY(tn_arena_alloc(arena, n * (size_t)s->n_microbatches * sizeof(int32_t), &mem));
    c->order = mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)s->n_ranks * sizeof(int32_t *), &mem));
    c->known = mem;
    for (int32_t r = 0; r < s->n_ranks; r++) {
        TN_TRY(tn_arena_alloc(
            arena, (size_t)(s->lists[r].n + 1) * (size_t)s->n_ranks * sizeof(int32_t), &mem));
        c->known[r] = mem;
    }
    for (size_t i = 0; i < places; i++) c->incoming[i] = -1;
    for (int64_t i = c->n - 1; i >= 0; i--) {
        tn_channel *x = &c->channels[i];
        int64_t *first = &c->incoming[place(c, x->users[0].stage, x->users[0].kind)];
        c->more[i] = *first;
        *first = i;
        x->n_slots = 1;
    }
    return TN_OK;
}

static void learn(int32_t *mine, const int32_t *theirs, int32_t n)
{
    for (int32_t r = 0; r < n; r++)
        if (theirs[r] > mine[r]) mine[r] = theirs[r];
}

/* What is received for this kind of a stage; false while a sender has not come so far. */
static bool receive(clocks *c, int32_t rank, int32_t stage, int kind, int32_t m, int32_t *mine)
{
    for (int64_t i = c->incoming[place(c, stage, kind)]; i >= 0; i = c->more[i]) {
        const tn_channel *x = &c->channels[i];
        if (x->to != rank) continue;
        int32_t p = position_of(&c->at, x->maker.stage, x->maker.kind, m);
        if (p < 0 || p >= c->next[x->from]) return false;
        learn(mine, c->known[x->from] + (int64_t)(p + 1) * c->s->n_ranks, c->s->n_ranks);
    }
    return true;
}

static int32_t last_read(const clocks *c, const tn_channel *x, int32_t m)
{
    int32_t last = -1;
    for (int64_t k = 0; k < x->n_users; k++) {
        int32_t p = position_of(&c->at, x->users[k].stage, x->users[k].kind, m);
        if (p > last) last = p;
    }
    return last;
}

/* Message number `sent` leaves: those that are not known to be read for good lie there with it. */
static void post(clocks *c, int64_t i, int32_t m, const int32_t *mine)
{
    tn_channel *x = &c->channels[i];
    int32_t *order = c->order + i * c->s->n_microbatches;
    order[c->sent[i]] = m;
    while (c->read[i] < c->sent[i] && last_read(c, x, order[c->read[i]]) < mine[x->to])
        c->read[i]++;
    int64_t lie = ++c->sent[i] - c->read[i];
    if (lie > x->n_slots) x->n_slots = (int32_t)lie;
}

static bool kind_of(const tn_schedule_action *a, int kind)
{
    return a->kind == kind || (a->kind == TN_SCHEDULE_BW && kind != TN_SCHEDULE_F);
}

/* One action, if what it receives has been sent. */
static bool advance(clocks *c, int32_t rank)
{
    const tn_schedule_action *a = &c->s->lists[rank].actions[c->next[rank]];
    int32_t n = c->s->n_ranks;
    int32_t *before = c->known[rank] + c->next[rank] * n, *after = before + n;
    memcpy(after, before, (size_t)n * sizeof *after);
    for (int kind = TN_SCHEDULE_F; kind <= TN_SCHEDULE_W; kind++)
        if (kind_of(a, kind) && !receive(c, rank, a->stage, kind, a->microbatch, after))
            return false;
    after[rank] = (int32_t)++c->next[rank];
    for (int64_t i = 0; i < c->n; i++) {
        const tn_channel *x = &c->channels[i];
        if (x->from == rank && x->maker.stage == a->stage && kind_of(a, x->maker.kind))
            post(c, i, a->microbatch, after);
    }
    return true;
}

tn_status tn_channel_size(const tn_schedule *s, tn_channel *channels, int64_t n, tn_arena *arena)
{
    tn_arena work = {0};
    clocks c = {.s = s, .channels = channels, .n = n};
    tn_status st = prepare(&c, &work);
    int64_t left = 0;
    for (int32_t r = 0; r < s->n_ranks; r++) left += s->lists[r].n;
    for (bool moved = true; !st && left > 0 && moved;) {
        moved = false;
        for (int32_t r = 0; r < s->n_ranks; r++)
            while (c.next[r] < s->lists[r].n && advance(&c, r)) {
                moved = true;
                left--;
            }
    }
    if (!st && left)
        st = tn_error(TN_BAD_INPUT,
                      "pipeline schedule: its ranks wait for each other with %lld "
                      "actions left",
                      (long long)left);
    for (int64_t i = 0; i < n && !st; i++) {
        void *mem;
        st = tn_arena_alloc(arena, (size_t)s->n_microbatches * sizeof(int32_t), &mem);
        if (st) break;
        channels[i].slot = mem;
        for (int64_t k = 0; k < c.sent[i]; k++)
            channels[i].slot[c.order[i * s->n_microbatches + k]] =
                (int32_t)(k % channels[i].n_slots);
    }
    tn_arena_fini(&work);
    return st;
}
