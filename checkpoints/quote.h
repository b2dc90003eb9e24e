/* quote.h - what a foreign file says, made safe for a message: one line, no control characters, no
 * more than 64 bytes. */
#ifndef TN_CHECKPOINTS_QUOTE_H
#define TN_CHECKPOINTS_QUOTE_H
#include <string.h>

#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_quote {
    char s[72];
} tn_quote;

/* Bytes of the control character (C0, DEL or C1) that the UTF-8 text s begins with; 0 if it begins
 * with none. */
static inline int tn_quote_control(const char *s)
{
    const unsigned char *u = (const unsigned char *)s;
    if ((u[0] && u[0] < 0x20) || u[0] == 0x7f) return 1;
    return u[0] == 0xc2 && u[1] >= 0x80 && u[1] < 0xa0 ? 2 : 0;
}

/* tn_quote_text(s).s is good inside the full expression that calls it, as a printf argument. */
static inline tn_quote tn_quote_text(const char *s)
{
    tn_quote q;
    size_t n = 0;
    while (*s && n < 64) {
        int control = tn_quote_control(s);
        q.s[n++] = control ? '?' : *s;
        s += control ? control : 1;
    }
    while (*s && n && ((unsigned char)*s & 0xc0) == 0x80) { /* never half a character */
        n--;
        s--;
    }
    strcpy(q.s + n, *s ? "..." : "");
    return q;
}

TN_C_END
#endif
