package status

import (
	"reflect"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/setup"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// moneyOf is what a status says of a day as a beat has it, nil for none, and as a row has it.
func moneyOf(day *cluster.Day, last *sampling.HistoryPoint) Money {
	cfg := &setup.Config{Config: pump.Config{Prices: pump.Prices{Currency: "USD", Queue: 1e4, Table: 2e4}}}
	r := &statusReader{cfg: cfg, last: last, server: noon, local: noon}
	r.view = &cluster.View{
		Read:    noon,
		Members: []cluster.Member{{Instance: "a", Role: cluster.RoleDistributor, Beat: noon}},
	}
	r.view.Members[0].Day = day
	s := &Status{Time: noon}
	r.money(s)
	return s.Money
}

func TestTheDaysOperationsAreThoseOfTheBeat(t *testing.T) {
	today := noon.Unix() / (24 * 60 * 60)
	last := &sampling.HistoryPoint{
		Time: noon.Add(
			-time.Minute,
		), Currency: "USD", DayKinds: cluster.OpCounts{cluster.OpGet: 5, cluster.OpRead: 3},
		Accounts: []sampling.HistoryAccount{
			{
				Name: "alpha", Day: sampling.Requests{Queue: 7, Table: 3},
				DayKinds: cluster.OpCounts{cluster.OpGet: 5, cluster.OpRead: 3},
			},
			{Name: "beta", Day: sampling.Requests{Queue: 1}},
		},
	}
	accounts := []MoneyAccount{
		{
			"alpha",
			Requests{Queue: 7, Table: 3},
			13,
			[]MoneyRequests{{"get", "queue", 5, 5}, {"", "queue", 2, 2}, {"read", "table", 3, 6}},
		},
		{"beta", Requests{Queue: 1}, 1, []MoneyRequests{}},
	}
	kinds := map[cluster.DayKind]cluster.DayCount{
		{Service: "table", Operation: "read"}: {
			Requests: 4, Rate: new(0.5),
		}, {Service: "queue", Operation: "get"}: {Requests: 6, Rate: new(0.0)},
		{Service: "queue", Operation: ""}: {
			Requests: 2,
		}, {Service: "queue", Operation: "of-later"}: {Requests: 1, Rate: new(1.0)},
	}
	fromRow := []MoneyOperation{
		{MoneyRequests{"get", "queue", 5, 5}, nil, nil},
		{MoneyRequests{"", "queue", 3, 3}, nil, nil},
		{MoneyRequests{"read", "table", 3, 6}, nil, nil},
	}
	for what, c := range map[string]struct {
		day  *cluster.Day
		last *sampling.HistoryPoint
		want []MoneyOperation
	}{
		"the beat": {&cluster.Day{Number: today, Cost: 17, Kinds: kinds}, last, []MoneyOperation{
			{MoneyRequests{"get", "queue", 6, 6}, new(0.0), new(0.0)},
			{MoneyRequests{"of-later", "queue", 1, 1}, new(60.0), new(60.0)},
			{MoneyRequests{"", "queue", 2, 2}, nil, nil},
			{MoneyRequests{"read", "table", 4, 8}, new(30.0), new(60.0)},
		}},
		"none samples":                   {nil, last, fromRow},
		"one that does not say kinds":    {&cluster.Day{Number: today, Cost: 17}, last, fromRow},
		"yesterday's":                    {&cluster.Day{Number: today - 1, Cost: 17, Kinds: kinds}, nil, []MoneyOperation{}},
		"nothing is known":               {nil, nil, []MoneyOperation{}},
		"a row without kinds":            {nil, &sampling.HistoryPoint{Time: noon, Accounts: []sampling.HistoryAccount{{Name: "alpha", Day: sampling.Requests{Queue: 1, Table: 1}}}}, []MoneyOperation{}},
		"a row of before midnight alone": {nil, &sampling.HistoryPoint{Time: noon.Add(-13 * time.Hour), DayKinds: last.DayKinds}, []MoneyOperation{}},
	} {
		m := moneyOf(c.day, c.last)
		if !reflect.DeepEqual(m.Operations, c.want) {
			t.Errorf("%s: %+v, want %+v", what, m.Operations, c.want)
		}
		if c.last == last && !reflect.DeepEqual(m.Accounts, accounts) {
			t.Errorf("%s: %+v, want %+v", what, m.Accounts, accounts)
		}
	}
}
