#include "engine/bytes.h"

void tn_bytes_encode(const uint8_t *text, int64_t n, int32_t *ids)
{
    for (int64_t i = 0; i < n; i++) ids[i] = text[i];
}

tn_status tn_bytes_decode(const int32_t *ids, int64_t n, uint8_t *text)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= TN_BYTES_VOCAB)
            TN_FAIL(
                TN_BAD_INPUT,
                "bytes: id %d at position %lld is no byte; ids of the byte tokenizer are 0 to 255",
                ids[i], (long long)i);
    }
    for (int64_t i = 0; i < n; i++) text[i] = (uint8_t)ids[i];
    return TN_OK;
}
