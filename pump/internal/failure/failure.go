// Package failure alone says what follows from a failure, for the control account, the ledger, the
// data accounts and their queues. docs/failures.md is its table in words, and a test compares both.
package failure

import (
	"errors"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Party is what fails.
type Party uint8

// The parties.
const (
	ControlAccount Party = iota
	DataAccount          // one of several
	AllAccounts          // each account that the workload puts into, in the same way
	Queue                // one of several of an account
	Quarantine           // the queue of an account, when a command looks for failed tasks
	Partition            // of the ledger, of several
	Help                 // a row that is a help only: the service's clock, an account's anchor
	parties
)

// Stake is what is at stake when it fails.
type Stake uint8

// The stakes.
const (
	// Command: a command, or a distribution of its own, begins or looks. It may end without a loss,
	// and its user reads the error.
	Command Stake = iota
	// Service: a process begins that is there to wait for work.
	Service
	// Work: the process has worked, and what it has read, owns or leads waits.
	Work
	// Hold: a message is in hand, and comes back by itself when its lease ends.
	Hold
	stakes
)

// Kind is the way of failing that an error shows.
type Kind uint8

// The kinds.
const (
	Unknown   Kind = iota // it is not an answer of a service
	Silent                // no answer, or one without meaning: the request may have been done
	Throttles             // too much was asked
	Refuses               // the key or the signature is wrong, or it is over
	NoRight               // the credential is good and lacks a right, which may just have been given
	Missing               // the queue or the table is not there, or is being deleted
	Disabled              // the account is disabled, unknown, or being made
	Gone                  // the message or the row is not there any more
	Invalid               // the same request fails each time
	NotSent               // the caller ended it before it was sent
	Mistake               // of the configuration, or the workload is gone: waiting does not mend it
	kinds
)

// Action is what to do.
type Action uint8

// The actions.
const (
	_        Action = iota
	Wait            // ask again, and keep what is in hand
	GoRound         // others do it meanwhile; ask again now and then
	GiveBack        // the message returns to its queue by its lease
	End             // the process, the run or the command ends with the error
)

// Decision is what follows from a failure.
type Decision struct {
	Do   Action
	Kind Kind
	// Patience is for how long to do so before it ends; 0: without end.
	Patience time.Duration
	// Fix is what an operator may do, empty if only waiting helps.
	Fix string
	// Whole: what the account answers concerns all its queues, so the others need not be asked.
	Whole bool
}

// policy is what follows by kind and stake, where parties do not differ in it.
var policy = [parties][kinds][stakes]Action{
	ControlAccount: {
		//          Command, Service, Work, Hold
		Unknown:   {End, End, Wait, Wait},
		Silent:    {Wait, Wait, Wait, Wait},
		Throttles: {Wait, Wait, Wait, Wait},
		Refuses:   {End, End, Wait, Wait},
		NoRight:   {End, Wait, Wait, Wait},
		Missing:   {Wait, Wait, Wait, Wait},
		Disabled:  {Wait, Wait, Wait, Wait},
		Gone:      {Wait, Wait, Wait, Wait},
		Invalid:   {End, End, Wait, Wait},
		NotSent:   {Wait, Wait, Wait, Wait},
		Mistake:   {End, End, End, End},
	},
	// A command makes a request of it a few times, then it goes on with the other accounts.
	Quarantine: always(GoRound, Wait, Unknown, Silent, Throttles, NotSent),
	// To wait is to send the same bytes again. To go round is to end the request with its error: the
	// holder of the results makes it again later, and other partitions are written meanwhile.
	Partition: always(GoRound, Wait, Silent, Throttles, Refuses, NoRight, Gone, NotSent),
	// The command has already tried for a while. A process that may only read, or only use queues,
	// does without it.
	Help:        always(End, GoRound, Refuses, NoRight),
	DataAccount: one,
	Queue:       one,
	AllAccounts: {
		Unknown:   {Wait, Wait, Wait, Wait},
		Silent:    {Wait, Wait, Wait, Wait},
		Throttles: {Wait, Wait, Wait, Wait},
		Refuses:   {End, End, Wait, Wait},
		NoRight:   {Wait, Wait, Wait, Wait},
		Missing:   {Wait, Wait, Wait, GiveBack},
		Disabled:  {Wait, Wait, Wait, Wait},
		Gone:      {End, End, End, GiveBack},
		Invalid:   {End, End, End, GiveBack},
		NotSent:   {Wait, Wait, Wait, Wait},
		Mistake:   {End, End, Wait, Wait},
	},
}

// one is the policy for an account or a queue among several. There a mistake means that this
// process has no credentials for it, and concerns this process alone.
var one = [kinds][stakes]Action{
	Unknown:   {GoRound, GoRound, GoRound, Wait},
	Silent:    {GoRound, GoRound, GoRound, Wait},
	Throttles: {Wait, Wait, Wait, Wait},
	Refuses:   {GoRound, GoRound, GoRound, Wait},
	NoRight:   {GoRound, GoRound, GoRound, Wait},
	Missing:   {GoRound, GoRound, GoRound, GiveBack},
	Disabled:  {GoRound, GoRound, GoRound, Wait},
	Gone:      {End, End, End, GiveBack},
	Invalid:   {End, End, End, GiveBack},
	NotSent:   {Wait, Wait, Wait, Wait},
	Mistake:   {GoRound, GoRound, GoRound, Wait},
}

// always is a policy that is the same for every stake: do, but other for some kinds.
func always(do, other Action, some ...Kind) (of [kinds][stakes]Action) {
	for kind := range kinds {
		of[kind] = [stakes]Action{do, do, do, do}
		if slices.Contains(some, kind) {
			of[kind] = [stakes]Action{other, other, other, other}
		}
	}
	return of
}

const (
	// RightPatience is how long a command waits if it may not put anywhere: a new role assignment
	// takes up to ten minutes to be known everywhere.
	RightPatience = 15 * time.Minute
	// ThereAgain is for how long a command waits for a control account that is not there: as long as
	// for an account that does not answer.
	ThereAgain = time.Minute
)

const (
	fixCredential = `give the identity the role "Storage Queue Data Contributor" on the account ` +
		"(a new assignment takes minutes), or use a SAS or key that may add messages"
	fixControl = `give the identity the role "Storage Table Data Contributor" on the ` +
		"account (a new assignment takes minutes), or use a SAS or key that may write its tables"
	fixMissing = "a distributor that starts makes the queue; what was in it is sent again by: " +
		"distributor runs repair"
	fixDisabled = "enable the account, or have its segments moved: distributor accounts drain NAME"
)

// Decide says what follows from an error of a party.
func Decide(of Party, err error, at Stake) Decision {
	d := Decision{Kind: KindOf(err)}
	d.Do = policy[of][d.Kind][at]
	switch d.Kind {
	case Silent, Unknown, Refuses, NoRight, Disabled:
		d.Whole = true
	}
	control, table := of == ControlAccount, of == ControlAccount || of >= Partition
	switch {
	case d.Kind == NoRight && of == AllAccounts && at == Command:
		d.Patience = RightPatience
	case (d.Kind == Missing || d.Kind == Disabled) && control && at == Command:
		d.Patience = ThereAgain
	}
	switch {
	case (d.Kind == NoRight || d.Kind == Refuses) && table:
		d.Fix = fixControl
	case d.Kind == NoRight || d.Kind == Refuses:
		d.Fix = fixCredential
	case d.Kind == Disabled:
		d.Fix = fixDisabled
	case d.Kind == Missing && !table:
		d.Fix = fixMissing
	}
	return d
}

// Ends reports whether what failed so ends.
func Ends(of Party, err error, at Stake) bool { return Decide(of, err, at).Do == End }

// Whole reports whether an account's other queues would fail as err's queue does.
func Whole(err error) bool { return Decide(Queue, err, Command).Whole }

// KindOf is the way of failing that an error shows.
func KindOf(err error) Kind {
	_, config := errors.AsType[*pump.ConfigError](err)
	if _, ok := errors.AsType[*pump.MismatchError](err); ok || config || workload.Lost(err) {
		return Mistake
	}
	e, ok := errors.AsType[*storage.Error](err)
	if !ok {
		return Unknown
	}
	switch e.Code {
	case storage.MaybeDone:
		return Silent
	case storage.Throttled:
		return Throttles
	case storage.Auth:
		if e.Service == "AuthenticationFailed" {
			return Refuses
		}
		return NoRight
	case storage.Missing:
		if e.NoAccount() || e.Service == "ResourceNotFound" {
			return Disabled
		}
		return Missing
	case storage.Gone:
		return Gone
	case storage.Canceled:
		return NotSent
	}
	return Invalid
}
