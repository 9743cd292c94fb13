// Runs the containers of pods as processes of this machine, for a virtual kubelet:
//
//     node dist/provider.js unix:///run/provider.sock NODE DIRECTORY
//
// It is an example of a provider (providers/remote), and no sandbox: each process may do what
// this one may. Containers have no probes and no volumes but emptyDirs, which they find in the
// directory that VOLUME_NAME names; they are not restarted, and their logs are not rotated. What is
// known of pods is in DIRECTORY, and each container has a shell that keeps its log and exit code:
// they run on while this process is away.
import { spawn } from "node:child_process"
import { once } from "node:events"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { setTimeout as sleep } from "node:timers/promises"

import * as grpc from "@grpc/grpc-js"
import { loadSync } from "@grpc/proto-loader"
import type { ProviderHandlers } from "./generated/virtualkubelet/provider/v1alpha1/Provider"

type Json = any // an object of Kubernetes
// A handler that returns its answer, or sends it, and throws what refuse throws.
type Answer<Handler> = Handler extends grpc.handleUnaryCall<any, infer Out> ? Out | void | Promise<Out | void> : Promise<unknown>
type Handlers = { [M in keyof ProviderHandlers as string extends M ? never : M]?: (call: Parameters<ProviderHandlers[M]>[0]) => Answer<ProviderHandlers[M]> }

const [address, node, directory] = process.argv.slice(2)
const [IP, LIMIT, PROTO] = ["127.0.0.1", 16 << 20, path.join(__dirname, "../../../v1alpha1/provider.proto")]
const pods = new Map<string, Pod>() // by UID

// $1 is the path of a container's files, $2 where it runs, the rest its command. The lock on .pid
// is held until its output ends; .exit is there when .log, of lines "TIME STREAM TEXT", is complete.
// A line of output says that it runs, and the end of the shell that it does not, or no more. Longer
// lines are broken, since a shell keeps them in memory.
const RUNNER = `
exec 8>&1 9>>"$1.pid"
/usr/bin/flock -n 9 || { echo; exec /usr/bin/setpriv --pdeathsig KILL /usr/bin/flock 9; }  # another one runs it
[ ! -s "$1.pid" ] || exit  # another one ran it
run() { { cd "$2" && exec /usr/bin/setsid "\${@:3}"; } 3>&- 8>&- 9>&- & echo $! >&9; (echo >&8); wait $!; echo $? >"$1.code"; kill -KILL -- -$! 2>&-; }
keep() { while IFS= read -rn 65536 line || [ "$line" ]; do printf '%s %s %s\\n' "\${EPOCHREALTIME/,/.}" "$1" "$line"; done; }
{ run "$@" 2>&1 >&3 | keep Stderr >>"$1.log"; } 3>&1 | keep Stdout >>"$1.log"
/bin/mv "$1.code" "$1.exit"
`

const utc = (milliseconds: number) => new Date(milliseconds).toISOString()
const parse = (data: Buffer) => JSON.parse(data.toString())
const kill = (group: number, signal: NodeJS.Signals) => { try { if (group > 0) process.kill(-group, signal) } catch {} } // it has ended
const refuse = (code: grpc.status, details: string): never => { throw Object.assign(new Error(details), { code, details }) }

class Container {
  ended = false
  readonly environment: Record<string, string>
  readonly started: Promise<unknown>

