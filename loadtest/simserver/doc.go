// Package simserver lets others steer a simulator of package azsim: people type faults by rate and
// by schedule, limits and latency as words, or programs send them as JSON, and all of them can
// change while it runs. `loadtest serve` is this package with flags.
//
//	sim, err := simserver.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
//	lost, err := simserver.ParseFault("lost-answer rate=0.01 op=PutMessage")
//	dark, err := simserver.ParseFault("dark account=one from=30s for=20s")
//	err = sim.SetFaults(lost, dark)
//
// A [Simulator] is an azsim.Sim: programs reach it through Transport or Listen. Schedules are
// timers of package time, so they run in a testing/synctest bubble too; Close ends them.
//
// # The admin endpoint
//
// [Simulator.ListenAdmin] serves it on an address of loopback. Bodies are JSON; an error is
// answered as {"error": "..."}.
//
//	GET    /healthz   200 as soon as all services listen
//	GET    /accounts  names and, if the simulator listens, connection strings
//	GET    /faults    {"faults": [{"fault": "lost-answer", "rate": 0.01, "op": ["PutMessage"]}]}
//	PUT    /faults    the same: replaces all faults; their times count from now
//	DELETE /faults    ends all faults
//	GET    /limits    the form of azsim.ParseLimits
//	PUT    /limits    the same (what is left out is as published), or "none", or "published"
//	GET    /latency   {"queue": "5ms", "table": "5ms", "spread": "1ms"}
//	PUT    /latency   the same; what is left out is none
//	GET    /counts    requests, throttled ones, faults that happened, each fault in force
//	POST   /reset     {"account": "one"}: its queues and tables are gone; no body: those of all
//
// A page in a browser can neither read nor steer it: a request must name a host of loopback, and
// one that changes something must not come from a page of another origin.
package simserver
