package storagetest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// TestATrialSaysWhatFailsAndDropsWhatItMade, on a server that does as Azure does, and on one that
// does not.
func TestATrialSaysWhatFailsAndDropsWhatItMade(t *testing.T) {
	t.Parallel()
	for _, differs := range []bool{false, true} {
		c := azsim.Config{Accounts: []azsim.Account{{Name: "conformance"}}, Limits: azsim.NoLimits()}
		if differs {
			c.BeingDeleted = -1
		}
		sim := azsim.New(c)
		plain, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString("conformance"), Transport: sim.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		ended := storagetest.Trial{
			Open: func(via func(storagetest.Doer) storagetest.Doer) (storage.Account, error) {
				return azure.Open(azure.Options{ConnectionString: sim.ConnectionString("conformance"), Transport: via(sim.Transport())})
			},
			Prefix: "trial", AtOnce: 4,
			Only: func(name string) bool { return strings.HasPrefix(name, "creating a") },
		}.Run(t.Context())
		failed := 0
		for _, o := range ended {
			if o.Failure != "" {
				failed++
			}
		}
		if want := map[bool]int{false: 0, true: 2}[differs]; failed != want || len(ended) < 4 {
			t.Errorf("%d of %d cases failed, want %d: %+v", failed, len(ended), want, ended)
		}
		if names, err := plain.Queues(t.Context(), ""); err != nil || len(names) > 0 {
			t.Errorf("left over: %v, %v", names, err)
		}
	}
	ended := storagetest.Trial{
		Open: func(func(storagetest.Doer) storagetest.Doer) (storage.Account, error) {
			return nil, errors.New("no such account")
		},
		Prefix: "trial", Only: func(name string) bool { return name == "an empty text is a message" },
	}.Run(t.Context())
	if len(ended) != 1 || ended[0].Failure != "no such account" {
		t.Errorf("%+v", ended)
	}
}
