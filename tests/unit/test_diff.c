/* Comparing tensors: to the bit, with what differs first and by how much, and by the measure of
 * golden values. */
#include "checkpoints/diff.h"

#include <math.h>

#include "tests/weights.h"

static int n_told;
static tn_diff_tensor told[8];

static void tell(void *arg, const tn_diff_tensor *d)
{
    (void)arg;
    if (n_told < TN_COUNT(told)) told[n_told] = *d;
    n_told++;
}

static void diff_values(void)
{
    enum { N = 1500 };
    static float x[N], y[N];
    char line[256];
    tn_safetensors_tensor a = tn_weights_tensor(TN_SAFETENSORS_F32, x, N),
                          b = tn_weights_tensor(TN_SAFETENSORS_F32, y, N);
    tn_diff_tensor d;
    for (int i = 0; i < N; i++) x[i] = y[i] = (float)i;
    x[5] = y[5] = NAN;
    tn_diff_tensors(&a, &b, &d);
    TN_CHECK(d.kind == TN_DIFF_SAME && d.n_differ == 0 && d.n == N && d.max_abs == 0);
    TN_CHECK_TEXT(tn_diff_text(&d, "A", "B", line, sizeof line), "t: identical");
    y[1000] = 1000.5f;
    y[1400] = 1399;
    tn_diff_tensors(&a, &b, &d);
    TN_CHECK(d.kind == TN_DIFF_VALUES && d.n_differ == 2 && d.first == 1000 && d.a == 1000 &&
             d.b == 1000.5 && d.max_abs == 1);
    TN_CHECK_TEXT(tn_diff_text(&d, "A", "B", line, sizeof line),
                  "t: 2 of 1500 elements differ, max abs difference 1, first at element 1000: 1000 "
                  "and 1000.5");
    y[0] = -0.0f; /* other bits, no difference in value */
    tn_diff_tensors(&a, &b, &d);
    TN_CHECK(d.n_differ == 3 && d.first == 0 && d.max_abs == 1);
    y[7] = NAN;
    tn_diff_tensors(&a, &b, &d);
    TN_CHECK(d.n_differ == 4 && isinf(d.max_abs));
    a.dtype = TN_SAFETENSORS_I32;
    tn_diff_tensors(&a, &b, &d);
    TN_CHECK(d.kind == TN_DIFF_DTYPE);
    TN_CHECK_TEXT(tn_diff_text(&d, "A", "B", line, sizeof line), "t: I32 [1500] and F32 [1500]");
    b.dtype = TN_SAFETENSORS_I32;
    tn_diff_tensors(&a, &b, &d);
    TN_CHECK(d.kind == TN_DIFF_VALUES && d.n_differ == 4 && d.b == (double)INT32_MIN);
    b.shape[0] = b.n = N - 1;
    tn_diff_tensors(&a, &b, &d);
    TN_CHECK(d.kind == TN_DIFF_SHAPE);
    TN_CHECK_TEXT(tn_diff_text(&d, "A", "B", line, sizeof line), "t: I32 [1500] and I32 [1499]");
}

static void diff_integers(void)
{
    static const union {
        int64_t i64[2];
        unsigned char bytes[16];
    } x = {.i64 = {-2, 3}}, y = {.i64 = {-2, 5}};
    static const struct {
        tn_safetensors_dtype dtype;
        double a, b;
    } cases[] = {
        {TN_SAFETENSORS_I64, 3, 5}, {TN_SAFETENSORS_U64, 3, 5}, {TN_SAFETENSORS_I32, 3, 5},
        {TN_SAFETENSORS_U32, 3, 5}, {TN_SAFETENSORS_I16, 3, 5}, {TN_SAFETENSORS_U16, 3, 5},
        {TN_SAFETENSORS_I8, 3, 5},  {TN_SAFETENSORS_U8, 3, 5},  {TN_SAFETENSORS_BOOL, 3, 5}};
    for (int i = 0; i < TN_COUNT(cases); i++) {
        int64_t each = tn_safetensors_dtype_bytes(cases[i].dtype);
        tn_safetensors_tensor a = tn_weights_tensor(cases[i].dtype, x.bytes, 16 / each),
                              b = tn_weights_tensor(cases[i].dtype, y.bytes, 16 / each);
        tn_diff_tensor d;
        tn_diff_tensors(&a, &b, &d);
        TN_CHECK_MSG(d.n_differ == 1 && d.first == 8 / each && d.a == cases[i].a &&
                         d.b == cases[i].b && d.max_abs == 2,
                     "dtype %s", tn_safetensors_dtype_name(cases[i].dtype));
    }
}

