package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// must ends a test with an error.
var must = proof.Must

func TestTheDoctorIsSilentOnAHealthyFleetOfTwentyProcesses(t *testing.T) {
	inClinic(t, workload.Spec{}, 10, 17, func(t *testing.T, c *clinic) {
		var ds []*testworld.Started[*distributor.Distributor, distributor.Summary]
		for i := range 3 {
			cfg := c.Config(fmt.Sprintf("d%d", i), 10)
			cfg.Admin = fmt.Sprintf("10.0.1.%d:9090", i)
			d, err := distributor.New(
				cfg,
				&testworld.ListSource{Print: "a", N: 500, Pace: 5 * time.Millisecond},
				distributor.Options{Every: 5 * time.Second},
			)
			must(t, err)
			ds = append(ds, testworld.Start(t, d))
		}
		time.Sleep(time.Minute)
		for range 5 { // at moments of other beats and other runs
			r := c.check()
			if len(r.Findings) != 0 || r.Processes != 20 {
				t.Errorf("%d processes, %+v", r.Processes, r.Findings)
			}
			time.Sleep(7300 * time.Millisecond)
		}
		proof.Alike(t, c.left(), nil, "it has left")
		for _, d := range ds {
			d.Stop()
			<-d.Done
		}
	})
}

func TestTheDoctorIsSilentOnWorkloadsOfOtherKinds(t *testing.T) {
	for name, spec := range map[string]workload.Spec{
		"each task once": {Delivery: string(pump.Once)},
		"shared":         {Shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			inClinic(t, spec, 2, 2, func(t *testing.T, c *clinic) {
				c.Spread(3, 2)
				if r := c.check(); len(r.Findings) != 0 || r.Processes != 2 {
					t.Errorf("%d processes, %+v", r.Processes, r.Findings)
				}
			})
		})
	}
}

// Numbers that do not grow, or are low without a throttle, are no finding.
func TestTheDoctorIsSilentOnWhatStandsStill(t *testing.T) {
	inClinic(t, workload.Spec{}, 2, 1, func(t *testing.T, c *clinic) {
		c.PutText("accountb", "work-poison", []byte("old"))
		c.cut, c.throttles = "accountb", 0
		r := c.check()
		proof.Same(t, len(r.Findings), 0, "findings", r.Findings)
	})
}

func TestTheReportHasStableNamesAndNoNulls(t *testing.T) {
	inClinic(t, workload.Spec{}, 1, 0, func(t *testing.T, c *clinic) {
		text, err := json.Marshal(c.check())
		must(t, err)
		var r map[string]any
		must(t, json.Unmarshal(text, &r))
		proof.Same(t, strings.Join(sorted(r), " "), "accounts findings processes seconds workload")
		proof.Same(t, strings.Join(sorted(r["accounts"].([]any)[0].(map[string]any)), " "), "clockSeconds hosts leftoversRemoved name")
		if strings.Contains(string(text), "null") {
			t.Errorf("%s", text)
		}
		f, err := json.Marshal(doctor.Finding{})
		if want := `{"check":"","severity":"","subject":"","problem":"","fix":""}`; err != nil ||
			string(f) != want {
			t.Errorf("%s", f)
		}
	})
}

// An interrupted doctor removes what it has made; one that was killed leaves it to the next, which
// knows it by its name and its age, and touches nothing else.
func TestWhatADoctorHasLeftIsRemovedByTheNextOne(t *testing.T) {
	inClinic(t, workload.Spec{}, 1, 0, func(t *testing.T, c *clinic) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(60*time.Millisecond, interrupt) // in the middle of the trial
		doctor.Check(ctx, c.cfg, c.o)
		proof.Alike(t, c.left(), nil, "interrupted it leaves")

		killed := c.Fault(
			azsim.Rule{Instance: "operator", Fault: azsim.HangBefore},
			"DeleteQueue",
			"DeleteEntity",
		)
		c.check()
		killed.Remove()
		left := c.left()
		if len(left) != 3 { // two queues and, in the control account's table, a row
			t.Fatalf("the killed one has left %q", left)
		}
		others := []string{"work-doctor-00", "work-doctor-poison", "work-doctor-zz", "work-doctored"}
		for _, name := range others { // of a workload named work-doctor, and of people
			must(t, c.Queue("accountb", name).Create(t.Context()))
		}
		c.check()
		if now := c.left(); !containsAll(now, left) {
			t.Errorf("what may be of a doctor at work is removed: %q of %q are left", now, left)
		}
		time.Sleep(2 * time.Minute)
		r := c.check()
		proof.Alike(t, c.left(), others, "is left")
		of := byAccount(r)
		proof.Same(t, of["accounta"].Removed+of["accountb"].Removed, 3, "it says that it has removed")
	})
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// Before a workload is made there is no table, and the doctor leaves none.
func TestTheDoctorTriesAnAccountWithoutATable(t *testing.T) {
	inClinic(t, workload.Spec{}, 1, 0, func(t *testing.T, c *clinic) {
		if err := c.Cfg.Accounts[1].Storage.Table("queuepump").Drop(t.Context()); err != nil &&
			!storage.Is(err, storage.Missing) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c.deny("accountb", "AuthorizationPermissionMismatch", "nothing")
		r := c.check()
		proof.Same(t, len(r.Findings), 0, "findings", r.Findings)
		for _, name := range []string{"queuepump", "queuepumpdoctor"} {
			_, err := c.Cfg.Accounts[1].Storage.Table(name).Read(t.Context(), "a", "b")
			if !storage.Is(err, storage.Missing) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// However an account is dark, and whichever it is, the doctor says so within its time.
func TestTheDoctorTakesTenSecondsAtMost(t *testing.T) {
	for _, account := range []string{"accounta", "accountb"} {
		for name, darken := range map[string]func(c *clinic){
			"refusing": func(c *clinic) { c.Sim.Blackout(account, true) },
			"hanging":  func(c *clinic) { c.Sim.Hang(account, true) },
			"hanging tables": func(c *clinic) {
				c.Fault(azsim.Rule{Account: account, Service: "table", Instance: "operator", Fault: azsim.HangAfter})
			},
			"hanging queues": func(c *clinic) {
				c.Fault(azsim.Rule{Account: account, Service: "queue", Instance: "operator", Fault: azsim.HangAfter})
			},
			"slow": func(c *clinic) {
				c.Fault(azsim.Rule{Account: account, Instance: "operator", Fault: azsim.DelayAfter, Delay: 2 * time.Second})
			},
		} {
			t.Run(account+" "+name, func(t *testing.T) {
				inClinic(t, workload.Spec{}, 4, 1, func(t *testing.T, c *clinic) {
					darken(c)
					r := c.check()
					proof.Alike(t, found(r), []string{"error account " + account}, r.Findings)
				})
			})
		}
	}
}
