# Everything that can be done here, by name; `make` alone lists it.
# A machine needs Go, make and git, and Node for the goals that use Azurite (test, cover); the rest is fetched by these goals.

GO        ?= go
GOFUMPT    = $(GO) run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCHSTAT   = $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
GOVULNCHECK = $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.8.0
PROMTOOL   = github.com/prometheus/prometheus/cmd/promtool@v0.316.0
AZURITE    = pump/storage/storagetest/azurite

.DEFAULT_GOAL := help
.PHONY: help build run test verify test-race play chaos simulate mutants windows limits lint docs-metrics docs-commands check-alerts fmt vuln fuzz bench soak cover deb release api before package-test service-test first-hour azurite azure azure-try suites e2e-page e2e-report clean

# The word behind ## is the group under which help lists a goal, or play.
goals = sed -n "s/^\(play-\)*\([a-z0-9-]*\):.*\#\#$(1) /  make $(2)\2@/p" Makefile | awk -F @ '{ printf "%-$(3)s %s\n", $$1, $$2 }'

help: ##use list the goals
	@for group in use develop prove release; do echo "To $$group:"; $(call goals,$$group,,22); echo; done

# An experiment is a goal play-NAME.
play: $(if $(WHAT),play-$(WHAT),plays) ##prove make one experiment, WHAT=name; without WHAT it lists them
plays:
	@$(call goals,play,play WHAT=,30)

build: ##use build the binaries into bin/
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/distributor ./cmd/processor ./loadtest ./loadtest/azsim/cmd/azsim

# INPUT, KEY, EXEC and EXEC_EACH are quoted for the shell, whatever they hold.
quote = '$(subst ','\'',$(1))'

run: build ##use try the whole pump on simulated accounts; or on your data: INPUT=file.jsonl KEY=field EXEC='cmd'
ifdef INPUT
	bin/loadtest demo --out out --input $(call quote,$(INPUT)) $(if $(KEY),--key $(call quote,$(KEY))) $(if $(EXEC),--exec $(call quote,$(EXEC))) $(if $(EXEC_EACH),--exec-each $(call quote,$(EXEC_EACH)))
else
	$(if $(KEY)$(EXEC)$(EXEC_EACH),$(error KEY, EXEC and EXEC_EACH need INPUT: make run INPUT=tasks.jsonl KEY=field EXEC='cmd'))
	bin/loadtest demo --out out --files "$$($(GO) env GOROOT)/src"
endif

test: azurite ##develop run the tests: units, conformance on the simulator and on Azurite, the real binaries, 200 worlds (four minutes)
	$(MAKE) -k -j 3 test-pump test-processes test-rest

# The engine's tests are the longest: begun last, as go test ./... does, they would end alone. They
# leave much garbage and little behind, so that a collection seldom pays.
ENGINE = ./pump/worlds ./pump/internal/cluster
test-pump:
	GOGC=400 $(GO) test -short -p 1 -timeout 30m $(ENGINE)
# Those of the binaries wait for processes most of their time: begun at once, they do so beside the others.
PROCESSES = ./pump/internal/processtest
test-processes:
	$(GO) test -short $(FRESH) -timeout 30m $(PROCESSES)
test-rest:
	$(GO) test -short $(FRESH) -timeout 30m $$($(GO) list ./... | grep -vxF "$$($(GO) list $(ENGINE) $(PROCESSES))")

# What make test leaves out, in parts of a core each, two at a time; a part that fails names its goal.
# The tests that internal/proof marks, and those that do less under -short, are found by name.
MARKED = $(shell grep -rlE 'proof[.](Only|Less)[(]t[)]' --include='*_test.go' pump internal loadtest | xargs awk -F '[ ()]' '/^func / { name = $$2 } /proof[.](Only|Less)[(]t[)]/ && name ~ /^Test/ { print name }' | sort -u | paste -s -d '|' -)
LONG   = $(GO) test -cpu 1 -p 1 -timeout 80m -run '^($(MARKED)|TestCountOnce.*|TestAClusterHas.*|TestTheSameSeed.*|TestSimulationTheSame.*)$$'
WORLDS ?= 1000
verify: azurite ##prove run the rest: long tests, mutants, 1,000 worlds, two minutes of chaos, the race detector (50 minutes)
	$(MAKE) -k -j 2 --output-sync=target $(RACES) verify-engine verify-rest verify-mutants verify-worlds verify-chaos

