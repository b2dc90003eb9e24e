/* data_stream.c - samples from text that is tokenised while training reads it.
 *
 * NOTES ON STREAMS
 * (1) The tokens of an epoch are those that a token file would hold, and sample n is the same
 * window of them (data_text.c). How many there are is known when the end was seen once; until then
 * the first epoch is assumed to go on, which is true of every sample it has. (2) Windows come in
 * blocks of W samples, W a function of seq_len alone. A block is in memory as a whole, the next one
 * is made by a thread of its own meanwhile. Shuffled, block b of epoch e is permuted by Philox
 * (seed, e, b): so a row is still a function of (files, seed, sample) and nothing else, at the
 * price that samples do not leave their block. (3) Going back, or far ahead when a run is resumed,
 * reopens the reader at the last bookmark before the block and tokenises up to it; bookmarks are
 * kept every few million tokens, in memory.
 *
 * Refused: a held-out share (the last documents are not known) and steps beyond epochs = N, which
 * nobody can know before: the run ends with one line when it happens. */
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/data_built.h"
#include "engine/mixture.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifdef TN_HOSTILE
#define BLOCK_TOKENS ((int64_t)1 << 15)
#define MARK_TOKENS 10000
#else
#define BLOCK_TOKENS ((int64_t)1 << 19)
#define MARK_TOKENS ((int64_t)4 << 20)
#endif
enum { MAX_BLOCK_SAMPLES = 1024, MESSAGE_BYTES = 1024 };

typedef struct block {
    int64_t number; /* -1: none */
    int32_t *ids;   /* [block_tokens + 1]: a block ends with the token that begins the next */
    int64_t n;
    void *starts; /* int64 [n_starts]: where in ids documents start */
    int64_t n_starts, starts_capacity;
    tn_status st;
    char message[MESSAGE_BYTES];
} block;

typedef struct mark {
    tn_bookmark at;
    int64_t token;
} mark;

typedef struct lane {
    struct stream *stream;
    tn_paths sources;
    tn_rng order;
    block now, next;
    bool loading; /* a thread fills `next` and owns everything below */
    pthread_t loader;
    tn_tokenise *reader;
    tn_run run;                       /* of the reader, used up to run_at, starts up to run_start */
    int64_t run_at, run_start, token; /* token: of the epoch, the next one */
    _Atomic int64_t total;            /* tokens of an epoch; -1: not seen yet */
    void *marks;
    int64_t n_marks, marks_capacity;
} lane;

typedef struct stream {
    lane *lanes;
    int64_t n_lanes;
    tn_mixture mixture;
    tn_documents_rule rule;
    tn_codec *codec;
    tn_arena arena; /* texts of the rule */
    pthread_mutex_t lock;
    int64_t seq_len, block_samples, block_tokens, epochs;
    int threads;
    bool shuffle, by_document;
} stream;

/* ------------------------------------------------------------ reading ahead */

static tn_status add_mark(lane *l, tn_bookmark at)
{
    mark *last = l->n_marks ? (mark *)l->marks + l->n_marks - 1 : NULL;
    if (last && l->token < last->token + MARK_TOKENS) return TN_OK;
    TN_TRY(tn_grow(&l->marks, &l->marks_capacity, l->n_marks + 1, sizeof *last));
    ((mark *)l->marks)[l->n_marks++] = (mark){at, l->token};
    return TN_OK;
}

/* The last mark up to `token`: the beginning if there is none. */
static mark find_mark(const lane *l, int64_t token)
{
    const mark *marks = l->marks;
    int64_t i = l->n_marks - 1;
    while (i >= 0 && marks[i].token > token) i--;
    return i >= 0 ? marks[i] : (mark){0};
}

/* Behind this the reader stands at `token` or before it, as near as a mark brings it. */
static tn_status approach(lane *l, int64_t token)
{
    mark m = find_mark(l, token);
    if (l->reader && l->token <= token && m.token <= l->token) return TN_OK;
    tn_tokenise_options o = {.paths = &l->sources,
                             .rule = l->stream->rule,
                             .codec = l->stream->codec,
                             .from = m.at,
                             .threads = l->stream->threads};
    tn_tokenise_close(l->reader);
    l->reader = NULL;
    l->token = m.token;
    l->run = (tn_run){0};
    l->run_at = l->run_start = 0;
    return tn_tokenise_open(&o, &l->reader);
}

