/* ids.h - a growing list of token ids; zero-initialised is empty and legal. */
#ifndef TN_ENGINE_IDS_H
#define TN_ENGINE_IDS_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_ids {
    int32_t *items; /* n */
    int64_t n, capacity;
} tn_ids;

tn_status tn_ids_grow(tn_ids *ids, int64_t more) TN_MUST_USE; /* room for so many behind n */
void tn_ids_fini(tn_ids *ids);

TN_C_END
#endif
