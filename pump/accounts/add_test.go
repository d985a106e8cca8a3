package accounts_test

import (
	"context"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestAnAccountWithMoreQueuesThanThereAreSegmentsLeftIsNotAdded(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Workload = "town"
		two := w.Cfg
		two.Accounts = two.Accounts[:2]
		f := queues.Open(&two)
		spec := setup.SpecOf(&setup.Config{Config: two})
		spec.Segments = 4
		proof.Must(t, proof.ErrOf(workload.Ensure(t.Context(), f.Control, spec)))
		e := testworld.Refused(t, proof.ErrOf(accounts.Add(t.Context(), w.Operator(), "accountc")), "with it the workload would have 6 queues, but it has 4 segments")
		if !strings.Contains(e.Fix, "use at most 0 queues of it") || states(w) != "a active 2, b active 2, c unused 2" {
			t.Errorf("%v; %s", e, states(w))
		}
		none := proof.ErrOf(w.Queue("accountc", "town-00").Count(t.Context()))
		proof.Same(t, none == nil, false, "its queues were made")
	})
}

// B5: a member that knows the account's rivals only joins between the look and the change.
func TestAnAccountIsTakenBackIfAMemberThatCannotReadItJoinsMeanwhile(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		cfg := w.Operator()
		joined := false
		cfg.Accounts[2].Storage = beforeCreate{cfg.Accounts[2].Storage, func() {
			if !joined {
				joined = true
				w.Joined("late", cluster.RoleProcessor, cluster.Report{Accounts: []string{"accounta", "accountb"}})
			}
		}}
		e := testworld.Refused(t, proof.ErrOf(accounts.Add(t.Context(), cfg, "accountc")), "processes joined meanwhile")
		if !strings.Contains(e.Problem, "late") || states(w) != "a active 2, b active 2, c draining 2" {
			t.Errorf("%v; %s", e, states(w))
		}
	})
}

// beforeCreate is an account in which something happens before a queue is made.
type beforeCreate struct {
	storage.Account
	then func()
}

type createdQueue struct {
	storage.Queue
	then func()
}

func (a beforeCreate) Queue(name string) storage.Queue {
	return createdQueue{a.Account.Queue(name), a.then}
}

func (q createdQueue) Create(ctx context.Context) error {
	if strings.HasSuffix(q.Name(), "-poison") {
		q.then()
	}
	return q.Queue.Create(ctx)
}
