#include "engine/documents.h"

#include "engine/base/mem.h"
#include "engine/jsonl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#ifdef TN_HOSTILE
enum { PIECE_BYTES = 61, READ_BYTES = 17 };
#else
enum { PIECE_BYTES = 1 << 20, READ_BYTES = 1 << 18 };
#endif
#define MAX_LINE_BYTES ((int64_t)256 << 20) /* of JSONL: a line must be seen whole */

/* Of a place. */
enum { IN_LINE = 1, LAST_WAS_EMPTY = 2 };

struct tn_documents {
    const tn_paths *paths;
    tn_documents_rule rule;
    tn_bookmark at;   /* of raw[begin] */
    tn_inflate *file; /* NULL: not open yet */
    char *raw;        /* [begin, end) is read and not handed out */
    int64_t capacity, begin, end;
    int64_t searched;     /* no newline in [begin, searched) */
    int64_t taken_before; /* bytes of the files that are done */
    bool at_end;          /* of the file */
};

/* A line or, of a long one, a part. */
typedef struct fragment {
    const char *text;
    int64_t n; /* 0: the file is over */
    bool whole_line, ends_line, cut;
} fragment;

/* ------------------------------------------------------------ lines */

tn_status tn_documents_open(const tn_paths *paths, const tn_documents_rule *rule,
                            const tn_bookmark *from, tn_documents **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_documents), &mem));
    tn_documents *d = mem;
    d->paths = paths;
    d->rule = *rule;
    d->at = *from;
    for (int64_t i = 0; i < from->file; i++) d->taken_before += paths->items[i].bytes;
    *out = d;
    return TN_OK;
}

void tn_documents_close(tn_documents *d)
{
    if (!d) return;
    tn_inflate_close(d->file);
    tn_free(d->raw);
    tn_free(d);
}

static tn_status open_file(tn_documents *d)
{
    TN_TRY_WHILE(tn_inflate_open(d->paths->items[d->at.file].name, &d->file), "opening %s.path",
                 d->rule.section);
    d->begin = d->end = d->searched = 0;
    d->at_end = false;
    return tn_inflate_skip(d->file, d->at.offset);
}

static void next_file(tn_documents *d)
{
    tn_inflate_close(d->file);
    d->file = NULL;
    d->taken_before += d->paths->items[d->at.file].bytes;
    d->at = (tn_bookmark){.file = d->at.file + 1};
}

static tn_status read_more(tn_documents *d)
{
    void *raw = d->raw;
    int64_t got;
    if (d->begin) {
        memmove(d->raw, d->raw + d->begin, (size_t)(d->end - d->begin));
        d->end -= d->begin;
        d->searched -= d->begin;
        d->begin = 0;
    }
    TN_TRY(tn_grow(&raw, &d->capacity, d->end + READ_BYTES, 1));
    d->raw = raw;
    TN_TRY_WHILE(tn_inflate_read(d->file, d->raw + d->end, READ_BYTES, &got), "reading %s.path",
                 d->rule.section);
    d->end += got;
    d->at_end = got < READ_BYTES;
    return TN_OK;
}

/* Length of what can be cut off a text of at most n bytes without cutting a character. */
static int64_t whole_characters(const char *text, int64_t n)
{
    int64_t k = n;
    while (k > 0 && n - k < 3 && ((unsigned char)text[k] & 0xc0) == 0x80) k--;
    return k > 0 && ((unsigned char)text[k] & 0xc0) != 0x80 ? k : n;
}

/* Looks at the next line, or at `limit` bytes of a longer one; nothing is handed out. */
static tn_status look(tn_documents *d, int64_t limit, fragment *out)
{
    const char *newline = NULL;
    for (;;) {
        if (d->end > d->searched)
            newline = memchr(d->raw + d->searched, '\n', (size_t)(d->end - d->searched));
        d->searched = newline ? newline - d->raw : d->end;
        if (newline || d->at_end || d->searched - d->begin > limit) break;
        TN_TRY(read_more(d));
    }
    const char *text = d->raw + d->begin;
    int64_t n = newline ? newline - text + 1 : d->end - d->begin;
    bool cut = n > limit;
    *out = (fragment){.text = text, .n = cut ? whole_characters(text, limit) : n, .cut = cut};
    out->ends_line = newline && !cut;
    out->whole_line = out->ends_line && !(d->at.state & IN_LINE);
    return TN_OK;
}

static bool is_empty_line(const fragment *f)
{
    return f->whole_line && (f->n == 1 || (f->n == 2 && f->text[0] == '\r'));
}

