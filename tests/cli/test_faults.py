#!/usr/bin/env python3
"""Ranks that are killed, stopped, abort or compute NaN, at every time of a run: all others end before the deadline is long over, one
line names the rank and why, the flight recorders are written, and no process or shared memory is left. Then runs that join by
torchrun's variables, logs of ranks, and signals to a whole run."""
import glob
import json
import os
import random
import signal
import socket
import subprocess
import time

from testing import TITAN, TOP, check, done, long_form, run, temporary

RECIPE = os.path.join(TOP, "recipes", "llama3_debug.lua")
DEADLINE_S = 2  # of runs in which a rank is stopped
PATIENT_S = 30  # of the others, which must not wait for it
SMALL = ["model.n_layers=2", "model.dim=32", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_dim=48", "training.seq_len=32",
         "training.local_batch_size=4", "data.source=random", "data.validation=0", "metrics.log_freq=1", "lr_scheduler.warmup_steps=1",
         "job.dump_folder=out"]
REPEATS = 20 if long_form else 3
draw = random.Random(7)


def start(folder, n, *settings, deadline=PATIENT_S, **more):
    limits = ["comm.train_timeout_s=%d" % deadline, "comm.init_timeout_s=%d" % deadline]
    return subprocess.Popen([TITAN] + (["-n", str(n)] if n else []) + [RECIPE] + SMALL + limits + list(settings), cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, **more)


def ranks_of(p, n):
    """Processes of the ranks, in order: the launcher starts them one after the other."""
    for _ in range(2000):
        try:
            with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
                pids = [int(w) for w in f.read().split()]
        except FileNotFoundError:
            return []
        if len(pids) == n:
            return pids
        time.sleep(0.002)
    return []


def state(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def until(p, text):
    """Reads the run's lines up to one that starts so."""
    for line in p.stdout:
        if line.startswith(text):
            return True
    return False


def waits(pid):
    """In a wait for the others: asleep in a futex, with all its threads."""
    for _ in range(500):
        try:
            with open("/proc/%d/syscall" % pid) as f:
                if state(pid) == "S" and f.read().split()[0] == "202":
                    return True
        except (OSError, IndexError):
            pass
        time.sleep(0.002)
    return False


def poison(pid):
    """NaN over the first parameters of one rank, through the descriptor that its peers map."""
    for fd in sorted(int(f) for f in os.listdir("/proc/%d/fd" % pid)):
        path = "/proc/%d/fd/%d" % (pid, fd)
        if "titan-region" in os.readlink(path):
            with open(path, "r+b", buffering=0) as f:
                f.write(b"\0\0\xc0\x7f" * 64)
            return


def strike(kind, pid):
    if kind == "nan":
        poison(pid)
    else:
        os.kill(pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "abort": signal.SIGABRT}[kind])


def ended(name, p, pids, begun):
    """Exit status, output; nothing is left."""
    try:
        out, err = p.communicate(timeout=DEADLINE_S + 30)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
    took = time.time() - begun
    check(took < DEADLINE_S + 5, "%s: ended only after %.1f s" % (name, took))
    check(all(state(pid) == "gone" for pid in pids), "%s: processes are left: %s" % (name, [state(pid) for pid in pids]))
    check(not glob.glob("/dev/shm/*titan*"), "%s: shared memory is left" % name)
    return p.returncode, out, err


def hit(kind, phase, p, pids, victim):
    """Strikes in the phase; False if the run was faster."""
    other = (victim + 1) % len(pids)
    if phase == "start":
        time.sleep(draw.random() * 0.05)
        strike(kind, pids[victim])
    elif phase == "step":
        if not until(p, "step: 2 "):
            return False
        time.sleep(draw.random() * 0.02)
        strike(kind, pids[victim])
    elif phase == "collective":  # the victim waits for another that is held
        if not until(p, "step: 2 "):
            return False
        os.kill(pids[other], signal.SIGSTOP)
        if not waits(pids[victim]):
            return False
        strike(kind, pids[victim])
        os.kill(pids[other], signal.SIGCONT)
    else:  # the victim leaves: held with all others at the last step, then it alone
        if not until(p, "step: 3 "):
            return False
        strike(kind, pids[victim])
        if kind == "stop":
            for _ in range(100):
                if state(pids[victim]) in ("T", "gone"):
                    break
                time.sleep(0.001)
            return state(pids[victim]) == "T"
    return True


