package status_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestTheStatusOfANewWorkloadIsEmptyAndWhole(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		s := w.Status(status.Options{})
		if len(s.Problems) != 0 || s.Workload != "town" || s.Segments != 128 || s.MapVersion != 1 || s.Distribution.Phase != "none" || s.LocalClock {
			t.Errorf("%+v", s)
		}
		if len(s.Unowned) != 128 || s.Settled {
			t.Errorf("%d segments without an owner, settled %v", len(s.Unowned), s.Settled)
		}
		text, err := json.Marshal(s)
		proof.Must(t, err)
		if strings.Contains(string(text), "null,\"") && strings.Contains(string(text), `"runs":null`) {
			t.Errorf("a list is null: %s", text)
		}
		for _, secret := range []string{"AccountKey", "sig=", w.Sim.Key("accounta")} {
			if strings.Contains(string(text), secret) {
				t.Errorf("it has a secret: %s", text)
			}
		}
		var states []string
		for _, a := range s.Accounts {
			states = append(states, fmt.Sprintf("%s %s control=%v queues=%d/%d homes=%d", a.Name, a.State, a.Control, a.Queues, len(a.ByQueue), a.Segments))
		}
		want := []string{
			"accounta active control=true queues=2/2 homes=64",
			"accountb active control=false queues=2/2 homes=64",
			"accountc unused control=false queues=2/0 homes=0",
		}
		if !slices.Equal(states, want) {
			t.Errorf("accounts\n%s", strings.Join(states, "\n"))
		}
	})
}

func TestTheStatusShowsVisibleMessagesAndThoseInFlightAsFarAsTheyAreKnown(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		w.Sim.SetClockOffset(10 * time.Minute) // ages are differences of the server's own times
		put := func(account, queue string, n int) {
			for range n {
				w.PutText(account, queue, []byte("m"))
			}
		}
		put("accounta", "town-00", 5)
		time.Sleep(100 * time.Second)
		put("accounta", "town-01", 3)
		put("accountb", "town-00", 40)
		get := func(account, queue string, n int) {
			proof.Must(t, proof.ErrOf(w.Queue(account, queue).Get(t.Context(), n, time.Hour)))
		}
		get("accounta", "town-01", 2)
		get("accountb", "town-00", 6)
		proof.Must(t, w.Queue("accounta", "town-poison").Create(t.Context()))
		put("accounta", "town-poison", 7)
		s := w.Status(status.Options{})
		show := func(name string, d status.Depth) string {
			oldest := "none"
			if d.Oldest != nil {
				oldest = fmt.Sprintf("%.0f", *d.Oldest)
			}
			return fmt.Sprintf("%s: %d messages, %d visible, %d in flight, bounds %v, oldest %s", name, d.Messages, d.Visible, d.InFlight, d.Bounds, oldest)
		}
		var got []string
		for _, a := range s.Accounts[:2] {
			got = append(got, show(a.Name, a.Depth)+fmt.Sprintf(", poison %d", *a.Poison))
			for _, q := range a.ByQueue {
				got = append(got, show(q.Queue, q.Depth))
			}
		}
		want := []string{
			"accounta: 8 messages, 6 visible, 2 in flight, bounds false, oldest 101, poison 7",
			"town-00: 5 messages, 5 visible, 0 in flight, bounds false, oldest 101",
			"town-01: 3 messages, 1 visible, 2 in flight, bounds false, oldest 1",
			"accountb: 40 messages, 32 visible, 8 in flight, bounds true, oldest 1, poison 0",
			"town-00: 40 messages, 32 visible, 8 in flight, bounds true, oldest 1",
			"town-01: 0 messages, 0 visible, 0 in flight, bounds false, oldest none",
		}
		proof.Same(t, cmp.Diff(want, got), "")
		// An empty queue costs its count only: 4 queues and 2 poison ones, 3 of them peeked at.
		queues := s.Requests
		if idle := w.Status(status.Options{Timeout: time.Minute}).Requests; idle != queues || w.Requests("PeekMessages") != 6 {
			t.Errorf("%d requests, %d peeks", idle, w.Requests("PeekMessages"))
		}
	})
}

