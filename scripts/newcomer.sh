#!/usr/bin/env bash
# Does what the documents say, as somebody who is new would, in a clean clone of what is
# committed:
#
#	scripts/newcomer.sh BIN
#
# The commands are those of the documents' code blocks, word for word; only words in capitals,
# such as FILE, are replaced. It fails with the first one that does not do what the document
# says, and prints the time and the number of commands of each part at its end. The programs
# of BIN spare the clone the first builds. Port 10250 has to be free.
set -euo pipefail
[ $# = 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "$1" && pwd)
work=$bin/newcomer clone=$bin/newcomer/clone # the same each time, for the build cache
patience=300                                 # seconds for what should take a moment

# ---- what is run -------------------------------------------------------------------------

part='' count=0 began=0 table=''
begin() {
	finish_part
	part=$1 count=0 began=$SECONDS
	printf '\n== %s\n' "$part"
}
finish_part() {
	[ -z "$part" ] || table+=$(printf '%-36s %8d %8d' "$part" "$count" $((SECONDS - began)))$'\n'
	part=
}

fail() {
	printf '\nFAILED: %s\n' "$1" >&2
	if [ -s "$work/output" ]; then sed 's/^/    /' "$work/output" >&2; fi
	for log in "$work"/*.log; do
		[ ! -s "$log" ] || { echo "the end of ${log##*/}:"; tail -n 20 "$log"; } >&2
	done
	exit 1
}

# section FILE HEADING: its lines, without those of sections below it.
section() {
	awk -v want="$2" '/^```/ { fence = !fence } !fence && /^#+ / { on = ($0 == want) } on' "$clone/$1"
}
# console: the commands of its input's fenced blocks, one a line.
console() { awk '/^```/ { on = ($0 == "```console") ; next } on && sub(/^\$ /, "")'; }
# indented: the commands of its input's indented blocks; those of several lines become one.
indented() { awk '/^    / { sub(/^    /, ""); if (sub(/\\$/, "")) { printf "%s", $0 } else { print } }'; }
# only PATTERN: the lines that match, at least one of which there has to be.
only() { grep -E -- "$1" || fail "a document has no command any more that matches $1"; }