  constructor(pod: Pod, readonly spec: Json, readonly files = path.join(pod.directory, spec.name)) {
    // All variables have values but those that only the provider knows.
    const variables = (spec.env ?? []).map((e: Json) => [e.name, e.valueFrom ? IP : e.value ?? ""])
    const volumes = (spec.volumeMounts ?? []).map((m: Json) => ["VOLUME_" + m.name.toUpperCase().replaceAll("-", "_"), path.join(pod.directory, "volumes", m.name)])
    this.environment = Object.fromEntries([["PATH", process.env.PATH], ...variables, ...volumes])
    const command = [...(spec.command ?? []), ...(spec.args ?? [])]
    const words = ["-c", RUNNER, "bash", files, spec.workingDir || ".", ...(command.length > 0 ? command : ["sleep", "infinity"])]
    for (const suffix of [".log", ".pid"]) fs.appendFileSync(files + suffix, "")
    this.started = new Promise((resolve, reject) => {
      const runner = spawn("/bin/bash", words, { env: this.environment, detached: true, stdio: ["ignore", "pipe", "ignore"] })
      runner.on("error", reject).on("exit", () => resolve((this.ended = true)))
      runner.stdout.once("data", resolve)
    }).catch((error) => { // it has more arguments than a process can have, or none that it can
      fs.writeFileSync(files + ".log", `${Date.now() / 1000} Stderr ${error.message.split("\n")[0]}\n`)
      fs.writeFileSync(files + ".exit", "128")
      this.ended = true
    })
  }

  signal(name: NodeJS.Signals) {
    if (!this.ended) kill(Number(fs.readFileSync(this.files + ".pid", "utf8")), name)
  }

  status() {
    const known = fs.existsSync(this.files + ".exit") // else nothing is known of its end
    const [startedAt, finishedAt] = [".pid", known ? ".exit" : ".log"].map((suffix) => utc(fs.statSync(this.files + suffix).mtimeMs))
    const exitCode = known ? Number(fs.readFileSync(this.files + ".exit", "utf8")) : 137
    const terminated = { exitCode, reason: exitCode > 0 ? "Error" : "Completed", startedAt, finishedAt }
    return { name: this.spec.name, image: this.spec.image, imageID: this.spec.image, containerID: "process://" + this.files, restartCount: 0,
      ready: !this.ended, started: !this.ended, state: this.ended ? { terminated } : { running: { startedAt } } }
  }

  // What has been added to the log after place, without a line that is still being written.
  async *lines(place: { at: number }, stream: string, since: number) {
    let rest = Buffer.alloc(0)
    for await (const chunk of fs.createReadStream(this.files + ".log", { start: place.at })) {
      rest = Buffer.concat([rest, chunk])
      for (let end; (end = rest.indexOf("\n") + 1) > 0; rest = rest.subarray(end)) {
        place.at += end
        const [time, of] = rest.toString("latin1", 0, 60).split(" ")
        const line = { at: Number(time) * 1000, text: rest.subarray(time.length + of.length + 2, end) }
        if (line.at >= since && ["", of].includes(stream)) yield line
      }
    }
  }
}

class Pod {
  readonly containers: Container[]

  constructor(public object: Json, readonly directory: string) {
    for (const v of [{ name: "", emptyDir: {} }, ...(object.spec.volumes ?? [])])
      if (v.emptyDir) fs.mkdirSync(path.join(directory, "volumes", v.name), { recursive: true })
    this.keep(object) // from here on it is there, also after a restart
    this.containers = object.spec.containers.map((c: Json) => new Container(this, c))
  }

  keep(object: Json) {
    this.object = object
    fs.writeFileSync(path.join(this.directory, "pod.new"), JSON.stringify(object))
    fs.renameSync(path.join(this.directory, "pod.new"), path.join(this.directory, "pod.json"))
  }

  encoded() {
    const containerStatuses = this.containers.map((c) => c.status())
    const codes = containerStatuses.flatMap((s) => s.state.terminated?.exitCode ?? [])
    const phase = codes.length < containerStatuses.length ? "Running" : codes.some((code) => code > 0) ? "Failed" : "Succeeded"
    const conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map((type) => ({ type, status: codes.length > 0 && type.includes("Ready") ? "False" : "True" }))
    const [{ startedAt: startTime }] = Object.values<Json>(containerStatuses[0].state)
    return Buffer.from(JSON.stringify({ ...this.object, status: { phase, startTime, podIP: IP, podIPs: [{ ip: IP }], containerStatuses, conditions } }))
  }

