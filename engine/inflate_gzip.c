/* inflate_gzip.c - .gz: the door of zlib. Zeros behind the last member (padding of tapes) are
 * passed over, as gzip itself does. */
#include "engine/base/mem.h"
#include "engine/inflate.h"

#include <limits.h>
#include <stdio.h>
#define ZLIB_CONST
#include <zlib.h>

typedef struct gzip {
    z_stream z;
    bool padding; /* behind a member: nothing but zeros so far */
} gzip;

static void *take(void *user, uInt n, uInt size)
{
    void *mem = NULL;
    (void)user;
    if (tn_alloc((size_t)n * size, &mem)) return Z_NULL;
    return mem;
}

static void give(void *user, void *p)
{
    (void)user;
    tn_free(p);
}

static tn_status open_gzip(void **state)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(gzip), &mem));
    gzip *g = mem;
    g->z.zalloc = take;
    g->z.zfree = give;
    if (inflateInit2(&g->z, 15 + 16) != Z_OK) {
        tn_free(g);
        tn_error_clear();
        TN_FAIL(TN_FAILED, "out of memory: zlib's window");
    }
    *state = g;
    return TN_OK;
}

static void close_gzip(void *state)
{
    gzip *g = state;
    inflateEnd(&g->z);
    tn_free(g);
}

static tn_status step_gzip(void *state, const char *path, tn_inflate_step *io)
{
    gzip *g = state;
    while (g->padding && io->n_in && *io->in == 0) io->in++, io->n_in--;
    if (g->padding && !io->n_in) {
        io->member_done = true;
        return TN_OK;
    }
    g->padding = false;
    g->z.next_in = io->in;
    g->z.avail_in = (uInt)(io->n_in < UINT_MAX ? io->n_in : UINT_MAX);
    g->z.next_out = io->out;
    g->z.avail_out = (uInt)(io->n_out < UINT_MAX ? io->n_out : UINT_MAX);
    int rc = inflate(&g->z, Z_NO_FLUSH);
    io->n_in -= (size_t)(g->z.next_in - io->in);
    io->in = g->z.next_in;
    io->n_out -= (size_t)(g->z.next_out - io->out);
    io->out = g->z.next_out;
    if (rc == Z_MEM_ERROR) TN_FAIL(TN_FAILED, "out of memory: zlib, in %s", path);
    if (rc == Z_STREAM_END) {
        io->member_done = g->padding = true;
        inflateReset(&g->z);
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        TN_FAIL(TN_BAD_INPUT,
                "%s: damaged, or no gzip data, near byte %lld of its text: %s; copy it again", path,
                (long long)g->z.total_out, g->z.msg ? g->z.msg : "wrong data");
    }
    return TN_OK;
}

static const char *version(void)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "zlib %s", zlibVersion());
    return text;
}

const tn_inflate_format tn_inflate_gzip = {.name = "gzip",
                                           .suffix = ".gz",
                                           .open = open_gzip,
                                           .close = close_gzip,
                                           .step = step_gzip,
                                           .version = version};
