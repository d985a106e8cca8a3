package operate

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// busy is a status in which everything occurs.
func busy() *status.Status {
	s := &status.Status{
		Workload: "city", Time: noon, Delivery: "at-least-once", Segments: 256, MapVersion: 4,
		Distribution: status.Distribution{Phase: "running", Leader: "feeder-1-4711-0011aabb", Epoch: 17, Run: "0123456789abcdef0123456789abcdef", BeatAge: new(2.4)},
		Unowned:      []uint32{3, 4, 5, 9, 200}, Spilled: 12, Settings: map[string]string{"max-rate": "40", "beat": "2s"},
		Problems: []string{
			"account northwind7 does not answer: get northwind7/city-03: maybe-done (it is shown as dark)",
			"5 segments have no owner: 3-5, 9, 200",
		},
		Gates: []gates.Status{
			{Name: "morning", Open: true, By: "admin@desk", Since: new(noon.Add(-time.Hour))},
			{Name: "the-gate-with-a-rather-long-name-that-somebody-thought-of", By: "operator-who-has-a-long-name-too-9f", Since: new(noon.Add(-30 * time.Hour)), Waiting: 3},
		},
		Keys: []status.Key{
			{Key: "Zürich", Instance: "worker-3-77-00000003", Start: noon.Add(-42 * time.Second), Running: true},
			{Key: "evil\x1b]0;title\a\u202egnp.exe", Instance: "worker-4-78-00000004", Start: noon.Add(-26 * time.Hour), Stop: new(noon.Add(-25 * time.Hour))},
		},
	}
	s.Runs = []status.Run{
		{ID: "0123456789abcdef0123456789abcdef", Mode: "every", State: "open", Started: noon.Add(-90 * time.Second), Sent: new(uint64(1_234_567)), AtLeast: true, Handled: 1_200_111, Failed: 12, Retried: 12, Duplicates: 40},
		{ID: "fedcba9876543210fedcba9876543210", Mode: "once", State: "sealed", Started: noon.Add(-3 * time.Hour), Ended: new(noon.Add(-2 * time.Hour)), Sent: new(uint64(98_765)), Handled: 98_760, Quarantined: 5, Results: 98_760, ResultBytes: 3 << 20},
		{ID: "00112233445566778899aabbccddeeff", Mode: "once", State: "broken", Started: noon.Add(-70 * time.Hour), Ended: new(noon.Add(-70 * time.Hour)), Note: "read 10 tasks, acknowledged 0 of them: the source is not the one that the run was begun with"},
		{ID: "ffeeddccbbaa99887766554433221100", Mode: "client", State: "open", Started: noon.Add(-80 * time.Hour), Handled: 3},
	}
	for i := range 40 {
		s.Instances = append(s.Instances, status.Instance{
			Instance: fmt.Sprintf("worker-%d-%d-%08x", i, 4700+i, i), Role: "processor", Rank: new(i), Segments: 6 + i%2,
			Tasks: uint64(i) * 34_567, Rate: float64(i) * 1.5, BeatAge: float64(i%5) + 0.2, Throttled: uint64(i%3) * 17, Queues: 2,
		})
	}
	s.Instances[1].Trouble = "account northwind7 has not answered for 31 s"
	s.Instances[2].Draining = true
	s.Instances[3].Instance = "a-host-with-a-very-long-name.of-some-department.example.org-4703-00c0ffee"
	s.Instances = append(s.Instances, status.Instance{Instance: "feeder-1-4711-0011aabb", Role: "distributor", Tasks: 1_234_567, Rate: 23_456, BeatAge: 1})
	s.Instances = append([]status.Instance{{Instance: "late-9-1-99999999", Role: "processor", Waiting: "the-gate\x1b[2J", BeatAge: 61}}, s.Instances...)
	for i := range 20 {
		s.Accounts = append(s.Accounts, status.Account{
			Use:   accounts.Use{Name: fmt.Sprintf("northwind%d", i), State: "active", Control: i == 0, Configured: true, Queues: 8, Weight: 1, Segments: 13},
			Limit: 20_000, Demand: 1234 * float64(i), Throttled: uint64(i/6) * 1111,
			Depth:  status.Depth{Messages: int64(i) * 1000, Visible: int64(min(i*1000, 256)), InFlight: int64(max(0, i*1000-256)), Bounds: i > 0, Oldest: new(float64(i * i * 100))},
			Poison: new(int64(i % 4)),
		})
	}
	s.Accounts[7].Dark, s.Accounts[7].Poison = "get northwind7/city-03: maybe-done", nil
	s.Accounts[2].State = "draining"
	s.Accounts[3] = status.Account{Use: accounts.Use{Name: "northwind3", State: "unused", Configured: true, Queues: 8}, Limit: 20_000}
	for i, name := range []string{"count", "create", "delete", "get", "peek\x1b[2J", "put", "renew", "replace", ""} {
		s.Money.Operations = append(s.Money.Operations, status.MoneyOperation{
			MoneyRequests: status.MoneyRequests{Operation: name, Service: "queue", Requests: 1 << (4 * i), Cost: float64(int(1)<<(4*i)) * 4e-7},
			PerMinute:     new(float64(i*i*i) / 4), CostPerMinute: new(float64(i*i*i) * 1e-7),
		})
	}
	for i, name := range []string{"query", "read", "write", ""} {
		s.Money.Operations = append(s.Money.Operations, status.MoneyOperation{
			MoneyRequests: status.MoneyRequests{Operation: name, Service: "table", Requests: 9_000_000 >> (4 * i), Cost: 0.324 / float64(int(1)<<(4*i))},
		})
	}
	s.Accounts[5].Name = "the-account-with-the-longest-name-that-anybody-could-think-of-63"
	return s
}

