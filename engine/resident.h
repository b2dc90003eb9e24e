/* resident.h - how much of some mappings lies in memory, from /proc/self/smaps. */
#ifndef TN_ENGINE_RESIDENT_H
#define TN_ENGINE_RESIDENT_H
#include "engine/base/base.h"

TN_C_BEGIN

/* Bytes of the mappings that begin at one of the addresses; 0 where the system does not tell. */
int64_t tn_resident_bytes(const void *const *begins, int64_t n);

TN_C_END
#endif