  async end(grace: number) {
    const deadline = Date.now() + grace * 1000
    for (const name of ["SIGTERM", "SIGKILL"].slice(grace > 0 ? 0 : 1)) {
      for (const c of this.containers) c.signal(name as NodeJS.Signals)
      while (this.containers.some((c) => !c.ended) && Date.now() < deadline) await sleep(50)
    }
    await sleep(10_000) // its last status can be seen meanwhile
    if (pods.delete(this.object.metadata.uid)) fs.rmSync(this.directory, { recursive: true, force: true })
  }
}

const isOf = (ref: Json, m: Json) => (ref.uid ? m.uid === ref.uid : m.namespace === ref.namespace && m.name === ref.name)
const findPod = (ref: Json) => [...pods.values()].filter((pod) => isOf(ref, pod.object.metadata)).pop()
  ?? refuse(grpc.status.NOT_FOUND, `there is no pod ${ref.namespace}/${ref.name} ${ref.uid}`)
const findContainer = (ref: Json, name: string) => findPod(ref).containers.find((c) => c.spec.name === name)
  ?? refuse(grpc.status.NOT_FOUND, `there is no container ${name} in pod ${ref.name}`)

// Sends a message, and waits while the client does not read.
async function send(call: grpc.ServerWritableStream<any, any> | grpc.ServerDuplexStream<any, any>, message: object) {
  if (call.cancelled || call.write(message)) return
  const waiting = new AbortController()
  await Promise.race([once(call, "drain", waiting), once(call, "cancelled", waiting)])
  waiting.abort()
}