verify-engine:
	GOGC=400 $(LONG) ./pump/worlds
verify-rest:
	$(LONG) $$($(GO) list ./pump/... ./internal/... ./loadtest/... | grep -vxF "$$($(GO) list ./pump/worlds)")
verify-worlds:
	cd pump/worlds && GOGC=400 $(GO) test -cpu 1 -timeout 80m -run '^TestSimulationNothing' -simulate.seeds $(WORLDS)
verify-mutants:
	$(GO) run ./internal/mutants/overlay -o out/mutants
	$(GO) test -p 1 -timeout 60m -overlay out/mutants/overlay.json -run '^TestMutants' $(MUTATED)
verify-chaos:
	$(GO) test ./pump/internal/processtest -count 1 -timeout 1h -run '^TestChaos$$' -chaos.for 2m -chaos.tasks 60000

# Tests in virtual time run on one processor under the race detector: on two, timers of a bubble
# that fire at once use one context of the detector at the same time, and it crashes (SIGSEGV in
# __tsan::SlotLock; https://github.com/golang/go/issues/78156). It finds races by order and not by
# chance, so that one processor is enough. Two of these targets at a time use the other one.
RACES    = race-worlds-p-to-z race-worlds-a-to-o race-bubbles race-rest
RACE     = $(GO) test -short -timeout 80m -race
ROWS     = $(addprefix ./pump/internal/,waits row workload election cluster ledger nudging queues member setup closing tracing bodies)
ASKED    = $(addprefix ./pump/,accounts coordination doctor gates quarantine reduce runs status workloads)
BUBBLES  = $(ROWS) $(ASKED) ./pump/processor/... ./pump/distributor/... ./pump/storage/... ./loadtest/azsim ./loadtest/scenario ./internal/capacity ./internal/handlers ./internal/logs
test-race: azurite ##prove run the tests of make test under the race detector
	$(MAKE) -k -j 2 --output-sync=target $(RACES)

race-worlds-p-to-z:
	$(RACE) -cpu 1 -run '^(Test[P-Z]|Fuzz|Example)' ./pump/worlds
race-worlds-a-to-o:
	$(RACE) -cpu 1 -run '^Test[A-O]' ./pump/worlds
race-bubbles:
	$(RACE) -cpu 1 -p 1 $(BUBBLES)
race-rest:
	$(RACE) -p 1 $$($(GO) list ./... | grep -vxF -e "$$($(GO) list ./pump/worlds)" -e "$$($(GO) list $(BUBBLES))")
.PHONY: test-pump test-processes test-rest $(RACES) verify-engine verify-rest verify-worlds verify-mutants verify-chaos

# Every round is played, so that the last line says how often tests fail that need a quick machine.
ROUNDS ?= 10
BUSY   ?= 4
play-rounds: azurite ##play run the tests of make test, but for the engine's in virtual time, ROUNDS (10) times beside BUSY (4) processes that only take CPU (70 minutes)
	@mkdir -p out; busy=; for b in $$(seq $(BUSY)); do while :; do :; done & busy="$$busy $$!"; done; trap "kill $$busy" EXIT; \
	failed=0; for r in $$(seq $(ROUNDS)); do echo "round $$r of $(ROUNDS), $$failed failed"; \
		$(MAKE) -s -k -j 2 test-processes test-rest FRESH='-count 1' > out/round-$$r.txt 2>&1 || { failed=$$((failed + 1)); grep -E '^ *--- FAIL|^FAIL|^panic:' out/round-$$r.txt; }; \
	done; echo "$$failed of $(ROUNDS) rounds failed"; test $$failed = 0

play-members: ##play play 1,000 processors, distributors and both in virtual time: what they read and write a second (some 20 minutes)
	$(GO) test ./pump/internal/cluster -count 1 -v -timeout 3h -run '^TestWhatManyMembersReadAndWriteIsBounded$$' -presence.members 1000

SEEDS ?= 5000
FROM ?= 0
play-cluster: ##play play SEEDS (5000) seeded histories of a cluster, FROM a seed on; or the one that SCRIPT=file holds
ifdef SCRIPT
	$(GO) test ./pump/internal/cluster -count 1 -v -run '^TestClusterScripts$$' -cluster.script '$(abspath $(SCRIPT))'
