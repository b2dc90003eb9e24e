/* UTF-8, classes and NFC against their definitions. */
#include "engine/unicode.h"

#include <stdlib.h>

#include "tests/test.h"

static const char *mended(const char *text, int64_t n)
{
    static tn_text out;
    char *exact = malloc((size_t)n + !n);
    tn_text_cut(&out, 0);
    if (!exact) return "";
    memcpy(exact, text, (size_t)n);
    tn_unicode_mend(exact, n, &out);
    TN_CHECK_OK(tn_text_end(&out));
    TN_CHECK(tn_unicode_check(tn_text_str(&out), out.n_bytes) == out.n_bytes);
    free(exact);
    return tn_text_str(&out);
}

#define U "\xef\xbf\xbd"
#define MENDS(text, want) TN_CHECK_TEXT(mended((text), (int64_t)sizeof(text) - 1), (want))

/* The Unicode standard, section 3.9, U+FFFD substitution of maximal subparts. */
static void broken(void)
{
    MENDS("", "");
    MENDS("plain", "plain");
    MENDS("\x80", U);
    MENDS("\xc3", U);
    MENDS("\xe2\x82", U);
    MENDS("\xe2\x82x", U "x");
    MENDS("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", U U U U U U U U "A");
    MENDS("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", U U U U U U U U "A");
    MENDS("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", U U U U U "A" U U "B");
    MENDS("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", U U U U "A");
    MENDS("12345678\xc3\xa9\xf0\x9f\x98\x80", "12345678\xc3\xa9\xf0\x9f\x98\x80");
    TN_CHECK(tn_unicode_check("abcdefgh\xff", 9) == 8);
    TN_CHECK(tn_unicode_check("abcdefgh\xc3\xa9z", 11) == 11);
}

static void encode(int32_t c, char out[4], int *n)
{
    if (c < 0x80) {
        *n = 1;
        out[0] = (char)c;
        return;
    }
    *n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = *n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf0 << (4 - *n) & 0xff) | c);
}

static void characters(void)
{
    int spaces = 0, words = 0, wrong = 0;
    for (int32_t c = 0; c < 0x110000; c++) {
        char text[4];
        int n, bytes = 0;
        if (c >= 0xd800 && c < 0xe000) continue;
        encode(c, text, &n);
        wrong += tn_unicode_check(text, n) != n || tn_unicode_at(text, 0, &bytes) != c ||
                 bytes != n || tn_unicode_before(text, n, &bytes) != c || bytes != n;
        spaces += tn_unicode_is_space(c);
        words += tn_unicode_is_word(c);
    }
    TN_CHECK(wrong == 0 && spaces == 25);
    TN_CHECK_MSG(words > 130000 && words < 160000, "%d word characters", words);
    static const int32_t yes[] = {'a', 'Z', '0', '_', 0xe9, 0x301, 0x24b6, 0x2160, 0x203f, 0x200d},
                         no[] = {' ', '-', 0xd7, 0xb2, 0x2460, 0x1f600, 0x2028, 0xfffd};
    for (int i = 0; i < TN_COUNT(yes); i++)
        TN_CHECK_MSG(tn_unicode_is_word(yes[i]), "U+%04X is a word character", (unsigned)yes[i]);
    for (int i = 0; i < TN_COUNT(no); i++)
        TN_CHECK_MSG(!tn_unicode_is_word(no[i]), "U+%04X is no word character", (unsigned)no[i]);
}

static void composes(const char *text, const char *want)
{
    tn_text out = {0};
    TN_CHECK_OK(tn_unicode_nfc(text, (int64_t)strlen(text), &out));
    TN_CHECK_TEXT(tn_text_str(&out), want);
    tn_text_fini(&out);
}

static tn_status compose_once(void *arg)
{
    tn_text out = {0};
    const char *text = arg;
    tn_status st = tn_unicode_nfc(text, (int64_t)strlen(text), &out);
    tn_text_fini(&out);
    return st;
}

static void composed(void)
{
    composes("", "");
    composes("plain", "plain");
    composes("e\xcc\x81", "\xc3\xa9");
    composes("xe\xcc\x81y", "x\xc3\xa9y");
    composes("\xcc\x81"
             "a",
             "\xcc\x81"
             "a");
    composes("a\xcc\xa3\xcc\x82", "\xe1\xba\xad");        /* two accents, one character */
    composes("a\xcc\x82\xcc\xa3", "\xe1\xba\xad");        /* in the other order */
    composes("\xc3\xa2\xcc\xa3", "\xe1\xba\xad");         /* half composed already */
    composes("\xe2\x84\xab", "\xc3\x85");                 /* the angstrom sign */
    composes("\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81"); /* a Hangul syllable and a final */
    composes("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81");
    composes("\xe3\x81\x8b\xe3\x82\x99", "\xe3\x81\x8c"); /* kana and voice mark */
    composes("\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad\xe6\x96\x87");
    composes("\xd0\xb8\xcc\x86", "\xd0\xb9");
    composes("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"); /* excluded from composition */
    char text[] = "ae\xcc\x81 \xe1\x84\x80\xe1\x85\xa1";
    TN_CHECK(tn_test_each_alloc(compose_once, text) >= 3);
}

int main(void)
{
    broken();
    characters();
    composed();
    return tn_test_done("unicode");
}
