# "make quickstart" and "make test" are the two commands of the README; the
# other targets are their parts.

GO ?= go
export GO
# go test without go vet, which is part of lint. With TEST_TIMES it leaves what
# scripts/testtimes.sh shows.
GOTEST = $(CURDIR)/scripts/gotest.sh
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
TESTFLAGS ?= -race -shuffle=on

# All that is built without the race detector is built in the same way, so that the packages
# of Kubernetes and of the clouds' SDKs are compiled once. GOTEST sees to the race detector.
export CGO_ENABLED = 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

# The library, and what is released with it (CONTRIBUTING.md). The other modules of
# the repository build test tools.
MODULES = . providers/aci providers/azurebatch providers/eci providers/fargate providers/machine/ec2 providers/nomad providers/zun cmd/virtual-kubelet

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: quickstart
quickstart: build controlplane metrics-server ## Start a control plane and a virtual node, and show what to try
	@scripts/quickstart.sh bin .quickstart

# Without the tag grpc brings text/template along, which calls methods by their
# names: the linker then keeps all methods of everything, half as much again.
# Without symbols for debuggers it is a third smaller; stack traces have theirs.
#
# What containers of the provider process (of Linux) run under is a small program of its own, in
# the binary.
#
# PROVIDERS="cri zun" builds it with those alone.
PROVIDERS =
comma := ,
UNKNOWN_PROVIDERS = $(filter-out $(wildcard $(addprefix providers/,$(PROVIDERS))),$(addprefix providers/,$(PROVIDERS)))
SHIM_TAG := $(if $(filter linux,$(shell $(GO) env GOOS)),$(comma)embedded_shim)
BUILD_TAGS = grpcnotrace$(SHIM_TAG)$(if $(PROVIDERS),$(shell printf ',%s' chosen_providers $(addprefix provider_,$(PROVIDERS))))
.PHONY: build
build: ## Build bin/virtual-kubelet; PROVIDERS="cri zun" for one with those providers alone
	@$(if $(UNKNOWN_PROVIDERS),echo "there is no $(UNKNOWN_PROVIDERS): docs/providers.md has the names" >&2; exit 2)
	@$(if $(SHIM_TAG),$(GO) build -ldflags '-s -w' -o bin/shim ./providers/process/runtime/shim && gzip -9n <bin/shim >cmd/virtual-kubelet/shim.gz)
	@cd cmd/virtual-kubelet && ../../scripts/gobuild.sh "virtual-kubelet" ../../bin/virtual-kubelet . -ldflags '-s -w' -tags $(BUILD_TAGS)

# bin/image.tar is for docker load, ctr images import, crane push, skopeo copy and
# kind load image-archive.
IMAGE ?= localhost/virtual-kubelet:dev
.PHONY: image
image: build ## Make bin/image.tar, a container image of bin/virtual-kubelet named IMAGE
	scripts/image.sh bin/virtual-kubelet $(IMAGE) bin/image.tar

.PHONY: controlplane
controlplane: ## Build bin/controlplane (minutes the first time, cached then)
	@controlplane/build.sh bin/controlplane

.PHONY: metrics-server
metrics-server: ## Build bin/metrics-server, for kubectl top (minutes the first time, cached then)
	@cd test/metricsserver && ../../scripts/gobuild.sh "metrics-server" ../../bin/metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server

# Both are of one module, so that they are built of the same packages, and of those of the
# binary where they have them in common.
.PHONY: helm
helm: ## Build bin/helm3 and bin/helm4, for the tests of the chart (minutes the first time, cached then)
	@for v in 4 3; do (cd test/helm && ../../scripts/gobuild.sh "Helm $$v" ../../bin/helm$$v helm.sh/helm/v$$v/cmd/helm -ldflags '-s -w') || exit 1; done

.PHONY: browser
browser: # what the test of the status page needs
	@command -v chromium >/dev/null || (apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core)
	@cd test/browser && ../../scripts/gobuild.sh "the browser of tests" ../../bin/browser .

# 1.6.3 is the last one with a free licence. It needs cgo, for containers without Docker.
.PHONY: nomad
nomad: toolchain ## Build bin/nomad, for the tests on a real Nomad (minutes the first time, cached then)
	@cd test/nomad && CGO_ENABLED=1 ../../scripts/gobuild.sh "Nomad" ../../bin/nomad github.com/hashicorp/nomad

