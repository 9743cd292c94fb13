#!/usr/bin/python3
"""Runs the containers of pods as processes of this machine, for a virtual kubelet:

    provider.py unix:///run/provider.sock NODE

It is an example of a provider (providers/remote), and no sandbox: each process may do what
this one may. Containers have no volumes and no probes, and are not restarted.
"""
import datetime, fcntl, json, os, pty, queue, shutil, signal, struct, subprocess, sys, tempfile, termios, threading, time
from concurrent import futures

import grpc
import provider_pb2 as pb
import provider_pb2_grpc

IP, LIMIT = "127.0.0.1", 16 << 20


def now(layout="%Y-%m-%dT%H:%M:%SZ"):
    return datetime.datetime.now(datetime.timezone.utc).strftime(layout)


def exit_code(returned):
    return 128 - returned if returned < 0 else returned


class Container:
    """A process with a session of its own; each line of its log begins with a time."""

    def __init__(self, spec, directory):
        self.spec, self.name, self.log = spec, spec["name"], os.path.join(directory, spec["name"])
        # All variables have values but those that only the provider knows.
        self.environment = {"PATH": os.environ["PATH"]} | {e["name"]: IP if "valueFrom" in e else e.get("value", "") for e in spec.get("env", [])}
        self.process, self.error, self.started, self.finished = None, None, now(), None
        open(self.log, "wb").close()
        try:
            command = spec.get("command", []) + spec.get("args", [])
            self.process = subprocess.Popen(command or ["sleep", "infinity"], cwd=spec.get("workingDir"), env=self.environment, start_new_session=True,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.pump = threading.Thread(target=self.keep_log, daemon=True)
            self.pump.start()
            threading.Thread(target=self.end, daemon=True).start()
        except OSError as error:
            self.error, self.finished = str(error), now()

    def end(self):
        self.process.wait()
        self.finished = now()

    def keep_log(self):
        with open(self.log, "ab", 0) as log:
            for line in self.process.stdout:
                log.write(now("%Y-%m-%dT%H:%M:%S.%fZ ").encode() + line)

    def signal(self, number):
        if self.running():
            os.killpg(self.process.pid, number)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def status(self):
        state = {"running": {"startedAt": self.started}}
        if not self.running():
            self.finished = self.finished or now()
            code = 128 if self.error else exit_code(self.process.returncode)
            state = {"terminated": {"exitCode": code, "startedAt": self.started, "finishedAt": self.finished, "message": self.error or "",
                                    "reason": "StartError" if self.error else "Error" if code else "Completed"}}
        return {"name": self.name, "image": self.spec["image"], "imageID": self.spec["image"], "containerID": f"process://{id(self)}",
                "restartCount": 0, "ready": "running" in state, "started": "running" in state, "state": state}


class Pod:
    def __init__(self, pod):
        self.pod, self.started, self.directory = pod, now(), tempfile.mkdtemp(prefix="pod-")
        self.containers = [Container(c, self.directory) for c in pod["spec"]["containers"]]

    def encoded(self):
        states = [c.status() for c in self.containers]
        ended = [s["state"]["terminated"]["exitCode"] for s in states if "terminated" in s["state"]]
        ready = "False" if ended else "True"
        status = {"phase": "Running" if len(ended) < len(states) else "Failed" if any(ended) else "Succeeded",
                  "startTime": self.started, "podIP": IP, "podIPs": [{"ip": IP}], "containerStatuses": states,
                  "conditions": [{"type": t, "status": v} for t, v in (("PodScheduled", "True"), ("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready))]}
        return json.dumps(self.pod | {"status": status}).encode()


class Provider(provider_pb2_grpc.ProviderServicer):
    def __init__(self, node):
        self.node, self.lock, self.pods = node, threading.Lock(), {}

    def find(self, ref, context):
        with self.lock:
            pod = self.pods.get((ref.namespace, ref.name))
        if pod is None or ref.uid and pod.pod["metadata"]["uid"] != ref.uid:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no pod {ref.namespace}/{ref.name}")
        return pod

    def container(self, ref, name, context):
        for container in self.find(ref, context).containers:
            if container.name == name:
                return container
        context.abort(grpc.StatusCode.NOT_FOUND, f"there is no container {name} in pod {ref.name}")

    def GetInfo(self, request, context):
        if request.node_name != self.node:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this provider runs the pods of node {self.node}")
        return pb.GetInfoResponse(name="python-processes", version="1", capabilities=["pods-by-uid", "logs", "exec"])

    def Ping(self, request, context):
        return pb.PingResponse()

    def CreatePod(self, request, context):
        pod = json.loads(request.pod)
        if pod["spec"].get("initContainers") or any(not v["name"].startswith("kube-api-access-") for v in pod["spec"].get("volumes", [])):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "init containers and volumes are not supported")
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        with self.lock:
            held = self.pods[key] = self.pods.get(key) or Pod(pod)
        if held.pod["metadata"]["uid"] != pod["metadata"]["uid"]:
            context.abort(grpc.StatusCode.ABORTED, "another pod of this name is there still")
        return pb.CreatePodResponse()

    def UpdatePod(self, request, context):
        pod = json.loads(request.pod)
        self.find(pb.PodRef(namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"], uid=pod["metadata"]["uid"]), context).pod = pod
        return pb.UpdatePodResponse()

    def DeletePod(self, request, context):
        meta = json.loads(request.pod)["metadata"]
        pod, grace = self.find(pb.PodRef(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"]), context), meta.get("deletionGracePeriodSeconds", 30)
        for container in pod.containers:
            container.signal(signal.SIGTERM if grace else signal.SIGKILL)
        threading.Thread(target=self.forget, args=((meta["namespace"], meta["name"]), pod, grace), daemon=True).start()
        return pb.DeletePodResponse()

    def forget(self, key, pod, grace):
        deadline = time.monotonic() + grace
        while any(c.running() for c in pod.containers) and time.monotonic() < deadline:
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
        since = datetime.datetime.fromtimestamp(since, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
        yield pb.GetLogsResponse()  # there is a log
        with open(container.log, "rb") as log:
            tail, rest = request.tail_lines, b""
            while context.is_active():
                over = not container.running() and not (container.process and container.pump.is_alive())
                *lines, rest = (rest + log.read()).split(b"\n")
                lines = [line + b"\n" for line in lines] + ([rest] if over and rest else [])
                for line in lines[-tail:]:  # 0 is all
                    if line >= since:
                        yield pb.GetLogsResponse(data=line if request.timestamps else line.split(b" ", 1)[1])
                if over or not request.follow:
                    return
                tail = 0
                time.sleep(0.1)

    def Exec(self, requests, context):
        start = next(requests).start
        container = self.container(start.pod, start.container, context)
        if not container.running():
            context.abort(grpc.StatusCode.ABORTED, f"container {start.container} is not running")
        master, slave = pty.openpty() if start.tty else (None, subprocess.PIPE)
        try:
            process = subprocess.Popen(list(start.command), env=container.environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        except OSError as error:
            yield pb.ExecResponse(exit=pb.Exit(code=126, message=str(error)))
            return
        context.add_callback(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        output = queue.Queue(16)  # a slow user stops the command
        stdin, sources = process.stdin, {"stdout": process.stdout, "stderr": process.stderr}
        if start.tty:
            os.close(slave)
            stdin = open(master, "r+b", 0)
            sources = {"stdout": stdin}
        threading.Thread(target=feed, args=(requests, stdin, start), daemon=True).start()
        for name, source in sources.items():
            threading.Thread(target=read, args=(name, source, output), daemon=True).start()
        for _ in sources:
            while message := output.get():
                yield message
        yield pb.ExecResponse(exit=pb.Exit(code=exit_code(process.wait())))


def read(name, source, output):
    try:
        while data := os.read(source.fileno(), 32768):
            output.put(pb.ExecResponse(**{name: data}), timeout=60)
        output.put(None, timeout=60)
    except queue.Full:
        pass  # the user has gone
    except OSError:
        output.put(None)  # a terminal ends so


def feed(requests, stdin, start):
    """Hands on what the user types. It ends with the session."""
    try:
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
    except (OSError, grpc.RpcError):
        pass  # the command, or the user, has gone


def main(address, node):
    options = {"max_receive_message_length": LIMIT, "max_send_message_length": LIMIT, "http2.max_ping_strikes": 0}
    server = grpc.server(futures.ThreadPoolExecutor(4096), options=[("grpc." + name, value) for name, value in options.items()])
    provider_pb2_grpc.add_ProviderServicer_to_server(Provider(node), server)
    os.umask(0o077)  # for the socket, and the logs
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
