#!/usr/bin/env python3
"""configure.py - finds out what this machine has and writes build/config.ninja and build/files.ninja.

Everything is probed by compiling and linking a small program. What is missing is named with the Debian package that brings
it; --install-deps installs what is required. The arguments are recorded, and ninja runs this file again when it or the list
of source files changes. docs/decisions/0001-build.md says why the build looks as it does.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.abspath(__file__))
BUILD = "build"
STATE = BUILD + "/config.json"  # arguments and probe results of the last run

# The floors, top first, each with the folders whose *.c it is made of (DESIGN: a folder sees itself and lower floors only).
FLOORS = [
    ("lua", ["lua"]),
    ("engine", ["engine"]),
    ("checkpoints", ["checkpoints"]),
    ("kernels", ["kernels", "kernels/cpu"]),
    ("graph", ["graph", "graph/ops"]),
    ("base", ["engine/base"]),
]
SEES = {"lua": ["engine"], "engine": ["checkpoints", "kernels"], "checkpoints": ["graph"], "kernels": ["graph"],
        "graph": ["base"], "base": []}
MAIN = "lua/titan.c"  # the only file with main(); not part of a floor's archive
FLAGS = {"lua": "$lua_cflags", "kernels": "$isa_defs"}  # only the floor of a library's door sees its headers
ISAS = {
    "portable": "-DTN_ISA_portable -Wno-psabi",
    "avx2": "-DTN_ISA_avx2 -mavx2 -mfma",
    "avx512": "-DTN_ISA_avx512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx2 -mfma",
}
EXTENSIONS = {"avx512bf16": "AVX-512 BF16"}  # x_avx512bf16.c: the set's flags and this one; without it an absent twin
TSAN_TESTS = ["test_pool", "test_ops", "test_steps"]  # what runs on several threads, where it exists
WATCHED = ["tests", "tests/unit", "tests/ops", "tests/fuzz", "tests/bench"]


def sources(folder):
    return sorted(glob.glob(folder + "/*.c"))


# ---------------------------------------------------------------------------------------------------------------- probes


class Probe:
    """One thing looked for: `need` is required, build, test or bench; `package` brings it on Debian."""

    def __init__(self, name, need, package, run, use=""):
        self.name, self.need, self.package, self.run, self.use = name, need, package, run, use


def call(cmd, **kw):
    try:
        return subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, **kw)
    except (OSError, subprocess.TimeoutExpired):
        return None


def links(cc, code, flags=(), libs=(), run=False, suffix=".c"):
    """Compiles and links `code`. Returns None, or what the program printed (run) or ''."""
    with tempfile.TemporaryDirectory() as tmp:
        src, exe = tmp + "/probe" + suffix, tmp + "/probe"
        with open(src, "w") as f:
            f.write(code)
        done = call(cc + list(flags) + [src, "-o", exe] + list(libs))
        if done is None or done.returncode != 0:
            return None
        if not run:
            return ""
        done = call([exe])
        return done.stdout.decode().strip() if done and done.returncode == 0 else None


def pkg_config(package, fallback):
    """[(cflags, libs)] to try in turn: what pkg-config says, then each fallback."""
    tries = []
    done = call(["pkg-config", "--cflags", package]) if shutil.which("pkg-config") else None
    if done and done.returncode == 0:
        libs = call(["pkg-config", "--libs", package])
        tries.append((shlex.split(done.stdout.decode()), shlex.split(libs.stdout.decode())))
    return tries + fallback


def library(cc, header, version, tries):
    """Links a program that prints `version` (a printf argument list) for each (cflags, libs) until one works."""
    code = "#include <stdio.h>\n%s\nint main(void) { printf(%s); return 0; }\n" % (header, version)
    for cflags, libs in tries:
        out = links(cc, code, cflags, libs, run=True)
        if out is not None:
            return {"version": out, "cflags": " ".join(cflags), "libs": " ".join(libs)}
    return None


def found(version):
    return None if version is None else {"version": version}


def tool(name):
    path = shutil.which(name)
    done = call([path, "--version"]) if path else None
    return {"version": done.stdout.decode().splitlines()[0].strip(), "path": path} if done and done.stdout else None


def found_tool(name, option):
    """A tool that says its version on either output."""
    path = shutil.which(name)
    done = call([path, option]) if path else None
    return {"version": done.stdout.decode().strip(), "path": path} if done and done.returncode == 0 else None


def python_module(name):
    return {"version": ""} if importlib.util.find_spec(name) else None


def cuda_library(cc, header, symbol, lib):
    roots = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr"]
    code = "#include <%s>\nint main(void) { return (int)((long)&%s & 1) & 0; }\n" % (header, symbol)
    for root in [r for r in roots if r and os.path.isdir(r)]:
        flags = ["-I%s/include" % root] if root != "/usr" else []
        if links(cc, code, flags, ["-L%s/lib64" % root, "-L%s/lib64/stubs" % root, "-l" + lib]) is not None:
            return {"version": "", "root": root}
    return None


AVX2 = """#include <immintrin.h>
int main(void) { __m256 a = _mm256_set1_ps(1); a = _mm256_fmadd_ps(a, a, a); return (int)_mm256_cvtss_f32(a) == 7; }
"""
AVX512 = """#include <immintrin.h>
int main(void) { __m512 a = _mm512_set1_ps(1); a = _mm512_fmadd_ps(a, a, a);
                 return (int)_mm512_reduce_add_ps(a) == 7 + (int)_mm512_movepi32_mask(_mm512_castps_si512(a)); }
