#include "engine/base/where.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"

enum { LEVELS = 4 }; /* build/VARIANT/tests/PROGRAM stands four folders below the source tree */

static bool holds_prelude(const char *folder)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/lua/prelude", folder);
    return tn_file_is_folder(path);
}

/* Cut the last part off: "/usr/bin" to "/usr", "/usr" to "". */
static bool up(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    return slash != NULL;
}

tn_status tn_where_share_of(const char *exe, char *out, size_t size)
{
    char folder[PATH_MAX], share[PATH_MAX + 16];
    if (strlen(exe) >= sizeof folder)
        TN_FAIL(TN_FAILED, "%s: the path of the program is too long", exe);
    strcpy(folder, exe);
    up(folder);
    const char *found = NULL;
    for (int level = 0; level < LEVELS && !found && up(folder); level++) {
        snprintf(share, sizeof share, "%s/share/titan", folder);
        if (level == 0 && holds_prelude(share)) found = share;
        else if (holds_prelude(folder)) found = folder;
    }
    if (!found)
        TN_FAIL(TN_FAILED,
                "%s: lua/prelude is neither in ../share/titan nor in a folder above; install titan "
                "again",
                exe);
    if (strlen(found) >= size) TN_FAIL(TN_FAILED, "%s: the path is too long", found);
    strcpy(out, found);
    return TN_OK;
}

tn_status tn_where_share(char *out, size_t size)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0) return tn_file_error("/proc/self/exe", "read");
    exe[n] = 0;
    return tn_where_share_of(exe, out, size);
}
