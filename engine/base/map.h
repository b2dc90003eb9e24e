/* map.h - a file as read-only memory. */
#ifndef TN_ENGINE_BASE_MAP_H
#define TN_ENGINE_BASE_MAP_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_map {
    const char *data; /* never NULL after a successful open; n bytes, no NUL behind */
    int64_t n;
} tn_map;

/* TN_BAD_INPUT if the path is missing or no regular file. The file must not shrink while it is
 * mapped. */
tn_status tn_map_open(const char *path, tn_map *out) TN_MUST_USE;
void tn_map_close(tn_map *map); /* a zero-initialised one is fine */

TN_C_END
#endif
