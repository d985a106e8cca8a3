package worlds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// A17: a role that was assigned a minute ago is not known everywhere. A distributor waits for
// whatever all queues refuse first.
func TestAFirstRefusalOfAQueueIsWaitedFor(t *testing.T) {
	for _, refused := range []azsim.Rule{
		{Status: 403, Code: "AuthorizationPermissionMismatch"},
		{Status: 403, Code: "AuthorizationFailure"},
		{Status: 401, Code: "InvalidAuthenticationInfo"},
	} {
		for _, every := range []time.Duration{0, 24 * time.Hour} {
			t.Run(fmt.Sprint(refused.Code, " every ", every), func(t *testing.T) {
				inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
					refused.Instance, refused.Service, refused.Fault = "d", "queue", azsim.Answer
					rule := w.Fault(refused)
					time.AfterFunc(9*time.Minute, rule.Remove)
					var e ended
					s := &testworld.ListSource{Print: "a", N: 1000}
					d := w.startDistributor(w.distributor("d", s, distributor.Options{Every: every, OnRun: e.by("d")}))
					time.Sleep(11 * time.Minute)
					r := e.until(t, func(endedRun) bool { return true })
					if r.err != nil || w.Logged("a queue refuses the credential") < 4 || w.Logged("Storage Queue Data Contributor") == 0 {
						t.Errorf("%+v; said %d times", r, w.Logged("a queue refuses the credential"))
					}
					w.Collect().Expect(t, w.Segments(), r.Run, s, s.N, s.N)
					d.cancel()
					_ = d.wait()
				})
			})
		}
	}
}

// Nor does an elected distributor end that comes up before its role on the table is known.
func TestAnElectedDistributorWaitsForItsRightOnTheTable(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		rule := w.Fault(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"})
		time.AfterFunc(9*time.Minute, rule.Remove)
		var e ended
		d := w.startDistributor(w.distributor("d", &testworld.ListSource{Print: "a", N: 10}, distributor.Options{Every: time.Hour, OnRun: e.by("d")}))
		e.until(t, succeeded)
		if w.Logged("Storage Table Data Contributor") == 0 {
			t.Error("the log does not say what to do")
		}
		d.cancel()
		_ = d.wait()
	})
}

// An unwatched command must end when the right never comes; a leader waits, because others would do
// no better.
func TestARefusalThatLastsEndsACommandAfterItsPatience(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.Fault(azsim.Rule{Instance: "d", Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"}, "PutMessage")
		began := time.Now()
		s, err := w.distributor("d", &testworld.ListSource{Print: "a", N: 10}, distributor.Options{}).Run(t.Context())
		if took := time.Since(began); took < authPatience || took > authPatience+2*time.Minute {
			t.Errorf("it took %v", took)
		}
		if e, ok := errors.AsType[*storage.Error](err); !ok || e.Code != storage.Auth || !strings.Contains(err.Error(), "Storage Queue Data Contributor") {
			t.Errorf("got %v", err)
		}
		if run := w.RunRow(s.Run); run.State != workload.RunBroken {
			t.Errorf("the run is %s", run.State)
		}
	})
}
