package main

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestWhatToDoWithATaskIsSaidExactlyOnce(t *testing.T) {
	good := workFlags{children: 1, batch: 1, timeout: time.Second, patience: time.Second}
	with := func(change func(*workFlags)) workFlags {
		f := good
		change(&f)
		return f
	}
	for _, tt := range []struct {
		name  string
		flags workFlags
		err   string
	}{
		{"nothing", good, "nothing says what to do"},
		{"a file", with(func(f *workFlags) { f.out = "x" }), ""},
		{"a command", with(func(f *workFlags) { f.exec = "x" }), ""},
		{"a command and a file", with(func(f *workFlags) { f.exec, f.out = "x", "y" }), ""},
		{"two commands", with(func(f *workFlags) { f.exec, f.execEach = "x", "y" }), "only one of"},
		{"a command and discarding", with(func(f *workFlags) { f.exec, f.discard = "x", true }), "only one of"},
		{"a file and discarding", with(func(f *workFlags) { f.out, f.discard = "x", true }), "nothing to write"},
		{"a header without a URL", with(func(f *workFlags) { f.exec, f.headers = "x", []string{"A: b"} }), "needs --http"},
		{"counts", with(func(f *workFlags) { f.countBy = "x" }), ""},
		{"counts and sums", with(func(f *workFlags) { f.countBy, f.sum = "x", "y" }), ""},
		{"sums of nothing", with(func(f *workFlags) { f.exec, f.sum = "x", "y" }), "--sum needs --count-by"},
		{"a sum alone", with(func(f *workFlags) { f.sum = "y" }), "--sum needs --count-by"},
		{"counts and a command", with(func(f *workFlags) { f.countBy, f.exec = "x", "y" }), "only one of"},
		{"counts and discarding", with(func(f *workFlags) { f.countBy, f.discard = "x", true }), "only one of"},
		{"counts and a file", with(func(f *workFlags) { f.countBy, f.out = "x", "y" }), "nothing to write"},
		{"no children", with(func(f *workFlags) { f.exec, f.children = "x", 0 }), "--children"},
		{"a batch of none", with(func(f *workFlags) { f.exec, f.batch = "x", 0 }), "--batch"},
		{"no time", with(func(f *workFlags) { f.exec, f.timeout = "x", 0 }), "--task-timeout"},
		{"no patience", with(func(f *workFlags) { f.out, f.patience = "x", -1 }), "--out-patience"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.flags.check()
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestATaskThatWaitsForAChildHoldsNoKey unless somebody asks for more tasks in work than children.
func TestATaskThatWaitsForAChildHoldsNoKey(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags workFlags
		want  int
	}{
		{"children", workFlags{exec: "cat"}, 4},
		{"children, results", workFlags{exec: "cat", out: "x"}, 64},
		{"children, keys", workFlags{exec: "cat", claims: true}, 4},
		{"children, results, keys", workFlags{exec: "cat", out: "x", claims: true}, 4},
		{"processes, results", workFlags{execEach: "cat", out: "x"}, 64},
		{"processes, results, keys", workFlags{execEach: "cat", out: "x", claims: true}, 4},
		{"an endpoint, results", workFlags{http: "http://127.0.0.1:1/", out: "x"}, 0},
		{"an endpoint, results, keys", workFlags{http: "http://127.0.0.1:1/", out: "x", claims: true}, 0},
		{"a file, keys", workFlags{out: "x", claims: true}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.flags
			f.children, f.timeout, f.patience = 4, time.Second, time.Second
			if f.out != "" {
				f.out = filepath.Join(t.TempDir(), f.out)
			}
			h, err := f.handler(t.Context(), &configfile.File{}, slog.New(slog.DiscardHandler), func(error) {})
			must(t, err)
			proof.Same(t, h.concurrency, tt.want, "tasks in work at once")
			proof.Is(t, h.close(), nil)
		})
	}
}

func TestAHeaderTakesItsSecretFromTheEnvironment(t *testing.T) {
	t.Setenv("TOKEN", "hunter2")
	h, err := parseHeaders([]string{"Authorization: Bearer ${TOKEN}", "X-Two:a", "x-two: b"})
	must(t, err)
	proof.Same(t, h.Get("Authorization"), "Bearer hunter2")
	if got := h.Values("X-Two"); len(got) != 2 {
		t.Errorf("got %q", got)
	}
	for _, line := range []string{"hunter2", ": hunter2", "A b: hunter2", "A: hunter2\nB: c", "A: ${NO_SUCH_VARIABLE} hunter2", "A: ${TOKEN", "X-Token=hunter2:x", "X-Token=hunter2:${NO}"} {
		if _, err := parseHeaders([]string{line}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", line, err)
		}
	}
}

// TestWaitingIsNoPartOfTheRate in the summary for people.
func TestWaitingIsNoPartOfTheRate(t *testing.T) {
	var b strings.Builder
	printSummary(&b, processor.Summary{Handled: 1000, Envelopes: 1, Seconds: 7}, 5*time.Second)
	if want := "1,000 tasks handled in 2.0 s (500/s), from 1 message; then idle for 5s\n"; !strings.HasPrefix(b.String(), want) {
		t.Errorf("got %s", b.String())
	}
	b.Reset()
	printSummary(&b, processor.Summary{Handled: 1, Retried: 1, Envelopes: 2, Seconds: 2}, 0)
	if want := "1 task handled in 2.0 s (0/s), from 2 messages\n  1 put back for another attempt\n"; !strings.HasPrefix(b.String(), want) {
		t.Errorf("got %s", b.String())
	}
}
