package admin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
)

// The parts of the page, by the names of their events. Figures are those of a [status.Status].
const (
	partHead       = "head"
	partAccounts   = "accounts"
	partQueues     = "queues"
	partOwners     = "owners"
	partProcesses  = "processes"
	partRuns       = "runs"
	partKeys       = "keys"
	partGates      = "gates"
	partQuarantine = "quarantine"
	partMoney      = "money"
	partDoctor     = "doctor"
	partAct        = "act"
	partPast       = "past"  // what was seen, for a new viewer
	partPoint      = "point" // what is seen now, for all
	partAlive      = "alive" // nothing; the stream lives
)

// head is the top of the page.
type head struct {
	Workload     string              `json:"workload"`
	Time         *time.Time          `json:"time"` // of the reading, by the control account's clock
	LocalClock   bool                `json:"localClock"`
	Headline     Headline            `json:"headline"`
	Delivery     string              `json:"delivery"`
	Segments     int                 `json:"segments"`
	Shared       bool                `json:"shared"`
	MapVersion   uint64              `json:"mapVersion"`
	Settled      bool                `json:"settled"`
	Spilled      int                 `json:"spilled"`
	Unowned      int                 `json:"unowned"`
	Distribution status.Distribution `json:"distribution"`
	Ends         runs.Ends           `json:"ends"`
	Ledger       *pump.LedgerStatus  `json:"ledger"`
	Problems     []string            `json:"problems"`
	Settings     map[string]string   `json:"settings"` // of workload set
	Totals       totals              `json:"totals"`
	Requests     int64               `json:"requests"`
	// Old: the rows cannot be read now, and all is as it was at Time.
	Old bool `json:"old"`
	// NotRead are the parts that could not be read now.
	NotRead []status.PartNotRead `json:"notRead"`
	// Version is the version of the page's files: a loaded page of another version loads itself again.
	Version string `json:"version"`
}

