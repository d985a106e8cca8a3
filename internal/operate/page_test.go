package operate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/page"
	"github.com/queuepump/queuepump/pump/status"
)

func TestRowsOfTheHistoryArePointsOfThePage(t *testing.T) {
	at := time.Date(2026, 1, 2, 10, 4, 0, 0, time.UTC)
	got := pastOf([]status.HistoryPoint{{Time: at, Tasks: 12.5, Accounts: []status.HistoryAccount{
		{Name: "a", Asked: 30, Limit: 20_000, Visible: 5, InFlight: 2},
		{Name: "", Asked: 9, Visible: 1},
	}}})
	want := []page.Point{{
		At: at, Rate: 12.5, Messages: new(int64(8)),
		Accounts: map[string]page.AccountPoint{"a": {Demand: 30, Limit: 20_000}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
