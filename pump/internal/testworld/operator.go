package testworld

import (
	"errors"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/status"
)

// Status is what an operator sees.
func (w *World) Status(o status.Options) *status.Status {
	w.T.Helper()
	s, err := status.Read(w.T.Context(), w.Operator(), o)
	proof.Must(w.T, err)
	return s
}

// Newest is the run that was begun last.
func (w *World) Newest() pump.RunID {
	w.T.Helper()
	all, err := w.AllRuns().List(w.T.Context(), 1)
	proof.Must(w.T, err)
	return all[0].ID
}

// Refused checks that an error is an accounts.Error with a text, and says nothing of storage.
func Refused(t *testing.T, err error, text string) *accounts.Error {
	t.Helper()
	e, ok := errors.AsType[*accounts.Error](err)
	if !ok || !strings.Contains(err.Error(), text) || err.Error() != e.Error() {
		t.Fatalf("%v is no refusal with %q", err, text)
	}
	return e
}
