/* test_events.c - streams and events. The definition is plain: two whole steps with every
 * iteration, every pair of runs that touch the same bytes, and whether a way of streams and events
 * leads from the earlier to the later one. What the library builds must be enough and little more,
 * and what it checks must agree, on programs as built and on damaged ones. */
#include "graph/events.h"
#include "tests/programs.h"

#include <stdlib.h>

typedef struct range {
    int64_t begin, end; /* bytes; regions far apart */
    bool writes;
} range;

enum { MAX_RANGES = 24 };

typedef struct plain_run {
    int32_t entry;
    int n;
    range touched[MAX_RANGES];
} plain_run;

typedef struct plain {
    const tn_program *p;
    plain_run *runs;
    int64_t n, words;
    uint64_t *before; /* by run: the runs that are over when it starts */
} plain;

static void touch(plain *q, plain_run *r, int32_t v, bool writes, int64_t mb, int64_t chunk)
{
    const tn_place *at = &q->p->places[v];
    const tn_value *x = &q->p->local[v];
    int64_t bytes = tn_value_elements(x) * tn_dtype_bytes((tn_dtype)x->dtype);
    int64_t begin = ((int64_t)at->region << 40) + at->offset + mb * at->microbatch_stride +
                    chunk * at->chunk_stride;
    if (!bytes || !TN_CHECK(r->n < MAX_RANGES)) return;
    if (writes && x->carried && x->levels > 1) bytes += (x->levels - 1) * at->level_bytes;
    r->touched[r->n++] = (range){begin, begin + bytes, writes};
}

static void plain_range(plain *q, int64_t begin, int64_t end, int64_t mb, int64_t chunk)
{
    const tn_graph *g = q->p->g;
    for (int64_t i = begin; i < end; i++) {
        const tn_node *n = &g->nodes[q->p->entries[i].node];
        plain_run *r = &q->runs[q->n++];
        r->entry = (int32_t)i;
        for (int k = 0; k < n->n_in; k++) touch(q, r, tn_node_in(g, n, k), false, mb, chunk);
        for (int k = 0; k < n->n_out; k++) touch(q, r, n->out0 + k, true, mb, chunk);
    }
}

static bool plain_begin(plain *q, const tn_program *p)
{
    int64_t n = p->n_entries * (1 + p->g->n_microbatches * (1 + p->g->n_chunks)) * 2;
    *q = (plain){.p = p};
    q->runs = calloc((size_t)n, sizeof *q->runs);
    if (!TN_CHECK(q->runs)) return false;
    for (int step = 0; step < 2; step++) {
        plain_range(q, 0, p->microbatch, 0, 0);
        for (int64_t m = 0; m < p->g->n_microbatches; m++) {
            plain_range(q, p->microbatch, p->chunk, m, 0);
            for (int64_t c = 0; c < p->g->n_chunks; c++)
                plain_range(q, p->chunk, p->chunk_end, m, c);
            plain_range(q, p->chunk_end, p->tail, m, 0);
        }
        plain_range(q, p->tail, p->n_entries, 0, 0);
    }
    q->words = q->n / 64 + 1;
    q->before = calloc((size_t)(q->n * q->words), sizeof *q->before);
    return TN_CHECK(q->before);
}

static void plain_end(plain *q)
{
    free(q->runs);
    free(q->before);
}

static void behind(plain *q, int64_t run, int64_t other)
{
    uint64_t *a = q->before + run * q->words, *b = q->before + other * q->words;
    for (int64_t i = 0; i < q->words; i++) a[i] |= b[i];
    a[other / 64] |= (uint64_t)1 << other % 64;
}

static bool conflict(const plain_run *a, const plain_run *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if ((a->touched[i].writes || b->touched[k].writes) &&
                a->touched[i].begin < b->touched[k].end && b->touched[k].begin < a->touched[i].end)
                return true;
    return false;
}

/* All conflicts of the runs are ordered by the program's streams and events. */
static bool plain_ordered(plain *q)
{
    const tn_program *p = q->p;
    int64_t *latest = malloc((size_t)p->n_entries * sizeof *latest), last[TN_N_STREAMS];
    bool ordered = true;
    if (!TN_CHECK(latest)) return false;
    for (int64_t i = 0; i < p->n_entries; i++) latest[i] = -1;
    for (int s = 0; s < TN_N_STREAMS; s++) last[s] = -1;
    memset(q->before, 0, (size_t)(q->n * q->words) * sizeof *q->before);
    for (int64_t r = 0; r < q->n && ordered; r++) {
        int32_t entry = q->runs[r].entry;
        int stream = p->entries[entry].stream;
        if (last[stream] >= 0) behind(q, r, last[stream]);
        for (int64_t e = 0; e < p->n_events; e++)
            if (p->events[e].entry == entry && latest[p->events[e].after] >= 0)
                behind(q, r, latest[p->events[e].after]);
        for (int64_t o = 0; o < r && ordered; o++)
            if (!(q->before[r * q->words + o / 64] >> o % 64 & 1) &&
                conflict(&q->runs[o], &q->runs[r]))
                ordered = false;
        latest[entry] = last[stream] = r;
    }
    free(latest);
    return ordered;
}

static const char *const degrees[][3] = {
    {"parallelism.data_parallel_shard_degree=2"},
    {"parallelism.tensor_parallel_degree=2"},
    {"parallelism.tensor_parallel_degree=2", "parallelism.data_parallel_shard_degree=2"},
    {"parallelism.data_parallel_shard_degree=2", "parallelism.fsdp_reshard_after_forward=never"}};
