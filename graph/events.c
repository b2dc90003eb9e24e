/* events.c - two steps are walked with two iterations of every loop (with a pipeline: the actions
 * of as many microbatches as any value has slots, and one more), which holds every pair of an
 * entry's run and the latest run of another before it; what is true of these pairs is true of all,
 * since a stream that has come to the latest run has passed those before it. The second iteration
 * stands for all that follow: what moves with the loop is then all further pieces.
 *
 * For every run a clock says how far each stream has come when it starts: from the run before it on
 * its own stream and from the runs that it waits for. A map says for every byte which run wrote it
 * last, and which runs of each stream have read it since. */
#include "graph/events.h"

#include "graph/names.h"
#include "graph/op.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

typedef struct run { /* of an entry */
    int32_t entry, microbatch, chunk;
    int32_t clock[TN_N_STREAMS]; /* the latest run of each stream that is over when it starts */
} run;

typedef struct owners { /* of equal bytes */
    int32_t writer, reader[TN_N_STREAMS];
} owners;

typedef struct span {
    int64_t begin, end;
} span;

typedef struct walk {
    const tn_program *p;
    tn_program *build; /* NULL: check */
    tn_arena arena;
    int64_t base[TN_N_REGIONS + 1];
    int64_t *border; /* ascending; leaf i is [border[i], border[i + 1]) */
    int64_t n_borders, cap_borders;
    uint64_t *starts; /* bit i: a stretch of equal owners begins at leaf i */
    owners *at;       /* by the leaf that begins a stretch */
    run *runs;
    int64_t n_runs, cap_runs;
    int32_t *latest;      /* by entry: its latest run */
    int32_t *first_event; /* by entry: in the list below, NONE */
    struct {
        int32_t after, next;
    } * events;
    int64_t n_events, cap_events;
    int32_t last[TN_N_STREAMS]; /* its latest run */
} walk;

const char *tn_events_stream(tn_stream s)
{
    static const char *const names[TN_N_STREAMS] = {"compute", "tensor", "gather",
                                                    "reduce",  "send",   "recv"};
    return names[s];
}

static void fill(int32_t by_stream[TN_N_STREAMS])
{
    for (int s = 0; s < TN_N_STREAMS; s++) by_stream[s] = NONE;
}

/* ------------------------------------------------------------ the map */

static span span_of(const walk *w, int32_t v, bool whole, int32_t microbatch, int32_t chunk)
{
    const tn_place *at = &w->p->places[v];
    const tn_value *x = &w->p->local[v];
    int64_t bytes = tn_value_elements(x) * tn_dtype_bytes((tn_dtype)x->dtype);
    int64_t begin = w->base[at->region] + tn_program_offset(w->p, at, microbatch, chunk);
    if (!bytes) return (span){begin, begin};
    if (microbatch && w->p->g->n_microbatches > 2 && !w->p->pipeline)
        bytes += (w->p->g->n_microbatches - 2) * at->microbatch_stride;
    if (chunk && w->p->g->n_chunks > 2) bytes += (w->p->g->n_chunks - 2) * at->chunk_stride;
    if (whole && x->carried && x->levels > 1) bytes += (x->levels - 1) * at->level_bytes;
    return (span){begin, begin + bytes};
}

static int64_t leaf_of(const walk *w, int64_t byte)
{
    int64_t lo = 0, hi = w->n_borders - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (w->border[mid] <= byte) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}

static bool is_start(const walk *w, int64_t leaf)
{
    return w->starts[leaf / 64] >> leaf % 64 & 1;
}

static void split(walk *w, int64_t leaf)
{
    if (leaf >= w->n_borders || is_start(w, leaf)) return;
    int64_t word = leaf / 64;
    uint64_t before = w->starts[word] & (((uint64_t)1 << leaf % 64) - 1);
    while (!before) before = w->starts[--word]; /* leaf 0 is one */
    w->at[leaf] = w->at[word * 64 + 63 - __builtin_clzll(before)];
    w->starts[word = leaf / 64] |= (uint64_t)1 << leaf % 64;
}

static int64_t next_start(const walk *w, int64_t leaf, int64_t end)
{
    for (int64_t i = leaf + 1; i < end;) {
        uint64_t rest = w->starts[i / 64] >> i % 64;
        if (rest) {
            i += __builtin_ctzll(rest);
            return i < end ? i : end;
        }
        i = (i / 64 + 1) * 64;
    }
    return end;
}

static int by_byte(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;
    return a < b ? -1 : a > b;
}

static tn_status take(walk *w, int64_t count, size_t size, void *out)
{
    void *mem;
    TN_TRY(tn_arena_alloc(&w->arena, (size_t)(count + 1) * size, &mem));
    memcpy(out, &mem, sizeof mem);
    return TN_OK;
}

