/* inflate.h - the bytes of a file from front to back: as they lie, or what gzip and zstd made of
 * them.
 *
 * The name decides: .gz and .zst are taken apart, anything else is read as it is. Several gzip
 * members or zstd frames behind one another are one text. A file that ends inside a member, is
 * damaged (both formats carry checksums) or is not what its name says is TN_BAD_INPUT with the
 * path.
 */
#ifndef TN_ENGINE_INFLATE_H
#define TN_ENGINE_INFLATE_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_inflate tn_inflate;

tn_status tn_inflate_open(const char *path, tn_inflate **out) TN_MUST_USE;
void tn_inflate_close(tn_inflate *f); /* NULL is fine */

/* The next n bytes; *got < n only at the end. */
tn_status tn_inflate_read(tn_inflate *f, void *to, int64_t n, int64_t *got) TN_MUST_USE;

/* Passes over n bytes; TN_BAD_INPUT if there are not so many. */
tn_status tn_inflate_skip(tn_inflate *f, int64_t n) TN_MUST_USE;

int64_t tn_inflate_taken(const tn_inflate *f); /* bytes of the file itself that were read */

bool tn_inflate_is_packed(const char *path); /* by its name */
const char *tn_inflate_libraries(void);      /* "zlib 1.2.13, zstd 1.5.4" */

/* One format: the door of its library. */
typedef struct tn_inflate_step {
    const uint8_t *in; /* moved on */
    uint8_t *out;
    size_t n_in, n_out; /* left */
    bool member_done;   /* set when a member has ended: what follows is another one, or nothing */
} tn_inflate_step;

typedef struct tn_inflate_format {
    const char *name, *suffix;
    tn_status (*open)(void **state);
    void (*close)(void *state);
    /* Makes progress or fails; `path` opens the message. */
    tn_status (*step)(void *state, const char *path, tn_inflate_step *io);
    const char *(*version)(void);
} tn_inflate_format;

extern const tn_inflate_format tn_inflate_gzip, tn_inflate_zstd;

TN_C_END
#endif