# say COMMAND: counts it.
say() {
	count=$((count + 1))
	printf '$ %s\n' "$1"
}
# does COMMAND [PATTERN]: runs it, once; it has to succeed and to print the pattern.
does() {
	say "$1"
	bash -eu -o pipefail -c "$1" >"$work/output" 2>&1 </dev/null || fail "exit status $? of: $1"
	grep -Eq -- "${2:-}" "$work/output" || [ -z "${2:-}" ] || fail "what it prints has nothing like \"$2\": $1"
}
# comes COMMAND [PATTERN]: runs it until it does, as somebody would who types it once more.
comes() {
	local deadline=$((SECONDS + patience))
	say "$1"
	until bash -eu -o pipefail -c "$1" >"$work/output" 2>&1 </dev/null && grep -Eq -- "${2:-.*}" "$work/output"; do
		[ "$SECONDS" -lt "$deadline" ] || fail "after $patience s it still does not print \"${2:-}\": $1"
		sleep 1
	done
}
# starts NAME COMMAND: runs it until it is stopped, with its output in NAME.log.
pids=()
starts() {
	say "$2"
	set -m # of a group of its own, which Ctrl-C can be for
	# Who runs this in the background may have it ignore Ctrl-C.
	env --default-signal=INT bash -eu -c "$2" >"$work/$1.log" 2>&1 </dev/null &
	set +m
	started=$!
	pids+=("$started")
}
# prints NAME PATTERN: waits until what was started does.
prints() {
	local deadline=$((SECONDS + patience + 1200)) # a first build may be part of it
	until grep -Eq -- "$2" "$work/$1.log"; do
		kill -0 "$started" 2>/dev/null || fail "$1 has ended before it printed \"$2\""
		[ "$SECONDS" -lt "$deadline" ] || fail "$1 does not print \"$2\""
		sleep 0.2
	done
}
# stops PID: Ctrl-C.
stops() {
	kill -INT -- "-$1" 2>/dev/null || true
	local deadline=$((SECONDS + patience))
	while kill -0 "$1" 2>/dev/null; do
		[ "$SECONDS" -lt "$deadline" ] || { kill -KILL -- "-$1" 2>/dev/null || true; }
		sleep 0.1
	done
}
cleanup() {
	trap - EXIT
	local i
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do stops "${pids[i]}"; done
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

port_is_free() {
	if (exec 3<>/dev/tcp/127.0.0.1/10250) 2>/dev/null; then fail "port 10250 is not free"; fi
}

mkdir -p "$work"
rm -rf "$work"/*.log "$work"/output "$clone" "$work/acme" "$work/path" "$work/plane"
git clone -q "$root" "$clone"
[ -z "$(git -C "$root" status --porcelain)" ] || echo "Changes that are not committed are not in the clone"
mkdir "$clone/bin" "$work/path"
for program in virtual-kubelet controlplane metrics-server helm3 helm4; do
	cp -p "$bin/$program" "$clone/bin/"
done
cp -p "$bin/controlplane.stamp" "$clone/bin/"
cd "$clone"

# ---- README.md, "Try it" -----------------------------------------------------------------

begin "README: quickstart"
try=$(section README.md '## Try it')
starts quickstart "$(console <<<"$try" | only '^make ')"
quickstart=$started
prints quickstart 'Ctrl-C stops'
commands=$(sed -n 's/^  \(\.quickstart\/kubectl .*\)/\1/p' <<<"$try" | only kubectl)
for verb in 'get nodes' 'run hello' 'logs hello' 'exec hello' 'top pods'; do
	only "kubectl $verb" <<<"$commands" >/dev/null
done
while IFS= read -r command; do
	grep -Fxq -- "  $command" "$work/quickstart.log" || fail "make quickstart does not print what README.md says it prints: $command"
	case $command in
	*' get nodes'*) comes "$command" '^vk +Ready ' ;;
	*' run hello '*) does "$command" 'pod/hello created' ;;
	*' logs hello') comes "$command" '^hello from ' ;;
	*' exec hello -- id') comes "$command" '^uid=' ;;
	*' top pods') comes "$command" '^hello +[0-9]+m' ;;
	*) comes "$command" ;;
	esac
done <<<"$commands"

# ---- README.md, "Write a provider" -------------------------------------------------------

begin "README: the minimal program"
port_is_free
minimal=$(section README.md '## Write a provider')
commands=$(console <<<"$minimal" | only .)
[ "$(wc -l <<<"$commands")" -ge 3 ] || fail "README.md has only these commands: $commands"
while IFS= read -r command; do
	case $command in
	*'go run ./examples/minimal') starts minimal "$command"; program=$started ;;
	*' run hi '*) comes "until .quickstart/kubectl get node minimal; do sleep 1; done" minimal; does "$command" 'pod/hi created' ;;
	*' logs hi') comes "$command" "^$(awk 'found { print; exit } /^\$ .* logs hi$/ { found = 1 }' <<<"$minimal")\$" ;;
	*) fail "README.md has a command that scripts/newcomer.sh does not know: $command" ;;
	esac
done <<<"$commands"
stops "$program"

# ---- README.md, "On your cluster" --------------------------------------------------------

begin "README: on your cluster"
port_is_free
cluster=$(section README.md '## On your cluster')
does "$(console <<<"$cluster" | only '^make build')"
does 'ls bin/virtual-kubelet'
starts mock "$(console <<<"$cluster" | only '^bin/virtual-kubelet' | sed 's/ FILE / .quickstart\/kubeconfig /')"
program=$started
comes '.quickstart/kubectl get node virtual-kubelet' '^virtual-kubelet +Ready '
{
	printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: there}\n'
	awk '/^```/ { on = ($0 == "```yaml"); next } on' <<<"$cluster"
	printf '  containers: [{name: main, image: none}]\n'
} >"$work/pod.yaml"
does ".quickstart/kubectl apply -f ../pod.yaml" created
comes '.quickstart/kubectl get pod there -o wide' '^there +1/1 +Running .* virtual-kubelet '
does '.quickstart/kubectl delete pod there --timeout=120s'
stops "$program"
comes '.quickstart/kubectl get node virtual-kubelet' '^virtual-kubelet +NotReady ' # as it says

# ---- docs/write-a-provider.md ------------------------------------------------------------

begin "guide: init to green tests"
port_is_free
guide=$(section docs/write-a-provider.md '## 1. Write the repository')
commands=$(console <<<"$guide" | only .)
[ "$(wc -l <<<"$commands")" -ge 3 ] || fail "docs/write-a-provider.md has only these commands: $commands"
while IFS= read -r command; do
	command=${command//CLONE/$clone}
	case $command in
	*' init '*)
		does "$command"
		while IFS= read -r file; do # the files of the table
			[ -e "../acme/$file" ] || fail "docs/write-a-provider.md says that init writes $file"
		done < <(sed -n 's/^| \(`[^|]*`\) |.*/\1/p' <<<"$guide" | grep -o '`[^`]*`' | tr -d '`')
		;;
	'cd ../acme && '*) does "$command" '^ok ' ;;
	'go run . '*)
		starts acme "cd ../acme; $command"
		program=$started
		comes '.quickstart/kubectl get node acme' '^acme +Ready '
		stops "$program"
		;;
	*) fail "docs/write-a-provider.md has a command that scripts/newcomer.sh does not know: $command" ;;
	esac