else
	$(GO) test ./pump/internal/cluster -count 1 -v -timeout 24h -run '^Test(AClusterHas|TheSameSeedGivesTheSameCluster)' -cluster.seeds $(SEEDS) -cluster.from $(FROM)
endif

play-moves: ##play redrive and drop what is in quarantine while accounts are drained, removed and added, in SEEDS (5000) histories in virtual time (1,000 take 25 minutes of a core)
	$(GO) test ./pump/quarantine -cpu 1 -count 1 -v -timeout 24h -run '^TestRedriveAndDropLoseNothing' -move.seeds $(SEEDS)

chaos: ##prove kill and stop real processes at random for five minutes while accounts refuse or are disabled, an endpoint says "not now", 200,000 tasks are counted and an operator works; nothing lost, nothing twice
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 1h -run '^TestChaos$$' -chaos.for 5m -chaos.tasks 200000

# BEFORE is the last release, or what stands for it: its binaries may run beside those of now, as in
# an upgrade.
BEFORE ?= 81501e75
before:
	rm -rf out/before && mkdir -p out/before/src && git archive $(BEFORE) | tar -x -C out/before/src
play-mixed: before ##play play chaos with processes of which half are those of commit BEFORE, and these on what is newer: nothing lost, nothing twice (five minutes)
	cd out/before/src && $(GO) build -o .. -ldflags '-X github.com/queuepump/queuepump/internal/cli.revision=v0.0.9' ./cmd/distributor ./cmd/processor
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 1h -run '^TestChaos$$|^TestAnOlderVersion' -chaos.for 2m -chaos.tasks 60000 -chaos.older '$(CURDIR)/out/before'

TASKS ?= 1000000
play-count: ##play count TASKS (1000000) tasks while processes are killed and stopped: exactly in once, and how far off otherwise
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 12h -run '^TestCount(Once|AtLeastOnce)' -count.tasks $(TASKS)

play-poison: ##play play one task that kills its process among 10,000 healthy ones, with real processes, on own queues and on one queue with 8 owners
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 1h -run '^TestTheTaskThatKills' -poison

play-foreign: azurite ##play move 100,000 messages of other programs under kill -9, each recorded once; and run the examples of docs/distributor.md with the real SDKs
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 1h -run '^(TestMessagesOfOtherPrograms|TestWhatEachProducer)' -foreign.messages 100000

RUNS ?= 2400
FOR  ?= 10m
play-runs: ##play send RUNS (2400) runs of one task with one key by real binaries; then a real processor under 100 runs a second FOR 10m: its memory, and what status asks for
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 2h -run '^TestRunsOfOneTask|^TestAProcessorOfRankZero' -runs.many $(RUNS) -runs.for $(FOR)

HOURS ?= 24h
RATE  ?= 10
KEEP  ?= 2h
play-drop: ##play end a run of ten million tasks with --drop at published limits in virtual time, beside another run (two minutes)
	$(GO) test ./pump/processor -count 1 -v -timeout 30m -run '^TestALargeRunThatIsDropped' -drop.tasks 10000000

play-day: ##play make RATE (10) runs a second for HOURS (24h) of virtual time with a retention of KEEP (2h), some broken, abandoned or with tasks in quarantine, and write docs/reports/runs.md: what is stored
	cd pump/worlds && GOGC=400 $(GO) test -count 1 -v -timeout 24h -run '^TestWhatIsStoredOfRuns' -day.for $(HOURS) -day.rate $(RATE) -day.retention $(KEEP) -day.write '$(CURDIR)/docs/reports/runs.md'

play-day-cost: ##play play HOURS (24h) of virtual time with a cap on what a day costs, and write the table of docs/tuning.md (two minutes)
	cd pump/worlds && GOGC=400 $(GO) test -count 1 -v -timeout 1h -run '^TestADayStaysWithinItsCap' -cost.for $(HOURS) -cost.write '$(CURDIR)/docs/tuning.md'

simulate: ##prove play SEEDS (5000) worlds of the whole pump, FROM a seed on, and write docs/reports/simulation.md, going on with what out/simulate.json says; or the one that PLAN=file holds
ifdef PLAN
	$(GO) test ./pump/worlds -count 1 -v -run '^TestSimulationPlays$$' -simulate.plan '$(or $(realpath $(PLAN)),$(PLAN))'
