// Package sim brings simulations and tests into the engine: an account that they configure carries
// what they set.
package sim

import (
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/storage"
)

// Config is what simulations and tests set. The engine works with zero.
type Config struct {
	Seeding         Seeding
	Lanes           int           // packers at work
	CheckpointEvery time.Duration // between checkpoints
	BarrierAge      time.Duration // how old a barrier may get
	SenderIdle      time.Duration // after how long without a task a sender seals its run
	MaxUnsaved      int64         // tasks since the last checkpoint
	Names           int           // of tasks without a run, in a segment's ledger
	// Hands gets the ledger of a processor, and what the processor holds, when it begins.
	Hands func(l *ledger.Ledger, hold func(segment uint32) (cluster.Hold, bool))
}

// account is an account that brings a Config.
type account struct {
	storage.Account
	config *Config
}

// Unwrap gives the account itself, for [storage.As].
func (a account) Unwrap() storage.Account { return a.Account }

// In gives what the accounts of a configuration bring, to be changed before a process is made.
func In(c *pump.Config) *Config {
	if config := brought(c); config != nil {
		return config
	}
	config := &Config{}
	for i, a := range c.Accounts {
		c.Accounts[i].Storage = account{a.Storage, config}
	}
	return config
}

// Of gives what the accounts of a configuration bring. It is read once, when a process is made.
func Of(c *pump.Config) Config {
	if config := brought(c); config != nil {
		return *config
	}
	return Config{}
}

// brought is what the first account that brings something does; nil if none does.
func brought(c *pump.Config) *Config {
	for _, a := range c.Accounts {
		if of, is := storage.As[account](a.Storage); is {
			return of.config
		}
	}
	return nil
}
