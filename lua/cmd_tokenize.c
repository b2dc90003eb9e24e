/* cmd_tokenize.c - `titan tokenize`: lines of text to lines of ids and back.
 *
 * Reading, working and writing take turns over batches of a few MiB; a batch is cut into tiles of
 * whole lines, which the threads share, and their answers are written in order. So memory depends
 * on the longest line and not on the input. With --whole a file is mapped and its ids are written
 * as they come. */
#include "engine/base/json.h"
#include "engine/base/jsonout.h"
#include "engine/base/map.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/base/text.h"
#include "engine/encoder.h"
#include "engine/tokenizer.h"
#include "lua/commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BATCH_BYTES = 4 << 20, TILE_BYTES = 64 << 10, WHERE_BYTES = 512, ERROR_BYTES = 4096 };

/* Whole lines and what they became. */
typedef struct tile {
    int64_t begin, end, line; /* of the batch; number of the first line */
    tn_text out;
    tn_status st;
    char error[ERROR_BYTES];
} tile;

typedef struct worker {
    tn_encoder *encoder;
    tn_ids ids;
    tn_text text;
} worker;

typedef struct job {
    const tn_args *a;
    tn_tokenizer *t;
    tn_pool *pool;
    worker *workers;
    const char *name; /* of the input */
    char *batch;
    int64_t n, capacity, line;
    tile *tiles;
    int64_t n_tiles, tiles_capacity;
    tn_text part;       /* of --whole: what is being written */
    bool begun, closed; /* ids of this text were written; nobody reads the output any more */
} job;

/* ------------------------------------------------------------ one text */

static void write_ids(const int32_t *ids, int64_t n_ids, const char *between, tn_text *out)
{
    char buffer[1024];
    size_t used = 0, gap = strlen(between);
    for (int64_t i = 0; i < n_ids; i++) {
        char digits[16];
        int n = 0;
        for (int32_t id = ids[i]; n == 0 || id > 0; id /= 10) digits[n++] = (char)('0' + id % 10);
        if (i) {
            memcpy(buffer + used, between, gap);
            used += gap;
        }
        while (n > 0) buffer[used++] = digits[--n];
        if (used < sizeof buffer - 32) continue;
        tn_text_put(out, buffer, used);
        used = 0;
    }
    tn_text_put(out, buffer, used);
}

static int flags_of(const tn_args *a)
{
    return (a->special ? TN_ENCODE_TEMPLATE : 0) | (a->literal ? TN_ENCODE_LITERAL : 0);
}

static tn_status encode(const job *j, worker *w, const char *text, int64_t n, tn_text *out)
{
    w->ids.n = 0;
    TN_TRY(tn_encoder_encode(w->encoder, text, n, flags_of(j->a), &w->ids));
    if (j->a->jsonl) tn_text_put(out, "{\"ids\": [", 9);
    write_ids(w->ids.items, w->ids.n, j->a->jsonl ? ", " : " ", out);
    tn_text_put(out, "]}\n" + (j->a->jsonl ? 0 : 2), j->a->jsonl ? 3 : 1);
    return TN_OK;
}

static tn_status decode(const job *j, worker *w, tn_text *out)
{
    tn_jsonout json = {.text = out};
    tn_text_cut(&w->text, 0);
    TN_TRY(tn_tokenizer_decode(j->t, w->ids.items, w->ids.n, j->a->skip_special, &w->text));
    if (j->a->jsonl) {
        tn_jsonout_open(&json, NULL, '{');
        tn_jsonout_bytes(&json, "text", tn_text_str(&w->text), w->text.n_bytes);
        tn_jsonout_close(&json);
    } else {
        tn_text_put(out, tn_text_str(&w->text), (size_t)w->text.n_bytes);
    }
    tn_text_put(out, "\n", 1);
    return TN_OK;
}