.PHONY: container-tools
container-tools: # the packages of Debian that containerd-up, the images and commands in tests need
	@missing=; for pkg in ca-certificates e2fsprogs containerd runc containernetworking-plugins iptables iproute2 busybox-static bash-static curl bind9-dnsutils netcat-openbsd jq; do \
		[ "$$(dpkg-query -W -f '$${db:Status-Status}' $$pkg 2>/dev/null)" = installed ] || missing="$$missing $$pkg"; done; \
	[ -z "$$missing" ] || (apt-get update -q && apt-get install -qy --no-install-recommends $$missing)

.PHONY: slurm-tools
slurm-tools: # the packages of Debian that the tests on a real Slurm need
	@missing=; for pkg in slurmctld slurmd slurm-client munge podman runc busybox-static openssh-server openssh-client procps; do \
		[ "$$(dpkg-query -W -f '$${db:Status-Status}' $$pkg 2>/dev/null)" = installed ] || missing="$$missing $$pkg"; done; \
	[ -z "$$missing" ] || (apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing)

.PHONY: nomad-tools
nomad-tools: container-tools # the packages of Debian that the tests on a real Nomad need
	@missing=; for pkg in docker.io; do \
		[ "$$(dpkg-query -W -f '$${db:Status-Status}' $$pkg 2>/dev/null)" = installed ] || missing="$$missing $$pkg"; done; \
	[ -z "$$missing" ] || (apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing)

.PHONY: remote-tools
remote-tools: # the packages of Debian and npm that the providers of the remote examples need
	@missing=; for pkg in python3-grpcio python3-grpc-tools; do \
		[ "$$(dpkg-query -W -f '$${db:Status-Status}' $$pkg 2>/dev/null)" = installed ] || missing="$$missing $$pkg"; done; \
	command -v npm >/dev/null || missing="$$missing nodejs npm"; \
	[ -z "$$missing" ] || (apt-get update -q && apt-get install -qy --no-install-recommends $$missing)
	@from=$(CURDIR)/providers/remote/examples/typescript; mkdir -p bin/remote-examples/examples/typescript; \
	cd bin/remote-examples/examples/typescript; cmp -s $$from/package-lock.json node_modules/.installed || \
		(cp $$from/package.json $$from/package-lock.json . && npm ci --no-audit --no-fund && cp package-lock.json node_modules/.installed)

# A control plane takes seventeen of the instances of inotify that a user may have, a dockerd six, and several run side by side. Where
# the limit cannot be raised, it is as it is.
.PHONY: inotify
inotify:
	@limit=/proc/sys/fs/inotify/max_user_instances; if [ "$$(cat $$limit 2>/dev/null || echo 1024)" -lt 1024 ]; then echo 1024 2>/dev/null >$$limit || true; fi

.PHONY: containerd-up
containerd-up: container-tools ## Build bin/containerd-up, which runs containerd for tests
	$(GO) build -o bin/containerd-up ./test/containerd/cmd/containerd-up

.PHONY: images
images: container-tools ## Make bin/conformance/images.tar, the images of the conformance suite
	@conformance/build.sh bin/conformance images.tar

.PHONY: conformance-parts
conformance-parts: controlplane containerd-up images # what the conformance suite needs
	@conformance/build.sh bin/conformance e2e.test run cluster table

# Machines with control groups of version 1 have nothing for those of version 2 to be tested on.
.PHONY: cgroup2
cgroup2: container-tools ## The tests of control groups in a virtual machine that has version 2 alone
	@missing=; for pkg in qemu-system-x86 cpio; do \
		[ "$$(dpkg-query -W -f '$${db:Status-Status}' $$pkg 2>/dev/null)" = installed ] || missing="$$missing $$pkg"; done; \
	[ -z "$$missing" ] || (apt-get update -q && apt-get install -qy --no-install-recommends $$missing)
	scripts/cgroup2.sh bin/cgroup2

# NODE=process runs the suite on a node of processes, NODE=kubelet on the real
# kubelet, for comparison. CONFORMANCE has further flags of bin/conformance/run,
# CLUSTER of bin/conformance/cluster.
NODE ?= cri
CONFORMANCE_process = -shared-network
.PHONY: conformance
conformance: build conformance-parts ## Run the Kubernetes node specs on a node with the CRI provider
	@[ $(NODE) != kubelet ] || conformance/build.sh bin/conformance kubelet
	bin/conformance/cluster -bin bin -node $(NODE) -logs bin/conformance/results/$(NODE)/logs $(CLUSTER) -- \
		bin/conformance/run -e2e bin/conformance/e2e.test -specs conformance/specs.txt \
		-expected conformance/expected-failures-$(NODE).txt -results bin/conformance/results/$(NODE) $(CONFORMANCE_$(NODE)) $(CONFORMANCE)

