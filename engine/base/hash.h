/* hash.h - 64-bit hashes of bytes (XXH64): the same value on every machine. This is the door of the
 * xxhash library. */
#ifndef TN_ENGINE_BASE_HASH_H
#define TN_ENGINE_BASE_HASH_H
#include "engine/base/base.h"

TN_C_BEGIN

const char *tn_hash_library(void); /* "xxhash 0.8.1": what was built with */

uint64_t tn_hash_xxh64(const void *data, size_t n, uint64_t seed);
uint64_t tn_hash_text(const char *s); /* seed 0, without the NUL */

/* In pieces: start, add ..., value (which may be asked at any time). Give the same value as one
 * call over all bytes. */
typedef struct tn_hash {
    uint64_t state[11];
} tn_hash;
void tn_hash_start(tn_hash *h, uint64_t seed);
void tn_hash_add(tn_hash *h, const void *data, size_t n);
uint64_t tn_hash_value(const tn_hash *h);

TN_C_END
#endif