static tn_status put_id(worker *w, int64_t id, const char *where)
{
    if (id < 0 || id > INT32_MAX)
        TN_FAIL(TN_BAD_INPUT, "%s: %lld is no id; ids go from 0 to %d", where, (long long)id,
                INT32_MAX);
    TN_TRY(tn_ids_grow(&w->ids, 1));
    w->ids.items[w->ids.n++] = (int32_t)id;
    return TN_OK;
}

/* "12 34 56"; commas and tabs are fine, too. */
static tn_status read_ids(worker *w, const char *text, int64_t n, const char *where)
{
    w->ids.n = 0;
    for (int64_t i = 0; i < n;) {
        if (memchr(" \t,\r\n", text[i], 5)) {
            i++;
            continue;
        }
        int64_t id = 0, first = i;
        for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) {
            if (id <= INT32_MAX) id = id * 10 + (text[i] - '0');
        }
        if (first == i)
            TN_FAIL(TN_BAD_INPUT,
                    "%s: byte %lld is no digit; --decode reads ids with blanks "
                    "between",
                    where, (long long)i);
        TN_TRY(put_id(w, id, where));
    }
    return TN_OK;
}

static tn_status read_json_ids(worker *w, const tn_json *list, const char *where)
{
    w->ids.n = 0;
    if (tn_json_kind_of(list) != TN_JSON_ARRAY)
        TN_FAIL(TN_BAD_INPUT, "%s: \"ids\" is %s; it must be a list", where,
                list ? tn_json_kind_name(tn_json_kind_of(list)) : "missing");
    for (int64_t i = 0; i < tn_json_count(list); i++) {
        int64_t id;
        if (!tn_json_int(tn_json_at(list, i), &id))
            TN_FAIL(TN_BAD_INPUT, "%s: ids[%lld] is %s; it must be a whole number", where,
                    (long long)i, tn_json_kind_name(tn_json_kind_of(tn_json_at(list, i))));
        TN_TRY(put_id(w, id, where));
    }
    return TN_OK;
}

static tn_status work_json(const job *j, worker *w, const char *text, int64_t n, const char *where,
                           tn_text *out)
{
    const tn_json *top = NULL;
    int64_t length = 0;
    TN_TRY(tn_json_parse_data(where, text, n, &top));
    tn_status st;
    if (j->a->decode) {
        st = read_json_ids(w, tn_json_find(top, "ids"), where);
        if (!st) st = decode(j, w, out);
    } else {
        const tn_json *value = tn_json_find(top, "text");
        const char *bytes = tn_json_bytes(value, &length);
        st = bytes ? encode(j, w, bytes, length, out)
                   : tn_error(TN_BAD_INPUT, "%s: \"text\" is %s; it must be a string", where,
                              value ? tn_json_kind_name(tn_json_kind_of(value)) : "missing");
    }
    tn_json_free(top);
    return st;
}

static tn_status work_line(const job *j, worker *w, const char *text, int64_t n, int64_t line,
                           tn_text *out)
{
    char where[WHERE_BYTES];
    snprintf(where, sizeof where, "%s:%lld", j->name, (long long)line);
    if (j->a->jsonl) return work_json(j, w, text, n, where, out);
    if (!j->a->decode) return encode(j, w, text, n, out);
    TN_TRY(read_ids(w, text, n, where));
    return decode(j, w, out);
}

/* ------------------------------------------------------------ batches */

static void work(void *arg, int64_t i, int thread)
{
    job *j = arg;
    tile *t = &j->tiles[i];
    worker *w = &j->workers[thread];
    const char *batch = j->batch;
    tn_text_cut(&t->out, 0);
    t->st = TN_OK;
    for (int64_t at = t->begin, line = t->line; at < t->end && !t->st; line++) {
        const char *end = memchr(batch + at, '\n', (size_t)(t->end - at));
        int64_t n = end ? end - batch - at : t->end - at;
        t->st = work_line(j, w, batch + at, n, line, &t->out);
        at += n + 1;
    }
    if (!t->st) t->st = tn_text_end(&t->out);
    if (t->st) tn_error_take(t->error, sizeof t->error);
    tn_error_clear();
}

