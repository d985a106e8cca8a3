package simserver

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// Fault says what goes wrong, how often and when. A field that is left out matches all. Its text is
// that of [ParseFault]; its JSON is an object with the same names and the kind under "fault".
type Fault struct {
	Kind string // as in Kinds

	Account    string
	Service    string   // "queue" or "table"
	Operations []string // "op": as in Operations
	Object     string   // a queue or a table
	Partition  string   // a partition key of a table
	Client     string   // a part of the User-Agent

	// Of the requests that match, the first Skip are spared. Of the rest only the first First (0: all)
	// are hit, of those every Every-th, and of those a share of Rate, chosen by the seed (0: each).
	// The counts restart each time that a schedule begins the fault.
	Rate               float64
	Skip, First, Every int

	// The answer of an error. 0 and "" mean 503 ServerBusy, after the act 500 InternalError, for a
	// refusal 403 AuthenticationFailed.
	Status     int
	Code       string
	RetryAfter time.Duration // a header, in whole seconds

	By time.Duration // of a delay

	Back string // what a gone account holds when it comes back: "full" (also ""), "empty"

	// The fault begins From after it was set, and ends after For (0: never). With Repeat it begins
	// again that long after it began.
	From, For, Repeat time.Duration
}

// kind is what a fault does.
type kind struct {
	name  string
	does  string
	rule  azsim.FaultKind // "": of a whole account
	words []string        // beside those of every kind
	only  []string        // operations that it can change; nil: all
	of    string          // the service of only
	dark  darkness        // the state of a whole account
}

// always are the words of every kind; often those of all kinds but of a whole account.
var (
	always = []string{"account", "from", "for", "repeat"}
	often  = []string{
		"service", "op", "object", "partition", "client", "rate", "skip", "first", "every",
	}
)

const (
	refuseKind = "refuse"
	deleteKind = "delete-queues"
)

var kinds = []kind{
	{
		name: "error", rule: azsim.Answer, words: []string{"status", "code", "retry-after"},
		does: "does not act; answers status=503 code=ServerBusy",
	},
	{
		name: "error-after", rule: azsim.AnswerAfter, words: []string{"status", "code", "retry-after"},
		does: "acts, but answers status=500 code=InternalError",
	},
	{
		name: refuseKind, rule: azsim.Answer, words: []string{"code"},
		does: "does not act; answers status=403 code=AuthenticationFailed",
	},
	{name: "lost-request", rule: azsim.FailBefore, does: "does not act; the connection breaks"},
	{name: "lost-answer", rule: azsim.AnswerLost, does: "acts; the connection breaks"},
	{
		name: "cut-answer", rule: azsim.CutBody,
		does: "acts; the connection breaks in the middle of the answer",
	},
	{
		name: "delay", rule: azsim.DelayBefore, words: []string{"by"},
		does: "waits by=DURATION, then acts",
	},
	{
		name: "delay-answer", rule: azsim.DelayAfter, words: []string{"by"},
		does: "acts, then waits by=DURATION",
	},
	{name: "hang", rule: azsim.HangBefore, does: "does not act and never answers"},
	{name: "hang-after", rule: azsim.HangAfter, does: "acts and never answers"},
	{
		name: "deliver-twice", rule: azsim.DeliverTwice, only: []string{"GetMessages"},
		of:   "queue",
		does: "the messages of a get stay visible",
	},
	{
		name: "reappear-early", rule: azsim.ReappearEarly,
		only: []string{"GetMessages", "UpdateMessage"}, of: "queue",
		does: "messages come back before their lease ends",
	},
	{
		name: "reorder", rule: azsim.Reorder, only: []string{"GetMessages"}, of: "queue",
		does: "a get takes messages out of order",
	},
	{
		name: "damage", rule: azsim.Damage, only: []string{"GetEntity", "QueryEntities"}, of: "table",
		does: "binary values of rows that are read lack their last byte",
	},
	{name: "dark", dark: dark, does: "the account's connections break"},
	{name: "silent", dark: silent, does: "the account takes requests and answers none"},
	{name: "disabled", dark: disabled, does: "the account answers 403 AccountIsDisabled"},
	{
		name: "gone", dark: gone, words: []string{"back"},
		does: "the account was deleted; it comes back as it was, or back=empty",
	},
	{
		name: deleteKind, words: []string{"object"},
		does: "the account's queues, or one, are deleted when it begins",
	},
}

// Kinds says what each kind of fault does, one a line, for help texts.
func Kinds() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %-15s %s\n", k.name, k.does)
	}
	return b.String()
}

func kindNamed(name string) (kind, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, unknown("kind", name, namesOf(kinds, func(k kind) string { return k.name }))
	}
	return kinds[i], nil
}

func namesOf[T any](list []T, name func(T) string) (names []string) {
	for _, x := range list {
		names = append(names, name(x))
	}
	return names
}

