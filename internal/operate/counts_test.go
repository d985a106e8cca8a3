package operate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/handlers"
)

func TestTheKeysWithTheMostTasksAreThoseOfASortedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for n := range 40 {
		for limit := 1; limit < 12; limit += 3 {
			var all []handlers.KeyCount
			best := topCounts{limit: limit}
			for i := range n {
				k := handlers.KeyCount{Key: fmt.Sprintf("key %02d", i), Count: rng.Uint64N(6)}
				all = append(all, k)
				best.add(k)
			}
			slices.SortStableFunc(all, func(a, b handlers.KeyCount) int { return int(b.Count) - int(a.Count) })
			if got, want := best.sorted(), all[:min(limit, n)]; !slices.Equal(got, want) {
				t.Fatalf("of %v the first %d are %v", all, limit, got)
			}
		}
	}
}

func TestAKeyIsPrintedSoThatNoTerminalObeysIt(t *testing.T) {
	for _, c := range []struct {
		key         handlers.KeyCount
		json, human string
	}{
		{handlers.KeyCount{Key: "Malmö", Count: 1}, `{"key":"Malmö","count":1}`, "           1  Malmö"},
		{handlers.KeyCount{Key: "", Count: 1, Sum: "-0.5"}, `{"key":"","count":1,"sum":-0.5}`, "           1                 -0.5  "},
		{handlers.KeyCount{Key: "a\x1b[2J\u202eb", Count: 2}, `{"key":"a\u001b[2J\u202eb","count":2}`, "           2  a\ufffd[2J\ufffdb"},
		{handlers.KeyCount{Key: "\xff", Count: 3}, `{"keyBase64":"/w==","count":3}`, "           3  \ufffd"},
		{handlers.KeyCount{Key: "a", Count: 1 << 63, Sum: "123456789012345678901234567890"}, `{"key":"a","count":9223372036854775808,"sum":123456789012345678901234567890}`, "9223372036854775808 123456789012345678901234567890  a"},
	} {
		for text, f := range map[string]countsFlags{c.json: {operation: operation{json: true}}, c.human: {}} {
			var b bytes.Buffer
			if err := f.line(&b, false, c.key); err != nil || b.String() != text+"\n" {
				t.Errorf("%q is %q, want %q; %v", c.key.Key, b.String(), text, err)
			}
		}
	}
}

func TestStateOfAWorkloadThatCountsNothingIsAnError(t *testing.T) {
	d := made(t)
	for _, c := range []struct {
		args  []string
		says  string
		usage bool
	}{
		{[]string{"counts"}, "nothing is counted: no processor with --count-by", false},
		{[]string{"counts", "--top", "0"}, "--top: 0 is out of range", true},
		{[]string{"counts", "--top", "3", "--key", ""}, "only one of --key and --top", true},
	} {
		out, err := d.typed(c.args...)
		if err == nil || !strings.Contains(err.Error(), c.says) || cli.IsMistake(err) != c.usage || out != "" {
			t.Errorf("%q: %v, printed %q", c.args, err, out)
		}
	}
}
