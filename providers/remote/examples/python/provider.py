#!/usr/bin/python3
# Runs the containers of pods as processes of this machine, for a virtual kubelet:
#
#     provider.py unix:///run/provider.sock NODE DIRECTORY
#
# It is an example of a provider (providers/remote), and no sandbox: each process may do what
# this one may. Containers have no probes, and are not restarted. They find a volume in the
# directory that VOLUME_NAME names. What is known of pods is in DIRECTORY, and each container has
# a shell that keeps its log and exit code: they run on while this process is away.
import contextlib, datetime, fcntl, json, os, pathlib, pty, selectors, shutil, signal, struct, subprocess, sys, tempfile, termios, threading, time
from concurrent import futures

import grpc
import provider_pb2 as pb
import provider_pb2_grpc

IP, LIMIT = "127.0.0.1", 16 << 20

# $1 is the path of a container's files, $2 where it runs, the rest its command. The lock on .pid
# is held until its output ends; .exit is there when .log, of lines "TIME STREAM TEXT", is complete.
RUNNER = r"""
exec 9>>"$1.pid"; /usr/bin/flock -n 9 && [ ! -s "$1.pid" ] || exit  # another one runs it, or ran it
run() { { cd "$2" && exec /usr/bin/setsid "${@:3}"; } 3>&- 9>&- & echo $! >&9; wait $!; echo $? >"$1.code"; kill -KILL -- -$! 2>&-; }
keep() { while IFS= read -r line || [ "$line" ]; do printf '%s %s %s\n' "$EPOCHREALTIME" "$1" "$line"; done; }
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
        self.log.touch(), self.pid.touch()
        runner = subprocess.Popen(["/bin/bash", "-c", RUNNER, "bash", *command], env=self.environment, start_new_session=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        threading.Thread(target=runner.wait, daemon=True).start()
        while runner.poll() is None and not self.pid.read_text():
            time.sleep(0.01)

    def state(self):
        # The process if it runs, else 0, and its exit code.
        with open(self.pid) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                pid = 0
            except OSError:
                pid = int(file.read())
        if self.exit.exists():
            return 0, int(self.exit.read_text())
        return pid, 137  # if it does not run, nothing is known of its end

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            if pid := self.state()[0]:
                os.killpg(pid, number)

    def status(self):
        pid, code = self.state()
        state = {"running": {"startedAt": utc(self.pid.stat().st_mtime)}}
        if not pid:
            ended = self.exit if self.exit.exists() else self.log
            state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": utc(ended.stat().st_mtime)} | state["running"]}
        return {"name": self.name, "image": self.spec["image"], "imageID": self.spec["image"], "containerID": f"process://{self.pid}",
                "restartCount": 0, "ready": bool(pid), "started": bool(pid), "state": state}


class Pod:
    def __init__(self, pod, directory, volumes=()):
        self.directory, self.volumes, self.started = directory, directory / "volumes", utc(time.time())
        for name in [""] + [v["name"] for v in pod["spec"].get("volumes", []) if "emptyDir" in v]:
            (self.volumes / name).mkdir(parents=True, exist_ok=True)
        self.mount(volumes)
        self.keep(pod)  # from here on it is there, also after a restart
        self.containers = [Container(self, c) for c in pod["spec"]["containers"]]

    def keep(self, pod):
        self.pod, new = pod, self.directory / "pod.new"
        new.write_text(json.dumps(pod))
        new.replace(self.directory / "pod.json")

    def mount(self, volumes):
        # Replaces the files of volumes, each at once: its path is a link.
        for volume in volumes:
            path, new = self.volumes / volume.name, pathlib.Path(tempfile.mkdtemp(dir=self.volumes))
            for file in volume.files:
                (new / file.path).parent.mkdir(parents=True, exist_ok=True)
                (new / file.path).write_bytes(file.data)
                (new / file.path).chmod(file.mode)
            before, link = path.is_symlink() and path.resolve(), new.with_suffix(".link")
            link.symlink_to(new)
            link.replace(path)
            if before:
                shutil.rmtree(before)

    def encoded(self):
        states = [c.status() for c in self.containers]
        ended = [s["state"]["terminated"]["exitCode"] for s in states if "terminated" in s["state"]]
        ready = "False" if ended else "True"
        status = {"phase": "Running" if len(ended) < len(states) else "Failed" if any(ended) else "Succeeded",
                  "startTime": self.started, "podIP": IP, "podIPs": [{"ip": IP}], "containerStatuses": states,
                  "conditions": [{"type": t, "status": v} for t, v in (("PodScheduled", "True"), ("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready))]}
        return json.dumps(self.pod | {"status": status}).encode()


def key_of(pod):
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def ref_to(pod):
    return pb.PodRef(namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"], uid=pod["metadata"]["uid"])


class Provider(provider_pb2_grpc.ProviderServicer):
    def __init__(self, node, directory):
        self.node, self.directory, self.lock, self.pods = node, directory, threading.Lock(), {}
        for found in directory.glob("*/pod.json"):
            pod = Pod(json.loads(found.read_text()), found.parent)
            self.pods[key_of(pod.pod)] = pod

    def find(self, ref, context):
        with self.lock:
            pod = self.pods.get((ref.namespace, ref.name))
        if pod is None or ref.uid and pod.pod["metadata"]["uid"] != ref.uid:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no pod {ref.namespace}/{ref.name}")
        return pod

    def container(self, ref, name, context):
        found = [c for c in self.find(ref, context).containers if c.name == name]
        return found[0] if found else context.abort(grpc.StatusCode.NOT_FOUND, f"there is no container {name} in pod {ref.name}")

    def GetInfo(self, request, context):
        if request.node_name != self.node:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this provider runs the pods of node {self.node}")
        return pb.GetInfoResponse(name="python-processes", version="1", capabilities=["pods-by-uid", "logs", "log-streams", "exec", "volumes"])

    def Ping(self, request, context):
        return pb.PingResponse()

    def CreatePod(self, request, context):
        pod, sent = json.loads(request.pod), [v.name for v in request.volumes]
        key, uid = key_of(pod), pod["metadata"]["uid"]
        if pod["spec"].get("initContainers") or any("emptyDir" not in v and v["name"] not in sent for v in pod["spec"].get("volumes", [])):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "init containers, and volumes of the host or of claims, are not supported")
        with self.lock:
            held = self.pods[key] = self.pods.get(key) or Pod(pod, self.directory / uid, request.volumes)
        if held.pod["metadata"]["uid"] != uid:
            context.abort(grpc.StatusCode.ABORTED, "another pod of this name is there still")
        return pb.CreatePodResponse()

    def UpdatePod(self, request, context):
        pod = json.loads(request.pod)
        self.find(ref_to(pod), context).keep(pod)
        return pb.UpdatePodResponse()

    def UpdateVolumes(self, request, context):
        self.find(request.pod, context).mount(request.volumes)
        return pb.UpdateVolumesResponse()

    def DeletePod(self, request, context):
        sent = json.loads(request.pod)
        pod, grace = self.find(ref_to(sent), context), sent["metadata"].get("deletionGracePeriodSeconds", 30)
        for container in pod.containers:
            container.signal(signal.SIGTERM if grace else signal.SIGKILL)
        threading.Thread(target=self.forget, args=(key_of(sent), pod, grace), daemon=True).start()
        return pb.DeletePodResponse()

    def forget(self, key, pod, grace):
        deadline = time.monotonic() + grace
        while any(c.state()[0] for c in pod.containers) and time.monotonic() < deadline:
            time.sleep(0.05)
        for container in pod.containers:
            container.signal(signal.SIGKILL)
        time.sleep(10)  # its last status can be seen meanwhile
        with self.lock:
            if self.pods.get(key) is pod:
                del self.pods[key]
                shutil.rmtree(pod.directory, ignore_errors=True)

    def GetPod(self, request, context):
        return pb.GetPodResponse(pod=self.find(request.pod, context).encoded())

    def ListPods(self, request, context):
        with self.lock:
            pods = list(self.pods.values())
        for pod in pods:
            yield pb.ListPodsResponse(pods=[pod.encoded()])

    def WatchNode(self, request, context):
        amounts = {"cpu": str(os.cpu_count()), "memory": "4Gi", "pods": "50"}
        yield pb.WatchNodeResponse(node=json.dumps({"status": {"capacity": amounts, "allocatable": amounts}}).encode())
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait()

    def GetLogs(self, request, context):
        container = self.container(request.pod, request.container, context)
        if request.previous:
            context.abort(grpc.StatusCode.NOT_FOUND, "containers are not restarted: there is no previous instance")
        since = time.time() - request.since_seconds if request.since_seconds else request.since_unix_nano / 1e9
        with open(container.log, "rb") as log:
            tail, rest, over = request.tail_lines, b"", False
            yield pb.GetLogsResponse()  # there is a log
            while context.is_active() and not over:
                over = not request.follow or not container.state()[0]
                *lines, rest = (rest + log.read()).split(b"\n")
                lines = [(float(at), text + b"\n") for at, stream, text in (line.split(b" ", 2) for line in lines) if request.stream in ("", stream.decode())]
                for at, text in [line for line in lines if line[0] >= since][-tail:]:  # 0 is all
                    yield pb.GetLogsResponse(data=utc(at, "%Y-%m-%dT%H:%M:%S.%fZ ").encode() + text if request.timestamps else text)
                tail = 0
                time.sleep(0 if over else 0.1)

    def Exec(self, requests, context):
        start = next(requests).start
        container = self.container(start.pod, start.container, context)
        if not container.state()[0]:
            context.abort(grpc.StatusCode.ABORTED, f"container {start.container} is not running")
        master, slave = pty.openpty() if start.tty else (None, subprocess.PIPE)
        try:
            process = subprocess.Popen(list(start.command), env=container.environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        except OSError as error:
            yield pb.ExecResponse(exit=pb.Exit(code=126, message=str(error)))
            return
        context.add_callback(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        stdin, sources = process.stdin, {process.stdout: "stdout", process.stderr: "stderr"}
        if start.tty:
            os.close(slave)
            stdin = open(master, "r+b", 0)
            sources = {stdin: "stdout"}
        threading.Thread(target=feed, args=(requests, stdin, start), daemon=True).start()
        with selectors.DefaultSelector() as selector:
            for source, name in sources.items():
                selector.register(source, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select():
                    data = b""
                    with contextlib.suppress(OSError):  # a terminal ends so
                        data = os.read(key.fd, 32768)
                    if data:
                        yield pb.ExecResponse(**{key.data: data})
                    else:
                        selector.unregister(key.fileobj)
        yield pb.ExecResponse(exit=pb.Exit(code=128 - process.returncode if process.wait() < 0 else process.returncode))


def feed(requests, stdin, start):
    # Hands on what the user types. It ends with the session, or with the command.
    with contextlib.suppress(OSError, grpc.RpcError):
        for request in requests if start.stdin or start.tty else ():
            if request.WhichOneof("request") == "stdin_closed":
                break
            if request.WhichOneof("request") == "resize" and start.tty:
                fcntl.ioctl(stdin, termios.TIOCSWINSZ, struct.pack("HHHH", request.resize.height, request.resize.width, 0, 0))
            data = request.stdin
            while data:
                data = data[os.write(stdin.fileno(), data):]
        if not start.tty:
            stdin.close()


def main(address, node, directory):
    os.umask(0o077)  # for the socket, the logs and volumes
    os.makedirs(directory, exist_ok=True)
    options = {"max_receive_message_length": LIMIT, "max_send_message_length": LIMIT, "http2.max_ping_strikes": 0}
    server = grpc.server(futures.ThreadPoolExecutor(4096), options=[("grpc." + name, value) for name, value in options.items()])
    provider_pb2_grpc.add_ProviderServicer_to_server(Provider(node, pathlib.Path(directory).absolute()), server)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
