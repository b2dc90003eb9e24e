#include "engine/base/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/text.h"

static const char *const names[TN_N_FAULTS] = {
#define NAME(id, name, error) name,
    TN_FAULTS(NAME)
#undef NAME
};
static const int errors[TN_N_FAULTS] = {
#define ERROR(id, name, error) error,
    TN_FAULTS(ERROR)
#undef ERROR
};

/* Hits left until the failing one; 0: not armed. */
static _Atomic int64_t left[TN_N_FAULTS];

bool tn_fault_hit(tn_fault place)
{
    if (atomic_load_explicit(&left[place], memory_order_relaxed) == 0) return false;
    int64_t before = atomic_fetch_sub(&left[place], 1);
    if (before <= 0) atomic_fetch_add(&left[place], 1); /* another thread took the last one */
    if (before != 1) return false;
    errno = errors[place];
    return true;
}

void tn_fault_arm(tn_fault place, int64_t n)
{
    atomic_store(&left[place], n);
}

void tn_fault_clear(void)
{
    for (int i = 0; i < TN_N_FAULTS; i++) atomic_store(&left[i], 0);
}

/* One "name" or "name:count" of `len` bytes. */
static tn_status parse_one(const char *where, const char *item, size_t len)
{
    char word[64];
    if (len >= sizeof word) TN_FAIL(TN_BAD_INPUT, "%s: '%.60s...' is no fault point", where, item);
    memcpy(word, item, len);
    word[len] = 0;
    char *colon = strchr(word, ':'), *end = NULL;
    long long n = 1;
    if (colon) {
        *colon = 0;
        n = strtoll(colon + 1, &end, 10);
        if (end == colon + 1 || *end || n < 1)
            TN_FAIL(TN_BAD_INPUT, "%s: '%s:%s' counts from 1, as in '%s:1'", where, word, colon + 1,
                    word);
    }
    for (int i = 0; i < TN_N_FAULTS; i++) {
        if (strcmp(word, names[i]) != 0) continue;
        tn_fault_arm((tn_fault)i, n);
        return TN_OK;
    }
    TN_FAIL(TN_BAD_INPUT, "%s: no fault point '%s'%s", where, word,
            tn_text_hint(word, names, TN_N_FAULTS).s);
}

tn_status tn_fault_parse(const char *where, const char *spec)
{
    while (*spec) {
        spec += strspn(spec, ", ");
        size_t len = strcspn(spec, ", ");
        if (len) TN_TRY(parse_one(where, spec, len));
        spec += len;
    }
    return TN_OK;
}
