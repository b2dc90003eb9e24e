#!/usr/bin/env python3
"""What a run reports: console line, metrics.jsonl and TensorBoard event files say the same; --quiet, --log-ranks. The event files are
read by a reader of our own, byte by byte, and by TensorBoard's where it is installed."""
# variants: asan
import glob
import json
import os
import re
import struct

from testing import check, done, run, skip, temporary

RECIPE = "recipes/llama3_debug.lua"
COMMON = ("data.source=random", "training.steps=4", "training.seq_len=32", "metrics.log_freq=1", "model.n_layers=1")
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """The fields of a protobuf message: (number, wire type, value)."""
    at = 0

    def varint():
        nonlocal at
        x = shift = 0
        while True:
            b = data[at]
            at += 1
            x |= (b & 127) << shift
            shift += 7
            if b < 128:
                return x

    while at < len(data):
        key = varint()
        wire = key & 7
        if wire == 0:
            value = varint()
        else:
            n = {1: 8, 5: 4}[wire] if wire != 2 else varint()
            value = data[at:at + n]
            if len(value) != n:
                raise ValueError("a field is cut off")
            at += n
        yield key >> 3, wire, value


def read_events(path):
    """[(step, tag, value, wall)] of an event file; raises ValueError where a record is not as it must be."""
    data, at, out, first = open(path, "rb").read(), 0, [], True
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        body = data[at + 12:at + 12 + length]
        if masked_crc(data[at:at + 8]) != crc or struct.unpack_from("<I", data, at + 12 + length)[0] != masked_crc(body):
            raise ValueError("a checksum at %d" % at)
        at += 16 + length
        event = {number: value for number, _, value in fields(body)}
        wall = struct.unpack("<d", event[1])[0]
        if first:
            if event.get(3) != b"brain.Event:2" or set(event) != {1, 3}:
                raise ValueError("the first record says no version")
            first = False
            continue
        for number, wire, value in fields(event[5]):
            scalar = {n: v for n, _, v in fields(value)}
            out.append((event[2], scalar[1].decode(), struct.unpack("<f", scalar[2])[0], wall))
    if first:
        raise ValueError("no record")
    return out


check(masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF, "our own CRC-32C")


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


KEYS = {"loss_metrics/global_avg_loss", "grad_norm", "throughput(tps)", "tflops", "mfu(%)", "time_metrics/end_to_end(s)",
        "time_metrics/data_loading(s)", "time_metrics/data_loading(%)", "memory/max_active(GiB)", "memory/max_active(%)",
        "memory/max_reserved(GiB)", "memory/max_reserved(%)", "n_tokens_seen", "lr/AdamW"}
