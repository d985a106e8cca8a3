package pump

// ClusterState is a process's place in the cluster, as of its last look.
type ClusterState struct {
	Members int `json:"members"` // processes of the workload; 0: not joined
	// among the processors that take segments, from 0; -1: not one of them
	Rank           int     `json:"rank"`
	Segments       int     `json:"segments"`       // of the workload; 0 if they have no owners
	Held           int     `json:"held"`           // segments, by this process
	Planned        int     `json:"planned"`        // segments that are meant for this process
	Missing        int     `json:"missing"`        // of those, the ones that it does not hold yet
	Unowned        int     `json:"unowned"`        // segments without an owner
	UnownedSeconds float64 `json:"unownedSeconds"` // for how long the longest of those
	// for how long the control account has not answered; 0: it answers
	DarkSeconds float64 `json:"darkSeconds"`
	MapVersion  uint64  `json:"mapVersion"` // of the shard map
}

// AccountState is what a process may do on one account.
type AccountState struct {
	Name         string  `json:"name"`
	BudgetRate   float64 `json:"budgetRate"`   // messages a second that it may spend now
	BudgetTarget float64 `json:"budgetTarget"` // what that grows to while nothing is throttled
	Throttled    int64   `json:"throttled"`    // requests that were refused as too many
	// for how long no request was answered; 0: the last one was
	DownSeconds float64 `json:"downSeconds"`
	// QueueUsed is what it would ask of the queue that it asks most of, as a part of a queue's limit.
	QueueUsed float64 `json:"queueUsed"`
	Refused   bool    `json:"refused"` // the last answer was that the credential is not good
}

// LedgerStatus is how much of its ledger a segment uses: the segment that is nearest to a bound.
// From half of a bound on, runs that no distributor continues end sooner. At the bound, tasks of
// further runs wait until others have ended.
type LedgerStatus struct {
	Segment   uint32  `json:"segment"`
	Used      float64 `json:"used"` // the largest part of a bound, from 0; 1 is all
	Runs      int     `json:"runs"` // that live
	RunsMost  int     `json:"runsMost"`
	Pages     int     `json:"pages"`
	PagesMost int     `json:"pagesMost"`
	Bytes     int     `json:"bytes"` // of records of runs and foreign messages
	BytesMost int     `json:"bytesMost"`
	// Foreign are names of done foreign messages that may come again. Only a processor knows them; the
	// status of the whole workload has 0.
	Foreign     int `json:"foreign"`
	ForeignMost int `json:"foreignMost"`
}

// Requests counts the storage requests of a process by account and operation.
type Requests map[string]map[string]int64

// Total is the sum over all accounts and operations.
func (r Requests) Total() int64 {
	var n int64
	for _, ops := range r {
		for _, c := range ops {
			n += c
		}
	}
	return n
}
