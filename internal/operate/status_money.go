package operate

import (
	"fmt"
	"io"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/page"
	"github.com/queuepump/queuepump/pump/status"
)

// operations are the kinds of requests of the day, those first that cost most.
func (c screen) operations(w io.Writer, s *status.Status) {
	t := table{columns: []column{
		{title: "OPERATION", shrink: 9},
		{title: "TO"},
		{title: "A MINUTE", right: true},
		{title: "COST A MINUTE", right: true},
		{title: "TODAY", right: true},
		{title: "COST TODAY", right: true},
	}}
	list := page.ByCost(s.Money.Operations)
	shown := fold(len(list), c.rows)
	for _, o := range list[:shown] {
		k := page.KindOf(&o)
		t.add(plain(k.Operation), k.To, k.PerMinute, k.CostPerMinute, number(o.Requests), k.Cost)
	}
	c.section(w, &t)
	if rest := list[shown:]; len(rest) > 0 {
		requests, cost := uint64(0), 0.0
		for _, o := range rest {
			requests, cost = requests+o.Requests, cost+o.Cost
		}
		c.wrap(w, "", fmt.Sprintf("and %s more: %s requests today, %s",
			cli.Plural(int64(len(rest)), "operation"), number(requests), page.Price(cost)))
	}
}
