#include "engine/tokenise.h"

#include "engine/base/mem.h"
#include "engine/base/pool.h"

#include <assert.h>

/* A chunk is long enough that handing it out costs nothing, and short enough that a first batch is
 * there at once. */
#ifdef TN_HOSTILE
enum { CHUNK_BYTES = 40, CHUNKS_PER_THREAD = 2 };
#else
enum { CHUNK_BYTES = 1 << 18, CHUNKS_PER_THREAD = 3 };
#endif
enum { MESSAGE_BYTES = 1024 };

typedef struct work {
    tn_chunk chunk;
    tn_ids ids;
    void *starts; /* int64 */
    int64_t n_starts, starts_capacity;
    tn_status st; /* of reading or of encoding it */
    char message[MESSAGE_BYTES];
} work;

/* While one round is tokenised the other one is read. */
typedef struct round {
    work *works;
    int64_t n; /* chunks read */
} round;

struct tn_tokenise {
    tn_documents *documents;
    tn_codec_worker **workers; /* [threads] */
    tn_pool *pool;
    int threads;
    int64_t n_works;
    round rounds[2], *now, *next;
    int64_t at; /* of now: the chunk that is handed out next */
    bool all_read;
};

/* ------------------------------------------------------------ opening */

static tn_status open_parts(const tn_tokenise_options *o, tn_tokenise *t)
{
    void *mem;
    t->threads = o->threads > 0 ? o->threads : tn_pool_cores();
    t->n_works = (int64_t)t->threads * CHUNKS_PER_THREAD;
    TN_TRY(tn_alloc((size_t)t->threads * sizeof *t->workers, &mem));
    t->workers = mem;
    for (int i = 0; i < t->threads; i++) TN_TRY(tn_codec_worker_open(o->codec, &t->workers[i]));
    for (int r = 0; r < 2; r++) {
        TN_TRY(tn_alloc((size_t)t->n_works * sizeof(work), &mem));
        t->rounds[r].works = mem;
    }
    t->now = &t->rounds[0];
    t->next = &t->rounds[1];
    TN_TRY(tn_documents_open(o->paths, &o->rule, &o->from, &t->documents));
    return tn_pool_create(t->threads, &t->pool);
}

tn_status tn_tokenise_open(const tn_tokenise_options *o, tn_tokenise **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_tokenise), &mem));
    tn_tokenise *t = mem;
    tn_status st = open_parts(o, t);
    if (st) {
        tn_tokenise_close(t);
        return st;
    }
    *out = t;
    return TN_OK;
}

static void free_work(work *w)
{
    tn_chunk_fini(&w->chunk);
    tn_ids_fini(&w->ids);
    tn_free(w->starts);
}

void tn_tokenise_close(tn_tokenise *t)
{
    if (!t) return;
    tn_pool_destroy(t->pool);
    tn_documents_close(t->documents);
    for (int r = 0; r < 2; r++) {
        for (int64_t i = 0; t->rounds[r].works && i < t->n_works; i++)
            free_work(&t->rounds[r].works[i]);
        tn_free(t->rounds[r].works);
    }
    for (int i = 0; t->workers && i < t->threads; i++) tn_codec_worker_close(t->workers[i]);
    tn_free(t->workers);
    tn_free(t);
}

/* ------------------------------------------------------------ rounds */

/* A failure belongs to its chunk: it is told when the chunks before it have been handed out. */
static void keep_failure(work *w, tn_status st)
{
    w->st = st;
    if (st) tn_error_take(w->message, sizeof w->message);
    tn_error_clear();
}

static void read_round(tn_tokenise *t, round *r)
{
    r->n = 0;
    while (r->n < t->n_works && !t->all_read) {
        work *w = &r->works[r->n];
        keep_failure(w, tn_documents_read(t->documents, CHUNK_BYTES, &w->chunk));
        t->all_read = w->st || !w->chunk.n_pieces;
        if (w->st || w->chunk.n_pieces) r->n++;
    }
}

static tn_status add_start(work *w)
{
    TN_TRY(tn_grow(&w->starts, &w->starts_capacity, w->n_starts + 1, sizeof(int64_t)));
    ((int64_t *)w->starts)[w->n_starts++] = w->ids.n;
    return TN_OK;
}

static tn_status encode(work *w, tn_codec_worker *worker)
{
    const char *text = tn_chunk_text(&w->chunk);
    const tn_piece *pieces = tn_chunk_pieces(&w->chunk);
    w->ids.n = w->n_starts = 0;
    for (int64_t i = 0; i < w->chunk.n_pieces; i++) {
        if (pieces[i].first) TN_TRY(add_start(w));
        TN_TRY(
            tn_codec_encode(worker, text, pieces[i].n, pieces[i].first, pieces[i].last, &w->ids));
        text += pieces[i].n;
    }
    return TN_OK;
}

static void run_tile(void *arg, int64_t tile, int thread)
{
    tn_tokenise *t = arg;
    if (tile == 0) {
        read_round(t, t->next);
        return;
    }
    work *w = &t->now->works[tile - 1];
    if (!w->st) keep_failure(w, encode(w, t->workers[thread]));
}

static void do_round(tn_tokenise *t)
{
    round *r = t->now;
    t->now = t->next;
    t->next = r;
    t->at = 0;
    tn_pool_run(t->pool, t->now->n + 1, run_tile, t);
}

tn_status tn_tokenise_next(tn_tokenise *t, tn_run *out)
{
    while (t->at == t->now->n) {
        if (t->all_read && !t->next->n) {
            *out = (tn_run){.ended = true};
            return TN_OK;
        }
        do_round(t);
    }
    work *w = &t->now->works[t->at];
    if (w->st) return tn_error_give(w->st, w->message);
    t->at++;
    *out = (tn_run){.ids = w->ids.items,
                    .n = w->ids.n,
                    .starts = w->starts,
                    .n_starts = w->n_starts,
                    .end = w->chunk.end,
                    .taken_bytes = w->chunk.taken_bytes};
    return TN_OK;
}