// version changes with the page's files.
var version = sync.OnceValue(func() string {
	sum := sha256.New()
	list, _ := embedded.ReadDir("assets") // it is part of the binary
	for _, f := range list {
		text, _ := embedded.ReadFile("assets/" + f.Name())
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
})

// totals are sums over what is known.
type totals struct {
	status.Depth
	Quarantined  *int64 `json:"quarantined"` // null: not known for any account
	Processors   int    `json:"processors"`  // that live
	Distributors int    `json:"distributors"`
	Silent       int    `json:"silent"`
	Accounts     int    `json:"accounts"` // in use
	Dark         int    `json:"dark"`
	Queues       int    `json:"queues"` // of the accounts in use
	Looked       int    `json:"looked"` // of those, the ones that were read by now
}

func headOf(s *status.Status, h Headline, failed bool) head {
	out := head{
		Workload: s.Workload, Time: &s.Time, LocalClock: s.LocalClock, Headline: h,
		Delivery: s.Delivery, Segments: s.Segments, Shared: s.Shared, MapVersion: s.MapVersion,
		Settled: s.Settled, Spilled: s.Spilled, Unowned: len(s.Unowned), Distribution: s.Distribution,
		Ends: s.Ends, Ledger: s.Ledger, Problems: s.Problems, Requests: s.Requests, Old: failed,
		NotRead: s.NotRead, Settings: s.Settings, Version: version(),
	}
	t := &out.Totals
	for i := range s.Accounts {
		a := &s.Accounts[i]
		if a.State == accounts.Unused {
			continue
		}
		t.Accounts++
		t.Queues += a.Queues + len(a.Foreign)
		t.Looked += len(a.ByQueue)
		if a.Dark != "" {
			t.Dark++
		}
		t.Messages += a.Messages
		t.Visible += a.Visible
		t.InFlight += a.InFlight
		t.Bounds = t.Bounds || a.Bounds
		if a.Oldest != nil && (t.Oldest == nil || *a.Oldest > *t.Oldest) {
			t.Oldest = a.Oldest
		}
		if a.Poison != nil {
			t.Quarantined = cmp.Or(t.Quarantined, new(int64))
			*t.Quarantined += *a.Poison
		}
	}
	for i := range s.Instances {
		switch p := &s.Instances[i]; {
		case p.Silent:
			t.Silent++
		case p.Role == "processor":
			t.Processors++
		default:
			t.Distributors++
		}
	}
	return out
}

// queue is a queue with the account that it is of.
type queue struct {
	Account string `json:"account"`
	status.Queue
}

func queuesOf(s *status.Status) []queue {
	list := []queue{}
	for i := range s.Accounts {
		for j := range s.Accounts[i].ByQueue {
			list = append(list, queue{s.Accounts[i].Name, s.Accounts[i].ByQueue[j]})
		}
	}
	return list
}

// account is an account with how many of its queues were read by now.
type account struct {
	status.Account
	Read int `json:"queuesRead"`
}

// accountsOf are the accounts without their queues, which are a part of their own.
func accountsOf(s *status.Status) []account {
	list := make([]account, len(s.Accounts))
	for i := range s.Accounts {
		list[i] = account{s.Accounts[i], len(s.Accounts[i].ByQueue)}
		list[i].ByQueue = []status.Queue{}
	}
	return list
}

// moneySeen is what requests cost, with the same text as in the status.
type moneySeen struct {
	status.Money
	Spending string `json:"spending"`
}

// owners says which process owns which segment.
type owners struct {
	// Names are the owners; Cells has for each segment the place of its owner there, -1 for none.
	Names []string `json:"names"`
	Cells []int    `json:"cells"`
	Moves []Move   `json:"moves"` // the last first
}

// ownerNames has for each segment the name of its owner, empty for none.
func ownerNames(s *status.Status) []string {
	names := make([]string, len(s.Owners))
	for i, at := range s.Owners {
		if at >= 0 {
			names[i] = s.Instances[at].Instance
		}
	}
	return names
}

func ownersOf(names []string, moves []Move) owners {
	o := owners{Names: []string{}, Cells: make([]int, len(names)), Moves: moves}
	if o.Moves == nil {
		o.Moves = []Move{}
	}
	places := map[string]int{"": -1}
	for i, name := range names {
		at, known := places[name]
		if !known {
			at = len(o.Names)
			places[name] = at
			o.Names = append(o.Names, name)
		}
		o.Cells[i] = at
	}
	return o
}

// pageProcess is a process with the part of its handlers that is at work.
type pageProcess struct {
	status.Instance
	Busy float64 `json:"busy"`
}

func processesOf(s *status.Status) []pageProcess {
	list := make([]pageProcess, len(s.Instances))
	for i := range s.Instances {
		list[i] = pageProcess{s.Instances[i], s.Instances[i].Busy}
	}
	return list
}

// doneOf is how much of each running run is settled: exactly, or as its processors count.
func doneOf(s *status.Status) map[string]uint64 {
	done := map[string]uint64{}
	for i := range s.Runs {
		switch r := &s.Runs[i]; {
		case r.State != "open" && r.State != "sealed":
		case r.Exact != nil:
			done[r.ID] = r.Exact.Done + r.Exact.Quarantined
		default:
			done[r.ID] = r.Handled + r.Quarantined
		}
	}
	return done
}

func runsOf(s *status.Status, rates map[string]float64) []RunSeen {
	list := make([]RunSeen, len(s.Runs))
	for i := range s.Runs {
		r := RunSeen{Run: s.Runs[i]}
		if rate, known := rates[r.ID]; known {
			r.PerSecond = &rate
			if left, ok := leftIn(&r.Run); ok && left > 0 {
				if seconds, ok := leftOf(left, rate); ok {
					r.SecondsLeft = &seconds
				}
			}
		}
		list[i] = r
	}
	return list
}

// leftIn is how many tasks of a run are left, if that is known.
func leftIn(r *status.Run) (uint64, bool) {
	switch {
	case r.Exact != nil && r.Exact.Remaining != nil:
		return *r.Exact.Remaining, true
	case r.Exact == nil && r.Sent != nil && !r.AtLeast:
		return *r.Sent - min(*r.Sent, r.Handled+r.Quarantined), true
	}
	return 0, false
}