// dead is the status of a cluster without a process left, with names as long as they may be.
func dead() *status.Status {
	s := quiet()
	s.Workload, s.Segments, s.Settled = "a-workload-with-a-name-of-40-characters-", 4096, false
	s.Distribution.Phase, s.Distribution.Leader, s.Distribution.BeatAge, s.Distribution.Next = "running", "a-host-with-a-name-of-some-length-4711-0011aabb", new(301.), nil
	s.Problems = []string{
		"2 of 2 processes are silent, so dead or cut off from the control account: desk-4-0a0b0c0d, desk-5-0a0b0c0e",
		"4096 of 4096 segments have no live owner, and no live processor is there to take them",
	}
	s.Instances[0].Silent, s.Instances[0].BeatAge, s.Instances[0].Trouble = true, 300, "of another time"
	s.Instances = append(s.Instances, status.Instance{Instance: "desk-4-0a0b0c0d", Role: "distributor", Tasks: 5000, Rate: 12, Silent: true, BeatAge: 301})
	for i := range s.Accounts {
		s.Accounts[i].Demand = 0
	}
	return s
}

// quiet is a status as one person's first workload gives it.
func quiet() *status.Status {
	return &status.Status{
		Workload: "test", Time: noon, Delivery: "at-least-once", Segments: 64, MapVersion: 1, Settled: true,
		Distribution: status.Distribution{Phase: "idle", Leader: "desk-4-0a0b0c0d", Epoch: 1, Run: "0123456789abcdef0123456789abcdef", Next: new(noon.Add(43 * time.Second))},
		Runs:         []status.Run{{ID: "0123456789abcdef0123456789abcdef", Mode: "every", State: "sealed", Started: noon.Add(-20 * time.Second), Sent: new(uint64(5000)), Handled: 5000}},
		Instances:    []status.Instance{{Instance: "desk-5-0a0b0c0e", Role: "processor", Rank: new(0), Segments: 64, Tasks: 5000, Rate: 250, BeatAge: 3}},
		Accounts: []status.Account{
			{Use: accounts.Use{Name: "simulated1", State: "active", Control: true, Configured: true, Queues: 2}, Limit: 20_000, Demand: 12, Poison: new(int64(0))},
			{Use: accounts.Use{Name: "simulated2", State: "active", Configured: true, Queues: 2}, Limit: 20_000, Demand: 12, Poison: new(int64(0)), Depth: status.Depth{Messages: 3, Visible: 1, InFlight: 2, Oldest: new(0.4)}},
		},
	}
}

