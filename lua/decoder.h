/* decoder.h - a model that continues sequences: keys and values of what it has read are kept, so a
 * new token costs one position.
 *
 * Two programs share the memory: prefill reads a block of positions of each row, decode one
 * position and makes logits. Every row has its own positions. The logits are those of the full
 * forward, to the bit: no sum of a position depends on how many are computed at once. */
#ifndef TN_LUA_DECODER_H
#define TN_LUA_DECODER_H
#include "lua/build.h"
#include "lua/recipe.h"

TN_C_BEGIN

typedef struct tn_decoder tn_decoder;

/* rows sequences of at most `positions` tokens. hf: a folder to load the weights from; NULL: the
 * recipe's first values. Refused where the plan needs more memory than the machine has. */
tn_status tn_decoder_open(tn_recipe *r, int64_t rows, int64_t positions, const char *hf,
                          tn_decoder **out) TN_MUST_USE;
void tn_decoder_close(tn_decoder *d); /* NULL is fine */

int64_t tn_decoder_vocab(const tn_decoder *d);

/* Reads all but the last token of every row: ids[r] holds n[r] >= 1 tokens, at positions 0 on. */
tn_status tn_decoder_prefill(tn_decoder *d, const int32_t *const *ids,
                             const int64_t *n) TN_MUST_USE;

/* Reads token ids[r] of row r at positions[r]; logits [rows, vocab], until the next call. To read a
 * token again changes nothing. */
tn_status tn_decoder_step(tn_decoder *d, const int32_t *ids, const int32_t *positions,
                          const float **logits) TN_MUST_USE;

TN_C_END
#endif
