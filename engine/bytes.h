/* bytes.h - the byte tokenizer: token i of a text is its byte i: 256 ids, no table, nothing to go
 * wrong.
 *
 * There is no special id: nothing is put between documents, before them or behind them. A document
 * ends with its own last bytes - the newline of a line, the blank line of a paragraph - which the
 * model learns to predict like any other; of a document that is a whole file only the boundary is
 * known (engine/data.h: document, packing). So the tokens of a file are its bytes where they lie, a
 * model needs vocab_size 256 and not 257, and a vocabulary that is padded further changes nothing.
 * Byte 0 is an ordinary token.
 */
#ifndef TN_ENGINE_BYTES_H
#define TN_ENGINE_BYTES_H
#include "engine/base/base.h"

TN_C_BEGIN

enum { TN_BYTES_VOCAB = 256 };

void tn_bytes_encode(const uint8_t *text, int64_t n, int32_t *ids);

/* TN_BAD_INPUT names the first id outside 0 .. 255 (the padding of a larger vocabulary stands for
 * no text). */
tn_status tn_bytes_decode(const int32_t *ids, int64_t n, uint8_t *text) TN_MUST_USE;

TN_C_END
#endif
