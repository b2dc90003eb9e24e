#include "engine/added.h"

#include <stdlib.h>
#include <string.h>

static int by_content(const void *x, const void *y)
{
    const tn_added *a = x, *b = y;
    int order = memcmp(a->content, b->content, (size_t)(a->n < b->n ? a->n : b->n));
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

void tn_added_index(tn_added_set *set)
{
    if (set->n) qsort(set->items, (size_t)set->n, sizeof *set->items, by_content);
    for (int c = 0, i = 0; c <= 256; c++) {
        while (i < set->n && (unsigned char)set->items[i].content[0] < c) i++;
        set->first[c] = i;
    }
}

/* The longest token that starts at text[0]: the range [low, high) of those that agree so far is
 * narrowed byte by byte; within it the byte at `depth` ascends and the shortest comes first. */
static const tn_added *longest(const tn_added_set *set, const char *text, int64_t n)
{
    const tn_added *best = NULL;
    unsigned char c = (unsigned char)text[0];
    int64_t low = set->first[c], high = set->first[c + 1];
    for (int64_t depth = 1; low < high; depth++) {
        if (set->items[low].n == depth) best = &set->items[low++];
        if (depth >= n) break;
        c = (unsigned char)text[depth];
        while (low < high && set->items[low].n == depth) low++;
        int64_t from = low, to = high;
        while (from < to) { /* first whose byte is >= c */
            int64_t middle = (from + to) / 2;
            if ((unsigned char)set->items[middle].content[depth] < c) from = middle + 1;
            else to = middle;
        }
        low = from;
        to = high;
        while (from < to) { /* first whose byte is > c */
            int64_t middle = (from + to) / 2;
            if ((unsigned char)set->items[middle].content[depth] <= c) from = middle + 1;
            else to = middle;
        }
        high = from;
    }
    return best;
}

bool tn_added_find(const tn_added_set *set, const char *text, int64_t n, int64_t from,
                   const tn_added **found, int64_t *at)
{
    if (!set->n) return false;
    unsigned char only = (unsigned char)set->items[0].content[0];
    bool one = only == (unsigned char)set->items[set->n - 1].content[0];
    for (int64_t i = from; i < n; i++) {
        if (one) {
            const char *next = memchr(text + i, only, (size_t)(n - i));
            if (!next) return false;
            i = next - text;
        }
        unsigned char c = (unsigned char)text[i];
        if (set->first[c] == set->first[c + 1]) continue;
        *found = longest(set, text + i, n - i);
        *at = i;
        if (*found) return true;
    }
    return false;
}
