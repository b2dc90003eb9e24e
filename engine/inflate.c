#include "engine/inflate.h"

#include "engine/base/fault.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef TN_HOSTILE
enum { IN_BYTES = 13, SKIP_BYTES = 29 };
#else
enum { IN_BYTES = 1 << 17, SKIP_BYTES = 1 << 16 };
#endif

struct tn_inflate {
    int fd;
    const char *path;
    const tn_inflate_format *format; /* NULL: plain */
    void *state;
    uint8_t *in;
    size_t in_at, in_end;
    int64_t taken;
    bool at_end;    /* of the file */
    bool in_member; /* a member has begun and not ended */
    tn_arena arena;
};

static const tn_inflate_format *const formats[] = {&tn_inflate_gzip, &tn_inflate_zstd};

static const tn_inflate_format *format_of(const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < TN_COUNT(formats); i++) {
        size_t k = strlen(formats[i]->suffix);
        if (n > k && strcmp(path + n - k, formats[i]->suffix) == 0) return formats[i];
    }
    return NULL;
}

bool tn_inflate_is_packed(const char *path)
{
    return format_of(path) != NULL;
}

const char *tn_inflate_libraries(void)
{
    static _Thread_local char text[96];
    snprintf(text, sizeof text, "%s, %s", formats[0]->version(), formats[1]->version());
    return text;
}

static tn_status open_parts(const char *path, tn_inflate *f)
{
    void *mem;
    TN_TRY(tn_arena_text(&f->arena, path, &f->path));
    f->format = format_of(path);
    if (f->format) {
        TN_TRY(tn_arena_alloc(&f->arena, IN_BYTES, &mem));
        f->in = mem;
        TN_TRY(f->format->open(&f->state));
    }
    f->fd = tn_fault_hit(TN_FAULT_FILE_OPEN) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return tn_file_error(path, "open");
    return TN_OK;
}

tn_status tn_inflate_open(const char *path, tn_inflate **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_inflate), &mem));
    tn_inflate *f = mem;
    f->fd = -1;
    tn_status st = open_parts(path, f);
    if (st) {
        tn_inflate_close(f);
        return st;
    }
    *out = f;
    return TN_OK;
}

void tn_inflate_close(tn_inflate *f)
{
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    if (f->state) f->format->close(f->state);
    tn_arena_fini(&f->arena);
    tn_free(f);
}

int64_t tn_inflate_taken(const tn_inflate *f)
{
    return f->taken;
}

static tn_status read_file(tn_inflate *f, void *to, size_t n, size_t *got)
{
    for (;;) {
        ssize_t r = tn_fault_hit(TN_FAULT_FILE_READ) ? -1 : read(f->fd, to, n);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return tn_file_error(f->path, "read");
        f->taken += r;
        f->at_end = r == 0;
        *got = (size_t)r;
        return TN_OK;
    }
}

static tn_status fill(tn_inflate *f)
{
    size_t got;
    TN_TRY(read_file(f, f->in, IN_BYTES, &got));
    f->in_at = 0;
    f->in_end = got;
    return TN_OK;
}

/* Some bytes, or none at the end. */
static tn_status unpack(tn_inflate *f, uint8_t *to, size_t n, size_t *got)
{
    tn_inflate_step io = {.out = to, .n_out = n};
    while (io.n_out == n) {
        if (f->in_at == f->in_end && !f->at_end) TN_TRY(fill(f));
        if (f->in_at == f->in_end && !f->in_member) break;
        io.in = f->in + f->in_at;
        io.n_in = f->in_end - f->in_at;
        io.member_done = false;
        f->in_member = true;
        size_t had = io.n_in;
        TN_TRY(f->format->step(f->state, f->path, &io));
        f->in_at += had - io.n_in;
        if (io.member_done) f->in_member = false;
        if (!had && io.n_out == n && f->in_member)
            TN_FAIL(TN_BAD_INPUT, "%s: ends in the middle of its %s data; copy it again", f->path,
                    f->format->name);
    }
    *got = n - io.n_out;
    return TN_OK;
}

tn_status tn_inflate_read(tn_inflate *f, void *to, int64_t n, int64_t *got)
{
    int64_t done = 0;
    while (done < n) {
        size_t want = n - done < (1 << 30) ? (size_t)(n - done) : (size_t)1 << 30, more = 0;
        uint8_t *at = (uint8_t *)to + done;
        TN_TRY(f->format ? unpack(f, at, want, &more) : read_file(f, at, want, &more));
        if (!more) break;
        done += (int64_t)more;
    }
    *got = done;
    return TN_OK;
}

tn_status tn_inflate_skip(tn_inflate *f, int64_t n)
{
    uint8_t waste[SKIP_BYTES];
    if (!f->format) {
        if (lseek(f->fd, n, SEEK_CUR) < 0) return tn_file_error(f->path, "read");
        return TN_OK;
    }
    while (n > 0) {
        int64_t got, want = n < SKIP_BYTES ? n : SKIP_BYTES;
        TN_TRY(tn_inflate_read(f, waste, want, &got));
        if (got < want)
            TN_FAIL(TN_BAD_INPUT, "%s: is shorter than it was before; start anew", f->path);
        n -= got;
    }
    return TN_OK;
}