static void diff_folders(void)
{
    const char *const left[] = {"b", "m", "only_a"}, *const right[] = {"b", "m", "only_b"};
    tn_diff_result r = {0};
    char line[256];
    tn_weights_folder("left");
    tn_weights_folder("right");
    tn_scratch_text("left/config.json", "{\"a\": 1, \"r\": {\"x\": [1, 2.0]}}");
    tn_scratch_text("right/config.json", "{\"r\": {\"x\": [1.0, 2]}, \"a\": 1}");
    tn_weights_put("left/model.safetensors", left, 2, 1);
    tn_weights_put("right/model.safetensors", right, 2, 1);
    TN_CHECK_OK(tn_diff_folders(tn_scratch_path("left"), tn_scratch_path("right"), tell, NULL, &r));
    TN_CHECK(r.identical && r.n_tensors == 2 && r.n_differ == 0 && n_told == 0 &&
             r.first.kind == TN_DIFF_SAME);

    tn_scratch_text("left/config.json", "{\"a\": 1, \"r\": {\"x\": [1, 3]}, \"left\": true}");
    tn_scratch_text("right/config.json", "{\"a\": \"1\", \"r\": {\"x\": [1, 2]}, \"right\": null}");
    tn_weights_put("left/model.safetensors", left, 3, 1);
    tn_weights_put("right/model.safetensors", right, 3, 1.25f);
    TN_CHECK_OK(tn_diff_folders(tn_scratch_path("left"), tn_scratch_path("right"), tell, NULL, &r));
    TN_CHECK(!r.identical && r.n_tensors == 4 && r.n_differ == 4 && r.n_elements_differ == 4 &&
             r.max_abs == 0.25);
    static const struct {
        tn_diff_kind kind;
        const char *name;
    } want[] = {{TN_DIFF_CONFIG, "a"},      {TN_DIFF_CONFIG, "r"},     {TN_DIFF_CONFIG, "left"},
                {TN_DIFF_CONFIG, "right"},  {TN_DIFF_VALUES, "b"},     {TN_DIFF_VALUES, "m"},
                {TN_DIFF_ONLY_A, "only_a"}, {TN_DIFF_ONLY_B, "only_b"}};
    TN_CHECK(n_told == TN_COUNT(want));
    for (int i = 0; i < TN_COUNT(want); i++)
        TN_CHECK_MSG(told[i].kind == want[i].kind && strcmp(told[i].name, want[i].name) == 0,
                     "difference %d: %s", i, told[i].name);
    TN_CHECK_TEXT(tn_diff_text(&r.first, "A", "B", line, sizeof line), "config.json: a differs");
    TN_CHECK_TEXT(tn_diff_text(&told[6], "A", "B", line, sizeof line), "only_a: only in A");
    TN_CHECK_TEXT(told[7].b_is, "F32 [2]");
    TN_CHECK_TEXT(told[7].a_is, "");
    TN_CHECK_TEXT(tn_diff_text(&told[7], "A", "B", line, sizeof line), "only_b: only in B");
    TN_CHECK_OK(tn_diff_files(tn_scratch_path("left/model.safetensors"),
                              tn_scratch_path("right/model.safetensors"), NULL, NULL, &r));
    TN_CHECK(!r.identical && r.n_differ == 4);
    TN_CHECK_TEXT(r.first.name, "b");
    TN_CHECK_FAILS(
        tn_diff_folders(tn_scratch_path("left"), tn_scratch_path("none"), NULL, NULL, &r),
        TN_BAD_INPUT, "none/config.json");
    TN_CHECK_FAILS(tn_diff_files(tn_scratch_path("none"), tn_scratch_path("left"), NULL, NULL, &r),
                   TN_BAD_INPUT, "none");
}

