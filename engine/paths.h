/* paths.h - the files that data.path means: patterns are found and sorted by name (strcmp), every
 * file is looked at.
 *
 * Messages are TN_BAD_INPUT "SECTION.path: ..." for what is missing, no regular file, empty, or
 * matches nothing. A file that is there goes before a pattern: names may hold brackets.
 */
#ifndef TN_ENGINE_PATHS_H
#define TN_ENGINE_PATHS_H
#include "engine/base/mem.h"
#include "engine/data.h"

TN_C_BEGIN

typedef struct tn_path {
    const char *name;
    int64_t bytes;       /* > 0 */
    int64_t modified_ns; /* since 1970 */
} tn_path;

typedef struct tn_paths {
    tn_path *items;
    int64_t n, capacity;
    tn_arena names;
} tn_paths;

tn_status tn_paths_find(const char *section, const tn_data_path *patterns, int64_t n,
                        tn_paths *out) TN_MUST_USE;
void tn_paths_fini(tn_paths *paths); /* zeroed is fine */

/* One value for names (without folders), sizes and times: differs when a file was changed, added or
 * taken away. */
uint64_t tn_paths_fingerprint(const tn_paths *paths);

/* TN_BAD_INPUT if a file is no longer what it was when it was found. */
tn_status tn_paths_check(const char *section, const tn_paths *paths) TN_MUST_USE;

TN_C_END
#endif