def fault(kind, phase, n, victim):
    name = "%s at %s of rank %d of %d" % (kind, phase, victim, n)
    with temporary() as folder:
        for _ in range(20):
            p = start(folder, n, "training.steps=%d" % (3 if phase == "exit" else 100000), draw.choice(("parallelism.tp=2", "parallelism.pp=2")),
                      deadline=DEADLINE_S if kind == "stop" else PATIENT_S)
            pids = ranks_of(p, n)
            if not check(len(pids) == n, "%s: no ranks" % name):
                p.kill()
                return
            try:
                sure = hit(kind, phase, p, pids, victim)
            except ProcessLookupError:  # it had ended
                sure = False
            begun = time.time()
            status, _, err = ended(name, p, pids, begun)
            if sure and (phase != "exit" or status):
                break
        lines = err.splitlines()
        check(status == 1, "%s: exit %d: %s" % (name, status, err))
        check(lines and lines[0].startswith("titan: error: rank %d" % victim), "%s: says %r" % (name, err))
        why = {"kill": "died: signal 9", "stop": "is stopped by a signal", "abort": "died: signal 6", "nan": "holds a value that is not finite"}[kind]
        check(lines and why in lines[0], "%s: says %r, not %r" % (name, err, why))
        check(sum(line.startswith("titan: error") for line in lines) == 1, "%s: more than one error: %r" % (name, err))
        if phase in ("step", "collective"):
            for r in range(n):
                try:
                    with open(os.path.join(folder, "out", "flight_rank_%d.json" % r)) as f:
                        flight = json.load(f)
                    check(flight["rank"] == r and flight["last"] and "rank %d" % victim in flight["reason"], "%s: recorder %r" % (name, flight))
                except (OSError, ValueError) as e:
                    check(False, "%s: flight recorder of rank %d: %s" % (name, r, e))


for repeat in range(REPEATS):
    for kind, phases in (("kill", ("start", "step", "collective", "exit")), ("stop", ("start", "step", "collective", "exit")),
                         ("abort", ("start", "step", "collective", "exit")), ("nan", ("step",))):
        for phase in phases:
            n = draw.choice((2, 4))
            fault(kind, phase, n, draw.randrange(n))

# --- the launcher itself is killed: no orphan
with temporary() as folder:
    p = start(folder, 4, "training.steps=100000")
    pids = ranks_of(p, 4)
    check(until(p, "step: 2 "), "no second step")
    p.kill()
    p.communicate()
    time.sleep(0.5)
    check(all(state(pid) in ("gone", "Z") for pid in pids), "ranks outlive a launcher that was killed")

# --- signals to the whole run, and to one rank: a clean stop of all
for number, whom in ((signal.SIGINT, "launcher"), (signal.SIGTERM, "launcher"), (signal.SIGTERM, "rank"), (signal.SIGINT, "start")):
    with temporary() as folder:
        p = start(folder, 4, "training.steps=100000")
        pids = ranks_of(p, 4)
        if whom != "start":
            check(until(p, "step: 2 "), "no second step")
        os.kill(pids[2] if whom == "rank" else p.pid, number)
        status, out, err = ended("signal %d to %s" % (number, whom), p, pids, time.time())
        check(status == 128 + number and not err, "signal %d to %s: exit %d: %s" % (number, whom, status, err))
        check(whom == "start" or "stopped by signal %d" % number in out, "signal %d to %s says %r" % (number, whom, out[-200:]))
        check(whom == "start" or os.path.exists(os.path.join(folder, "out", "final", "model.safetensors")), "signal %d to %s: no weights" % (number, whom))

