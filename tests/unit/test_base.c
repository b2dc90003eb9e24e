/* The error record and the memory hooks (engine/base/base.h, mem.h). */
#include "tests/test.h"

static tn_status two_blocks(void *arg)
{
    void *a = NULL, *b = NULL;
    tn_status st = tn_alloc(10, &a);
    if (st == TN_OK) st = tn_alloc(20, &b);
    if (st == TN_OK) *(int *)arg += 1;
    tn_free(a);
    tn_free(b);
    return st;
}

int main(void)
{
    TN_CHECK(tn_error(TN_BAD_INPUT, "a: %d; b", 3) == TN_BAD_INPUT);
    TN_CHECK_TEXT(tn_error_text(), "a: 3; b");
    int done = 0;
    TN_CHECK(tn_test_each_alloc(two_blocks, &done) == 2 && done == 1);
    return tn_test_done("base");
}
