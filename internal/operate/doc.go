// Package operate has the commands by which operators look at a workload and change it. Both
// binaries have those that only look.
//
// # Top
//
// Top shows a workload in a terminal, live: the headline and the figures of the page, one
// table at a time, from the same readings (status.Watcher).
package operate
