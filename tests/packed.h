/* packed.h - .gz and .zst files for tests, packed the plainest way the formats allow: stored
 * blocks.
 */
#ifndef TN_TESTS_PACKED_H
#define TN_TESTS_PACKED_H
#include "engine/base/base.h"

#include <string.h>

static size_t tn_packed_put32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(v >> 8 * i);
    return 4;
}

static uint32_t tn_packed_crc(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* One member (RFC 1952), stored blocks (RFC 1951) of at most `block` bytes; returns its length. */
TN_UNUSED static size_t tn_packed_gzip(const void *text, size_t n, size_t block, uint8_t *to)
{
    static const uint8_t head[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    size_t at = sizeof head, done = 0;
    memcpy(to, head, sizeof head);
    do {
        size_t k = n - done < block ? n - done : block;
        to[at++] = done + k == n;
        to[at++] = (uint8_t)k, to[at++] = (uint8_t)(k >> 8);
        to[at++] = (uint8_t)~k, to[at++] = (uint8_t)(~k >> 8);
        memcpy(to + at, (const char *)text + done, k);
        at += k;
        done += k;
    } while (done < n);
    at += tn_packed_put32(to + at, tn_packed_crc(text, n));
    return at + tn_packed_put32(to + at, (uint32_t)n);
}

/* One frame (RFC 8878) without a checksum, raw blocks of at most `block` bytes. */
TN_UNUSED static size_t tn_packed_zstd(const void *text, size_t n, size_t block, uint8_t *to)
{
    size_t at = tn_packed_put32(to, 0xfd2fb528u), done = 0;
    to[at++] = 0x00; /* no size, no checksum */
    to[at++] = 0x58; /* a window of 2 MiB */
    do {
        size_t k = n - done < block ? n - done : block;
        uint32_t head = (uint32_t)(done + k == n) | (uint32_t)k << 3;
        to[at++] = (uint8_t)head, to[at++] = (uint8_t)(head >> 8), to[at++] = (uint8_t)(head >> 16);
        memcpy(to + at, (const char *)text + done, k);
        at += k;
        done += k;
    } while (done < n);
    return at;
}

#endif