# Of the suite's other specs those that the real kubelet passes in this set-up.
.PHONY: conformance-more
conformance-more: build conformance-parts ## The other specs about pods and the node's API, on a node with the CRI provider
	@[ $(NODE) != kubelet ] || conformance/build.sh bin/conformance kubelet
	bin/conformance/cluster -bin bin -node $(NODE) -port 10250 -logs bin/conformance/results/$(NODE)-more/logs $(CLUSTER) -- \
		bin/conformance/run -e2e bin/conformance/e2e.test -specs conformance/specs-more.txt \
		-expected conformance/expected-failures-$(NODE).txt -results bin/conformance/results/$(NODE)-more $(CONFORMANCE_$(NODE)) $(CONFORMANCE)

.PHONY: containers
containers: containerd-up image images controlplane slurm-tools ## The tests that need containerd, the conformance module's own
	cd conformance && $(GOTEST) ./...
	$(GOTEST) -count=1 -tags containers -run '^TestSessionsAreSmall$$' ./providers/cri # the race detector takes memory, too
	$(GOTEST) $(TESTFLAGS) -tags containers -timeout 20m -parallel 8 ./test/containerd/... ./test/crash/... ./test/deploy/... ./providers/cri/... ./providers/providertest/...
	cd cmd/virtual-kubelet && $(GOTEST) -count=1 $(TESTFLAGS) -tags containers -timeout 10m -parallel 64 -run '^TestEveryProvider$$' .

# The whole is make conformance; this takes four minutes.
.PHONY: conformance-sample
conformance-sample: ## Some of the Kubernetes node specs, of each area, on a node with the CRI provider
	$(MAKE) conformance NODE=cri CONFORMANCE='-specs conformance/specs-ci.txt -procs 4 -results bin/conformance/results/sample'

# make test kills the agent fewer times. CRASH has further flags, such as
# -crash.without-relay: what containerd 1.6 makes of broken calls is then part of it.
.PHONY: crash
crash: build containerd-up images controlplane ## Kill agent, server and machines again and again while pods come and go, with each provider that runs them
	$(GO) test -tags integration,containers -timeout 60m ./test/crash/... -v -crash.rounds=50 $(CRASH)

# The load's time; each round of it takes a minute or two more, to come to rest.
# Add SOAK_FLAGS=-faults.seed=N for the load and faults of an earlier run.
SOAK ?= 30m
.PHONY: soak
soak: controlplane ## Half an hour (SOAK) of pods that come and go, with faults; nothing may be left of it
	$(GO) test -tags integration -count=1 -run '^TestSoak$$' -timeout 0 -v ./test/faults -faults.soak=$(SOAK) $(SOAK_FLAGS)

# BENCH has further flags, such as --pods 5000 or --shape rich.
BENCH_OUT ?= bin/bench-results
BENCH_FLAGS = --out $(BENCH_OUT) --note "virtual-kubelet at $$(git describe --always --dirty)"
.PHONY: bench
bench: build controlplane ## Measure what the agent costs, beside the least that any agent could
	@scripts/gobuild.sh "bench" bin/bench ./bench
	bin/bench pods $(BENCH_FLAGS) $(BENCH)

