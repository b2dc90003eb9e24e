#include "engine/ids.h"

#include "engine/base/mem.h"

tn_status tn_ids_grow(tn_ids *ids, int64_t more)
{
    void *items = ids->items;
    if (ids->n + more <= ids->capacity) return TN_OK;
    TN_TRY(tn_grow(&items, &ids->capacity, ids->n + more, sizeof *ids->items));
    ids->items = items;
    return TN_OK;
}

void tn_ids_fini(tn_ids *ids)
{
    tn_free(ids->items);
    *ids = (tn_ids){0};
}
