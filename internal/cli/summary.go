package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/pump"
)

// Plural is a number of things: 1 task, 2 tasks.
func Plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return humanize.Comma(n) + " " + thing + "s"
}

// Bytes writes a size so that it can be read.
func Bytes(n int64) string {
	switch {
	case n < 10<<10:
		return humanize.Comma(n) + " B"
	case n < 10<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}

// Requests prints a table of the requests by account and operation, with their number for a
// thousand tasks.
func Requests(w io.Writer, r pump.Requests, throttled, tasks int64) {
	total := r.Total()
	fmt.Fprint(w, Plural(total, "request"))
	if tasks >= 100 { // for a handful of tasks that would only be a large number
		fmt.Fprintf(w, ", %.1f for a thousand tasks", float64(total)*1000/float64(tasks))
	}
	fmt.Fprintf(w, ", %s throttled\n", humanize.Comma(throttled))
	var ops []string
	for _, by := range r {
		for op := range by {
			if !slices.Contains(ops, op) {
				ops = append(ops, op)
			}
		}
	}
	if len(ops) == 0 {
		return
	}
	slices.Sort(ops)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\t%s\t\n", strings.Join(ops, "\t"))
	for _, account := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(t, "%s\t", account)
		for _, op := range ops {
			fmt.Fprintf(t, "%s\t", humanize.Comma(r[account][op]))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
}