static tn_status add_tile(job *j, int64_t begin, int64_t end)
{
    void *tiles = j->tiles;
    TN_TRY(tn_grow(&tiles, &j->tiles_capacity, j->n_tiles + 1, sizeof *j->tiles));
    j->tiles = tiles;
    tile *t = &j->tiles[j->n_tiles++];
    t->begin = begin;
    t->end = end;
    t->line = j->line;
    return TN_OK;
}

/* Tiles of the batch's first n bytes, which are whole lines. */
static tn_status cut_tiles(job *j, int64_t n)
{
    int64_t begin = 0;
    j->n_tiles = 0;
    for (int64_t at = 0, lines = 0; at < n;) {
        const char *end = memchr(j->batch + at, '\n', (size_t)(n - at));
        at = end ? end - j->batch + 1 : n;
        lines++;
        if (at - begin < TILE_BYTES && at < n) continue;
        TN_TRY(add_tile(j, begin, at));
        j->line += lines;
        begin = at;
        lines = 0;
    }
    return TN_OK;
}

/* A reader that has gone wants nothing more. */
static tn_status put(job *j, const tn_text *out)
{
    size_t n = (size_t)out->n_bytes;
    errno = 0;
    if (fwrite(tn_text_str(out), 1, n, stdout) == n) return TN_OK;
    if (errno != EPIPE)
        TN_FAIL(TN_FAILED, "standard output: cannot write: %s", strerror(errno ? errno : EIO));
    clearerr(stdout);
    j->closed = true;
    return TN_OK;
}

static tn_status work_batch(job *j, int64_t n)
{
    TN_TRY(cut_tiles(j, n));
    tn_pool_run(j->pool, j->n_tiles, work, j);
    for (int64_t i = 0; i < j->n_tiles && !j->closed; i++) {
        TN_TRY(put(j, &j->tiles[i].out));
        if (j->tiles[i].st) return tn_error_give(j->tiles[i].st, j->tiles[i].error);
    }
    return TN_OK;
}

static tn_status fill(job *j, FILE *f, bool *ended)
{
    int64_t room = j->capacity - 1 - j->n;
    if (room < BATCH_BYTES / 2) {
        int64_t need = j->n + BATCH_BYTES + 1;
        void *batch = j->batch;
        TN_TRY(tn_grow(&batch, &j->capacity, need, 1));
        j->batch = batch;
        room = j->capacity - 1 - j->n;
    }
    if (room > BATCH_BYTES) room = BATCH_BYTES;
    errno = 0;
    size_t got = fread(j->batch + j->n, 1, (size_t)room, f);
    if (ferror(f))
        TN_FAIL(errno == EISDIR ? TN_BAD_INPUT : TN_FAILED, "%s: cannot read: %s", j->name,
                strerror(errno ? errno : EIO));
    j->n += (int64_t)got;
    *ended = feof(f) != 0;
    return TN_OK;
}

static tn_status work_stream(job *j, FILE *f)
{
    bool ended = false;
    j->n = 0;
    j->line = 1;
    while (!ended && !j->closed) {
        TN_TRY(fill(j, f, &ended));
        int64_t n = j->n;
        if (!ended) {
            const char *last = memrchr(j->batch, '\n', (size_t)n);
            if (!last) continue;
            n = last - j->batch + 1;
        }
        TN_TRY(work_batch(j, n));
        memmove(j->batch, j->batch + n, (size_t)(j->n - n));
        j->n -= n;
    }
    return TN_OK;
}

/* ------------------------------------------------------------ whole files */