/* The next stretch of tokens, at least one unless the epoch is over (*n = 0); nothing is used up.
 */
static tn_status look(lane *l, int64_t *n)
{
    while (l->run_at == l->run.n && !l->run.ended) {
        if (l->run.n) TN_TRY(add_mark(l, l->run.end));
        l->run_at = l->run_start = 0;
        TN_TRY(tn_tokenise_next(l->reader, &l->run));
    }
    *n = l->run.n - l->run_at;
    if (l->run.ended) l->total = l->token;
    return TN_OK;
}

/* Uses up n tokens; to: NULL, or the block that takes them. */
static tn_status take(lane *l, int64_t n, block *to)
{
    int64_t end = l->run_at + n;
    for (; l->run_start < l->run.n_starts && l->run.starts[l->run_start] < end; l->run_start++) {
        if (!to) continue;
        TN_TRY(tn_grow(&to->starts, &to->starts_capacity, to->n_starts + 1, sizeof(int64_t)));
        ((int64_t *)to->starts)[to->n_starts++] = to->n + l->run.starts[l->run_start] - l->run_at;
    }
    if (to) {
        memcpy(to->ids + to->n, l->run.ids + l->run_at, (size_t)n * sizeof *to->ids);
        to->n += n;
    }
    l->run_at = end;
    l->token += n;
    return TN_OK;
}

/* Fills `to` with block `number`, whose first `to->n` tokens are there already. */
static tn_status fill(lane *l, block *to)
{
    const stream *q = l->stream;
    int64_t first = to->number * q->block_tokens, n;
    TN_TRY(approach(l, first + to->n));
    for (;;) { /* on the way to it */
        TN_TRY(look(l, &n));
        if (!n) return TN_OK;
        if (l->token == first + to->n) break;
        TN_TRY(take(l, n < first - l->token ? n : first - l->token, NULL));
    }
    while (to->n <= q->block_tokens) {
        TN_TRY(look(l, &n));
        if (!n) break;
        int64_t room = q->block_tokens + 1 - to->n;
        TN_TRY(take(l, n < room ? n : room, to));
    }
    return TN_OK;
}

static void load(lane *l, block *to)
{
    to->st = fill(l, to);
    if (!to->st) return;
    tn_error_take(to->message, sizeof to->message);
    tn_error_clear();
}

static void *run_loader(void *arg)
{
    lane *l = arg;
    load(l, &l->next);
    return NULL;
}

static void finish_loading(lane *l)
{
    if (l->loading) pthread_join(l->loader, NULL);
    l->loading = false;
}

static void begin_block(block *b, int64_t number)
{
    b->number = number;
    b->n = b->n_starts = 0;
    b->st = TN_OK;
}

/* The block behind `now` begins with its last token. Without a thread it is made when it is asked
 * for. */
static void load_ahead(lane *l)
{
    const block *now = &l->now;
    block *next = &l->next;
    if (now->st || now->n <= l->stream->block_tokens) return;
    begin_block(next, now->number + 1);
    next->ids[next->n++] = now->ids[now->n - 1];
    l->loading = pthread_create(&l->loader, NULL, run_loader, l) == 0;
    if (!l->loading) next->number = -1;
}

static tn_status get_block(lane *l, int64_t number)
{
    if (l->now.number != number) {
        finish_loading(l);
        block other = l->now;
        l->now = l->next;
        l->next = other;
        if (l->now.number != number) {
            begin_block(&l->now, number);
            load(l, &l->now);
        }
        l->next.number = -1;
        load_ahead(l);
    }
    if (!l->now.st) return TN_OK;
    l->now.number = -1;
    return tn_error_give(l->now.st, l->now.message);
}

/* ------------------------------------------------------------ samples */

static tn_status too_short(const stream *q, const lane *l)
{
    TN_FAIL(
        TN_BAD_INPUT,
        "%s.path: '%s' holds %lld tokens, fewer than one sample of training.seq_len + 1 = %lld; "
        "use more text or a smaller seq_len",
        q->rule.section, l->sources.items[0].name, (long long)l->total, (long long)q->seq_len + 1);
}

