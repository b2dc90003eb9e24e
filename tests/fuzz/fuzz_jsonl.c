/* Any bytes as lines of JSONL: each is refused in one line or gives a text; what the JSON library
 * reads as an object gives the text that the library sees.
 *
 * The whole input is read as a file as well, in the smallest chunks, each from its bookmark. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/documents.h"
#include "engine/jsonl.h"
#include "tests/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool ok)
{
    if (!ok) abort();
}

static void read_line(const char *line, int64_t n)
{
    char *exact = malloc((size_t)n + 1), *text = malloc((size_t)n + 1);
    int64_t n_text = -1;
    must(exact && text);
    memcpy(exact, line, (size_t)n);
    tn_status st = tn_jsonl_text("fuzz: line 1", exact, n, "text", text, &n_text);
    if (st)
        must(st == TN_BAD_INPUT && !strchr(tn_error_text(), '\n') &&
             strncmp(tn_error_text(), "fuzz: line 1: ", 14) == 0);
    else must(n_text >= 0 && n_text <= n);
    const tn_json *j = NULL;
    if (tn_json_parse("library", exact, n, &j) == TN_OK && tn_json_kind_of(j) == TN_JSON_OBJECT) {
        const char *want = tn_json_string(tn_json_find(j, "text"));
        must((st == TN_OK) == (want != NULL));
        if (want) must(n_text == (int64_t)strlen(want) && !memcmp(text, want, (size_t)n_text));
    }
    tn_json_free(j);
    tn_error_clear();
    free(exact);
    free(text);
}

static void read_file(const uint8_t *bytes, size_t n)
{
    tn_documents_rule rule = {.section = "data", .jsonl = true, .field = "text"};
    tn_data_path path = {.pattern = tn_scratch_write("fuzz.jsonl", bytes, n)};
    tn_paths paths;
    tn_chunk c = {0};
    tn_bookmark at = {0};
    if (tn_paths_find("data", &path, 1, &paths)) { /* empty */
        tn_error_clear();
        return;
    }
    for (;;) {
        tn_documents *d;
        must(!tn_documents_open(&paths, &rule, &at, &d));
        tn_status st = tn_documents_read(d, 1, &c);
        tn_documents_close(d);
        must(!st || (st == TN_BAD_INPUT && !strchr(tn_error_text(), '\n')));
        if (st || !c.n_pieces) break;
        must(c.end.offset > at.offset || c.end.file > at.file);
        at = c.end;
    }
    tn_error_clear();
    tn_chunk_fini(&c);
    tn_paths_fini(&paths);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *p = (const char *)bytes, *end = p + n;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *stop = newline ? newline + 1 : end;
        read_line(p, stop - p);
        p = stop;
    }
    read_file(bytes, n);
    return 0;
}
