package operate

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/handlers"
)

// countsFlags are the flags of `distributor counts`.
type countsFlags struct {
	operation
	key string
	one bool // --key is given; the key may be empty
	top int
}

func counts() *cobra.Command {
	var f countsFlags
	cmd := &cobra.Command{
		Use:   "counts",
		Short: "Show what processors with --count-by have counted",
		Long: `Show what the processors of a workload have counted ("processor run --count-by"):
a line for each key, sorted by key, with how many tasks had it and, with --sum,
what its numbers come to, exactly. All segments are added up, with and without an owner.

It is read from the workload's rows; no process is asked. While tasks are being done,
segments are of different moments; when a run is complete it is all in. With
"delivery: once" each task that is done is counted exactly once; otherwise one that
was delivered twice is counted twice.

With --json a line is {"key":"Oslo","count":3,"sum":42.5}; "sum" is only there if
there is something summed, and may have more digits than a float keeps. A
key that is not UTF-8 is in "keyBase64".`,
		Example: `  distributor counts --config pump.yaml
  distributor counts --config pump.yaml --top 10
  distributor counts --config pump.yaml --key Oslo --json
  distributor counts --config pump.yaml --json | jq -s 'map(.count) | add'`,
		Args: cli.NoArguments(nil),
		RunE: f.run(func(cmd *cobra.Command, _ []string) error { return f.show(cmd) }),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.Lookup("json").Usage = "print each key as a JSON object on a line of its own"
	flags.StringVar(&f.key, "key", "", "show this key only")
	flags.IntVar(&f.top, "top", 0, "show the `N` keys with the most tasks, the most first")
	return cmd
}

func (f *countsFlags) show(cmd *cobra.Command) error {
	f.one = cmd.Flags().Changed("key")
	switch {
	case cmd.Flags().Changed("top") && (f.top < 1 || f.top > 1_000_000):
		return cli.Usage("--top: %d is out of range; use 1 to 1000000", f.top)
	case f.one && f.top > 0:
		return cli.Usage("only one of --key and --top can be given")
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	keys, tasks := int64(0), uint64(0)
	best := topCounts{limit: f.top}
	for k, err := range handlers.ReadCounts(cmd.Context(), f.cfg) {
		if err != nil {
			return err
		}
		if f.one && k.Key != f.key {
			continue
		}
		keys++
		tasks += k.Count
		if f.top > 0 {
			best.add(k)
			continue
		}
		if err := f.line(out, keys == 1, k); err != nil {
			return err
		}
	}
	for i, k := range best.sorted() {
		if err := f.line(out, i == 0, k); err != nil {
			return err
		}
	}
	if !f.json {
		fmt.Fprintf(out, "%s, %s\n", cli.Plural(keys, "key"), cli.Plural(int64(tasks), "task"))
	}
	return out.Flush()
}

// KeyLine is a line of `counts --json`.
type KeyLine struct {
	Key       *string     `json:"key,omitempty"`
	KeyBase64 []byte      `json:"keyBase64,omitempty"`
	Count     uint64      `json:"count"`
	Sum       json.Number `json:"sum,omitempty"`
}

// line prints a key. For people numbers come first and have a fixed place, so that a
// million keys need not be looked at before the first is printed.
func (f *countsFlags) line(w io.Writer, first bool, k handlers.KeyCount) error {
	if f.json {
		line := KeyLine{Count: k.Count, Sum: k.Sum}
		line.Key, line.KeyBase64 = texts([]byte(k.Key))
		return printJSON(w, line)
	}
	sum := func(s string) string {
		if k.Sum == "" {
			return ""
		}
		return fmt.Sprintf(" %20s", s)
	}
	if first {
		fmt.Fprintf(w, "%12s%s  %s\n", "COUNT", sum("SUM"), "KEY")
	}
	_, err := fmt.Fprintf(w, "%12d%s  %s\n", k.Count, sum(k.Sum.String()), plain(k.Key))
	return err
}

// topCounts keeps the keys with the most tasks; among equals, the first ones in the alphabet. It
// holds fewer than twice as many as it keeps.
type topCounts struct {
	limit int
	keys  []handlers.KeyCount
}

func (t *topCounts) add(k handlers.KeyCount) {
	if t.keys = append(t.keys, k); len(t.keys) >= 2*t.limit {
		t.keys = t.sorted()
	}
}

// sorted gives them with the most first.
func (t *topCounts) sorted() []handlers.KeyCount {
	slices.SortFunc(t.keys, func(a, b handlers.KeyCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return t.keys[:min(t.limit, len(t.keys))]
}