"""
AVX512BF16 = """#include <immintrin.h>
int main(void) { __m512 a = _mm512_set1_ps(1); a = _mm512_dpbf16_ps(a, (__m512bh)a, (__m512bh)a);
                 return (int)_mm512_cvtss_f32(a) == 7 + !__builtin_cpu_supports("avx512bf16"); }
"""
PTHREAD = """#include <pthread.h>
static void *f(void *p) { return p; }
int main(void) { pthread_t t; return pthread_create(&t, 0, f, 0) || pthread_join(t, 0); }
"""
FUZZER = """#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return size > 99 && data[0] == 1 ? -1 : 0; }
"""
EMPTY = "int main(void) { return 0; }\n"


def probes(args):
    cc, clang = shlex.split(args.cc), shlex.split(args.clang)
    lua = [(["-I/usr/include/lua5.4"], ["-llua5.4"]), (["-I/usr/include/lua5.4"], ["-llua54"]), ([], ["-llua5.4"]),
           ([], ["-llua"])]
    hdf5 = [(["-I/usr/include/hdf5/serial"], ["-L/usr/lib/%s/hdf5/serial" % os.uname().machine + "-linux-gnu", "-lhdf5"]),
            ([], ["-lhdf5_serial"]), ([], ["-lhdf5"])]
    asan = ["-fsanitize=address,undefined"]
    return [
        Probe("C compiler", "build", "gcc", lambda: compiler(cc)),
        Probe("pthread", "build", "libc6-dev", lambda: found(links(cc, PTHREAD, ["-pthread"], run=True))),
        Probe("Lua 5.4", "build", "liblua5.4-dev", lambda: library(
            cc, '#include <lua.h>\n#include <lauxlib.h>\n#if LUA_VERSION_NUM != 504\n#error\n#endif',
            '"%s%.0d", LUA_RELEASE + 4, luaL_newstate() == 0', pkg_config("lua5.4", lua))),
        Probe("jansson", "build", "libjansson-dev", lambda: library(
            cc, "#include <jansson.h>", '"%s%.0d", JANSSON_VERSION, json_null() == 0', [([], ["-ljansson"])])),
        Probe("xxhash", "build", "libxxhash-dev", lambda: library(
            cc, "#include <xxhash.h>", '"%d.%d.%d%.0d", XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE, '
            'XXH64("", 0, 0) == 0', [([], ["-lxxhash"])])),
        Probe("PCRE2", "build", "libpcre2-dev", lambda: library(
            cc, "#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>", '"%d.%d%.0d", PCRE2_MAJOR, PCRE2_MINOR, '
            'pcre2_config(PCRE2_CONFIG_UNICODE, NULL) < 0', pkg_config("libpcre2-8", [([], ["-lpcre2-8"])]))),
        Probe("utf8proc", "build", "libutf8proc-dev", lambda: library(
            cc, "#include <utf8proc.h>", '"%s", utf8proc_version()', [([], ["-lutf8proc"])])),
        Probe("zlib", "build", "zlib1g-dev", lambda: library(
            cc, "#include <zlib.h>", '"%s%.0d", ZLIB_VERSION, zlibVersion() == 0', [([], ["-lz"])])),
        Probe("zstd", "build", "libzstd-dev", lambda: library(
            cc, "#include <zstd.h>", '"%s%.0d", ZSTD_versionString(), ZSTD_VERSION_NUMBER < 10400', [([], ["-lzstd"])])),
        Probe("ninja", "build", "ninja-build", lambda: tool("ninja")),
        Probe("libedit", "demo", "libedit-dev", lambda: library(
            cc, "#include <histedit.h>", '"%d.%d%.0d", LIBEDIT_MAJOR, LIBEDIT_MINOR, history_init() == 0', [([], ["-ledit"])]),
            "line editing in titan -i"),
        Probe("Graphviz", "test", "graphviz", lambda: found_tool("dot", "-V"), "the test that draws graphs"),
        Probe("AVX2 kernels", "", "", lambda: found(links(cc, AVX2, ["-mavx2", "-mfma"])), "x86-64 only"),
        Probe("AVX-512 kernels", "", "", lambda: found(links(cc, AVX512, ISAS["avx512"].split())), "x86-64 only"),
        Probe("AVX-512 BF16", "", "", lambda: found(links(cc, AVX512BF16, ISAS["avx512"].split() + ["-mavx512bf16"])),
              "x86-64 only, fast mode"),
        Probe("WordNet glosses", "demo", "wordnet-base", lambda: wordnet(args.wordnet), "text of ninja demo"),
        Probe("asan, ubsan", "test", "gcc", lambda: found(links(cc, EMPTY, asan, run=True)), "ninja asan, hostile"),
        Probe("tsan", "test", "gcc", lambda: found(links(cc, EMPTY, ["-fsanitize=thread"])), "ninja tsan"),
        Probe("libFuzzer", "test", "clang", lambda: found(links(
            clang, FUZZER, ["-fsanitize=fuzzer,address,undefined"])), "ninja fuzz"),
        Probe("numpy", "extra", "python3-numpy", lambda: python_module("numpy"), "optional tests"),
        Probe("safetensors", "extra", "", lambda: python_module("safetensors"), "optional tests (Python package)"),
        Probe("torch", "extra", "", lambda: python_module("torch"), "optional tests, paired bench (Python package)"),
        Probe("transformers", "extra", "", lambda: python_module("transformers"), "optional tests (Python package)"),
        Probe("OpenBLAS", "bench", "libopenblas-dev", lambda: found(links(
            cc, "int cblas_sgemm(void);\nint main(void) { return cblas_sgemm(); }", [], ["-lopenblas"])), "bench"),
        Probe("BLIS", "bench", "libblis-dev", lambda: found(links(
            cc, "int bli_init(void);\nint main(void) { return bli_init(); }", [], ["-lblis"])), "bench"),
        Probe("oneDNN", "bench", "libdnnl-dev", lambda: found(links(
            cc, "int dnnl_sgemm(void);\nint main(void) { return dnnl_sgemm(); }", [], ["-ldnnl"])), "bench"),
        Probe("MPI", "bench", "libopenmpi-dev", lambda: found(links(
            ["mpicc"], "#include <mpi.h>\nint main(void) { return MPI_Finalize(); }")), "bench of communication"),
        Probe("mpirun", "bench", "openmpi-bin", lambda: tool("mpirun"), "bench of communication"),
        Probe("HDF5", "later", "libhdf5-dev", lambda: library(
            cc, "#include <hdf5.h>", '"%d.%d.%d%.0d", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE, H5open() < 0',
            pkg_config("hdf5", hdf5)), "checkpoints (not used yet)"),
        Probe("CUDA nvcc", "later", "nvidia-cuda-toolkit", nvcc, "CUDA plugin (not used yet)"),
        Probe("cuBLASLt", "later", "", lambda: cuda_library(cc, "cublasLt.h", "cublasLtCreate", "cublasLt"),
              "CUDA plugin (not used yet)"),
        Probe("cuDNN", "later", "", lambda: cuda_library(cc, "cudnn.h", "cudnnCreate", "cudnn"),
              "CUDA plugin (not used yet)"),
        Probe("NCCL", "later", "", lambda: cuda_library(cc, "nccl.h", "ncclCommInitAll", "nccl"),
              "CUDA plugin (not used yet)"),
    ]


def compiler(cc):
    if links(cc, "#include <stdatomic.h>\n" + EMPTY, ["-std=c11"], run=True) is None:
        return None
    done = call(cc + ["--version"])
    return {"version": done.stdout.decode().splitlines()[0]} if done else None


def wordnet(folder):
    files = [folder + "/data." + k for k in ("noun", "verb", "adj", "adv")]
    return {"version": folder} if all(os.path.isfile(f) for f in files) else None


def nvcc():
    path = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if links([path], "__global__ void f() {}\nint main() { f<<<1, 1>>>(); return 0; }\n", suffix=".cu") is None:
        return None
    done = call([path, "--version"])
    return {"version": done.stdout.decode().strip().splitlines()[-1], "path": path}


def find_all(args):
    todo = probes(args)
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        return todo, dict(zip([p.name for p in todo], pool.map(lambda p: p.run(), todo)))


def install(packages):
    if not shutil.which("apt-get"):
        sys.exit("configure.py: --install-deps needs apt-get; install by hand: " + " ".join(packages))
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    env = ["env", "DEBIAN_FRONTEND=noninteractive"]
    for step in (["update"], ["install", "-y", "--no-install-recommends"] + packages):
        cmd = sudo + env + ["apt-get"] + step
        print("+ " + " ".join(cmd), flush=True)
        if subprocess.run(cmd).returncode != 0 and step[0] == "install":
            sys.exit("configure.py: apt-get could not install: " + " ".join(packages))


def table(todo, got):
    for p in todo:
        if got[p.name] is not None:
            print("  %-16s yes  %s" % (p.name, got[p.name]["version"]))
        else:
            brings = "apt-get install " + p.package if p.package else p.use
            print("  %-16s no   %s%s" % (p.name, brings, " (for %s)" % p.use if p.package and p.use else ""))


# ----------------------------------------------------------------------------------------------------------------- ninja


def write(path, text):
    """Writes only what differs, but always renews the time: ninja compares it with the watched folders."""
    old = open(path).read() if os.path.exists(path) else None
    if old == text:
        os.utime(path)
        return
    with open(path + ".new", "w") as f:
        f.write(text)
    os.replace(path + ".new", path)


def lines_of(title, body):
    return "# %s\n" % title + "".join(line + "\n" for line in body)


def config_ninja(args, got):
    """What depends on the machine; included before everything else."""
    lua, libs = got["Lua 5.4"], ["Lua 5.4", "jansson", "xxhash", "PCRE2", "utf8proc", "zlib", "zstd"] + (["libedit"] if got["libedit"] else [])
    folders = [d for _, ds in FLOORS for d in ds if sources(d)]
    folders += [d for d in WATCHED if os.path.isdir(d)]
    programs = [s for d in WATCHED for s in sources(d)] + glob.glob("tests/*.h")  # their includes choose the archives
    programs = sorted(programs) + [MAIN]
    variants = ["asan", "hostile"] if got["asan, ubsan"] else []
    needs = ["tests-release", "build/plant/titan"] + ["tests-" + v for v in variants]
    if got["tsan"]:
        needs += ["build/tsan/tests/" + t for t in TSAN_TESTS if os.path.exists("tests/unit/%s.c" % t)]
    if got["libFuzzer"]:
        needs += ["fuzzers-fuzz"]
    body = [
        "cc = " + args.cc,
        "clang = " + args.clang,
        "ar = ar",
        "python = " + shlex.quote(sys.executable),
        "prefix = " + args.prefix,
        "lua_cflags = " + lua["cflags"].replace("-I", "-isystem ") + (" -DTN_HAVE_LIBEDIT" if got["libedit"] else ""),
        "libs = %s -lm -ldl" % " ".join(got[n]["libs"] for n in libs),
        "isa_defs = " + " ".join("-DTN_HAVE_" + i.upper() for i in isas_of(got) + extensions_of(got) if i != "portable"),
        "wordnet = " + args.wordnet,
        "text = " + (args.text or "build/glosses.txt"),
        "demo_args = " + ("data.path=" + args.text if args.text else ""),
        "",
        "rule configure",
        "  command = $python configure.py --again",
        "  description = configure",
        "  generator = 1",
        "build build/config.ninja build/files.ninja: configure | configure.py %s" % " ".join(folders + programs),
        "build build.ninja: phony build/config.ninja build/files.ninja",
        "build test-needs: phony " + " ".join(needs),
    ]
    return lines_of("config.ninja - written by configure.py: this machine", body)


def folders_of(src):
    """The folders whose headers a file includes, also by way of tests/*.h."""
    with open(src) as f:
        included = re.findall(r'^#include "(([^"]*)/[^/"]*)"', f.read(), re.M)
    folders = {folder for _, folder in included}
    for header, folder in included:
        if folder == "tests" and os.path.exists(header) and header != src:
            folders |= folders_of(header)
    return folders


def more_of(src):
    """The other files of a test that is too long for one: tests/ops/*.c go with tests/unit/test_ops.c."""
    return sources("tests/" + name_of(src)[5:]) if name_of(src).startswith("test_") else []


def floors_of(src):
    """The archives a program needs, top first: those of the floors that it includes, and what these see."""
    included = set().union(*(folders_of(s) for s in [src] + more_of(src)))
    todo = ["base"] + [floor for floor, folders in FLOORS for d in included if d in folders]
    seen = set()
    while todo:
        floor = todo.pop()
        seen.add(floor)
        todo += SEES[floor]
    return [floor for floor, folders in FLOORS if floor in seen and any(set(sources(d)) - {MAIN} for d in folders)]


def files_ninja(isas, extensions):
    """One edge for each source file, in terms of $variant."""
    # ninja looks a command's variables up when it runs, so this scope keeps what build.ninja says now.
    out, b = ["%s = $%s" % (v, v) for v in ("variant", "cc", "vflags", "kernel_opt", "fuzz_link")], "build/$variant/"

    def compiles(src, flags="", obj=None):
        obj = b + (obj or src[:-2] + ".o")
        out.append("build %s: cc %s" % (obj, src))
        if flags:
            out.append("  flags = " + flags)
        return obj

    def program(exe, src, others="", flags="", compile_flags=""):
        floors = " ".join(b + "lib/%s.a" % floor for floor in floors_of(src))
        obj = compiles(src, compile_flags)
        out.extend(["build %s: link %s %s | %s" % (b + exe, obj, others, floors), "  floors = " + floors])
        if flags:
            out.append("  flags = " + flags)
        return b + exe

    for floor, folders in FLOORS:
        objs = []
        for src in [s for d in folders for s in sources(d) if s != MAIN]:
            if src.endswith("_isa.c"):
                objs += [compiles(src, "%s $kernel_opt" % ISAS[i], "%s.%s.o" % (src[:-2], i)) for i in isas]
            elif extension_of(src) in extensions:
                more = ISAS["avx512"].split()[1:] + ["-m" + extension_of(src), "$kernel_opt"]
                objs.append(compiles(src, " ".join([FLAGS.get(floor, "")] + more)))
            else:
                objs.append(compiles(src, FLAGS.get(floor, "")))
        if objs:
            out.append("build %s: ar %s" % (b + "lib/%s.a" % floor, " ".join(objs)))
    titan = [program("titan", MAIN, compile_flags=FLAGS["lua"])]
    tests = [program("tests/" + name_of(s), s, " ".join(compiles(m) for m in more_of(s)), compile_flags=test_flags(s))
             for s in sources("tests/unit")]
    benches = [program("bench/" + name_of(s), s, compile_flags=test_flags(s)) for s in sources("tests/bench")]
    fuzz, fuzzers = [s for s in sources("tests/fuzz") if name_of(s).startswith("fuzz_")], []
    if fuzz:
        replay = compiles("tests/fuzz/replay.c")
        fuzzers = [program("tests/" + name_of(s), s, replay, "$fuzz_link") for s in fuzz]
    for goal, of in (("tests", titan + tests + fuzzers), ("fuzzers", fuzzers), ("bench", titan + benches)):
        out.append("build %s-$variant: phony %s" % (goal, " ".join(of) or "build.ninja"))
    out.append("build $variant: phony tests-$variant")
    return lines_of("files.ninja - written by configure.py: every source file, for one $variant", out)


def test_flags(src):
    """A test or bench of the top floor may talk to Lua itself."""
    return FLAGS["lua"] if "lua" in floors_of(src) else ""


def name_of(src):
    return os.path.basename(src)[:-2]


def extension_of(src):
    return name_of(src).rsplit("_", 1)[-1]


def extensions_of(got):
    return [e for e, probe in EXTENSIONS.items() if got[probe]]


def isas_of(got):
    return [i for i in ISAS if i == "portable" or got[{"avx2": "AVX2 kernels", "avx512": "AVX-512 kernels"}[i]]]


# ------------------------------------------------------------------------------------------------------------------ main


def parse(argv):
    p = argparse.ArgumentParser(description="Finds what titan needs and writes build/*.ninja; then run ninja.")
    p.add_argument("--prefix", default="/usr/local", help="where ninja install puts titan (default %(default)s)")
    p.add_argument("--cc", default=os.environ.get("CC") or default_cc(), help="C compiler (default: $CC, cc, gcc, clang)")
    p.add_argument("--clang", default=shutil.which("clang") or "clang", help="the clang whose libFuzzer is used")
    p.add_argument("--text", help="the file that ninja demo trains on (default: the glosses of WordNet)")
    p.add_argument("--wordnet", default="/usr/share/wordnet", help="where WordNet's data.* lie (default %(default)s)")
    p.add_argument("--install-deps", nargs="?", const="build", metavar="GROUPS",
                   help="install with apt-get what is missing: build (default: what the build and the demo need), "
                        "test, bench; several with commas")
    p.add_argument("--install", action="store_true", help="copy what was built into the recorded prefix (ninja install)")
    p.add_argument("--again", action="store_true", help="run with the recorded arguments (what ninja does)")
    return p.parse_args(argv)


def default_cc():
    return next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), "cc")


def put_files(prefix):
    """What ninja install does: the program, the prelude and the recipes; DESTDIR is put in front of the prefix."""
    root = os.environ.get("DESTDIR", "") + prefix
    files = [(BUILD + "/release/titan", "bin/titan", 0o755), ("LICENSE", "share/titan/LICENSE", 0o644)]
    for top in ("lua/prelude", "recipes"):
        for folder, _, names in os.walk(top):
            files += [("%s/%s" % (folder, n), "share/titan/%s/%s" % (folder, n), 0o644) for n in names if n.endswith(".lua")]
    for source, name, mode in sorted(files):
        to = os.path.join(root, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copyfile(source, to + ".new")
        os.chmod(to + ".new", mode)
        os.replace(to + ".new", to)  # a program that runs keeps its file
    print("installed %s/bin/titan and %d files below %s/share/titan" % (root, len(files) - 1, root))


def main():
    os.chdir(TOP)
    args = parse(sys.argv[1:])
    if args.install:
        with open(STATE) as f:
            return put_files(parse(json.load(f)["argv"]).prefix)
    argv, known = [a for a in sys.argv[1:] if not a.startswith("--install-deps")], {}
    if args.again:
        with open(STATE) as f:
            known = json.load(f)
        argv, args = known["argv"], parse(known["argv"])
        args.cc, args.clang = known["cc"], known["clang"]
    with open(__file__, "rb") as f:
        own = hashlib.sha256(f.read()).hexdigest()
    if known.get("configure") == own and not args.install_deps:
        todo, got = [], known["found"]  # only the file list changed
    else:
        todo, got = find_all(args)
    if args.install_deps:
        groups = {"build", "demo"} | set(args.install_deps.split(","))
        missing = sorted({p.package for p in todo if got[p.name] is None and p.need in groups and p.package})
        if missing:
            install(missing)
            args = parse(argv)
            todo, got = find_all(args)
    table(todo, got)
    missing = [p for p in todo if got[p.name] is None and p.need == "build"]
    if missing:
        sys.exit("configure.py: missing: %s; ./configure.py --install-deps installs: %s" % (
            ", ".join(p.name for p in missing), " ".join(p.package for p in missing)))
    os.makedirs(BUILD, exist_ok=True)
    state = {"argv": argv, "cc": args.cc, "clang": args.clang, "found": got, "tsan_tests": TSAN_TESTS, "configure": own}
    write(STATE, json.dumps(state, indent=1))
    write(BUILD + "/config.ninja", config_ninja(args, got))
    write(BUILD + "/files.ninja", files_ninja(isas_of(got), extensions_of(got)))


if __name__ == "__main__":
    main()
