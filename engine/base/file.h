/* file.h - whole files in, files out that are complete or absent, folders.
 *
 * Every failure names the path and what the system said. A file that is written gets its name only
 * when it is complete and synced: a reader, or a run that was killed, sees the old file or the new
 * one, never a part. What the user named and cannot be used (missing, a folder, too large, not
 * readable) is TN_BAD_INPUT; a disk that fails is TN_FAILED.
 */
#ifndef TN_ENGINE_BASE_FILE_H
#define TN_ENGINE_BASE_FILE_H
#include "engine/base/base.h"

TN_C_BEGIN

/* The whole file and a NUL behind it; the caller frees *out with tn_free. A file of more than limit
 * bytes is refused. */
tn_status tn_file_read(const char *path, int64_t limit, char **out, int64_t *n_out) TN_MUST_USE;
/* Standard input to its end; more than `limit` bytes are refused, "what" says why. */
tn_status tn_file_read_input(int64_t limit, const char *what, char **out,
                             int64_t *n_out) TN_MUST_USE;

/* Create or replace `path` in one stroke. */
tn_status tn_file_write(const char *path, const void *data, size_t n) TN_MUST_USE;

/* The same in pieces: create, put ..., then publish (sync, rename, sync the folder) or discard.
 * Both free the tn_file, publish also when it fails; nothing of a discarded or failed file stays
 * behind. */
typedef struct tn_file tn_file;
tn_status tn_file_create(const char *path, tn_file **out) TN_MUST_USE;
tn_status tn_file_put(tn_file *f, const void *data, size_t n) TN_MUST_USE;
tn_status tn_file_publish(tn_file *f) TN_MUST_USE;
void tn_file_discard(tn_file *f); /* NULL is fine */

/* A log: opened under its own name, each put is one write at the end, tn_file_discard closes it and
 * keeps what is there. */
tn_status tn_file_append(const char *path, tn_file **out) TN_MUST_USE;

/* A complete, synced file gets its name in one stroke; its folder is synced. */
tn_status tn_file_rename(const char *from, const char *to) TN_MUST_USE;

tn_status
tn_file_mkdirs(const char *path) TN_MUST_USE; /* with parents; an existing folder is fine */
bool tn_file_exists(const char *path);
bool tn_file_is_folder(const char *path);

/* The failure of a system call on a path: "PATH: cannot ACTION: <errno>", TN_BAD_INPUT or TN_FAILED
 * by errno. */
tn_status tn_file_error(const char *path, const char *action);

TN_C_END
#endif