func TestADarkAccountIsShownAsDarkAndDelaysNothingElse(t *testing.T) {
	for name, darken := range map[string]func(*azsim.Sim){
		"refusing": func(s *azsim.Sim) { s.Blackout("accountb", true) },
		"hanging":  func(s *azsim.Sim) { s.Hang("accountb", true) },
	} {
		t.Run(name, func(t *testing.T) {
			testworld.InThree(t, func(t *testing.T, w *testworld.World) {
				w.PutText("accounta", "town-00", []byte("m"))
				darken(w.Sim)
				begun := time.Now()
				s := w.Status(status.Options{})
				a, b := s.Accounts[0], s.Accounts[1]
				if a.Dark != "" || a.Messages != 1 || b.Dark == "" || b.Poison != nil {
					t.Errorf("a %+v\nb %+v", a, b)
				}
				if len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "account accountb, queue town-") {
					t.Errorf("problems %q", s.Problems)
				}
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestAnAccountForWhichNoTokenComesIsShownAsDark(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		cfg := w.Operator()
		w.WithoutToken(&cfg, 1)
		s, err := status.Read(t.Context(), cfg, status.Options{})
		proof.Must(t, err)
		if a, b := s.Accounts[0], s.Accounts[1]; a.Dark != "" || b.Dark == "" || len(s.Problems) == 0 || !strings.Contains(s.Problems[0], "account accountb, queue town-") {
			t.Errorf("a %+v\nb %+v\nproblems %q", a, b, s.Problems)
		}
	})
}

func TestWithADarkControlAccountTheOthersAreStillShown(t *testing.T) {
	for name, darken := range map[string]func(*azsim.Sim){
		"refusing": func(s *azsim.Sim) { s.Blackout("accounta", true) },
		"hanging":  func(s *azsim.Sim) { s.Hang("accounta", true) },
	} {
		t.Run(name, func(t *testing.T) {
			testworld.InThree(t, func(t *testing.T, w *testworld.World) {
				w.PutText("accountb", "town-00", []byte("m"))
				darken(w.Sim)
				begun := time.Now()
				s, err := status.Read(t.Context(), w.Operator(), status.Options{})
				if err == nil || !strings.Contains(err.Error(), "control account accounta") || s == nil {
					t.Fatalf("%+v, %v", s, err)
				}
				if len(s.Problems) != 2 || !strings.HasPrefix(s.Problems[0], "nothing is known of the workload") {
					t.Errorf("problems %q", s.Problems)
				}
				if s.Accounts[0].Dark == "" || s.Accounts[1].Messages != 1 || s.Accounts[1].Dark != "" || !s.LocalClock || s.Segments != 0 || s.Distribution.Phase != "unknown" {
					t.Errorf("%+v", s)
				}
				if took := time.Since(begun); took > 11*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		cfg := w.Operator()
		cfg.Workload = "wrong"
		if s, err := status.Read(t.Context(), cfg, status.Options{}); !errors.Is(err, pump.ErrNoWorkload) || s == nil || s.Distribution.Phase != "none" {
			t.Errorf("%+v, %v", s, err)
		}
		if s, err := status.Read(t.Context(), pump.Config{}, status.Options{}); s != nil || err == nil {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestTheStatusShowsTheInstancesByRankAndWhatTheyAskOfEachAccount(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		w.Joined("p2", cluster.RoleProcessor, cluster.Report{
			Admin: "10.0.0.2:1", Tasks: 7, Rate: 2.5, Seconds: 0.25, Hides: 45, Queues: 2, Throttled: 3,
			Demand: map[string]float64{"accounta": 10, "accountb": 5}, Throttles: map[string]uint64{"accountb": 3}, Trouble: "hurts",
		})
		w.Joined("p1", cluster.RoleProcessor, cluster.Report{Demand: map[string]float64{"accounta": 30}, Throttles: map[string]uint64{"accountb": 4}})
		w.Joined("p0", cluster.RoleProcessor, cluster.Report{Waiting: "morning"})
		w.Joined("d1", cluster.RoleDistributor, cluster.Report{Tasks: 99})
		time.Sleep(time.Minute)
		s := w.Status(status.Options{})
		var got []string
		for _, i := range s.Instances {
			rank := -1
			if i.Rank != nil {
				rank = *i.Rank
			}
			got = append(got, fmt.Sprintf("%s %s %d: %d segments, waits %q", i.Instance, i.Role, rank, i.Segments, i.Waiting))
			if i.BeatAge > 6 || i.Host != "host-of-"+i.Instance || i.Version != "v1" {
				t.Errorf("%+v", i)
			}
		}
		want := []string{`p1 processor 0: 64 segments, waits ""`, `p2 processor 1: 64 segments, waits ""`, `d1 distributor -1: 0 segments, waits ""`, `p0 processor -1: 0 segments, waits "morning"`}
		proof.Same(t, cmp.Diff(want, got), "")
		p2 := s.Instances[1]
		if p2.Admin != "10.0.0.2:1" || p2.Tasks != 7 || p2.Rate != 2.5 || p2.Seconds != 0.25 || p2.LeaseSeconds != 45 || p2.Queues != 2 || p2.Throttled != 3 || p2.Trouble != "hurts" || p2.Demand["accountb"] != 5 {
			t.Errorf("%+v", p2)
		}
		a, b := s.Accounts[0], s.Accounts[1]
		if a.Demand != 40 || a.Throttled != 0 || b.Demand != 5 || b.Throttled != 7 || a.Limit != 20_000 {
			t.Errorf("a %+v\nb %+v", a, b)
		}
		if !s.Settled || len(s.Unowned) != 0 || len(s.Problems) != 0 {
			t.Errorf("settled %v, unowned %v, problems %q", s.Settled, s.Unowned, s.Problems)
		}
		if want := []gates.Status{{Name: "morning", Waiting: 1}}; !cmp.Equal(want, s.Gates) {
			t.Errorf("gates %+v", s.Gates)
		}
	})
}

func TestADeadClusterIsSilentAndNotSettled(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		w.Sim.SetClockOffset(10 * time.Minute) // only the server's clock counts
		demand := map[string]float64{"accounta": 100}
		for _, p := range []string{"p1", "p2"} {
			w.Joined(p, cluster.RoleProcessor, cluster.Report{Demand: demand, Throttles: map[string]uint64{"accounta": 1}})
		}
		w.Joined("d1", cluster.RoleDistributor, cluster.Report{Demand: demand, Throttles: map[string]uint64{"accounta": 1}})
		w.Joined("w1", cluster.RoleProcessor, cluster.Report{Waiting: "morning"})
		time.Sleep(time.Minute)
		kill := func(instances ...string) (revive func()) {
			var faults []*azsim.Injection
			for _, i := range instances {
				faults = append(faults, w.Fault(azsim.Rule{Instance: i, Fault: azsim.FailBefore}))
			}
			return func() {
				for _, f := range faults {
					f.Remove()
				}
			}
		}
		silent := func(s *status.Status) (names []string) {
			for _, i := range s.Instances {
				if i.Silent {
					names = append(names, i.Instance)
				}
			}
			return names
		}
		problem := func(s *status.Status, text string) bool {
			return slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, text) })
		}
		if s := w.Status(status.Options{}); !s.Settled || silent(s) != nil || s.Accounts[0].Demand != 300 || s.Gates[0].Waiting != 1 {
			t.Errorf("while all live: settled %v, silent %v, demand %v, gates %+v", s.Settled, silent(s), s.Accounts[0].Demand, s.Gates)
		}

		revive := kill("p1", "p2", "d1", "w1")
		time.Sleep(15 * time.Second)
		if s := w.Status(status.Options{}); silent(s) != nil || len(s.Unowned) != 0 {
			t.Errorf("within the lease: silent %v, %d segments without an owner", silent(s), len(s.Unowned))
		}
		time.Sleep(5 * time.Minute)
		s := w.Status(status.Options{})
		if s.Settled || len(s.Unowned) != 128 || len(silent(s)) != 4 || s.Instances[0].Segments != 64 || s.Instances[0].BeatAge < 300 {
			t.Errorf("settled %v, %d segments without an owner, silent %v, %+v", s.Settled, len(s.Unowned), silent(s), s.Instances[0])
		}
		if !problem(s, "4 of 4 processes are silent") || !problem(s, "d1, p1, p2, w1") || !problem(s, "128 of 128 segments have no live owner, and no live processor") {
			t.Errorf("problems %q", s.Problems)
		}
		if a := s.Accounts[0]; a.Demand != 0 || a.Throttled != 0 || len(s.Gates) != 0 {
			t.Errorf("demand %v, throttled %d, gates %+v", a.Demand, a.Throttled, s.Gates)
		}

		revive()
		time.Sleep(time.Minute)
		if s := w.Status(status.Options{}); !s.Settled || silent(s) != nil || len(s.Problems) != 0 {
			t.Errorf("alive again: settled %v, silent %v, problems %q", s.Settled, silent(s), s.Problems)
		}
	})
}

func TestAnAccountThatDoesNotAnswerMakesNobodySilent(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		w.Joined("p1", cluster.RoleProcessor, cluster.Report{})
		time.Sleep(time.Minute)
		w.Sim.Hang("accountb", true)
		defer w.Sim.Hang("accountb", false)
		began := time.Now()
		s := w.Status(status.Options{Timeout: 2 * time.Minute})
		if took := time.Since(began); took < 30*time.Second || s.Instances[0].Silent || s.Instances[0].BeatAge > 6 || !s.Settled {
			t.Errorf("after %v: %+v", took, s.Instances[0])
		}
	})
}

func TestABudgetCountsWhatIsMeasuredOfThoseWhoWork(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		demand := map[string]float64{"accounta": 20_000}
		w.Joined("works", cluster.RoleProcessor, cluster.Report{Demand: map[string]float64{"accounta": 30}})
		w.Joined("waits", cluster.RoleProcessor, cluster.Report{Demand: demand, Waiting: "morning"})
		w.Joined("comes", cluster.RoleProcessor, cluster.Report{Demand: demand, Guessed: true})
		s := w.Status(status.Options{})
		proof.Same(t, s.Accounts[0].Demand, 30, "demand")
		for _, i := range s.Instances {
			proof.Same(t, len(i.Demand), map[string]int{"works": 1, "waits": 1}[i.Instance],
				i.Instance, "shows", i.Demand)
		}
	})
}