CONSOLE = r"step: (\d+)  loss: +([\d.]+)  grad_norm: +([\d.]+)  memory: ([\d.]+)GiB\([\d.]+%\)  tps: (\d+)  tflops: ([\d.]+)  mfu: ([\d.]+)%"
with temporary() as folder:
    for ranks in (1, 2):
        out = os.path.join(folder, str(ranks))
        n = ("-n", str(ranks)) if ranks > 1 else ()
        text = os.path.join(folder, "text.txt")
        open(text, "w").write("".join("a line of text, the %dth of many\n" % i for i in range(2000)))
        args = n + (RECIPE,) + COMMON + ("training.local_batch_size=%d" % (8 // ranks), "metrics.tensorboard=true", "job.dump_folder=" + out,
                                         "data.source=text", "data.path=" + text, "data.validation=0.1", "validation.enable=true", "validation.freq=2",
                                         "validation.steps=1")
        for _ in range(2):  # a second run replaces the first's files
            got = run(*args)
            check(got.returncode == 0, "%d ranks: exit %d: %s" % (ranks, got.returncode, got.stderr))
        lines = [json.loads(l) for l in open(os.path.join(out, "metrics.jsonl"))]
        steps = {l["step"]: l for l in lines if "loss" in l}
        files = glob.glob(os.path.join(out, "tb", "events.out.tfevents.*"))
        check(len(files) == 1, "one event file: %s" % files)
        try:
            events = read_events(files[0])
        except (ValueError, KeyError, struct.error) as e:
            check(False, "%s: %r" % (files[0], e))
            continue
        by_step = {}
        for step, tag, value, wall in events:
            if not tag.startswith("validation"):
                check(tag not in by_step.setdefault(step, {}), "a scalar once: %s" % tag)
                by_step[step][tag] = value
        check(sorted(by_step) == [1, 2, 3, 4] == sorted(steps), "every log step: %s" % sorted(by_step))
        check(all(set(tags) == KEYS for tags in by_step.values()), "the keys: %s" % (set(by_step[1]) ^ KEYS))
        walls = [w for _, _, _, w in events]
        check(walls == sorted(walls) and walls[0] > 1.6e9, "wall times")
        for step, tags in by_step.items():
            line = steps[step]
            for tag, value in (("loss_metrics/global_avg_loss", line["loss"]), ("grad_norm", line["grad_norm"]), ("lr/AdamW", line["lr"]),
                               ("throughput(tps)", line["tokens_per_s"] / ranks), ("tflops", line["tflops"] / ranks), ("mfu(%)", line["mfu"]),
                               ("n_tokens_seen", line["tokens"]), ("memory/max_reserved(GiB)", line["memory"] / 2**30)):
                check(abs(tags[tag] - value) <= 1e-6 * abs(value), "%s of step %d: %r, metrics.jsonl %r" % (tag, step, tags[tag], value))
            check(0 < line["mfu"] < 110 and line["tokens"] == step * 256, "MFU of fp32 multiply-adds: %s" % line["mfu"])
            check(0 <= tags["time_metrics/data_loading(%)"] < 100 and tags["memory/max_active(GiB)"] > 0, "shares")
        check(any(t == "validation_metrics/loss" for _, t, _, _ in events), "validation")
        console = [m for m in map(re.compile(CONSOLE).match, got.stdout.split("\n")) if m]
        check([int(m.group(1)) for m in console] == [1, 2, 3, 4], "console: " + got.stdout)
        for m in console:
            line = steps[int(m.group(1))]
            check(m.group(2) == "%.5f" % line["loss"] and m.group(3) == "%.4f" % line["grad_norm"] and
                  m.group(5) == "%d" % (line["tokens_per_s"] / ranks) and m.group(7) == "%.2f" % line["mfu"], "console and jsonl: " + m.group(0))
        check("validate step: 2  loss: " in got.stdout and "\x1b" not in got.stdout + got.stderr, "validation line, no colours")
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            skip("TensorBoard's reader", "not importable here")
        else:
            board = EventAccumulator(os.path.join(out, "tb"))
            board.Reload()
            check(KEYS <= set(board.Tags()["scalars"]), "TensorBoard reads every key: %s" % board.Tags())
            check([(e.step, e.value) for e in board.Scalars("grad_norm")] == [(s, f32(steps[s]["grad_norm"])) for s in sorted(steps)],
                  "TensorBoard reads every scalar")

    # quiet: files, and not a word
    out = os.path.join(folder, "quiet")
    for n in ((), ("-n", "2")):
        got = run(*n, RECIPE, *COMMON, "--quiet", "job.dump_folder=" + out)
        check(got.returncode == 0 and not got.stdout and not got.stderr, "quiet: %r %r" % (got.stdout, got.stderr))
        check(len(open(os.path.join(out, "metrics.jsonl")).readlines()) == 4 and not os.path.exists(os.path.join(out, "tb")), "and files")
    got = run(RECIPE, *COMMON, "--quiet", "training.stepz=1")
    check(got.returncode == 2 and "did you mean" in got.stderr, "quiet, but errors are told")
    got = run("plan", RECIPE, "--quiet")
    check(got.returncode == 2 and "not an option of" in got.stderr, "quiet belongs to training")

    # whose output is shown
    ran = {}
    for show in ("0", "1", "all"):
        got = run("-n", "2", "--log-ranks", show, RECIPE, *COMMON, "job.dump_folder=" + os.path.join(folder, "show" + show))
        ran[show] = len(re.findall(CONSOLE, got.stdout))
        check(got.returncode == 0 and sorted(os.listdir(os.path.join(folder, "show" + show, "logs"))) == ["rank_0.log", "rank_1.log"],
              "logs of all ranks: " + got.stderr)
    check(ran["0"] == 4 and ran["1"] == 4 and ran["all"] == 8, "--log-ranks: %s" % ran)
done("metrics")
