#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A job of a real Slurm, of one node and started here: the script of docs/SLURM.md, for two
ranks and three minutes. The job is put back into the queue once by its administrator and
once by its script, after Slurm's signal before the time limit; each time it goes on from its
newest checkpoint, and in the end it has done every step once.

No root and no munge are needed, and a Slurm that runs on this machine is left alone: the two
daemons have their own ports and their files in $WEFT_TMP.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403
from kill import text_of  # noqa: E402

PAGE = os.path.join(os.environ.get("WEFT_SOURCE", "."), "docs", "SLURM.md")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol")
JOB = "1"
LOG = os.path.join(TMP, "weft-%s.log" % JOB)
OUT = os.path.join(TMP, "runs", "slurm")
CONFIG = os.path.join(TMP, "job.ini")
STEPS_AT_THE_END = 200
# What of the page's script is of another size here.
CHANGES = (("--nodes=4 --ntasks-per-node=1 --cpus-per-task=32 --time=24:00:00",
            "--nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=00:03:00"),
           ("USR1@300", "USR1@60"),  # it may come a minute early
           ("--model L=4,H=4,C=192,T=128", "--model L=2,H=2,C=32,T=16,V=64"),
           ("--steps 1000 ", "--config job.ini "))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def configure():
    host = socket.gethostname().split(".")[0]
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    for name in ("state", "spool"):
        os.makedirs(os.path.join(TMP, name))
    path = os.path.join(TMP, "slurm.conf")
    with open(path, "w") as f:
        f.write("""ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={one}
SlurmdPort={other}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
# How long a job waits before it starts again.
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
# Any machine has two cores for it.
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""".format(host=host, user=user, folder=TMP, one=free_port(), other=free_port()))
    return path


def is_mpich():
    return "libmpich" in subprocess.run(["ldd", WEFT], capture_output=True, text=True).stdout


def write_script():
    with open(PAGE) as f:
        text = re.search(r"<<'END'\n(.*?)^END$", f.read(), re.S | re.M).group(1)
    changes = CHANGES + ((("--mpi=pmix", "--mpi=pmi2"),) if is_mpich() else ())
    for old, new in changes:
        if old not in text:
            raise RuntimeError("%s: no '%s' in the script" % (PAGE, old))
        text = text.replace(old, new)
    write(os.path.join(TMP, "train.sbatch"), text.encode())


def write_config(steps):
    write(CONFIG + ".new", b"steps = %d\nschedule = constant\n" % steps)
    os.rename(CONFIG + ".new", CONFIG)


def ask(*words):
    done = subprocess.run(words, cwd=TMP, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def wait_for(what, seconds, found):
    """What `found` returns, once that is true."""
    patience = Patience(seconds)
    while not patience.over():
        value = found()
        if value:
            return value
        time.sleep(0.2)
    raise RuntimeError("%s: not within %d s\n%s\n%s" % (
        what, seconds, ask("scontrol", "show", "job", JOB)[1],
        text_of(LOG)[-1500:] if os.path.exists(LOG) else "no log"))


def in_log(words, times):
    """All that match, once they are so many."""
    found = re.findall(words, text_of(LOG)) if os.path.exists(LOG) else []
    return found if len(found) >= times else None


def job_is(state):
    return lambda: "JobState=" + state in ask("scontrol", "show", "job", JOB)[1]


def live_through():
    """From the job's start to its end; complaints."""
    write_config(10**6)
    code, text = ask("sbatch", "train.sbatch")
    if code != 0:
        return ["sbatch: " + text]
    wait_for("a checkpoint", 120, lambda: in_log("saved runs/slurm", 2))
    bad = []
    code, text = ask("scontrol", "requeue", JOB)
    if code != 0:
        bad.append("scontrol requeue: " + text)
    wait_for("the second start", 180, lambda: in_log("resumed from", 1))
    # Taken from its node it was stopped by SIGTERM; USR1 comes one or two minutes before
    # the limit.
    words = r"stopped at step (\d+) of 1000000 \(signal\)"
    before = len(in_log(words, 0))
    stopped = wait_for("Slurm's signal", 200, lambda: in_log(words, before + 1))
    last = int(stopped[-1]) + STEPS_AT_THE_END
    write_config(last)
    wait_for("the third start", 180, lambda: in_log("resumed from", 2))
    wait_for("the end", 120, job_is("COMPLETED"))
    return bad + wrong_at_the_end(int(stopped[-1]), last)


def wrong_at_the_end(stopped, last):
    job, text = ask("scontrol", "show", "job", JOB)[1], text_of(LOG)
    bad = ["job: no %s\n%s" % (word, job) for word in ("Restarts=2", "ExitCode=0:0")
           if word not in job]
    resumed = [int(n) for n in re.findall(r"resumed from \S+ at step (\d+)", text)]
    if len(resumed) != 2 or resumed[1] != stopped or resumed[0] < 500:
        bad.append("resumed at steps %s, needs 500 or more and then %d" % (resumed, stopped))
    steps = [m["step"] for m in metrics(OUT) if "loss" in m]
    if steps != list(range(1, last + 1)):
        bad.append("metrics.jsonl: %d steps to %s, needs every one to %d once" %
                   (len(steps), steps[-1:], last))
    if checkpoints(OUT)[-1:] != ["step-%06d" % last] or whole(OUT):
        bad.append("checkpoints %s: %s" % (checkpoints(OUT), whole(OUT)))
    return bad + (["an error\n" + text] if "error: rank" in text else [])


def end(daemons):
    """The job first: what runs in it is no child of a daemon."""
    ask("scancel", JOB)
    patience = Patience(60)
    while not patience.over() and re.search("RUNNING|COMPLETING",
                                            ask("scontrol", "show", "job", JOB)[1]):
        time.sleep(0.5)
    for p in reversed(daemons):
        p.send_signal(signal.SIGTERM)
        try:
            p.wait(30)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def main():
    if SERIAL:
        print("skipped: one rank only")
        return 77
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    if missing:
        print("skipped: no Slurm here, %s not found (Debian: apt-get install "
              "slurmctld slurmd slurm-client)" % ", ".join(missing))
        return 77
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "tokens", "t_train_000001.bin"), [i * 7 % 64 for i in range(10**6)])
    os.environ.update(PATH=os.path.dirname(WEFT) + ":" + path, SLURM_CONF=configure())
    write_script()
    begin = time.monotonic()
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with open(os.path.join(TMP, name + ".out"), "wb") as log:
                daemons.append(subprocess.Popen([name, "-D"], stdout=log, stderr=log))
        wait_for("an idle node", 60, lambda: "State=IDLE" in ask("scontrol", "show", "node")[1])
        bad = live_through()
    except RuntimeError as e:
        bad = [str(e)]
    finally:
        end(daemons)
    print("\n".join(bad) if bad else "ok: put back into the queue twice, every step done once")
    print("%.0f s" % (time.monotonic() - begin))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