# KWOK with the stages that it recommends, of its own release.
KWOK_VERSION = v0.8.0
.PHONY: kwok
kwok: # what bench-kwok compares with
	@mkdir -p bin/kwok && GOBIN=$(CURDIR)/bin/kwok $(GO) install sigs.k8s.io/kwok/cmd/kwok@$(KWOK_VERSION)
	@stages=$$($(GO) mod download -json sigs.k8s.io/kwok@$(KWOK_VERSION) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/kustomize/stage; rm -f bin/kwok/stages.yaml; \
	for stage in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do \
		{ echo ---; cat $$stages/$$stage.yaml; } >>bin/kwok/stages.yaml || exit 1; done

.PHONY: bench-kwok
bench-kwok: kwok ## The same with KWOK beside it, which plays pods for tests
	@$(MAKE) bench BENCH='--agent "kwok=bench/kwok.sh bin/kwok NODE KUBECONFIG METRICS" $(BENCH)'

.PHONY: bench-kubelet
bench-kubelet: build controlplane containerd-up images ## The real kubelet beside provider cri, as root, into docs/performance.md (20 minutes)
	@conformance/build.sh bin/conformance kubelet
	@scripts/gobuild.sh "bench" bin/bench ./bench
	bin/bench kubelet $(BENCH_FLAGS) $(BENCH)
	bin/bench table $(BENCH_OUT)/kubelet-*.json --into docs/performance.md

.PHONY: liqo
liqo: # what bench-liqo compares with
	@mkdir -p bin/liqo
	@cd test/liqo && ../../scripts/gobuild.sh "Liqo's virtual kubelet" ../../bin/liqo/virtual-kubelet github.com/liqotech/liqo/cmd/virtual-kubelet && \
		../../scripts/gobuild.sh "Liqo's controller of ShadowPods" ../../bin/liqo/shadowpods ./shadowpods
	@rm -rf bin/liqo/crds && cp -R "$$(cd test/liqo && $(GO) list -m -f '{{.Dir}}' github.com/liqotech/liqo)/deployments/liqo/charts/liqo-crds/crds" bin/liqo/ && chmod -R u+w bin/liqo/crds

.PHONY: bench-liqo
bench-liqo: build controlplane liqo ## Liqo's virtual kubelet beside provider kubernetes, into docs/performance.md (20 minutes)
	@scripts/gobuild.sh "bench" bin/bench ./bench
	bin/bench clusters --liqo bin/liqo $(BENCH_FLAGS) $(BENCH)
	bin/bench table $(BENCH_OUT)/clusters-*.json --into docs/performance.md

.PHONY: bench-all
bench-all: bench ## Measure what docs/performance.md has but for the kubelet and Liqo, and put it there (half an hour)
	bin/bench pods $(BENCH_FLAGS) --shape rich --rest 75s --rounds 1
	bin/bench pods $(BENCH_FLAGS) --pods 10000 --rest 75s --rounds 1
	bin/bench pods $(BENCH_FLAGS) --remote
	bin/bench restart $(BENCH_FLAGS)
	bin/bench nodes $(BENCH_FLAGS)
	bin/bench table $(BENCH_OUT)/*.json --into docs/performance.md

# SOAK_FOR is the time of each; 4h is what a release takes.
SOAK_FOR ?= 1h
.PHONY: bench-soak
bench-soak: build controlplane ## SOAK_FOR (1h) each of pods of mock, process (as root) and kubernetes that come and go, with faults, into docs/performance.md
	@scripts/gobuild.sh "bench" bin/soak ./bench/soak
	@scripts/gobuild.sh "bench" bin/bench ./bench
	bin/soak $(BENCH_FLAGS) --for $(SOAK_FOR) --pods 10000 --rate 10
	bin/soak $(BENCH_FLAGS) --for $(SOAK_FOR) --provider process --pods 150 --rate 2
	bin/soak $(BENCH_FLAGS) --for $(SOAK_FOR) --provider kubernetes --pods 300 --rate 3
	bin/bench table $(BENCH_OUT)/soak-*.json --into docs/performance.md

.PHONY: test
test: container-tools ## Everything that CI runs, all of it even if a part fails; its slowest packages and tests, and what has failed, come last
	@rm -rf bin/test-times && mkdir -p bin/test-times
	@TEST_TIMES=$(CURDIR)/bin/test-times $(MAKE) -k test-parts; status=$$?; scripts/testtimes.sh bin/test-times; exit $$status

# What integration and containers run all tests of, unit need not.
.PHONY: test-parts
test-parts: UNIT_WITHOUT = /virtual-kubelet/virtual-kubelet/(test|bench|providers/(cri|kubernetes|providertest|remote|slurm))(/|$$)
test-parts: inotify toolchain container-tools lint compat allocs observability unit integration newcomer containers cgroup2 site conformance-sample

.PHONY: toolchain
toolchain: # what the race detector needs
	@command -v gcc >/dev/null || (apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev)

# One set of tags for all: go vet looks at all that a package depends on, again for each set.
VET_TAGS := integration,containers,conformance$(shell git grep -h '^//go:build' -- '*_test.go' | grep -o '[a-z0-9]*live' | sort -u | sed 's/^/,/' | tr -d '\n')
export VET_TAGS
.PHONY: lint
lint: ## gofmt, go vet, staticcheck and retired words on all modules
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	for module in $(MODULES); do (cd $$module && $(GO) vet -tags $(VET_TAGS) ./... && $(GO) run $(STATICCHECK) -tags $(VET_TAGS) ./...) || exit 1; done
	for module in controlplane conformance test/browser test/compat test/observability; do (cd $$module && $(GO) vet -tags $(VET_TAGS) ./...) || exit 1; done
	$(GO) test -count=1 -vet=off -run '^TestRetiredWords$$' .

.PHONY: tidy
tidy: ## go mod tidy in all modules that are released together
	for module in $(MODULES); do (cd $$module && $(GO) mod tidy) || exit 1; done

.PHONY: compat
compat: ## Compare the public Go API with its contract
	cd test/compat && $(GO) run . check -dir ../.. -contract api.txt

.PHONY: prometheus
prometheus: # what the tests of metrics need
	@command -v promtool >/dev/null || (apt-get update -q && apt-get install -qy --no-install-recommends prometheus)

.PHONY: observability
observability: prometheus ## Check dashboard and alerts against the metrics
	cd test/observability && $(GOTEST) ./...
	promtool check rules deploy/prometheus/alerts.yaml && promtool test rules deploy/prometheus/alerts_test.yaml

# A cached result would not end with a change of a file outside of the module, such
# as those of deploy/ and docs/ that tests of the binary read.
#
# With the race detector, 1000 pods of one backend and 500 sessions take minutes; without it, seconds.
SUITES = ^Test(Suite|SuiteOverThePlugin|Backends|Capsules)$$
MANY_SESSIONS = ^Test(ManySessionsAreSmall|PortForwardForgetsConnections)$$
NOT_MANY = -skip "$(SUITES)/1000_pods|$(SUITES)/./1000_pods|$(MANY_SESSIONS)"
# As regular expressions: the packages that unit leaves out, and those that wait much of their time.
# These begin first, and others run beside them: go test begins with the packages in their order.
UNIT_WITHOUT = ^$$
UNIT_FIRST = /providers/(machine|process/runtime)$$
.PHONY: unit
unit: ## The tests that need no control plane
	printf '%s\n' $(MODULES) | xargs -P 2 -I {} sh -c 'cd {} && packages=$$($(GO) list ./... | grep -vE "$(UNIT_WITHOUT)") && \
		$(GOTEST) -p 4 -count=1 $(TESTFLAGS) -timeout 20m $(NOT_MANY) $$(echo "$$packages" | grep -E "$(UNIT_FIRST)") $$packages'
	$(GOTEST) -count=1 -run '$(SUITES)|$(MANY_SESSIONS)' ./podgroup ./node/api ./providers/interlink ./providers/slurm ./providers/stackpath
	printf '%s\n' $(filter providers/%,$(MODULES)) | xargs -P 2 -I {} sh -c 'cd {} && $(GOTEST) -count=1 -run "$(SUITES)" .'

# Not part of unit, since the race detector allocates too.
.PHONY: allocs
allocs: ## Compare what hot paths allocate with the numbers in testdata/allocs.txt
	$(GOTEST) -count=1 -run '^Test(Allocations|PodAtRestTakesLittleMemory)$$' ./internal/podenv ./internal/podstatus ./log/slog ./internal/podlifecycle ./podengine/internal/runtimemetrics ./internal/podwatch ./node ./node/nodeutil ./providers/mock

.PHONY: calls
calls: controlplane ## Count what 1000 pods ask of the service of each provider, and put it into docs/providers.md
	@for f in $$(git ls-files 'providers/*/testdata/calls.json'); do \
		d=$${f%/testdata/*}; rm -f $$f; \
		case $$d in \
		*/kubernetes) args='-tags integration -run TestRequestsOfPlainPods|TestRequestsOfAService';; \
		*/huaweicci) continue;; \
		*) args='-run Suite/1000_pods$$|Suite//1000_pods$$';; \
		esac; \
		(cd $$d && UPDATE_CALLS=1 go test -count=1 $$args .) || exit 1; \
	done
	@cd cmd/virtual-kubelet && go test -run TestProvidersPage . -update

.PHONY: slurm
slurm: build controlplane slurm-tools ## The tests on a real Slurm, which are part of integration
	$(GOTEST) $(TESTFLAGS) -tags integration -timeout 20m ./providers/slurm/...

.PHONY: machine
machine: build controlplane container-tools toolchain ## The conformance kit on machines that are network namespaces, which is part of integration
	$(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 20m -parallel 8 -run '^TestNetworkNamespaces$$' ./providers/machine

.PHONY: machine-ec2
machine-ec2: build controlplane container-tools toolchain ## The same on instances of a fake of Amazon EC2 that are network namespaces
	cd providers/machine/ec2 && $(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 20m -parallel 8 -run '^TestKit$$' .

.PHONY: qemu-tools
qemu-tools: # the packages of Debian that virtual machines, and their image, need
	@missing=; for pkg in qemu-system-x86 cpio e2fsprogs iproute2 busybox-static bash-static xz-utils; do \
		[ "$$(dpkg-query -W -f '$${db:Status-Status}' $$pkg 2>/dev/null)" = installed ] || missing="$$missing $$pkg"; done; \
	[ -z "$$missing" ] || (apt-get update -q && apt-get install -qy --no-install-recommends $$missing)

.PHONY: machine-image
machine-image: build qemu-tools ## Make bin/machine-image, what the virtual machines of the provider machine run
	scripts/machine-image.sh bin/virtual-kubelet bin/machine-image

.PHONY: machine-qemu
machine-qemu: machine-image controlplane toolchain ## The conformance kit on virtual machines, emulated where KVM is missing
	$(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 20m -run '^TestReal' ./providers/machine/internal/qemu
	$(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 30m -run '^TestQemu(Reserve)?$$' ./providers/machine

# A machine that is emulated starts in half a minute.
.PHONY: machine-qemu-sample
machine-qemu-sample: machine-image controlplane toolchain ## Four checks of machine-qemu, which are part of integration
	$(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 10m -run '^TestReal' ./providers/machine/internal/qemu
	$(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 15m -run '^TestQemu$$/^(checks|leaves-nothing)$$/^(pod-runs|logs|exec-exit-code|exit-code)$$' ./providers/machine

# They wait most of their time, so they run side by side.
.PHONY: kits
kits: controlplane ## The conformance kit over the fakes of services, which is part of integration
	printf '%s\n' aci azurebatch eci fargate interlink stackpath zun | xargs -P 7 -I {} sh -c \
		'cd providers/{} && $(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 10m -parallel 8 -run "^Test(ACI|AzureBatch|ECI|Fargate|InterLink|StackPath|Zun)$$" .'

.PHONY: integration
integration: integration-tools integration-controlplane integration-nodes integration-backends kits machine machine-qemu-sample ## The tests on a real control plane

.PHONY: integration-tools integration-controlplane integration-nodes integration-backends integration-slurm integration-nomad
integration-tools: inotify build controlplane helm browser metrics-server prometheus container-tools slurm-tools remote-tools nomad nomad-tools
integration-controlplane: integration-tools
	cd controlplane && $(GOTEST) ./...
# The packages that take longest begin first. They wait most of the time, so three run side by side.
integration-nodes: integration-tools
	$(GOTEST) -p 3 $(TESTFLAGS) -tags integration -timeout 30m -parallel 8 ./test/integration ./providers/kubernetes ./providers/providertest ./test/faults \
		./test/... ./providers/providertest/... ./providers/kubernetes/... ./bench/...
integration-backends: integration-tools
	$(MAKE) -j2 integration-slurm integration-nomad # Slurm waits most of the time
integration-slurm:
	$(GOTEST) $(TESTFLAGS) -tags integration -timeout 20m -parallel 8 $(NOT_MANY) ./providers/slurm/... ./providers/remote/...
integration-nomad:
	cd providers/nomad && $(GOTEST) -count=1 $(TESTFLAGS) -tags integration -timeout 20m -parallel 8 -run '^Test(Kit|Real.*)$$' .

.PHONY: newcomer
newcomer: build controlplane metrics-server helm ## Do what the README, the guide and the pages of doctor and chart say, in a clean clone
	scripts/newcomer.sh bin

.PHONY: site
site: ## Make bin/site/html, the documentation as a web site with a search; links that lead nowhere fail it
	scripts/site.sh bin/site

# Not part of test, since the SDK of AWS takes minutes to compile.
.PHONY: cloudproviders
cloudproviders: ## A node of a managed cluster before the cloud controller manager of AWS
	cd test/cloudproviders && $(GO) vet ./... && $(GOTEST) ./...

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .quickstart