/* The lane's nth sample: where it lies in the block that is then loaded. */
static tn_status find_sample(stream *q, lane *l, int64_t nth, int64_t *first)
{
    for (;;) {
        int64_t total = l->total; /* (1); the loader may just be seeing the end */
        int64_t n = total < 0 ? INT64_MAX : total > q->seq_len ? (total - 1) / q->seq_len : 0;
        if (!n) return too_short(q, l);
        int64_t epoch = nth / n, place = nth % n;
        if (q->epochs && epoch >= q->epochs)
            TN_FAIL(TN_BAD_INPUT,
                    "%s.epochs: all %lld samples were seen %lld times; use fewer training.steps or "
                    "more epochs",
                    q->rule.section, (long long)n, (long long)q->epochs);
        int64_t number = place / q->block_samples, at = place % q->block_samples;
        TN_TRY(get_block(l, number));
        int64_t there = (l->now.n - 1) / q->seq_len;
        if (there > q->block_samples) there = q->block_samples;
        if (at >= there) continue; /* (1): the end was seen */
        if (q->shuffle) {
            tn_rng order = l->order;
            order.stream = (uint64_t)epoch << 32 | (uint64_t)number;
            at = (int64_t)tn_rng_permute(order, (uint64_t)there, (uint64_t)at);
        }
        *first = at * q->seq_len;
        return TN_OK;
    }
}

static int64_t next_start(const block *b, int64_t at, int64_t end)
{
    const int64_t *starts = b->starts;
    int64_t low = 0, high = b->n_starts; /* the first start > at is in [low, high] */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (starts[middle] > at) high = middle;
        else low = middle + 1;
    }
    return low < b->n_starts && starts[low] < end ? starts[low] : end;
}

static void mark_documents(const block *b, int64_t first, int64_t seq_len, const tn_data_row *out)
{
    int64_t end = first + seq_len;
    int32_t document = 0;
    for (int64_t at = first, next; at < end; at = next, document++) {
        next = next_start(b, at, end + 1);
        for (int64_t i = at; i < next && i < end; i++) {
            if (out->positions_s) out->positions_s[i - first] = (int32_t)(i - at);
            if (out->documents_s) out->documents_s[i - first] = document;
        }
        if (out->labels_s && next <= end) out->labels_s[next - 1 - first] = TN_DATA_NO_TARGET;
    }
}

static tn_status read_row(stream *q, int64_t sample, const tn_data_row *out)
{
    int64_t k, nth, first = 0;
    size_t bytes = (size_t)q->seq_len * sizeof(int32_t);
    tn_mixture_find(&q->mixture, sample, &k, &nth);
    TN_TRY(find_sample(q, &q->lanes[k], nth, &first));
    const block *b = &q->lanes[k].now;
    if (out->ids_s) memcpy(out->ids_s, b->ids + first, bytes);
    if (out->labels_s) memcpy(out->labels_s, b->ids + first + 1, bytes);
    if (q->by_document) mark_documents(b, first, q->seq_len, out);
    else tn_data_plain(out, q->seq_len);
    return TN_OK;
}

static tn_status stream_row(void *state, tn_data_split split, int64_t sample,
                            const tn_data_row *out)
{
    stream *q = state;
    (void)split; /* there is only training */
    pthread_mutex_lock(&q->lock);
    tn_status st = read_row(q, sample, out);
    pthread_mutex_unlock(&q->lock);
    return st;
}

/* ------------------------------------------------------------ opening */

static void close_lane(lane *l)
{
    finish_loading(l);
    tn_tokenise_close(l->reader);
    tn_free(l->now.ids);
    tn_free(l->now.starts);
    tn_free(l->next.ids);
    tn_free(l->next.starts);
    tn_free(l->marks);
    tn_paths_fini(&l->sources);
}

static void close_stream(void *state)
{
    stream *q = state;
    if (!q) return;
    for (int64_t k = 0; q->lanes && k < q->n_lanes; k++) close_lane(&q->lanes[k]);
    tn_free(q->lanes);
    tn_mixture_fini(&q->mixture);
    tn_codec_close(q->codec);
    tn_arena_fini(&q->arena);
    pthread_mutex_destroy(&q->lock);
    tn_free(q);
}

