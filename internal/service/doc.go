// Package service is what a process says to the service manager that started it (systemd, or
// another that speaks its protocol): that it is ready, reloads, stops and lives, and what it does.
// Without a service manager it says nothing.
//
// The watchdog is fed by the loops of the process and not by a ticker: each round of each loop is
// an attempt, with any outcome. So a process counts as alive with a dark account, a pause, a gate
// or an idle queue, but not with a stuck loop.
package service
