package cluster

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
)

const (
	// maxAsked is what counts of requests never reach: a thousand a second for 285,000 years.
	maxAsked = 1 << 53
	// maxDay is the year 9999.
	maxDay = math.MaxInt32
)

// encodeAsked stores two numbers for each account, [queues, tables], without accounts at zero.
func encodeAsked(of map[string]Asked) string {
	kept := map[string][2]uint64{}
	for _, name := range askedNames(of) {
		kept[name] = [2]uint64{min(of[name].Queue, maxAsked), min(of[name].Table, maxAsked)}
	}
	text, _ := json.Marshal(kept) // keys in order
	return string(text)
}

func decodeAsked(f *row.Fields) map[string]Asked {
	text := f.Text("Asked")
	if text == "" || f.Err != nil {
		return nil
	}
	var of map[string][2]uint64
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		f.Fail("Asked", "is not an object of pairs of counts")
		return nil
	}
	if len(of) > maxAccounts {
		f.Fail("Asked", fmt.Sprintf("has %d accounts", len(of)))
		return nil
	}
	asked := make(map[string]Asked, len(of))
	for name, n := range of {
		if n[0] > maxAsked || n[1] > maxAsked {
			f.Fail("Asked", "has a count that cannot be")
			return nil
		}
		asked[name] = Asked{n[0], n[1]}
	}
	return asked
}

func decodeDay(f *row.Fields) *Day {
	number := int64(f.UpTo("Day", maxDay))
	d := Day{Number: number, Cost: f.Number("DayCost"), Kinds: decodeDayKinds(f)}
	if f.Props["DayRate"] != nil {
		d.Rate = new(f.Number("DayRate"))
	}
	if number == 0 || f.Err != nil {
		return nil
	}
	return &d
}

// PerDay is what a day costs at that rate; nil: not known.
func (d *Day) PerDay() *float64 {
	if d.Rate == nil {
		return nil
	}
	return new(*d.Rate * (24 * time.Hour).Seconds())
}

// Day is what a UTC day has cost, by the member that says most: if two members sample for a while,
// each knows a part at least. It is nil if no member that is heard at that time says anything of
// that day.
func (v *View) Day(number int64, now time.Time) *Day {
	var most *Day
	for i := range v.Members {
		m := &v.Members[i]
		if d := m.Day; d != nil && d.Number == number && !m.Silent(now) &&
			(most == nil || d.Cost > most.Cost) {
			most = d
		}
	}
	return most
}