done <<<"$commands"
stops "$quickstart"
deadline=$((SECONDS + patience))
while [ -e .quickstart ]; do
	[ "$SECONDS" -lt "$deadline" ] || fail "Ctrl-C has not removed .quickstart, as README.md says"
	sleep 0.5
done

# ---- docs/doctor.md ----------------------------------------------------------------------

# A cluster of its own, with the programs where somebody has them.
starts plane "exec bin/controlplane up --dir '$work/plane' --kubeconfig '$work/kubeconfig'"
prints plane '^ready after'
export KUBECONFIG=$work/kubeconfig PATH=$work/path:$PATH
export HELM_CACHE_HOME=$work/path HELM_CONFIG_HOME=$work/path HELM_DATA_HOME=$work/path
printf '#!/bin/sh\nexec %s kubectl "$@"\n' "$clone/bin/controlplane" >"$work/path/kubectl"
chmod 755 "$work/path/kubectl"
ln -s "$clone/bin/virtual-kubelet" "$work/path/virtual-kubelet"
ln -s "$clone/bin/helm4" "$work/path/helm"

begin "doctor: a broken cluster, mended"
doctor=$(section docs/doctor.md '# What is wrong with a node')
command=$(indented <<<"$doctor" | only '^virtual-kubelet doctor ' | head -n 1)
starts vk 'exec virtual-kubelet --nodename vk --provider mock --port 0'
program=$started
comes 'kubectl get node vk' '^vk +Ready '
say "$command" # the account has no rights
status=0
bash -c "$command" >"$work/output" 2>&1 </dev/null || status=$?
[ "$status" = 1 ] || fail "exit status $status, where docs/doctor.md says 1: $command"
grep -q '^failed  *rights ' "$work/output" || fail "doctor does not find that rights are missing"
checks=$(awk '/^```/ { on = !on } on && sub(/^(ok|warning|failed|not checked) +/, "") { print $1 }' <<<"$doctor" | only .)
while read -r check; do # all that the sample has
	grep -Eq "^(ok|warning|failed|not checked) +$check( |\$)" "$work/output" || fail "doctor has no check \"$check\", which docs/doctor.md shows"
done <<<"$checks"
fix=$(awk '/^failed +rights / { on = 1; next } on && sub(/^ +fix: /, "") { print; exit }' "$work/output")
grep -Fxq -- "fix: $fix" < <(sed 's/^ *//' <<<"$doctor") || fail "docs/doctor.md shows another fix than: $fix"
does "$fix"
comes "$command" '^ok +rights '
grep -q '^failed' "$work/output" && fail "doctor finds something else"
stops "$program"

# ---- docs/install.md ---------------------------------------------------------------------