static tn_status new_block(const stream *q, block *b)
{
    void *mem;
    TN_TRY(tn_alloc((size_t)(q->block_tokens + 1) * sizeof *b->ids, &mem));
    b->ids = mem;
    b->number = -1;
    return tn_grow(&b->starts, &b->starts_capacity, 64, sizeof(int64_t));
}

static tn_status open_lane(const tn_data_options *o, stream *q, int64_t k)
{
    lane *l = &q->lanes[k];
    char name[40];
    snprintf(name, sizeof name, "data.shuffle.%lld", (long long)k);
    l->order = tn_rng_make(o->seed, name, 0);
    l->stream = q;
    l->total = -1;
    TN_TRY(tn_paths_find(o->section, o->paths + k, q->n_lanes > 1 ? 1 : o->n_paths, &l->sources));
    TN_TRY(new_block(q, &l->now));
    return new_block(q, &l->next);
}

static tn_status open_lanes(const tn_data_options *o, stream *q)
{
    void *mem;
    TN_TRY(tn_data_mix(o, &q->mixture));
    TN_TRY(tn_alloc((size_t)q->mixture.n * sizeof *q->lanes, &mem));
    q->lanes = mem;
    q->n_lanes = q->mixture.n;
    TN_TRY(tn_data_built_rule(o, &q->rule));
    TN_TRY(tn_arena_text(&q->arena, q->rule.section, &q->rule.section));
    TN_TRY(tn_arena_text(&q->arena, q->rule.field, &q->rule.field));
    TN_TRY(tn_codec_open(o->section, o->tokenizer, o->end_token, &q->codec));
    TN_TRY(tn_data_built_fits(o, q->codec));
    if (tn_codec_size(q->codec) > o->vocab_size)
        TN_FAIL(TN_BAD_INPUT,
                "%s.mode: 'stream' needs model.vocab_size = %lld for bytes; set it, or "
                "use built",
                o->section, (long long)tn_codec_size(q->codec));
    for (int64_t k = 0; k < q->n_lanes; k++) TN_TRY(open_lane(o, q, k));
    return TN_OK;
}

static tn_status open_stream(const tn_data_options *o, void **state, tn_data_info *info,
                             int64_t end[TN_DATA_N_SPLITS])
{
    static const char *const packings[] = {"stream", "documents"};
    int packing;
    void *mem;
    TN_TRY(tn_data_choose(o, "packing", o->packing, packings, TN_COUNT(packings), &packing));
    TN_TRY(
        tn_data_refuse(o, "validation", o->validation != 0,
                       "mode = \"stream\" does not know the last documents: use validation.data, "
                       "or mode = \"built\""));
    TN_TRY(tn_alloc(sizeof(stream), &mem));
    stream *q = mem;
    pthread_mutex_init(&q->lock, NULL);
    q->seq_len = o->seq_len;
    q->block_samples = BLOCK_TOKENS / o->seq_len;
    if (q->block_samples > MAX_BLOCK_SAMPLES) q->block_samples = MAX_BLOCK_SAMPLES;
    if (q->block_samples < 1) q->block_samples = 1;
    q->block_tokens = q->block_samples * o->seq_len;
    q->epochs = o->epochs;
    q->threads = o->threads > 1 ? o->threads / 2 : 1; /* the rest trains */
    q->shuffle = o->shuffle;
    q->by_document = packing == 1;
    tn_status st = open_lanes(o, q);
    if (st) {
        close_stream(q);
        return st;
    }
    for (int64_t k = 0; k < q->n_lanes; k++) info->files += q->lanes[k].sources.n;
    info->mapped_bytes = (int64_t)16 << 20; /* about what blocks and chunks take */
    info->documents[TN_DATA_TRAIN] = info->documents[TN_DATA_VALIDATION] = -1;
    end[TN_DATA_TRAIN] = INT64_MAX;
    end[TN_DATA_VALIDATION] = 0;
    *state = q;
    return TN_OK;
}

const tn_data_source tn_data_stream = {
    .name = "stream", .open = open_stream, .close = close_stream, .row = stream_row};