async function exec(call: grpc.ServerDuplexStream<any, any>, start: Json) {
  const container = findContainer(start.pod, start.container)
  if (container.ended) refuse(grpc.status.ABORTED, `container ${start.container} is not running`)
  const command = "exec 3>&- " + start.command.map((word: string) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ")
  const [program, ...words] = !start.tty ? ["/bin/sh", "-c", command]
    : ["/usr/bin/script", "--quiet", "--return", "--flush", "--echo", "always", "--command", "tty >&3; " + command, "/dev/null"]
  const child = spawn(program, words, { env: { ...container.environment, SHELL: "/bin/sh" }, detached: true, stdio: ["pipe", "pipe", "pipe", "pipe"] })
  const [stdin, stdout, stderr, names] = child.stdio as [NodeJS.WritableStream, ...NodeJS.ReadableStream[]]
  const [ended, terminal] = [once(child, "close"), once(names, "data")]
  call.on("cancelled", () => child.pid && kill(child.pid, "SIGKILL"))
  stdin.on("error", () => {}) // it does not read any more
  if (!start.stdin && !start.tty) stdin.end()
  call.on("data", (request) => {
    if (request.stdin && !stdin.write(request.stdin)) stdin.once("drain", () => call.resume()) && call.pause()
    if (request.stdinClosed) stdin.end()
    const { resize: size } = request
    if (size) terminal.then(([name]) => spawn("stty", ["-F", `${name}`.trim(), "rows", `${size.height}`, "cols", `${size.width}`]))
  })
  const copy = async (from: NodeJS.ReadableStream, name: string) => { for await (const data of from) await send(call, { [name]: data }) }
  const [[code, signal]] = await Promise.all([ended, copy(stdout, "stdout"), copy(stderr, "stderr")])
  await send(call, { exit: { code: code ?? 128 + os.constants.signals[signal as NodeJS.Signals] } })
}

const handlers: Handlers = {
  GetInfo: () => ({ name: "typescript-processes", version: "1", capabilities: ["pods-by-uid", "logs", "log-streams", "exec"] }),
  Ping: () => {},
  CreatePod: async ({ request }) => {
    const { spec, metadata: { uid } } = parse(request.pod)
    // Each pod has a token, which nothing here reads.
    if (spec.initContainers?.length > 0 || spec.volumes?.some((v: Json) => !v.emptyDir && !v.name.startsWith("kube-api-access-")))
      refuse(grpc.status.FAILED_PRECONDITION, "init containers, and volumes other than emptyDirs, are not supported")
    const pod = pods.get(uid) ?? new Pod(parse(request.pod), path.join(directory, uid))
    pods.set(uid, pod)
    await Promise.all(pod.containers.map((c) => c.started))
  },
  UpdatePod: ({ request }) => findPod(parse(request.pod).metadata).keep(parse(request.pod)),
  DeletePod: ({ request }) => {
    const { metadata } = parse(request.pod)
    findPod(metadata).end(metadata.deletionGracePeriodSeconds ?? 30).catch(console.error)
  },
  GetPod: ({ request }) => ({ pod: findPod(request.pod!).encoded() }),
  ListPods: async (call) => { for (const pod of pods.values()) await send(call, { pods: [pod.encoded()] }) },
  WatchNode: async (call) => {
    const amounts = { cpu: `${os.cpus().length}`, memory: "4Gi", pods: "50" }
    await send(call, { node: Buffer.from(JSON.stringify({ status: { capacity: amounts, allocatable: amounts } })) })
    await once(call, "cancelled")
  },
  GetLogs: async (call) => {
    const { pod, container: name, previous, follow, stream, timestamps, tailLines, sinceSeconds, sinceUnixNano } = call.request
    const container = findContainer(pod!, name)
    if (previous) refuse(grpc.status.NOT_FOUND, "containers are not restarted: there is no previous instance")
    const since = sinceSeconds > 0 ? Date.now() - sinceSeconds * 1000 : sinceUnixNano / 1e6
    await send(call, {}) // there is a log
    const [place, last] = [{ at: 0 }, [] as Buffer[]]
    for (let over = false, tail = tailLines; !over && !call.cancelled; tail = 0) {
      over = !follow || container.ended
      for await (const { at, text } of container.lines(place, stream, since)) {
        const data = timestamps ? Buffer.concat([Buffer.from(utc(at) + " "), text]) : text
        if (tail === 0) await send(call, { data })
        else if (last.push(data) > tail) last.shift()
      }
      for (const data of last.splice(0)) await send(call, { data })
      if (!over) await sleep(100)
    }
  },
  Exec: (call) => new Promise((resolve, reject) => call.once("data", ({ start }) => exec(call, start).then(resolve, reject))),
}

// Another node that has met this provider at its address is not to think that its pods are gone.
const served = Object.fromEntries(Object.entries(handlers).map(([method, handle]) => [method, async (call: Json, done?: Function) => {
  try {
    if (call.metadata.get("node-name").some((name: string) => name !== node))
      refuse(method === "GetInfo" ? grpc.status.FAILED_PRECONDITION : grpc.status.UNAVAILABLE, `this provider runs the pods of node ${node}`)
    const answer = await handle!(call)
    done ? done(null, answer ?? {}) : call.end()
  } catch (error) {
    done ? done(error) : call.emit("error", error)
  }
}]))

process.umask(0o077) // the socket, logs and volumes are private
fs.mkdirSync(directory, { recursive: true })
for (const uid of fs.readdirSync(directory).filter((name) => fs.existsSync(path.join(directory, name, "pod.json"))))
  pods.set(uid, new Pod(parse(fs.readFileSync(path.join(directory, uid, "pod.json"))), path.join(directory, uid)))
const { virtualkubelet }: Json = grpc.loadPackageDefinition(loadSync(PROTO, { longs: Number, defaults: true, oneofs: true }))
const server = new grpc.Server({ "grpc.max_receive_message_length": LIMIT, "grpc.max_send_message_length": LIMIT, "grpc.keepalive_time_ms": 30000 })
server.addService(virtualkubelet.provider.v1alpha1.Provider.service, served as grpc.UntypedServiceImplementation)
fs.rmSync(address.replace("unix://", ""), { force: true }) // of a process that was killed
Promise.all([...pods.values()].flatMap((pod) => pod.containers.map((c) => c.started))).then(() =>
  server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error) => { if (error) throw error }))