# --- refused by all ranks: said once; logs
with temporary() as folder:
    got = run("-n", 4, RECIPE, *SMALL, "training.global_batch_size=7", cwd=folder)
    check(got.returncode == 2 and got.stderr.count("titan: error") == 1 and "rank" not in got.stderr.split(":")[2], "refused: exit %d: %s" % (got.returncode, got.stderr))
    check(not os.listdir(folder), "refused, but wrote %s" % os.listdir(folder))
    got = run("-n", 4, RECIPE, *SMALL, "training.steps=2", cwd=folder)
    check(got.returncode == 0 and got.stdout.count("step: 2 ") == 1, "4 ranks: exit %d: %s" % (got.returncode, got.stderr))
    for r in range(4):
        with open(os.path.join(folder, "out", "logs", "rank_%d.log" % r)) as f:
            log = f.read()
        check("step: 2 " in log and "done: 2 steps" in log, "log of rank %d: %r" % (r, log))
    got = run("-n", 4, "--log-ranks", "0,2", RECIPE, *SMALL, "training.steps=2", cwd=folder)
    check(got.stdout.count("step: 2 ") == 2, "--log-ranks 0,2: %s" % got.stdout)
    got = run("-n", 4, "--log-ranks=all", RECIPE, *SMALL, "training.steps=2", cwd=folder)
    check(got.stdout.count("step: 2 ") == 4, "--log-ranks all: %s" % got.stdout)
    got = run("-n", 4, "--log-ranks", "4", RECIPE, *SMALL, cwd=folder)
    check(got.returncode == 2 and "--log-ranks 4" in got.stderr, "--log-ranks 4: %s" % got.stderr)
    with open("/dev/full", "w") as full:
        got = subprocess.run([TITAN, "-n", "2", RECIPE] + SMALL + ["training.steps=2"], cwd=folder, stdout=full, stderr=subprocess.PIPE, universal_newlines=True)
    check(got.returncode == 1 and got.stderr.count("\n") == 1 and "standard output" in got.stderr, "a full disk: exit %d: %s" % (got.returncode, got.stderr))
    with open(RECIPE) as f:
        got = run("-n", 2, "-", *SMALL, "training.steps=2", cwd=folder, stdin=f.read())
    check(got.returncode == 0, "recipe on standard input: exit %d: %s" % (got.returncode, got.stderr))


# --- torchrun's variables
def joined(folder, n, settings_of, port=0):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ps = []
    for r in range(n):
        env = dict(os.environ, RANK=str(r), WORLD_SIZE=str(n), LOCAL_RANK=str(r), LOCAL_WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        ps.append(start(folder, 0, *settings_of(r), env=env))
    return ps


with temporary() as folder:
    ps = joined(folder, 4, lambda r: ["training.steps=3"])
    ends = [p.communicate(timeout=60) for p in ps]
    check([p.returncode for p in ps] == [0] * 4, "joined: %s" % [e for _, e in ends])
    os.rename(os.path.join(folder, "out"), os.path.join(folder, "joined"))
    got = run("-n", 4, RECIPE, *SMALL, "training.steps=3", cwd=folder)
    same = run("diff", os.path.join(folder, "joined"), os.path.join(folder, "out"))
    check(same.returncode == 0 and "IDENTICAL" in same.stdout, "joined and launched differ: %s" % same.stdout)
    ps = joined(folder, 2, lambda r: ["training.steps=%d" % (3 + r)])
    ends = [p.communicate(timeout=60) for p in ps]
    check([p.returncode for p in ps] == [2, 2] and all("the recipe differs: rank" in e for _, e in ends), "another recipe: %s" % ends)
    ps = joined(folder, 4, lambda r: ["training.steps=100000"])
    check(until(ps[0], "step: 2 "), "joined: no second step")
    ps[1].kill()
    begun = time.time()
    ends = [p.communicate(timeout=60) for p in ps]
    check(all("rank 1 died" in ends[r][1] and ps[r].returncode == 1 for r in (0, 2, 3)), "joined, one killed: %s" % ends)
    check(time.time() - begun < DEADLINE_S, "joined, one killed: %.1f s" % (time.time() - begun))
    check(os.path.exists(os.path.join(folder, "out", "flight_rank_2.json")), "joined, one killed: no flight recorder")
    env = dict(os.environ, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    got = run("-n", 2, RECIPE, *SMALL, cwd=folder, env=env)
    check(got.returncode == 2 and "-n 2" in got.stderr and "RANK" in got.stderr, "-n inside a job: %s" % got.stderr)
    env = dict(os.environ, RANK="1")
    got = run(RECIPE, *SMALL, cwd=folder, env=env)
    check(got.returncode == 2 and "WORLD_SIZE unset" in got.stderr, "RANK alone: %s" % got.stderr)
done("faults")
