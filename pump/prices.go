package pump

import (
	"cmp"
	"fmt"
)

// Prices is what 10,000 requests cost. The published lists have classes of requests to queues and
// to tables. With locally redundant storage, all classes of a service cost the same.
type Prices struct {
	Currency string  `json:"currency"`
	Queue    float64 `json:"queue"`  // requests to queues
	Table    float64 `json:"table"`  // requests to tables
	Source   string  `json:"source"` // of the prices, for people
	Date     string  `json:"date"`   // as of when, for people: 2026-08
}

// published are list prices; a program that knows its own says so in Config.
var published = Prices{
	Currency: "USD", Queue: 0.004, Table: 0.00036, Date: "2026-08",
	Source: "list prices of East US, August 2026 (prices.azure.com): GPv2 accounts with LRS",
}

// Mixed reports whether the list is of another currency than the published one and lacks a price,
// and then says why that cannot be and what to do.
func (l Prices) Mixed() (problem, fix string, mixed bool) {
	if l.Currency == "" || l.Currency == published.Currency || l.Queue != 0 && l.Table != 0 {
		return "", "", false
	}
	return fmt.Sprintf("is %.12q, and the published prices, which are taken where "+
			"none are given, are in %s",
			l.Currency, published.Currency),
		"give both prices.queue and prices.table in that currency, or leave it out for " +
			published.Currency, true
}

// OrPublished is the list with published prices where it gives none, so that of no prices is the
// published list. A list that is [Prices.Mixed]
// stays as it is: a price in one currency cannot stand for one in another.
func (l Prices) OrPublished() Prices {
	if _, _, mixed := l.Mixed(); mixed {
		return l
	}
	given := l.Queue != 0 || l.Table != 0
	l.Currency = cmp.Or(l.Currency, published.Currency)
	l.Queue, l.Table = cmp.Or(l.Queue, published.Queue), cmp.Or(l.Table, published.Table)
	if given {
		l.Source = cmp.Or(l.Source, "as configured")
	} else {
		l.Source, l.Date = cmp.Or(l.Source, published.Source), cmp.Or(l.Date, published.Date)
	}
	return l
}

// blobWrite is how many requests to a queue a put or a list of blobs costs by the published lists.
const blobWrite = 12.5

// Of is the price of one request, by what the engine calls its operation: reads, writes and queries
// are of tables, all others of queues. Requests to blobs have prices in proportion to those.
func (l Prices) Of(operation string) float64 {
	switch operation {
	case "read", "write", "query":
		return l.Table / 1e4
	case "put-blob", "list-blobs":
		return blobWrite * l.Queue / 1e4
	case "delete-blob":
		return 0
	}
	return l.Queue / 1e4
}

// Cost is what so many requests of the two services cost.
func (l Prices) Cost(queue, table float64) float64 { return (queue*l.Queue + table*l.Table) / 1e4 }

// CostOfDay is what a process knows of what a UTC day costs.
type CostOfDay struct {
	Date     string `json:"date"` // 2026-11-25; empty: not known
	Currency string `json:"currency"`
	// Cost is what the day has cost all processes of the workload so far, and PerDay what a day costs
	// at the rate of the last minutes. Both are null unless this process is the one that samples the
	// queues, and has done so long enough to know.
	Cost   *float64 `json:"cost"`
	PerDay *float64 `json:"costPerDayNow"`
	// Cap is budget.costPerDay, null without a cap. Share is what this process would spend a day at
	// what it may spend now. TimesSlower, 1 or more, is how many times longer it leaves empty queues
	// alone. HoldsBack: that is not enough, so gets of full queues wait too. Share and TimesSlower are
	// 0 in a distributor, which is not held back.
	Cap         *float64 `json:"capPerDay"`
	Share       float64  `json:"sharePerDay"`
	TimesSlower float64  `json:"timesSlower"`
	HoldsBack   bool     `json:"holdsBack"`
}