else
	cd pump/worlds && GOGC=400 $(GO) test -count 1 -timeout 48h -run '^TestSimulation(NothingIs|TheSame)' -simulate.seeds $(SEEDS) -simulate.from $(FROM) -simulate.same 20 -simulate.state '$(CURDIR)/out/simulate.json' -simulate.report '$(CURDIR)/docs/reports/simulation.md'
endif

# Every package with mutants. Each has a TestMutantsAreFound.
MUTATED = $(addprefix ./pump/,internal/workload internal/election internal/cluster internal/ledger internal/sampling internal/queues internal/bodies source distributor processor processor/internal/record worlds) ./internal/handlers
mutants: ##prove build each of the listed mutants in, see which seed finds it, and write docs/reports/mutants.md; ONLY=name,name only those
	$(GO) run ./internal/mutants/overlay -o out/mutants
	$(GO) test $(MUTATED) -p 1 -count 1 -v -timeout 2h -overlay out/mutants/overlay.json -run '^TestMutants' -mutants.write $(if $(ONLY),-mutants.only $(call quote,$(ONLY)))

windows: ##prove hit every window of vulnerability and write docs/reports/windows.md
	$(GO) test ./pump/worlds -count 1 -timeout 30m -run '^TestWindows$$' -windows.write

limits: ##prove measure both sides at the published limits of 1 to 100 accounts, and a tenth of those of 250, in virtual time, and print the table
	$(GO) test ./pump/worlds -count 1 -v -timeout 6h -run '^TestLimits' -limits

play-scale: ##play measure large clusters: 200 processors in virtual time, 16 real ones on one queue and on 32
	$(GO) test ./pump/processor ./pump/internal/processtest -count 1 -v -timeout 2h -run '^TestP82ALarge|^TestScale' -scale

REQUESTS ?=
# ARGS are more flags for go test (docs/testing.md).
azure: build ##use try the pump on accounts of Azure that QUEUEPUMP_AZURE_1 to _9 name, with REQUESTS at most, and write out/azure/report.md (minutes, cents); without them it says what to set; DRY_RUN=1, SKIP=limits,kill
	$(GO) test ./loadtest/realaccounts -count 1 -v -timeout 0 -parallel 8 -run '^TestAccounts$$' -azure $(if $(SKIP),-without $(call quote,$(SKIP))) $(if $(DRY_RUN),-dry-run) $(if $(REQUESTS),-requests $(call quote,$(REQUESTS))) $(ARGS)

azure-try: azurite ##prove try make azure itself, all of it: on the simulator and on Azurite (six minutes)
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 1h -run '^TestTheTrialOfAccounts' -azure.full

suites: build azurite ##prove run the live tests of Azure's clients on azsim in another network, and measure azsim (six minutes; root, iproute2; it says what is missing)
	loadtest/azsim/suites/run.sh bin/azsim $(AZURITE)/node_modules out/suites

