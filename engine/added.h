/* added.h - the added tokens of a tokenizer and where they stand in a text. */
#ifndef TN_ENGINE_ADDED_H
#define TN_ENGINE_ADDED_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_added {
    const char *content; /* as it is looked for: normalised where it says so */
    int64_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} tn_added;

/* Sorted by content; those that start with byte c are [first[c], first[c + 1]). */
typedef struct tn_added_set {
    tn_added *items;
    int64_t n, capacity;
    int32_t first[257];
} tn_added_set;

/* Sorts; before anything is looked for. */
void tn_added_index(tn_added_set *set);

/* The leftmost, then longest token in text[from, n), whatever its flags; false: none. */
bool tn_added_find(const tn_added_set *set, const char *text, int64_t n, int64_t from,
                   const tn_added **found, int64_t *at);

TN_C_END
#endif
