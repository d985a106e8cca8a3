package doctor_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

const queueB, tableB = "accountb.queue.core.windows.net", "accountb.table.core.windows.net"

func at(address, canonical string) doctor.Resolved {
	return doctor.Resolved{Canonical: canonical, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
}

// fault is one thing that is planted, and what the doctor says of it, no more and no less.
type fault struct {
	name       string
	spec       workload.Spec
	queues     int // of each account; default 4
	processors int // default 3, -1 is none
	plant      func(t *testing.T, c *clinic)
	want       []string
	// says and mends are words of the first finding.
	says, mends string
}

var faults = []fault{
	{
		name:  "a configuration that cannot be",
		plant: func(_ *testing.T, c *clinic) { c.cfg.Workload = "No Name" },
		want:  []string{"error configuration pump.yaml"}, says: "workload", mends: "edit pump.yaml",
	},
	{
		name:  "a configuration that is not as the workload was made",
		plant: func(_ *testing.T, c *clinic) { c.cfg.Segments = 512 },
		want: []string{
			"error configuration pump.yaml",
		}, says: "segments", mends: "distributor workload show",
	},
	{
		name: "queues that are not those of the workload",
		plant: func(_ *testing.T, c *clinic) {
			for i := range 2 {
				c.cfg.Accounts[i].Queues = 5
			}
		},
		want: []string{"error configuration pump.yaml", "error configuration pump.yaml"},
		says: `account "accounta" has 5 queues`, mends: "distributor workload show",
	},
	{
		name:  "another control account than the workload has",
		plant: func(_ *testing.T, c *clinic) { c.cfg.Control = "accountb" },
		want: []string{
			"error configuration pump.yaml",
		}, says: "in account accounta", mends: "control: accounta",
	},
	{
		name: "no workload", plant: func(_ *testing.T, c *clinic) { c.cfg.Workload = "other" },
		want: []string{"warning workload"}, says: "accounta", mends: "distributor run",
	},
	{
		name: "a second workload of the name",
		plant: func(t *testing.T, c *clinic) {
			spec := workload.Spec{
				Name: c.Cfg.Workload, Shards: c.ShardMap().Shards,
				Delivery: string(pump.AtLeastOnce),
			}
			c.Sim.DropRows("accountb", "queuepump", c.Cfg.Workload, nil)
			must(t, proof.ErrOf(workload.Ensure(t.Context(), c.Cfg.Accounts[1].Storage.Table("queuepump"), spec)))
		},
		want: []string{
			"error workload accountb",
		}, says: "second workload", mends: "distributor workload show",
	},
	{
		name:  "an account that does not answer",
		plant: func(_ *testing.T, c *clinic) { c.Sim.Hang("accountb", true) },
		want:  []string{"error account accountb"}, says: "does not answer", mends: "curl",
	},
	{
		name: "an account that refuses blobs, where blobs are kept",
		plant: func(_ *testing.T, c *clinic) {
			c.o.Results = true
			c.Sim.Inject(azsim.Rule{Account: "accountb", Service: "blob", Operations: []string{"PutBlob"}, Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"})
		},
		want: []string{"error rights accountb"}, says: "put blobs", mends: "Storage Blob Data Contributor",
	},
	{
		name:  "a control account that does not answer",
		plant: func(_ *testing.T, c *clinic) { c.Sim.Hang("accounta", true) },
		want:  []string{"error account accounta"}, says: "does not answer", mends: "curl",
	},
	{
		name: "an account that the configuration has not",
		plant: func(_ *testing.T, c *clinic) {
			c.cfg.Accounts = c.cfg.Accounts[:1]
		},
		want: []string{"error account-missing accountb"}, says: "the workload uses", mends: "add it to",
	},
	{
		name:  "an account that the workload does not use",
		plant: func(_ *testing.T, c *clinic) { c.Without("accountb") },
		want:  []string{"warning account-unused accountb"}, says: "does not use", mends: "distributor accounts add accountb",
	},
	{
		name: "an account that was removed as gone for good",
		plant: func(_ *testing.T, c *clinic) {
			c.Without("accountb")
			c.Sim.Blackout("accountb", true)
		},
		want: []string{"warning account-unused accountb"}, says: "nor can it be used", mends: "take it out of pump.yaml",
	},
	{
		name: "an account that was removed as gone for good, whose name a stranger has",
		plant: func(_ *testing.T, c *clinic) {
			c.Without("accountb")
			c.Sim.Inject(azsim.Rule{Account: "accountb", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		},
		want: []string{"warning account-unused accountb"}, says: "nor can it be used", mends: "take it out of pump.yaml",
	},
	{
		name: "a key of another account",
		plant: func(t *testing.T, c *clinic) {
			said := strings.Replace(c.Sim.ConnectionString("accountb"), c.Sim.Key("accountb"),
				c.Sim.Key("accounta"), 1)
			a, err := azure.Open(
				azure.Options{ConnectionString: said, Transport: c.Sim.Transport().As("operator")},
			)
			must(t, err)
			c.cfg.Accounts[1].Storage = a
		},
		want: []string{
			"error credentials accountb",
		}, says: "AuthenticationFailed", mends: "az storage account keys list --account-name accountb",
	},
	{
		name: "a signature that ends soon, beside one that lasts",
		plant: func(_ *testing.T, c *clinic) {
			for i, days := range []time.Duration{8, 3} {
				ends := time.Now().Add(days * 24 * time.Hour).UTC().Format(time.RFC3339)
				c.cfg.Accounts[i].Endpoint = "https://" + c.cfg.Accounts[i].Name + ".queue.core.windows.net?sig=s&se=" + ends
			}
		},
		want: []string{"warning credentials accountb"}, says: "in 72h0m0s", mends: "az storage account generate-sas --account-name accountb",
	},
	{
		name:  "no right to put messages",
		plant: func(_ *testing.T, c *clinic) { c.deny("accountb", "AuthorizationPermissionMismatch", "PutMessage") },
		want:  []string{"error rights accountb"}, says: "may not put messages", mends: "Storage Queue Data Contributor",
	},
	{
		name:  "no right to make queues",
		plant: func(_ *testing.T, c *clinic) { c.deny("accountb", "AuthorizationPermissionMismatch", "CreateQueue") },
		want:  []string{"warning rights accountb"}, says: "may not make queues", mends: "Storage Table Data Contributor",
	},
	{
		name:  "a clock that is slow",
		plant: func(_ *testing.T, c *clinic) { c.Sim.SetClockOffset(5 * time.Minute) },
		want: []string{
			"warning clock HOST",
		}, says: "5m0s behind that of accounta, accountb", mends: "timedatectl",
	},
	{
		name:  "a clock that is wrong",
		plant: func(_ *testing.T, c *clinic) { c.Sim.SetClockOffset(-20 * time.Minute) },
		want:  []string{"error clock HOST"}, says: "20m0s ahead of", mends: "timedatectl",
	},
	{
		name: "a signature without a right",
		plant: func(_ *testing.T, c *clinic) {
			c.cfg.Accounts[1].Endpoint = "https://accountb.queue.core.windows.net?sig=s"
			c.deny("accountb", "AuthorizationPermissionMismatch", "PutMessage")
		},
		want: []string{"error rights accountb"}, says: "may not put messages", mends: "--permissions rwdlacup",
	},
	{
		name: "a name that only the proxy knows",
		plant: func(t *testing.T, c *clinic) {
			t.Setenv("HTTPS_PROXY", "http://127.0.0.1:3128")
			c.unresolved = queueB
			c.Fault(azsim.Rule{Account: "accountb", Service: "queue", Instance: "operator", Fault: azsim.FailBefore})
		},
		want: []string{"error account accountb"}, says: "does not answer", mends: "curl",
	},
	{
		name: "a name that does not resolve",
		plant: func(_ *testing.T, c *clinic) {
			c.unresolved = queueB
			c.Fault(azsim.Rule{Account: "accountb", Service: "queue", Instance: "operator", Fault: azsim.FailBefore})
		},
		want: []string{"error dns accountb"}, says: queueB, mends: "getent hosts " + queueB,
	},
	{
		name:  "a private endpoint for one service only",
		plant: func(_ *testing.T, c *clinic) { c.names[queueB] = at("10.1.2.3", queueB) },
		want: []string{
			"warning private-endpoint accountb",
		}, says: "queue service has a private address (10.1.2.3)", mends: "getent hosts",
	},
	{
		name: "private endpoints for all services but blobs, where results are kept",
		plant: func(t *testing.T, c *clinic) {
			c.names[queueB], c.names[tableB] = at("10.1.2.3", queueB), at("10.1.2.4", tableB)
			must(t, results.Note(t.Context(), c.Table(), c.Cfg.Workload, 1, map[pump.RunID]results.Ref{{1}: {Account: "accountb", Writer: 1, Number: 1}}))
		},
		want: []string{"warning private-endpoint accountb"}, says: "its blob service a public one", mends: "getent hosts",
	},
	{
		name: "a private endpoint whose zone is not linked",
		plant: func(_ *testing.T, c *clinic) {
			c.names[queueB] = at("20.60.0.9", "accountb.privatelink.queue.core.windows.net")
			c.deny("accountb", "AuthorizationFailure")
		},
		want: []string{
			"error private-endpoint accountb",
		}, says: "privatelink.queue.core.windows.net", mends: "getent hosts " + queueB,
	},
	{
		name:  "an admin port behind a firewall",
		plant: func(_ *testing.T, c *clinic) { c.closed = "10.0.0.2:9090" },
		want: []string{
			"warning nudge-port p01",
		}, says: "connection refused", mends: "curl -sS http://10.0.0.2:9090/healthz",
	},
	{
		name: "an admin port on loopback of another machine",
		plant: func(t *testing.T, c *clinic) {
			c.join("far", cluster.Options{
				Role: cluster.RoleDistributor, Host: "elsewhere",
				Report: func() cluster.Report { return cluster.Report{Admin: "127.0.0.1:9090"} },
			})
		},
		want: []string{"warning nudge-port far"}, says: "loopback", mends: "--admin :9090",
	},
	{
		name: "budgets that are cut", plant: func(_ *testing.T, c *clinic) { c.cut = "accountb" },
		want: []string{
			"warning limits accountb",
		}, says: "1200 messages a second, and could for 3000", mends: "budget.account",
	},
	{
		name: "requests that are refused as too many",
		plant: func(t *testing.T, c *clinic) {
			n := uint64(0)
			c.join("busy", cluster.Options{Role: cluster.RoleDistributor, Report: func() cluster.Report {
				n += 50
				return cluster.Report{Throttled: n, Throttles: map[string]uint64{"accountb": n}}
			}})
		},
		want: []string{"warning limits accountb"}, says: "refused as too many", mends: "budget.account",
	},
	{
		name: "more processors than queues", queues: 1,
		want: []string{
			"warning processors",
		}, says: "3 processors are more than the 2 queues", mends: "distributor accounts add",
	},
	{
		name: "a workload that is paused",
		plant: func(t *testing.T, c *clinic) {
			if _, _, err := workload.SetPause(t.Context(), c.Table(), c.Cfg.Workload, workload.Pause{Since: time.Now(), By: "me"}); err != nil {
				t.Fatal(err)
			}
		},
		want: []string{"warning paused"}, says: "by me", mends: "distributor workload resume",
	},
	{
		name: "messages, and no processor", processors: -1,
		plant: func(_ *testing.T, c *clinic) { c.Put("accounta", "work-00", 3, 1) },
		want:  []string{"warning processors"}, says: "3 messages wait", mends: "processor run",
	},
	{
		name:  "segments without an owner",
		plant: func(t *testing.T, c *clinic) { damage(t, c, "owner.", 0) },
		want:  []string{"error damaged-row", "error orphan-segments"}, says: "owner.", mends: "distributor status",
	},
	{
		name: "messages of no map",
		plant: func(t *testing.T, c *clinic) {
			must(t, c.Queue("accountb", "work-17").Create(t.Context()))
			c.PutText("accountb", "work-17", []byte("lost"))
		},
		want: []string{
			"error unmapped-messages accountb/work-17",
		}, says: "1 messages", mends: "az storage message get",
	},
	{
		name: "a queue of the map that is gone", processors: -1,
		plant: func(t *testing.T, c *clinic) {
			must(t, c.Queue("accountb", "work-02").Drop(t.Context()))
		},
		want: []string{
			"error queue-missing accountb/work-02",
		}, says: "not there", mends: "az storage queue create",
	},
	{
		name: "a foreign queue of the file that is not read",
		plant: func(t *testing.T, c *clinic) {
			must(t, c.Queue("accountb", "orders").Create(t.Context()))
			c.PutText("accountb", "orders", []byte("waits"))
			c.cfg.Accounts[1].Foreign = []string{"orders"}
		},
		want: []string{
			"error unmapped-messages accountb/orders",
		}, says: "1 messages", mends: "distributor accounts add accountb",
	},
	{
		name: "a foreign queue that is not there", processors: -1,
		plant: func(_ *testing.T, c *clinic) {
			c.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard {
				return append(shards, shardmap.Shard{Account: "accountb", Queue: "orders", State: shardmap.Foreign})
			})
		},
		want: []string{
			"error queue-missing accountb/orders",
		}, says: "processors make none", mends: "az storage queue create",
	},
	{
		name: "a quarantine that grows",
		plant: func(t *testing.T, c *clinic) {
			c.PutText("accountb", "work-poison", []byte("old"))
			go func() {
				for waits.Wait(t.Context(), time.Second) {
					if _, err := c.Queue("accountb", "work-poison").Put(t.Context(), []byte("new"), 0); err != nil {
						return
					}
				}
			}()
		},
		want: []string{
			"warning quarantine-growing accountb",
		}, says: "have come into quarantine", mends: "distributor quarantine list",
	},
	{
		name: "runs at half of a bound", spec: workload.Spec{Delivery: string(pump.Once)}, processors: -1,
		plant: fill,
		want: []string{
			"warning ledger-bound",
		}, says: fmt.Sprintf("%d of %d live runs", ledger.MaxLiveRuns/2, ledger.MaxLiveRuns), mends: "distributor runs list",
	},
	{
		name: "a processor holds gets back to keep to a cap",
		plant: func(_ *testing.T, c *clinic) {
			c.cfg.Budget.CostPerDay = 1.5
			c.join("poor", cluster.Options{Report: func() cluster.Report {
				return cluster.Report{Reads: codec.Version, Slower: 12, HoldsBack: true, Spends: 1e-5}
			}})
			time.Sleep(2 * time.Minute)
		},
		want: []string{"warning day-cost"}, says: "gets are held back by 1 of the processors", mends: "raise budget.costPerDay",
	},
	{
		name:  "a cap that its processes cannot keep to",
		plant: func(_ *testing.T, c *clinic) { c.cfg.Budget.CostPerDay = 0.001 },
		want:  []string{"warning day-cost"}, says: "at the least", mends: "or stop processes",
	},
	{
		name: "a processor of an older version",
		plant: func(t *testing.T, c *clinic) {
			c.join("old", cluster.Options{Report: func() cluster.Report { return cluster.Report{Reads: 1} }})
			time.Sleep(2 * time.Minute)
		},
		want: []string{"warning mixed-formats old"}, says: fmt.Sprintf("format 1 and of format %d", codec.Version), mends: "restart",
	},
	{
		name: "a processor of another version that reads the same",
		plant: func(_ *testing.T, c *clinic) {
			c.join("newer", cluster.Options{Version: "v9.0.0+0123456789ab"})
			c.join("older", cluster.Options{Version: "v8.0.0"})
			time.Sleep(2 * time.Minute)
		},
		want: []string{"warning mixed-formats older"}, says: "v9.0.0", mends: "status",
	},
	{
		name:  "a row that a newer version has written",
		plant: func(t *testing.T, c *clinic) { damage(t, c, "owner.", 99); time.Sleep(2 * time.Minute) },
		want:  []string{"error mixed-formats", "error orphan-segments"}, says: "use a newer one", mends: "distributor version",
	},
	{
		name: "a process of a newer version",
		plant: func(t *testing.T, c *clinic) {
			_, err := c.Table().
				Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: storage.Entity{
					Partition: c.Cfg.Workload, Row: "present.newer", Properties: map[string]any{"Format": int64(99)},
				}})
			must(t, err)
		},
		want: []string{"error mixed-formats newer"}, says: "newer version", mends: "distributor version",
	},
	{
		name: "processes that are dead",
		plant: func(_ *testing.T, c *clinic) {
			for i := range 3 {
				c.Fault(azsim.Rule{Instance: fmt.Sprintf("p%02d", i), Fault: azsim.HangBefore})
			}
			time.Sleep(time.Minute)
		},
		want: []string{
			"warning silent-process p00, p01, p02",
		}, says: "3 of 3", mends: "distributor status",
	},
	{
		name: "a full disk",
		plant: func(t *testing.T, c *clinic) {
			c.o.Out = t.TempDir() + "/results.jsonl"
			c.free = 10 << 20
		},
		want: []string{"error disk-space OUT"}, says: "10 MiB left", mends: "df -h",
	},
	{
		name:  "a folder that is not there",
		plant: func(t *testing.T, c *clinic) { c.o.Out, c.o.FreeDisk = t.TempDir()+"/no/results.jsonl", nil },
		want:  []string{"error disk-space OUT"}, says: "not there", mends: "mkdir -p",
	},
}

// damage makes rows of the cluster unreadable.
func damage(t *testing.T, c *clinic, prefix string, format int64) {
	t.Helper()
	for e, err := range c.Table().Query(t.Context(), storage.Query{Partition: c.Cfg.Workload, From: prefix, To: prefix + "~"}) {
		must(t, err)
		e.Properties = map[string]any{"Format": format}
		must(t, proof.ErrOf(c.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: e})))
	}
}