static void measuring(void)
{
    enum { N = 1000 };
    static float got[N], truth[N];
    static const double loss[] = {4.0};
    tn_safetensors_tensor t = tn_weights_tensor(TN_SAFETENSORS_F32, truth, N),
                          l = tn_weights_tensor(TN_SAFETENSORS_F64, loss, 1);
    tn_safetensors_tensor g = tn_weights_tensor(TN_SAFETENSORS_F32, got, N),
                          ids = tn_weights_tensor(TN_SAFETENSORS_I32, truth, N);
    tn_diff_error e;
    TN_CHECK_OK(tn_diff_measure(got, &t, &e));
    TN_CHECK(e.error == 0 && e.max_truth == 0);
    for (int i = 0; i < N; i++) got[i] = truth[i] = (float)i / 100;
    truth[3] = -20;
    got[3] = -20;
    got[700] = 7.5f;
    TN_CHECK_OK(tn_diff_measure(got, &t, &e));
    TN_CHECK(e.max_abs == 0.5 && e.max_truth == 20 && e.error == 0.025 && e.worst == 700);
    TN_CHECK_OK(tn_diff_measure_tensors(&g, &t, &e));
    TN_CHECK(e.max_abs == 0.5 && e.error == 0.025 && e.worst == 700);
    got[8] = NAN;
    TN_CHECK_OK(tn_diff_measure(got, &t, &e));
    TN_CHECK(isinf(e.error) && e.worst == 8);
    memset(truth, 0, sizeof truth);
    got[8] = 0;
    TN_CHECK_OK(tn_diff_measure(got, &t, &e));
    TN_CHECK(isinf(e.error));
    const float near = 4.000001f;
    TN_CHECK_OK(tn_diff_measure(&near, &l, &e));
    TN_CHECK(e.error == ((double)near - 4) / 4);
    TN_CHECK_FAILS(tn_diff_measure(got, &ids, &e), TN_BAD_INPUT, "has dtype I32");
    TN_CHECK_FAILS(tn_diff_measure_tensors(&ids, &t, &e), TN_BAD_INPUT, "has dtype I32");
    g.shape[0]--;
    TN_CHECK_FAILS(tn_diff_measure_tensors(&g, &t, &e), TN_BAD_INPUT, "it must be [1000]");

    const char *const names[] = {"a", "b"};
    tn_safetensors *x = NULL, *y = NULL;
    tn_diff_worst w = {0};
    tn_weights_put("x", names, 2, 1);
    tn_weights_put("y", names, 1, 1.5f);
    TN_CHECK_OK(tn_safetensors_open(tn_scratch_path("x"), &x));
    TN_CHECK_OK(tn_safetensors_open(tn_scratch_path("y"), &y));
    TN_CHECK_OK(tn_diff_measure_files(x, y, &w));
    TN_CHECK(w.n_tensors == 1 && w.error.error == 0.5 / 2.5);
    TN_CHECK_TEXT(w.tensor ? w.tensor->name : NULL, "a");
    TN_CHECK_FAILS(tn_diff_measure_files(y, x, &w), TN_BAD_INPUT, "no tensor 'b'");
    tn_safetensors_close(x);
    tn_safetensors_close(y);
}

int main(void)
{
    diff_values();
    diff_integers();
    diff_folders();
    measuring();
    return tn_test_done("diff");
}