static tn_status make_map(walk *w)
{
    const tn_graph *g = w->p->g;
    int64_t n = 0;
    for (int r = 0; r < TN_N_REGIONS; r++) w->base[r + 1] = w->base[r] + w->p->region_bytes[r];
    TN_TRY(tn_grow((void **)&w->border, &w->cap_borders, 1, sizeof *w->border));
    w->border[w->n_borders++] = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const tn_place *at = &w->p->places[v];
        bool moves = at->microbatch_stride || at->saved;
        int32_t n_m = moves ? tn_program_microbatches_walked(w->p) : 1,
                n_c = at->chunk_stride ? 2 : 1;
        TN_TRY(tn_grow((void **)&w->border, &w->cap_borders, w->n_borders + 2 * n_m * n_c,
                       sizeof *w->border));
        for (int32_t i = 0; i < n_m * n_c; i++) {
            span s = span_of(w, v, true, i / n_c, i % n_c);
            w->border[w->n_borders++] = s.begin;
            w->border[w->n_borders++] = s.end;
        }
    }
    qsort(w->border, (size_t)w->n_borders, sizeof *w->border, by_byte);
    for (int64_t i = 0; i < w->n_borders; i++)
        if (!n || w->border[n - 1] != w->border[i]) w->border[n++] = w->border[i];
    w->n_borders = n;
    TN_TRY(take(w, n, sizeof *w->at, &w->at));
    TN_TRY(take(w, n / 64 + 1, sizeof *w->starts, &w->starts));
    memset(w->starts, 0, (size_t)(n / 64 + 2) * sizeof *w->starts);
    w->starts[0] = 1;
    w->at[0].writer = NONE;
    for (int s = 0; s < TN_N_STREAMS; s++) w->at[0].reader[s] = NONE;
    return TN_OK;
}

/* ------------------------------------------------------------ one run */

static int stream_of(const walk *w, int32_t r)
{
    return w->p->entries[w->runs[r].entry].stream;
}

/* Behind run r, and behind all that it came behind. */
static void come_behind(walk *w, run *q, int32_t r)
{
    for (int s = 0; s < TN_N_STREAMS; s++)
        if (w->runs[r].clock[s] > q->clock[s]) q->clock[s] = w->runs[r].clock[s];
    int own = stream_of(w, r);
    if (r > q->clock[own]) q->clock[own] = r;
}

static tn_status unordered(walk *w, const run *q, int32_t v, bool writes, int32_t other)
{
    const tn_graph *g = w->p->g;
    const run *o = &w->runs[other];
    const tn_entry *a = &w->p->entries[q->entry], *b = &w->p->entries[o->entry];
    const char **names, *name = "its operand";
    if (!tn_names_build(g, &w->arena, &names)) name = names[v];
    tn_error_clear();
    TN_FAIL(
        TN_FAILED,
        "program: %s: %s (node %d, stream %s) %s %%%s (microbatch %d, chunk %d), which %s of %s "
        "(node %d, stream %s, microbatch %d, chunk %d) may still be using; nothing orders entry "
        "%d behind entry %d",
        g->nodes[a->node].path[0] ? g->nodes[a->node].path : "graph",
        tn_op_name((tn_op_id)g->nodes[a->node].op), a->node, tn_events_stream((tn_stream)a->stream),
        writes ? "writes" : "reads", name, q->microbatch, q->chunk,
        tn_op_name((tn_op_id)g->nodes[b->node].op),
        g->nodes[b->node].path[0] ? g->nodes[b->node].path : "graph", b->node,
        tn_events_stream((tn_stream)b->stream), o->microbatch, o->chunk, q->entry, o->entry);
}

static void need(const walk *w, int32_t r, int32_t needs[TN_N_STREAMS])
{
    if (r >= 0 && r > needs[stream_of(w, r)]) needs[stream_of(w, r)] = r;
}

/* needs[s]: the latest run of stream s that conflicts. */
static void touch(walk *w, const run *q, int32_t v, bool writes, int32_t needs[TN_N_STREAMS])
{
    span s = span_of(w, v, writes, q->microbatch, q->chunk);
    int32_t self = (int32_t)w->n_runs;
    if (s.begin == s.end) return;
    int64_t begin = leaf_of(w, s.begin), end = leaf_of(w, s.end - 1) + 1;
    split(w, begin);
    split(w, end);
    for (int64_t i = begin; i < end; i = next_start(w, i, end)) {
        owners *o = &w->at[i];
        if (o->writer != self) need(w, o->writer, needs);
        for (int k = 0; writes && k < TN_N_STREAMS; k++)
            if (o->reader[k] != self) need(w, o->reader[k], needs);
        if (!writes) o->reader[w->p->entries[q->entry].stream] = self;
    }
    if (!writes) return;
    for (int64_t i = next_start(w, begin, end); i < end; i = next_start(w, i, end))
        w->starts[i / 64] &= ~((uint64_t)1 << i % 64);
    w->at[begin].writer = self;
    fill(w->at[begin].reader);
}

static tn_status add_event(walk *w, int32_t entry, int32_t after)
{
    TN_TRY(tn_grow((void **)&w->events, &w->cap_events, w->n_events + 1, sizeof *w->events));
    w->events[w->n_events].after = after;
    w->events[w->n_events].next = w->first_event[entry];
    w->first_event[entry] = (int32_t)w->n_events++;
    return TN_OK;
}

