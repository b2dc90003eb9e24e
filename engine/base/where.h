/* where.h - where the program's own files are: prelude and recipes, found from the executable,
 * never from the working folder or the environment. */
#ifndef TN_ENGINE_BASE_WHERE_H
#define TN_ENGINE_BASE_WHERE_H
#include "engine/base/base.h"

TN_C_BEGIN

/* The folder that holds lua/prelude and recipes: PREFIX/share/titan for PREFIX/bin/titan, else the
 * source tree above a program in build/. Absolute, without a slash at the end; TN_FAILED if there
 * is none or it does not fit. */
tn_status tn_where_share(char *out, size_t size) TN_MUST_USE;

/* The same for an executable that stands at `exe` (absolute). */
tn_status tn_where_share_of(const char *exe, char *out, size_t size) TN_MUST_USE;

TN_C_END
#endif
