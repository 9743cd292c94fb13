#!/usr/bin/python3
# Runs the containers of pods as processes of this machine, for a virtual kubelet:
#
#     provider.py unix:///run/provider.sock NODE DIRECTORY
#
# It is an example of a provider (providers/remote), and no sandbox: each process may do what
# this one may. Containers have no probes, and are not restarted; their logs are not rotated. They
# find a volume in the directory that VOLUME_NAME names. What is known of pods is in DIRECTORY, and
# each container has a shell that keeps its log and exit code: they run on while this process is
# away.
import collections, contextlib, datetime, fcntl, itertools, json, os, pathlib, pty, shutil, signal, struct, subprocess, sys, termios, threading, time
from concurrent import futures
from multiprocessing.connection import wait

import grpc
import provider_pb2 as pb
import provider_pb2_grpc

IP, LIMIT = "127.0.0.1", 16 << 20

# $1 is the path of a container's files, $2 where it runs, the rest its command. The lock on .pid
# is held until its output ends; .exit is there when .log, of lines "TIME STREAM TEXT", is complete.
# Longer lines are broken, since a shell keeps them in memory.
RUNNER = r"""
exec 9>>"$1.pid"; /usr/bin/flock -n 9 && [ ! -s "$1.pid" ] || exit  # another one runs it, or ran it
run() { { cd "$2" && exec /usr/bin/setsid "${@:3}"; } 3>&- 9>&- & echo $! >&9; wait $!; echo $? >"$1.code"; kill -KILL -- -$! 2>&-; }
keep() { while IFS= read -rn 65536 line || [ "$line" ]; do printf '%s %s %s\n' "${EPOCHREALTIME/,/.}" "$1" "$line"; done; }
{ run "$@" 2>&1 >&3 | keep Stderr >>"$1.log"; } 3>&1 | keep Stdout >>"$1.log"
/bin/mv "$1.code" "$1.exit"
"""


def utc(seconds, layout="%Y-%m-%dT%H:%M:%SZ"):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(layout)