static tn_status put_part(void *user, const int32_t *ids, int64_t n)
{
    job *j = user;
    tn_text *out = &j->part;
    tn_text_cut(out, 0);
    if (j->begun) tn_text_put(out, " ", 1);
    write_ids(ids, n, " ", out);
    j->begun = true;
    TN_TRY(tn_text_end(out));
    return j->closed ? TN_OK : put(j, out);
}

static tn_status work_text(job *j, const char *text, int64_t n)
{
    worker *w = &j->workers[0];
    j->begun = false;
    tn_text_cut(&j->part, 0);
    if (j->a->decode) {
        TN_TRY(work_line(j, w, text, n, 1, &j->part));
    } else {
        TN_TRY(tn_encoder_stream(w->encoder, text, n, flags_of(j->a), put_part, j));
        tn_text_cut(&j->part, 0);
        tn_text_put(&j->part, "\n", 1);
    }
    TN_TRY(tn_text_end(&j->part));
    return j->closed ? TN_OK : put(j, &j->part);
}

static tn_status read_whole(job *j, FILE *f)
{
    bool ended = false;
    j->n = 0;
    while (!ended) TN_TRY(fill(j, f, &ended));
    return work_text(j, j->batch, j->n);
}

static tn_status work_file(job *j, const char *path)
{
    tn_map map = {0};
    tn_status st;
    if (strcmp(path, "-") == 0) {
        j->name = "standard input";
        return j->a->whole ? read_whole(j, stdin) : work_stream(j, stdin);
    }
    j->name = path;
    if (j->a->whole) {
        TN_TRY(tn_map_open(path, &map));
        st = work_text(j, map.data, map.n);
        tn_map_close(&map);
        return st;
    }
    FILE *f = fopen(path, "rb");
    if (!f) TN_FAIL(TN_BAD_INPUT, "%s: cannot read: %s", path, strerror(errno));
    st = work_stream(j, f);
    fclose(f);
    return st;
}

/* ------------------------------------------------------------ the command */

static tn_status start(job *j)
{
    void *mem;
    int threads = j->a->threads ? j->a->threads : tn_pool_cores();
    TN_TRY(tn_tokenizer_open(j->a->paths[0], &j->t));
    TN_TRY(tn_alloc((size_t)threads * sizeof *j->workers, &mem));
    j->workers = mem;
    TN_TRY(tn_pool_create(threads, &j->pool));
    for (int i = 0; i < threads; i++) TN_TRY(tn_encoder_create(j->t, &j->workers[i].encoder));
    return TN_OK;
}

static void finish(job *j)
{
    for (int i = 0; j->pool && i < tn_pool_threads(j->pool); i++) {
        tn_encoder_destroy(j->workers[i].encoder);
        tn_ids_fini(&j->workers[i].ids);
        tn_text_fini(&j->workers[i].text);
    }
    for (int64_t i = 0; i < j->tiles_capacity; i++) tn_text_fini(&j->tiles[i].out);
    tn_text_fini(&j->part);
    tn_pool_destroy(j->pool);
    tn_free(j->workers);
    tn_free(j->tiles);
    tn_free(j->batch);
    tn_tokenizer_close(j->t);
}

static tn_status check(const tn_args *a)
{
    if (a->decode && a->literal)
        TN_FAIL(TN_BAD_INPUT,
                "command line: --literal is about encoding; leave it or --decode out");
    if (a->skip_special && !a->decode)
        TN_FAIL(TN_BAD_INPUT, "command line: --skip-special is about decoding; add --decode");
    if (a->whole && a->jsonl)
        TN_FAIL(TN_BAD_INPUT, "command line: --whole and --jsonl exclude each other; keep one");
    return TN_OK;
}

tn_status tn_command_tokenize(const tn_args *a)
{
    job j = {.a = a};
    TN_TRY(check(a));
    tn_status st = start(&j);
    if (!st && a->n_paths == 1) st = work_file(&j, "-");
    for (int i = 1; i < a->n_paths && !st; i++) st = work_file(&j, a->paths[i]);
    finish(&j);
    return st;
}
