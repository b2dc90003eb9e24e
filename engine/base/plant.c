#include "engine/base/plant.h"

#include "engine/base/text.h"

#include <string.h>

#ifdef TN_PLANT

static const char *const names[TN_N_PLANTS] = {
#define NAME(id, name) name,
    TN_PLANTS(NAME)
#undef NAME
};
static int chosen = -1;
static int64_t calls;

bool tn_plant_is(tn_plant bug)
{
    return chosen == (int)bug;
}

bool tn_plant_since(tn_plant bug, int64_t n)
{
    return tn_plant_is(bug) && ++calls >= n;
}

tn_status tn_plant_choose(const char *name)
{
    if (!name || !name[0]) return TN_OK;
    for (int i = 0; i < TN_N_PLANTS; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        chosen = i;
        return TN_OK;
    }
    TN_FAIL(TN_BAD_INPUT, "TITAN_PLANT: no planted bug '%s'%s", name,
            tn_text_hint(name, names, TN_N_PLANTS).s);
}

#else
typedef int tn_plant_unused; /* ISO C wants a declaration */
#endif
