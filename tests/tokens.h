/* tokens.h - small tokenizer.json files for tests: the 256 byte tokens, then the words that a test
 * gives, numbered on from 256. */
#ifndef TN_TESTS_TOKENS_H
#define TN_TESTS_TOKENS_H
#include "engine/base/text.h"
#include "tests/test.h"

/* The byte as a character of the byte alphabet, written from its definition. */
TN_UNUSED static void tn_tokens_byte(tn_text *t, int byte)
{
    int next = 0x100, c = 0;
    for (int b = 0; b <= byte; b++) {
        bool own = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        c = own ? b : next++;
    }
    if (c == '"' || c == '\\') tn_text_add(t, "\\%c", c);
    else if (c < 0x80) tn_text_add(t, "%c", c);
    else tn_text_add(t, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
}

typedef struct tn_words {
    const char *words;  /* more of model.vocab: ", \"ab\": 256" */
    const char *merges; /* "\"a b\", \"ab c\"" */
    const char *model;  /* more of model: ", \"ignore_merges\": true" */
    const char *steps;  /* the pre-tokenizers before ByteLevel: "{...}, "; NULL: none */
    const char *rest;   /* more of the file: ", \"normalizer\": {...}" */
} tn_words;

/* The file; ByteLevel without its regex. Free it with tn_text_fini. */
TN_UNUSED static tn_text tn_words_file(const tn_words *s)
{
    tn_text t = {0};
    tn_text_add(&t, "{\"version\": \"1.0\", \"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (int b = 0; b < 256; b++) {
        tn_text_add(&t, b ? ", \"" : "\"");
        tn_tokens_byte(&t, b);
        tn_text_add(&t, "\": %d", b);
    }
    tn_text_add(&t, "%s}, \"merges\": [%s]%s}, \"pre_tokenizer\": {\"type\": \"Sequence\", ",
                s->words ? s->words : "", s->merges ? s->merges : "", s->model ? s->model : "");
    tn_text_add(&t,
                "\"pretokenizers\": [%s{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                "\"use_regex\": false}]}, \"decoder\": {\"type\": \"ByteLevel\"}%s}",
                s->steps ? s->steps : "", s->rest ? s->rest : "");
    TN_CHECK_OK(tn_text_end(&t));
    return t;
}

#endif
