/* Any bytes as a tokenizer.json: refused with one line, or a tokenizer whose ids lie in its range,
 * come out the same twice, and decode to UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "engine/encoder.h"
#include "engine/tokenizer.h"
#include "engine/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

static void encode(const tn_tokenizer *t, const char *text, int64_t n)
{
    tn_encoder *e = NULL;
    tn_ids first = {0}, second = {0};
    tn_text back = {0};
    must(tn_encoder_create(t, &e) == TN_OK);
    tn_status st = tn_encoder_encode(e, text, n, TN_ENCODE_TEMPLATE, &first);
    must(tn_encoder_encode(e, text, n, TN_ENCODE_TEMPLATE, &second) == st);
    must(st == TN_OK || st == TN_FAILED); /* a regex that backtracks too far */
    must(first.n == second.n &&
         (!first.n || !memcmp(first.items, second.items, (size_t)first.n * sizeof *first.items)));
    for (int64_t i = 0; i < first.n; i++)
        must(first.items[i] >= 0 && first.items[i] < tn_tokenizer_size(t));
    if (tn_tokenizer_decode(t, first.items, first.n, false, &back) == TN_OK)
        must(tn_unicode_check(tn_text_str(&back), back.n_bytes) == back.n_bytes);
    tn_text_fini(&back);
    tn_ids_fini(&first);
    tn_ids_fini(&second);
    tn_encoder_destroy(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char some[] =
        "It's 12345  caf\xc3\xa9 e\xcc\x81\xe4\xb8\xad <|end|>\r\n\t the\xff "
        "in in\0\xf0\x9f\x98\x80 !!";
    tn_tokenizer *t = NULL;
    if (tn_tokenizer_parse("fuzz", (const char *)data, (int64_t)size, &t) == TN_OK) {
        must(t && tn_tokenizer_size(t) >= 256);
        encode(t, some, sizeof some - 1);
        encode(t, (const char *)data + size / 2, (int64_t)(size < 600 ? size / 2 : 300));
        tn_tokenizer_close(t);
    } else {
        const char *message = tn_error_text();
        must(!t && message[0] && !strchr(message, '\n'));
    }
    tn_error_clear();
    return 0;
}
