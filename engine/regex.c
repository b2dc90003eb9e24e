#include "engine/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/pattern.h"

struct tn_regex {
    pcre2_code *code;
    bool jit;
};

struct tn_regex_search {
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
    int64_t n; /* length of the text that the limits were set for */
};

enum { JIT_STACK_MIN = 64 << 10, JIT_STACK_MAX = 64 << 20, SHOWN = 30 };

static void *take(PCRE2_SIZE bytes, void *user)
{
    void *p = NULL;
    (void)user;
    if (tn_alloc(bytes, &p) == TN_OK) return p;
    tn_error_clear();
    return NULL;
}

static void give(void *p, void *user)
{
    (void)user;
    tn_free(p);
}

const char *tn_regex_library(void)
{
    static _Thread_local char name[96];
    char version[64] = "?", unicode[64] = "?";
    uint32_t jit = 0;
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    pcre2_config(PCRE2_CONFIG_JIT, &jit);
    version[strcspn(version, " ")] = 0;
    snprintf(name, sizeof name, "PCRE2 %s (Unicode %s%s)", version, unicode, jit ? ", JIT" : "");
    return name;
}

static tn_status starved(void)
{
    TN_FAIL(TN_FAILED, "memory: out of memory for a regular expression");
}

/* Newlines are LF alone, as in Oniguruma; \C would look into characters. */
static tn_status compile(const char *where, const tn_text *pattern, tn_regex *r)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        r->code =
            pcre2_compile((PCRE2_SPTR)tn_text_str(pattern), (PCRE2_SIZE)pattern->n_bytes,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
    }
    if (r->code) r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (!context || (!r->code && error == PCRE2_ERROR_HEAP_FAILED)) return starved();
    if (!r->code) {
        PCRE2_UCHAR text[160] = "";
        pcre2_get_error_message(error, text, sizeof text);
        int64_t from = at > SHOWN ? (int64_t)at - SHOWN : 0;
        const char *rewritten = tn_text_str(pattern);
        while (from < (int64_t)at && ((unsigned char)rewritten[from] & 0xc0) == 0x80) from++;
        TN_FAIL(TN_BAD_INPUT, "%s: %s, in the regex behind '%.*s'; correct it", where,
                (const char *)text, (int)((int64_t)at - from), rewritten + from);
    }
    return TN_OK;
}

tn_status tn_regex_compile(const char *where, const char *pattern, tn_regex **out)
{
    void *mem = NULL;
    tn_text rewritten = {0};
    tn_status st = tn_pattern_rewrite(where, pattern, &rewritten);
    if (!st) st = tn_alloc(sizeof **out, &mem);
    if (!st) st = compile(where, &rewritten, mem);
    tn_text_fini(&rewritten);
    if (st) {
        tn_regex_free(mem);
        return st;
    }
    *out = mem;
    return TN_OK;
}

void tn_regex_free(tn_regex *r)
{
    if (r) pcre2_code_free(r->code);
    tn_free(r);
}

tn_status tn_regex_search_create(tn_regex_search **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof **out, &mem));
    tn_regex_search *s = mem;
    s->n = -1;
    s->general = pcre2_general_context_create(take, give, NULL);
    if (s->general) s->context = pcre2_match_context_create(s->general);
    if (s->context) s->data = pcre2_match_data_create(1, s->general);
    if (s->data) s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, s->general);
    if (!s->data) {
        tn_regex_search_destroy(s);
        return starved();
    }
    if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack); /* without: the machine's */
    *out = s;
    return TN_OK;
}

void tn_regex_search_destroy(tn_regex_search *s)
{
    if (!s) return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_general_context_free(s->general);
    tn_free(s);
}

/* A run of blanks as long as the text takes a few steps for each of its bytes; a pattern that
 * backtracks without end must not. */
static void set_limits(tn_regex_search *s, int64_t n)
{
    int64_t most = 1000000 + 64 * n;
    pcre2_set_match_limit(s->context, most < UINT32_MAX ? (uint32_t)most : UINT32_MAX);
    pcre2_set_depth_limit(s->context, UINT32_MAX);
    s->n = n;
}

static tn_status failed(int rc, int64_t n, int64_t from)
{
    PCRE2_UCHAR text[160] = "";
    pcre2_get_error_message(rc, text, sizeof text);
    TN_FAIL(TN_FAILED,
            "regex: %s at byte %lld of a text of %lld; this pattern backtracks too far on it",
            (const char *)text, (long long)from, (long long)n);
}

tn_status tn_regex_find(const tn_regex *r, tn_regex_search *s, const char *text, int64_t n,
                        int64_t from, int64_t *begin, int64_t *end)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    if (n != s->n) set_limits(s, n);
    int rc = r->jit ? pcre2_jit_match(r->code, subject, (PCRE2_SIZE)n, (PCRE2_SIZE)from, 0, s->data,
                                      s->context)
                    : pcre2_match(r->code, subject, (PCRE2_SIZE)n, (PCRE2_SIZE)from,
                                  PCRE2_NO_UTF_CHECK, s->data, s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, subject, (PCRE2_SIZE)n, (PCRE2_SIZE)from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->context);
    *begin = -1;
    if (rc == PCRE2_ERROR_NOMATCH) return TN_OK;
    if (rc < 0) return failed(rc, n, from);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->data);
    *begin = (int64_t)range[0];
    *end = (int64_t)range[1];
    return TN_OK;
}