/* The latest first: no earlier one can imply it, and it may imply the others. */
static tn_status order(walk *w, run *q, int32_t v, bool writes, const int32_t *needs)
{
    for (;;) {
        int32_t worst = NONE;
        for (int s = 0; s < TN_N_STREAMS; s++)
            if (needs[s] > q->clock[s] && needs[s] > worst) worst = needs[s];
        if (worst == NONE) return TN_OK;
        if (!w->build) return unordered(w, q, v, writes, worst);
        TN_TRY(add_event(w, q->entry, w->runs[worst].entry));
        come_behind(w, q, worst);
    }
}

static tn_status run_entry(walk *w, int32_t entry, int32_t microbatch, int32_t chunk)
{
    const tn_graph *g = w->p->g;
    const tn_entry *e = &w->p->entries[entry];
    const tn_node *n = &g->nodes[e->node];
    int32_t needs[TN_N_STREAMS];
    run q = {.entry = entry, .microbatch = microbatch, .chunk = chunk};
    fill(needs);
    fill(q.clock);
    if (w->last[e->stream] >= 0) come_behind(w, &q, w->last[e->stream]);
    for (int32_t k = w->first_event[entry]; k >= 0; k = w->events[k].next)
        if (w->latest[w->events[k].after] >= 0) come_behind(w, &q, w->latest[w->events[k].after]);
    TN_TRY(tn_grow((void **)&w->runs, &w->cap_runs, w->n_runs + 1, sizeof *w->runs));
    w->runs[w->n_runs] = q;
    for (int i = 0; i < n->n_in; i++) {
        touch(w, &q, tn_node_in(g, n, i), false, needs);
        if (!w->build) TN_TRY(order(w, &q, tn_node_in(g, n, i), false, needs));
    }
    for (int i = 0; i < n->n_out; i++) {
        touch(w, &q, n->out0 + i, true, needs);
        if (!w->build) TN_TRY(order(w, &q, n->out0 + i, true, needs));
    }
    TN_TRY(order(w, &q, 0, true, needs));
    w->runs[w->n_runs] = q;
    w->latest[entry] = w->last[e->stream] = (int32_t)w->n_runs++;
    return TN_OK;
}

static tn_status run_range(void *user, int64_t begin, int64_t end, int64_t microbatch,
                           int64_t chunk)
{
    for (int64_t i = begin; i < end; i++)
        TN_TRY(run_entry(user, (int32_t)i, (int32_t)microbatch, (int32_t)chunk));
    return TN_OK;
}

static tn_status run_step(walk *w)
{
    int64_t chunks = w->p->g->n_chunks > 1 ? 2 : 1;
    return tn_program_walk(w->p, tn_program_microbatches_walked(w->p), chunks, run_range, w);
}

static tn_status begin_walk(walk *w)
{
    int64_t n = w->p->n_entries;
    TN_TRY(make_map(w));
    TN_TRY(take(w, n, sizeof *w->latest, &w->latest));
    TN_TRY(take(w, n, sizeof *w->first_event, &w->first_event));
    for (int64_t i = 0; i < n; i++) w->latest[i] = w->first_event[i] = NONE;
    for (int s = 0; s < TN_N_STREAMS; s++) w->last[s] = NONE;
    for (int64_t i = 0; !w->build && i < w->p->n_events; i++) {
        const tn_event *e = &w->p->events[i];
        if (e->entry < 0 || e->entry >= n || e->after < 0 || e->after >= n)
            TN_FAIL(TN_FAILED, "program: event %lld is between entries that are not there",
                    (long long)i);
        TN_TRY(add_event(w, e->entry, e->after));
    }
    return TN_OK;
}

static void end_walk(walk *w)
{
    tn_free(w->runs);
    tn_free(w->events);
    tn_free(w->border);
    tn_arena_fini(&w->arena);
}

static tn_status keep_events(walk *w)
{
    tn_program *p = w->build;
    void *mem;
    TN_TRY(tn_arena_alloc(&p->arena, (size_t)(w->n_events + 1) * sizeof(tn_event), &mem));
    p->events = mem;
    for (int32_t i = 0; i < p->n_entries; i++)
        for (int32_t k = w->first_event[i]; k >= 0; k = w->events[k].next)
            p->events[p->n_events++] = (tn_event){i, w->events[k].after};
    return TN_OK;
}

static bool one_stream(const tn_program *p)
{
    for (int64_t i = 1; i < p->n_entries; i++)
        if (p->entries[i].stream != p->entries[0].stream) return false;
    return true;
}

tn_status tn_events_build(tn_program *p)
{
    walk w = {.p = p, .build = p};
    p->n_events = 0;
    if (one_stream(p)) return TN_OK;
    tn_status st = begin_walk(&w);
    for (int step = 0; step < 2 && !st; step++) st = run_step(&w);
    if (!st) st = keep_events(&w);
    end_walk(&w);
    return st;
}

tn_status tn_events_check(const tn_program *p)
{
    walk w = {.p = p};
    if (one_stream(p)) return TN_OK;
    tn_status st = begin_walk(&w);
    for (int step = 0; step < 2 && !st; step++) st = run_step(&w);
    end_walk(&w);
    return st;
}
