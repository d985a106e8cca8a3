// Package service is what a process says to the service manager that started it (systemd, or
// another that speaks its protocol): that it is ready, what it does, that it reloads, that it
// stops, and that it lives. Without a service manager it says nothing.
//
// The watchdog is fed by the loops of the process and not by a ticker: each round of each loop is
// an attempt, whatever it came to. So a dark account, a pause, a gate or an idle queue keeps no
// process from being thought alive, and a stuck loop does.
package service