// unknown is the error about a word that is not known.
func unknown(what, word string, known []string) error {
	const most = 30
	more := ""
	if len(known) > most {
		known, more = known[:most], ", ..."
	}
	list := strings.Join(known, ", ") + more
	return fmt.Errorf("unknown %s %q; known: %s", what, clipped(word), list)
}

// operations are the names of azsim's operations, by service.
var operations = map[string][]string{
	"queue": {
		"PutMessage", "GetMessages", "PeekMessages", "UpdateMessage", "DeleteMessage", "ClearMessages",
		"CreateQueue", "DeleteQueue", "ListQueues", "GetQueueMetadata", "SetQueueMetadata",
		"GetQueueACL", "SetQueueACL", "GetQueueServiceProperties", "SetQueueServiceProperties",
		"GetQueueServiceStats",
	},
	"table": {
		"InsertEntity", "GetEntity", "QueryEntities", "UpdateEntity", "MergeEntity", "DeleteEntity",
		"InsertOrReplaceEntity", "InsertOrMergeEntity", "Batch", "CreateTable", "DeleteTable",
		"QueryTables", "GetTableACL", "SetTableACL", "GetTableServiceProperties",
		"SetTableServiceProperties", "GetTableServiceStats",
	},
	"blob": {
		"PutBlob", "GetBlob", "GetBlobProperties", "DeleteBlob", "ListBlobs", "CreateContainer",
		"DeleteContainer", "ListContainers",
	},
}

// check refuses a fault that could never do what it says; accounts are the served ones.
func (f Fault) check(accounts []string) error {
	k, err := kindNamed(f.Kind)
	if err != nil {
		return err
	}
	for _, w := range words {
		if err := w.check(&f); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if !w.unset(&f) && !k.has(w.name) {
			return fmt.Errorf("%s says nothing of a fault of kind %s; it has %s", w.name, k.name,
				strings.Join(k.allWords(), ", "))
		}
	}
	switch {
	case f.Account != "" && !slices.Contains(accounts, f.Account):
		return unknown("account", f.Account, accounts)
	case slices.Contains(k.words, "by") && f.By == 0:
		return fmt.Errorf("by is missing: how long it waits, as in by=200ms")
	case f.Repeat > 0 && f.For == 0:
		return fmt.Errorf("repeat needs for: how long it lasts each time")
	case f.Repeat > 0 && f.Repeat <= f.For:
		return fmt.Errorf("repeat=%v must be more than for=%v: it would never end", f.Repeat, f.For)
	}
	if f.Partition != "" && (f.Service == "queue" || k.of == "queue") {
		return fmt.Errorf("partition: queues have none")
	}
	return f.checkOperations(k)
}

func (f Fault) checkOperations(k kind) error {
	known := slices.Concat(operations["queue"], operations["table"], operations["blob"])
	if f.Service != "" {
		known = operations[f.Service]
	}
	if k.only != nil {
		known = k.only
		if f.Service != "" && f.Service != k.of {
			return fmt.Errorf("service: a fault of kind %s is of the %s service", k.name, k.of)
		}
	}
	for _, op := range f.Operations {
		if !slices.Contains(known, op) {
			return unknown("operation", op, known)
		}
	}
	return nil
}

func (k kind) has(word string) bool { return slices.Contains(k.allWords(), word) }

func (k kind) allWords() []string {
	if k.rule == "" {
		return slices.Concat(always, k.words)
	}
	return slices.Concat(always, often, k.words)
}

// inForce is the fault as a rule of azsim. The fault was checked.
func (f Fault) inForce() azsim.Rule {
	k, _ := kindNamed(f.Kind)
	r := azsim.Rule{
		Account: f.Account, Service: f.Service, Operations: f.Operations, Object: f.Object,
		Partition: f.Partition, UserAgent: f.Client,
		Fault: k.rule, Status: f.Status, Code: f.Code, RetryAfter: f.RetryAfter, Delay: f.By,
		Skip: f.Skip, First: f.First, Every: f.Every, Probability: f.Rate,
	}
	if len(r.Operations) == 0 {
		r.Operations = k.only
	}
	if f.Kind == refuseKind {
		r.Status, r.Code = http.StatusForbidden, cmp.Or(f.Code, "AuthenticationFailed")
	}
	return r
}

// at says whether the fault is in force when it was set so long ago, and how long after it was set
// that changes; 0: never.
func (f Fault) at(elapsed time.Duration) (on bool, next time.Duration) {
	switch {
	case elapsed < f.From:
		return false, f.From
	case f.For == 0:
		return true, 0
	}
	began := f.From
	if f.Repeat > 0 {
		began += (elapsed - f.From) / f.Repeat * f.Repeat
	}
	switch {
	case elapsed < began+f.For:
		return true, began + f.For
	case f.Repeat == 0:
		return false, 0
	}
	return false, began + f.Repeat
}