static void hand_out(tn_documents *d, const fragment *f)
{
    d->at.state = (f->ends_line ? 0 : IN_LINE) | (is_empty_line(f) ? LAST_WAS_EMPTY : 0);
    d->at.line += f->ends_line;
    d->at.offset += f->n;
    d->begin += f->n;
    if (d->searched < d->begin) d->searched = d->begin;
}

/* ------------------------------------------------------------ text */

static bool starts_document(const tn_documents *d, const fragment *f)
{
    if (d->at.offset == 0) return true;
    if (d->at.state & IN_LINE) return false;
    if (d->rule.cut == TN_CORPUS_LINE) return true;
    return d->rule.cut == TN_CORPUS_BLANK_LINE && (d->at.state & LAST_WAS_EMPTY) &&
           !is_empty_line(f);
}

static tn_status append(tn_documents *d, const fragment *f, tn_chunk *c, tn_piece *piece)
{
    char *to;
    TN_TRY(tn_chunk_reserve(c, f->n, &to));
    memcpy(to, f->text, (size_t)f->n);
    c->n += f->n;
    piece->n += f->n;
    hand_out(d, f);
    return TN_OK;
}

static tn_status read_text(tn_documents *d, int64_t want, tn_chunk *c)
{
    tn_piece piece = {0};
    fragment f;
    while (d->at.file < d->paths->n) {
        if (!d->file) TN_TRY(open_file(d));
        TN_TRY(look(d, PIECE_BYTES, &f));
        bool first = f.n && starts_document(d, &f);
        if (piece.n && (first || !f.n || piece.n + f.n > PIECE_BYTES)) {
            piece.last = first || !f.n;
            TN_TRY(tn_chunk_add(c, &piece));
            piece = (tn_piece){0};
        }
        if (!piece.n && c->n >= want && f.n) break;
        if (!f.n) {
            next_file(d);
            continue;
        }
        if (!piece.n) piece.first = first;
        TN_TRY(append(d, &f, c, &piece));
    }
    assert(!piece.n);
    return TN_OK;
}

/* ------------------------------------------------------------ JSONL */

/* The text of one line lies behind the chunk's; it becomes pieces. */
static tn_status cut_up(tn_chunk *c, int64_t n)
{
    tn_piece piece = {.first = true};
    while (n > 0) {
        const char *text = tn_chunk_text(c) + c->n;
        piece.n = n;
        if (n > PIECE_BYTES) {
            const char *newline = memrchr(text, '\n', PIECE_BYTES);
            piece.n = newline ? newline - text + 1 : whole_characters(text, PIECE_BYTES);
        }
        piece.last = piece.n == n;
        TN_TRY(tn_chunk_add(c, &piece));
        c->n += piece.n;
        n -= piece.n;
        piece.first = false;
    }
    return TN_OK;
}

static tn_status take_line(tn_documents *d, const fragment *f, tn_chunk *c)
{
    const char *path = d->paths->items[d->at.file].name;
    char where[4400], *to;
    int64_t n;
    if (f->cut)
        TN_FAIL(TN_BAD_INPUT, "%s: line %lld: more than 256 MiB; is this a JSONL file?", path,
                (long long)d->at.line + 1);
    if (!tn_jsonl_is_blank(f->text, f->n)) {
        snprintf(where, sizeof where, "%s: line %lld", path, (long long)d->at.line + 1);
        TN_TRY(tn_chunk_reserve(c, f->n, &to));
        TN_TRY(tn_jsonl_text(where, f->text, f->n, d->rule.field, to, &n));
        TN_TRY(cut_up(c, n));
    }
    hand_out(d, f);
    return TN_OK;
}

static tn_status read_jsonl(tn_documents *d, int64_t want, tn_chunk *c)
{
    fragment f;
    while (d->at.file < d->paths->n && (c->n < want || !c->n_pieces)) {
        if (!d->file) TN_TRY(open_file(d));
        TN_TRY(look(d, MAX_LINE_BYTES, &f));
        if (f.n) TN_TRY(take_line(d, &f, c));
        else next_file(d);
    }
    return TN_OK;
}

tn_status tn_documents_read(tn_documents *d, int64_t want, tn_chunk *out)
{
    out->n = out->n_pieces = 0;
    TN_TRY(d->rule.jsonl ? read_jsonl(d, want, out) : read_text(d, want, out));
    out->end = d->at;
    out->taken_bytes = d->taken_before + (d->file ? tn_inflate_taken(d->file) : 0);
    return TN_OK;
}