// exact is a status of a workload whose ledger knows what is done.
func exact() *status.Status {
	s := quiet()
	s.Delivery = "once"
	of := func(total, done, quarantined uint64) *pump.RunProgress {
		left := total - done - quarantined
		return &pump.RunProgress{Total: &total, Done: done, Quarantined: quarantined, Remaining: &left, Percent: new(100 * float64(done+quarantined) / float64(total))}
	}
	s.Runs = []status.Run{
		{ID: "33333333333333333333333333333333", Mode: "every", State: "open", Started: noon.Add(-90 * time.Second), Sent: new(uint64(1_234_567)), AtLeast: true, Handled: 1_200_111, Exact: &pump.RunProgress{Done: 1_200_007}},
		{ID: "22222222222222222222222222222222", Mode: "once", State: "sealed", Started: noon.Add(-3 * time.Hour), Sent: new(uint64(20_000_000)), Handled: 20_000_300, Quarantined: 9, Duplicates: 291, Exact: of(20_000_000, 19_999_990, 3)},
		{ID: "11111111111111111111111111111111", Mode: "once", State: "closed", Started: noon.Add(-30 * time.Hour), Sent: new(uint64(5000)), Handled: 5000, Exact: of(5000, 5000, 0)},
		{ID: "00000000000000000000000000000001", Mode: "once", State: "broken", Started: noon.Add(-31 * time.Hour), Exact: &pump.RunProgress{Done: 17}, Note: "read 20 tasks, acknowledged 17 of them (3 envelopes by this process): stopped before the end of the source"},
	}
	s.Ends = runs.Ends{Waiting: 14, HeldBackBy: "queue simulated2/test-01, which desk-5-0a0b0c0e reads", BehindSeconds: new(7321.), Runs: []runs.RunEnd{
		{ID: "00000000000000000000000000000001", State: "broken", LastSign: noon.Add(-31 * time.Hour), WaitsFor: "quiet", NotBefore: noon.Add(-30 * time.Hour)},
		{ID: "44444444444444444444444444444444", State: "abandoned", LastSign: noon.Add(-time.Hour), WaitsFor: "reading", NotBefore: noon.Add(time.Hour)},
	}}
	return s
}

func TestTheStatusIsOneScreen(t *testing.T) {
	statuses := map[string]*status.Status{"busy": busy(), "quiet": quiet(), "shared": quiet(), "new": {Workload: "test", Time: noon, Delivery: "at-least-once", Segments: 64, MapVersion: 1}}
	statuses["shared"].Shared = true
	statuses["shared"].Distribution.Cron, statuses["shared"].Distribution.Due = "0 12 * * 1-5 UTC", new(noon.Add(-24*time.Hour))
	statuses["once"] = exact()
	statuses["dark"] = &status.Status{
		Workload: "test", Time: noon, Distribution: status.Distribution{Phase: "unknown"},
		Problems: []string{"nothing is known of the workload: control account simulated1: it does not answer"}, Accounts: quiet().Accounts,
	}
	statuses["dark"].Accounts[0].Dark = "it does not answer"
	statuses["dead"] = dead()
	for name, s := range statuses {
		for _, width := range []int{80, 120} {
			file := fmt.Sprintf("status_%s_%d.txt", name, width)
			t.Run(file, func(t *testing.T) {
				var b bytes.Buffer
				screen{width: width, rows: 12, zone: time.UTC}.draw(&b, s)
				golden(t, file, b.String(), width)
			})
		}
	}
}

// golden compares a text with a file of testdata, and holds it to what every screen owes.
func golden(t *testing.T, file, got string, most int) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	proof.Same(t, cmp.Diff(string(want), got), "",
		path, "-want +got; `go test ./internal/operate -update` writes it anew)")
	for i, line := range strings.Split(got, "\n") {
		if w := Width(line); w > most {
			t.Errorf("line %d is %d wide, more than %d: %s", i+1, w, most, line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\u202e' }) {
			t.Errorf("line %d has a control character: %q", i+1, line)
		}
	}
}

func TestTextsFromOutsideCannotSteerATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain Zürich ✓ 日本":      "plain Zürich ✓ 日本",
		"\x1b[2J\x07\u009b31m":   "\ufffd[2J\ufffd\ufffd31m",
		"a\u202eb\u2066c\u200bd": "a\ufffdb\ufffdc\ufffdd",
		"tab\tline\nend\x7f":     "tab\ufffdline\ufffdend\ufffd",
		"bad\xff\xfe":            "bad\ufffd\ufffd",
	} {
		proof.Same(t, plain(in), want, in, "became")
	}
	var b bytes.Buffer
	must(t, printJSON(&b, []string{"\x1b[2J\u009b31m\u202e\U000e0041é✓"}))
	proof.Same(t, b.String(), `["\u001b[2J\u009b31m\u202e\udb40\udc41é✓"]`+"\n")
}

func TestNumbersAndSpansFitTheirColumns(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 999: "999", 99_999: "99,999", 100_000: "100k", 999_499: "999k", 999_500: "1.00M", 1_234_567: "1.23M", 12_345_678: "12.3M",
		999_900_000: "1.00G", 1 << 63: "9E",
	} {
		if got := number(n); got != want || len(got) > 6 {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	for s, want := range map[float64]string{-3: "0s", 0.4: "0s", 99: "99s", 100: "2m", 5999: "100m", 6000: "2h", 100_000: "28h", 200_000: "2d"} {
		proof.Same(t, ageText(s), want, s, "s is")
	}
}