func TestADamagedRowOfAMemberIsNamedAndTheOthersAreShown(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		w.Joined("p1", cluster.RoleProcessor, cluster.Report{})
		proof.Must(t, proof.ErrOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
			Partition: "town", Row: "present.p2", Properties: map[string]any{"Format": int64(1), "Instance": "p2", "Beat": "x"},
		}})))
		s := w.Status(status.Options{})
		if len(s.Problems) == 0 || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, "town/present.p2") }) || len(s.Instances) != 2 {
			t.Errorf("problems %q, instances %+v", s.Problems, s.Instances)
		}
	})
}

func TestTheStatusShowsTheLastRunsAndWhatEachInstanceDidOfThem(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx := t.Context()
		runs := workload.NewRuns(w.Table(), "town")
		create := func(n byte, mode, instance string) pump.RunID {
			t.Helper()
			time.Sleep(time.Second)
			id := pump.RunID{0: n}
			proof.Must(t, runs.Create(ctx, workload.Run{ID: id, Mode: mode, Instance: instance}))
			return id
		}
		check := func(err error) {
			t.Helper()
			proof.Must(t, err)
		}
		oldest := create(1, "once", "gone")
		sealed := create(2, "once", "gone")
		check(runs.Seal(ctx, sealed, []uint64{3, 4}))
		broken := create(3, "once", "gone")
		check(runs.Break(ctx, broken, "the reason"))
		mine := create(4, "once", "feeder")
		led := create(5, "every", "leader")
		check(workload.NoteTallies(ctx, w.Table(), "town", "p1", workload.RunTally{Run: sealed, Tally: workload.Tally{Handled: 5, Failed: 1, Quarantined: 1}}))
		check(workload.NoteTallies(ctx, w.Table(), "town", "p2", workload.RunTally{Run: sealed, Tally: workload.Tally{Handled: 1, Retried: 2, Duplicates: 3}}))
		w.Joined("feeder", cluster.RoleDistributor, cluster.Report{Tasks: 1234})
		e := election.New(w.Table(), "town", election.Options{Instance: "leader"})
		term, _, err := e.Try(ctx)
		check(err)
		check(term.Begin(ctx, led))
		saved := workload.Checkpoint{Counts: make([]uint64, 128)}
		saved.Counts[3], saved.Counts[100] = 40, 2
		check(term.Save(ctx, saved.Encode()))
		defer term.Abandon(ctx)

		s := w.Status(status.Options{Runs: 4})
		var got []string
		for _, r := range s.Runs {
			sent := "?"
			if r.Sent != nil {
				sent = fmt.Sprint(*r.Sent)
			}
			got = append(got, fmt.Sprintf("%s %s %s %s ended=%v sent=%s atLeast=%v handled=%d failed=%d retried=%d quarantined=%d duplicates=%d %s",
				r.ID[:2], r.Mode, r.State, r.Instance, r.Ended != nil, sent, r.AtLeast, r.Handled, r.Failed, r.Retried, r.Quarantined, r.Duplicates, r.Note))
		}
		want := []string{
			"05 every open leader ended=false sent=42 atLeast=true handled=0 failed=0 retried=0 quarantined=0 duplicates=0 ",
			"04 once open feeder ended=false sent=1234 atLeast=true handled=0 failed=0 retried=0 quarantined=0 duplicates=0 ",
			"03 once broken gone ended=true sent=? atLeast=false handled=0 failed=0 retried=0 quarantined=0 duplicates=0 the reason",
			"02 once sealed gone ended=true sent=7 atLeast=false handled=6 failed=1 retried=2 quarantined=1 duplicates=3 ",
		}
		proof.Same(t, cmp.Diff(want, got), "")
		d := s.Distribution
		if d.Phase != "running" || d.Leader != "leader" || d.Epoch != 1 || d.Run != led.String() || d.BeatAge == nil || *d.BeatAge > 1 || d.Next != nil {
			t.Errorf("%+v", d)
		}
		if s := w.Status(status.Options{Runs: 9}); len(s.Runs) != 5 || s.Runs[4].ID != oldest.String() || s.Runs[4].Sent != nil {
			t.Errorf("%+v", s.Runs)
		}
		_ = mine
		_, err = w.Table().Write(ctx, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
			Partition: "town.progress", Row: sealed.String() + ".p3", Properties: map[string]any{"Instance": "p3", "Handled": int64(-1)},
		}})
		check(err)
		s = w.Status(status.Options{Runs: 9})
		if r := s.Runs[3]; r.Handled != 6 || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, sealed.String()+".p3") }) {
			t.Errorf("with a damaged tally: %+v, %q", r, s.Problems)
		}
		check(term.Finish(ctx))
		d = w.Status(status.Options{}).Distribution
		if wait := d.Next.Sub(w.Status(status.Options{}).Time); d.Phase != "idle" || d.BeatAge != nil || wait < 50*time.Second || wait > time.Minute {
			t.Errorf("%+v, next in %v", d, wait)
		}
	})
}

func TestTheStatusShowsTheKeysThatRunFirst(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		claims := coordination.NewClaims(w.Table(), "town", time.Hour, "p1")
		for i, key := range []string{"Bern", "Oslo", "Rome"} {
			c, verdict, _, err := claims.Claim(t.Context(), []byte(key), coordination.TaskRef{Run: codec.RunID{1}, Segment: 3, N: uint64(i)})
			if err != nil || verdict != coordination.Granted {
				t.Fatal(verdict, err)
			}
			time.Sleep(time.Second)
			if key != "Oslo" {
				proof.Must(t, c.Done(t.Context(), key == "Rome"))
			}
		}
		s := w.Status(status.Options{})
		var got []string
		for _, k := range s.Keys {
			got = append(got, fmt.Sprintf("%s by %s running=%v failed=%v stopped=%v", k.Key, k.Instance, k.Running, k.Failed, k.Stop != nil))
		}
		want := []string{"Oslo by p1 running=true failed=false stopped=false", "Rome by p1 running=false failed=true stopped=true", "Bern by p1 running=false failed=false stopped=true"}
		proof.Same(t, cmp.Diff(want, got), "")
	})
}
