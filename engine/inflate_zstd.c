/* inflate_zstd.c - .zst: the door of libzstd. Windows of more than 128 MiB (zstd --long=28 and
 * above) are refused: each reader would hold one. */
#include "engine/base/mem.h"
#include "engine/inflate.h"

#include <stdio.h>
#include <zstd.h>
#include <zstd_errors.h>

static tn_status open_zstd(void **state)
{
    ZSTD_DStream *z = ZSTD_createDStream();
    if (!z) TN_FAIL(TN_FAILED, "out of memory: zstd's window");
    *state = z;
    return TN_OK;
}

static void close_zstd(void *state)
{
    ZSTD_freeDStream(state);
}

static tn_status step_zstd(void *state, const char *path, tn_inflate_step *io)
{
    ZSTD_inBuffer in = {io->in, io->n_in, 0};
    ZSTD_outBuffer out = {io->out, io->n_out, 0};
    size_t rc = ZSTD_decompressStream(state, &out, &in);
    if (ZSTD_isError(rc)) {
        if (ZSTD_getErrorCode(rc) == ZSTD_error_frameParameter_windowTooLarge)
            TN_FAIL(
                TN_BAD_INPUT,
                "%s: needs a window of more than 128 MiB; pack it again without --long above 27",
                path);
        TN_FAIL(TN_BAD_INPUT, "%s: damaged, or no zstd data: %s; copy it again", path,
                ZSTD_getErrorName(rc));
    }
    io->in += in.pos;
    io->n_in -= in.pos;
    io->out += out.pos;
    io->n_out -= out.pos;
    io->member_done = rc == 0;
    return TN_OK;
}

static const char *version(void)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "zstd %s", ZSTD_versionString());
    return text;
}

const tn_inflate_format tn_inflate_zstd = {.name = "zstd",
                                           .suffix = ".zst",
                                           .open = open_zstd,
                                           .close = close_zstd,
                                           .step = step_zstd,
                                           .version = version};