lint: ##develop vet (also for Windows and macOS), staticcheck, gofumpt
	$(GO) vet ./...
	GOOS=windows $(GO) vet ./cmd/... ./loadtest/...
	$(GO) vet -tags service,packaging ./internal/packaging/... ./cmd/...
	GOOS=darwin $(GO) vet ./cmd/... ./loadtest/...
	$(STATICCHECK) ./...
	@unformatted=$$($(GOFUMPT) -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not as gofumpt has it (make fmt):"; echo "$$unformatted"; exit 1; fi

docs-metrics: ##develop write docs/metrics.md, the table of all metrics
	$(GO) test ./internal/admin -count 1 -run '^TestDocsMetrics' -update

docs-commands: ##develop write the table of docs/commands.md, all commands and flags
	$(GO) test ./internal/proof -count 1 -run '^TestCommandsAreKnown$$' -update

check-alerts: ##prove have promtool check the alert rules, and judge each one's fault on simulated accounts (six minutes; the first time it builds promtool if there is none, five minutes)
	command -v promtool >/dev/null || GOBIN='$(CURDIR)/out/tools' $(GO) install $(PROMTOOL)
	PATH="$$PATH:$(CURDIR)/out/tools" $(GO) test ./internal/admin -count 1 -timeout 30m -run '^TestEachAlert|^TestPromtool' -alerts.long

fmt: ##develop format as gofumpt does
	$(GOFUMPT) -w .

vuln: ##develop look for known vulnerabilities in what is used
	$(GOVULNCHECK) ./...

FUZZTIME ?= 30s
fuzz: ##develop run every fuzz target for FUZZTIME (30s)
	@$(GO) list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... \
	| xargs grep -o '^func Fuzz[A-Za-z0-9_]*' | while IFS=: read -r file target; do \
		target=$${target#func }; echo "$$target in $$(dirname $$file)"; \
		$(GO) test "$$(dirname $$file)" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; \
	done

# A round is all benchmarks once, so that ratios are taken within a round. The benchmarks are a program
# of their own, which gives itself and the simulator a core each; ARGS are more flags for it.
ROUNDS_BENCH = $(if $(filter quick,$(BENCH)),1,5)
MEASURE = GOMAXPROCS=1 ../out/bench/bench.test -bench.pin -bench.dir ../out/bench $(if $(filter quick,$(BENCH)),-test.short) -test.benchtime 1x -test.timeout 1h $(ARGS)
PARTS   = codec shardmap pump/source pump/distributor/internal/pack pump/processor pump/internal/queues pump/internal/ledger pump/storage/azure internal/handlers
COMMIT  = $$(git rev-parse --short HEAD)$$(git diff --quiet HEAD -- '*.go' go.mod || echo ' with changes')
OUTPUT ?= out/bench/results.txt
MEASURED = $(abspath $(OUTPUT))
bench: ##prove measure the pump beside azqueue alone in ten minutes, see that each figure is kept, and write bench/RESULTS.md, with NOTE='what changed'; BENCH=quick only prints, ONLY='Handler|Rival' measures some; OLD=file compares with what OUTPUT=file had then
	@mkdir -p out/bench $(dir $(MEASURED))
	@cp $(call quote,$(or $(OLD),bench/results.txt)) out/bench/old.txt
	$(GO) test -c -o out/bench/bench.test ./bench
	@printf '%s\n' "command: "$(call quote,make bench$(if $(BENCH), BENCH=$(BENCH))$(if $(ONLY), ONLY='$(ONLY)')) "note: "$(call quote,$(NOTE)) "commit: $(COMMIT)" "date: $$(date +%F)" "cores: $$(getconf _NPROCESSORS_ONLN)" "system: $$(uname -srm)" "go: $$($(GO) env GOVERSION)" "load: $$(uptime | sed 's/.*: //')" "azqueue: $$($(GO) list -m -f '{{.Version}}' github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2)" > $(MEASURED)
	cd bench; for round in $$(seq $(ROUNDS_BENCH)); do $(MEASURE) -test.run '^$$' -test.bench 'Way/($(or $(ONLY),.*))$$' || { echo FAIL; exit 1; }; done | tee -a $(MEASURED)
	$(if $(ONLY)$(BENCH),,$(GO) test -run '^$$' -bench . -benchmem -benchtime 100ms $(addprefix ./,$(PARTS)) >> $(MEASURED))
	cd bench; ../out/bench/bench.test -test.run '^TestFigures$$' -figures $(MEASURED) $(if $(OLD)$(if $(ONLY)$(BENCH),,x),-figures.old ../out/bench/old.txt) $(if $(ONLY)$(BENCH),,-figures.write)
	$(if $(OLD),$(BENCHSTAT) -table goos -filter '.name:Way' out/bench/old.txt $(MEASURED))

soak: ##prove let both binaries work for ten minutes, see that their memory is flat, and write it into bench/RESULTS.md
	COMMIT="$(COMMIT)" $(GO) test ./bench -count 1 -v -timeout 1h -run '^TestSoak$$' -soak.for 10m -soak.write $(ARGS)

cover: azurite ##develop show the coverage of each package
	@mkdir -p out
	$(GO) test -coverprofile out/cover.out ./... | awk '/coverage:/ { print }'
	$(GO) tool cover -func out/cover.out | tail -1

out/tools/apidiff: internal/packaging/tools.mod
	$(GO) build -modfile=$< -o out/tools/ golang.org/x/exp/cmd/apidiff
API = '$(CURDIR)/out/tools/apidiff' -m
api: before out/tools/apidiff ##release say what has changed of the Go API since BEFORE; it fails at a break that CHANGELOG.md does not name
	cd out/before/src && $(API) -w ../api.before github.com/queuepump/queuepump 2>../api.log || { cat ../api.log; exit 1; }
	@$(API) out/before/api.before github.com/queuepump/queuepump >out/before/api.txt 2>out/before/api.log || { cat out/before/api.log; exit 1; }
	@grep -Ev '^- (package github.com/queuepump/queuepump/|[.]/)(loadtest|bench)' out/before/api.txt | tee out/before/public.txt
	@sed -n '/^Compatible/q; s|^- [.]/\(.*\): .*|\1|p' out/before/public.txt | while read -r name; do \
		grep -qF "$$name" CHANGELOG.md || { echo "CHANGELOG.md does not name $$name under Breaking"; exit 1; }; done

VERSION ?=
MAKES = GO='$(GO)' $(GO) run ./internal/packaging/build
deb: build ##release make the deb of this machine in out/package, of the version of git or of VERSION=v1.2.3 (half a minute)
	$(MAKES) deb --version $(call quote,$(VERSION))

# The first build of the tools takes four minutes of CPU; what they lack, they name.
out/tools/goreleaser: internal/packaging/tools.mod
	$(GO) build -modfile=internal/packaging/tools.mod -o out/tools/ github.com/goreleaser/goreleaser/v2 github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

# --skip=validate: a tag may be missing still, and the version is what is said here. goreleaser wants a remote.
REMOTE = GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/queuepump/queuepump
release: out/tools/goreleaser ##release make all that a release has in out/release and out/image, VERSION=v1.2.3; PUBLISH=1 publishes the tag of that name as a draft
	$(if $(VERSION),,$(error say which: make release VERSION=v1.2.3))
	$(REMOTE) PATH="$(CURDIR)/out/tools:$$PATH" GORELEASER_CURRENT_TAG=$(call quote,$(VERSION)) goreleaser release --clean $(if $(PUBLISH),,--skip=publish,announce,validate)

package-test: ##release look into what make release made, install, upgrade, remove and purge it in a chroot (root, dpkg, rpm, lintian; it says what is missing)
	$(GO) test ./internal/packaging/build -count 1 -v -out '$(CURDIR)/out'

OLDER ?=
SERVICE = unshare --mount --propagation private $(GO) test -tags service ./internal/packaging/service -count 1 -v -timeout 30m -out '$(CURDIR)/out/service'
service-test: build deb ##release upgrade, downgrade, reload, remove and purge the deb of this machine under a real systemd, in a container, while 100,000 tasks are done (root, systemd-nspawn; it says what is missing)
	$(SERVICE) -run '^TestTheLifeOfAService$$' -before $(BEFORE) $(if $(OLDER),-older $(call quote,$(abspath $(OLDER))))

first-hour: ##release type what README.md says in an empty folder, build and service included, within five minutes (root, systemd-nspawn; it says what is missing)
	$(SERVICE) -run '^TestTheFirstHour$$'

PAGE = internal/admin/e2e
CHROMIUM = command -v chromium >/dev/null || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core; }
e2e-page: build $(PAGE)/node_modules/.package-lock.json ##prove drive the page with a headless Chromium under a real load, and take the screenshots of docs/ (two minutes; it installs Debian's chromium by apt-get if there is none)
	@$(CHROMIUM)
	node $(PAGE)/e2e.mjs bin out/e2e
	cp out/e2e/page.png out/e2e/page-dark.png out/e2e/page-phone.png docs/

e2e-report: $(PAGE)/node_modules/.package-lock.json ##prove look at the page of a load test with that Chromium, in light and dark (half a minute)
	@$(CHROMIUM)
	mkdir -p out/e2e-report
	$(GO) build -o out/e2e-report/ ./loadtest
	node $(PAGE)/report.mjs out/e2e-report out/e2e-report/pages

play-page-scale: ##play serve the page of 200 processors, 1,000 queues and 4,096 segments for two minutes and measure its first figures, CPU and memory
	$(GO) test ./pump/internal/processtest -count 1 -v -timeout 20m -run '^TestThePageOfALarge' -scale

$(PAGE)/node_modules/.package-lock.json: $(PAGE)/package.json $(PAGE)/package-lock.json
	npm ci --no-audit --no-fund --prefix $(PAGE)
	@touch $@

azurite: $(AZURITE)/node_modules/.package-lock.json ##develop install Azurite, which the tests need

# npm writes this file last, so an install that was cut short is done again.
$(AZURITE)/node_modules/.package-lock.json: $(AZURITE)/package.json $(AZURITE)/package-lock.json
	npm ci --no-audit --no-fund --prefix $(AZURITE)
	@touch $@

clean: ##develop remove what was built
	rm -rf bin out