# plays NAMESPACE: runs the programs of its pods, as there is no machine and no registry: each
# pod's with its arguments, and the rights of its service account.
plays() {
	local namespace=$1 pod server ca account args file since
	declare -A running=()
	server=$(kubectl config view --raw --minify -o jsonpath='{.clusters[0].cluster.server}')
	ca=$work/path/ca.crt
	while true; do
		local pods=" $(kubectl -n "$namespace" get pods -l app.kubernetes.io/name=virtual-kubelet -o jsonpath='{.items[*].metadata.name}' 2>/dev/null || echo '?') "
		for pod in $pods; do
			[ "$pod" != '?' ] && [ -z "${running[$pod]:-}" ] || continue
			account=$(kubectl -n "$namespace" get pod "$pod" -o jsonpath='{.spec.serviceAccountName}') || continue
			mapfile -t args < <(kubectl -n "$namespace" get pod "$pod" -o jsonpath='{range .spec.containers[0].args[*]}{@}{"\n"}{end}')
			file=$work/path/$pod.kubeconfig
			kubectl config set-cluster c --kubeconfig "$file" --server "$server" --certificate-authority "$ca" >/dev/null
			kubectl config set-credentials u --kubeconfig "$file" --token "$(kubectl -n "$namespace" create token "$account")" >/dev/null
			kubectl config set-context c --kubeconfig "$file" --cluster c --user u >/dev/null
			kubectl config use-context c --kubeconfig "$file" >/dev/null
			VKUBELET_POD_UID=$(kubectl -n "$namespace" get pod "$pod" -o jsonpath='{.metadata.uid}') \
				virtual-kubelet "${args[@]}" --port=0 --kubeconfig="$file" >"$work/$pod.log" 2>&1 &
			running[$pod]=$!
			since=$(date -u +%FT%TZ) # without it a pod that is ready is not available
			kubectl -n "$namespace" patch pod "$pod" --subresource=status --type=merge -p \
				'{"status": {"phase": "Running", "conditions": [{"type": "ContainersReady", "status": "True", "lastTransitionTime": "'"$since"'"}, {"type": "Ready", "status": "True", "lastTransitionTime": "'"$since"'"}]}}'
		done
		for pod in "${!running[@]}"; do
			case $pods in *" $pod "* | *'?'*) ;; *)
				kill -TERM "${running[$pod]}" 2>/dev/null || true
				unset "running[$pod]"
				;;
			esac
		done
		sleep 0.5
	done
}

begin "install: the chart"
kubectl config view --raw --minify -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$work/path/ca.crt"
helm=$(section docs/install.md '## Helm')
named() { sed 's/REGISTRY/localhost/; s/TAG/dev/'; }
commands=$(indented <<<"$helm" | named | only '^(helm|kubectl) ')
while IFS= read -r command; do
	case $command in
	'helm install '*)
		does "$command" 'STATUS: deployed'
		set -m
		plays virtual-kubelet >"$work/player.log" 2>&1 </dev/null &
		set +m
		player=$!
		pids+=("$player")
		;;
	*' rollout status '*) comes "timeout $patience $command" 'successfully rolled out' ;;
	'kubectl get node edge') comes "$command" '^edge +Ready ' ;;
	'helm upgrade '*)
		awk '/^```/ { on = ($0 == "```yaml"); next } on' <<<"$helm" | named >values.yaml
		does "$command" 'STATUS: deployed'
		;;
	*) fail "docs/install.md has a command that scripts/newcomer.sh does not know: $command" ;;
	esac
done <<<"$commands"
commands=$(section docs/install.md '### Upgrade and uninstall' | indented | only '^(kubectl|helm|virtual-kubelet) ')
while IFS= read -r command; do
	case $command in
	'helm uninstall '*) does "$command" 'uninstalled' ;;
	*) comes "$command" ;;
	esac
done <<<"$commands"
does 'kubectl get nodes --ignore-not-found edge' # nothing
[ ! -s "$work/output" ] || grep -q '^No resources' "$work/output" || fail "the node edge is still there"

finish_part
printf '\n%-36s %8s %8s\n%s' part commands seconds "$table"
