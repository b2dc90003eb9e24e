#define XXH_STATIC_LINKING_ONLY /* the size of XXH64_state_t: a state lives in the caller's        \
                                   storage */
#include "engine/base/hash.h"

#include <string.h>
#include <xxhash.h>

_Static_assert(sizeof(XXH64_state_t) <= sizeof(tn_hash), "tn_hash holds the library's state");

#define DIGITS_(x) #x
#define DIGITS(x) DIGITS_(x)

const char *tn_hash_library(void)
{
    return "xxhash " DIGITS(XXH_VERSION_MAJOR) "." DIGITS(XXH_VERSION_MINOR) "." DIGITS(
        XXH_VERSION_RELEASE);
}

uint64_t tn_hash_xxh64(const void *data, size_t n, uint64_t seed)
{
    return XXH64(data, n, seed);
}

uint64_t tn_hash_text(const char *s)
{
    return XXH64(s, strlen(s), 0);
}

void tn_hash_start(tn_hash *h, uint64_t seed)
{
    XXH64_reset((XXH64_state_t *)(void *)h->state, seed);
}

void tn_hash_add(tn_hash *h, const void *data, size_t n)
{
    if (n) XXH64_update((XXH64_state_t *)(void *)h->state, data, n);
}

uint64_t tn_hash_value(const tn_hash *h)
{
    return XXH64_digest((const XXH64_state_t *)(const void *)h->state);
}