static const int worlds[] = {2, 2, 4, 2};

static wanted layout(int k, const char *mode, const char *batch)
{
    wanted w = {.recipe = tiny_recipe,
                .world = worlds[k],
                .overrides = {mode, batch, "model.n_layers=2", "model.dim=16", "model.n_heads=2",
                              "model.n_kv_heads=1"}};
    for (int d = 0; d < 3 && degrees[k][d]; d++) w.overrides[6 + d] = degrees[k][d];
    return w;
}

static void drop_each(tn_program *p, plain *q)
{
    int64_t n = p->n_events, harmful = 0, stricter = 0;
    for (int64_t i = 0; i < n; i++) {
        tn_event kept = p->events[i];
        p->events[i] = p->events[n - 1];
        p->n_events = n - 1;
        bool ordered = plain_ordered(q);
        tn_status st = tn_events_check(p);
        const char *said = tn_error_text();
        TN_CHECK_MSG(ordered || st, "without event %d->%d: plainly %s, the check says '%s'",
                     kept.after, kept.entry, ordered ? "ordered" : "not", st ? said : "ordered");
        if (st)
            TN_CHECK_MSG(st == TN_FAILED && strstr(said, "program: ") &&
                             strstr(said, "nothing orders entry"),
                         "'%s'", said);
        harmful += !ordered;
        stricter += ordered && st; /* pieces of a loop are one from the second on */
        tn_error_clear();
        p->n_events = n;
        p->events[i] = kept;
    }
    TN_CHECK_MSG(stricter <= 1 + n / 50, "%lld of %lld events are needed only by the check",
                 (long long)stricter, (long long)n);
    TN_CHECK_MSG(harmful >= n - n / 20, "only %lld of %lld events are needed", (long long)harmful,
                 (long long)n);
}

/* Other entries at the same events and places. */
static void swap_entries(tn_program *p)
{
    int64_t harmful = 0;
    for (int64_t i = 0; i + 1 < p->n_entries; i++)
        for (int64_t k = i + 1; k < p->n_entries && k < i + 30; k += 1 + 3 * (k - i)) {
            plain q;
            tn_entry a = p->entries[i];
            p->entries[i] = p->entries[k];
            p->entries[k] = a;
            if (!plain_begin(&q, p)) return;
            bool ordered = plain_ordered(&q);
            tn_status st = tn_events_check(p);
            TN_CHECK_MSG(ordered || st, "entries %lld and %lld: plainly %s, '%s'", (long long)i,
                         (long long)k, ordered ? "ordered" : "not", tn_error_text());
            tn_error_clear();
            harmful += !ordered;
            plain_end(&q);
            p->entries[k] = p->entries[i];
            p->entries[i] = a;
        }
    TN_CHECK(harmful > 20);
}

static void built_programs(void)
{
    static const char *const modes[] = {"activation_checkpoint.mode=none",
                                        "activation_checkpoint.mode=full",
                                        "activation_checkpoint.mode=selective"};
    static const char *const batches[] = {"training.global_batch_size=12",
                                          "training.global_batch_size=36"};
    for (int i = 0; i < 4 * 3 * 2; i++) {
        wanted w = layout(i % 4, modes[i / 4 % 3], batches[i / 12]);
        tn_program *p;
        plain q;
        w.rank = w.world - 1;
        if (!TN_CHECK_OK(build_program(&w, &p))) return;
        TN_CHECK_OK(tn_program_verify(p));
        TN_CHECK(p->n_events > 0);
        for (int64_t e = 0; e < p->n_events; e++) {
            const tn_event *v = &p->events[e];
            TN_CHECK(p->entries[v->entry].stream != p->entries[v->after].stream &&
                     (!e || p->events[e - 1].entry <= v->entry));
        }
        if (plain_begin(&q, p)) {
            TN_CHECK_MSG(plain_ordered(&q), "layout %d, %s: an unordered pair", i % 4,
                         modes[i / 4 % 3]);
            if (i / 4 == 4 || i / 4 == 0) drop_each(p, &q);
        }
        plain_end(&q);
        if (i == 12) swap_entries(p);
        tn_program_destroy(p);
    }
}

/* One stream needs none; an event between entries that are not there is refused. */
static void few_events(void)
{
    wanted w = {.recipe = tiny_recipe};
    tn_program *p;
    if (!TN_CHECK_OK(build_program(&w, &p))) return;
    TN_CHECK(p->n_events == 0);
    TN_CHECK_OK(tn_events_check(p));
    tn_program_destroy(p);
    w = layout(0, "activation_checkpoint.mode=none", "training.global_batch_size=12");
    if (!TN_CHECK_OK(build_program(&w, &p))) return;
    p->events[0].after = (int32_t)p->n_entries;
    TN_CHECK_FAILS(tn_events_check(p), TN_FAILED, "program: event 0 is between entries");
    tn_program_destroy(p);
    TN_CHECK_TEXT(tn_events_stream(TN_STREAM_GATHER), "gather");
}

static tn_status build_once(void *arg)
{
    tn_program **p = arg;
    (*p)->n_events = 0;
    TN_TRY(tn_events_build(*p));
    return tn_events_check(*p);
}

int main(void)
{
    built_programs();
    few_events();
    wanted w = layout(2, "activation_checkpoint.mode=none", "training.global_batch_size=12");
    tn_program *p;
    if (TN_CHECK_OK(build_program(&w, &p))) {
        TN_CHECK(tn_test_each_alloc(build_once, &p) > 4);
        tn_program_destroy(p);
    }
    return tn_test_done("events");
}
