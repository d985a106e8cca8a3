package storagetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// The list of differences is worth something only if it fails when it is wrong.
func TestVerdict(t *testing.T) {
	t.Parallel()
	known := &Difference{Ref: "the reference", Shows: "done, want"}
	for name, c := range map[string]struct {
		shown         string
		known         *Difference
		failure, note string
	}{
		"passes":                            {"", nil, "", ""},
		"fails":                             {"put: done, want gone", nil, "put: done, want gone", ""},
		"differs as known":                  {"put: done, want gone", known, "", "the reference"},
		"differs otherwise than known":      {"put: exploded", known, "put: exploded", ""},
		"no longer differs":                 {"", known, "take it off the list", ""},
		"differs sometimes, and now":        {"x", &Difference{Ref: "chance", Sometimes: true}, "", "chance"},
		"differs sometimes, and not now":    {"", &Difference{Ref: "chance", Sometimes: true}, "", "this time"},
		"sometimes, but not in this manner": {"x", &Difference{Ref: "chance", Shows: "y", Sometimes: true}, "x", ""},
	} {
		failure, note := verdict(c.shown, c.known)
		if !strings.Contains(failure, c.failure) || (failure == "") != (c.failure == "") || !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
			t.Errorf("%s: failure %q, note %q", name, failure, note)
		}
	}
}

type namedAccount struct{ storage.Account }

func (namedAccount) Name() string { return "acct" }

// A case must see a wrong code, a missing error and an error of the wrong type.
func TestWantSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := &storage.Error{Code: storage.Gone, Op: "get", Account: "acct"}
	for name, c := range map[string]struct {
		err   error
		right bool
	}{
		"the wanted code":       {good, true},
		"no error":              {nil, false},
		"another code":          {&storage.Error{Code: storage.Missing, Op: "get", Account: "acct"}, false},
		"no storage error":      {errors.New("x"), false},
		"no request named":      {&storage.Error{Code: storage.Gone, Account: "acct"}, false},
		"another account named": {&storage.Error{Code: storage.Gone, Op: "get", Account: "other"}, false},
	} {
		k := &C{Account: namedAccount{}}
		k.want(storage.Gone, c.err, "get")
		proof.Same(t, (len(k.failed) == 0), c.right, name, k.failed)
	}
}

func TestCasesThatStopOrPanicFail(t *testing.T) {
	t.Parallel()
	after := false
	k := &C{}
	k.do(func(c *C) {
		c.must(errors.New("stopped here"))
		after = true
	})
	if after || len(k.failed) != 1 || k.failed[0] != "stopped here" {
		t.Errorf("%q, went on: %v", k.failed, after)
	}
	k = &C{}
	k.do(func(*C) { panic("boom") })
	if len(k.failed) != 1 || !strings.Contains(k.failed[0], "boom") {
		t.Errorf("%q", k.failed)
	}
}

func TestCaseNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range allCases() {
		if seen[c.name] {
			t.Errorf("two cases are named %q", c.name)
		}
		seen[c.name] = true
	}
	for _, d := range AzuriteDifferences {
		if !seen[d.Case] || d.Ref == "" || (d.Shows == "" && !d.Sometimes) {
			t.Errorf("%+v", d)
		}
	}
}