// fill records tasks of half as many runs as a segment may have.
func fill(t *testing.T, c *clinic) {
	t.Helper()
	w, err := workload.Load(t.Context(), c.Table(), c.Cfg.Workload)
	must(t, err)
	l := ledger.Open(c.Table(), w, ledger.Options{Instance: "scribe", Record: true})
	hold := []cluster.Hold{{Segment: 3, Epoch: 1}}
	must(t, proof.ErrOf(l.Fence(t.Context(), hold)))
	must(t, l.Load(t.Context(), hold, nil))
	var entries []*ledger.Entry
	for i := range ledger.MaxLiveRuns / 2 {
		id := pump.RunID{0: 0xe0, 14: byte(i >> 8), 15: byte(i)}
		entries = append(entries, &ledger.Entry{Segment: 3, Epoch: 1, Run: id, Done: codec.MakeNSet(0)})
	}
	l.Commit(t.Context(), entries)
	for _, e := range entries {
		proof.Must(t, e.Err)
	}
}

func TestEachPlantedFaultIsNamedAndNothingElse(t *testing.T) {
	for _, f := range slices.Concat(faults, handlerFaults) {
		t.Run(f.name, func(t *testing.T) {
			queues, processors := cmp.Or(f.queues, 4), max(cmp.Or(f.processors, 3), 0)
			inClinic(t, f.spec, queues, processors, func(t *testing.T, c *clinic) {
				if f.plant != nil {
					f.plant(t, c)
				}
				r := c.check()
				want := slices.Clone(f.want)
				for i := range want {
					want[i] = strings.NewReplacer("HOST", c.o.Host, "OUT", c.o.Out).Replace(want[i])
				}
				if got := found(r); !slices.Equal(got, want) {
					t.Fatalf("found %q, want %q\n%+v", got, want, r.Findings)
				}
				first := r.Findings[0]
				if !strings.Contains(first.Problem, f.says) || !strings.Contains(first.Fix, f.mends) {
					t.Errorf("problem %q\nmend %q", first.Problem, first.Fix)
				}
				proof.Same(t, r.Failed(), (first.Severity == doctor.Error), "failed")
				for _, f := range r.Findings {
					if f.Fix == "" || f.Problem == "" ||
						strings.Contains(f.Problem+f.Fix, c.Sim.Key("accounta")) {
						t.Errorf("%+v", f)
					}
				}
			})
		})
	}
}