class Container:
    def __init__(self, pod, spec):
        self.spec, self.name = spec, spec["name"]
        self.log, self.pid, self.exit = (pod.directory / (self.name + suffix) for suffix in (".log", ".pid", ".exit"))
        # All variables have values but those that only the provider knows.
        self.environment = {"PATH": os.environ["PATH"]} | {e["name"]: IP if "valueFrom" in e else e.get("value", "") for e in spec.get("env", [])}
        self.environment |= {"VOLUME_" + m["name"].upper().replace("-", "_"): str(pod.volumes / m["name"]) for m in spec.get("volumeMounts", [])}
        command = [str(pod.directory / self.name), spec.get("workingDir") or "."] + (spec.get("command", []) + spec.get("args", []) or ["sleep", "infinity"])
        self.log.open("a").close(), self.pid.open("a").close()
        try:
            runner = subprocess.Popen(["/bin/bash", "-c", RUNNER, "bash", *command], env=self.environment, start_new_session=True,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while runner.poll() is None and not self.pid.read_text():
                time.sleep(0.01)
        except (OSError, ValueError) as error:  # it has more arguments than a process can have, or none that it can
            self.log.write_text(f"{time.time()} Stderr {error}\n"), self.exit.write_text("128")

    def state(self):
        # Its process if that runs, else 0, and its exit code: 137 if nothing is known of its end.
        with open(self.pid) as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return 0, int(self.exit.read_text()) if self.exit.exists() else 137
        return int(self.pid.read_text()), 0

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            if pid := self.state()[0]:
                os.killpg(pid, number)

    def status(self):
        pid, code = self.state()
        began, ended = (utc(path.stat().st_mtime) for path in (self.pid, self.exit if self.exit.exists() else self.log))
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": began, "finishedAt": ended}}
        return {"name": self.name, "image": self.spec["image"], "imageID": self.spec["image"], "containerID": f"process://{self.pid}",
                "restartCount": 0, "ready": bool(pid), "started": bool(pid), "state": {"running": {"startedAt": began}} if pid else state}

    def lines(self, log, stream, since):
        # What has been added to an open log, without a line that is still being written.
        for line in iter(log.readline, b""):
            if not line.endswith(b"\n"):
                return log.seek(-len(line), os.SEEK_CUR)
            at, of, text = line.split(b" ", 2)
            if float(at) >= since and stream in ("", of.decode()):
                yield float(at), text


class Pod:
    def __init__(self, pod, directory, volumes=()):
        self.directory, self.volumes = directory, directory / "volumes"
        for name in [""] + [v["name"] for v in pod["spec"].get("volumes", []) if "emptyDir" in v]:
            (self.volumes / name).mkdir(parents=True, exist_ok=True)
        self.mount(volumes)
        self.keep(pod)  # from here on it is there, also after a restart
        self.containers = [Container(self, c) for c in pod["spec"]["containers"]]

    def keep(self, pod):
        self.pod, self.name, new = pod, (pod["metadata"]["namespace"], pod["metadata"]["name"]), self.directory / "pod.new"
        new.write_text(json.dumps(pod))
        new.replace(self.directory / "pod.json")

    def mount(self, volumes):
        # Replaces the files of volumes, each at once: its path is a link.
        for volume in volumes:
            path, new = self.volumes / volume.name, self.volumes / f".{time.time_ns()}"
            link, before = new.with_suffix(".link"), path.resolve()
            new.mkdir()
            for file in volume.files:
                (new / file.path).parent.mkdir(parents=True, exist_ok=True)
                (new / file.path).write_bytes(file.data)
                (new / file.path).chmod(file.mode)
            link.symlink_to(new)
            link.replace(path)
            shutil.rmtree(before, ignore_errors=True)  # perhaps there was none

    def encoded(self):
        states = [c.status() for c in self.containers]
        ended = [s["state"]["terminated"]["exitCode"] for s in states if "terminated" in s["state"]]
        status = {"phase": "Running" if len(ended) < len(states) else "Failed" if any(ended) else "Succeeded",
                  "startTime": next(iter(states[0]["state"].values()))["startedAt"], "podIP": IP, "podIPs": [{"ip": IP}], "containerStatuses": states,
                  "conditions": [{"type": t, "status": str(not ended or "Ready" not in t)} for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]}
        return json.dumps(self.pod | {"status": status}).encode()


class Provider(provider_pb2_grpc.ProviderServicer):
    def __init__(self, node, directory):
        self.node, self.directory, self.lock = node, directory, threading.Lock()
        self.pods = {found.parent.name: Pod(json.loads(found.read_text()), found.parent) for found in directory.glob("*/pod.json")}

    def check(self, context, code=grpc.StatusCode.UNAVAILABLE):
        # Another node that has met this provider at its address is not to think that its pods are gone.
        if dict(context.invocation_metadata()).get("node-name", self.node) != self.node:
            context.abort(code, f"this provider runs the pods of node {self.node}")

    def find(self, ref, context):
        self.check(context)
        found = [self.pods.get(ref.uid)] if ref.uid else [p for p in list(self.pods.values()) if p.name == (ref.namespace, ref.name)]
        return found[-1] if any(found) else context.abort(grpc.StatusCode.NOT_FOUND, f"there is no pod {ref.namespace}/{ref.name} {ref.uid}")

    def container(self, ref, name, context):
        found = [c for c in self.find(ref, context).containers if c.name == name]
        return found[0] if found else context.abort(grpc.StatusCode.NOT_FOUND, f"there is no container {name} in pod {ref.name}")

    def GetInfo(self, request, context):
        self.check(context, grpc.StatusCode.FAILED_PRECONDITION)
        return pb.GetInfoResponse(name="python-processes", version="1", capabilities=["pods-by-uid", "logs", "log-streams", "exec", "volumes"])

    def Ping(self, request, context):
        self.check(context)
        return pb.PingResponse()

    def CreatePod(self, request, context):
        self.check(context)
        pod, sent = json.loads(request.pod), [v.name for v in request.volumes]
        if pod["spec"].get("initContainers") or any("emptyDir" not in v and v["name"] not in sent for v in pod["spec"].get("volumes", [])):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "init containers, and volumes of the host or of claims, are not supported")
        with self.lock:
            uid = pod["metadata"]["uid"]
            self.pods[uid] = self.pods.get(uid) or Pod(pod, self.directory / uid, request.volumes)
        return pb.CreatePodResponse()

    def UpdatePod(self, request, context):
        pod = json.loads(request.pod)
        self.find(pb.PodRef(uid=pod["metadata"]["uid"]), context).keep(pod)
        return pb.UpdatePodResponse()

    def UpdateVolumes(self, request, context):
        self.find(request.pod, context).mount(request.volumes)
        return pb.UpdateVolumesResponse()

    def DeletePod(self, request, context):
        sent = json.loads(request.pod)["metadata"]
        pod, grace = self.find(pb.PodRef(uid=sent["uid"]), context), sent.get("deletionGracePeriodSeconds", 30)
        threading.Thread(target=self.end, args=(sent["uid"], pod, grace), daemon=True).start()
        return pb.DeletePodResponse()

    def end(self, uid, pod, grace):
        deadline = time.monotonic() + grace
        for number in [signal.SIGTERM] * (grace > 0) + [signal.SIGKILL]:
            for container in pod.containers:
                container.signal(number)
            while any(c.state()[0] for c in pod.containers) and time.monotonic() < deadline:
                time.sleep(0.05)
        time.sleep(10)  # its last status can be seen meanwhile
        if self.pods.pop(uid, None):
            shutil.rmtree(pod.directory, ignore_errors=True)

    def GetPod(self, request, context):
        return pb.GetPodResponse(pod=self.find(request.pod, context).encoded())

    def ListPods(self, request, context):
        self.check(context)
        for pod in list(self.pods.values()):
            yield pb.ListPodsResponse(pods=[pod.encoded()])

    def WatchNode(self, request, context):
        amounts, ended = {"cpu": str(os.cpu_count()), "memory": "4Gi", "pods": "50"}, threading.Event()
        yield pb.WatchNodeResponse(node=json.dumps({"status": {"capacity": amounts, "allocatable": amounts}}).encode())
        _ = context.add_callback(ended.set) and ended.wait()

    def GetLogs(self, request, context):
        container = self.container(request.pod, request.container, context)
        if request.previous:
            context.abort(grpc.StatusCode.NOT_FOUND, "containers are not restarted: there is no previous instance")
        since = time.time() - request.since_seconds if request.since_seconds else request.since_unix_nano / 1e9
        with open(container.log, "rb") as log:
            tail, over = request.tail_lines, False
            yield pb.GetLogsResponse()  # there is a log
            while context.is_active() and not over:
                over = not request.follow or not container.state()[0]
                lines = container.lines(log, request.stream, since)
                for at, text in collections.deque(lines, tail) if tail else lines:
                    yield pb.GetLogsResponse(data=utc(at, "%Y-%m-%dT%H:%M:%S.%fZ ").encode() + text if request.timestamps else text)
                tail = 0
                time.sleep(0 if over else 0.1)

    def Exec(self, requests, context):
        start = next(requests).start
        container = self.container(start.pod, start.container, context)
        if not container.state()[0]:
            context.abort(grpc.StatusCode.ABORTED, f"container {start.container} is not running")
        master, slave = pty.openpty() if start.tty else (None, subprocess.PIPE)
        # The shell leads a session: the terminal that it opens is that of the session.
        shell = ["/bin/sh", "-c"] + (['exec "$@" <>"$0" >&0 2>&0', os.ttyname(slave)] if start.tty else ['exec "$@"', "sh"])
        process = subprocess.Popen(shell + list(start.command), env=container.environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        context.add_callback(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        stdin, sources = process.stdin, {process.stdout: "stdout", process.stderr: "stderr"}
        if start.tty:
            os.close(slave)
            stdin, sources = open(os.dup(master), "wb"), {open(master, "rb", 0): "stdout"}
        threading.Thread(target=feed, args=(requests, stdin, start), daemon=True).start()
        while sources:
            for source in wait(list(sources)):
                data = b""
                with contextlib.suppress(OSError):  # a terminal ends so
                    data = os.read(source.fileno(), 32768)
                if data:
                    yield pb.ExecResponse(**{sources[source]: data})
                else:
                    del sources[source]
        yield pb.ExecResponse(exit=pb.Exit(code=128 - process.returncode if process.wait() < 0 else process.returncode))


def feed(requests, stdin, start):
    # Hands on what the user types. It ends with the session, or with the command.
    with contextlib.suppress(OSError, grpc.RpcError):
        for request in itertools.takewhile(lambda r: not r.stdin_closed, requests if start.stdin or start.tty else ()):
            if request.HasField("resize") and start.tty:
                fcntl.ioctl(stdin, termios.TIOCSWINSZ, struct.pack("HHHH", request.resize.height, request.resize.width, 0, 0))
            stdin.write(request.stdin), stdin.flush()
        if not start.tty:
            stdin.close()


def main(address, node, directory):
    os.umask(0o077), os.makedirs(directory, exist_ok=True)  # the socket, logs and volumes are private
    options = {"max_receive_message_length": LIMIT, "max_send_message_length": LIMIT, "http2.max_ping_strikes": 0, "keepalive_time_ms": 30000}
    server = grpc.server(futures.ThreadPoolExecutor(4096), options=[("grpc." + name, value) for name, value in options.items()])
    provider_pb2_grpc.add_ProviderServicer_to_server(Provider(node, pathlib.Path(directory).absolute()), server)
    server.add_insecure_port(address)
    server.start(), server.wait_for_termination()


main(*sys.argv[1:])
